"""The differences of free resources between the last round and this one, updated while this round is planned.

In both rounds occupations are only added.  An occupation that is equal in both rounds is not entered here.
"""

from bisect import bisect_left, bisect_right

from oar.kao.facts.snapshot import FOREVER
from oar.lib.base.resource_set import ResourceSet

#: With more slots than this, looking through the differences takes longer than a search.
MAX_SLOTS = 256


class FreeTimeDifferences:
    """The resources that are free in only one of the two rounds, by date."""

    def __init__(self, now: int) -> None:
        self._now = now
        self.touched: ResourceSet = 0  #: all resources with any difference, even one that has evened out
        self._dates = [now]
        self._freed: list[ResourceSet] = [0]  #: by slot: free now, occupied in the last round
        self._taken: list[ResourceSet] = [0]  #: by slot: occupied now, free in the last round
        self._odd_dates: dict[int, int] = {}  #: begins and ends of occupations -> how many more this round has of them
        self._is_vague = False  #: the slots became too many; only ``touched`` is right

    def enter_last(self, start: int, end: int, resources: ResourceSet) -> None:
        """Enter an occupation of the last round that has no equal in this round so far."""
        self._count_dates(start, end, -1)
        for slot in self._slots(start, end, resources):
            evened = self._taken[slot] & resources
            self._taken[slot] ^= evened
            self._freed[slot] |= resources ^ evened

    def enter_this(self, start: int, end: int, resources: ResourceSet) -> None:
        """Enter an occupation of this round that has no equal in the last round so far."""
        self._count_dates(start, end, 1)
        for slot in self._slots(start, end, resources):
            evened = self._freed[slot] & resources
            self._freed[slot] ^= evened
            self._taken[slot] |= resources ^ evened

    def has_freed(self, resources: ResourceSet, until: int) -> bool:
        """Return whether any of these resources is free before ``until`` but was not free in the last round."""
        if self._is_vague:
            return bool(self.touched & resources)
        return any(freed & resources for freed in self._freed[: bisect_left(self._dates, until)])

    def has_taken(self, resources: ResourceSet, start: int, end: int) -> bool:
        """Return whether any of these resources is occupied between two dates but was free in the last round."""
        if self._is_vague:
            return bool(self.touched & resources)
        first = max(0, bisect_right(self._dates, start) - 1)
        return any(taken & resources for taken in self._taken[first : bisect_left(self._dates, end)])

    def has_other_slots(self, start: int, end: int) -> bool:
        """Return whether an occupation begins or ends from ``start`` to ``end`` in only one of the rounds."""
        return self._is_vague or any(start <= date <= end for date in self._odd_dates)

    def _count_dates(self, start: int, end: int, number: int) -> None:
        for date in (start, end) if start < end else ():
            if date > self._now:
                count = self._odd_dates.get(date, 0) + number
                if count:
                    self._odd_dates[date] = count
                else:
                    del self._odd_dates[date]

    def _slots(self, start: int, end: int, resources: ResourceSet) -> range:
        """Return the indexes of the slots between two dates, dates in the past excluded."""
        start = max(start, self._now)
        if start >= end or not resources:
            return range(0)
        self.touched |= resources
        if self._is_vague or len(self._dates) >= MAX_SLOTS:
            self._is_vague = True
            return range(0)
        return range(self._cut(start), self._cut(end))

    def _cut(self, date: int) -> int:
        """Insert a slot at a date if there is none; return its index."""
        slot = bisect_left(self._dates, date)
        if date < FOREVER and (slot == len(self._dates) or self._dates[slot] != date):
            self._dates.insert(slot, date)
            self._freed.insert(slot, self._freed[slot - 1])
            self._taken.insert(slot, self._taken[slot - 1])
        return slot
