"""The slots of a large machine, section by section.

A *section* is a part of the machine that no block crosses, with slots of its own.  A job is entered only in its
sections, and a slot of a section begins only when its own free resources change.  So the cost of a job and the size of
the slots depend on the sections that the job touches, not on the whole machine.

A request for n blocks is satisfied if the sections together have n suitable blocks.  The search counts them at each
date; from one date to the next only the sections that change are counted again.  Pages of dates keep the numbers of
blocks that were missing at each of their dates, as the pages of slots do.

See docs/design/planner.rst, "Sections".
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from oar.kao.facts.job_types import SharingKey
from oar.kao.facts.snapshot import FOREVER, ResourceColumns
from oar.kao.facts.steps import Steps, portions, result_of
from oar.kao.planner.resources.slot_search import STARTS_PER_CHECK, Check
from oar.kao.planner.resources.slots import FEW, Occupant, Page, SlotMatch, SlotQuery, SlotSet
from oar.lib.base.resource_set import ResourceSet
from oar.lib.nodes.hierarchy import CountedBlocks, RequestFit, run_starts

#: A section has about this number of resources; a machine with less than two sections is not divided.
SIZE = 1 << 14

#: The requests for which the parts are kept.
MAX_REQUESTS = 1 << 10


def section_bounds(resources: ResourceColumns) -> tuple[int, ...]:
    """Return the first bit of each section and the number of resources; return () for a machine that is not divided.

    Sections consist of whole blocks of the property with the largest blocks that are not larger than a section.
    """
    size = len(resources.ids)
    if size < 2 * SIZE:
        return ()
    starts: Sequence[int] = range(size)
    for column in resources.columns.values():
        firsts = run_starts([column])
        if firsts and len(firsts) < len(starts) and _longest((*firsts, size)) <= SIZE:
            starts = firsts
    bounds = [0]
    for start, behind in pairwise((*starts, size)):
        if behind - bounds[-1] > SIZE:
            bounds.append(start)
    return (*bounds, size)


def _longest(bounds: Sequence[int]) -> int:
    return max(right - left for left, right in pairwise(bounds))


class _Part(NamedTuple):
    """What a query can take from one section."""

    low: int
    slots: SlotSet
    usable: ResourceSet
    blocks: CountedBlocks


class Sections:
    """The free resources from a date on, in the slots of each section."""

    def __init__(self, bounds: Sequence[int], slots: SlotSet) -> None:
        """``slots``: the free resources before the first occupant."""
        self._bounds = bounds
        self._below = [(1 << low) - 1 for low in bounds]
        self._slots = [
            slots.projected(partial(_part, low=low, high=high), (1 << (high - low)) - 1)
            for low, high in pairwise(bounds)
        ]
        self.dates = SlotSet(slots.begin, 0)  #: a slot for each date at which a section changes
        self.changes: dict[int, tuple[int, ...]] = {}  #: the sections that change at a date
        self._entered = 0  #: so many occupants of the space are in the slots
        self._blocks: dict[RequestFit, list[CountedBlocks] | None] = {}
        self._usable: dict[str, list[ResourceSet]] = {}  #: by the name of the usable resources
        for section, own in enumerate(self._slots):
            for start in own.starts():
                self._change(section, start)

    def copy(self) -> "Sections":
        other = Sections(self._bounds, SlotSet(self.dates.begin, 0))
        other._slots = [slots.copy() for slots in self._slots]
        other.dates, other.changes = self.dates.copy(), dict(self.changes)
        other._entered = self._entered
        return other

    def updated(self, occupants: Sequence[Occupant]) -> "Sections":
        """Return this object after the new occupants of the space are entered."""
        if self._entered < len(occupants):
            result_of(self.entering(occupants))
        return self

    def entering(self, occupants: Sequence[Occupant]) -> Steps[None]:
        """Enter the new occupants of the space in steps; the sections must not be used before the last step."""
        new: dict[int, list[Occupant]] = {}
        for portion in portions(occupants[self._entered :]):
            yield
            for occupant in portion:
                for section, part in self._split(occupant):
                    new.setdefault(section, []).append(part)
        self._entered = len(occupants)
        for section, parts in new.items():
            if len(parts) < FEW:
                self._slots[section].occupy_all(parts)
            else:
                yield from self._slots[section].occupying(parts)

    def _split(self, occupant: Occupant) -> Iterator[tuple[int, Occupant]]:
        """Iterate over the sections of an occupant and its part in each, and note the dates at which they change."""
        start, end, resources, key = occupant
        start = max(start, self.dates.begin)
        while resources and start < end:
            section = bisect_right(self._bounds, resources.bit_length() - 1) - 1
            part = resources >> self._bounds[section]
            resources &= self._below[section]
            self._change(section, start)
            self._change(section, end)
            yield section, (start, end, part, key)

    def _change(self, section: int, date: int) -> None:
        sections = self.changes.get(date, ())
        if section not in sections and date < FOREVER:
            self.changes[date] = (*sections, section)
            self.dates.cut(date)

    def free_between(self, start: int, end: int, keys: frozenset[SharingKey]) -> ResourceSet:
        """Return the resources that are free from ``start`` to ``end`` for a job with these keys."""
        free = 0
        for low, slots in zip(self._bounds, self._slots, strict=False):
            free |= slots.free_between(start, end, keys) << low
        return free

    def can_search(self, request: RequestFit) -> bool:
        """Return whether the number of blocks for a request is the sum of the numbers in each section."""
        return self._blocks_of(request) is not None

    def _blocks_of(self, request: RequestFit) -> list[CountedBlocks] | None:
        """Return the blocks that a request needs, by section; return None if it cannot be divided."""
        if request not in self._blocks:
            if len(self._blocks) == MAX_REQUESTS:
                self._blocks.clear()
            self._blocks[request] = request.parts(self._bounds)
        return self._blocks[request]

    def _usable_of(self, query: SlotQuery) -> list[ResourceSet]:
        if query.kind not in self._usable:
            self._usable[query.kind] = [_part(query.usable, low, high) for low, high in pairwise(self._bounds)]
        return self._usable[query.kind]

    def parts(self, query: SlotQuery) -> list[_Part]:
        """Return what a query can take from each section; its request must be one that ``can_search`` accepts."""
        rows = zip(
            self._bounds, self._slots, self._usable_of(query), self._blocks_of(query.request) or (), strict=False
        )
        return [_Part(*row) for row in rows]

    def earliest(self, query: SlotQuery, begin: int, latest: int, check: Check | None) -> SlotMatch | None:
        """Return the earliest match, as ``slot_search.earliest`` does."""
        return _Search(self, query, latest, check).run(max(begin, self.dates.begin))


def _part(resources: ResourceSet, low: int, high: int) -> ResourceSet:
    return resources >> low & (1 << (high - low)) - 1


class _Search:
    """One search for dates at which the sections together have enough blocks."""

    def __init__(self, sections: Sections, query: SlotQuery, latest: int, check: Check | None) -> None:
        self._dates = sections.dates
        self._changes = sections.changes
        self._parts = sections.parts(query)
        self._query = query
        self._latest = latest
        self._check = check
        self._wanted, *self._inner = query.request.quantities
        wider = query.request.wider
        self._counts: list[int] = []  #: the blocks that are free in each section; [] = not counted
        self._families = [(each.family, query.kind, query.keys) for each in (query.request, wider) if each]

    def run(self, begin: int) -> SlotMatch | None:
        date: int | None = begin
        tries = 0
        while date is not None and (start := self._possible_start(date)) is not None:
            if self._check and tries and not tries % STARTS_PER_CHECK:
                self._check(tries, start)
            tries += 1
            if resources := self._fit(start):
                return SlotMatch(start, resources)
            date = self._dates.start_behind(start)
            if date is not None and date <= self._latest:
                date = self._behind_obstacle(start)
        return None

    def _possible_start(self, begin: int) -> int | None:
        """Return the first date from ``begin`` on at which enough blocks are free; return None without one."""
        page_index, slot_index = self._dates.locate(begin)
        self._counts = []
        for page in self._dates.pages[page_index:]:
            if self._is_known_to_fail(page):
                self._counts = []
            else:
                most = 0
                for start in page.starts[slot_index:]:
                    date = max(start, begin)
                    if date > self._latest:
                        return None
                    most = max(most, self._count(date))
                    if most >= self._wanted:
                        return date
                if begin <= page.starts[0]:
                    page.note_failure(self._families[0], (most + 1, *self._inner))
            slot_index = 0
        return None

    def _is_known_to_fail(self, page: Page) -> bool:
        quantities = self._query.request.quantities
        return bool(page.failures) and any(page.fails(family, quantities) for family in self._families)

    def _count(self, date: int) -> int:
        """Return the number of blocks that are free at a date; update ``_counts``."""
        if self._counts:
            for section in self._changes.get(date, ()):
                self._counts[section] = self._count_in(self._parts[section], date)
        else:
            self._counts = [self._count_in(part, date) for part in self._parts]
        return sum(self._counts)

    def _count_in(self, part: _Part, date: int) -> int:
        page_index, slot_index = part.slots.locate(date)
        free = part.slots.pages[page_index].available(slot_index, self._query.keys) & part.usable
        return part.blocks.count(free) if free else 0

    def _fit(self, start: int) -> ResourceSet:
        """Return the resources that the request takes at exactly ``start``; return 0 if it is not satisfied.

        ``_counts``: the blocks that are free at ``start``.
        """
        end, keys = start + self._query.duration, self._query.keys
        is_plain = self._query.request.groups[0].is_plain
        missing, taken, everything = self._wanted, 0, 0
        for part, most in zip(self._parts, self._counts, strict=True):
            if most:
                free = part.slots.free_between(start, end, keys) & part.usable
                count = part.blocks.count(free) if free else 0
                if count and is_plain:
                    taken |= part.blocks.take(free, missing) << part.low
                    if count >= missing:
                        return taken
                everything |= 0 if is_plain else free << part.low
                missing -= count
        return self._query.request.fit(everything) if missing <= 0 else 0

    def _behind_obstacle(self, start: int) -> int | None:
        """Return the date after the last one from which the request is not satisfied until the end of the duration.

        The request is not satisfied from ``start`` on.
        """
        satisfied = start + self._query.duration - 1
        self._counts = []
        if self._count(satisfied) < self._wanted:  # often the obstacle is at the end
            return self._dates.start_behind(satisfied)
        tails = [
            _Tail(part, satisfied + 1, part.usable, count)
            for part, count in zip(self._parts, self._counts, strict=True)
        ]
        tails.sort(key=lambda tail: -tail.most)
        while (behind := self._dates.start_behind(start)) is not None and behind < satisfied:
            middle = (start + satisfied) >> 1
            if self._is_satisfied(tails, middle):
                satisfied = middle
            else:
                start = middle
        return behind

    def _is_satisfied(self, tails: list["_Tail"], date: int) -> bool:
        """Return whether the request is satisfied from ``date`` to the end; record what is free since then if it is."""
        tails = [tail for tail in tails if tail.most]
        possible, total, counted = sum(tail.most for tail in tails), 0, []
        for tail in tails:
            free = tail.free & tail.part.slots.free_between(date, tail.since, self._query.keys)
            count = tail.part.blocks.count(free) if free else 0
            counted.append((date, free, count))
            total += count
            possible += count - tail.most
            if total >= self._wanted:
                for counted_tail, values in zip(tails, counted, strict=False):
                    counted_tail.since, counted_tail.free, counted_tail.most = values
                return True
            if possible < self._wanted:
                return False
        return False


@dataclass(slots=True)
class _Tail:
    """What is free in a section from a date to the end of a search."""

    part: _Part
    since: int
    free: ResourceSet
    most: int  #: the blocks of it
