"""Dependencies (``oarsub -a``): the time window in which a job may start because of the jobs it requires.

See docs/design/planner.rst, "Dependencies".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from oar.kao.facts import reasons
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import FOREVER, RequiredJob, Snapshot, WaitingJob
from oar.lib.jobs.records import Dependency
from oar.lib.jobs.states import FINAL, DependencyCondition, JobState

#: ``[``: seconds after the start of the required job; ``]``: after its end; nothing: after its start.
_SHIFT = re.compile(r"([\[\]]?)([+-]?[0-9]{1,9})\Z", re.ASCII)

#: The message of a job whose window is over.
MISSED_WINDOW = "Job cancelled because its dependency requirements will never be met"


@dataclass(frozen=True, slots=True)
class StartWindow:
    """The earliest and the latest date at which a job may start."""

    begin: int
    latest: int = FOREVER
    begin_job: int = 0  #: the required job that decides on ``begin``
    latest_job: int = 0  #: the one that decides on ``latest``

    def intersected(self, other: "StartWindow") -> "StartWindow":
        begin = (self.begin, self.begin_job) if self.begin >= other.begin else (other.begin, other.begin_job)
        latest = (self.latest, self.latest_job) if self.latest <= other.latest else (other.latest, other.latest_job)
        return StartWindow(begin[0], latest[0], begin[1], latest[1])


@dataclass(frozen=True, slots=True)
class RequiredLifetime:
    """The start and the end of a required job, actual or planned."""

    start: int
    end: int
    is_over: bool = False


class Dependencies:
    """The dependencies of all waiting jobs."""

    def __init__(self, snapshot: Snapshot, placements: Mapping[int, Placement]) -> None:
        """``placements`` by job id; placements are added while the round is planned."""
        self._now = snapshot.now
        self._gap = snapshot.settings.security_time
        self._placements = placements
        self._running = {job.id: job for job in snapshot.running}
        self._ended = {job.id: job for job in snapshot.required if job.state in FINAL}
        self.any_time = StartWindow(snapshot.now)  #: the window of jobs without dependencies

    def window(self, job: WaitingJob, default_condition: DependencyCondition) -> StartWindow | Reason | None:
        """Return the window in which a job may start.

        Return a Reason if the window is unknown or empty; None if it has passed for good: the job can never start.
        """
        window = self.any_time
        for dependency in job.dependencies:
            dates = self._window_of(dependency, _condition(dependency, default_condition))
            if not isinstance(dates, StartWindow):
                return dates
            window = window.intersected(dates)
        return window

    def earliest(
        self, dependency: Dependency, default_condition: DependencyCondition, required: RequiredLifetime
    ) -> int:
        """Return the date before which a dependency lets no job start; ``required``: the earliest possible dates."""
        return self._dates(dependency, _condition(dependency, default_condition), required).begin

    def are_met(self, job: WaitingJob, default_condition: DependencyCondition) -> bool:
        """Return whether a job may start now: all required jobs have ended, or have started where that is enough."""
        for dependency in job.dependencies:
            condition, ended = _condition(dependency, default_condition), self._ended.get(dependency.required)
            if ended:
                is_met = _holds(condition, ended)
            else:
                is_met = dependency.required in self._running and _needs_only_start(dependency, condition)
            if not is_met:
                return False
        return True

    def _window_of(self, dependency: Dependency, condition: DependencyCondition) -> StartWindow | Reason | None:
        required = dependency.required
        ended = self._ended.get(required)
        if ended and not _holds(condition, ended):
            return reasons.broken_dependency(required)
        lifetime = self._lifetime(required)
        if lifetime is None:
            return reasons.unknown_dependency(required)
        window = self._dates(dependency, condition, lifetime)
        if window.latest < self._now:
            return None if lifetime.is_over else reasons.broken_dependency(required)
        return window

    def _dates(self, dependency: Dependency, condition: DependencyCondition, lifetime: RequiredLifetime) -> StartWindow:
        required = dependency.required
        after_end = self._now if lifetime.is_over else lifetime.end + self._gap
        if not (dependency.min_shift or dependency.max_shift):
            begin = lifetime.start if condition is DependencyCondition.START else after_end
            return StartWindow(begin, begin_job=required)
        latest = _shifted(dependency.max_shift, lifetime) if dependency.max_shift else FOREVER
        if dependency.min_shift:
            begin = _shifted(dependency.min_shift, lifetime)
        else:
            begin = after_end if dependency.max_shift.startswith("]") else lifetime.start
        return StartWindow(begin, latest, required, required)

    def _lifetime(self, job_id: int) -> RequiredLifetime | None:
        ended = self._ended.get(job_id)
        if ended:
            return RequiredLifetime(ended.start_time, ended.stop_time, is_over=True)
        running = self._running.get(job_id)
        if running:
            return RequiredLifetime(running.start_time, max(running.end, self._now))
        placement = self._placements.get(job_id)
        return RequiredLifetime(placement.start, placement.end) if placement else None


def _condition(dependency: Dependency, default: DependencyCondition) -> DependencyCondition:
    return DependencyCondition(dependency.condition) if dependency.condition else default


def _needs_only_start(dependency: Dependency, condition: DependencyCondition) -> bool:
    """Return whether it is sufficient that the required job has started."""
    if condition is DependencyCondition.START:
        return True
    shifts = [shift for shift in (dependency.min_shift, dependency.max_shift) if shift]
    return bool(shifts) and not any(shift.startswith("]") for shift in shifts)


def _holds(condition: DependencyCondition, ended: RequiredJob) -> bool:
    is_success = ended.state is JobState.TERMINATED and not ended.exit_code
    match condition:
        case DependencyCondition.OK:
            return is_success
        case DependencyCondition.NOT_OK:
            return not is_success
        case DependencyCondition.START:
            return ended.start_time > 0
    return True


def _shifted(shift: str, lifetime: RequiredLifetime) -> int:
    match = _SHIFT.match(shift)
    if not match:
        raise ValueError(f"{shift} is not a shift of a dependency")
    return (lifetime.end if match[1] == "]" else lifetime.start) + int(match[2])
