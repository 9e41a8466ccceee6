"""The jobs of queues of equal priority, placed one after the other in their order, within the limits of the round."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from oar.kao.facts import reasons
from oar.kao.facts.plan import Answer, Reason
from oar.kao.facts.queue_policies import QueuePolicy, policy_of
from oar.kao.facts.snapshot import WaitingJob
from oar.kao.planner.job_order import JobOrder, behind_required_jobs
from oar.kao.planner.placement.placement_task import PlacementRules
from oar.kao.planner.placement.placer import Placer
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.starts import Starts
from oar.lib.facts.records import Queue
from oar.lib.facts.states import RoundLimit

_TIMEOUT = "some jobs were not scheduled because the scheduler's timeout was reached"


class QueuePlanner:
    """Places jobs, and starts those whose placement begins now."""

    def __init__(
        self,
        context: RoundContext,
        order: JobOrder,
        placer: Placer,
        starts: Starts,
        *,
        elapsed: Callable[[], float],
        blocked: Reason | None,
    ) -> None:
        """``elapsed`` returns the seconds since the begin of the round; ``blocked``: why no job is placed at all."""
        self._settings = context.settings
        self._types = context.types
        self._decisions = context.decisions
        self._order = order
        self._placer = placer
        self._starts = starts
        self._elapsed = elapsed
        self._blocked = blocked
        self.seconds: dict[int, float] = {}  #: how long the placement of each job took
        self._present_job: tuple[int, float] | None = None  #: the job being placed, and the seconds at its begin

    def place_all(self, jobs: Sequence[WaitingJob], queues: Sequence[Queue], deadline: float) -> None:
        """Place jobs in their order until a limit of the round is reached; ``deadline`` in seconds of the round."""
        decisions = self._decisions
        policies = {queue.name: policy_of(queue.policy) or QueuePolicy() for queue in queues}
        planned = 0
        limit: Reason | None = None  #: why the other jobs are not planned
        finished_queues: set[str] = set()  #: queues without backfilling whose first job waits
        for job in self._in_order(jobs, queues, policies):
            if self._blocked:
                decisions.reasons[job.id] = self._blocked
                continue
            elapsed = self._lap()
            limit = limit or self._limit_reached(planned, is_late=elapsed > deadline)
            if limit or job.queue in finished_queues:
                decisions.reasons[job.id] = limit or reasons.limit(planned, RoundLimit.ORDER)
                continue
            planned += 1
            policy = policies[job.queue]
            self._present_job = job.id, elapsed
            decisions.guard(job, partial(self._place, policy))
            if not policy.is_backfilling and not self._starts_now(job):
                finished_queues.add(job.queue)
        self._lap()

    def _in_order(
        self, jobs: Sequence[WaitingJob], queues: Sequence[Queue], policies: Mapping[str, QueuePolicy]
    ) -> list[WaitingJob]:
        """Return jobs in the order of planning; those that require each other are left out, and have a reason."""
        ordered, cycle = behind_required_jobs(self._order.sorted(jobs, queues, policies), self._types)
        for job in cycle:
            self._decisions.reasons[job.id] = reasons.cyclic_dependency([other.id for other in cycle])
        return ordered

    def _limit_reached(self, planned: int, *, is_late: bool) -> Reason | None:
        """Return the reason of the jobs left if a limit of the round is reached after so many jobs."""
        if self._settings.timeout and is_late:
            self._decisions.troubles.append(f"{_TIMEOUT} ({self._settings.timeout} s)")
            return reasons.limit(planned, RoundLimit.TIME)
        if self._settings.max_jobs and planned >= self._settings.max_jobs:
            return reasons.limit(planned, RoundLimit.JOBS)
        return None

    def _lap(self) -> float:
        """Note how long the placement of the present job took; return the seconds since the begin of the round."""
        elapsed = self._elapsed()
        if self._present_job:
            job_id, begin = self._present_job
            self.seconds[job_id] = elapsed - begin
            self._present_job = None
        return elapsed

    def _place(self, policy: QueuePolicy, job: WaitingJob) -> None:
        decisions = self._decisions
        rules = PlacementRules(
            dependency_condition=policy.condition(self._settings),
            has_quotas=policy.has_quotas(self._settings),
            is_now_only=not policy.is_backfilling,
        )
        outcome = self._placer.place(job, self._types[job.id], rules)
        if outcome.error:
            decisions.refused.append(Answer(job.id, outcome.error))
        if outcome.reason:
            decisions.reasons[job.id] = outcome.reason
        if outcome.placement:
            decisions.placements[job.id] = outcome.placement
            self._starts.start_if_due(job, outcome.placement, rules.dependency_condition)

    def _starts_now(self, job: WaitingJob) -> bool:
        placement = self._decisions.placements.get(job.id)
        return placement is not None and placement.start <= self._decisions.now
