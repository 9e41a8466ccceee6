"""How long the placement of each job took: lines in the log, and documents in a file (scheduling.md 15)."""

import logging
from collections.abc import Mapping

from oar.kao.model import Placement, Plan, Snapshot, WaitingJob
from oar.lib.config import Config
from oar.lib.formats import Format, dump

log = logging.getLogger(__name__)


class Timings:
    """Writes the times of rounds where the configuration wants them."""

    def __init__(self, config: Config) -> None:
        self._is_logged = config.scheduler_log_job_scheduling_time
        self._path = config.scheduler_job_scheduling_time_yaml

    def note(self, snapshot: Snapshot, plan: Plan, seconds: Mapping[int, float]) -> None:
        """Write the times of the jobs of a round, in the order of planning."""
        if self._is_logged:
            for job_id, time in seconds.items():
                log.info("scheduling timing: job %d scheduled in %.3f ms", job_id, 1000 * time)
        if self._path and seconds:
            self._append(self._path, snapshot, plan, seconds)

    def _append(self, path: str, snapshot: Snapshot, plan: Plan, seconds: Mapping[int, float]) -> None:
        jobs = {job.id: job for job in snapshot.waiting}
        places = {place.job_id: place for place in plan.placements}
        records = [_record(jobs[job_id], snapshot, places.get(job_id), 1000 * time) for job_id, time in seconds.items()]
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(dump(records, Format.YAML))
        except OSError as error:
            log.error("cannot write SCHEDULER_JOB_SCHEDULING_TIME_YAML %s: %s", path, error.strerror)


def _record(job: WaitingJob, snapshot: Snapshot, place: Placement | None, milliseconds: float) -> dict[str, object]:
    """Return what is told of a job; what is empty is left out."""
    walltime = place.walltime if place else next((each.walltime for each in job.alternatives), 0)
    record: dict[str, object] = {
        "job_id": job.id,
        "name": job.name,
        "queue": job.queue,
        "user": job.user,
        "project": job.project,
        "types": list(job.types),
        "dependencies": [each.required for each in job.dependencies],
        "walltime": walltime,
        "start_time": place.start if place else 0,
        "moldable_id": place.alternative if place else 0,
        "resources": snapshot.resources.ids_of(place.resources) if place else [],
        "scheduling_time_ms": round(milliseconds, 3),
    }
    return {name: value for name, value in record.items() if value or name == "scheduling_time_ms"}
