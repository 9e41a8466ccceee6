"""The earliest start at which a request is satisfied in a slot set.

The rule: the smallest start at which the resources that are free during the whole duration satisfy the request.  Only
the begin of the search and the starts of slots need be tried.

The search takes resources in a first slot, the *candidate*, and follows them through the later slots.

- While the candidate stays free nothing else is computed.  By the property of ``RequestFit`` it is what the request
  takes of all that is free in the slots so far.
- When it is not free in a slot, the request takes a new candidate from what is free in all slots so far.
- When that fails as well, the search steps back from this slot to the leftmost start from which the request is
  satisfied up to this slot, and goes on from there.  Without such a start it begins anew behind the slot.
- Whole pages are passed at once.  A page that the request cannot stay through counts as a failure at its last slot:
  every start before the page reaches that slot.

See docs/design/planner.rst, "Placement".
"""

from bisect import bisect_left
from collections.abc import Iterator

from oar.kao.facts.snapshot import FOREVER
from oar.kao.planner.resources.slots import Page, SlotMatch, SlotQuery, SlotSet
from oar.lib.facts.resource_set import ResourceSet


def earliest(slots: SlotSet, query: SlotQuery, begin: int, latest: int = FOREVER) -> SlotMatch | None:
    """Return the earliest match with a start from ``begin`` to ``latest``; None if there is none."""
    begin = max(begin, slots.begin)
    if begin > latest:
        return None
    if not query.request.is_monotone:
        return _try_possible(slots, query, begin, latest)
    match = _Search(slots, query, begin, latest).run()
    if match and not query.request.is_steady:
        free = slots.free_between(match.start, match.start + query.duration, query.keys) & query.usable
        return SlotMatch(match.start, query.request.fit(free))
    return match


def fit_at(slots: SlotSet, query: SlotQuery, start: int) -> ResourceSet:
    """Return the resources that the request takes at exactly ``start``; 0 if it is not satisfied there."""
    return query.request.fit(slots.free_between(start, start + query.duration, query.keys) & query.usable)


def _try_possible(slots: SlotSet, query: SlotQuery, begin: int, latest: int) -> SlotMatch | None:
    """Try each start in turn: a request whose groups compete may succeed on less where it fails on more.

    Starts at which not even what is necessary is satisfied are passed over.
    """
    for start in possible_starts(slots, query, begin, latest):
        if resources := fit_at(slots, query, start):
            return SlotMatch(start, resources)
    return None


def possible_starts(slots: SlotSet, query: SlotQuery, begin: int, latest: int = FOREVER) -> Iterator[int]:
    """Iterate over ``begin`` and the starts of slots behind it where what a request needs at least is satisfied."""
    needed = query.necessary
    if needed is None:
        later = (start for start in slots.starts() if start > begin)
        yield from (start for start in (begin, *later) if start <= latest)
        return
    start: int | None = begin
    while start is not None and (match := _Search(slots, needed, start, latest).run()):
        yield match.start
        start = slots.start_behind(match.start)


