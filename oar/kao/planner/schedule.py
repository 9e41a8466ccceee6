"""One round of planning: ``schedule(snapshot) -> plan``.  Pure: the same snapshot always gives the same plan.

``oar/kao/planner/__init__.py`` contains a diagram of the stages of a round, and the glossary.

See docs/design/planner.rst, "A round".
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes, parse_types, parse_types_or_none
from oar.kao.facts.plan import ChangeStep, JobForecast, Json, Placement, Plan, Reason, ReservationStep
from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.kao.facts.steps import Steps, result_of
from oar.kao.planner.advance_reservations.decisions import ReservationDecisions
from oar.kao.planner.advance_reservations.health import (
    Health,
    ReservationHealth,
    closed_frames,
    frame_windows,
    healths_of,
    left_behind,
    outside_quotas,
)
from oar.kao.planner.advance_reservations.search import SearchClock
from oar.kao.planner.energy import nodes_to_halt, nodes_to_wake
from oar.kao.planner.job_messages import JobMessages
from oar.kao.planner.job_order import JobOrder
from oar.kao.planner.limits.dependencies import Dependencies
from oar.kao.planner.placement.placement_reuse import PlacementReuse
from oar.kao.planner.placement.placement_search import PlacementSearch
from oar.kao.planner.placement.placer import Placer
from oar.kao.planner.placement.round_context import Bookings, Decisions, RoundContext, TimeIsUp
from oar.kao.planner.placement.round_memory import RoundMemory
from oar.kao.planner.placement.site_extensions import NO_EXTENSIONS, PluginChoices, SiteExtensions
from oar.kao.planner.placement.starts import Starts
from oar.kao.planner.proposal_review import ProposalReview
from oar.kao.planner.queue_planner import QueuePlanner, UrgentPass
from oar.kao.planner.reservation_jobs import Reservations
from oar.kao.planner.resources.compiled_requests import CompiledRequests
from oar.kao.planner.resources.spaces import Containers
from oar.kao.planner.urgent_pass import PassedOver
from oar.lib.base.errors import BadRequest
from oar.lib.base.resource_set import ResourceSet
from oar.lib.jobs.queue_policies import QueuePolicy, policy_of
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobState, QueueState, Reservation
from oar.lib.nodes.states import ResourceState
from oar.lib.reservations.states import ReservationState

#: Besteffort jobs get at least this fraction of SCHEDULER_TIMEOUT.
BESTEFFORT_SHARE = 0.1


def schedule(
    snapshot: Snapshot,
    elapsed: Callable[[], float] = lambda: 0.0,
    memory: RoundMemory | None = None,
    site: SiteExtensions = NO_EXTENSIONS,
) -> Plan:
    """Return the plan of a snapshot; for the arguments see ``Round``."""
    return Round(snapshot, elapsed, memory, site).plan()


class Round:
    """One round of planning; it returns the plan, and data for the next round and the log."""

    def __init__(
        self,
        snapshot: Snapshot,
        elapsed: Callable[[], float] = lambda: 0.0,
        memory: RoundMemory | None = None,
        site: SiteExtensions = NO_EXTENSIONS,
        requests: tuple[Snapshot, CompiledRequests] | None = None,
        *,
        clock: SearchClock | None = None,
    ) -> None:
        """Enter everything that is fixed before any job is planned.

        ``elapsed``: returns the seconds since the begin of the round.  After SCHEDULER_TIMEOUT no more jobs are
        planned.  ``memory`` of the last round makes planning faster without changing the plan; so do ``requests``,
        compiled in an earlier round.  ``clock``: limits the searches for advance reservations.
        """
        self._snapshot = snapshot
        self._settings = snapshot.settings
        self._site = site
        self._clock = clock or SearchClock()
        self._elapsed = elapsed
        self._memory = memory
        self._decisions = Decisions(snapshot.now, memory.reasons if memory else {})
        self._types = outside_quotas(snapshot, self._parse_types())
        readable = replace(
            snapshot,
            waiting=tuple(sorted((job for job in snapshot.waiting if job.id in self._types), key=lambda job: job.id)),
            running=tuple(sorted(snapshot.running, key=lambda job: job.id)),
        )
        frame_ids = {reservation.frame_id for reservation in snapshot.reservations}
        self._jobs = {job.id: job for job in readable.waiting if job.id not in frame_ids}
        self._policies = {queue.name: policy_of(queue.policy) or QueuePolicy() for queue in snapshot.queues}
        self._active = {queue.name for queue in snapshot.queues if queue.state is not QueueState.NOT_ACTIVE}
        self._of_closed_projects = {
            job.id for job in self._jobs.values() if job.project in snapshot.closed_projects and not job.granted
        }
        self._left_behind = left_behind(snapshot, self._types) | self._of_closed_projects
        self._left_behind |= {job_id for job_id, stop in snapshot.budget_stops.items() if not stop.date}
        self.requests = CompiledRequests.of(readable, requests or (memory.requests if memory else None))
        self._health = ReservationHealth(readable, self._types)
        healths = healths_of(readable, self._health)
        self._bookings = Bookings(readable, self._types, frame_windows(readable, healths))
        self._usable = self._bookings.spaces.usable
        self._context = RoundContext(readable, self._types, self.requests, self._bookings, self._decisions)
        self._blocked = self._blocked_by_shared_resources()
        self._urgent: UrgentPass | None = None  #: how jobs are passed over
        self._assemble(healths)

    def _assemble(self, healths: Mapping[int, Health]) -> None:
        """Create the parts of the planner; repair reservations without resources before any job is planned."""
        context, site = self._context, self._site
        plugins = PluginChoices(site.load, context.snapshot, context.usable) if site.load else None
        search = PlacementSearch(context, plugins)
        containers = Containers(context.snapshot, self._types, context.spaces)
        self._dependencies = dependencies = Dependencies(context.snapshot, self._bookings.placements)
        self._closed = closed_frames(context.snapshot, healths, self._types)
        self._starts = Starts(context, dependencies, self._closed)
        self._reservation_decisions = ReservationDecisions(context, search, self._starts, self._health, self._clock)
        self._reservations = Reservations(context, containers, search, self._starts)
        self._review = ProposalReview(context, containers, self._starts)
        for job in self._jobs.values():
            is_lost = job.reservation is Reservation.SCHEDULED and job.granted is None
            if is_lost and job.queue in self._active and job.id not in self._left_behind:
                self._reservations.repair(job)
        self._reuse = PlacementReuse(context, self._memory)
        self._search = search
        self._placer = placer = Placer(context, containers, dependencies, search, self._reuse)
        order = JobOrder(context, partial(site.sort, self._snapshot) if site.sort else None)
        self._planner = QueuePlanner(context, order, placer, self._starts, elapsed=self._elapsed, blocked=self._blocked)

    # --------------------------------------------------------------------------------------------------------- stages

    def plan(self, announce: Callable[[Sequence[str]], None] = lambda names: None) -> Plan:
        """Plan all active queues and return the plan.

        ``announce`` is called with the names of each group of queues before the group is planned.
        """
        for _ in self.steps(announce):
            pass
        return self.finish()

    def steps(
        self,
        announce: Callable[[Sequence[str]], None] = lambda names: None,
        gives_way: Callable[[], bool] | None = None,
    ) -> Iterator[None]:
        """Plan all active queues, one job or wave per step; ``finishing`` returns the plan.

        If ``gives_way`` returns True, a long search ends the current step and continues in the next one.
        """
        self._search.gives_way = gives_way or self._search.gives_way
        self._reservation_decisions.decide()
        if gives_way:  # with 1000s of running jobs this takes a whole slice
            yield from self._bookings.spaces.common.entering()
            yield
        for queues in self._groups():
            announce([queue.name for queue in queues])
            yield from self._plan_group(queues)
        self._reservation_decisions.answer(self._reservation_decisions.unanswered_queues)
        yield from self._plan_besteffort()

    def urgent(
        self,
        is_due: Callable[[], bool],
        is_late: Callable[[], bool],
        announce: Callable[[Sequence[str]], None] = lambda names: None,
    ) -> Plan:
        """Return a plan with all decisions that are due now; later placements are planned as far as time permits.

        As soon as ``is_due`` returns True, jobs that do not start now are passed over.  When ``is_late`` returns True,
        no more decision is made that requires the placement of all passed jobs.
        """
        if self._may_pass_over():
            passed = PassedOver(
                self._context,
                self._placer,
                self._search,
                dependencies=self._dependencies,
                starts=self._starts,
                is_late=is_late,
            )
            self._urgent = UrgentPass(passed, is_due)
            self._search.is_late = is_late
        return self.plan(announce)

    def _may_pass_over(self) -> bool:
        """Return whether jobs may be passed over: no decision of this round depends on their placements."""
        new_reservations = any(
            job.reservation is Reservation.TO_SCHEDULE and job.queue in self._active for job in self._jobs.values()
        )
        settings, snapshot = self._settings, self._snapshot
        is_asked = any(reservation.state is ReservationState.ASKED for reservation in snapshot.reservations)
        are_behind = settings.jobs_before_reservations and (is_asked or bool(snapshot.reservation_changes))
        external = self._site.external
        has_external = external is not None and any(
            external.plans(queue) for queues in self._groups() for queue in queues
        )
        return not (new_reservations or are_behind or has_external or self._site.before_group)

    def plan_reservations(self) -> Plan:
        """Return the decisions on advance reservations that do not depend on jobs, with their placements."""
        self._reservation_decisions.decide()
        shared = self._usable.shared & self._usable.alive
        return Plan(
            now=self._snapshot.now,
            placements=tuple(_with_shared(place, shared) for place in self._decisions.placements.values()),
            failures=tuple(self._decisions.failures),
            reservations=tuple(self._reservation_decisions.steps),
            reservation_changes=tuple(self._reservation_decisions.changes),
        )

    def answer_reservations(self) -> Sequence[ReservationStep]:
        """Return the decisions on advance reservations; plan only the jobs that come before them."""
        self._reservation_decisions.decide()
        if self._settings.jobs_before_reservations:
            for queues in self._groups():
                _exhaust(self._plan_group(queues))
            self._reservation_decisions.answer(self._reservation_decisions.unanswered_queues)
        return self._reservation_decisions.steps

    def answer_changes(self) -> Sequence[ChangeStep]:
        """Return the decisions on changes of advance reservations; plan only the jobs that come before them."""
        self.answer_reservations()
        return self._reservation_decisions.changes

    def forecast(self, jobs: Collection[int]) -> dict[int, JobForecast]:
        """Return the predictions for some jobs, without planning the jobs after them.

        For a job whose turn has not come after SCHEDULER_TIMEOUT, only a lower bound of its start is returned.
        """
        self._planner.look_for(jobs)
        besteffort = {job_id for job_id in jobs if job_id in self._jobs and self._is_besteffort(self._jobs[job_id])}
        queues_left = {self._jobs[job_id].queue for job_id in jobs if job_id in self._jobs and job_id not in besteffort}
        for queues in self._groups():
            if queues_left or besteffort:
                _exhaust(self._plan_group(queues))
                queues_left -= {queue.name for queue in queues}
        if besteffort:
            _exhaust(self._plan_besteffort())
        return {job_id: self._forecast_of(job_id) for job_id in jobs}

    def _forecast_of(self, job_id: int) -> JobForecast:
        decisions, shared = self._decisions, self._usable.shared & self._usable.alive
        placement, reason = decisions.placements.get(job_id), decisions.reasons.get(job_id)
        refusal = next((answer.message for answer in decisions.refused if answer.job_id == job_id), "")
        if not (placement or reason or refusal):
            reason = self._reason_of_undecided(self._jobs[job_id])
        reason = self._with_budget(job_id, reason) if reason else None
        return JobForecast(
            _with_shared(placement, shared) if placement else None,
            self._with_position(job_id, reason) if reason and not refusal else None,
            refusal,
            self._planner.not_before.get(job_id),
        )

    def _groups(self) -> list[list[Queue]]:
        busy = {job.queue for job in self._jobs.values()} & self._active
        if self._settings.jobs_before_reservations:
            busy |= self._reservation_decisions.unanswered_queues & self._active
        queues = sorted((queue for queue in self._snapshot.queues if queue.name in busy), key=lambda queue: queue.name)
        priorities = sorted({queue.priority for queue in queues}, reverse=True)
        return [[queue for queue in queues if queue.priority == priority] for priority in priorities]

    def _plan_group(self, queues: Sequence[Queue]) -> Iterator[None]:
        """Plan the ordinary jobs of queues of equal priority, then their reservations."""
        names = {queue.name for queue in queues}
        waiting = [job for job in self._jobs.values() if job.queue in names and job.id not in self._left_behind]
        if self._site.before_group:
            try:
                self._site.before_group(self._snapshot, queues, self._bookings.spaces)
            except Exception as error:  # noqa: BLE001 - a plug-in must not end the round
                self._decisions.troubles.append(f"EXTRA_METASCHED: {type(error).__name__}: {error}")
        yield
        ordinary = [
            job for job in waiting if job.reservation is Reservation.NONE and not self._types[job.id].is_besteffort
        ]
        yield from self._plan_jobs(ordinary, queues, self._settings.timeout)
        for job in waiting:
            if job.reservation is Reservation.SCHEDULED and job.state is JobState.WAITING:
                self._decisions.guard(job, self._follow_reservation)
        new = [job for job in waiting if job.reservation is Reservation.TO_SCHEDULE]
        for job in self._reservations.in_order(new):
            self._decisions.guard(job, self._answer_reservation)
        if self._settings.jobs_before_reservations:
            self._reservation_decisions.answer(names)

    def _plan_besteffort(self) -> Iterator[None]:
        if self._urgent:
            self._urgent = replace(self._urgent, besteffort_date=self._settle_for_besteffort(self._urgent.passed))
        self._bookings.quotas.begin_besteffort()
        timeout = self._settings.timeout
        deadline = max(timeout, self._elapsed() + BESTEFFORT_SHARE * timeout)
        for queues in self._groups():
            names = {queue.name for queue in queues}
            jobs = [job for job in self._jobs.values() if job.queue in names and self._is_besteffort(job)]
            own_jobs = [job for job in jobs if job.id not in self._left_behind]
            yield from self._plan_jobs(own_jobs, queues, deadline)

    def _settle_for_besteffort(self, passed: PassedOver) -> int:
        """Ensure that besteffort jobs can be placed despite the passed jobs; return until when that is certain."""
        settings, now = self._settings, self._snapshot.now
        walltimes = [
            alternative.walltime
            for job in self._jobs.values()
            if self._is_besteffort(job)
            for alternative in job.alternatives
        ]
        if not walltimes:
            return now + 1
        gap = max(settings.besteffort_gap(max(walltimes) + settings.security_time), settings.hole_minimum)
        date = now + 2 * gap
        try:
            if self._planner.is_certain:
                settled = passed.settle(date, now + gap)
                if settled is None:
                    passed.catch_up()
                return min(date, settled or date)
        except TimeIsUp:
            self._planner.is_certain = False
        return date

    def _is_besteffort(self, job: WaitingJob) -> bool:
        """Return whether a job is planned after the ordinary jobs of all queues."""
        return self._types[job.id].is_besteffort and job.reservation is Reservation.NONE

    def finish(self) -> Plan:
        return result_of(self.finishing())

    def finishing(self) -> Steps[Plan]:
        """Build the plan from all decisions in steps."""
        decisions, snapshot = self._decisions, self._snapshot
        undecided = self._planner.undecided | (self._urgent.passed.ids if self._urgent else set())
        self._keep_other_reservations()
        self._explain_other_jobs(undecided)
        self._explain_errors()
        self._explain_budgets()
        yield
        resumed = self._starts.resume()
        shared = self._usable.shared & self._usable.alive
        placements = decisions.placements.values()
        comparable_memory = self._memory if self._reuse.is_comparable else None
        messages = yield from JobMessages(self._context, comparable_memory).of(
            job for job in self._jobs.values() if job.id not in undecided
        )
        yield
        return Plan(
            now=snapshot.now,
            placements=tuple(_with_shared(placement, shared) for placement in placements),
            reasons={
                job_id: self._with_position(job_id, decisions.reasons[job_id]) for job_id in sorted(decisions.reasons)
            },
            messages=messages,
            karma=dict(sorted(decisions.karma.items())),
            started=tuple(
                replace(start, placement=_with_shared(start.placement, shared)) for start in decisions.started
            ),
            kills=tuple(decisions.kills.values()),
            accepted=tuple(decisions.accepted),
            refused=tuple(decisions.refused),
            expired=tuple(decisions.expired),
            regained=tuple(decisions.regained),
            lost=tuple(decisions.lost),
            resumed=resumed,
            wake=nodes_to_wake(snapshot, placements, self._types),
            halt=() if self._blocked or undecided else nodes_to_halt(snapshot, placements),
            outside=tuple(sorted(decisions.external)),
            troubles=tuple(decisions.troubles),
            failures=tuple(decisions.failures),
            reservations=tuple(self._reservation_decisions.steps),
            reservation_changes=tuple(self._reservation_decisions.changes),
            reservation_dates=self._reservation_decisions.dates(),
            undecided=tuple(sorted(undecided)),
            is_certain=self._planner.is_certain,
        )

    # ------------------------------------------------------------------------------------------- for the next round

    def memory(self, plan: Plan | None = None) -> RoundMemory:
        """Return the memory of this round for the next one; ``plan``: the plan of this round, None in a forecast."""
        return replace(
            self._reuse.memory(),
            jobs=self._jobs,
            requests=self.compiled,
            placements=self._decisions.placements,
            reasons=self._decisions.reasons,
            karma=self._decisions.karma,
            messages=plan.messages if plan else {},
        )

    @property
    def compiled(self) -> tuple[Snapshot, CompiledRequests]:
        return self._snapshot, self.requests

    @property
    def decided(self) -> set[int]:
        decisions = self._decisions
        return {*decisions.placements, *decisions.reasons, *(answer.job_id for answer in decisions.refused)}

    @property
    def reused(self) -> int:
        """Return the number of jobs that kept the placement of the last round without a search."""
        return self._reuse.reused

    @property
    def seconds(self) -> dict[int, float]:
        return self._planner.seconds

    # ---------------------------------------------------------------------------------------------------------- parts

    def _parse_types(self) -> dict[int, ParsedTypes]:
        """Return the types of all jobs; a waiting job with unreadable types is left out and gets a reason."""
        types = {job.id: parse_types_or_none(job) for job in self._snapshot.running}
        for job in self._snapshot.waiting:
            try:
                types[job.id] = parse_types(job)
            except BadRequest as error:
                self._decisions.reasons[job.id] = reasons.unreadable(str(error))
        return types

    def _blocked_by_shared_resources(self) -> Reason | None:
        """Return a reason if no job is planned in this round because a shared resource is Suspected; otherwise None."""
        resources, shared_type = self._snapshot.resources, self._settings.always_assigned_type
        suspected = resources.where(resources.states, ResourceState.SUSPECTED)
        if not shared_type or not resources.where(resources.types, shared_type) & suspected:
            return None
        reason = reasons.shared_suspected(shared_type)
        self._decisions.troubles.append(reason.text)
        return reason

    def _plan_jobs(self, jobs: Sequence[WaitingJob], queues: Sequence[Queue], deadline: float) -> Iterator[None]:
        """Plan jobs; then request proposals from external schedulers for the jobs of their queues."""
        external = None if self._blocked else self._site.external
        external_queues = [queue for queue in queues if external and external.plans(queue)]
        names = {queue.name for queue in external_queues}
        own_jobs = [job for job in jobs if job.queue not in names]
        yield from self._planner.place_all(own_jobs, queues, deadline, self._urgent)
        for queue in external_queues:
            queue_jobs = [job for job in jobs if job.queue == queue.name]
            if queue_jobs and external:
                proposal = external.plan(queue, queue_jobs, tuple(self._decisions.placements.values()))
                self._review.adopt(queue_jobs, proposal)

    def _follow_reservation(self, job: WaitingJob) -> None:
        self._reservations.follow(job, self._policies[job.queue].condition(self._settings))

    def _answer_reservation(self, job: WaitingJob) -> None:
        self._reservations.answer(
            job, has_quotas=self._policies[job.queue].has_quotas(is_configured=self._settings.has_quotas)
        )

    def _keep_other_reservations(self) -> None:
        """Keep the stored placements of undecided reservations, for example in stopped queues."""
        placements, expired = self._decisions.placements, {answer.job_id for answer in self._decisions.expired}
        for job in self._jobs.values():
            granted = job.granted
            if granted and job.id not in placements and job.id not in expired:
                walltime = job.walltime_of(granted.alternative)
                placements[job.id] = Placement(job.id, granted.alternative, granted.start, walltime, granted.resources)

    def _explain_other_jobs(self, undecided: Collection[int]) -> None:
        """Record a reason for undecided jobs, except those left to a full plan."""
        decisions = self._decisions
        settled = {start.placement.job_id for start in decisions.started} | set(undecided)
        settled |= {answer.job_id for answer in (*decisions.refused, *decisions.expired)}
        for job in self._jobs.values():
            if job.id not in decisions.reasons and job.id not in settled:
                decisions.reasons[job.id] = self._reason_of_undecided(job)

    def _explain_errors(self) -> None:
        """Replace the reasons of jobs in advance reservations with hard errors by the error."""
        errors = {name: closing for name, closing in self._closed.items() if "error" in closing.data}
        for job_id, reason in self._decisions.reasons.items() if errors else ():
            error = errors.get(self._types[job_id].inner)
            if error and reason.code in (ReasonCode.ADVANCE, ReasonCode.NOT_ALIVE) and "left" not in reason.data:
                self._decisions.reasons[job_id] = error

    def _explain_budgets(self) -> None:
        for job_id in self._snapshot.budget_stops.keys() & self._decisions.reasons.keys():
            self._decisions.reasons[job_id] = self._with_budget(job_id, self._decisions.reasons[job_id])

    def _with_budget(self, job_id: int, reason: Reason) -> Reason:
        """Return the budget that stops a job as its reason, unless the job could never start."""
        stop = self._snapshot.budget_stops.get(job_id)
        if stop is None or reason.code in (ReasonCode.IMPOSSIBLE, ReasonCode.CONDITION):
            return reason
        return reasons.budget_used_up(*stop)

    def _reason_of_undecided(self, job: WaitingJob) -> Reason:
        if job.id in self._of_closed_projects:
            return reasons.project_closed(job.project)
        if job.queue not in self._policies or job.id in self._left_behind:
            return reasons.removed_queue(job.queue)
        if job.queue not in self._active:
            return reasons.stopped_queue(job.queue)
        if job.granted:
            return reasons.reservation_date(job.start_time)
        queue = next(queue for queue in self._snapshot.queues if queue.name == job.queue)
        if policy_of(queue.policy) is None:
            placement = self._decisions.placements.get(job.id)
            return reasons.external(queue.policy, "", placement.start if placement else 0)
        return reasons.internal(self._snapshot.now, "it was overlooked")

    def _with_position(self, job_id: int, reason: Reason) -> Reason:
        """Return the reason with what decided the position of the job in the order."""
        share, turn = self._decisions.shares.get(job_id), self._decisions.turns.get(job_id)
        position: dict[str, Json] = {"fairshare": share} if share else {}
        if turn:
            position["jobs_per_user"] = turn
        return replace(reason, data={**reason.data, **position}) if position else reason


def _exhaust(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def _with_shared(placement: Placement, shared: ResourceSet) -> Placement:
    return replace(placement, resources=placement.resources | shared) if shared else placement
