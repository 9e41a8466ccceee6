"""From when on, and until when, a job may start because of the jobs it requires (scheduling.md 10)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from oar.kao import explain
from oar.kao.model import FOREVER, Placement, Reason, RequiredJob, RunningJob, Snapshot, WaitingJob
from oar.lib.model import Dependency
from oar.lib.states import FINAL, DependencyCondition, JobState

#: ``[``: from the start of the required job; ``]``: from its end; nothing: from its start.
_SHIFT = re.compile(r"([\[\]]?)([+-]?[0-9]{1,9})\Z", re.ASCII)

#: What a job whose window is over is told.
MISSED = "Job cancelled because its dependency requirements will never be met"


@dataclass(frozen=True, slots=True)
class Window:
    """Dates between which a job may start."""

    begin: int
    latest: int = FOREVER
    begin_job: int = 0  #: the job that decides on ``begin``
    latest_job: int = 0  #: and the one that decides on ``latest``

    def and_also(self, other: "Window") -> "Window":
        """Return the dates that both allow."""
        begin = (self.begin, self.begin_job) if self.begin >= other.begin else (other.begin, other.begin_job)
        latest = (self.latest, self.latest_job) if self.latest <= other.latest else (other.latest, other.latest_job)
        return Window(begin[0], latest[0], begin[1], latest[1])


@dataclass(frozen=True, slots=True)
class Missed:
    """The window is over: the job can never start."""

    job: int


@dataclass(frozen=True, slots=True)
class _Life:
    """When the required job runs, as far as it is known."""

    start: int
    end: int
    is_over: bool = False


class Dependencies:
    """The required jobs of a round."""

    def __init__(self, snapshot: Snapshot, placed: Mapping[int, Placement]) -> None:
        """``placed`` grows while the round is planned."""
        self._now = snapshot.now
        self._gap = snapshot.settings.security_time
        self._placed = placed
        self._running = {job.id: job for job in snapshot.running}
        self._required = {job.id: job for job in snapshot.required}

    def window(self, job: WaitingJob, default: str) -> Window | Reason | Missed:
        """Return when the job may start; a reason if that is not known or never."""
        window = Window(self._now)
        for dependency in job.dependencies:
            condition = dependency.condition or default
            one = self._one(dependency, condition)
            if not isinstance(one, Window):
                return one
            window = window.and_also(one)
        return window

    def are_met(self, job: WaitingJob, default: str) -> bool:
        """Whether the job may start now: the required jobs have really ended, or started where that is enough."""
        return all(self._is_met(each, each.condition or default) for each in job.dependencies)

    def _is_met(self, dependency: Dependency, condition: str) -> bool:
        ended = self._ended(dependency.required)
        if ended:
            return _holds(condition, ended)
        return dependency.required in self._running and self._needs_only_start(dependency, condition)

    def _needs_only_start(self, dependency: Dependency, condition: str) -> bool:
        if condition == DependencyCondition.START:
            return True
        shifts = [shift for shift in (dependency.min_shift, dependency.max_shift) if shift]
        return bool(shifts) and not any(shift.startswith("]") for shift in shifts)

    def _one(self, dependency: Dependency, condition: str) -> Window | Reason | Missed:
        required = dependency.required
        ended = self._ended(required)
        if ended and not _holds(condition, ended):
            return explain.broken_dependency(required)
        life = self._life(required)
        if life is None:
            return explain.unknown_dependency(required)
        window = self._dates(dependency, condition, life)
        if window.latest < self._now:
            return Missed(required) if life.is_over else explain.broken_dependency(required)
        return window

    def _dates(self, dependency: Dependency, condition: str, life: _Life) -> Window:
        job = dependency.required
        after_end = self._now if life.is_over else life.end + self._gap
        if not (dependency.min_shift or dependency.max_shift):
            begin = life.start if condition == DependencyCondition.START else after_end
            return Window(begin, begin_job=job)
        latest = _shifted(dependency.max_shift, life) if dependency.max_shift else FOREVER
        if dependency.min_shift:
            begin = _shifted(dependency.min_shift, life)
        else:
            begin = after_end if dependency.max_shift.startswith("]") else life.start
        return Window(begin, latest, job, job)

    def _ended(self, job_id: int) -> RequiredJob | None:
        job = self._required.get(job_id)
        return job if job and job.state in FINAL else None

    def _life(self, job_id: int) -> _Life | None:
        ended = self._ended(job_id)
        if ended:
            return _Life(ended.start_time, ended.stop_time, is_over=True)
        running = self._running.get(job_id)
        if running:
            return _Life(running.start_time, max(_end(running), self._now))
        placed = self._placed.get(job_id)
        return _Life(placed.start, placed.end) if placed else None


def _end(job: RunningJob) -> int:
    return job.start_time + job.walltime + job.suspended_time


def _holds(condition: str, job: RequiredJob) -> bool:
    """Whether an ended job ended as asked."""
    is_good = job.state is JobState.TERMINATED and not job.exit_code
    match condition:
        case DependencyCondition.OK:
            return is_good
        case DependencyCondition.NOT_OK:
            return not is_good
        case DependencyCondition.START:
            return job.start_time > 0
    return True


def _shifted(shift: str, life: _Life) -> int:
    match = _SHIFT.match(shift)
    if not match:
        raise ValueError(f"{shift} is not a shift of a dependency")
    return (life.end if match[1] == "]" else life.start) + int(match[2])
