"""Quotas: the rules that apply to a job, the usage that they count, and the rule that forbids a placement.

See docs/design/planner.rst, "Quotas".
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Placement
from oar.kao.facts.snapshot import FOREVER, PlannedJob, Snapshot, WaitingJob
from oar.kao.planner.limits.array_limits import CountedJob
from oar.lib.accounts.limit_rules import Pattern, binding_rules, pattern_of, rule_key, rules_by_key
from oar.lib.accounts.quota_records import QuotaRule, Quotas
from oar.lib.base.resource_set import ResourceSet
from oar.lib.submission.resource_request import JobTypes

#: Only resources of this type count.
COUNTED_TYPE = "default"


#: Resources, jobs, resource seconds.
Usage = tuple[int, int, int]


def is_exceeded(rule: QuotaRule, usage: Usage) -> bool:
    return 0 <= rule.resources < usage[0] or 0 <= rule.jobs < usage[1] or 0 <= rule.seconds < usage[2]


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
        if rule.seconds < 0:
            resources, jobs = max(self.resources[first:last]), max(self.jobs[first:last])
            if not (0 <= rule.resources < resources + job.resources or 0 <= rule.jobs <= jobs):
                return None
        for step in range(first, last):
            date = max(begin, self.dates[step])
            if is_exceeded(rule, self._usage(step, date, job)):
                return date
        return None

    def exceeds(self, begin: int, stop: int, job: JobDemand, rule: QuotaRule, others: Usage) -> bool:
        """Return whether a job, together with ``others`` during the whole time, exceeds a rule before ``stop``."""
        first, last = bisect_right(self.dates, begin) - 1, bisect_left(self.dates, stop)
        for step in range(first, last):
            usage = self._usage(step, max(begin, self.dates[step]), job)
            resources, jobs, seconds = (own + other for own, other in zip(usage, others, strict=True))
            if is_exceeded(rule, (resources, jobs, seconds)):
                return True
        return False

    def usage(self, date: int, job: JobDemand) -> Usage:
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


@dataclass(frozen=True, slots=True)
class QuotaRefusal:
    """The rule that forbids a placement."""

    rule: QuotaRule
    usage: Usage  #: with the job
    next_start: int  #: the next start that may be allowed; FOREVER = none
    is_exact: bool  #: ``next_start`` is allowed for sure, whichever resources the job takes there


class QuotaUsage:
    """The usage of all jobs placed so far, as far as a rule limits it."""

    def __init__(self, snapshot: Snapshot, types: Mapping[int, ParsedTypes]) -> None:
        self._quotas = snapshot.quotas or Quotas((), ())
        self._counted = snapshot.resources.where(snapshot.resources.types, COUNTED_TYPE)
        self.counts_all = self._counted == snapshot.resources.everything
        self.latest_start = self._quotas.latest_start  #: no job is planned to start later
        self._gap = snapshot.settings.security_time
        self._counters: dict[Pattern, UsageCounter] = {}
        indexes = {period.rules for period in self._quotas.periods}
        rules = [rule for index in indexes for rule in self._quotas.rules[index]]
        self._shapes = {tuple(part != "*" for part in rule_key(rule)) for rule in rules}
        self.has_rules = bool(self._shapes)
        self._rules = [rules_by_key(rules) for rules in self._quotas.rules]
        self._binding: dict[tuple[object, ...], list[QuotaRule]] = {}
        self._in_force: dict[tuple[object, ...], list[RuleInForce]] = {}
        self._patterns: dict[tuple[object, ...], frozenset[Hashable]] = {}
        self.log: list[CountedJob] = []  #: all counted jobs, in the order of counting
        self._overdue_ids = snapshot.overdue()
        self._overdue: dict[Pattern, list[int]] = {}  #: those of them that each counter counts
        self._waiting_besteffort: list[tuple[PlannedJob, int, int, ResourceSet]] | None = []
        if self._shapes:
            for job in snapshot.running:
                self.enter(job, types[job.id], job.start_time, max(job.end, snapshot.now), job.resources)
            for waiting in snapshot.waiting:
                if waiting.granted:
                    end = waiting.start_time + waiting.walltime_of(waiting.granted.alternative)
                    self.enter(waiting, types[waiting.id], waiting.start_time, end, waiting.granted.resources)

    def enter(self, job: PlannedJob, types: ParsedTypes, start: int, end: int, resources: ResourceSet) -> None:
        """Count a job until one security time after its end, unless its types exempt it."""
        if not self._shapes or types.container or not types.counts_in_quotas:
            return
        if types.is_besteffort and self._waiting_besteffort is not None:
            self._waiting_besteffort.append((job, start, end, resources))
        else:
            self._count(job, start, end, resources)

    def begin_besteffort(self) -> None:
        """Count besteffort jobs from now on; all other jobs have been placed."""
        jobs, self._waiting_besteffort = self._waiting_besteffort, None
        for job, start, end, resources in jobs or ():
            self._count(job, start, end, resources)

    def refusal(
        self, job: PlannedJob, types: ParsedTypes, placement: Placement, least_resources: int = -1
    ) -> QuotaRefusal | None:
        """Return the rule that forbids a placement; return None if all rules allow it.

        ``least_resources``: the minimum number of resources that the job takes at any other start; -1 = unknown.
        """
        if not self._shapes or not types.counts_in_quotas:
            return None
        count = (placement.resources & self._counted).bit_count()
        usage = self._demand(placement.start, placement.end, count)
        rules = self._rules_in_force(job)
        for limit in rules:
            date = limit.first_excess(usage)
            if date is not None:
                excess = limit.counter.usage(date, usage)
                if self.counts_all and count == least_resources:
                    return QuotaRefusal(limit.rule, excess, _first_start(rules, usage), is_exact=True)
                room = min(limit.counter.next_room(date + 1, usage, limit.rule), limit.stop)
                next_start = min(room, limit.counter.next_step(usage.start))
                return QuotaRefusal(limit.rule, excess, next_start, is_exact=False)
        return None

    def first_start(self, job: PlannedJob, begin: int, resources: int, walltime: int) -> int:
        """Return a date from ``begin`` before which the rules let no job of this size start; FOREVER = never.

        The date is exact if all resources count.  A larger or longer job starts no earlier.
        """
        return _first_start(self._rules_in_force(job), self._demand(begin, begin + walltime, resources))

    def has_room(
        self, job: PlannedJob, types: ParsedTypes, placement: Placement, since: int, others: Mapping[Pattern, Usage]
    ) -> bool:
        """Return whether the rules allow a placement if ``others`` is also used from ``since`` on."""
        if not self._shapes or not types.counts_in_quotas:
            return True
        demand = self._demand(placement.start, placement.end, (placement.resources & self._counted).bit_count())
        for limit in self._rules_in_force(job):
            begin, end = max(demand.start, since, limit.begin), min(limit.stop, demand.until)
            used = others.get(pattern_of(limit.rule, job), (0, 0, 0))
            if begin < end and limit.begin < demand.end and limit.counter.exceeds(begin, end, demand, limit.rule, used):
                return False
        return True

    def overdue(self, rule: QuotaRule, job: PlannedJob) -> Sequence[int]:
        """Return the jobs past their planned end that a rule counts for a job."""
        return self._overdue.get(pattern_of(rule, job), ())

    def counters_of(self, job: PlannedJob, types: ParsedTypes) -> frozenset[Hashable]:
        """Return the patterns of the counters that limit a job."""
        if not self._shapes or not types.counts_in_quotas:
            return frozenset()
        key = job.queue, job.project, job.types, job.user
        if key not in self._patterns:
            rules = {rule for period in self._quotas.periods for rule in self._binding_rules(job, period.rules)}
            self._patterns[key] = frozenset(pattern_of(rule, job) for rule in rules)
        return self._patterns[key]

    def _demand(self, start: int, end: int, resources: int) -> JobDemand:
        return JobDemand(start, end, end + self._gap, resources)

    def _rules_in_force(self, job: PlannedJob) -> list[RuleInForce]:
        """Return the rules that apply to a job, in the order of their periods."""
        key = job.queue, job.project, job.types, job.user
        rules = self._in_force.get(key)
        if rules is None:
            stops = [*(period.begin for period in self._quotas.periods[1:]), FOREVER]
            rules = self._in_force[key] = [
                RuleInForce(
                    rule, period.begin, stop, self._counters.setdefault(pattern_of(rule, job), UsageCounter(self._gap))
                )
                for period, stop in zip(self._quotas.periods, stops, strict=True)
                for rule in self._binding_rules(job, period.rules)
            ]
        return rules

    def _binding_rules(self, job: PlannedJob, index: int) -> list[QuotaRule]:
        """Return the rules of ``Quotas.rules[index]`` that apply to a job."""
        key = index, job.queue, job.project, job.types, job.user
        rules = self._binding.get(key)
        if rules is None:
            rules = self._binding[key] = binding_rules(self._rules[index], job, JobTypes(job.types).names)
        return rules

    def _count(self, job: PlannedJob, start: int, end: int, resources: ResourceSet) -> None:
        count = (resources & self._counted).bit_count()
        patterns = self.patterns_that_count(job)
        self.log.append(CountedJob(job.id, start, end + self._gap, count, patterns))
        for pattern in patterns:
            self._counters.setdefault(pattern, UsageCounter(self._gap)).add(start, end, count)
            if job.id in self._overdue_ids:
                self._overdue.setdefault(pattern, []).append(job.id)

    def patterns_that_count(self, job: PlannedJob) -> tuple[Pattern, ...]:
        """Return the patterns of the counters that count a job."""
        types = JobTypes(job.types).names
        return tuple(
            pattern
            for pattern in product((None, job.queue), (None, job.project), (None, *types), (None, job.user))
            if tuple(part is not None for part in pattern) in self._shapes
        )


def _first_start(rules: Sequence[RuleInForce], usage: JobDemand) -> int:
    """Return the first start that all rules allow for a job of this size; FOREVER = none."""
    start, walltime = usage.start, usage.end - usage.start
    has_moved = True
    while has_moved and start < FOREVER:
        before = start
        for limit in rules:
            start = limit.first_start(start, usage.resources, walltime)
        has_moved = start > before
    return start


#: Resources and walltime, and a date before which no job starts that has as much.
_Bound = tuple[int, int, int]


class OverQuota:
    """The dates before which jobs cannot start because of quotas, if these dates are later than ``soon``."""

    def __init__(self, quotas: QuotaUsage, now: int, soon: int) -> None:
        self._quotas = quotas
        self._now = now
        self._soon = soon
        self._bounds: dict[Hashable, list[_Bound]] = {}  #: by what decides which rules bind a job

    def first_start(self, job: WaitingJob, resources: int, walltime: int) -> int:
        """Return a date before which the quotas let no job of this size or walltime, or larger, start."""
        known = self.known_start(job, resources, walltime)
        if known:
            return known
        date = self._quotas.first_start(job, self._now, resources, walltime)
        if date > self._soon:
            bounds = self._bounds.setdefault(_key(job), [])
            bounds[:] = [each for each in bounds if each[0] < resources or each[1] < walltime or each[2] > date]
            bounds.append((resources, walltime, date))
        return date

    def known_start(self, job: WaitingJob, resources: int, walltime: int) -> int:
        """Return the latest such date recorded for jobs that are not larger; return 0 if there is none."""
        bounds = self._bounds.get(_key(job), ()) if self._bounds else ()
        return max((date for least, shortest, date in bounds if least <= resources and shortest <= walltime), default=0)


def _key(job: WaitingJob) -> Hashable:
    return job.queue, job.project, job.types, job.user
