"""Resource usage of jobs over time, and the dates at which another job fits under the limits of a rule.

See docs/design/planner.rst, "Quotas".
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from oar.kao.facts.snapshot import FOREVER, QuotaRule
from oar.kao.planner.limits.quota_rules import Usage, is_exceeded

#: How many bounds are kept for each rule in force.
MAX_BOUNDS = 32


@dataclass(frozen=True, slots=True)
class JobDemand:
    """The usage that one job would add to a counter."""

    start: int
    end: int  #: its walltime is over; of the resource seconds nothing is left
    until: int  #: it counts until then, as long as it holds its resources
    resources: int

    def seconds_left(self, date: int) -> int:
        """Return the resource seconds that the job still uses after a date."""
        return self.resources * max(0, self.end - date)


class UsageCounter:
    """The total usage of some jobs as a step function of time.

    A job counts until its resources are free again, one security time after its end.  The remaining resource seconds
    decrease linearly.  Let S be the jobs whose walltime has not ended at a date t.  The remaining resource seconds are
    the sum of ``resources * end`` over S, minus t times the resources of S.
    """

    __slots__ = ("bounds", "dates", "gap", "jobs", "products", "resources", "working")

    def __init__(self, gap: int) -> None:
        """``gap``: the security time."""
        self.gap = gap
        #: for ``RuleInForce.first_start``: resources, walltime, begin and result of earlier searches
        self.bounds: dict[object, list[tuple[int, int, int, int]]] = {}
        self.dates = [-FOREVER]
        self.resources = [0]
        self.jobs = [0]
        self.working = [0]  #: resources of the jobs whose walltime is not over
        self.products = [0]  #: sum of resources * end of the same jobs

    def add(self, start: int, end: int, resources: int) -> None:
        """Count a job whose walltime ends at ``end``."""
        first, middle, last = self._cut(start), self._cut(end), self._cut(end + self.gap)
        self.resources[first:last] = [count + resources for count in self.resources[first:last]]
        self.jobs[first:last] = [count + 1 for count in self.jobs[first:last]]
        self.working[first:middle] = [count + resources for count in self.working[first:middle]]
        self.products[first:middle] = [product + resources * end for product in self.products[first:middle]]

    def _cut(self, date: int) -> int:
        """Insert a step at a date if there is none; return its index."""
        step = bisect_left(self.dates, date)
        if step == len(self.dates) or self.dates[step] != date:
            self.dates.insert(step, date)
            for values in (self.resources, self.jobs, self.working, self.products):
                values.insert(step, values[step - 1])
        return step

    def first_excess(self, begin: int, stop: int, job: JobDemand, rule: QuotaRule) -> int | None:
        """Return the first date from ``begin`` to ``stop`` at which the usage with a job exceeds a rule, or None."""
        first, last = bisect_right(self.dates, begin) - 1, bisect_left(self.dates, stop)
        if rule.seconds < 0 and not self._may_exceed(first, last, job, rule):
            return None
        for step in range(first, last):
            date = max(begin, self.dates[step])
            if is_exceeded(rule, self._usage(step, date, job)):
                return date
        return None

    def exceeds(self, begin: int, stop: int, job: JobDemand, rule: QuotaRule, others: Usage) -> bool:
        """Return whether the usage exceeds a rule at any date from ``begin`` to ``stop``.

        The usage includes the job, and ``others`` during the whole time.
        """
        first, last = bisect_right(self.dates, begin) - 1, bisect_left(self.dates, stop)
        for step in range(first, last):
            usage = self._usage(step, max(begin, self.dates[step]), job)
            resources, jobs, seconds = (own + other for own, other in zip(usage, others, strict=True))
            if is_exceeded(rule, (resources, jobs, seconds)):
                return True
        return False

    def _may_exceed(self, first: int, last: int, job: JobDemand, rule: QuotaRule) -> bool:
        resources, jobs = max(self.resources[first:last]), max(self.jobs[first:last])
        return 0 <= rule.resources < resources + job.resources or 0 <= rule.jobs <= jobs

    def usage(self, date: int, job: JobDemand) -> Usage:
        """Return the usage at a date, including a job."""
        return self._usage(bisect_right(self.dates, date) - 1, date, job)

    def _usage(self, step: int, date: int, job: JobDemand) -> Usage:
        seconds = self.products[step] - date * self.working[step] + job.seconds_left(date)
        return self.resources[step] + job.resources, self.jobs[step] + 1, seconds

    def next_room(self, date: int, job: JobDemand, rule: QuotaRule) -> int:
        """Return the first date from ``date`` at which a rule allows such a job to start; FOREVER = never."""
        job_seconds = job.seconds_left(job.start)
        for step in range(bisect_right(self.dates, date) - 1, len(self.dates)):
            date = max(date, self.dates[step])
            if not is_exceeded(rule, (self.resources[step] + job.resources, self.jobs[step] + 1, -1)):
                date = max(date, self._room_for_seconds(step, job_seconds, rule, date))
                if step + 1 == len(self.dates) or date < self.dates[step + 1]:
                    return date
        return FOREVER

    def _room_for_seconds(self, step: int, job_seconds: int, rule: QuotaRule, date: int) -> int:
        """Return the date from which the remaining resource seconds of a step leave room for those of a job."""
        if rule.seconds < 0:
            return date
        excess = self.products[step] + job_seconds - rule.seconds
        if self.working[step]:
            return -(-excess // self.working[step])
        return date if excess <= 0 else FOREVER

    def next_step(self, date: int) -> int:
        """Return the next date at which the usage changes; FOREVER = none."""
        step = bisect_right(self.dates, date)
        return self.dates[step] if step < len(self.dates) else FOREVER


@dataclass(frozen=True, slots=True)
class RuleInForce:
    """A rule, the period in which it applies, and the counter that it limits."""

    rule: QuotaRule
    begin: int
    stop: int
    counter: UsageCounter

    def first_excess(self, job: JobDemand) -> int | None:
        """Return the first date at which the usage including a job exceeds the rule; return None if it never does.

        Resources that a job holds after its walltime do not count in a period that begins later.
        """
        if job.end <= self.begin or job.start >= self.stop:
            return None
        return self.counter.first_excess(max(job.start, self.begin), min(self.stop, job.until), job, self.rule)

    def first_start(self, start: int, resources: int, walltime: int) -> int:
        """Return the first date from ``start`` at which a job may start under this rule.

        Counters only increase while a plan is made, so a job cannot start where a smaller or shorter job could not.
        Results are therefore kept as bounds for later searches.
        """
        bounds = self.counter.bounds.setdefault((self.rule, self.begin, self.stop), [])
        begin = start
        for least_resources, shortest, since, bound in bounds:
            if since <= start < bound and least_resources <= resources and shortest <= walltime:
                start = bound
        start = self._search(start, resources, walltime)
        if start > begin:
            bounds[:] = [
                bound
                for bound in bounds[-MAX_BOUNDS:]
                if bound[0] < resources or bound[1] < walltime or bound[2] < begin or bound[3] > start
            ]
            bounds.append((resources, walltime, begin, start))
        return start

    def _search(self, start: int, resources: int, walltime: int) -> int:
        if start >= self.stop or start + walltime <= self.begin:
            return start
        if self.rule.seconds < 0:
            return self._search_steps(start, resources, walltime)
        while start < self.stop and start + walltime > self.begin:
            end = start + walltime
            job = JobDemand(start, end, end + self.counter.gap, resources)
            date = self.first_excess(job)
            if date is None:
                break
            start = min(self.counter.next_room(date + 1, job, self.rule), self.stop)
        return start

    def _search_steps(self, start: int, resources: int, walltime: int) -> int:
        """Search under a rule without resource seconds: whether a step has room does not depend on the start."""
        counter, occupied = self.counter, walltime + self.counter.gap
        dates = counter.dates
        most_resources = self.rule.resources - resources if self.rule.resources >= 0 else FOREVER
        most_jobs = self.rule.jobs if self.rule.jobs >= 0 else FOREVER
        step, last = bisect_right(dates, max(start, self.begin)) - 1, len(dates) - 1
        end = min(start + occupied, self.stop)
        while step <= last and dates[step] < end:
            if counter.resources[step] > most_resources or counter.jobs[step] >= most_jobs:
                start = min(dates[step + 1], self.stop) if step < last else self.stop
                end = min(start + occupied, self.stop)
            step += 1
        return start
