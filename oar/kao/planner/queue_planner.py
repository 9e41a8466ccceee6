"""Place the jobs of queues of equal priority in their order, within the limits of the round."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from oar.kao.facts import reasons
from oar.kao.facts.plan import Answer, Reason
from oar.kao.facts.snapshot import WaitingJob
from oar.kao.facts.steps import Steps
from oar.kao.planner.job_order import JobOrder, behind_required_jobs, cyclic_jobs
from oar.kao.planner.limits.backfill_depth import BackfillDepth, Standing
from oar.kao.planner.passed_jobs import Place, PlainMode
from oar.kao.planner.placement.placement_task import LARGEST_WAVE, GiveWay, PlacementRules, PlacementTask, Upcoming
from oar.kao.planner.placement.placer import Placer
from oar.kao.planner.placement.round_context import RoundContext, TimeIsUp
from oar.kao.planner.placement.starts import Starts
from oar.kao.planner.urgent_pass import PassedOver
from oar.lib.jobs.queue_policies import QueuePolicy, policy_of
from oar.lib.jobs.reasons import RoundLimit
from oar.lib.jobs.records import Queue

_TIMEOUT = "some jobs were not scheduled because the scheduler's timeout was reached"

#: After so many times its time limit a forecast no longer searches for first dates.
PATIENCE = 1.5


#: How jobs are placed that may be passed over many at a time, by their queue.
PlainModes = Mapping[str, PlainMode]


@dataclass(frozen=True, slots=True)
class UrgentPass:
    """The settings of an urgent pass for passing over jobs."""

    passed: PassedOver
    is_due: Callable[[], bool]  #: until it says so all jobs are placed
    besteffort_date: int = 0  #: the besteffort jobs are planned, and all others settled until this date
    places: Mapping[QueuePolicy, Place] = field(default_factory=dict)  #: what places a job, by the policy of its queue
    plain_modes: PlainModes = field(default_factory=dict)


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
        """``elapsed``: returns the seconds since the begin of the round; ``blocked``: why no job is placed at all."""
        self._settings = context.settings
        self._types = context.types
        self._decisions = context.decisions
        self._cyclic = cyclic_jobs(context.snapshot.waiting, context.types)
        self._order = order
        self._placer = placer
        self._starts = starts
        self._elapsed = elapsed
        self._blocked = blocked
        self.seconds: dict[int, float] = {}  #: how long the placement of each job took
        self.not_before: dict[int, int] = {}  #: of a wanted job whose turn has not come: it starts then or later
        self._wanted: frozenset[int] = frozenset()  #: the jobs that a forecast is for; a round has none
        self._not_before: dict[str, int] = {}  #: when the last job starts, of each queue without backfilling
        self.undecided: set[int] = set()  #: jobs whose turn did not come in an urgent pass
        self.is_certain = True  #: False: an undecided job may be able to start now
        self._depth = BackfillDepth(context.settings, context.now)
        self._known_rules: dict[tuple[str, int, int], PlacementRules] = {}
        #: the jobs that were placed last, and the seconds at their begin
        self._present_jobs: tuple[Sequence[WaitingJob], float] = (), 0.0

    def look_for(self, jobs: Collection[int]) -> None:
        """Plan only these jobs: stop after the last one, and compute an earliest start for those without a turn."""
        self._wanted = frozenset(jobs)

    def place_all(
        self,
        jobs: Sequence[WaitingJob],
        queues: Sequence[Queue],
        deadline: float,
        urgent: "UrgentPass | None" = None,
    ) -> Iterator[None]:
        """Place jobs in their order until a limit of the round is reached.

        The first step sorts them; each later one places a job or a wave.  ``deadline``: in seconds since the begin of
        the round.  ``urgent``: the settings for passing over jobs, in an urgent pass.
        """
        decisions = self._decisions
        policies = {queue.name: policy_of(queue.policy) or QueuePolicy() for queue in queues}
        if urgent:
            places = {policy: partial(self._guarded_place, policy) for policy in policies.values()}
            urgent = replace(urgent, places=places, plain_modes=self._plain_modes(policies, places))
        planned = 0
        limit: Reason | None = None  #: why the other jobs are not planned
        finished_queues: set[str] = set()  #: queues without backfilling whose first job waits
        ordered = self._in_order(jobs, queues, policies)
        begin, end = 0, 0
        yield
        while end < len(ordered):
            begin, end = end, end + 1
            job = ordered[begin]
            if self._blocked:
                decisions.reasons[job.id] = self._blocked
                continue
            if not self.is_certain:
                self.undecided.add(job.id)
                continue
            if urgent and not limit and (passed := self._pass_plain(ordered, begin, urgent, planned)):
                planned += passed
                end = begin + passed
                continue
            elapsed = self._lap()
            limit = limit or self._limit_reached(planned, is_late=elapsed > deadline)
            if limit or job.queue in finished_queues:
                decisions.reasons[job.id] = limit or reasons.limit(planned, RoundLimit.ORDER)
                if limit and job.id in self._wanted:
                    self._bound(policies[job.queue], job, is_searched=elapsed <= PATIENCE * deadline)
                continue
            policy = policies[job.queue]
            if urgent and urgent.is_due():
                self._decisions.guard(job, partial(self._take_urgent_turn, policy, urgent))
            else:
                end = begin + (yield from self._place_wave(policy, ordered, begin, planned))
            planned += end - begin
            self._present_jobs = ordered[begin:end], elapsed
            is_unplaced = job.id not in decisions.placements and job.id in decisions.reasons
            if job.id in self._wanted and is_unplaced and self._rules(policy, job).depth:
                self._bound(policy, job, is_searched=elapsed <= PATIENCE * deadline)
            if not policy.is_backfilling and not self._starts_now(job):
                self._hold_back(job, planned, finished_queues)
            yield
        self._lap()

    def _pass_plain(self, ordered: Sequence[WaitingJob], at: int, urgent: "UrgentPass", planned: int) -> int:
        """Pass over jobs equal to passed jobs until a limit is reached; return their number."""
        if urgent.besteffort_date:
            return 0
        left = self._settings.max_jobs - planned if self._settings.max_jobs else len(ordered)
        return urgent.passed.pass_plain(ordered, at, min(len(ordered), at + max(0, left)), urgent.plain_modes)

    def _plain_modes(self, policies: Mapping[str, QueuePolicy], places: Mapping[QueuePolicy, Place]) -> PlainModes:
        """Return the placement modes of the queues in which jobs equal to a passed job are passed over, too."""
        modes = {
            queue: (self._rules_of(policy, queue, 0), places[policy])
            for queue, policy in policies.items()
            if not self._depth.of(queue)
        }
        return {queue: mode for queue, mode in modes.items() if not mode[0].is_now_only}

    def _place_wave(self, policy: QueuePolicy, ordered: Sequence[WaitingJob], at: int, planned: int) -> Steps[int]:
        """Place a job and the equal jobs that start with it; return their number.  Yield where a search gives way."""
        job, room = ordered[at], self._settings.max_jobs - planned if self._settings.max_jobs else LARGEST_WAVE
        is_alone = self._depth.of(job.queue) or not policy.is_backfilling  # affects the next job
        place = partial(self._place, policy, upcoming=Upcoming(ordered, at, 1 if is_alone else room))
        while True:
            try:
                return self._decisions.guard(job, place) or 1
            except TimeIsUp:
                self._give_up(job)
                return 1
            except GiveWay as pause:
                place = partial(self._place, policy, task=pause.task)
            yield

    def _give_up(self, job: WaitingJob) -> None:
        self.is_certain = False
        self.undecided.add(job.id)

    def _take_urgent_turn(self, policy: QueuePolicy, urgent: "UrgentPass", job: WaitingJob) -> None:
        """Place a job or pass it over; make no more decisions if there is no time left."""
        types, rules = self._types[job.id], self._rules(policy, job)
        place, passed = urgent.places[policy], urgent.passed
        is_doubtful = self._depth.standing(job, types) is Standing.DOUBTFUL
        try:
            if urgent.besteffort_date:
                passed.take_besteffort(job, types, rules, place, urgent.besteffort_date, is_doubtful=is_doubtful)
            else:
                passed.take(job, types, rules, place, is_doubtful=is_doubtful)
        except TimeIsUp:
            self._give_up(job)
        if passed.has_turn(job.id) and self._depth.of(job.queue):
            self._depth.note_passed(job, types, is_sure=not is_doubtful and passed.is_sure_to_wait(job.id))

    def _hold_back(self, job: WaitingJob, planned: int, finished_queues: set[str]) -> None:
        """In a queue without backfilling, keep later jobs from starting before a waiting one.

        A round does not plan the later jobs; a forecast plans later starts for them.
        """
        placement = self._decisions.placements.get(job.id)
        if not self._wanted or placement is None:
            finished_queues.add(job.queue)
            return
        if placement.start == self._not_before.get(job.queue):
            self._decisions.reasons[job.id] = reasons.limit(planned - 1, RoundLimit.ORDER)
        self._not_before[job.queue] = placement.start

    def _bound(self, policy: QueuePolicy, job: WaitingJob, *, is_searched: bool) -> None:
        """Record a date before which a job without a turn does not start; ``now`` if no search is made."""
        self.not_before[job.id] = self._decisions.now
        if is_searched:
            self._decisions.guard(job, partial(self._search_bound, policy))

    def _search_bound(self, policy: QueuePolicy, job: WaitingJob) -> None:
        found = self._placer.earliest(job, self._types[job.id], self._rules(policy, job))
        if isinstance(found, Reason):
            self._decisions.reasons[job.id] = found
            del self.not_before[job.id]
        else:
            self.not_before[job.id] = found

    def _in_order(
        self, jobs: Sequence[WaitingJob], queues: Sequence[Queue], policies: Mapping[str, QueuePolicy]
    ) -> list[WaitingJob]:
        """Return the jobs in planning order, up to the last wanted one; jobs with cyclic dependencies get a reason."""
        in_order = self._order.sorted(jobs, queues, policies)
        cyclic = reasons.cyclic_dependency(sorted(self._cyclic))
        self._decisions.reasons.update({job.id: cyclic for job in in_order if job.id in self._cyclic})
        ordered, cycle = behind_required_jobs([job for job in in_order if job.id not in self._cyclic], self._types)
        for job in cycle:
            self._decisions.reasons[job.id] = reasons.cyclic_dependency([other.id for other in cycle])
        last = max((index for index, job in enumerate(ordered) if job.id in self._wanted), default=len(ordered))
        return ordered[: last + 1]

    def _limit_reached(self, planned: int, *, is_late: bool) -> Reason | None:
        """Return the reason of the remaining jobs if a limit of the round is reached; return None otherwise."""
        if self._settings.timeout and is_late:
            self._decisions.troubles.append(f"{_TIMEOUT} ({self._settings.timeout} s)")
            return reasons.limit(planned, RoundLimit.TIME)
        if self._settings.max_jobs and planned >= self._settings.max_jobs:
            return reasons.limit(planned, RoundLimit.JOBS)
        return None

    def _lap(self) -> float:
        """Record the placement time of the current jobs; return the seconds since the begin of the round."""
        elapsed = self._elapsed()
        jobs, begin = self._present_jobs
        if jobs:
            share = (elapsed - begin) / len(jobs)
            for job in jobs:
                self.seconds[job.id] = share
            self._present_jobs = (), 0.0
        return elapsed

    def _place(
        self, policy: QueuePolicy, job: WaitingJob, task: PlacementTask | None = None, upcoming: Upcoming | None = None
    ) -> int:
        """Place a job; return how many jobs of ``upcoming`` are placed.  ``task``: the search task, if it exists."""
        decisions = self._decisions
        rules = self._rules(policy, job)
        types, placer = self._types[job.id], self._placer
        if task and task.rules != rules:  # its position relative to the depth was decided after it had been passed over
            task = replace(task, rules=rules)
        outcome = placer.place_checked(task) if task else placer.place(job, types, rules, upcoming)
        if self._depth.is_used:
            self._depth.note(job, types, outcome.placements.get(job.id), outcome.reasons.get(job.id))
        if outcome.error:
            decisions.refused.append(Answer(job.id, outcome.error))
        decisions.reasons.update(outcome.reasons)
        decisions.placements.update(outcome.placements)
        if outcome.placements and outcome.start <= self._starts.soon:
            for started, placement in zip(outcome.jobs, outcome.placements.values(), strict=True):
                self._starts.start_if_due(started, placement, rules.dependency_condition)
        return max(1, len(outcome.jobs))

    def _guarded_place(self, policy: QueuePolicy, job: WaitingJob, task: PlacementTask | None) -> None:
        self._decisions.guard(job, partial(self._place, policy, task=task))

    def _rules(self, policy: QueuePolicy, job: WaitingJob) -> PlacementRules:
        if not self._depth.is_used:
            return self._rules_of(policy, job.queue, 0)
        is_behind = self._depth.standing(job, self._types[job.id]) is Standing.BEHIND
        depth = self._depth.of(job.queue) if is_behind and policy.is_backfilling else 0
        return self._rules_of(policy, job.queue, depth)

    def _rules_of(self, policy: QueuePolicy, queue: str, depth: int) -> PlacementRules:
        not_before = self._not_before.get(queue, 0)
        key = queue, not_before, depth
        rules = self._known_rules.get(key)
        if rules is None:
            rules = self._known_rules[key] = PlacementRules(
                dependency_condition=policy.condition(self._settings),
                has_quotas=policy.has_quotas(is_configured=self._settings.has_quotas),
                not_before=not_before,
                is_now_only=not policy.is_backfilling and not self._wanted,
                depth=depth,
            )
        return rules

    def _starts_now(self, job: WaitingJob) -> bool:
        placement = self._decisions.placements.get(job.id)
        return placement is not None and placement.start <= self._decisions.now
