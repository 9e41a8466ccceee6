"""Upper bounds of what passed jobs may count in quotas and in the limits of arrays.

The start of a passed job is unknown; only a date before which no passed job starts is known.  All passed jobs are
counted from that date on, each with its maximum.  A job that fits into these counters also fits in a full plan.

See docs/design/planner.rst, "Two depths".
"""

from collections.abc import Hashable, Iterable

from oar.kao.facts.job_types import ParsedTypes, has_plugin
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import Alternative, WaitingJob
from oar.kao.planner.limits.quota_rules import Pattern, Usage
from oar.kao.planner.passed_jobs import Turn
from oar.kao.planner.placement.round_context import RoundContext

_NOTHING: Usage = 0, 0, 0


class PassedCounts:
    """The maximum usage of all passed jobs at the same time."""

    def __init__(self, context: RoundContext, turns: Iterable[Turn]) -> None:
        self._quotas = context.bookings.quotas
        self._arrays = context.bookings.arrays
        self._requests = context.requests
        self._everything = context.snapshot.resources.everything
        self._now = context.now
        self._gap = context.settings.security_time
        self._by_pattern: dict[Pattern, Usage] = {}
        self._by_array: dict[int, int] = {}
        self._patterns: dict[Hashable, tuple[Pattern, ...]] = {}
        for turn in turns:
            self.add(turn)

    def add(self, turn: Turn) -> None:
        """Count a job that is passed over."""
        job = turn.job
        if job.array_limit:
            self._by_array[job.array_id] = self._by_array.get(job.array_id, 0) + 1
        patterns = self._patterns_of(job, turn.types)
        most = [self._most(job, alternative) for alternative in job.alternatives] if patterns else []
        for pattern in patterns:
            resources, jobs, seconds = self._by_pattern.get(pattern, _NOTHING)
            self._by_pattern[pattern] = (
                resources + max((count for count, _ in most), default=0),
                jobs + 1,
                seconds + max((count * walltime for count, walltime in most), default=0),
            )

    def leave_room(self, turn: Turn, placement: Placement, since: int) -> bool:
        """Return whether the limits allow a placement even if passed jobs start at any date from ``since`` on.

        The limits are known to allow it together with the placed jobs.  A placement with a later start keeps its reason
        only if no passed job is counted during it; otherwise return False.
        """
        if placement.end + self._gap <= since:
            return True
        job, has_quotas = turn.job, turn.rules.has_quotas
        counters = self._quotas.counters_of(job, turn.types) if has_quotas else ()
        others = self._by_array.get(job.array_id, 0) if job.array_limit else 0
        if not others and self._by_pattern.keys().isdisjoint(counters):
            return True
        if placement.start > self._now:
            return False
        begin = max(placement.start, since)
        return self._arrays.has_room(job, begin, placement.end, others) and (
            not has_quotas or self._quotas.has_room(job, turn.types, placement, since, self._by_pattern)
        )

    def _patterns_of(self, job: WaitingJob, types: ParsedTypes) -> tuple[Pattern, ...]:
        if not types.counts_in_quotas or types.container:
            return ()
        key = job.queue, job.project, job.types, job.user
        if key not in self._patterns:
            self._patterns[key] = self._quotas.patterns_that_count(job)
        return self._patterns[key]

    def _most(self, job: WaitingJob, alternative: Alternative) -> tuple[int, int]:
        """Return the maximum number of resources of an alternative, and its walltime."""
        request = self._requests.get(alternative.groups)
        if has_plugin(job):
            return self._everything.bit_count(), alternative.walltime
        if isinstance(request, Reason):
            return 0, 0
        return request.least if request.is_fixed else request.reach.bit_count(), alternative.walltime
