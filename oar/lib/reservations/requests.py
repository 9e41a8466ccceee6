"""What an advance reservation asks for: OAR's requests and Grid Engine's become alternatives.

See docs/design/reservations.rst, "What is asked for".
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.config.files import Config
from oar.lib.facts.errors import BadRequest
from oar.lib.facts.records import Group, Level
from oar.lib.facts.reservation_requests import ReservationAlternative
from oar.lib.reservations.preparation import BadReservation
from oar.lib.rules import parallel_environments
from oar.lib.rules.parallel_environments import SlotRange
from oar.lib.submission import checks

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Names of Grid Engine for the host of a slot.
HOST_NAMES = ("h", "host", "hostname")
SLOTS = '"advance_reservation" denied: use parallel environments instead of requesting slots explicitly'

#: What a resource of the type is asked for: a number, or a part of the number of slots, as ``1/2``.
_AMOUNT = re.compile(r"(\d{1,7})(?:/(\d{1,7}))?", re.ASCII)
_PATTERN_LETTERS = re.compile(r"[A-Za-z0-9_.:+*?\[\]!^-]{1,255}", re.ASCII)


class Site(NamedTuple):
    """What a request may name."""

    columns: Mapping[str, str]  #: properties of resources with their SQL types
    types: frozenset[str]  #: types of resources besides ``default``
    values: Mapping[str, frozenset[str]]  #: of the text properties that requests compare with patterns
    resources: int  #: how many there are


class ResourceWish(NamedTuple):
    """What is asked for, as it was given."""

    resources: tuple[str, ...] = ()  #: each ``-l``
    pe: str | None = None
    pe_range: str = ""
    allocation: tuple[str, str] | None = None  #: rule and range of ``-alloc``
    hosts: str = ""  #: ``-h``


class AskedResources(NamedTuple):
    """A request that was read."""

    alternatives: tuple[ReservationAlternative, ...]
    pairs: tuple[tuple[str, str], ...]  #: names and values as they were given, for ``resource_list``
    duration: str | None = None  #: of ``h_rt``


def is_oar_request(text: str, labels: Sequence[str]) -> bool:
    """Whether a ``-l`` is in OAR's language."""
    name, _, value = text.partition("=")
    return text.startswith(("/", "{")) or "/" in name or (name in labels and value.isascii() and value.isdigit())


def read(wish: ResourceWish, config: Config, site: Site) -> AskedResources:
    """Return what is asked for.  Raises BadReservation."""
    labels = config.hierarchy_labels
    oar = [text for text in wish.resources if is_oar_request(text, labels)]
    if oar:
        if len(oar) != len(wish.resources) or wish.pe or wish.allocation:
            raise BadReservation("denied: OAR's and Grid Engine's requests cannot be mixed")
        return _oar_request("+".join(oar), config)
    return _grid_engine_request(wish, site)


def _oar_request(text: str, config: Config) -> AskedResources:
    try:
        (request,) = checks.parse_requests((text,), config)
    except BadRequest as error:
        raise BadReservation(f"denied: {error}") from None
    if "walltime" in text:
        raise BadReservation("denied: write -d for the duration, and no walltime in -l")
    return AskedResources((ReservationAlternative(request.groups),), (("oar", text),))


# -- Grid Engine ------------------------------------------------------------------------------------------------------


def _grid_engine_request(wish: ResourceWish, site: Site) -> AskedResources:
    pairs = [_pair(item) for text in wish.resources for item in text.split(",") if item.strip()]
    conditions = [_host_condition(wish.hosts, site)] if wish.hosts else []
    extra: list[tuple[str, int, int]] = []  #: type of resources, and how many for each so many slots
    duration = None
    for name, value in pairs:
        if name == "slots":
            raise BadReservation(SLOTS)
        if name == "h_rt":
            duration = value
        elif name in HOST_NAMES:
            conditions.append(_host_condition(value, site))
        elif name in site.types:
            extra.append((name, *_amount(name, value)))
        else:
            conditions.append(_property_condition(name, value, site))
    condition = " AND ".join(["type = 'default'", *conditions])
    alternatives = tuple(
        ReservationAlternative(_groups(rule, slots, condition, extra), pe, slots)
        for pe, rule, slots in _slot_numbers(wish, site)
    )
    return AskedResources(alternatives, tuple(pairs), duration)


def _pair(item: str) -> tuple[str, str]:
    name, _, value = item.strip().partition("=")
    return name.strip(), value.strip() or "1"


