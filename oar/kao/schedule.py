"""One round of planning: ``schedule(snapshot) -> plan`` (scheduling.md 1, steps 3 to 8, 10 and 11).

Pure: the same snapshot always gives the same plan.  ``Round`` is the same work cut at the groups of queues, for the
rounds in which an external scheduler plans some of them.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from oar.kao import explain
from oar.kao.energy import to_halt, to_wake
from oar.kao.launching import Launching, kill
from oar.kao.memory import Memory
from oar.kao.model import (
    Answer,
    Consumption,
    Failure,
    Kill,
    Launch,
    Placement,
    Plan,
    Reason,
    RunningJob,
    Snapshot,
    WaitingJob,
)
from oar.kao.outside import Proposal
from oar.kao.placement import Outcome, Placer, Policy
from oar.kao.priority import (
    Factors,
    QueuePolicy,
    Share,
    defer,
    first_of_each_user,
    has_quotas,
    order_of,
    policy_of,
    priority,
    share_of,
)
from oar.kao.requests import Requests
from oar.kao.reservations import EXPIRED, NO_RESOURCE, RENEWED, Reservations
from oar.kao.site import NoPlugin, Site
from oar.kao.spaces import Spaces
from oar.kao.traits import Traits, traits_of
from oar.lib.errors import BadRequest
from oar.lib.hierarchy import RequestFit
from oar.lib.model import Queue
from oar.lib.request import format_job_message
from oar.lib.states import JobState, QueueState, Reservation, ResourceState

#: Besteffort jobs get at least this part of SCHEDULER_TIMEOUT.
BESTEFFORT_SHARE = 0.1

NOTHING = Site()

LATE = "some jobs were not scheduled because the scheduler's timeout was reached"


def schedule(
    snapshot: Snapshot, spent: Callable[[], float] = lambda: 0.0, before: Memory | None = None, site: Site = NOTHING
) -> Plan:
    """Plan all queues.

    ``spent`` tells the seconds used so far; the plan stops growing at SCHEDULER_TIMEOUT.  ``before`` is what an earlier
    round left: with it the plan is the same, and costs less.  ``site``: its plug-ins.
    """
    this = Round(snapshot, spent, before, site)
    for queues in this.groups():
        this.plan_queues(queues)
    this.plan_besteffort()
    return this.finish()


@dataclass(slots=True)
class _Decisions:
    """What has been decided so far."""

    placements: dict[int, Placement] = field(default_factory=dict)
    reasons: dict[int, Reason] = field(default_factory=dict)
    karma: dict[int, float] = field(default_factory=dict)
    shares: dict[int, Share] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    kills: dict[int, Kill] = field(default_factory=dict)
    accepted: list[Answer] = field(default_factory=list)
    refused: list[Answer] = field(default_factory=list)
    expired: list[Answer] = field(default_factory=list)
    regained: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    outside: set[int] = field(default_factory=set)  #: jobs that schedulers of the site have placed
    told: dict[int, str] = field(default_factory=dict)  #: messages by schedulers of the site
    troubles: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


class Round:
    """A round in the making."""

    def __init__(
        self,
        snapshot: Snapshot,
        spent: Callable[[], float] = lambda: 0.0,
        before: Memory | None = None,
        site: Site = NOTHING,
    ) -> None:
        self.snapshot = snapshot
        self._site = site
        self._settings = snapshot.settings
        self._spent = spent
        gap = max(self._settings.besteffort_kill_before, self._settings.security_time)
        self._horizon = snapshot.now + gap  #: besteffort jobs go for what begins until then
        self._done = _Decisions()
        self.seconds: dict[int, float] = {}  #: how long the placement of each job took
        self._watched: tuple[int, float] | None = None  #: the job being placed, and since when
        self._traits = self._read_types()
        known = _readable(snapshot, self._traits)
        self._spaces = Spaces(known, self._traits)
        self.requests = Requests.of(known, before.requests if before else None)
        self._placer = Placer(known, self._spaces, self._traits, self.requests, site)
        self._launching = Launching(known, self._traits, self._spaces.usable)
        self._reservations = Reservations(known, self._placer, self._launching, self._traits)
        self._jobs = {job.id: job for job in known.waiting}
        self._queues = {queue.name: queue for queue in snapshot.queues}
        self._active = {queue.name for queue in snapshot.queues if queue.state is QueueState.ACTIVE}
        self._blocked = self._shared_resources_suspected()
        self._regain()
        self._before = before
        self._placer.remember(before)

    # ------------------------------------------------------------------------------------------------------- planning

    def groups(self) -> list[list[Queue]]:
        """Return the active queues that have something to plan, those of equal priority together, highest first."""
        busy = {job.queue for job in self._jobs.values()} & self._active
        queues = [queue for queue in self.snapshot.queues if queue.name in busy]
        priorities = sorted({queue.priority for queue in queues}, reverse=True)
        return [sorted((q for q in queues if q.priority == each), key=lambda q: q.name) for each in priorities]

    def plan_queues(self, queues: Sequence[Queue]) -> None:
        """Plan the ordinary jobs of queues of equal priority, then their reservations."""
        names = {queue.name for queue in queues}
        waiting = [job for job in self._jobs.values() if job.queue in names]
        self._call_plugin(queues)
        ordinary = [
            job for job in waiting if job.reservation is Reservation.NONE and not self._traits[job.id].is_besteffort
        ]
        self._plan_jobs(ordinary, queues, self._settings.timeout)
        for job in waiting:
            if job.reservation is Reservation.SCHEDULED and job.state is JobState.WAITING:
                self._guarded(job, self._follow_reservation)
        new = [job for job in waiting if job.reservation is Reservation.TO_SCHEDULE]
        for job in self._reservations.in_order(new):
            self._guarded(job, self._answer_reservation)

    def plan_besteffort(self) -> None:
        """Plan the besteffort jobs of all active queues, in the order of the queues."""
        self._placer.quotas.begin_besteffort()
        used = self._spent()
        limit = max(self._settings.timeout, used + BESTEFFORT_SHARE * self._settings.timeout)
        for queues in self.groups():
            names = {queue.name for queue in queues}
            jobs = [
                job
                for job in self._jobs.values()
                if job.queue in names and self._traits[job.id].is_besteffort and job.reservation is Reservation.NONE
            ]
            self._plan_jobs(jobs, queues, limit)

    def _plan_jobs(self, jobs: Sequence[WaitingJob], queues: Sequence[Queue], limit: float) -> None:
        """Place jobs by the planner, then those of queues that have a scheduler of the site."""
        programs = None if self._blocked else self._site.outside
        outside = [queue for queue in queues if programs and programs.plans(queue)]
        names = {queue.name for queue in outside}
        self._place_all([job for job in jobs if job.queue not in names], queues, limit)
        for queue in outside:
            own = [job for job in jobs if job.queue == queue.name]
            if own and programs:
                self._adopt_all(own, programs.plan(queue, own, tuple(self._done.placements.values())))

    def _call_plugin(self, queues: Sequence[Queue]) -> None:
        """Let the plug-in of the site do what it likes before a group of queues."""
        if self._site.before_group:
            try:
                self._site.before_group(self.snapshot, queues, self._spaces)
            except Exception as error:  # noqa: BLE001 - the guard of a plug-in: the round must go on
                self._done.troubles.append(f"EXTRA_METASCHED: {type(error).__name__}: {error}")

    def _place_all(self, jobs: Sequence[WaitingJob], queues: Sequence[Queue], limit: float) -> None:
        """Place jobs in their order, as far as the limits of the round allow."""
        policies = {queue.name: policy_of(queue.policy) or QueuePolicy("") for queue in queues}
        ordered, circle = defer(self._in_order(jobs, queues, policies), self._traits)
        for job in circle:
            self._done.reasons[job.id] = explain.cyclic_dependency([each.id for each in circle])
        planned = 0
        full: Reason | None = None  #: why nothing else is planned
        over: set[str] = set()  #: queues without backfilling whose first job waits
        for job in ordered:
            if self._blocked:
                self._done.reasons[job.id] = self._blocked
                continue
            used = self._stop_watch()
            full = full or self._limit_reached(planned, is_late=used > limit)
            if full or job.queue in over:
                self._done.reasons[job.id] = full or explain.limit(planned, "order")
                continue
            planned += 1
            policy = policies[job.queue]
            self._watched = job.id, used
            self._guarded(job, partial(self._place, policy))
            placement = self._done.placements.get(job.id)
            if not policy.is_backfilling and (placement is None or placement.start > self.snapshot.now):
                over.add(job.queue)
        self._stop_watch()

    def _limit_reached(self, planned: int, *, is_late: bool) -> Reason | None:
        """Return which limit of the round is reached after so many jobs; None if none is."""
        if self._settings.timeout and is_late:
            self._done.troubles.append(f"{LATE} ({self._settings.timeout} s)")
            return explain.limit(planned, "time")
        if self._settings.max_jobs and planned >= self._settings.max_jobs:
            return explain.limit(planned, "jobs")
        return None

    def _stop_watch(self) -> float:
        """Note how long the last job took; return the seconds used so far."""
        used = self._spent()
        if self._watched:
            job_id, since = self._watched
            self.seconds[job_id] = used - since
            self._watched = None
        return used

    def _place(self, policy: QueuePolicy, job: WaitingJob) -> None:
        condition = policy.dependency_condition or self._settings.dependency_condition
        how = Policy(
            dependency_condition=condition,
            has_quotas=has_quotas(policy, self._settings),
            is_now_only=not policy.is_backfilling,
        )
        outcome = self._placer.place(job, self._traits[job.id], how)
        self._record(job, outcome)
        if outcome.placement:
            self._try_to_start(job, outcome.placement, condition)

    def _record(self, job: WaitingJob, outcome: Outcome) -> None:
        if outcome.error:
            self._done.refused.append(Answer(job.id, outcome.error))
        if outcome.placement:
            self._done.placements[job.id] = outcome.placement
        if outcome.reason:
            self._done.reasons[job.id] = outcome.reason

    def _in_order(
        self, jobs: Sequence[WaitingJob], queues: Sequence[Queue], policies: Mapping[str, QueuePolicy]
    ) -> list[WaitingJob]:
        """Return jobs in the order of their queues; where these have several, each order by itself."""
        orders = {queue.name: order_of(policies[queue.name], self._settings) for queue in queues}
        ordered: list[WaitingJob] = []
        for order in dict.fromkeys(orders.values()):
            own = [job for job in jobs if orders[job.queue] == order]
            ordered += self._by(order, own, queues[0].priority)
        return ordered

    def _by(self, order: str, jobs: Sequence[WaitingJob], group: int) -> list[WaitingJob]:
        match order:
            case "MULTIFACTOR":
                return self._by_factors(jobs, group)
            case "CUSTOM":
                return self._by_plugin(jobs)
            case "FAIRSHARE":
                return self._by_karma(jobs, group)
        return sorted(jobs, key=lambda job: job.id)

    def _by_karma(self, jobs: Sequence[WaitingJob], group: int) -> list[WaitingJob]:
        kept = first_of_each_user(jobs, self._settings.max_jobs_per_user)
        for job in kept:
            share = self._done.shares[job.id] = self._share(job, group)
            self._done.karma[job.id] = share.karma(self._settings.fairshare)
        left_out = {job.id for job in jobs} - {job.id for job in kept}
        for job_id in left_out:
            self._done.reasons[job_id] = explain.limit(self._settings.max_jobs_per_user, "user")
        return sorted(kept, key=lambda job: (self._done.karma[job.id], job.id))

    def _by_plugin(self, jobs: Sequence[WaitingJob]) -> list[WaitingJob]:
        """Return the order of the site; first come, first served when it gives none."""
        known = {job.id: job for job in sorted(jobs, key=lambda job: job.id)}
        try:
            sort = self._site.sort
            ids = list(sort(self.snapshot, list(known.values()))) if sort else list(known)
        except Exception as error:  # noqa: BLE001 - the guard of a plug-in: the round must go on
            self._done.troubles.append(f"custom order: {type(error).__name__}: {error}; the oldest jobs go first")
            return list(known.values())
        if len(ids) != len(known) or set(ids) != known.keys():
            self._done.troubles.append("custom order: it is no permutation of the jobs; the oldest jobs go first")
            return list(known.values())
        return [known[number] for number in ids]

    def _by_factors(self, jobs: Sequence[WaitingJob], group: int) -> list[WaitingJob]:
        now, settings = self.snapshot.now, self._settings
        usable = self._spaces.usable
        resources = self.snapshot.resources
        everything = (usable.not_dead & resources.where(resources.types, "default")).bit_count()
        ranks: dict[int, float] = {}
        for job in jobs:
            walltime = job.alternatives[0].walltime if job.alternatives else 0
            karma = 0.0
            if settings.weights.karma_weight:
                share = self._done.shares[job.id] = self._share(job, group)
                karma = self._done.karma[job.id] = share.karma(settings.fairshare)
            factors = Factors(self._estimate(job), walltime, everything, now - job.submission_time, karma)
            ranks[job.id] = priority(job, self._traits[job.id], factors, settings.weights)
        return sorted(jobs, key=lambda job: (-ranks[job.id], job.id))

    def _share(self, job: WaitingJob, group: int) -> Share:
        consumption = self.snapshot.consumption.get(group, Consumption(0, 0))
        return share_of(job.user, job.project, consumption, self._settings.fairshare)

    # ------------------------------------------------------------------------------------------ schedulers of the site

    def _adopt_all(self, jobs: Sequence[WaitingJob], proposal: Proposal) -> None:
        """Enter the places that a scheduler of the site gave, as far as they can be (scheduling.md 3.2)."""
        done = self._done
        done.refused.extend(proposal.given_up)
        done.told.update(proposal.messages)
        places: dict[int, Placement] = {}
        for each in proposal.placements:
            places.setdefault(each.job_id, each)
        given_up = {answer.job_id for answer in proposal.given_up}
        for job in sorted(jobs, key=lambda job: job.id):
            if job.id in given_up or job.id in proposal.gone:
                continue
            if proposal.is_failed:
                done.reasons[job.id] = explain.outside_failed(proposal.scheduler)
            else:
                place = places.get(job.id)
                self._guarded(job, partial(self._adopt, proposal, place))

    def _adopt(self, proposal: Proposal, place: Placement | None, job: WaitingJob) -> None:
        done, traits, said = self._done, self._traits[job.id], proposal.said.get(job.id, "")
        flaw = proposal.rejected.get(job.id, "")
        if place is None and not flaw:
            done.reasons[job.id] = explain.outside(proposal.scheduler, said)
            return
        if place:
            place = replace(place, resources=place.resources & ~self._spaces.usable.shared)
            flaw = self._placer.flaw(job, traits, place, self.snapshot.now)
        if flaw or place is None:
            done.reasons[job.id] = explain.rejected(proposal.scheduler, flaw)
            done.troubles.append(f"[{job.id}] rejected placement of the scheduler {proposal.scheduler}: {flaw}")
            return
        hindrance = self._placer.hindrance(job, traits) if place.start <= self.snapshot.now else None
        self._placer.enter(job, place, traits)
        done.placements[job.id] = place
        done.outside.add(job.id)
        if hindrance:
            done.reasons[job.id] = hindrance
            return
        self._try_to_start(job, place, self._settings.dependency_condition)
        if place.start > self.snapshot.now:
            done.reasons.setdefault(job.id, explain.outside(proposal.scheduler, said, place.start))

    # ---------------------------------------------------------------------------------------------------- reservations

    def _answer_reservation(self, job: WaitingJob) -> None:
        policy = policy_of(self._queues[job.queue].policy) or QueuePolicy("")
        answer, placement = self._reservations.answer(job, has_quotas=has_quotas(policy, self._settings))
        if placement is None:
            self._done.refused.append(answer)
            return
        self._done.accepted.append(answer)
        self._done.placements[job.id] = placement
        self._done.reasons[job.id] = explain.reservation_date(placement.start)

    def _follow_reservation(self, job: WaitingJob) -> None:
        policy = policy_of(self._queues[job.queue].policy) or QueuePolicy("")
        due = self._reservations.due(job, policy.dependency_condition or self._settings.dependency_condition)
        if due.log:
            self._done.troubles.append(due.log)
        if due.is_expired:
            self._done.expired.append(Answer(job.id, EXPIRED))
            return
        if due.placement:
            self._done.placements[job.id] = due.placement
            if due.may_kill:
                self._kill_for(job, due.placement)
        if due.launch:
            self._done.launches.append(due.launch)
        self._done.reasons[job.id] = due.reason or explain.no_slot("its resources are lost")
        if due.launch:
            del self._done.reasons[job.id]

    def _regain(self) -> None:
        """Look for the resources of accepted reservations whose predictions were lost."""
        for job in self._jobs.values():
            if job.reservation is Reservation.SCHEDULED and job.granted is None and job.queue in self._active:
                found = self._reservations.regain(job)
                (self._done.regained if found else self._done.lost).append(job.id)
                self._done.told[job.id] = RENEWED if found else NO_RESOURCE

    # ------------------------------------------------------------------------------------------------ starting, killing

    def _try_to_start(self, job: WaitingJob, placement: Placement, condition: str) -> None:
        """Start a job whose placement begins now, or tell what is in its way."""
        if placement.start > self._horizon:
            return
        obstacle = self._launching.obstacle(job, self._placer.dependencies, condition)
        if obstacle is None:
            self._kill_for(job, placement)
        if placement.start > self.snapshot.now:
            return
        obstacle = obstacle or self._launching.holder(job, placement) or self._launching.absent(job, placement)
        if obstacle:
            self._done.reasons[job.id] = obstacle
        else:
            self._done.launches.append(Launch(placement))

    def _kill_for(self, job: WaitingJob, placement: Placement) -> None:
        """Have the besteffort jobs killed that stand in the way of a job that could start otherwise."""
        if placement.start > self._horizon or not self._launching.is_waking(job, placement):
            return
        for victim in self._launching.besteffort_in_the_way(job, placement):
            self._kill(victim, job.id)

    def _kill(self, victim: RunningJob, for_job: int) -> None:
        """Have a besteffort job killed, once, or let it write its checkpoint first."""
        deed = None if victim.id in self._done.kills else kill(victim, for_job, self.snapshot.now)
        if deed:
            self._done.kills[victim.id] = deed

    def _resume(self) -> tuple[int, ...]:
        """Return the suspended jobs that go on now, in order; besteffort jobs in the way of others have to go."""
        resumed = []
        for job in self._launching.resuming():
            obstacles = self._launching.in_the_way_of_resuming(job)
            if not obstacles:
                resumed.append(job.id)
            elif not self._traits[job.id].is_besteffort and all(traits.is_besteffort for _, traits in obstacles):
                for victim, _ in obstacles:
                    self._kill(victim, job.id)
        return tuple(resumed)

    # ---------------------------------------------------------------------------------------------------------- results

    def finish(self) -> Plan:
        """Return the plan."""
        done, snapshot = self._done, self.snapshot
        self._keep_other_reservations()
        self._explain_others()
        resumed = self._resume()
        shared = self._shared_alive()
        return Plan(
            now=snapshot.now,
            placements=tuple(_with(placement, shared) for placement in done.placements.values()),
            reasons={job_id: self._with_share(job_id, done.reasons[job_id]) for job_id in sorted(done.reasons)},
            messages=self._messages(),
            karma=dict(sorted(done.karma.items())),
            launches=tuple(
                Launch(_with(each.placement, shared), each.old_walltime, each.is_reduced) for each in done.launches
            ),
            kills=tuple(done.kills.values()),
            accepted=tuple(done.accepted),
            refused=tuple(done.refused),
            expired=tuple(done.expired),
            regained=tuple(done.regained),
            lost=tuple(done.lost),
            resumed=resumed,
            wake=self._wake(),
            halt=self._halt(),
            outside=tuple(sorted(done.outside)),
            troubles=tuple(done.troubles),
            failures=tuple(done.failures),
        )

    def memory(self, plan: Plan) -> Memory:
        """Return what the next round may use of this one and its plan."""
        return replace(
            self._placer.recollection.kept(),
            jobs=self._jobs,
            requests=(self.snapshot, self.requests),
            placements=self._done.placements,
            reasons=self._done.reasons,
            karma=self._done.karma,
            messages=plan.messages,
        )

    @property
    def recalled(self) -> int:
        """How many jobs were given what they had in the last round, without a search."""
        return self._placer.recollection.recalled

    def _with_share(self, job_id: int, reason: Reason) -> Reason:
        """Add to the data of a reason what decided on the job's turn."""
        share = self._done.shares.get(job_id)
        return replace(reason, data={**reason.data, "fairshare": asdict(share)}) if share else reason

    def _wake(self) -> tuple[str, ...]:
        if not self._settings.may_wake:
            return ()
        return to_wake(self.snapshot, self._done.placements.values(), self._traits)

    def _halt(self) -> tuple[str, ...]:
        return () if self._blocked else to_halt(self.snapshot, self._done.placements.values())

    def _keep_other_reservations(self) -> None:
        for job in self._jobs.values():
            if job.granted and job.id not in self._done.placements and job.id not in self._expired():
                walltime = next((a.walltime for a in job.alternatives if a.id == job.granted.alternative), 0)
                self._done.placements[job.id] = Placement(
                    job.id, job.granted.alternative, job.granted.start, walltime, job.granted.resources
                )

    def _explain_others(self) -> None:
        """Give a reason to the jobs that nobody has looked at in this round."""
        done = self._done
        starting = {launch.placement.job_id for launch in done.launches}
        settled = starting | {answer.job_id for answer in (*done.refused, *done.expired)}
        for job in self._jobs.values():
            if job.id not in done.reasons and job.id not in settled:
                done.reasons[job.id] = self._why_nobody_looked(job)

    def _why_nobody_looked(self, job: WaitingJob) -> Reason:
        if job.queue not in self._active:
            return explain.stopped_queue(job.queue)
        if job.granted:
            return explain.reservation_date(job.start_time)
        placement, policy = self._done.placements.get(job.id), self._queues[job.queue].policy
        if policy_of(policy) is None:
            return explain.outside(policy, "", placement.start if placement else 0)
        return explain.internal(self.snapshot.now, "it was overlooked")

    def _expired(self) -> set[int]:
        return {answer.job_id for answer in self._done.expired}

    def _messages(self) -> dict[int, str]:
        """Return the message of each job that was looked at."""
        answered = {answer.job_id for answer in (*self._done.refused, *self._done.expired)}
        messages: dict[int, str] = {}
        for job_id, job in self._jobs.items():
            if job_id in answered:
                continue
            if job_id in self._done.told:
                messages[job_id] = self._done.told[job_id]
            else:
                messages[job_id] = self._known_message(job) or self._message(job)
        return messages

    def _known_message(self, job: WaitingJob) -> str:
        """Return the message of the last round, if nothing that it tells has changed."""
        before, done, number = self._before, self._done, job.id
        if before is None or not self._placer.recollection.is_comparable or before.jobs.get(number) is not job:
            return ""
        is_same = (
            before.placements.get(number) is done.placements.get(number)
            and before.reasons.get(number) is done.reasons.get(number)
            and before.karma.get(number) == done.karma.get(number)
        )
        return before.messages.get(number, "") if is_same else ""

    def _message(self, job: WaitingJob) -> str:
        placement = self._done.placements.get(job.id)
        remarks = [f"Karma={self._done.karma[job.id]:.3f}"] if job.id in self._done.karma else []
        reason = self._done.reasons.get(job.id)
        if reason:
            remarks.append(reason.text.partition("\n")[0])
        kind = "I" if job.is_interactive else "B"
        return format_job_message(
            resources=placement.resources.bit_count() if placement else self._estimate(job),
            walltime=placement.walltime if placement else job.alternatives[0].walltime if job.alternatives else 0,
            kind="R" if job.reservation is not Reservation.NONE else kind,
            name=job.name,
            queue=job.queue,
            project=job.project,
            types=job.types,
            array_limit=job.array_limit,
            remark=",".join(remarks),
        )

    def _estimate(self, job: WaitingJob) -> int:
        """Return how many resources a job without placement would have on an empty machine."""
        request = self._placer.requests.get(job.alternatives[0].groups) if job.alternatives else None
        return request.fit(self._spaces.usable.present).bit_count() if isinstance(request, RequestFit) else 0

    # ---------------------------------------------------------------------------------------------------------- details

    def _read_types(self) -> dict[int, Traits]:
        traits: dict[int, Traits] = {}
        for job in self.snapshot.running:
            try:
                traits[job.id] = traits_of(job)
            except BadRequest:
                traits[job.id] = Traits()
        for waiting in self.snapshot.waiting:
            try:
                traits[waiting.id] = traits_of(waiting)
            except BadRequest as error:
                self._done.reasons[waiting.id] = explain.unreadable(str(error))
        return traits

    def _guarded(self, job: WaitingJob, work: Callable[[WaitingJob], None]) -> None:
        """Do something for one job; its trouble is its own (scheduling.md 1)."""
        try:
            work(job)
        except NoPlugin as error:
            self._done.reasons[job.id] = explain.no_plugin(str(error))
        except Exception as error:  # noqa: BLE001 - the guard of each job: the round must go on
            self._done.reasons[job.id] = self._broken(job, f"{type(error).__name__}: {error}")
            place = traceback.extract_tb(error.__traceback__)[-1]
            cause = f"{type(error).__name__} at {place.filename}:{place.lineno}"
            self._done.failures.append(Failure(job.id, cause, traceback.format_exc()))

    def _broken(self, job: WaitingJob, detail: str) -> Reason:
        """Return the reason of a job whose planning broke off; it names the round in which it first did so."""
        known = self._before.reasons.get(job.id) if self._before else None
        if known and known.code == "INTERNAL" and known.data.get("detail") == detail:
            return known
        return explain.internal(self.snapshot.now, detail)

    def _shared_resources_suspected(self) -> Reason | None:
        kind = self._settings.always_assigned_type
        resources = self.snapshot.resources
        suspected = resources.where(resources.states, ResourceState.SUSPECTED)
        if not kind or not resources.where(resources.types, kind) & suspected:
            return None
        reason = explain.shared_suspected(kind)
        self._done.troubles.append(reason.text)
        return reason

    def _shared_alive(self) -> int:
        return self._spaces.usable.shared & self._spaces.usable.alive


def _with(placement: Placement, shared: int) -> Placement:
    """Add the resources that every job gets."""
    if not shared:
        return placement
    resources = placement.resources | shared
    return Placement(placement.job_id, placement.alternative, placement.start, placement.walltime, resources)


def _readable(snapshot: Snapshot, traits: Mapping[int, Traits]) -> Snapshot:
    """Leave out the jobs whose types mean nothing; put the others in the order of their ids."""
    return replace(
        snapshot,
        waiting=tuple(sorted((job for job in snapshot.waiting if job.id in traits), key=lambda job: job.id)),
        running=tuple(sorted(snapshot.running, key=lambda job: job.id)),
    )
