"""Parallel environments: how many slots of an advance reservation lie on each node, in the words of Grid Engine.  Pure.

See docs/design/reservations.rst, "What is asked for".
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from oar.lib.facts.errors import BadRequest
from oar.lib.facts.records import Level

#: No request is larger: what a range without an end stands for is cut to the number of resources anyway.
MAX_SLOTS = 9_999_999

_RANGE = re.compile(r"(?:(\d{1,7})-(\d{1,7})|(\d{1,7})-|-(\d{1,7})|(\d{1,7}))", re.ASCII)


class AllocationRule(StrEnum):
    """How slots are laid on nodes; a number instead means so many on each."""

    FILL_UP = "$fill_up"  #: one node after the other is filled
    PE_SLOTS = "$pe_slots"  #: all on one node
    ROUND_ROBIN = "$round_robin"  #: over as many nodes as possible, as evenly as possible


#: The environments that need no configuration.
BUILT_IN: Mapping[str, str] = {
    "slots": AllocationRule.FILL_UP,
    "mpi": AllocationRule.FILL_UP,
    "smp": AllocationRule.PE_SLOTS,
    "alloc_pe_slots": AllocationRule.PE_SLOTS,
    "round_robin": AllocationRule.ROUND_ROBIN,
}


class SlotRange(NamedTuple):
    """Numbers of slots from ``least`` to ``most``."""

    least: int
    most: int


def read_ranges(text: str) -> tuple[SlotRange, ...]:
    """Return the ranges of ``n``, ``n-m``, ``n-``, ``-m``, or a comma list of them.  Raises BadRequest."""
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise BadRequest(f'"{text}" is no slot range')
        low, high, from_low, up_to, single = (int(each) if each else None for each in match.groups())
        least = low or from_low or single or (1 if up_to else 0)
        most = high or up_to or single or MAX_SLOTS
        if not 1 <= least <= most:
            raise BadRequest(f'"{text}" is no slot range')
        ranges.append(SlotRange(least, most))
    return tuple(ranges)


def numbers_of(ranges: Sequence[SlotRange], largest: int) -> Iterator[SlotRange]:
    """Iterate over the ranges, the largest numbers first, cut to ``largest``, the number of resources there are."""
    for each in sorted(ranges, key=lambda one: (-one.most, -one.least)):
        if each.least <= largest:
            yield SlotRange(each.least, min(each.most, largest))


def levels_of(rule: str, slots: int) -> tuple[Level, ...]:
    """Return the levels of a request for a number of slots.  Raises BadRequest for a rule that cannot give them."""
    if rule == AllocationRule.FILL_UP:
        return (Level("resource_id", slots),)
    if rule == AllocationRule.PE_SLOTS:
        return (Level("network_address", 1), Level("resource_id", slots))
    if rule.isascii() and rule.isdigit() and int(rule):
        nodes, rest = divmod(slots, int(rule))
        if rest or not nodes:
            raise BadRequest(f"{slots} slots cannot be divided into {rule} on each host")
        return (Level("network_address", nodes), Level("resource_id", int(rule)))
    raise BadRequest(f'"{rule}" is no allocation rule: write $fill_up, $pe_slots, $round_robin or a number')
