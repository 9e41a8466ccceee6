"""What a request for an advance reservation may name: allocation rules, environments, host groups, queues, hosts.

RESERVATION_ENVIRONMENTS_FILE defines names of the site.  See docs/design/reservations.rst, "What is asked for".
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, StrEnum, auto
from fnmatch import fnmatchcase
from typing import NamedTuple

from oar.lib.base.errors import BadRequest, ConfigError
from oar.lib.base.name_patterns import check_number, matching
from oar.lib.jobs.records import Level, Queue
from oar.lib.jobs.states import QueueState
from oar.lib.reservations.errors import BadReservation

#: No request is larger: what a range without an end stands for is cut to the number of resources anyway.
MAX_SLOTS = 9_999_999

_RANGE = re.compile(r"(?:(\d{1,7})-(\d{1,7})|(\d{1,7})-|-(\d{1,7})|(\d{1,7}))", re.ASCII)


class AllocationRule(StrEnum):
    """How slots are distributed over nodes; a number instead means this many slots on each node."""

    FILL_UP = "$fill_up"  #: one node after the other is filled
    PE_SLOTS = "$pe_slots"  #: all on one node
    ROUND_ROBIN = "$round_robin"  #: over as many nodes as possible, as evenly as possible


#: The levels of each group of a request.
Shape = tuple[tuple[Level, ...], ...]


class Hosts(Enum):
    """The hosts on which a group of a request may be placed."""

    ANY = auto()
    MASTERS = auto()  #: the hosts in the master list
    OTHERS = auto()  #: the hosts that are not in the master list


#: The levels of each group of a request, and on which hosts they may lie.
Layout = tuple[tuple[Hosts, tuple[Level, ...]], ...]

#: Different numbers of hosts that are tried for a request.
MAX_SHAPES = 32


class SlotRange(NamedTuple):
    """Slot counts from ``least`` to ``most``."""

    least: int
    most: int


def read_ranges(text: str) -> tuple[SlotRange, ...]:
    """Return the ranges of ``n``, ``n-m``, ``n-``, ``-m``, or a comma-separated list of them.  Raises BadRequest."""
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise _no_range(text)
        low, high, from_low, up_to, single = (int(each) if each else None for each in match.groups())
        least = low or from_low or single or (1 if up_to else 0)
        most = high or up_to or single or MAX_SLOTS
        if not 1 <= least <= most:
            raise _no_range(text)
        ranges.append(SlotRange(least, most))
    return tuple(ranges)


def _no_range(text: str) -> BadRequest:
    if re.search(r"\d{8}", text, re.ASCII):
        return BadRequest(f'"{text[:40]}" is not a slot range: the largest number is {MAX_SLOTS}')
    return BadRequest(f'"{text[:40]}" is not a slot range: write n, n-m, n-, -m, or several with commas')


def numbers_of(ranges: Sequence[SlotRange], largest: int) -> Iterator[SlotRange]:
    """Iterate over the ranges, largest numbers first, limited to ``largest``, the number of existing resources."""
    for slots in sorted(ranges, key=lambda slots: (-slots.most, -slots.least)):
        if slots.least <= largest:
            yield SlotRange(slots.least, min(slots.most, largest))


def is_rule(text: str) -> bool:
    """Return whether a text is an allocation rule, not the name of a parallel environment."""
    return text in tuple(AllocationRule) or slots_on_each_host(text) > 0


def check_rule(rule: str) -> None:
    """Raise BadRequest if the text is not an allocation rule."""
    if not is_rule(rule):
        raise BadRequest(f'"{rule}" is not an allocation rule: write $fill_up, $pe_slots, $round_robin or a number')


def fits_rule(rule: str, slots: int) -> bool:
    """Return whether a rule can distribute this many slots; a fixed number per host needs a multiple of it."""
    return slots % (slots_on_each_host(rule) or 1) == 0


def shapes_of(rule: str, slots: int, hosts: int) -> tuple[Shape, ...]:
    """Return the ways in which a rule can distribute slots, best first; ``hosts``: number of existing hosts.

    Raises BadRequest if the rule cannot distribute them.
    """
    check_rule(rule)
    if not fits_rule(rule, slots):
        raise BadRequest(f"{slots} slots cannot be divided into {rule} on each host")
    if rule == AllocationRule.FILL_UP:
        return (((Level("resource_id", slots),),),)
    if rule == AllocationRule.PE_SLOTS:
        return ((_even(1, slots),),)
    if rule == AllocationRule.ROUND_ROBIN:
        return tuple(_round_robin(slots, number) for number in spread(1, max(1, min(slots, hosts)), MAX_SHAPES))
    return ((_even(slots // int(rule), int(rule)),),)


def _even(hosts: int, slots: int) -> tuple[Level, ...]:
    return (Level("network_address", hosts), Level("resource_id", slots))


def _round_robin(slots: int, hosts: int) -> Shape:
    """Return the shape with slots spread evenly over the hosts, one more on some hosts if needed."""
    per_host, more = divmod(slots, hosts)
    return (_even(hosts, per_host), _even(more, 1)) if more else (_even(hosts, per_host),)


def master_layouts(shape: Shape, listed: int | None, hosts: int) -> tuple[Layout, ...]:
    """Return the layouts of a shape with a slot on a host of the master list, fewest listed hosts first.

    If the shape fixes the number of hosts, the listed hosts count among them and the other hosts are not in the list.
    So no host is counted twice.  ``listed``: how many of ``hosts`` are in the list; None means unknown.
    """
    (outer, *inner), *others = shape
    beside: Layout = tuple((Hosts.ANY, levels) for levels in others)
    if outer.property != "network_address":
        master: Layout = ((Hosts.MASTERS, (Level(outer.property, 1), *inner)),)
        rest = (Level(outer.property, outer.quantity - 1), *inner)
        return (master + (((Hosts.ANY, rest),) if outer.quantity > 1 else ()) + beside,)
    least = 1 if listed is None else max(1, outer.quantity - (hosts - listed))
    most = max(least, min(outer.quantity, hosts if listed is None else listed))
    layouts = []
    for masters in reversed(spread(least, most, MAX_SHAPES)):
        layout: Layout = ((Hosts.MASTERS, (Level(outer.property, masters), *inner)),)
        if masters < outer.quantity:
            layout += ((Hosts.OTHERS, (Level(outer.property, outer.quantity - masters), *inner)),)
        layouts.append(layout + beside)
    return tuple(layouts)


def spread(least: int, most: int, count: int, step: int = 1) -> list[int]:
    """Return at most ``count`` multiples of ``step`` spread evenly over a range, including its ends, largest first.

    >>> spread(1, 5, 9), spread(1, 100, 4), spread(2, 9, 9, step=4)
    ([5, 4, 3, 2, 1], [100, 67, 34, 1], [8, 4])
    """
    first, last = -(-least // step), most // step
    if last - first < count:
        return [step * number for number in range(last, first - 1, -1)]
    return [step * (last - (last - first) * place // (count - 1)) for place in range(count)]


def slots_on_each_host(rule: str) -> int:
    """Return the number of slots that a rule puts on each host; 0 if the rule has no fixed number."""
    return int(rule) if rule.isascii() and rule.isdigit() and len(rule) < 8 else 0


# -- environments of the site -----------------------------------------------------------------------------------------


#: The keys of the file.
_SECTIONS = ("parallel_environments", "checkpointing_environments", "hostgroups", "interactive", "queue_aliases")


class ParallelEnvironment(NamedTuple):
    """How slots are distributed over nodes, and which resources may be used."""

    rule: str
    condition: str = ""  #: '' = all


#: The environments that need no configuration.
_BUILT_IN = {
    "slots": ParallelEnvironment(AllocationRule.FILL_UP),
    "mpi": ParallelEnvironment(AllocationRule.FILL_UP),
    "smp": ParallelEnvironment(AllocationRule.PE_SLOTS),
    "alloc_pe_slots": ParallelEnvironment(AllocationRule.PE_SLOTS),
    "round_robin": ParallelEnvironment(AllocationRule.ROUND_ROBIN),
}


class SiteEnvironments(NamedTuple):
    """The defined names; a condition is a text in the condition language, '' means none."""

    parallel: Mapping[str, ParallelEnvironment] = _BUILT_IN
    checkpointing: Mapping[str, str] = {}
    hostgroups: Mapping[str, str] = {}
    interactive: str = ""
    queue_aliases: Mapping[str, str] = {"all.q": "default"}


def read_environments(path: str) -> SiteEnvironments:
    """Return the names that a file defines, and the built-in names.  Raises ConfigError.

    Return only the built-in names if the file does not exist.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return SiteEnvironments()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        return parse_environments(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_environments(text: str) -> SiteEnvironments:
    """Return the names that the text of the file defines, and the built-in names.  Raises ValueError."""
    from oar.lib.base.formats import read_yaml

    content = read_yaml(text) or {}
    if not isinstance(content, dict):
        raise ValueError(f"a mapping with the keys {', '.join(_SECTIONS)} is expected")
    for name in content:
        if name not in _SECTIONS:
            raise ValueError(f'unknown key "{name}"; known are {", ".join(_SECTIONS)}')
    given = {name: value for name, value in content.items() if value is not None}
    sections = {name: given.get(name, {}) for name in _SECTIONS if name != "interactive"}
    for name, values in sections.items():
        if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
            raise ValueError(f"{name}: names with their values are expected")
    built_in = SiteEnvironments()
    parallel = {name: _parallel(name, value) for name, value in sections["parallel_environments"].items()}
    conditions = {
        section: {name: _condition(f"{section}: {name}", value) for name, value in sections[section].items()}
        for section in ("checkpointing_environments", "hostgroups", "queue_aliases")
    }
    return SiteEnvironments(
        {**built_in.parallel, **parallel},
        conditions["checkpointing_environments"],
        conditions["hostgroups"],
        _condition("interactive", given.get("interactive")),
        {**built_in.queue_aliases, **conditions["queue_aliases"]},
    )


def _condition(name: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{name}: a text is expected")
    return value


def _parallel(name: str, value: object) -> ParallelEnvironment:
    label = f"parallel_environments: {name}"
    if not isinstance(value, dict) or not set(value) <= {"rule", "condition"} or "rule" not in value:
        raise ValueError(f"{label}: the keys rule and condition are expected")
    rule = str(value["rule"])
    try:
        check_rule(rule)
    except BadRequest as error:
        raise ValueError(f"{label}: {error}") from None
    return ParallelEnvironment(rule, _condition(label, value.get("condition")))


# -- lists of queues and hosts ----------------------------------------------------------------------------------------


#: ``queue``, ``queue@host``, ``queue@@hostgroup``; each part may be a pattern.
_ENTRY = re.compile(
    r"(?P<queue>[A-Za-z0-9_.:+*?\[\]!^-]*)(?:@(?P<is_group>@)?(?P<host>[A-Za-z0-9_.:+*?\[\]!^-]+))?", re.ASCII
)
#: Names that an error message lists, at most.
SHOWN_NAMES = 10


class QueueCandidate(NamedTuple):
    """A queue that matches a list."""

    queue: str  #: '' = the rules of the site choose the queue
    condition: str = ""  #: on the resources that the list allows in the queue; '' = all


class SiteQueues(NamedTuple):
    """The queues, hosts and environments that a list may name."""

    queues: Sequence[Queue]
    hosts: frozenset[str]
    environments: SiteEnvironments


class _Entry(NamedTuple):
    queues: frozenset[str]
    hosts: frozenset[str] = frozenset()
    condition: str = ""  #: of host groups


def candidate_queues(text: str, site: SiteQueues) -> list[QueueCandidate]:
    """Return the queues that a list allows, highest priority first.  Raises BadReservation."""
    entries = _parse_list(text, site)
    if not entries:
        return [QueueCandidate("")]
    named = frozenset[str]().union(*(entry.queues for entry in entries))
    queues = sorted(
        (queue for queue in site.queues if queue.name in named), key=lambda queue: (-queue.priority, queue.name)
    )
    return [
        QueueCandidate(queue.name, _joined([entry for entry in entries if queue.name in entry.queues], site))
        for queue in queues
    ]


class ListedHosts(NamedTuple):
    """The hosts of a list."""

    condition: str  #: on the resources of the hosts; '' = all
    number: int | None  #: number of hosts; None = the conditions of host groups decide


def listed_hosts(text: str, site: SiteQueues) -> ListedHosts:
    """Return the hosts of a list.  Raises BadReservation."""
    entries = _parse_list(text, site)
    names = frozenset[str]().union(*(entry.hosts for entry in entries))
    return ListedHosts(_joined(entries, site), len(names) if all(entry.hosts for entry in entries) else None)


def _joined(entries: Sequence[_Entry], site: SiteQueues) -> str:
    """Return the condition on the resources that at least one entry allows; '' means all."""
    hosts = frozenset[str]().union(*(entry.hosts for entry in entries))
    others = [entry.condition for entry in entries if not entry.hosts]
    if not hosts:
        return any_of(others)
    if hosts >= site.hosts - {""}:
        return any_of([*others, "network_address <> ''"])
    quoted = ", ".join(f"'{name}'" for name in sorted(hosts))  # the names contain no quote
    return any_of([*others, f"network_address IN ({quoted})"])


def any_of(conditions: Sequence[str]) -> str:
    """Return the conditions joined with OR; '' if one of them is '', which is always true."""
    if not all(conditions):
        return ""
    different = list(dict.fromkeys(conditions))
    return different[0] if len(different) == 1 else " OR ".join(f"({condition})" for condition in different)


def on_slots(condition: str) -> str:
    """Return a condition that applies only to slots, not to other resources such as licences."""
    return f"type <> 'default' OR ({condition})" if condition else ""


def _parse_list(text: str, site: SiteQueues) -> list[_Entry]:
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    try:
        check_number(words)
    except BadRequest as error:
        raise BadReservation(f"denied: {error} of queues", "write names, or fewer patterns") from None
    return [_parse_entry(word, site) for word in words]


def _parse_entry(word: str, site: SiteQueues) -> _Entry:
    match = _ENTRY.fullmatch(word)
    if not match:
        raise _unknown(word, "write queue, queue@host or queue@@hostgroup, with commas")
    # queues that were removed accept no new reservation
    usable = [queue.name for queue in site.queues if queue.state is not QueueState.ORPHANED]
    pattern = site.environments.queue_aliases.get(match["queue"], match["queue"])
    queues, host = frozenset(name for name in usable if fnmatchcase(name, pattern)), match["host"]
    if not queues:
        raise _unknown(word, f"the queues are {listed(usable)}")
    if host is None:
        return _Entry(queues)
    if match["is_group"]:
        groups = site.environments.hostgroups
        names = sorted(matching([host], groups))
        if not names:
            known = listed(groups)
            raise _unknown(word, f"the host groups are {known}" if known else "this site has no host groups")
        return _Entry(queues, condition=any_of([groups[name] for name in names]))
    hosts = frozenset(name for name in matching([host], site.hosts) if name and "'" not in name)
    if not hosts:
        raise _unknown(word, f'no host matches "{host}"')
    return _Entry(queues, hosts)


def _unknown(word: str, way_out: str) -> BadReservation:
    return BadReservation(f'Job was rejected because job requests unknown queue "{word}"', way_out)


def listed(names: Iterable[str]) -> str:
    """Return the first names in ascending order, as a comma-separated text."""
    shown = sorted(names)
    return ", ".join(shown[:SHOWN_NAMES]) + (", ..." if len(shown) > SHOWN_NAMES else "")
