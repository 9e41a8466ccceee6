"""Texts of the log lines about submitted, started and ended jobs."""

from collections.abc import Sequence

from oar.lib.base.times import format_padded_duration
from oar.lib.jobs.ends import Cause, cause_text, format_exit_code
from oar.lib.jobs.records import Job


def submitted(job: Job) -> str:
    """Return the log text for a new job."""
    of_array = f", array {job.array_id}" if job.array_id != job.id else ""
    return f"submitted by {job.user} to queue {job.queue}, project {job.project}{of_array}: {job.message}"


def started(nodes: Sequence[str]) -> str:
    """Return the log text for a started job."""
    return f"started on {', '.join(nodes)}" if nodes else "started without nodes"


def ended(job: Job, cause: Cause, elapsed: int, usage: str) -> str:
    """Return the log text for an ended job.

    ``elapsed``: run time in seconds; ``usage``: a sentence, '' if the usage is unknown.
    """
    exit_code = f", exit code {format_exit_code(job.exit_code)}" if job.exit_code is not None else ""
    ran = f"ran {format_padded_duration(elapsed)}" if job.started else "never ran"
    sentences = " ".join(filter(None, (cause_text(cause, job.id).sentence, usage)))
    return f"ended: {job.state}{exit_code}, {cause.code}, {ran}. {sentences}".rstrip()
