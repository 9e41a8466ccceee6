"""The placement time of each job: lines in the log, and documents in a YAML file."""

import logging
from collections.abc import Mapping

from oar.kao.facts.plan import Placement, Plan
from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.lib.base.formats import Format, dump
from oar.lib.config.files import Config

log = logging.getLogger(__name__)


class TimingLog:
    """Writes placement times according to SCHEDULER_LOG_JOB_SCHEDULING_TIME and SCHEDULER_JOB_SCHEDULING_TIME_YAML."""

    def __init__(self, config: Config) -> None:
        self._is_logged = config.scheduler_log_job_scheduling_time
        self._path = config.scheduler_job_scheduling_time_yaml

    def write(self, snapshot: Snapshot, plan: Plan, seconds: Mapping[int, float]) -> None:
        """Write the placement times of the jobs of a round, in planning order."""
        if self._is_logged:
            for job_id, duration in seconds.items():
                log.info("scheduling timing: job %d scheduled in %.3f ms", job_id, 1000 * duration)
        if self._path and seconds:
            self._append(self._path, snapshot, plan, seconds)

    def _append(self, path: str, snapshot: Snapshot, plan: Plan, seconds: Mapping[int, float]) -> None:
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