class _Search:
    """One search: the present start and candidate, and the next slot to look at."""

    __slots__ = (
        "begin",
        "candidate",
        "family",
        "free",
        "latest",
        "page_index",
        "pages",
        "parts",
        "query",
        "slot_index",
        "start",
        "wider_family",
    )

    def __init__(self, slots: SlotSet, query: SlotQuery, begin: int, latest: int) -> None:
        self.pages = slots.pages
        self.query = query
        self.begin = begin
        self.latest = latest
        self.page_index, self.slot_index = slots.locate(begin)
        wider = query.request.wider
        self.family = query.request.family, query.kind, query.keys
        self.wider_family = (wider.family, query.kind, query.keys) if wider else None
        self.start = begin
        self.free = 0  #: free in all slots from the start to the last renewal of the candidate
        self.parts: list[ResourceSet] = []  #: free resources of the slots since then
        self.candidate = 0

    def run(self) -> SlotMatch | None:
        """Return the earliest match."""
        is_begun = self._first_fit()
        while is_begun:
            if self.start > self.latest:
                return None
            if self._follow():
                return SlotMatch(self.start, self.candidate)
            is_begun = self._step_back()
        return None

    def _first_fit(self) -> bool:
        """Begin at the next slot that satisfies the request by itself; False if there is none."""
        request, usable, keys = self.query.request, self.query.usable, self.query.keys
        while self.page_index < len(self.pages):
            page = self.pages[self.page_index]
            if page.starts[0] > self.latest:
                return False
            is_shared = bool(keys and page.keyed)
            if page.is_loose:
                page.tighten()
            is_too_small = page.most < request.least and not is_shared
            if not (is_too_small or self._is_known_to_fail(page)):
                frees, members, counts = page.free_for(keys), usable & page.open, page.counts
                least = 0 if is_shared else request.least + page.covered
                for index in range(self.slot_index, len(frees)):
                    if counts[index] < least:
                        continue
                    free = frees[index] & members
                    if candidate := request.fit(free):
                        self._begin_at(index, free, candidate)
                        return True
                if self.slot_index == 0:
                    page.note_failure(self.family, request.quantities)
            self.page_index += 1
            self.slot_index = 0
        return False

    def _is_known_to_fail(self, page: Page) -> bool:
        """Whether the request, or the same one without its filter, has failed in each slot of a page."""
        quantities = self.query.request.quantities
        return page.fails(self.family, quantities) or (
            self.wider_family is not None and page.fails(self.wider_family, quantities)
        )

    def _begin_at(self, index: int, free: ResourceSet, candidate: ResourceSet) -> None:
        """Begin at a slot of the present page; the next slot to look at is the one behind it."""
        self.start = max(self.begin, self.pages[self.page_index].starts[index])
        self.slot_index = index + 1
        self.free, self.candidate = free, candidate
        self.parts.clear()

    def _follow(self) -> bool:
        """Follow the candidate to the end of the duration; False if no candidate is free up to the present slot."""
        end = self.start + self.query.duration
        keys = self.query.keys
        while self.page_index < len(self.pages):
            page = self.pages[self.page_index]
            starts = page.starts
            candidate = self.candidate
            if self.slot_index == 0 and starts[-1] < end and not (keys and page.keyed):
                self.parts.append(page.common)
                if page.common & candidate != candidate and not self._renew():
                    self.slot_index = len(starts) - 1  # whatever starts before this page reaches its last slot
                    return False
            else:
                last = bisect_left(starts, end)
                if not self._follow_slots(last):
                    return False
                if last < len(starts):
                    return True
            self.page_index += 1
            self.slot_index = 0
        return True

    def _follow_slots(self, last: int) -> bool:
        """Follow the candidate through the slots of the present page before ``last``; False as in ``_follow``."""
        page, keys = self.pages[self.page_index], self.query.keys
        parts, candidate, first = self.parts, self.candidate, self.slot_index
        frees = page.free_for(keys)
        if first < last:
            parts.append(page.open)
        is_broken = page.open & candidate != candidate
        for index in range(first, last):
            if is_broken or frees[index] & candidate != candidate:
                parts.extend(frees[first : index + 1])
                first, is_broken = index + 1, False
                if not self._renew():
                    self.slot_index = index
                    return False
                candidate = self.candidate
        parts.extend(frees[first:last])
        return True

    def _renew(self) -> bool:
        """Take a new candidate from what is free in all slots so far; False if there is none."""
        free = self.free & self.query.usable
        for part in self.parts:
            free &= part
        self.parts.clear()
        self.free = free
        self.candidate = self.query.request.fit(free)
        return self.candidate != 0

    def _step_back(self) -> bool:
        """Begin at the leftmost start that is satisfied up to the present slot, or behind it; False if none is left."""
        request, usable, keys = self.query.request, self.query.usable, self.query.keys
        pages, page_index, slot_index = self.pages, self.page_index, self.slot_index
        free = self.pages[page_index].available(slot_index, keys) & usable
        if not request.is_satisfied(free):
            self.slot_index += 1
            return self._first_fit()
        start_page, start_slot = page_index, slot_index
        page = pages[page_index]
        frees = page.free_for(keys)
        while True:
            if slot_index:
                slot_index -= 1
            else:
                page_index -= 1
                page = pages[page_index]
                frees = page.free_for(keys)
                slot_index = len(frees) - 1
            is_at_end = slot_index and slot_index == len(frees) - 1 and not keys
            if is_at_end and request.is_satisfied(free & page.common):
                slot_index, rest = 0, free & page.common
            else:
                rest = free & frees[slot_index] & page.open
                if rest != free and not request.is_satisfied(rest):
                    break
            free = rest
            start_page, start_slot = page_index, slot_index
        self.start = max(self.begin, self.pages[start_page].starts[start_slot])
        self.free, self.candidate = free, request.fit(free)
        self.parts.clear()
        self.slot_index += 1
        return True
