"""Why jobs ended, as users see it: the cause with its texts, as records."""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.jobs import output_names
from oar.lib.jobs.end_texts import CauseText, cause_text
from oar.lib.jobs.records import Cause, Job
from oar.lib.jobs.states import JobType

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.sql_listings import Assigned


class JobEnd(NamedTuple):
    """The cause of the end of a job, with its texts."""

    cause: Cause
    text: CauseText
    copy: int | None  #: the job as which it was resubmitted automatically

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        return {
            "cause": self.cause.code,
            "data": self.cause.data,
            "sentence": self.text.sentence,
            "advice": self.text.advice,
            "resubmitted_as": self.copy,
        }


def job_ends(tx: "Transaction", jobs: Collection[Job]) -> dict[int, JobEnd]:
    """Return why jobs ended; a job whose cause is unknown is left out."""
    ended = {job.id: job for job in jobs if job.is_final}
    causes = tx.job_runs.end_causes(ended) if ended else {}
    hosts, copies = tx.listings.assigned(list(causes)), tx.new_jobs.resubmitted_copies(causes) if causes else {}
    return {
        job_id: job_end(ended[job_id], cause, _first(hosts.get(job_id)), copies.get(job_id))
        for job_id, cause in causes.items()
    }


def job_end(job: Job, cause: Cause, host: str | None, copy: int | None) -> JobEnd:
    """Return why a job ended.  ``host``: the first of its nodes; ``copy``: its automatic resubmission."""
    has_stderr = job.job_type is JobType.PASSIVE and bool(job.stderr_file) and bool(job.started)
    stderr = output_names.expand(job.stderr_file or "", job, host) if has_stderr else ""
    if stderr and not stderr.startswith("/"):
        stderr = f"{job.launching_directory.rstrip('/')}/{stderr}"
    return JobEnd(cause, cause_text(cause, job.id, stderr, copy), copy)


def _first(assigned: "Assigned | None") -> str | None:
    return assigned.nodes[0] if assigned and assigned.nodes else None
