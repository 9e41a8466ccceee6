"""TELL: send lines to the oarsub that waits for a job. NOTICE: run a command of a user for a notification.

A line may be lost. If its loss matters, an event or a change of state follows. See docs/design/events.rst, "Notices".
"""

import time
from collections.abc import Sequence

from oar.lib.bus.messages import Due, OarsubLine, Tag, Wake
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control, lifecycle
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobState, JobType, Reservation
from oar.lib.logs import of_job
from oar.lib.remote.protocol import NodeAction
from oar.lib.remote.requests import CommandRan, NodeRequest
from oar.lib.submission.oarsub_lines import REFUSED, tell_oarsub
from oar.modules.runner.actions import job_data, nodes
from oar.modules.runner.actions.context import ActionContext, log

TRIES = 3
#: Seconds between the tries for a line whose arrival matters.
PAUSE = 3.0


def tell(context: ActionContext, job_id: int, lines: Sequence[str]) -> None:
    """Send lines to the oarsub that waits for a job; if there are none, send the line for the state of the job.

    For a reservation in toAckReservation, send the acknowledgement instead.
    """
    with context.database.begin() as tx:
        job = tx.jobs.find(job_id)
    if job is None:
        return
    if job.state is JobState.TO_ACK_RESERVATION:
        _acknowledge(context, job)
        return
    is_held = job.state is JobState.HOLD and job.job_type is JobType.INTERACTIVE
    for line in lines or ((OarsubLine.HELD,) if is_held else ()):
        error = _send(context, job, line, tries=TRIES if line == OarsubLine.GOOD_JOB else 1)
        if error and line == OarsubLine.GOOD_JOB:
            with context.database.begin() as tx:
                _note_lost(tx, job_id, error)
        elif error == REFUSED and _needs_oarsub(job):
            _end_abandoned_job(context, job, line)
            return


def _needs_oarsub(job: Job) -> bool:
    """Return whether a job is useless without the oarsub that waits for its start."""
    is_session = job.job_type is JobType.INTERACTIVE and job.reservation is Reservation.NONE
    return is_session and job.state in (JobState.WAITING, JobState.HOLD)


def _end_abandoned_job(context: ActionContext, job: Job, line: str) -> None:
    """End a job whose oarsub no longer runs: its address refuses all attempts."""
    for _ in range(TRIES - 1):
        time.sleep(PAUSE)
        if _send(context, job, line, tries=1) != REFUSED:
            return
    with context.database.begin() as tx:
        text = f"[bipbip {job.id}] no oarsub waits any more for the interactive job at {job.info_type}"
        tx.events.add(EventType.LOST_SESSION, job.id, text)
        control.ask_end(tx, {job.id: Cause(EndCode.SESSION_LOST)})


def _acknowledge(context: ActionContext, job: Job) -> None:
    """Notify oarsub that its reservation is accepted, and move the job to Waiting. End the job if oarsub is gone."""
    error = _send(context, job, OarsubLine.GOOD_RESERVATION, tries=TRIES)
    with context.database.begin() as tx:
        if error:
            _note_lost(tx, job.id, error)
        elif lifecycle.move(tx, job.id, JobState.WAITING):
            tx.outbox += [Wake(Tag.TERM), Due(job.start_time)]


def _note_lost(tx: Transaction, job_id: int, error: str) -> None:
    tx.events.add(EventType.CANNOT_NOTIFY_OARSUB, job_id, f"Can not notify oarsub for the job {job_id} ({error})")
    control.ask_end(tx, {job_id: Cause(EndCode.NOT_HEARD, {"text": error})})


def _send(context: ActionContext, job: Job, line: str, *, tries: int) -> str:
    """Send one line. Return the error text, '' if the line arrived or no oarsub waits (a job of the API)."""
    address = job.info_type or ""
    if ":" not in address:
        return ""
    error = ""
    for attempt in range(tries):
        if attempt:
            time.sleep(PAUSE)
        error = tell_oarsub(address, line, context.config.oarsub_notify_timeout)
        if not error:
            return ""
    of_job(log, job.id).info("cannot notify oarsub at %s: %s", address, error)
    return error


def run_command(context: ActionContext, job_id: int, args: Sequence[str]) -> None:
    """Run the owner's command on the submission host. ``args``: user, host, tag, then the argument list."""
    user, host, tag, *argv = args
    seconds = context.config.oar_ssh_connection_timeout
    data = {"argv": argv, "account": user, "enclosure": job_data.enclosure_data(context.config)}
    request = NodeRequest("notification_command", NodeAction.RUN, data)
    outcome = context.remote.run({host: request}, seconds)[host]
    succeeded = isinstance(outcome, CommandRan) and outcome.exit == 0
    event = EventType.USER_EXEC_NOTIFICATION if succeeded else EventType.USER_EXEC_NOTIFICATION_ERROR
    text = f"[{tag}] {argv[0]} on {host}" + ("" if succeeded else f": {nodes.answer_of(outcome).error}")
    with context.database.begin() as tx:
        tx.events.add(event, job_id, text)
