"""Ended jobs for export to files: completion records and traces."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.records import Job
from oar.lib.jobs.usage import JobUsage, job_usages

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Of a job that has no cause: it ended under an older version.
_NO_CAUSE = Cause(EndCode.UNKNOWN)


class Completion(NamedTuple):
    """An ended job with its resources, its end cause and its resource usage."""

    usage: JobUsage
    cause: Cause
    resources: tuple[int, ...]
    nodes: tuple[str, ...]
    walltime: int
    types: tuple[str, ...]

    @property
    def job(self) -> Job:
        return self.usage.job

    @property
    def record(self) -> dict[str, object]:
        """The fields of the line of the job in COMPLETION_LOG."""
        job, usage = self.job, self.usage.record
        return {
            "job_id": job.id,
            "array_id": job.array_id,
            "array_index": job.array_index,
            "name": job.name,
            "owner": job.user,
            "project": job.project,
            "queue": job.queue,
            "types": list(self.types),
            "state": job.state,
            "exit_code": job.exit_code,
            "cause": self.cause.code,
            "cause_data": dict(self.cause.data),
            "submission_time": job.submission_time,
            "start_time": job.started,
            "stop_time": job.stop_time,
            "walltime": self.walltime,
            "resources": list(self.resources),
            "nodes": list(self.nodes),
            **{name: usage[name] for name in ("elapsed", "cores", "core_seconds", "cpu_seconds", "max_rss")},
        }


def completions(tx: "Transaction", jobs: Sequence[Job]) -> list[Completion]:
    """Return the completion records of ended jobs, in their order."""
    ids = [job.id for job in jobs]
    if not ids:
        return []
    causes, walltimes, types = tx.job_runs.end_causes(ids), tx.listings.walltimes(ids), tx.jobs.types(ids)
    assigned = tx.listings.assigned(ids)
    return [
        Completion(
            usage,
            causes.get(usage.job.id, _NO_CAUSE),
            *((had.resources, had.nodes) if (had := assigned.get(usage.job.id)) else ((), ())),
            walltime=walltimes.get(usage.job.id, 0),
            types=types.get(usage.job.id, ()),
        )
        for usage in job_usages(tx, jobs, None)
    ]


def started_on(tx: "Transaction", ids: Sequence[int]) -> Mapping[int, tuple[str, ...]]:
    return {job_id: had.nodes for job_id, had in tx.listings.assigned(ids).items()}
