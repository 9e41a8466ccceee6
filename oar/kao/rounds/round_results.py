"""The results of a round besides the plan: exit code, next date, durations, predictions for interactive jobs."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple

from oar.kao.facts.job_types import expiry_date
from oar.kao.facts.plan import KillAction, Placement, Plan
from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.lib.base.formats import Format, dump
from oar.lib.base.times import format_date
from oar.lib.bus.exit_codes import MetaSchedCode
from oar.lib.config.files import Config
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.reservations.states import STARTED


def exit_code(plan: Plan) -> MetaSchedCode:
    """Return the exit code, which is the instruction for Almighty."""
    if any(kill.action is not KillAction.CHECKPOINT for kill in plan.kills):
        return MetaSchedCode.KILL
    has_begun = any(step.notes and (step.state in STARTED or step.resources) for step in plan.reservations)
    is_near = any(answer.start <= plan.now + 1 for answer in plan.accepted)
    return MetaSchedCode.AGAIN if has_begun or is_near else MetaSchedCode.DONE


def next_start(snapshot: Snapshot, plan: Plan) -> int | None:
    """Return when the next job starts or expires, or a reservation changes; Sarko watches reservation jobs."""
    reserved = {job.id for job in snapshot.waiting if job.reservation is not Reservation.NONE}
    starts = (placement.start for placement in plan.placements if placement.job_id not in reserved)
    ends = (expiry_date(job) for job in snapshot.waiting if job.types and job.id not in reserved)
    return min((date for date in (*starts, *ends, *plan.reservation_dates) if date > plan.now), default=None)


class RoundPart(StrEnum):
    """A part of a round."""

    READ = "read"  #: reads the database
    PLAN = "plan"
    WRITE = "write"  #: writes what is decided


class RoundPhases:
    """The durations of one round, the number of waiting jobs, and the number of undecided jobs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = dict.fromkeys(RoundPart, 0.0)
        self.jobs = 0  #: that waited
        self.undecided = 0  #: jobs that were left to a plan between the rounds
        self.file_errors: list[str] = []  #: of files of policies that could not be read

    @contextmanager
    def of(self, part: RoundPart) -> Iterator[None]:
        """Add the time of the ``with`` block to a part; a part may have several blocks."""
        begin = self._clock()
        try:
            yield
        finally:
            self._seconds[part] += self._clock() - begin

    @property
    def record(self) -> dict[str, object]:
        phases = {str(part): round(each, 4) for part, each in self._seconds.items()}
        return {"jobs": self.jobs, "undecided": self.undecided, "phases": phases, "file_errors": self.file_errors}


log = logging.getLogger(__name__)


def report_timings(config: Config, snapshot: Snapshot, plan: Plan, seconds: Mapping[int, float]) -> None:
    """Write the placement times of the jobs of a round, in planning order, to the log and to a YAML file.

    The keys are SCHEDULER_LOG_JOB_SCHEDULING_TIME and SCHEDULER_JOB_SCHEDULING_TIME_YAML.
    """
    if config.scheduler_log_job_scheduling_time:
        for job_id, duration in seconds.items():
            log.info("scheduling timing: job %d scheduled in %.3f ms", job_id, 1000 * duration)
    path = config.scheduler_job_scheduling_time_yaml
    if path and seconds:
        jobs = {job.id: job for job in snapshot.waiting}
        placements = {placement.job_id: placement for placement in plan.placements}
        records = [
            _record(jobs[job_id], snapshot, placements.get(job_id), 1000 * duration)
            for job_id, duration in seconds.items()
        ]
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(dump(records, Format.YAML))
        except OSError as error:
            log.error("cannot write SCHEDULER_JOB_SCHEDULING_TIME_YAML %s: %s", path, error.strerror)


def _record(job: WaitingJob, snapshot: Snapshot, placement: Placement | None, milliseconds: float) -> dict[str, object]:
    """Return the record of a job, without empty values."""
    first_walltime = job.alternatives[0].walltime if job.alternatives else 0
    record: dict[str, object] = {
        "job_id": job.id,
        "name": job.name,
        "queue": job.queue,
        "user": job.user,
        "project": job.project,
        "types": list(job.types),
        "dependencies": [dependency.required for dependency in job.dependencies],
        "walltime": placement.walltime if placement else first_walltime,
        "start_time": placement.start if placement else 0,
        "moldable_id": placement.alternative if placement else 0,
        "resources": snapshot.resources.ids_of(placement.resources) if placement else [],
        "scheduling_time_ms": round(milliseconds, 3),
    }
    return {name: value for name, value in record.items() if value or name == "scheduling_time_ms"}


#: An interactive job hears its prediction when it changes, and at least so often.
PREDICTION_PERIOD = 60


class PredictionLine(NamedTuple):
    """A line for the oarsub process that waits for a job."""

    job_id: int
    text: str


class InteractivePredictions:
    """Decides which jobs receive their prediction; stores the last prediction sent to each."""

    def __init__(self) -> None:
        self._last_told: dict[int, tuple[str, int]] = {}  #: by job id: the prediction, and the date

    def lines(self, waiting: Sequence[WaitingJob], plan: Plan) -> list[PredictionLine]:
        """Return a line for each interactive job whose prediction has changed, or is older than PREDICTION_PERIOD."""
        starts = {placement.job_id: placement.start for placement in plan.placements}
        started = {start.placement.job_id for start in plan.started}
        told: dict[int, tuple[str, int]] = {}
        lines = []
        for job in waiting:
            is_listening = job.is_interactive and job.reservation is Reservation.NONE and job.state is JobState.WAITING
            if not is_listening or job.id in started or job.id not in plan.messages:
                continue
            prediction = prediction_text(plan, job.id, starts.get(job.id))
            last_prediction, date = self._last_told.get(job.id, ("", 0))
            if prediction == last_prediction and plan.now - date < PREDICTION_PERIOD:
                told[job.id] = prediction, date
                continue
            told[job.id] = prediction, plan.now
            lines.append(PredictionLine(job.id, f"[{format_date(plan.now)}] Start prediction: {prediction}"))
        self._last_told = told
        return lines


def prediction_text(plan: Plan, job_id: int, start: int | None) -> str:
    """Return the expected start of an interactive job and its message, or why the start is unknown."""
    reason = plan.reasons.get(job_id)
    if start is None or (reason and reason.data.get("overdue")):
        return f"undefined ({reason.text if reason else ''})"
    return f"{format_date(start)} ({plan.messages[job_id]})"
