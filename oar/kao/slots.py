"""Which resources are free from when to when.

A ``SlotSet`` is a row of slots in order of time, each with the set of resources that are free all through it; the last
one has no end.  Slots are kept in pages of some fifty.  A page knows what is free in all of its slots, so that a
job that stays all through it is checked, and entered, in one step; and which requests were found to fail in each of
its slots, so that they need not be tried there again.  This holds because resources only get scarcer while a plan is
made: whoever frees something (a container that grows) makes a new slot set.

Who occupies a resource matters only for those who may share it: occupants may carry a *key* (a timesharing tag, the
name of a placeholder), and an asker that holds the key of every occupant of a resource finds it free.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import le

from oar.kao.model import FOREVER
from oar.lib.hierarchy import RequestFit
from oar.lib.resource_set import ResourceSet

#: What lets jobs share: ("timesharing", tag) or ("placeholder", name).
Key = tuple[str, str]

#: A page with more slots is cut in two.
LARGEST_PAGE = 64

#: Fewer occupants are entered one by one.
FEW = 16

#: So many failures are remembered of each family of requests, in each page.
REMEMBERED = 6


@dataclass(frozen=True, slots=True)
class Ask:
    """What is looked for: ``request`` on ``usable`` resources for ``duration`` seconds."""

    request: RequestFit
    usable: ResourceSet
    duration: int
    keys: frozenset[Key] = frozenset()
    kind: str = ""  #: names ``usable``: asks of one kind have the same


@dataclass(frozen=True, slots=True)
class Found:
    """The earliest place for an ask."""

    start: int
    resources: ResourceSet


class _Page:
    """Consecutive slots."""

    __slots__ = ("common", "failures", "free", "is_loose", "keyed", "most", "open", "starts")

    def __init__(self, starts: list[int], free: list[ResourceSet], everything: ResourceSet) -> None:
        self.starts = starts
        self.free = free  #: what is free in each slot, as far as ``open`` allows
        self.open = everything  #: without what jobs that stay all through the page have taken
        #: occupants with keys, for each slot: key -> what they hold; None -> what nobody without key holds
        self.keyed: list[dict[Key | None, ResourceSet] | None] | None = None
        self.failures: dict[object, list[tuple[int, ...]]] = {}
        self._look()

    def _look(self) -> None:
        """Find out what is free in all slots, and how much is free in any."""
        common = self.open
        for free in self.free:
            common &= free
        self.common = common
        self.tighten()

    def tighten(self) -> None:
        """Count again how much is free in any slot."""
        opened = self.open
        self.most = max((free & opened).bit_count() for free in self.free)
        self.is_loose = False

    def available(self, index: int, keys: frozenset[Key]) -> ResourceSet:
        """Return what a holder of these keys finds free in a slot."""
        holders = self.keyed[index] if keys and self.keyed else None
        if holders is None:
            return self.free[index] & self.open
        free = holders[None]
        for key, held in holders.items():
            if key is not None and key not in keys:
                free &= ~held
        return free & self.open

    def cover(self, taken: ResourceSet, kept: ResourceSet, count: int) -> None:
        """Enter an occupant without key of so many resources that stays all through the page."""
        self.open &= kept
        if self.common & taken == taken:  # it was given what is free: counting again would take longer than all else
            self.most -= count
            self.common ^= taken
        else:
            self.most -= (taken & self.common).bit_count()
            self.common &= kept

    def take(self, first: int, last: int, kept: ResourceSet) -> None:
        """Enter an occupant without key of some slots."""
        self.free[first:last] = [free & kept for free in self.free[first:last]]
        self.common &= kept
        self.is_loose = True
        for holders in self.keyed[first:last] if self.keyed else ():
            if holders is not None:
                holders[None] &= kept

    def take_keyed(self, first: int, last: int, taken: ResourceSet, key: Key) -> None:
        """Enter an occupant with a key."""
        if self.keyed is None:
            self.keyed = [None] * len(self.free)
        for index in range(first, last):
            holders = self.keyed[index]
            if holders is None:
                holders = self.keyed[index] = {None: self.free[index]}
            holders[key] = holders.get(key, 0) | taken
            self.free[index] &= ~taken
        self.common &= ~taken
        self.is_loose = True

    def split(self, index: int, date: int) -> None:
        """Make a new slot that begins at ``date`` inside a slot."""
        self.starts.insert(index + 1, date)
        self.free.insert(index + 1, self.free[index])
        if self.keyed:
            holders = self.keyed[index]
            self.keyed.insert(index + 1, dict(holders) if holders is not None else None)

    def halve(self, everything: ResourceSet) -> "_Page":
        """Cut the page in two; return the second half."""
        opened, middle = self.open, len(self.free) >> 1
        free = [each & opened for each in self.free]
        second = _Page(self.starts[middle:], free[middle:], everything)
        second.failures = {family: list(failed) for family, failed in self.failures.items()}
        if self.keyed:
            for holders in self.keyed:
                if holders is not None:
                    holders[None] &= opened
            second.keyed, self.keyed = self.keyed[middle:], self.keyed[:middle]
        self.starts, self.free, self.open = self.starts[:middle], free[:middle], everything
        self._look()
        return second

    def fails(self, family: object, quantities: tuple[int, ...]) -> bool:
        """Whether a request that is not harder is known to fail in each slot."""
        return any(all(map(le, failed, quantities)) for failed in self.failures.get(family, ()))

    def note_failure(self, family: object, quantities: tuple[int, ...]) -> None:
        """Remember that a request fails in each slot."""
        known = self.failures.get(family, [])
        kept = [failed for failed in known if not all(map(le, quantities, failed))]
        self.failures[family] = [*kept[-REMEMBERED:], quantities]

    def copy(self, everything: ResourceSet) -> "_Page":
        """Return a page of its own with the same contents."""
        page = _Page(list(self.starts), [free & self.open for free in self.free], everything)
        if self.keyed:
            page.keyed = [dict(holders) if holders is not None else None for holders in self.keyed]
            for holders in page.keyed:
                if holders is not None:
                    holders[None] &= self.open
        return page


class SlotSet:
    """The row of slots."""

    def __init__(self, begin: int, everything: ResourceSet, free: ResourceSet | None = None) -> None:
        """From ``begin`` on, ``free`` is free for ever (default: everything)."""
        self.begin = begin
        self._everything = everything
        self.pages = [_Page([begin], [everything if free is None else free], everything)]
        self._firsts = [begin]  #: the first start of each page

    def copy(self) -> "SlotSet":
        """Return slots of its own with the same contents."""
        other = SlotSet(self.begin, self._everything)
        other.pages = [page.copy(self._everything) for page in self.pages]
        other._firsts = list(self._firsts)
        return other

    def occupy(self, start: int, end: int, taken: ResourceSet, key: Key | None = None) -> None:
        """Enter an occupant from ``start`` until ``end``."""
        start = max(start, self.begin)
        if start >= end or not taken:
            return
        self._cut(start)
        self._cut(end)
        kept, count = self._everything & ~taken, taken.bit_count()
        for page, first, last in self._between(start, end):
            if key is not None:
                page.take_keyed(first, last, taken, key)
            elif last - first == len(page.free):
                page.cover(taken, kept, count)
            else:
                page.take(first, last, kept)

    def occupy_all(self, wanted: Sequence[tuple[int, int, ResourceSet, Key | None]]) -> None:
        """Enter many occupants: start, end, resources and key of each."""
        if len(wanted) >= FEW and self._sweep(wanted):
            return
        for start, end, taken, key in wanted:
            self.occupy(start, end, taken, key)

    def _sweep(self, wanted: Sequence[tuple[int, int, ResourceSet, Key | None]]) -> bool:
        """Enter occupants in one walk through time.  False, and nothing done: some share resources."""
        begins: dict[int, ResourceSet] = {}
        ends: dict[int, ResourceSet] = {}
        for begin, end, taken, key in wanted:
            start = max(begin, self.begin)
            if key is not None or begins.get(start, 0) & taken:
                return False
            if start < end and taken:
                begins[start] = begins.get(start, 0) | taken
                ends[end] = ends.get(end, 0) | taken
        if any(page.keyed for page in self.pages):
            return False
        known = {
            start: free & page.open for page in self.pages for start, free in zip(page.starts, page.free, strict=True)
        }
        starts = sorted((known.keys() | begins.keys() | ends.keys()) - {FOREVER})
        slots: list[ResourceSet] = []
        held = free = 0
        for date in starts:
            begun = begins.get(date, 0)
            held &= ~ends.get(date, 0)
            if held & begun:
                return False
            held |= begun
            free = known.get(date, free)
            slots.append(free & ~held)
        self._divide(starts, slots)
        return True

    def _divide(self, starts: list[int], slots: list[ResourceSet]) -> None:
        """Make pages of slots."""
        size = LARGEST_PAGE // 2
        self.pages = [
            _Page(starts[at : at + size], slots[at : at + size], self._everything) for at in range(0, len(starts), size)
        ]
        self._firsts = starts[::size]

    def open(self, start: int, end: int, given: ResourceSet) -> None:
        """Make resources free from ``start`` until ``end``.  Only before anything is occupied or asked."""
        start = max(start, self.begin)
        if start >= end:
            return
        self._cut(start)
        self._cut(end)
        for page, first, last in self._between(start, end):
            page.free[first:last] = [free | given for free in page.free[first:last]]
            page._look()

    def free_between(self, start: int, end: int, keys: frozenset[Key] = frozenset()) -> ResourceSet:
        """Return what is free at every instant from ``start`` until ``end``."""
        free = self._everything
        at, index = self.locate(max(start, self.begin))
        for page in self.pages[at:]:
            for slot in range(index, len(page.free)):
                if page.starts[slot] >= end:
                    return free
                free &= page.available(slot, keys)
            index = 0
        return free

    def starts(self) -> Iterator[int]:
        """Go through the dates at which slots begin."""
        for page in self.pages:
            yield from page.starts

    def locate(self, date: int) -> tuple[int, int]:
        """Return the number of the page, and of the slot in it, that holds the instant ``date``."""
        at = bisect_right(self._firsts, date) - 1
        return at, bisect_right(self.pages[at].starts, date) - 1

    def _cut(self, date: int) -> None:
        """Make a slot begin at ``date``."""
        if date >= FOREVER:
            return
        at, index = self.locate(date)
        page = self.pages[at]
        if page.starts[index] == date:
            return
        page.split(index, date)
        if len(page.starts) > LARGEST_PAGE:
            second = page.halve(self._everything)
            self.pages.insert(at + 1, second)
            self._firsts.insert(at + 1, second.starts[0])

    def _between(self, start: int, end: int) -> Iterable[tuple[_Page, int, int]]:
        """Go through the pages from ``start`` until ``end``, with the first slot and the one behind the last."""
        at, index = self.locate(start)
        for page in self.pages[at:]:
            if page.starts[0] >= end:
                return
            yield page, index, bisect_left(page.starts, end)
            index = 0