def _slot_numbers(wish: ResourceWish, site: Site) -> list[tuple[str, str, int]]:
    """Return environment, rule and number of slots of each alternative, the largest number first."""
    if wish.allocation:
        rule, text = wish.allocation
        return [("", rule, number) for number in _numbers(text, site.resources)]
    if wish.pe is None:
        return [("", parallel_environments.AllocationRule.FILL_UP, 1)]
    from fnmatch import fnmatchcase

    names = sorted(name for name in parallel_environments.BUILT_IN if fnmatchcase(name, wish.pe))
    if not names:
        raise BadReservation(f'job rejected: the requested parallel environment "{wish.pe}" does not exist')
    numbers = _numbers(wish.pe_range, site.resources)
    return [(name, parallel_environments.BUILT_IN[name], number) for name in names for number in numbers]


#: So many numbers of a range are tried at most, evenly spread between the least and the largest.
MAX_NUMBERS = 64


def _numbers(text: str, resources: int) -> list[int]:
    """Return the numbers of slots of a range that are tried, the largest first."""
    try:
        ranges = parallel_environments.read_ranges(text)
    except BadRequest as error:
        raise BadReservation(f"denied: {error}") from None
    numbers = [number for each in parallel_environments.numbers_of(ranges, resources) for number in _spread(each)]
    if not numbers:
        raise BadReservation("Error: No queue instances to reserve")
    return list(dict.fromkeys(numbers))


def _spread(each: SlotRange) -> list[int]:
    count = each.most - each.least + 1
    if count <= MAX_NUMBERS:
        return list(range(each.most, each.least - 1, -1))
    return [each.most - (each.most - each.least) * step // (MAX_NUMBERS - 1) for step in range(MAX_NUMBERS)]


def _groups(rule: str, slots: int, condition: str, extra: Sequence[tuple[str, int, int]]) -> tuple[Group, ...]:
    try:
        levels = parallel_environments.levels_of(rule, slots)
    except BadRequest as error:
        raise BadReservation(f"denied: {error}") from None
    groups = [Group(condition, levels)]
    for name, amount, per in extra:
        count = amount * slots if per == 1 else -(-slots * amount // per)
        groups.append(Group(f"type = {_literal(name)}", (Level("resource_id", count),)))
    return tuple(groups)


def _amount(name: str, value: str) -> tuple[int, int]:
    match = _AMOUNT.fullmatch(value)
    if not match or not int(match[1]) or match[2] == "0":
        raise BadReservation(f'denied: "{value}" is no number of {name}')
    return int(match[1]), int(match[2] or 1)


def _host_condition(text: str, site: Site) -> str:
    return _among("network_address", text.replace(",", "|"), site)


def _property_condition(name: str, value: str, site: Site) -> str:
    kind = site.columns.get(name)
    if kind is None:
        raise BadReservation(f'unknown resource "{name}"')
    if kind in ("integer", "bigint", "smallint"):
        if not (value.isascii() and value.isdigit()):
            raise BadReservation(f'denied: "{value}" is no number, and {name} is one')
        return f"{name} >= {int(value)}"
    return _among(name, value, site)


def _among(name: str, text: str, site: Site) -> str:
    """Return the condition that a property has one of the values that match the patterns between ``|``."""
    from fnmatch import fnmatchcase

    patterns = text.split("|")
    for pattern in patterns:
        if not _PATTERN_LETTERS.fullmatch(pattern):
            raise BadReservation(f'denied: "{pattern}" is no pattern for {name}')
    values = sorted(value for value in site.values.get(name, ()) if any(fnmatchcase(value, each) for each in patterns))
    if not values:
        raise BadReservation("Error: No queue instances to reserve")
    return f"{name} IN ({', '.join(map(_literal, values))})"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def site_of(tx: "Transaction", wish: ResourceWish) -> Site:
    """Return what a request may name; values only of the properties that it compares with patterns."""
    columns = tx.resources.columns()
    names = {name for text in wish.resources for item in text.split(",") for name in [item.strip().partition("=")[0]]}
    names = {"network_address" if name in HOST_NAMES else name for name in names} | {"network_address"}
    resources = tx.resources.all()
    values: dict[str, frozenset[str]] = {}
    for name in names & columns.keys():
        values[name] = frozenset(
            str(value)
            for resource in resources
            if (value := resource.network_address if name == "network_address" else resource.properties.get(name))
        )
    types = frozenset(resource.type for resource in resources) - {"default"}
    return Site(columns, types, values, len(resources))
