"""How many jobs of an array may run at a time: ``oarsub --array N%M`` (scheduling.md 5.1).

A job of such an array is placed where fewer than M others of it are, at each instant of its walltime, so the plan keeps
no resources for jobs that may not start.  Like its resources, the room of a job is free a security time after its end.
"""

from bisect import bisect_left, bisect_right

from oar.kao.differences import Count
from oar.kao.model import FOREVER, PlannedJob, Snapshot


class ArrayLimits:
    """The jobs of limited arrays that run or have a place."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._counters: dict[int, _Counter] = {}
        self.log: list[Count] = []  #: what has been counted
        gap = snapshot.settings.security_time
        for job in snapshot.running:
            end = max(job.start_time + job.walltime + job.suspended_time, snapshot.now)
            self.enter(job, job.start_time, end + gap)
        for waiting in snapshot.waiting:
            granted = waiting.granted
            if granted:
                walltime = next((each.walltime for each in waiting.alternatives if each.id == granted.alternative), 0)
                self.enter(waiting, waiting.start_time, waiting.start_time + walltime + gap)

    def enter(self, job: PlannedJob, start: int, end: int) -> None:
        """Count a job of a limited array."""
        if job.array_limit and start < end:
            self.log.append(Count(job.id, start, end, 1, (job.array_id,)))
            self._counters.setdefault(job.array_id, _Counter()).add(start, end)

    def first_start(self, job: PlannedJob, begin: int, walltime: int) -> int:
        """Return the first date from ``begin`` on at which the array has room for a job."""
        counter = self._counters.get(job.array_id) if job.array_limit else None
        return counter.room(begin, walltime, job.array_limit) if counter else begin

    def names_of(self, job: PlannedJob) -> tuple[int, ...]:
        """Return the counters that bind a job."""
        return (job.array_id,) if job.array_limit else ()

    def decides(self, job: PlannedJob, start: int, walltime: int) -> bool:
        """Whether it is the array that keeps a job from starting a moment before."""
        return self.first_start(job, start - 1, walltime) >= start


class _Counter:
    """How many jobs there are, as steps in time; they only become more."""

    __slots__ = ("_bounds", "_counts", "_dates")

    def __init__(self) -> None:
        self._dates = [-FOREVER]
        self._counts = [0]
        self._bounds: dict[tuple[int, int], tuple[int, int]] = {}  #: what was asked: from when on, what was found

    def add(self, start: int, end: int) -> None:
        first, last = self._cut(start), self._cut(end)
        self._counts[first:last] = [each + 1 for each in self._counts[first:last]]

    def _cut(self, date: int) -> int:
        """Make a step begin at a date; return its number."""
        at = bisect_left(self._dates, date)
        if at == len(self._dates) or self._dates[at] != date:
            self._dates.insert(at, date)
            self._counts.insert(at, self._counts[at - 1])
        return at

    def room(self, begin: int, walltime: int, most: int) -> int:
        """Return the first date from which on there are fewer than ``most`` for a walltime.  The last step has none."""
        since, found = self._bounds.get((walltime, most), (begin, begin))
        asked = begin
        if since <= begin <= found:
            asked, begin = since, found
        at = bisect_right(self._dates, begin) - 1
        while at < len(self._dates) and self._dates[at] < begin + walltime:
            if self._counts[at] >= most:
                begin = self._dates[at + 1]
            at += 1
        self._bounds[walltime, most] = asked, begin
        return begin
