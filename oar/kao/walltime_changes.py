"""Which asked changes of walltime are granted, against the plan of the last round (scheduling.md 13)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from oar.kao.model import RunningJob, Snapshot, WaitingJob
from oar.kao.traits import Traits, traits_of
from oar.lib.errors import BadRequest
from oar.lib.resource_set import ResourceSet, positions
from oar.lib.states import HALTED_NEVER_WOKEN, STANDBY_FOR_EVER, Reservation
from oar.lib.times import seconds_of


@dataclass(frozen=True, slots=True)
class Change:
    """A change that is asked for a running job."""

    job_id: int
    pending: int
    is_forced: bool = False
    delays_next_jobs: bool = False
    is_whole: bool = False
    granted: int = 0  #: so far
    timeout: int = 0  #: seconds after which it is dropped; 0 = never
    asked: int = 0  #: when


@dataclass(frozen=True, slots=True)
class Steps:
    """How changes are granted in a queue; below 1: a part of the original walltime."""

    apply_time: float = 0.0
    increment: float = 0.0


@dataclass(frozen=True, slots=True)
class Promise:
    """What the last round foresaw for a job that waits."""

    job: WaitingJob
    start: int
    resources: ResourceSet


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a change now."""

    seconds: int = 0  #: granted; below 0: taken away
    is_dropped: bool = False


#: Nothing now; the change stays pending.
LATER = Decision()


class Changes:
    """Decides on changes, one after the other."""

    def __init__(self, snapshot: Snapshot, promises: Iterable[Promise], steps: Mapping[str, Steps]) -> None:
        """``steps``: by queue; ``_`` stands for the other queues."""
        self._snapshot = snapshot
        self._promises = list(promises)
        self._steps = steps
        self._running = {job.id: job for job in snapshot.running}

    def decide(self, change: Change) -> Decision:
        """Decide on one change."""
        job = self._running.get(change.job_id)
        if job is None:
            return LATER
        end = job.start_time + job.walltime + job.suspended_time
        if change.pending < 0:
            return Decision(max(change.pending, min(0, self._snapshot.now - end)))
        steps = self._steps.get(job.queue) or self._steps.get("_") or Steps()
        if self._is_over(change, steps):
            return Decision(is_dropped=True)
        fit = self._wanted(change, job, end, steps)
        fit = min([fit, *(date - end for date in self._bounds(job))])
        fit = self._before_next(change, job, end, fit)
        return LATER if fit <= 0 or (change.is_whole and fit < change.pending) else Decision(fit)

    def _is_over(self, change: Change, steps: Steps) -> bool:
        waited = self._snapshot.now - change.asked
        return 0 < change.timeout <= waited and not steps.apply_time

    def _wanted(self, change: Change, job: RunningJob, end: int, steps: Steps) -> int:
        """Return how much may be granted now; 0 = not yet."""
        if change.is_forced:
            return change.pending
        original = job.walltime - change.granted
        before, step = seconds_of(steps.apply_time, original), seconds_of(steps.increment, original)
        if before and self._snapshot.now < end - before:
            return 0
        return min(change.pending, step) if step else change.pending

    def _bounds(self, job: RunningJob) -> list[int]:
        """Return dates after which the job cannot last, whoever else is there."""
        traits = _traits(job)
        upto = self._snapshot.resources.available_upto
        gap = self._snapshot.settings.security_time
        leaving = {upto[bit] for bit in positions(job.resources)}
        dates = [date - gap for date in leaving if HALTED_NEVER_WOKEN < date < STANDBY_FOR_EVER]
        if traits.deadline:
            dates.append(traits.deadline)
        if traits.inner:
            ends = [
                each.start_time + each.walltime + each.suspended_time
                for each in self._snapshot.running
                if _traits(each).container and traits.inner in (_traits(each).container, str(each.id))
            ]
            dates += [max(ends)] if ends else []
        return dates

    def _before_next(self, change: Change, job: RunningJob, end: int, fit: int) -> int:
        """Cut what is granted so that it ends before what is promised to others on the same resources."""
        gap = self._snapshot.settings.security_time
        mine = _traits(job)
        for promise in self._promises:
            if not (promise.resources & job.resources and end < promise.start <= end + fit + gap):
                continue
            if change.delays_next_jobs and promise.job.reservation is Reservation.NONE:
                continue
            other = _traits(promise.job)
            is_shared = mine.occupies_as in other.shares or other.occupies_as in mine.shares
            if not (other.is_besteffort or is_shared or other.inner != mine.inner):
                fit = min(fit, promise.start - gap - end)
        return fit


def _traits(job: RunningJob | WaitingJob) -> Traits:
    try:
        return traits_of(job)
    except BadRequest:
        return Traits()
