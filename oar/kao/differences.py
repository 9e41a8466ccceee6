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
        self._only_then: set[Count] = set()
        self._only_now: set[Count] = set()
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
                self._enter(each, self._only_then, self._less, self._only_now, self._more)
        for each in counted[other:]:
            self._enter(each, self._only_now, self._more, self._only_then, self._less)
        self._at, self._seen = max(at, self._at), len(counted)

    def has_less(self, names: Collection[Hashable]) -> bool:
        """Whether any of some counters lacks a job that it had counted then."""
        return bool(self._less) and any(self._less.get(name) for name in names)

    def has_more(self, names: Collection[Hashable]) -> bool:
        """Whether any of some counters has counted a job that it had not counted then."""
        return bool(self._more) and any(self._more.get(name) for name in names)

    @staticmethod
    def _enter(
        each: Count, own: set[Count], ours: dict[Hashable, int], others: set[Count], theirs: dict[Hashable, int]
    ) -> None:
        if each in others:
            others.remove(each)
            for name in each.names:
                theirs[name] -= 1
            return
        own.add(each)
        for name in each.names:
            ours[name] = ours.get(name, 0) + 1
