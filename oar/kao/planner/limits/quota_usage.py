"""Quotas: the usage of jobs under the rules that apply to them, and the rule that forbids a placement.

See docs/design/planner.rst, "Quotas".
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Placement
from oar.kao.facts.snapshot import FOREVER, PlannedJob, QuotaRule, Quotas, Snapshot
from oar.kao.planner.limits.counter_differences import CountedJob
from oar.kao.planner.limits.quota_counters import JobDemand, RuleInForce, UsageCounter
from oar.kao.planner.limits.quota_rules import COUNTED_TYPE, Pattern, Usage, binding_rules, pattern_of, rule_key
from oar.lib.base.resource_set import ResourceSet
from oar.lib.submission.resource_request import JobTypes


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
        self._is_all_counted = self._counted == snapshot.resources.everything
        self._gap = snapshot.settings.security_time
        self._counters: dict[Pattern, UsageCounter] = {}
        self._shapes = self._shapes_of_rules()
        self._binding: dict[tuple[object, ...], list[QuotaRule]] = {}
        self._in_force: dict[tuple[object, ...], list[RuleInForce]] = {}
        self._patterns: dict[tuple[object, ...], frozenset[Hashable]] = {}
        self.log: list[CountedJob] = []  #: all counted jobs, in the order of counting
        self._overdue_ids = snapshot.overdue()
        self._overdue: dict[Pattern, list[int]] = {}  #: those of them that each counter counts
        self._waiting_besteffort: list[tuple[PlannedJob, int, int, ResourceSet]] | None = []
        if self._shapes:
            self._enter_present(snapshot, types)

    @property
    def has_rules(self) -> bool:
        """Return whether there are any rules."""
        return bool(self._shapes)

    @property
    def counts_all(self) -> bool:
        """Return whether all resources count in quotas."""
        return self._is_all_counted

    @property
    def latest_start(self) -> int:
        """Return the date after which no job is planned to start."""
        return self._quotas.latest_start

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
                if self._is_all_counted and count == least_resources:
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
            rules = self._binding[key] = binding_rules(self._quotas.rules[index], job, JobTypes(job.types).names)
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

    def _shapes_of_rules(self) -> set[tuple[bool, ...]]:
        """Return the key shapes of all rules: which parts of the key are not ``*``.  Only such patterns are counted."""
        indexes = {period.rules for period in self._quotas.periods}
        rules = [rule for index in indexes for rule in self._quotas.rules[index]]
        return {tuple(part != "*" for part in rule_key(rule)) for rule in rules}

    def _enter_present(self, snapshot: Snapshot, types: Mapping[int, ParsedTypes]) -> None:
        """Count the running jobs and the accepted reservations."""
        for job in snapshot.running:
            self.enter(job, types[job.id], job.start_time, max(job.end, snapshot.now), job.resources)
        for waiting in snapshot.waiting:
            if waiting.granted:
                end = waiting.start_time + waiting.walltime_of(waiting.granted.alternative)
                self.enter(waiting, types[waiting.id], waiting.start_time, end, waiting.granted.resources)


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
