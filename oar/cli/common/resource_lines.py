"""Lines of shell that create or repair resources."""

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oar.lib.nodes.topology import NewResource


class Writers(NamedTuple):
    """The commands that stand in the lines."""

    oarnodesetting: str = "oarnodesetting"
    oarproperty: str = "oarproperty"


BY_NAME = Writers()


def property_lines(missing: Mapping[str, bool], writers: Writers = BY_NAME) -> list[str]:
    """Return the commands that add properties; each with whether it is a text."""
    return [f"{writers.oarproperty} {'-c ' if is_text else ''}-a {name}" for name, is_text in missing.items()]


def resource_lines(
    units: Sequence[NewResource], append: str = "", *, repair: bool, writers: Writers = BY_NAME
) -> list[str]:
    """Return the commands that create resources, or set the properties of those that exist."""
    return [_line(unit, append, writers.oarnodesetting, repair=repair) for unit in units]


def _line(unit: NewResource, append: str, command: str, *, repair: bool) -> str:
    if repair:
        where = f"network_address = '{unit.host}' and cpuset = '{unit.cpuset}'"
        begin = f'{command} --sql "{where}"'
        pairs = [pair for pair in unit.properties if pair[0] != "cpuset"]
    else:
        begin = f"{command} -a -h {shlex.quote(unit.host)}"
        pairs = list(unit.properties)
    options = " ".join(f"-p {name}={shlex.quote(str(value))}" for name, value in pairs)
    return f"{begin} {options}{' ' if append else ''}{append}"
