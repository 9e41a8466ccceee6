"""The earliest start at which a request is satisfied in a slot set.

The result is the smallest start at which the resources that are free during the whole duration satisfy the request.
Only the begin of the search and the starts of slots have to be tried.

The search goes to the first slot that satisfies the request by itself.  If the slot in which the duration ends does not
satisfy it, the search continues after that slot.  Otherwise it intersects the free resources from start to end.  If
they do not satisfy the request, it examines these slots from the last one back to the start.

- The resources free in all examined slots decrease with each slot.  The first slot with which the request is no longer
  satisfied is an *obstacle*: each start up to there also lasts to the last slot.  So the search continues after it.
  The slots before it, which may be many, are skipped.
- Slots are processed a page at a time.  Only in the page of the obstacle the single slots are examined.

See docs/design/planner.rst, "Placement".
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import reduce
from operator import and_, le

from oar.kao.facts.snapshot import FOREVER
from oar.kao.planner.resources.slots import UNCOUNTED, Page, SlotMatch, SlotQuery, SlotSet
from oar.lib.base.resource_set import ResourceSet

#: Is told how many starts were tried so far, and the next one, where many may be; ends the search by raising.
Check = Callable[[int, int], None]


#: A check is asked behind so many starts of a monotone request, each of which takes a millisecond at most.
STARTS_PER_CHECK = 8


#: In the search for an obstacle so many times more slots are taken with each step.
STRIDE = 4


def earliest(
    slots: SlotSet, query: SlotQuery, begin: int, latest: int = FOREVER, check: Check | None = None
) -> SlotMatch | None:
    """Return the earliest match with a start from ``begin`` to ``latest``; return None if there is none."""
    begin = max(begin, slots.begin)
    if begin > latest:
        return None
    if not query.request.is_monotone:
        for tries, start in enumerate(possible_starts(slots, query, begin, latest)):
            if check:
                check(tries, start)
            if resources := fit_at(slots, query, start):
                return SlotMatch(start, resources)
        return None
    match = _Search(slots, query, begin, latest).run(check)
    if match and not query.request.is_steady:
        free = slots.free_between(match.start, match.start + query.duration, query.keys) & query.usable
        return SlotMatch(match.start, query.request.fit(free))
    return match


def fit_at(slots: SlotSet, query: SlotQuery, start: int) -> ResourceSet:
    """Return the resources that the request takes at exactly ``start``; return 0 if it is not satisfied."""
    return query.request.fit(slots.free_between(start, start + query.duration, query.keys) & query.usable)


def possible_starts(slots: SlotSet, query: SlotQuery, begin: int, latest: int = FOREVER) -> Iterator[int]:
    """Iterate over ``begin`` and later slot starts at which the necessary request is satisfied."""
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
    """One search: the current start, and the slot that contains it."""

    __slots__ = (
        "begin",
        "behind",
        "check",
        "end",
        "family",
        "latest",
        "page_index",
        "pages",
        "query",
        "slot_index",
        "slots",
        "start",
        "tries",
        "wider_family",
    )

    def __init__(self, slots: SlotSet, query: SlotQuery, begin: int, latest: int) -> None:
        self.slots = slots
        self.pages = slots.pages
        self.query = query
        self.begin = begin
        self.latest = latest
        self.check: Check | None = None
        self.tries = 0  #: so many starts were tried
        self.page_index, self.slot_index = slots.locate(begin)
        wider = query.request.wider
        self.family = query.request.family, query.kind, query.keys
        self.wider_family = (wider.family, query.kind, query.keys) if wider else None
        self.start = begin
        #: of the present start: the page and the slot in which the duration ends, and what is free behind each of its
        #: pages, the last page first
        self.end = 0, 0
        self.behind: list[ResourceSet] = []

    def run(self, check: Check | None = None) -> SlotMatch | None:
        """Return the earliest match."""
        self.check = check
        for _ in self._starts():
            if resources := self.query.request.fit(self._free_all_through()):
                return SlotMatch(self.start, resources)
            if self.latest < FOREVER and self._is_last_start():
                return None
            self.end = self._last_obstacle()
        return None

    def _starts(self) -> Iterator[None]:
        """Iterate over the candidate starts from the current slot on; each next one is after ``end``.

        The slot at the start, and the slot in which the duration ends, satisfy the request by themselves.
        """
        while self.page_index < len(self.pages):
            present, page = self.page_index, self.pages[self.page_index]
            if page.starts[0] > self.latest:
                return
            if self._may_fit(page):
                yield from self._starts_in(page)
            if self.page_index == present:
                self.page_index, self.slot_index = present + 1, 0

    def _may_fit(self, page: Page) -> bool:
        """Return whether a slot of a page may satisfy the request, according to its counts and recorded failures."""
        request, keys = self.query.request, self.query.keys
        most = page.most + page.shared_by(keys) if keys else page.most
        return most >= request.least and not (page.failures and self._is_known_to_fail(page))

    def _starts_in(self, page: Page) -> Iterator[None]:
        """Iterate over the candidate starts in the current page."""
        request, usable, duration, keys, _ = self.query
        is_satisfied, locate, present, first = request.is_satisfied, self.slots.locate, self.page_index, self.slot_index
        starts, counts, frees = page.starts, page.counts, page.free_for(keys) if keys else page.free
        members = usable & (page.open_for(keys) if keys else page.open)
        least = request.least + page.covered - (page.shared_by(keys) if keys else 0)
        for index in range(first, bisect_right(starts, self.latest)):
            if counts[index] < least or index < self.slot_index:
                continue
            if not is_satisfied(frees[index] & members):
                if counts[index] == UNCOUNTED:
                    page.count(index)
                continue
            self.slot_index, self.start = index, max(self.begin, starts[index])
            if self.check and self.tries and not self.tries % STARTS_PER_CHECK:
                self.check(self.tries, self.start)
            self.tries += 1
            end_page, end_slot = self.end = locate(self.start + duration - 1)
            if end_page != present:
                may_end = is_satisfied(self.pages[end_page].available(end_slot, keys) & usable)
            else:
                may_end = end_slot == index or is_satisfied(frees[end_slot] & members)
            if may_end:
                yield
            self.page_index, self.slot_index = self.end[0], self.end[1] + 1
            if self.page_index != present:
                return
        if first == self.slot_index == 0 and starts[-1] <= self.latest:
            page.note_failure(self.family, request.quantities)

    def _is_last_start(self) -> bool:
        """Return whether the next slot begins after the latest start; the obstacle is then irrelevant."""
        starts, behind = self.pages[self.page_index].starts, self.slot_index + 1
        if behind < len(starts):
            return starts[behind] > self.latest
        behind = self.page_index + 1
        return behind == len(self.pages) or self.pages[behind].starts[0] > self.latest

    def _is_known_to_fail(self, page: Page) -> bool:
        """Return whether the request, or the same request without its filter, has failed in each slot of a page."""
        quantities = self.query.request.quantities
        return page.fails(self.family, quantities) or (
            self.wider_family is not None and page.fails(self.wider_family, quantities)
        )

    def _free_all_through(self) -> ResourceSet:
        pages, keys, free = self.pages, self.query.keys, self.query.usable
        page_index, last = self.end
        self.behind = behind = [free]
        while page_index > self.page_index:
            free &= pages[page_index].free_through(0, last, keys)
            behind.append(free)
            page_index -= 1
            last = len(pages[page_index].starts) - 1
        return free & pages[page_index].free_through(self.slot_index, last, keys)

    def _last_obstacle(self) -> tuple[int, int]:
        """Return the last slot from which the request is not satisfied until the end; such a slot must exist."""
        is_satisfied, behind = self.query.request.is_satisfied, self.behind
        low, high = 0, len(behind) - 1  #: so many pages before the last one is that of the obstacle
        while low < high:
            middle = (low + high) >> 1
            low, high = (middle + 1, high) if is_satisfied(behind[middle + 1]) else (low, middle)
        end_page, end_slot = self.end
        page = self.pages[end_page - low]
        return end_page - low, self._obstacle_of(page, behind[low], len(page.starts) - 1 if low else end_slot)

    def _obstacle_of(self, page: Page, free: ResourceSet, last: int) -> int:
        """Return the last slot of a page, at most ``last``, from which the request is not satisfied until the end.

        ``free``: the resources free after the page.  The steps grow until they include the obstacle; a binary search
        follows.
        """
        is_satisfied, frees = self.query.request.is_satisfied, page.free_for(self.query.keys)
        free &= page.open_for(self.query.keys)
        first = last
        while is_satisfied(rest := reduce(and_, frees[first : last + 1], free)):
            free, last, first = rest, first - 1, max(0, first - STRIDE * (last - first + 1))
        while first < last:
            middle = (first + last + 1) >> 1
            if is_satisfied(rest := reduce(and_, frees[middle : last + 1], free)):
                free, last = rest, middle - 1
            else:
                first = middle
        return last


#: Number of different requests of a family for which bounds are kept: the latest ones.
MAX_BOUNDS = 64


#: Requested quantities; durations and their earliest possible starts, both ascending.
_Bounds = tuple[tuple[int, ...], list[int], list[int]]


class _FamilyBounds:
    """Earliest starts of requests that differ only in their quantities."""

    def __init__(self) -> None:
        self._wanted: list[tuple[int, ...]] = []  #: ascending
        self._bounds: list[_Bounds] = []  #: the same, with durations and starts
        self._latest: dict[tuple[int, ...], None] = {}  #: the same, in the order in which it was learnt

    def of(self, wanted: tuple[int, ...], longest: int) -> int:
        """Return a date before which these quantities are never free for ``longest``; return 0 without a bound."""
        bound, less = 0, bisect_right(self._wanted, wanted)  # compared as tuples, which is sufficient for one quantity
        for quantities, durations, starts in self._bounds[less - 1 :: -1] if less else ():  # largest first
            if starts[-1] > bound:
                shorter = bisect_right(durations, longest)
                if shorter and starts[shorter - 1] > bound and all(map(le, quantities, wanted)):
                    bound = starts[shorter - 1]
        return bound

    def learn(self, wanted: tuple[int, ...], duration: int, start: int) -> None:
        _, durations, starts = self._of(wanted)
        first = bisect_left(durations, duration)  # bounds from here on have the same or a longer duration
        behind = bisect_right(starts, start, first)  # and those before this index begin no later: they are redundant
        durations[first:behind], starts[first:behind] = [duration], [start]

    def _of(self, wanted: tuple[int, ...]) -> _Bounds:
        """Return the bounds of these quantities and mark them as the latest."""
        is_known = self._latest.pop(wanted, self) is None
        if len(self._latest) == MAX_BOUNDS:
            oldest = next(iter(self._latest))
            del self._latest[oldest], self._bounds[self._wanted.index(oldest)]
            self._wanted.remove(oldest)
        self._latest[wanted] = None
        at = bisect_left(self._wanted, wanted)
        if not is_known:
            self._wanted.insert(at, wanted)
            self._bounds.insert(at, (wanted, [], []))
        return self._bounds[at]


class StartBounds:
    """Earliest starts of queries, recorded from earlier searches.

    Free resources only decrease while a plan is made.  So a query of a monotone request cannot start before an earlier
    query of the same family with smaller or equal quantities and duration.
    """

    def __init__(self) -> None:
        self._bounds: dict[object, _FamilyBounds] = {}

    def of(self, query: SlotQuery) -> int:
        """Return a date before which the query has no match; 0 without a bound."""
        bounds = self._bounds.get((query.request.family, query.kind, query.keys))
        return bounds.of(query.request.quantities, query.duration) if bounds else 0

    def learn(self, query: SlotQuery, start: int) -> None:
        """Record the earliest start of a query that was searched from the date of the round on."""
        key = query.request.family, query.kind, query.keys
        bounds = self._bounds.get(key)
        if bounds is None:
            bounds = self._bounds[key] = _FamilyBounds()
        bounds.learn(query.request.quantities, query.duration, start)
