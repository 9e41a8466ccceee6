"""Interactive shells in jobs: why a job ended while its shell was open, and the end of a job that lost its shell.

See docs/design/nodes.rst, "Interactive jobs".
"""

from typing import TYPE_CHECKING

from oar.lib.access.records import User
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control, ends
from oar.lib.jobs.ends import EndCode, ExecCode
from oar.lib.jobs.states import JobState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Codes of oarexec for an interactive job whose user ended its shell.
_LEFT = frozenset({ExecCode.SESSION, ExecCode.SESSION_EPILOGUE, None})


def is_ended_by_others(tx: "Transaction", job_id: int, *, is_main: bool) -> bool:
    """Return whether a job was killed or failed.

    ``is_main``: the shell is that of oarsub -I, whose exit ends the job normally.
    """
    job, run = tx.jobs.find(job_id), tx.job_runs.find(job_id)
    if job is None or job.state is JobState.ERROR or tx.job_requests.find_kill(job_id) is not None:
        return True
    is_over = job.is_final or job.state is JobState.FINISHING
    if not is_over or not is_main:
        return is_over
    if run is not None:
        return run.oarexec_code not in _LEFT
    # The client was slower than the end of the job, which removes the row of its run.
    cause = tx.job_runs.end_causes([job_id]).get(job_id)
    return cause is None or cause.code is not EndCode.SESSION_OVER


def end_reason(tx: "Transaction", job_id: int) -> str | None:
    """Return in one sentence why a job ends or has ended; return None while no cause is known."""
    cause = tx.job_runs.end_causes([job_id]).get(job_id)
    if cause is None:
        job = tx.jobs.find(job_id)
        facts = next(iter(tx.job_runs.end_facts([job_id])), None)
        if job is None or facts is None or facts.kill is None:
            return None
        ran = facts.ran or tx.now - job.start_time
        times = {"walltime": facts.walltime, "ran": ran, "is_rest": facts.is_rest}
        cause = facts.kill._replace(data={**times, **facts.kill.data})
    return ends.cause_text(cause, job_id).sentence


def lose(tx: "Transaction", user: User, job_id: int, reason: str) -> None:
    """End an interactive job whose shell was lost. Do nothing if the job has a kill request."""
    job = tx.jobs.find(job_id)
    if job is None or tx.job_requests.find_kill(job_id) is not None:
        return
    tx.events.add(EventType.LOST_SESSION, job_id, f"[oarsub] the session of job {job_id} was lost: {reason}")
    if not job.is_final and job.state is not JobState.FINISHING:
        control.delete(tx, user, [job_id], with_inner=True)
