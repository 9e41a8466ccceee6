"""TELL and NOTICE: lines for a waiting oarsub, mails and commands for the owner of a job (server.md 4.4, 8.2).

What is told may be lost; what depends on its having been told comes back as an event or as a state.
"""

import time
from collections.abc import Sequence

from oar.lib import control, lifecycle
from oar.lib.db.engine import Transaction
from oar.lib.logs import of_job
from oar.lib.messages import Due, Tag, Wake
from oar.lib.model import Cause, Job
from oar.lib.notify import REFUSED, tell_oarsub
from oar.lib.states import EndCode, EventType, JobState, JobType, Reservation
from oar.modules.actions.context import Context, log

TRIES = 3
#: Pauses between the tries for a line whose arrival matters.
PAUSE = 3.0
GOOD_RESERVATION = "GOOD RESERVATION"
GOOD_JOB = "GOOD JOB"


def tell(context: Context, job_id: int, lines: Sequence[str]) -> None:
    """Say lines to the oarsub that waits for a job.  Without lines: say what its state calls for."""
    with context.database.begin() as tx:
        job = tx.jobs.find(job_id)
    if job is None:
        return
    if job.state is JobState.TO_ACK_RESERVATION:
        _acknowledge(context, job)
        return
    for line in lines:
        problem = _say(context, job, line, tries=TRIES if line == GOOD_JOB else 1)
        if problem and line == GOOD_JOB:
            with context.database.begin() as tx:
                _note_lost(tx, job_id, problem)
        elif problem == REFUSED and _is_waited_for(job):
            _leave_to_nobody(context, job, line)
            return


def _is_waited_for(job: Job) -> bool:
    """Whether a job makes no sense without the oarsub that waits for its start."""
    is_session = job.job_type is JobType.INTERACTIVE and job.reservation is Reservation.NONE
    return is_session and job.state in (JobState.WAITING, JobState.HOLD)


def _leave_to_nobody(context: Context, job: Job, line: str) -> None:
    """Give up a job whose oarsub is gone: nobody listens where it waited, as often as we ask."""
    for _ in range(TRIES - 1):
        time.sleep(PAUSE)
        if _say(context, job, line, tries=1) != REFUSED:
            return
    with context.database.begin() as tx:
        text = f"[bipbip {job.id}] nobody waits any more for the interactive job at {job.info_type}"
        tx.events.add(EventType.LOST_SESSION, job.id, text)
        control.ask_end(tx, {job.id: Cause(EndCode.SESSION_LOST)})


def _acknowledge(context: Context, job: Job) -> None:
    """Tell that the reservation is accepted; then it waits for its date.  One that nobody waits for is given up."""
    problem = _say(context, job, GOOD_RESERVATION, tries=TRIES)
    with context.database.begin() as tx:
        if problem:
            _note_lost(tx, job.id, problem)
        elif lifecycle.move(tx, job.id, JobState.WAITING):
            tx.outbox += [Wake(Tag.TERM), Due(job.start_time)]


def _note_lost(tx: Transaction, job_id: int, problem: str) -> None:
    tx.events.add(EventType.CANNOT_NOTIFY_OARSUB, job_id, f"Can not notify oarsub for the job {job_id} ({problem})")
    control.ask_end(tx, {job_id: Cause(EndCode.NOT_HEARD, {"text": problem})})


def _say(context: Context, job: Job, line: str, *, tries: int) -> str:
    """Say one line; return why it did not arrive, '' if it did.  A job of the API has nobody who waits."""
    address = job.info_type or ""
    if ":" not in address:
        return ""
    problem = ""
    for attempt in range(tries):
        if attempt:
            time.sleep(PAUSE)
        problem = tell_oarsub(address, line, context.config.oarsub_notify_timeout)
        if not problem:
            return ""
    of_job(log, job.id).info("oarsub at %s was not told: %s", address, problem)
    return problem
