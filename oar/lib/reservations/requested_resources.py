"""The resources of an advance reservation: convert OAR and Grid Engine requests to alternatives.

See docs/design/reservations.rst, "What is asked for".
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from oar.lib.base.errors import BadRequest
from oar.lib.base.name_patterns import is_pattern, matching
from oar.lib.config.files import Config
from oar.lib.jobs.records import Group, Level
from oar.lib.reservations import environments
from oar.lib.reservations.environments import (
    AllocationRule,
    Hosts,
    Layout,
    ListedHosts,
    ParallelEnvironment,
    SiteEnvironments,
    SiteQueues,
)
from oar.lib.reservations.errors import BadReservation, nothing_suits
from oar.lib.reservations.options import ReservationOptions
from oar.lib.reservations.records import ReservationAlternative
from oar.lib.submission import checks
from oar.lib.submission.resource_request import NODE_ALIASES, name_nodes

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

Item = TypeVar("Item")

#: Names of Grid Engine for the host of a slot, for the queue, and for the duration.
HOST_NAMES = ("h", "host", "hostname")
QUEUE_NAMES = ("q", "qname")
TIME_LIMIT = "h_rt"
#: Names that need a value.
_NEVER_ALONE = frozenset({*HOST_NAMES, *QUEUE_NAMES, TIME_LIMIT})
#: The type of resources that are slots.
SLOT_TYPE = "default"
SLOTS = '"advance_reservation" denied: use parallel environments instead of requesting slots explicitly'

MIXED = "denied: OAR's and Grid Engine's requests cannot be mixed"

#: Requested resources of a type: a number, or a part of the number of slots, as ``1/2``.
_AMOUNT = re.compile(r"(\d{1,7})(?:/(\d{1,7}))?", re.ASCII)
#: The beginning of a request in OAR syntax. In Grid Engine syntax ``1/2`` is one for two slots, a comma begins a pair.
_LEVEL = re.compile(r"(\w+)=(?:\d+|ALL|BEST|BESTHALF)(?:$|/[A-Za-z]|\+|,walltime=)", re.ASCII)
_QUANTITY = re.compile(r"\d+|ALL|BEST|BESTHALF", re.ASCII)
#: Digits of the largest number that a property can be compared with.
_MAX_DIGITS = 18
_PATTERN_LETTERS = re.compile(r"[A-Za-z0-9_.:+*?\[\]!^-]{1,255}", re.ASCII)


class Site(NamedTuple):
    """Properties, types, hosts and queues that a request may name."""

    columns: Mapping[str, str]  #: properties of resources with their SQL types
    types: frozenset[str]  #: types of resources besides ``default``
    values: Mapping[str, frozenset[str]]  #: of the text properties that requests compare with patterns
    resources: int  #: number of slots
    queues: SiteQueues

    @property
    def environments(self) -> SiteEnvironments:
        """The names that the site defines."""
        return self.queues.environments


class ParsedResources(NamedTuple):
    """A parsed resource request."""

    alternatives: tuple[ReservationAlternative, ...]
    pairs: tuple[tuple[str, str], ...]  #: names and values as they were given, for ``resource_list``
    queues: str = ""  #: the values of Grid Engine's resource ``q``


class _Slots(NamedTuple):
    """The slots of one alternative."""

    pe: str
    condition: str  #: of the parallel environment
    number: int


def is_oar_request(text: str, labels: Sequence[str]) -> bool:
    """Return whether a ``-l`` value is in OAR syntax: it begins with a filter or a level, as in ``nodes=2``."""
    level = _LEVEL.match(text)
    is_level = level is not None and (level[1] in labels or level[1] in NODE_ALIASES)
    return text.startswith(("/", "{")) or "/" in text.partition("=")[0] or is_level


def time_limit(resources: Sequence[str]) -> str | None:
    """Return the value of ``h_rt`` in ``-l`` values in Grid Engine syntax; None if it is not given."""
    return dict(_pairs(resources)).get(TIME_LIMIT)


def names_hosts(resources: Sequence[str], labels: Sequence[str]) -> bool:
    """Return whether ``-l`` values in Grid Engine syntax name the hosts of the slots."""
    texts = [text for text in resources if not is_oar_request(text, labels)]
    return any(name in HOST_NAMES for name, _ in _pairs(texts))


def restrictions(options: ReservationOptions, labels: Sequence[str]) -> str:
    """Return the options that restrict the usable resources, as the user wrote them."""
    pairs = [
        f"{name}={value}"
        for text in options.resources
        if not is_oar_request(text, labels)
        for name, value in _pairs([text])
        if name != TIME_LIMIT
    ]
    conditions = [text for text in options.resources if is_oar_request(text, labels) and "{" in text]
    written = (
        ("-l", ",".join(pairs)),
        *(("-l", text) for text in conditions),
        ("-h", options.hosts),
        ("-q", options.queues),
        ("-masterq", options.master_queues),
        ("-p", options.properties),
        ("-ckpt", options.checkpoint),
        ("-now", "yes" if options.is_interactive else ""),
    )
    return " ".join(f"{option} {text}" for option, text in written if text)


def parse_resources(options: ReservationOptions, config: Config, site: Site) -> ParsedResources:
    """Return the parsed resource request.  Raises BadReservation."""
    oar = [text for text in options.resources if is_oar_request(text, config.hierarchy_labels)]
    if not oar:
        _check_parts(options.resources)
        _check_unmixed(_pairs(options.resources), config.hierarchy_labels)
        return _grid_engine_request(options, site)
    if len(oar) != len(options.resources) or options.pe or options.allocation:
        raise BadReservation(MIXED, "use only one of them; -h, -q and -p can be used with both")
    if options.master_queues:
        raise BadReservation("denied: -masterq requires slots: use -pe or -alloc")
    return _oar_request(oar, options, config, site)


def _oar_request(texts: Sequence[str], options: ReservationOptions, config: Config, site: Site) -> ParsedResources:
    """Return a request in OAR syntax; each ``-l`` is a part of it."""
    try:
        parts = checks.parse_requests(texts, config)
    except BadRequest as error:
        why, _, _ = str(error).partition("\n")  # the second line, a hint for oarsub, contains a walltime
        raise BadReservation(
            f"denied: {why}", "write it like nodes=2/core=1, with numbers from 1 on, ALL or BEST"
        ) from None
    if any(part.walltime is not None for part in parts):
        raise BadReservation("denied: write -d for the duration, and no walltime in -l")
    groups = name_nodes(
        [group for part in parts for group in part.groups], site.columns.keys(), config.oarsub_nodes_resources
    )
    for level in (level for group in groups for level in group.levels):
        if level.property not in site.columns:
            raise _unknown_resource(level.property, site)
    conditions = [environments.on_slots(condition) for condition in _common_conditions(options, site)]
    narrowed = tuple(group._replace(filter=all_of([*conditions, group.filter])) for group in groups)
    return ParsedResources((ReservationAlternative(narrowed),), tuple(("oar", on_one_line(text)) for text in texts))


def on_one_line(text: str) -> str:
    """Return a text in which line ends and tabs are spaces; all are white space in requests and conditions."""
    return re.sub(r"\s*[\r\n\t\v\f]\s*", " ", text)


def _check_unmixed(pairs: Sequence[tuple[str, str]], labels: Sequence[str]) -> None:
    """Raise BadReservation if levels are mixed with Grid Engine names, because levels then have another meaning.

    ``core=2`` alone requests two cores.  With ``h=node-1`` it would request one slot whose property ``core`` is at
    least 2.
    """
    is_level = [name in {*labels, *NODE_ALIASES} and _QUANTITY.fullmatch(value) is not None for name, value in pairs]
    if not any(is_level):
        return
    levels = "/".join(f"{name}={value}" for (name, value), yes in zip(pairs, is_level, strict=True) if yes)
    others = [_equivalent_option(*pair) for pair, yes in zip(pairs, is_level, strict=True) if not yes]
    raise BadReservation(MIXED, " ".join(["write", f"-l {levels}", *others]))


def _equivalent_option(name: str, value: str) -> str:
    if name in HOST_NAMES:
        return f"-h {value.replace('|', ',')}"
    if name in QUEUE_NAMES:
        return f"-q {value}"
    return f"-d {value}" if name == TIME_LIMIT else f'-p "{name} = {_literal(value)}"'


def all_of(conditions: Iterable[str]) -> str:
    """Return the conditions joined with AND; '' is always true."""
    parts = list(dict.fromkeys(filter(None, conditions)))
    return " AND ".join(f"({part})" for part in parts) if len(parts) > 1 else "".join(parts)


def _common_conditions(options: ReservationOptions, site: Site) -> list[str]:
    """Return the conditions on the slots that the options ``-h``, ``-ckpt`` and ``-now`` set."""
    conditions = []
    if options.hosts:
        _check_hosts(options.hosts.split(","), site)
        conditions.append(_host_condition(options.hosts, site))
    if options.checkpoint:
        checkpointing = site.environments.checkpointing
        if options.checkpoint not in checkpointing:
            raise BadReservation(
                f'job rejected: the requested checkpointing environment "{options.checkpoint}" does not exist',
                _there_are(checkpointing),
            )
        conditions.append(checkpointing[options.checkpoint])
    if options.is_interactive:
        conditions.append(site.environments.interactive)
    return conditions


def _there_are(names: Iterable[str]) -> str:
    shown = environments.listed(names)
    return f"there are {shown}" if shown else "this site has none"


def _unknown_resource(name: str, site: Site) -> BadReservation:
    from oar.lib.base.texts import nearest

    first = f'unknown resource "{name}"'
    if name in NODE_ALIASES:
        return BadReservation(first, "write nodes=2 for two nodes: a number from 1 on, ALL or BEST")
    if guess := nearest(name, {*site.columns, *site.types, *HOST_NAMES, *QUEUE_NAMES, TIME_LIMIT}):
        return BadReservation(first, f'did you mean "{guess}"?')
    types = f", types of resources ({environments.listed(site.types)})" if site.types else ""
    return BadReservation(first, f"there are h, q, h_rt{types} and properties ({environments.listed(site.columns)})")


# -- Grid Engine ------------------------------------------------------------------------------------------------------


def _grid_engine_request(options: ReservationOptions, site: Site) -> ParsedResources:
    pairs = _pairs(options.resources)
    conditions = ["type = 'default'", *_common_conditions(options, site)]
    queues = []
    extra: list[tuple[str, int, int]] = []  #: type of resources, amount, and the number of slots that the amount is for
    for name, value in pairs:
        if name == "slots":
            raise BadReservation(SLOTS, f"write -pe slots {value}")
        if name in QUEUE_NAMES:
            queues.append(value)
        elif name in HOST_NAMES:
            conditions.append(_host_condition(value, site))
        elif name in site.types:
            extra.append((name, *_amount(name, value)))
        elif name != TIME_LIMIT:
            conditions.append(_property_condition(name, value, site))
    masters = environments.listed_hosts(options.master_queues, site.queues)
    alternatives = tuple(
        ReservationAlternative(
            _groups(layout, [*conditions, slots.condition], masters.condition, slots.number, extra),
            slots.pe,
            slots.number,
        )
        for slots, layout in _slots_with_layouts(options, site, masters)
    )
    return ParsedResources(alternatives, tuple(pairs), ",".join(queues))


def _check_parts(resources: Iterable[str]) -> None:
    """Raise BadReservation if a list has an empty part, for example from an empty variable in a script."""
    for text in resources:
        parts = [part.strip() for part in text.split(",")]
        if not any(parts):
            raise BadReservation(
                f'denied: -l "{on_one_line(text)}" has no value', "leave it out, or write name=value, or nodes=2"
            )
        if not all(parts):
            raise BadReservation(
                f'denied: -l "{on_one_line(text)}" has an empty part',
                "write name=value, with one comma between two of them",
            )


def _pairs(resources: Iterable[str]) -> list[tuple[str, str]]:
    """Return names and values; if allowed, a name alone means 1.  Raises BadReservation if a value is missing."""
    pairs = []
    for item in (item for text in resources for item in text.split(",") if item.strip()):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not value and (equals or name in _NEVER_ALONE):
            raise BadReservation(f'denied: "{name}=" has no value', f"write a value for {name}, or leave it out")
        pairs.append((name, value or "1"))
    return pairs


#: Numbers of a slot range that are tried, evenly spread between the least and the largest.
MAX_NUMBERS = 64
#: Alternatives of a request, shared equally by its parallel environments.
MAX_ALTERNATIVES = 256
#: Layouts of a slot count that are tried at least, if there are several, however many numbers there are.
MIN_LAYOUTS = 4


def _slots_with_layouts(
    options: ReservationOptions, site: Site, masters: ListedHosts
) -> Iterator[tuple[_Slots, Layout]]:
    """Iterate over slot counts with their layouts: environments by name, for each the largest count first."""
    parallel = _parallel_environments(options, site)
    quota = max(1, MAX_ALTERNATIVES // len(parallel))
    hosts = len(site.queues.hosts)
    for name, (rule, condition), text in parallel:
        ways = MIN_LAYOUTS if rule == AllocationRule.ROUND_ROBIN or masters.condition else 1
        numbers = _thinned(_numbers(rule, text, site.resources), quota // ways)
        for number in numbers:
            shapes = environments.shapes_of(rule, number, hosts)
            layouts: list[Layout] = [tuple((Hosts.ANY, levels) for levels in shape) for shape in shapes]
            if masters.condition:  # a slot of each layout is on a host of the master list
                layouts = [
                    layout for shape in shapes for layout in environments.master_layouts(shape, masters.number, hosts)
                ]
            for layout in _thinned(layouts, quota // len(numbers)):
                yield _Slots(name, condition, number), layout


def _thinned(items: Sequence[Item], count: int) -> Sequence[Item]:
    """Return at most ``count`` items, at least one, evenly chosen.

    With ``count`` of 2 or more, the first and the last item are included.
    """
    if count < 2 or len(items) <= count:
        return items[: max(1, count)]
    return [items[index] for index in reversed(environments.spread(0, len(items) - 1, count))]


def _parallel_environments(options: ReservationOptions, site: Site) -> list[tuple[str, ParallelEnvironment, str]]:
    """Return the environments that match the pattern, each with the range of slots; the name '' means none."""
    if options.allocation and options.pe:
        raise BadReservation("denied: -pe and -alloc cannot be mixed")
    if options.allocation:
        rule, text = options.allocation
        return [("", ParallelEnvironment(rule), text)]
    if options.pe is None:
        return [("", ParallelEnvironment(AllocationRule.FILL_UP), "1")]
    pattern, text = options.pe
    known = site.environments.parallel
    names = sorted(name for name in known if fnmatchcase(name, pattern))[:MAX_ALTERNATIVES]
    if not names:
        raise BadReservation(
            f'job rejected: the requested parallel environment "{pattern}" does not exist', _there_are(known)
        )
    return [(name, known[name], text) for name in names]


def _numbers(rule: str, text: str, resources: int) -> list[int]:
    """Return the slot counts of a range to try, largest first.  Raises BadReservation."""
    try:
        environments.check_rule(rule)
        ranges = environments.read_ranges(text)
    except BadRequest as error:
        raise BadReservation(f"denied: {error}") from None
    least = min(slots.least for slots in ranges)
    if least > resources:
        raise nothing_suits(
            f"{least} slots requested, {resources} exist",
            f"write at most {resources}" if resources else "this site has no resources",
        )
    step = environments.slots_on_each_host(rule) or 1
    numbers = [
        number
        for slots in environments.numbers_of(ranges, resources)
        for number in environments.spread(slots.least, slots.most, MAX_NUMBERS, step)
    ]
    if not numbers:
        raise BadReservation(
            f"denied: {text} slots cannot be divided into {rule} on each host", f"write a multiple of {rule}"
        )
    return list(dict.fromkeys(numbers))


def _groups(
    layout: Layout, common: Sequence[str], masters: str, slots: int, extra: Sequence[tuple[str, int, int]]
) -> tuple[Group, ...]:
    """Return the groups of an alternative; ``common``: conditions on all slots, ``masters``: on the master hosts."""
    on_hosts = {Hosts.ANY: "", Hosts.MASTERS: masters, Hosts.OTHERS: f"NOT ({masters})"}
    groups = [Group(all_of([*common, on_hosts[hosts]]), levels) for hosts, levels in layout]
    for name, amount, per in extra:
        count = amount * slots if per == 1 else -(-slots * amount // per)
        groups.append(Group(f"type = {_literal(name)}", (Level("resource_id", count),)))
    return tuple(groups)


def _amount(name: str, value: str) -> tuple[int, int]:
    match = _AMOUNT.fullmatch(value)
    if not match or not int(match[1]) or match[2] == "0":
        raise BadReservation(
            f'denied: "{value}" is not a number of {name}', f"write {name}=2, or {name}=1/2 for one for two slots"
        )
    return int(match[1]), int(match[2] or 1)


def _check_hosts(hosts: Sequence[str], site: Site) -> None:
    """Raise BadReservation if a list of several hosts contains a host that does not exist.

    (In Grid Engine's ``h=a|b`` one existing host is enough.)
    """
    known = site.values.get("network_address", frozenset())
    for host in hosts if len(hosts) > 1 else ():
        if host not in known and not is_pattern(host) and _PATTERN_LETTERS.fullmatch(host):
            raise BadReservation(
                f'denied: there is no host "{host}"', _values_there_are("network_address", host, known)
            )


def _host_condition(text: str, site: Site) -> str:
    return _among("network_address", text.replace(",", "|"), site)


def _property_condition(name: str, value: str, site: Site) -> str:
    kind = site.columns.get(name)
    if kind is None:
        raise _unknown_resource(name, site)
    if kind in ("integer", "bigint", "smallint"):
        if not (value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS):
            raise BadReservation(
                f'denied: "{value}" must be a number for {name}', f"write the least value, as {name}=2"
            )
        return f"{name} >= {int(value)}"
    return _among(name, value, site)


def _among(name: str, text: str, site: Site) -> str:
    """Return the condition that a property has a value that matches one of the patterns between ``|``."""
    patterns = list(dict.fromkeys(text.split("|")))
    for pattern in patterns:
        if not _PATTERN_LETTERS.fullmatch(pattern):
            raise BadReservation(
                f'denied: "{pattern}" is not a pattern for {name}',
                "write names separated by |; * ? [...] match other names",
            )
    known = site.values.get(name, frozenset())
    try:
        values = matching(patterns, known)
    except BadRequest as error:
        raise BadReservation(f"denied: {error} of {name}", "write names, or a condition (-p)") from None
    if not values:
        raise nothing_suits(f"no resource has {name}={text}", _values_there_are(name, text, known))
    if values == known:
        return f"{name} IS NOT NULL"
    return f"{name} IN ({', '.join(map(_literal, sorted(values)))})"


def _values_there_are(name: str, text: str, known: frozenset[str]) -> str:
    from oar.lib.base.texts import nearest

    values = known - {""}
    guess = nearest(text, values) if len(values) > environments.SHOWN_NAMES else None
    if guess:
        return f'did you mean "{guess}"?'
    return f"there are {environments.listed(values)}" if values else f"no resource has a value of {name}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def load_site(tx: "Transaction", options: ReservationOptions, site_environments: SiteEnvironments) -> Site:
    """Return what a request may name; values are loaded only for properties that the request compares with patterns."""
    columns = tx.resources.columns()
    names = {
        name for text in options.resources for item in text.split(",") for name in [item.strip().partition("=")[0]]
    }
    names = {"network_address" if name in HOST_NAMES else name for name in names} | {"network_address"}
    values = {name: tx.resources.values(name) for name in sorted(names & columns.keys())}
    types = tx.resources.count_by_type()
    queues = SiteQueues(tx.queues.all(), values["network_address"], site_environments)
    return Site(columns, frozenset(types.keys() - {SLOT_TYPE}), values, types.get(SLOT_TYPE, 0), queues)
