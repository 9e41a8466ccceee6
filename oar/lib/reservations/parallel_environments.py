"""Parallel environments: how many slots of an advance reservation are on each node, in Grid Engine terms.  Pure.

See docs/design/reservations.rst, "What is asked for".
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, StrEnum, auto
from typing import NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.jobs.records import Level

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
    MASTERS = auto()  #: those of the list of masters
    OTHERS = auto()  #: those that are not in it


#: The levels of each group of a request, and on which hosts they may lie.
Layout = tuple[tuple[Hosts, tuple[Level, ...]], ...]

#: So many numbers of hosts are tried for a round.
MAX_SHAPES = 32

#: The environments that need no configuration.
BUILT_IN: Mapping[str, str] = {
    "slots": AllocationRule.FILL_UP,
    "mpi": AllocationRule.FILL_UP,
    "smp": AllocationRule.PE_SLOTS,
    "alloc_pe_slots": AllocationRule.PE_SLOTS,
    "round_robin": AllocationRule.ROUND_ROBIN,
}


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
        return BadRequest(f'"{text[:40]}" is no slot range: the largest number is {MAX_SLOTS}')
    return BadRequest(f'"{text[:40]}" is no slot range: write n, n-m, n-, -m, or several with commas')


def numbers_of(ranges: Sequence[SlotRange], largest: int) -> Iterator[SlotRange]:
    """Iterate over the ranges, largest numbers first, limited to ``largest``, the number of existing resources."""
    for each in sorted(ranges, key=lambda one: (-one.most, -one.least)):
        if each.least <= largest:
            yield SlotRange(each.least, min(each.most, largest))


def is_rule(text: str) -> bool:
    """Return whether a text is an allocation rule, not the name of a parallel environment."""
    return text in tuple(AllocationRule) or slots_on_each_host(text) > 0


def check_rule(rule: str) -> None:
    """Raise BadRequest if the text is not an allocation rule."""
    if not is_rule(rule):
        raise BadRequest(f'"{rule}" is no allocation rule: write $fill_up, $pe_slots, $round_robin or a number')


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
        return tuple(_round(slots, number) for number in spread(1, max(1, min(slots, hosts)), MAX_SHAPES))
    return ((_even(slots // int(rule), int(rule)),),)


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
    return tuple(_parted(outer, tuple(inner), number) + beside for number in reversed(spread(least, most, MAX_SHAPES)))


def _parted(hosts: Level, inner: tuple[Level, ...], masters: int) -> Layout:
    """Return the layout of hosts, of which ``masters`` are in the master list."""
    on_list = (Hosts.MASTERS, (Level(hosts.property, masters), *inner))
    off_list = (Hosts.OTHERS, (Level(hosts.property, hosts.quantity - masters), *inner))
    return (on_list, off_list) if masters < hosts.quantity else (on_list,)


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


def _even(hosts: int, slots: int) -> tuple[Level, ...]:
    return (Level("network_address", hosts), Level("resource_id", slots))


def _round(slots: int, hosts: int) -> Shape:
    """Return the shape with slots spread evenly over the hosts, one more on some hosts if needed."""
    each, more = divmod(slots, hosts)
    return (_even(hosts, each), _even(more, 1)) if more else (_even(hosts, each),)
