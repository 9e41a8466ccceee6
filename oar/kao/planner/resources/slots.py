"""The free resources by date.

A *slot* is an interval of time in which the set of free resources does not change.  A ``SlotSet`` is a row of slots in
order of time; the last one has no end.  Slots are kept in *pages* of at most 64.  A page keeps

- the resources that are free in all of its slots.  A job that stays through the whole page is checked and entered in
  one step;
- the requests that failed in each of its slots: they are not tried there again.  This is correct because free resources
  only decrease while a plan is made.  An operation that frees resources (a container that grows) makes a new slot set.

Jobs that may share resources have a *sharing key*: a timesharing tag, or the name of a placeholder.  A job that has the
keys of all occupants of a resource finds it free.  For jobs with the same keys, free resources only decrease, too.  A
search visits each page several times, so the free resources by keys are cached until another occupant enters the page
(``SharedSlots``).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import and_, le
from typing import NamedTuple

from oar.kao.facts.job_types import SharingKey
from oar.kao.facts.snapshot import FOREVER
from oar.kao.facts.steps import PORTION, Steps, portions, result_of
from oar.lib.base.resource_set import ResourceSet, without
from oar.lib.nodes.hierarchy import RequestFit


class SharedSlots:
    """The occupants with keys in the slots of one page."""

    __slots__ = ("_by_key", "_commons", "_extents", "_held", "_left", "_several", "_views")

    def __init__(self, free: Sequence[ResourceSet]) -> None:
        """``free``: the free resources of each slot before the first occupant with a key."""
        self._left = list(free)  #: what no occupant without key has
        self._several: list[ResourceSet] = [0] * len(free)  #: what occupants of different keys have
        self._by_key: dict[SharingKey, list[ResourceSet]] = {}
        self._held: dict[SharingKey, ResourceSet] = {}  #: what each key has in any slot; after a cut it may be more
        self._extents: dict[SharingKey, int] = {}  #: how much that is, as far as somebody asked
        self._views: dict[frozenset[SharingKey], list[ResourceSet]] = {}
        self._commons: dict[frozenset[SharingKey], ResourceSet] = {}  #: what is in all slots of a view

    def hold(
        self,
        first: int,
        last: int,
        occupied: ResourceSet,
        key: SharingKey,
        free: Sequence[ResourceSet],
        *,
        common: ResourceSet = 0,
    ) -> None:
        """Enter an occupant in the slots from ``first`` to before ``last``.

        ``free``: the resources free for all jobs so far; ``common``: a part of what is free for all jobs in all slots.
        """
        own = self._by_key.setdefault(key, [0] * len(self._left))
        if occupied & common != occupied:
            for slot in [slot for slot in range(first, last) if (free[slot] | own[slot]) & occupied != occupied]:
                self._several[slot] |= occupied & ~(free[slot] | own[slot])
        own[first:last] = [held | occupied for held in own[first:last]]
        self._held[key] = self._held.get(key, 0) | occupied
        self._extents.pop(key, None)
        for keys in [keys for keys in self._views if key not in keys]:
            del self._views[keys]
            self._commons.pop(keys, None)

    def take(self, first: int, last: int, remaining: ResourceSet) -> None:
        """Enter an occupant without a key; ``remaining``: all resources except its own."""
        self._left[first:last] = [left & remaining for left in self._left[first:last]]
        self._views.clear()
        self._commons.clear()

    def split(self, slot: int) -> None:
        for column in (self._left, self._several, *self._by_key.values(), *self._views.values()):
            column.insert(slot + 1, column[slot])

    def part(self, first: int, last: int) -> "SharedSlots":
        other = SharedSlots(self._left[first:last])
        other._several = self._several[first:last]
        other._by_key = {key: own[first:last] for key, own in self._by_key.items() if any(own[first:last])}
        other._held = {key: self._held[key] for key in other._by_key}
        return other

    def extent(self, keys: frozenset[SharingKey]) -> int:
        """Return the maximum number of resources that occupants with these keys hold in a slot."""
        extent, extents, held = 0, self._extents, self._held
        for key in keys:
            if key in held:
                if key not in extents:
                    extents[key] = held[key].bit_count()
                extent += extents[key]
        return extent

    def view(self, free: Sequence[ResourceSet], keys: frozenset[SharingKey]) -> Sequence[ResourceSet]:
        """Return the free resources of each slot for a job with these keys; ``free``: those free for all jobs."""
        view = self._views.get(keys)
        if view is None:
            columns = [self._by_key[key] for key in keys if key in self._by_key]
            if len(columns) == 1:
                rows = zip(free, columns[0], self._left, self._several, strict=True)
                view = [
                    each | (own & left & ~several if several else own & left) if own else each
                    for each, own, left, several in rows
                ]
            else:
                view = list(free)
                for slot in range(len(view) if columns else 0):
                    view[slot] |= self._shared(slot, keys)
            self._views[keys] = view
        return view

    def common(self, free: Sequence[ResourceSet], keys: frozenset[SharingKey]) -> ResourceSet:
        """Return the resources free in all slots for a job with these keys; ``free``: those free for all jobs."""
        common = self._commons.get(keys)
        if common is None:
            common = self._commons[keys] = reduce(and_, self.view(free, keys))
        return common

    def _shared(self, slot: int, keys: frozenset[SharingKey]) -> ResourceSet:
        """Return the resources of a slot whose occupants all have one of these keys."""
        shared = 0
        for key, own in self._by_key.items():
            if key in keys:
                shared |= own[slot]
        if shared & self._several[slot]:
            for key, own in self._by_key.items():
                if key not in keys:
                    shared &= ~own[slot]
        return shared & self._left[slot]


#: Start, end, resources and sharing key of a job.
Occupant = tuple[int, int, ResourceSet, SharingKey | None]


#: A page with more slots than this is cut in two.
LARGEST_PAGE = 64


#: Fewer occupants than this are entered one by one.
FEW = 16


#: The count of a slot that nobody has counted since it has changed: more than any has.
UNCOUNTED = 1 << 62


#: How many failed requests of each family a page keeps.
MAX_FAILURES = 6


class SlotQuery(NamedTuple):
    """A search for a start at which ``usable`` resources satisfy ``request`` for ``duration`` seconds."""

    request: RequestFit
    usable: ResourceSet
    duration: int
    keys: frozenset[SharingKey] = frozenset()  #: keys of the occupants with whom resources may be shared
    kind: str = ""  #: a name for ``usable``: equal for equal sets

    @property
    def necessary(self) -> "SlotQuery | None":
        """Return a monotone query that matches wherever this one does; return None if there is none."""
        if self.request.is_monotone:
            return self
        return self._replace(request=self.request.necessary) if self.request.necessary else None


class SlotMatch(NamedTuple):
    """The earliest start of a query and the resources at that start."""

    start: int
    resources: ResourceSet


class Page:
    """Consecutive slots of a slot set."""

    __slots__ = (
        "common",
        "counts",
        "covered",
        "covers",
        "failures",
        "free",
        "keyed",
        "most",
        "open",
        "starts",
    )

    def __init__(self, starts: list[int], free: list[ResourceSet], opened: ResourceSet) -> None:
        self.starts = starts
        self.free = free  #: free resources of each slot; only those in ``open`` count
        self.open = opened  #: all resources but those of jobs that stay through the whole page
        self.keyed: SharedSlots | None = None  #: occupants with keys of single slots
        self.covers: SharedSlots | None = None  #: those that stay through the whole page, which is one slot for them
        self.failures: dict[object, list[tuple[int, ...]]] = {}
        self.recount()

    def recount(self) -> None:
        """Compute ``common``, the resources free in all slots; the counts of single slots are computed on demand."""
        common = self.open
        for free in self.free:
            common &= free
        self.common = common
        self.counts = [UNCOUNTED] * len(self.free)  #: how much is free in each slot at most, and ``covered`` more
        self.covered = 0
        self.most = UNCOUNTED  #: how much is free in any slot at most

    def count(self, index: int) -> None:
        self.counts[index] = (self.free[index] & self.open).bit_count() + self.covered

    def free_for(self, keys: frozenset[SharingKey]) -> Sequence[ResourceSet]:
        """Return the free resources of each slot for a job with these keys; only those in ``open_for`` are valid."""
        return self.keyed.view(self.free, keys) if keys and self.keyed and self.keyed.extent(keys) else self.free

    def open_for(self, keys: frozenset[SharingKey]) -> ResourceSet:
        """Return all resources except those of jobs without these keys that stay through the whole page."""
        return self.covers.view((self.open,), keys)[0] if keys and self.covers else self.open

    def shared_by(self, keys: frozenset[SharingKey]) -> int:
        """Return the maximum number of additional free resources in a slot for a job with these keys."""
        more = self.keyed.extent(keys) if keys and self.keyed else 0
        return more + self.covers.extent(keys) if keys and self.covers else more

    def available(self, index: int, keys: frozenset[SharingKey]) -> ResourceSet:
        """Return the free resources of a slot for a job with these sharing keys."""
        return self.free_for(keys)[index] & self.open_for(keys) if keys else self.free[index] & self.open

    def free_through(self, first: int, last: int, keys: frozenset[SharingKey]) -> ResourceSet:
        """Return the resources free in all slots from ``first`` to ``last`` for a job with these sharing keys."""
        if last - first < len(self.starts) - 1:
            if not keys:
                return reduce(and_, self.free[first : last + 1], self.open)
            return reduce(and_, self.free_for(keys)[first : last + 1], self.open_for(keys))
        if not (keys and self.shared_by(keys)):
            return self.common
        return (self.keyed.common(self.free, keys) if self.keyed else reduce(and_, self.free)) & self.open_for(keys)

    def cover_keyed(self, occupied: ResourceSet, remaining: ResourceSet, count: int, key: SharingKey) -> None:
        """Enter an occupant with a key that stays through the whole page; the other parameters as in ``cover``."""
        if self.covers is None:
            self.covers = SharedSlots((self.open,))
        self.covers.hold(0, 1, occupied, key, (self.open,))
        self._close(occupied, remaining, count)

    def cover(self, occupied: ResourceSet, remaining: ResourceSet, count: int) -> None:
        """Enter an occupant without a key, of ``count`` resources, that stays through the whole page.

        ``remaining``: all resources except the occupied ones.
        """
        if self.covers:
            self.covers.take(0, 1, remaining)
        self._close(occupied, remaining, count)

    def _close(self, occupied: ResourceSet, remaining: ResourceSet, count: int) -> None:
        self.open &= remaining
        if self.common & occupied == occupied:  # the usual case; counting bits is the most expensive step here
            self.common ^= occupied
        else:
            count = (occupied & self.common).bit_count()
            self.common &= remaining
        self.most -= count
        self.covered += count

    def take(self, first: int, last: int, remaining: ResourceSet) -> None:
        """Enter an occupant without a key in the slots from ``first`` to before ``last``."""
        self._leave(first, last, remaining)
        if self.keyed:
            self.keyed.take(first, last, remaining)

    def take_keyed(self, first: int, last: int, occupied: ResourceSet, key: SharingKey) -> None:
        """Enter an occupant with a key in the slots from ``first`` to before ``last``."""
        if self.keyed is None:
            self.keyed = SharedSlots(self.free)
        self.keyed.hold(first, last, occupied, key, self.free, common=self.common)
        self._leave(first, last, ~occupied)

    def _leave(self, first: int, last: int, remaining: ResourceSet) -> None:
        """Keep only ``remaining`` resources free in the slots from ``first`` to before ``last``."""
        self.free[first:last] = [free & remaining for free in self.free[first:last]]
        self.counts[first:last] = [UNCOUNTED] * (last - first)
        self.common &= remaining

    def split(self, index: int, date: int) -> None:
        """Split a slot into two at ``date``."""
        self.starts.insert(index + 1, date)
        self.free.insert(index + 1, self.free[index])
        self.counts.insert(index + 1, self.counts[index])
        if self.keyed:
            self.keyed.split(index)

    def halve(self) -> "Page":
        """Split the page into two; return the second half."""
        middle, size = len(self.free) >> 1, len(self.free)
        second = Page(self.starts[middle:], self.free[middle:], self.open)
        second.failures = {family: list(failed) for family, failed in self.failures.items()}
        if self.keyed:
            second.keyed = self.keyed.part(middle, size)
            self.keyed = self.keyed.part(0, middle)
        second.covers = self.covers.part(0, 1) if self.covers else None
        self.starts, self.free = self.starts[:middle], self.free[:middle]
        self.recount()
        return second

    def fails(self, family: object, quantities: tuple[int, ...]) -> bool:
        """Return whether a request of the family with quantities that are not larger has failed in each slot."""
        for failed in self.failures.get(family, ()):
            if failed <= quantities and all(map(le, failed, quantities)):
                return True
        return False

    def note_failure(self, family: object, quantities: tuple[int, ...]) -> None:
        """Record that a request fails in each slot; delete the records of larger requests."""
        self.most = max(self.counts) - self.covered
        failures = self.failures.get(family, [])
        easier = [failed for failed in failures if not all(map(le, quantities, failed))]
        self.failures[family] = [*easier[-MAX_FAILURES:], quantities]

    def copy(self) -> "Page":
        page = Page(list(self.starts), list(self.free), self.open)
        page.keyed = self.keyed.part(0, len(self.free)) if self.keyed else None
        page.covers = self.covers.part(0, 1) if self.covers else None
        return page


class _FreeTimes:
    """The intervals in which some resources are free, updated slot by slot; sets are shifted to the lowest bit."""

    __slots__ = ("_free", "_low", "_runs", "_wanted", "held", "longest")

    def __init__(self, resources: ResourceSet) -> None:
        self._wanted = resources
        self._low = (resources & -resources).bit_length() - 1
        self._free: ResourceSet = 0  #: in the present slot
        self._runs: dict[int, ResourceSet] = {}  #: begin of a time -> what is free since then
        self.held: ResourceSet = 0  #: what is free since some begin
        self.longest = 0  #: the longest of the times that are over

    def last_through(self, common: ResourceSet) -> bool:
        """Return whether no interval ends where ``common`` is free throughout."""
        return not self.held & ~((common & self._wanted) >> self._low)

    def go_on(self, start: int, slot: ResourceSet, opened: ResourceSet) -> None:
        """Advance to a slot: end the intervals of the resources that are not free in it."""
        self._free = free = (slot & opened & self._wanted) >> self._low
        if not self.held & ~free:
            return
        self.held &= free
        for since in [since for since, members in self._runs.items() if members & ~free]:
            self.longest = max(self.longest, start - since)
            self._runs[since] &= free
            if not self._runs[since]:
                del self._runs[since]

    def begin(self, date: int) -> None:
        """Begin intervals for the resources that are free in the current slot."""
        begun = self._free & ~self.held
        if begun:
            self._runs[date] = self._runs.get(date, 0) | begun
            self.held |= begun


class SlotSet:
    """The free resources from a date on, in pages of slots."""

    def __init__(self, begin: int, everything: ResourceSet, free: ResourceSet | None = None) -> None:
        """Create one slot: from ``begin`` on, ``free`` (default: everything) is free without end."""
        self.begin = begin
        self._everything = everything
        self.pages = [Page([begin], [everything if free is None else free], everything)]
        self._firsts = [begin]  #: the first start of each page

    def projected(self, project: Callable[[ResourceSet], ResourceSet], everything: ResourceSet) -> "SlotSet":
        """Return slots whose free resources are mapped by ``project``; ``everything``: the mapping of all resources."""
        other = SlotSet(self.begin, everything)
        starts: list[int] = []
        slots: list[ResourceSet] = []
        for page in self.pages:
            for start, free in zip(page.starts, page.free, strict=True):
                projected = project(free & page.open)
                if not slots or projected != slots[-1]:
                    starts.append(start)
                    slots.append(projected)
        other._replace(starts, slots)
        return other

    def copy(self) -> "SlotSet":
        other = SlotSet(self.begin, self._everything)
        other.pages = [page.copy() for page in self.pages]
        other._firsts = list(self._firsts)
        return other

    def occupy(self, start: int, end: int, resources: ResourceSet, key: SharingKey | None = None) -> None:
        """Enter an occupant from ``start`` to ``end``."""
        start = max(start, self.begin)
        if start >= end or not resources:
            return
        self.cut(end)
        remaining, count = without(self._everything, resources), resources.bit_count()
        for page, first, last in self._pages(*self.cut(start), end):
            is_whole = last - first == len(page.free)
            if key is not None and is_whole:
                page.cover_keyed(resources, remaining, count, key)
            elif key is not None:
                page.take_keyed(first, last, resources, key)
            elif is_whole:
                page.cover(resources, remaining, count)
            else:
                page.take(first, last, remaining)

    def occupy_all(self, occupants: Sequence[Occupant]) -> None:
        """Enter many occupants; this is faster than one by one."""
        if len(occupants) >= FEW:
            result_of(self.occupying(occupants))
            return
        for start, end, resources, key in occupants:
            self.occupy(start, end, resources, key)

    def occupying(self, occupants: Sequence[Occupant]) -> Steps[None]:
        """Enter many occupants in steps; the slots must not be used before the last step."""
        if (yield from self._sweep(occupants)):
            return
        for portion in portions(occupants):
            yield
            for start, end, resources, key in portion:
                self.occupy(start, end, resources, key)

    def _sweep(self, occupants: Sequence[Occupant]) -> Steps[bool]:
        """Enter occupants in one pass through time; return False, with nothing entered, if any share resources."""
        begins: dict[int, ResourceSet] = {}
        ends: dict[int, ResourceSet] = {}
        for begin, end, resources, key in occupants:
            start = max(begin, self.begin)
            if key is not None or begins.get(start, 0) & resources:
                return False
            if start < end and resources:
                begins[start] = begins.get(start, 0) | resources
                ends[end] = ends.get(end, 0) | resources
        if any(page.keyed or page.covers for page in self.pages):
            return False
        old_slots = {
            start: free & page.open for page in self.pages for start, free in zip(page.starts, page.free, strict=True)
        }
        starts = sorted((old_slots.keys() | begins.keys() | ends.keys()) - {FOREVER})
        slots: list[ResourceSet] = []
        held = free = 0
        for number, date in enumerate(starts):
            if not number % PORTION:
                yield
            begun = begins.get(date, 0)
            held ^= ends.get(date, 0)  # all of them are held: no occupants share them
            if held & begun:
                return False
            held ^= begun
            free = old_slots.get(date, free)
            slots.append(without(free, held))
        yield
        self._replace(starts, slots)
        return True

    def _replace(self, starts: list[int], slots: list[ResourceSet]) -> None:
        """Replace all slots; ``slots``: the free resources from each start on."""
        size = LARGEST_PAGE // 2
        self.pages = [
            Page(starts[at : at + size], slots[at : at + size], self._everything) for at in range(0, len(starts), size)
        ]
        self._firsts = starts[::size]

    def open(self, start: int, end: int, resources: ResourceSet) -> None:
        """Add free resources from ``start`` to ``end``; only allowed before the first occupant and the first search."""
        start = max(start, self.begin)
        if start >= end:
            return
        self.cut(start)
        self.cut(end)
        for page, first, last in self._pages(*self.locate(start), end):
            page.free[first:last] = [free | resources for free in page.free[first:last]]
            page.recount()

    def free_between(self, start: int, end: int, keys: frozenset[SharingKey] = frozenset()) -> ResourceSet:
        """Return the resources that are free from ``start`` to ``end`` for a job with these keys."""
        start = max(start, self.begin)
        if start >= end:
            return self._everything
        (page_index, first), (last_page, last) = self.locate(start), self.locate(end - 1)
        free = self._everything
        while free and page_index < last_page:
            page = self.pages[page_index]
            free &= page.free_through(first, len(page.starts) - 1, keys) if first or keys else page.common
            page_index, first = page_index + 1, 0
        return free and free & self.pages[last_page].free_through(first, last, keys)

    def starts(self) -> Iterator[int]:
        for page in self.pages:
            yield from page.starts

    def start_behind(self, date: int) -> int | None:
        """Return the first slot start after ``date``; return None in the last slot."""
        page_index, slot_index = self.locate(date)
        starts = self.pages[page_index].starts
        if slot_index + 1 < len(starts):
            return starts[slot_index + 1]
        return self._firsts[page_index + 1] if page_index + 1 < len(self.pages) else None

    def longest_free(self, resources: ResourceSet, begin: int, end: int) -> int:
        """Return the longest time for which one of these resources is free, starting between ``begin`` and ``end``."""
        begin = max(begin, self.begin)
        page_index, slot_index = self.locate(begin)
        if self._stay_free(resources, self.locate(max(begin, end - 1))):
            return FOREVER
        times = _FreeTimes(resources)
        for page in self.pages[page_index:]:
            is_behind = page.starts[slot_index] >= end
            if is_behind and times.last_through(page.common):
                continue
            opened = page.open
            for start, slot in zip(page.starts[slot_index:], page.free[slot_index:], strict=True):
                times.go_on(start, slot, opened)
                if start < end:
                    times.begin(max(start, begin))
            if is_behind and not times.held:
                return times.longest
            slot_index = 0
        return FOREVER if times.held else times.longest

    def _stay_free(self, resources: ResourceSet, since: tuple[int, int]) -> bool:
        """Return whether any of these resources is free without end from a slot on."""
        page_index, slot_index = since
        for page in reversed(self.pages[page_index + 1 :]):
            resources &= page.common
            if not resources:
                return False
        last = self.pages[page_index]
        return bool(resources & last.free_through(slot_index, len(last.starts) - 1, frozenset()))

    def locate(self, date: int) -> tuple[int, int]:
        """Return the index of the page that contains ``date``, and of the slot in that page."""
        page_index = bisect_right(self._firsts, date) - 1
        return page_index, bisect_right(self.pages[page_index].starts, date) - 1

    def cut(self, date: int) -> tuple[int, int]:
        """Split the slot that contains ``date`` at that date; return the indexes as ``locate`` does."""
        page_index, slot_index = self.locate(date)
        page = self.pages[page_index]
        if date >= FOREVER or page.starts[slot_index] == date:
            return page_index, slot_index
        page.split(slot_index, date)
        if len(page.starts) > LARGEST_PAGE:
            second = page.halve()
            self.pages.insert(page_index + 1, second)
            self._firsts.insert(page_index + 1, second.starts[0])
            return self.locate(date)
        return page_index, slot_index + 1

    def _pages(self, page_index: int, slot_index: int, end: int) -> Iterable[tuple[Page, int, int]]:
        """Iterate over the pages from a slot to ``end``: page, first slot, and the slot after the last one."""
        for page in self.pages[page_index:]:
            if page.starts[0] >= end:
                return
            yield page, slot_index, bisect_left(page.starts, end)
            slot_index = 0
