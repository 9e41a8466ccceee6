"""Decide on requested changes of walltime, based on the plan of the last round.

See docs/design/planner.rst, "Walltime changes".
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from oar.kao.facts.job_types import ParsedTypes, is_inside, parse_types_or_none
from oar.kao.facts.snapshot import RunningJob, Snapshot, WaitingJob
from oar.lib.base.resource_set import ResourceSet, positions
from oar.lib.base.times import seconds_of
from oar.lib.jobs.states import Reservation
from oar.lib.nodes.states import HALTED_NEVER_WOKEN, STANDBY_FOR_EVER
from oar.lib.reservations.states import GRANTED


@dataclass(frozen=True, slots=True)
class RequestedWalltime:
    """A requested change of the walltime of a running job.  Durations are in seconds."""

    job_id: int
    pending: int  #: what is requested and not granted yet; below 0: less time
    is_forced: bool = False
    delays_next_jobs: bool = False
    is_whole: bool = False  #: all of it or nothing
    granted: int = 0  #: so far
    timeout: int = 0  #: after that the request is dropped; 0 = never
    requested_at: int = 0  #: date


@dataclass(frozen=True, slots=True)
class GrantSteps:
    """The steps in which a queue grants changes, in seconds; below 1: as a fraction of the original walltime."""

    apply_time: float = 0.0  #: nothing is granted earlier before the end of the job; 0 = at once
    increment: float = 0.0  #: granted at a time, at most; 0 = everything


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """The start of a waiting job in the plan of the last round."""

    job: WaitingJob
    start: int
    resources: ResourceSet


@dataclass(frozen=True, slots=True)
class GrantDecision:
    """The decision on one request."""

    seconds: int = 0  #: granted now; below 0: taken away
    is_dropped: bool = False


#: Nothing is granted now; the request stays pending.
LATER = GrantDecision()


class WalltimeGrants:
    """Decides on walltime requests one after the other."""

    def __init__(
        self, snapshot: Snapshot, planned_starts: Iterable[PlannedStart], steps: Mapping[str, GrantSteps]
    ) -> None:
        """``steps`` by queue; ``_`` stands for all other queues."""
        self._snapshot = snapshot
        self._planned_starts = list(planned_starts)
        self._steps = steps
        self._running = {job.id: job for job in snapshot.running}
        self._frames = {each.frame_id for each in snapshot.reservations}

    def decide(self, request: RequestedWalltime) -> GrantDecision:
        job = self._running.get(request.job_id)
        if job is None or request.job_id in self._frames:
            return LATER
        if request.pending < 0:
            return GrantDecision(max(request.pending, min(0, self._snapshot.now - job.end)))
        steps = self._steps.get(job.queue) or self._steps.get("_") or GrantSteps()
        waited = self._snapshot.now - request.requested_at
        if 0 < request.timeout <= waited and not steps.apply_time:
            return GrantDecision(is_dropped=True)
        grant = min([self._step(request, job, steps), *(date - job.end for date in self._latest_ends(job))])
        grant = self._before_next_jobs(request, job, grant)
        return LATER if grant <= 0 or (request.is_whole and grant < request.pending) else GrantDecision(grant)

    def _step(self, request: RequestedWalltime, job: RunningJob, steps: GrantSteps) -> int:
        """Return by how many seconds the queue allows a job to be extended now; 0: too early."""
        if request.is_forced:
            return request.pending
        original = job.walltime - request.granted
        apply_time, increment = seconds_of(steps.apply_time, original), seconds_of(steps.increment, original)
        if apply_time and self._snapshot.now < job.end - apply_time:
            return 0
        return min(request.pending, increment) if increment else request.pending

    def _latest_ends(self, job: RunningJob) -> list[int]:
        """Return the dates that limit the end of a job: resources, deadline, container, advance reservations."""
        types = parse_types_or_none(job)
        upto = self._snapshot.resources.available_upto
        limits = {upto[bit] for bit in positions(job.resources)}
        security_time = self._snapshot.settings.security_time
        dates = [limit - security_time for limit in limits if HALTED_NEVER_WOKEN < limit < STANDBY_FOR_EVER]
        if types.deadline:
            dates.append(types.deadline)
        if types.inner:
            ends = [
                container.end
                for container in self._snapshot.running
                if types.inner in parse_types_or_none(container).container_names(container.id)
            ]
            dates += [max(ends)] if ends else []
        return [*dates, *self._dates_of_reservations(job, types)]

    def _dates_of_reservations(self, job: RunningJob, types: ParsedTypes) -> Iterator[int]:
        """Iterate over the latest ends of a job because of reservations: the end of its own, the start of others."""
        for reservation in self._snapshot.reservations:
            if not is_inside(types, reservation):
                if reservation.state in GRANTED and reservation.resources & job.resources:
                    yield reservation.start - self._snapshot.settings.security_time
            elif not reservation.is_flexible:
                yield reservation.latest_job_end

    def _before_next_jobs(self, request: RequestedWalltime, job: RunningJob, grant: int) -> int:
        """Return the grant, reduced so that the job ends before the next jobs on its resources start."""
        security_time = self._snapshot.settings.security_time
        types = parse_types_or_none(job)
        for planned in self._planned_starts:
            if not (planned.resources & job.resources and job.end < planned.start <= job.end + grant + security_time):
                continue
            if request.delays_next_jobs and planned.job.reservation is Reservation.NONE:
                continue
            next_types = parse_types_or_none(planned.job)
            is_in_same_space = next_types.inner == types.inner
            if is_in_same_space and not next_types.is_besteffort and not types.may_share_with(next_types):
                grant = min(grant, planned.start - security_time - job.end)
        return grant
