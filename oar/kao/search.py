"""The earliest place for a request in a slot set (scheduling.md 7.1).

The rule: the smallest start at which the request is satisfied by what is free during the whole duration.  Only the
wanted date itself and beginnings of slots need be tried.

Found at a first slot, the resources (the *witness*) are followed through the later slots.  While the witness stays free
nothing else need be computed: by the property of ``RequestFit`` it is what the request takes of the whole stretch.
When it breaks, the request is asked of what is free in all slots so far.  When even that fails at some slot, no start
from which this slot is reached can do, unless what is free from there *up to that slot* satisfies the request: so the
search walks back from it to the leftmost such start, and goes on from there.  Whole pages are stepped over at once, and
one that the request cannot stay all through counts as a failure at its last slot: every start before it reaches that.
"""

from bisect import bisect_left

from oar.kao.model import FOREVER
from oar.kao.slots import Ask, Found, SlotSet
from oar.lib.resource_set import ResourceSet


def earliest(slots: SlotSet, ask: Ask, begin: int, latest: int = FOREVER) -> Found | None:
    """Return the earliest place with a start from ``begin`` to ``latest``."""
    begin = max(begin, slots.begin)
    if begin > latest:
        return None
    if not ask.request.is_monotone:
        return _try_all(slots, ask, begin, latest)
    found = _Search(slots, ask, begin, latest).run()
    if found and not ask.request.is_steady:
        free = slots.free_between(found.start, found.start + ask.duration, ask.keys) & ask.usable
        return Found(found.start, ask.request.fit(free))
    return found


def fit_at(slots: SlotSet, ask: Ask, start: int) -> ResourceSet:
    """Return what the request takes at exactly this date; 0 if it cannot be satisfied there."""
    return ask.request.fit(slots.free_between(start, start + ask.duration, ask.keys) & ask.usable)


def _try_all(slots: SlotSet, ask: Ask, begin: int, latest: int) -> Found | None:
    """Try each start: a request whose groups compete may succeed on less where it fails on more."""
    for start in (begin, *(start for start in slots.starts() if start > begin)):
        if start > latest:
            return None
        if resources := fit_at(slots, ask, start):
            return Found(start, resources)
    return None


class _Search:
    """One search: where it stands (page, slot), and what it holds there."""

    __slots__ = ("ask", "at", "begin", "family", "free", "index", "latest", "pages", "parts", "start", "witness")

    def __init__(self, slots: SlotSet, ask: Ask, begin: int, latest: int) -> None:
        self.pages = slots.pages
        self.ask = ask
        self.begin = begin
        self.latest = latest
        self.at, self.index = slots.locate(begin)
        self.family = ask.request.family, ask.kind
        self.start = begin
        self.free = 0  #: what is free in the slots that have been put together so far
        self.parts: list[ResourceSet] = []  #: what is free in slots not yet put together
        self.witness = 0

    def run(self) -> Found | None:
        is_begun = self._first_fit()
        while is_begun:
            if self.start > self.latest:
                return None
            if self._follow():
                return Found(self.start, self.witness)
            is_begun = self._walk_back()
        return None

    def _first_fit(self) -> bool:
        """Find the next slot that satisfies the request by itself."""
        request, usable, keys = self.ask.request, self.ask.usable, self.ask.keys
        while self.at < len(self.pages):
            page = self.pages[self.at]
            if page.starts[0] > self.latest:
                return False
            if page.is_loose and self.index == 0:
                page.tighten()
            if keys or not (page.most < request.least or page.fails(self.family, request.quantities)):
                for index in range(self.index, len(page.free)):
                    free = page.available(index, keys) & usable
                    witness = request.fit(free) if free.bit_count() >= request.least else 0
                    if witness:
                        self._stand(index, free, witness)
                        return True
                if self.index == 0 and not keys:
                    page.note_failure(self.family, request.quantities)
            self.at += 1
            self.index = 0
        return False

    def _stand(self, index: int, free: ResourceSet, witness: ResourceSet) -> None:
        """Begin at this slot of the present page; the next slot is to be looked at."""
        self.start = max(self.begin, self.pages[self.at].starts[index])
        self.index = index + 1
        self.free, self.witness = free, witness
        self.parts.clear()

    def _follow(self) -> bool:
        """Follow the witness to the end of the duration.  False: at the present slot no resources are left to try."""
        end = self.start + self.ask.duration
        keys = self.ask.keys
        while self.at < len(self.pages):
            page = self.pages[self.at]
            starts = page.starts
            witness = self.witness
            if self.index == 0 and starts[-1] < end and not (keys and page.keyed):
                self.parts.append(page.common)
                if page.common & witness != witness and not self._renew():
                    self.index = len(starts) - 1  # whatever starts before this page reaches its last slot
                    return False
            else:
                last = bisect_left(starts, end)
                if not self._follow_slots(last):
                    return False
                if last < len(starts):
                    return True
            self.at += 1
            self.index = 0
        return True

    def _follow_slots(self, last: int) -> bool:
        """Follow the witness through slots of the present page, up to ``last``."""
        page, keys = self.pages[self.at], self.ask.keys
        frees = [page.available(index, keys) for index in range(last)] if keys and page.keyed else page.free
        parts, witness, first = self.parts, self.witness, self.index
        if first < last:
            parts.append(page.open)
        is_broken = page.open & witness != witness
        for index in range(first, last):
            if is_broken or frees[index] & witness != witness:
                parts.extend(frees[first : index + 1])
                first, is_broken = index + 1, False
                if not self._renew():
                    self.index = index
                    return False
                witness = self.witness
        parts.extend(frees[first:last])
        return True

    def _renew(self) -> bool:
        """Ask the request of what is free in all slots so far."""
        free = self.free & self.ask.usable
        for part in self.parts:
            free &= part
        self.parts.clear()
        self.free = free
        self.witness = self.ask.request.fit(free)
        return self.witness != 0

    def _walk_back(self) -> bool:
        """Begin again at the leftmost start that is satisfied up to the present slot, or behind it if there is none."""
        request, usable, keys = self.ask.request, self.ask.usable, self.ask.keys
        pages, at, index = self.pages, self.at, self.index
        free = self.pages[at].available(index, keys) & usable
        witness = request.fit(free)
        if not witness:
            self.index += 1
            return self._first_fit()
        start_at, start_index = at, index
        while True:
            at, index = (at, index - 1) if index else (at - 1, len(pages[at - 1].free) - 1)
            page = pages[at]
            if index and index == len(page.free) - 1 and not keys and page.common & witness == witness:
                index, part = 0, page.common
            else:
                part = page.available(index, keys) if keys else page.free[index] & page.open
            if part & witness != witness:
                renewed = request.fit(free & part)
                if not renewed:
                    break
                witness = renewed
            free &= part
            start_at, start_index = at, index
        self.start = max(self.begin, self.pages[start_at].starts[start_index])
        self.free, self.witness = free, witness
        self.parts.clear()
        self.index += 1
        return True
