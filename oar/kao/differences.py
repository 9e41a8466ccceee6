"""In what the world differs from that of the last round, while both are gone through side by side.

Both worlds only grow: at each step jobs are entered into one of them or into both.  A job that is entered into both in
the same way makes no difference and is not told here.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple

from oar.kao.model import FOREVER
from oar.lib.resource_set import ResourceSet

#: With more slots of differences, looking through them costs more than a search.
MOST_SLOTS = 256


class Regions:
    """Where (resources, and when) one world is free and the other is not."""

    def __init__(self, now: int) -> None:
        self._now = now
        self.touched = 0  #: the resources of all that differed, even if it evened out
        self._dates = [now]
        self._gained: list[ResourceSet] = [0]  #: in each slot: free, which it was not then
        self._lost: list[ResourceSet] = [0]  #: and not free, which it was then
        self._is_vague = False  #: the slots became too many

    def was_there(self, start: int, end: int, resources: ResourceSet) -> None:
        """Enter what was in the world then, and is not known to be there now."""
        for at in self._slots(start, end, resources):
            hidden = self._lost[at] & resources
            self._lost[at] ^= hidden
            self._gained[at] |= resources ^ hidden

    def is_there(self, start: int, end: int, resources: ResourceSet) -> None:
        """Enter what is in the world now, and is not known to have been there."""
        for at in self._slots(start, end, resources):
            known = self._gained[at] & resources
            self._gained[at] ^= known
            self._lost[at] |= resources ^ known

    def has_gained(self, reach: ResourceSet, until: int) -> bool:
        """Whether any of some resources is free, sooner than a date, when it was not then."""
        if self._is_vague:
            return bool(self.touched & reach)
        return any(gained & reach for gained in self._gained[: bisect_left(self._dates, until)])

    def has_lost(self, resources: ResourceSet, start: int, end: int) -> bool:
        """Whether any of some resources is not free between two dates, when it was then."""
        if self._is_vague:
            return bool(self.touched & resources)
        first = max(0, bisect_right(self._dates, start) - 1)
        return any(lost & resources for lost in self._lost[first : bisect_left(self._dates, end)])

    def _slots(self, start: int, end: int, resources: ResourceSet) -> range:
        """Return the numbers of the slots between two dates; none that are over."""
        start = max(start, self._now)
        if start >= end or not resources:
            return range(0)
        self.touched |= resources
        if self._is_vague or len(self._dates) >= MOST_SLOTS:
            self._is_vague = True
            return range(0)
        return range(self._cut(start), self._cut(end))

    def _cut(self, date: int) -> int:
        """Make a slot begin at a date; return its number."""
        at = bisect_left(self._dates, date)
        if date < FOREVER and (at == len(self._dates) or self._dates[at] != date):
            self._dates.insert(at, date)
            self._gained.insert(at, self._gained[at - 1])
            self._lost.insert(at, self._lost[at - 1])
        return at


class Count(NamedTuple):
    """A job as the counters of limits count it."""

    job_id: int
    start: int
    end: int
    amount: int
    names: tuple[Hashable, ...]  #: of the counters


class Tally:
    """Which counters have counted otherwise."""

    def __init__(self, now: int, then: Sequence[Count], counted: Sequence[Count]) -> None:
        """``counted`` grows while the round is planned."""
        self._now = now
        self._then, self._counted = then, counted
        self._at = self._seen = 0
        self._only_then: dict[int, Count] = {}
        self._only_now: dict[int, Count] = {}
        self._less: dict[Hashable, int] = {}  #: counters that lack jobs: how many
        self._more: dict[Hashable, int] = {}

    @property
    def length(self) -> int:
        """How much has been counted now."""
        return len(self._counted)

    def advance(self, at: int) -> None:
        """Compare what had been counted when ``at`` jobs had with what has been counted now."""
        then, counted = self._then, self._counted
        one, other = self._at, self._seen
        while one < at and other < len(counted) and then[one] == counted[other]:
            one, other = one + 1, other + 1
        for each in then[one:at]:
            if each.end > self._now:
                self._was_counted(each)
        for each in counted[other:]:
            self._is_counted(each)
        self._at, self._seen = max(at, self._at), len(counted)

    def has_less(self, names: Collection[Hashable]) -> bool:
        """Whether any of some counters lacks a job that it had counted then."""
        return bool(self._less) and any(self._less.get(name) for name in names)

    def has_more(self, names: Collection[Hashable]) -> bool:
        """Whether any of some counters has counted a job that it had not counted then."""
        return bool(self._more) and any(self._more.get(name) for name in names)

    def _was_counted(self, each: Count) -> None:
        new = self._only_now.pop(each.job_id, None)
        if new:
            _add(self._more, new, -1)
            self._pair(each, new)
        else:
            self._only_then[each.job_id] = each
            _add(self._less, each, 1)

    def _is_counted(self, each: Count) -> None:
        old = self._only_then.pop(each.job_id, None)
        if old:
            _add(self._less, old, -1)
            self._pair(old, each)
        else:
            self._only_now[each.job_id] = each
            _add(self._more, each, 1)

    def _pair(self, old: Count, new: Count) -> None:
        """Compare a job with itself; what is over does not matter."""
        has_less = not (
            old.names == new.names
            and old.amount <= new.amount
            and max(old.start, self._now) >= max(new.start, self._now)
            and old.end <= new.end
        )
        if has_less:
            _add(self._less, old, 1)
        if old != new:
            _add(self._more, new, 1)


def _add(numbers: dict[Hashable, int], each: Count, number: int) -> None:
    for name in each.names:
        numbers[name] = numbers.get(name, 0) + number
