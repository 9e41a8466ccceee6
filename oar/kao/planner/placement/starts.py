"""Starts: placements that begin now, besteffort jobs that must leave for them, and suspended jobs that resume.

See docs/design/planner.rst, "Starts" and "Besteffort jobs".
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes, is_inside
from oar.kao.facts.plan import JobStart, Kill, KillAction, Placement, Reason
from oar.kao.facts.snapshot import PlannedReservation, RunningJob, WaitingJob
from oar.kao.planner.limits.dependencies import Dependencies
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.resources.node_memory import MemoryLedger
from oar.kao.planner.resources.resource_holders import Holder, ResourceHolders
from oar.lib.base.resource_set import ResourceSet, from_positions, positions
from oar.lib.jobs.states import DependencyCondition, JobState
from oar.lib.reservations.states import GRANTED


def order_to_leave(job: RunningJob, for_job: int, now: int) -> Kill | None:
    """Return the order to leave for another job; None if it is ending or writes its checkpoint."""
    if job.is_killed or job.state is JobState.FINISHING:
        return None
    if not job.checkpoint:
        return Kill(job.id, for_job, KillAction.KILL)
    if not job.checkpoint_asked:
        return Kill(job.id, for_job, KillAction.CHECKPOINT)
    if now <= job.checkpoint_asked + job.checkpoint:
        return None
    return _end(job, for_job)


def order_to_be_gone(job: RunningJob, for_job: int, now: int, date: int) -> Kill | None:
    """Return the order to a besteffort job that must have left its resources by ``date``.

    The order is to write a checkpoint before that date, or to end at that date.  A checkpoint that was requested too
    late does not extend the time.  Return None if no order is due.
    """
    if job.is_killed or job.state is JobState.FINISHING:
        return None
    if now >= date:
        return _end(job, for_job)
    if job.checkpoint and not job.checkpoint_asked and now >= date - job.checkpoint:
        return Kill(job.id, for_job, KillAction.CHECKPOINT)
    return None


def _end(job: RunningJob, for_job: int) -> Kill:
    """Return the order to end.  The checkpoint timeout is reported only once."""
    is_news = job.checkpoint_asked and not job.is_checkpoint_over
    return Kill(job.id, for_job, KillAction.CHECKPOINT_TIMEOUT if is_news else KillAction.KILL)


#: States in which a job holds its resources against every other job.
_HOLDING = frozenset({JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING, JobState.FINISHING})


def resuming_holders(holders: ResourceHolders) -> list[Holder]:
    """Return the jobs in Resuming, in the order in which they resume."""
    jobs = [holder for holder in holders.all if holder.job.state is JobState.RESUMING and not holder.job.is_killed]
    return sorted(jobs, key=_turn)


def holders_in_the_way(holders: ResourceHolders, resuming_job: Holder) -> list[Holder]:
    """Return the jobs that hold resources of a job in Resuming, or that resume before it on some of them."""
    inside = holders.inside(resuming_job)
    return [
        holder
        for holder in holders.all
        if holder.resources & resuming_job.resources
        and holder.job.id != resuming_job.job.id
        and holder.job.id not in inside
        and (
            holder.job.state in _HOLDING
            or (holder.job.state is JobState.RESUMING and _turn(holder) < _turn(resuming_job))
        )
        and not holders.may_share(resuming_job.types, holder)
    ]


def reservations_in_the_way(
    reservations: Iterable[PlannedReservation], resuming_job: Holder, now: int, margin: int
) -> list[PlannedReservation]:
    """Return the other reservations that conflict with a job in Resuming before its end.

    ``margin``: SCHEDULER_JOB_SECURITY_TIME, in seconds.  Besteffort jobs are ignored until the reservation begins,
    because they leave in time.
    """
    types, end = resuming_job.types, resuming_job.job.end + margin
    return [
        reservation
        for reservation in reservations
        if reservation.state in GRANTED
        and reservation.start < end
        and now < reservation.end
        and not (types.is_besteffort and now < reservation.start)
        and reservation.resources & resuming_job.resources
        and not is_inside(types, reservation)
    ]


def _turn(holder: Holder) -> tuple[int, int]:
    return holder.job.turn, holder.job.id


class Starts:
    """Decides which jobs start now, and orders besteffort jobs to leave for them."""

    def __init__(
        self, context: RoundContext, dependencies: Dependencies, closed: Mapping[str, Reason] | None = None
    ) -> None:
        """``closed``: the containers in which no job may start now, with the reasons."""
        self._closed = closed or {}
        self._now = context.now
        #: besteffort jobs leave for placements that begin until then
        self._horizon = context.now + max(context.settings.besteffort_kill_before, context.settings.security_time)
        self._resources = context.snapshot.resources
        self._reservations = context.snapshot.reservations
        self._security_time = context.settings.security_time
        self._types = context.types
        self._usable = context.usable
        self._decisions = context.decisions
        self._dependencies = dependencies
        self._memory = context.spaces.memory
        self._holders = ResourceHolders(context.snapshot, context.types, context.usable.shared)

    @property
    def soon(self) -> int:
        """Return the latest start that this round decides: a job starts now, or besteffort jobs must leave for it."""
        return self._horizon if self._holders.has_besteffort else self._now

    def start_if_due(self, job: WaitingJob, placement: Placement, dependency_condition: DependencyCondition) -> None:
        """Start a job whose placement begins now, or record the reason why it cannot start."""
        if placement.start > self._horizon:
            return
        obstacle = self.obstacle(job, dependency_condition)
        if obstacle is None:
            self.clear_way(job, placement)
        if placement.start > self._now:
            return
        obstacle = obstacle or self.holder(job, placement)
        missing = 0 if obstacle else placement.resources & ~self.startable(self._types[job.id], placement.end)
        if missing:
            obstacle = reasons.waits_for_nodes(self.names(missing))
        if obstacle:
            self._decisions.reasons[job.id] = obstacle
        else:
            self._decisions.started.append(JobStart(placement))

    def clear_way(self, job: WaitingJob, placement: Placement) -> None:
        """Order besteffort jobs on a placement to leave, if nothing else prevents an early start of the job."""
        if placement.start > self._horizon:
            return
        startable = self.startable(self._types[job.id], placement.end) | self._usable.wakeable
        if placement.resources & ~startable:
            return
        for besteffort_job in self._besteffort_jobs(job, placement):
            self._give(order_to_leave(besteffort_job, job.id, self._now))

    def clear_in_time(self, besteffort_jobs: Iterable[RunningJob], for_job: int, date: int) -> None:
        """Order besteffort jobs to have left by ``date``; jobs with checkpoints receive the order earlier."""
        for besteffort_job in besteffort_jobs:
            self._give(order_to_be_gone(besteffort_job, for_job, self._now, date))

    def resume(self) -> tuple[int, ...]:
        """Return the jobs in Resuming that resume now, in order; order besteffort jobs to leave for the others.

        Jobs that wait for advance reservations get a reason.
        """
        resumed = []
        for holder in resuming_holders(self._holders):
            ahead = reservations_in_the_way(self._reservations, holder, self._now, self._security_time)
            if ahead:
                last = max(ahead, key=lambda reservation: (reservation.end, reservation.number))
                self._decisions.reasons[holder.job.id] = reasons.until_over(last.number, last.end)
                continue
            obstacles = holders_in_the_way(self._holders, holder)
            if not obstacles:
                resumed.append(holder.job.id)
            elif not holder.types.is_besteffort and all(obstacle.types.is_besteffort for obstacle in obstacles):
                for obstacle in obstacles:
                    self._give(order_to_leave(obstacle.job, holder.job.id, self._now))
        return tuple(resumed)

    def obstacle(self, job: WaitingJob, dependency_condition: DependencyCondition) -> Reason | None:
        """Return why a job may not start on any resources; return None if it may."""
        inner = self._types[job.id].inner
        if job.is_killed:
            return reasons.killed()
        if inner in self._closed:
            return self._closed[inner]
        if inner and not self._holders.is_running(inner):
            return reasons.waits_for_container(inner)
        if not self._dependencies.are_met(job, dependency_condition):
            return reasons.unknown_dependency(job.dependencies[0].required)
        return None

    def holder(self, job: WaitingJob, placement: Placement) -> Reason | None:
        """Return the reason if another job still holds resources of a placement that begins now; otherwise None."""
        besteffort_jobs = self._besteffort_jobs(job, placement)
        if besteffort_jobs:
            return reasons.waits_for_besteffort([besteffort_job.id for besteffort_job in besteffort_jobs])
        holders = self._holders.of(placement.resources, self._types[job.id])
        return reasons.waits_for_holder(holders[0].job.id) if holders else None

    def startable(self, types: ParsedTypes, end: int) -> ResourceSet:
        """Return the resources on which a job of these types with this end can start now."""
        usable = self._usable.alive
        if types.starts_anywhere:
            usable = self._usable.not_dead
        elif types.is_standby:
            upto = self._resources.available_upto
            usable |= from_positions(bit for bit in positions(self._usable.absent) if upto[bit] > end)
        return usable

    def names(self, resources: ResourceSet) -> list[str]:
        """Return the nodes of these resources; return texts with resource ids if they belong to no node."""
        nodes = self._resources.nodes_of(resources)
        return nodes or [f"resource {number}" for number in self._resources.ids_of(resources)]

    def _besteffort_jobs(self, job: WaitingJob, placement: Placement) -> list[RunningJob]:
        """Return the besteffort jobs that hold resources of a placement; return [] if the job is besteffort itself."""
        types = self._types[job.id]
        if types.is_besteffort or not self._holders.has_besteffort:
            return []
        there = [holder.job for holder in self._holders.of(placement.resources, types) if holder.types.is_besteffort]
        return there + self._in_memory(self._memory, placement, there) if self._memory else there

    def _in_memory(self, ledger: MemoryLedger, placement: Placement, leaving: Sequence[RunningJob]) -> list[RunningJob]:
        """Return the besteffort jobs whose memory a booked placement needs, the latest first; ``leaving``: others."""
        use = ledger.use(placement.job_id, placement.alternative, placement.resources) or ()
        found = {job.id: job for job in leaving}
        for number in use:
            users = self._besteffort_memory.get(number)
            lack = sum(users.values()) - ledger.free(number, placement.start, placement.end) if users else 0
            if not users or lack <= 0:
                continue
            lack -= sum(users.get(job_id, 0) for job_id in found)
            for job_id in sorted(users.keys() - found.keys(), key=self._order_of_leaving) if lack > 0 else ():
                if lack > 0:
                    found[job_id] = self._besteffort[job_id]
                    lack -= users[job_id]
        return list(found.values())[len(leaving) :]

    @cached_property
    def _besteffort(self) -> Mapping[int, RunningJob]:
        """Return the besteffort jobs with memory, by id."""
        holders = self._holders.all
        return {holder.job.id: holder.job for holder in holders if holder.types.is_besteffort and holder.job.memory}

    @cached_property
    def _besteffort_memory(self) -> Mapping[int, Mapping[int, int]]:
        """Return the MiB of besteffort jobs, by node and job."""
        used: dict[int, dict[int, int]] = {}
        for job in self._besteffort.values():
            owned = job.resources & ~self._usable.shared
            use = self._memory.nodes.use(job.memory, owned) if self._memory and job.memory else {}
            for number, mib in use.items():
                used.setdefault(number, {})[job.id] = mib
        return used

    def _order_of_leaving(self, job_id: int) -> tuple[bool, int, int]:
        """Return the sort key of a besteffort job: jobs that leave anyway come first, then the latest."""
        job = self._besteffort[job_id]
        stays = not (job.is_killed or job.state is JobState.FINISHING or job_id in self._decisions.kills)
        return stays, -job.start_time, -job_id

    def _give(self, kill: Kill | None) -> None:
        """Record an order; only the first order to each job in a round counts."""
        if kill:
            self._decisions.kills.setdefault(kill.job_id, kill)
