"""Jobs for files: completion records of ended jobs, and the log lines about submitted, started and ended jobs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.times import format_padded_duration
from oar.lib.jobs.ends import Cause, EndCode, cause_text, format_exit_code
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


def submission_line(job: Job) -> str:
    """Return the log text for a new job."""
    of_array = f", array {job.array_id}" if job.array_id != job.id else ""
    return f"submitted by {job.user} to queue {job.queue}, project {job.project}{of_array}: {job.message}"


def start_line(nodes: Sequence[str]) -> str:
    """Return the log text for a started job."""
    return f"started on {', '.join(nodes)}" if nodes else "started without nodes"


def end_line(job: Job, cause: Cause, elapsed: int, usage: str) -> str:
    """Return the log text for an ended job.

    ``elapsed``: run time in seconds; ``usage``: a sentence, '' if the usage is unknown.
    """
    exit_code = f", exit code {format_exit_code(job.exit_code)}" if job.exit_code is not None else ""
    ran = f"ran {format_padded_duration(elapsed)}" if job.started else "never ran"
    sentences = " ".join(filter(None, (cause_text(cause, job.id).sentence, usage)))
    return f"ended: {job.state}{exit_code}, {cause.code}, {ran}. {sentences}".rstrip()
