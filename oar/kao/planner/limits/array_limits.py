"""Limits of arrays: how many jobs of an array may run at a time (``oarsub --array N%M``).

A job of such an array is placed where fewer than M other jobs of the array are placed during its whole walltime.  So
the plan keeps no resources for jobs that may not start.  A job is counted until one security time after its end, as it
also occupies its resources.

See docs/design/planner.rst, "Arrays".
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from oar.kao.facts.snapshot import FOREVER, PlannedJob, Snapshot


class CountedJob(NamedTuple):
    """A job as counted by a limit (quotas, arrays)."""

    job_id: int
    start: int
    end: int
    amount: int
    counters: tuple[Hashable, ...]


class ArrayLimits:
    """The jobs of limited arrays that are running or have a placement."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._counters: dict[int, _JobCounter] = {}
        self.log: list[CountedJob] = []  #: all counted jobs, in the order of counting
        self._overdue: dict[int, list[int]] = {}  #: by array: jobs whose time is over
        self._gap = gap = snapshot.settings.security_time
        overdue = snapshot.overdue()
        for job in snapshot.running:
            if job.array_limit and job.id in overdue:
                self._overdue.setdefault(job.array_id, []).append(job.id)
            self.enter(job, job.start_time, max(job.end, snapshot.now) + gap)
        for waiting in snapshot.waiting:
            if waiting.granted:
                end = waiting.start_time + waiting.walltime_of(waiting.granted.alternative)
                self.enter(waiting, waiting.start_time, end + gap)

    def enter(self, job: PlannedJob, start: int, end: int) -> None:
        """Count a job if its array is limited."""
        if job.array_limit and start < end:
            self.log.append(CountedJob(job.id, start, end, 1, (job.array_id,)))
            self._counters.setdefault(job.array_id, _JobCounter()).add(start, end)

    def first_start(self, job: PlannedJob, begin: int, walltime: int) -> int:
        """Return the first date from ``begin`` at which the limit of the array allows a job."""
        counter = self._counters.get(job.array_id) if job.array_limit else None
        return counter.first_room(begin, walltime + self._gap, job.array_limit) if counter else begin

    def has_room(self, job: PlannedJob, begin: int, end: int, others: int) -> bool:
        """Return whether the array limit allows a job from ``begin`` to ``end`` besides ``others`` other jobs."""
        counter, limit = self._counters.get(job.array_id), job.array_limit - others
        duration = end + self._gap - begin
        if not job.array_limit or duration <= 0:
            return True
        return limit > 0 and (counter is None or counter.first_room(begin, duration, limit) == begin)

    def overdue(self, job: PlannedJob) -> Sequence[int]:
        """Return the jobs of the job's array that are past their planned end and still counted."""
        return self._overdue.get(job.array_id, ())


class _JobCounter:
    """The number of jobs of an array as a step function of time.  The numbers only increase while a plan is made."""

    __slots__ = ("_bounds", "_counts", "_dates")

    def __init__(self) -> None:
        self._dates = [-FOREVER]
        self._counts = [0]
        #: duration and limit -> begin and result of the last search
        self._bounds: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, start: int, end: int) -> None:
        """Count a job from ``start`` to ``end``."""
        first, last = self._cut(start), self._cut(end)
        self._counts[first:last] = [count + 1 for count in self._counts[first:last]]

    def _cut(self, date: int) -> int:
        """Insert a step at a date if there is none; return its index."""
        step = bisect_left(self._dates, date)
        if step == len(self._dates) or self._dates[step] != date:
            self._dates.insert(step, date)
            self._counts.insert(step, self._counts[step - 1])
        return step

    def first_room(self, begin: int, duration: int, limit: int) -> int:
        """Return the first date from ``begin`` followed by ``duration`` seconds with fewer than ``limit`` jobs."""
        since, bound = self._bounds.get((duration, limit), (begin, begin))
        start = begin
        if since <= begin <= bound:
            begin, start = since, bound
        step = bisect_right(self._dates, start) - 1
        while step < len(self._dates) and self._dates[step] < start + duration:
            if self._counts[step] >= limit:
                start = self._dates[step + 1]  # exists: the last step has no jobs
            step += 1
        self._bounds[duration, limit] = begin, start
        return start
