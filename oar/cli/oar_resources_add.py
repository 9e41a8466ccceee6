"""oar_resources_add: creates the resources of machines that are all alike."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import click

from oar.cli.common.administration import note
from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import show_usage
from oar.cli.common.options import ADMIN, NUMBER, Stop, option
from oar.lib.db.transaction import Transaction
from oar.lib.facts import topology
from oar.lib.facts.formats import Format, dump
from oar.lib.facts.topology import BadTopology, Machines, NewResource
from oar.lib.resources import nodes, properties
from oar.lib.resources.properties import PropertyProblem, Setting

Function = TypeVar("Function", bound=Callable[..., object])

#: Option -> the field of ``Machines``, and what is said of it.
_NUMBERS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("-H", "--hosts"), "hosts", "Number of hosts."),
    (("-C", "--cpus"), "cpus", "Processors of each host."),
    (("-c", "--cores"), "cores", "Cores of each processor."),
    (("-t", "--threads"), "threads", "Threads of each core."),
    (("-g", "--gpus"), "gpus", "GPUs of each host."),
    (("--host0",), "first_host", "Number of the first host."),
    (("--cpu0",), "first_cpu", "Number of the first processor."),
    (("--core0",), "first_core", "Number of the first core."),
    (("--thread0",), "first_thread", "Number of the first thread."),
    (("--gpu0",), "first_gpu", "Number of the first GPU."),
    (("--cpusets",), "cpusets", "Cpusets of each host."),
    (("--gpudevices",), "gpu_devices", "GPU devices of each host."),
)
_TEXTS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("--cputopo",), "cpu_topology", "Cpusets in order of processors and cores, or RR for round robin."),
    (("--gputopo",), "gpu_topology", "GPU devices in order."),
    (("--host-prefix",), "prefix", "Beginning of the hosts' names."),
    (("--host-suffix",), "suffix", "Their end."),
)
#: Property -> the field with its first number, for -a.
_COUNTED = {"cpu": "first_cpu", "core": "first_core", "thread": "first_thread", "gpu": "first_gpu"}


def machine_options(function: Function) -> Function:
    """Declare the options that describe machines; what is given comes to the function by the name of the field."""
    for names, name, text in reversed(_TEXTS):
        option(*names, name, help=text)(function)
    for names, name, text in reversed(_NUMBERS):
        option(*names, name, type=NUMBER, help=text)(function)
    return function


@oar_command("oar_resources_add", summary="Create the resources of machines.", style=ADMIN)
@machine_options
@option("-T", "--use-threads", "each_thread", is_flag=True, help="A resource for each thread.")
@option("-a", "--auto-offset", is_flag=True, help="Number from the last ones that are used.")
@option("-p", "--no-create-properties", "no_columns", is_flag=True, help="Do not add the properties.")
@option("-A", "--append", default="", metavar="TEXT", help="More -p for each resource.")
@option("-R", "--repair", is_flag=True, help="Set the properties of resources that exist.")
@option("-o", "--write-to", "path", metavar="FILE", help="Write the lines to a file.")
@option("-Y", "--yaml", "as_yaml", is_flag=True, help="Print the resources as YAML.")
@option("-x", "--execute", is_flag=True, help="Do it, all or nothing.")
def main(
    context: Context,
    *,
    each_thread: bool,
    auto_offset: bool,
    no_columns: bool,
    append: str,
    repair: bool,
    path: str | None,
    as_yaml: bool,
    execute: bool,
    **values: int | str | None,
) -> int:
    """Print what would create the resources, or create them."""
    context.require_admin()
    fields = {name: value for name, value in values.items() if value is not None}
    machines = Machines(**{"hosts": 0, "each_thread": each_thread, **fields})  # type: ignore[arg-type]
    try:
        topology.units(replace(machines, hosts=min(machines.hosts, 1)))  # before the database is asked
        if auto_offset:
            machines = _behind_the_last(context, machines, fields)
        units = topology.units(machines)
    except BadTopology as error:
        show_usage()
        raise Stop(f"Error: {error}") from None
    if execute:
        _execute(context, machines, units, append, repair=repair, columns=not no_columns)
        note(context)
        click.echo(f"{len(units)} resource(s) {'repaired' if repair else 'added'}.")
        return 0
    if as_yaml:
        _write(path, _yaml(units))
    else:
        missing = {} if no_columns else _missing(context, machines)
        _write(path, "".join(f"{line}\n" for line in _lines(missing, units, append, repair=repair)))
    return 0


# -- numbers ----------------------------------------------------------------------------------------------------------


def _behind_the_last(context: Context, machines: Machines, options: Mapping[str, object]) -> Machines:
    """Return the machines with numbers behind the last ones that are used, where none are given."""
    with context.database.snapshot() as tx:
        columns = tx.resources.columns()
        counts = {
            field: int(tx.property_columns.largest(name) or 0) + 1
            for name, field in _COUNTED.items()
            if columns.get(name) == "integer"
        }
        names = tx.resources.nodes()
    pattern = re.compile(re.escape(machines.prefix) + r"([0-9]{1,9})" + re.escape(machines.suffix) + r"\Z")
    numbers = [int(match[1]) for match in map(pattern.match, names) if match]
    counts["first_host"] = max(numbers, default=0) + 1
    return replace(machines, **{name: value for name, value in counts.items() if name not in options})  # type: ignore[arg-type]


def _missing(context: Context, machines: Machines) -> dict[str, bool]:
    """Return the properties that are not there yet; whether each is a text."""
    with context.database.snapshot() as tx:
        columns = tx.resources.columns()
    return {name: is_text for name, is_text in topology.property_types(machines).items() if name not in columns}


# -- lines ------------------------------------------------------------------------------------------------------------


def _lines(missing: Mapping[str, bool], units: Sequence[NewResource], append: str, *, repair: bool) -> list[str]:
    """Return the commands that create or repair the resources."""
    lines = [f"oarproperty {'-c ' if is_text else ''}-a {name}" for name, is_text in missing.items()]
    for unit in units:
        if repair:
            where = f"network_address = '{unit.host}' and cpuset = '{unit.cpuset}'"
            begin = f'oarnodesetting --sql "{where}"'
            pairs = [pair for pair in unit.properties if pair[0] != "cpuset"]
        else:
            begin = f"oarnodesetting -a -h {shlex.quote(unit.host)}"
            pairs = list(unit.properties)
        options = " ".join(f"-p {name}={shlex.quote(str(value))}" for name, value in pairs)
        lines.append(f"{begin} {options}{' ' if append else ''}{append}")
    return lines


def _yaml(units: Sequence[NewResource]) -> str:
    return dump([{"network_address": unit.host, **dict(unit.properties)} for unit in units], Format.YAML)


def _write(path: str | None, text: str) -> None:
    if path is None:
        click.echo(text, nl=False)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Stop(f"[ERROR] cannot write {path}: {error.strerror}") from None


# -- deeds ------------------------------------------------------------------------------------------------------------


def _execute(
    context: Context, machines: Machines, units: Sequence[NewResource], append: str, *, repair: bool, columns: bool
) -> None:
    """Create or repair the resources, all or nothing.  Raises Stop, Busy."""
    with context.database.begin() as tx:
        if columns:
            column_types = tx.resources.columns()
            for name, is_text in topology.property_types(machines).items():
                if name not in column_types:
                    properties.add_column(tx, name, is_text=is_text)
        column_types = tx.resources.columns()
        appended = _appended(append, column_types)
        resources = [(unit, [*_settings(unit, column_types), *appended]) for unit in units]
        if repair:
            _repair(tx, resources)
        else:
            nodes.add_each(tx, [(unit.host, settings) for unit, settings in resources])


def _appended(text: str, columns: Mapping[str, str]) -> list[Setting]:
    """Return the settings of ``-p a=b -p c=d``.  Raises Stop."""
    arguments = shlex.split(text)
    if len(arguments) % 2 or any(argument not in ("-p", "--property") for argument in arguments[::2]):
        raise Stop(f"[ERROR] only -p NAME=VALUE can be appended, not: {text}")
    return [_good(properties.parse_setting(argument, columns)) for argument in arguments[1::2]]


def _settings(unit: NewResource, columns: Mapping[str, str]) -> list[Setting]:
    return [_good(properties.check(name, str(value), columns)) for name, value in unit.properties]


def _good(setting: Setting | PropertyProblem) -> Setting:
    """Return a setting that is one.  Raises Stop."""
    if isinstance(setting, PropertyProblem):
        raise Stop(f"/!\\ Cannot update property {setting.name}: {setting.text or 'it cannot be set'}", 9)
    return setting


def _repair(tx: Transaction, resources: Sequence[tuple[NewResource, Sequence[Setting]]]) -> None:
    """Set the properties of the resources that exist; each is known by its node and its cpuset.  Raises Stop."""
    ids_by_cpuset: dict[tuple[str, object], list[int]] = {}
    for resource in tx.resources.of_nodes({unit.host for unit, _ in resources}):
        ids_by_cpuset.setdefault((resource.network_address, resource.properties["cpuset"]), []).append(resource.id)
    for unit, settings in resources:
        ids = ids_by_cpuset.get((unit.host, unit.cpuset))
        if not ids:
            raise Stop(f"/!\\ There is no resource of {unit.host} with the cpuset {unit.cpuset}.", 4)
        properties.set_properties(tx, ids, [setting for setting in settings if setting.name != "cpuset"])
