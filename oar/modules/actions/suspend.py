"""SUSPEND and RESUME: freeze and thaw a job on all its nodes (server.md 6.4)."""

from collections.abc import Collection
from pathlib import Path

from oar.lib import control, lifecycle
from oar.lib.db.engine import Transaction
from oar.lib.messages import Mail, Tag, Wake
from oar.lib.model import Cause
from oar.lib.remote.requests import Request
from oar.lib.states import EndCode, EventType, JobState
from oar.modules.actions import job_data, nodes
from oar.modules.actions.context import Context
from oar.modules.actions.job_data import JobData
from oar.modules.actions.scripts import ScriptFailure, run_script

BUILT_IN = "suspend_resume_manager"
SECONDS = 30


def suspend(context: Context, job_id: int) -> None:
    """Freeze a running job that somebody asked to hold, or one that is Suspended and was found running.

    An order that comes late, when the job has been resumed, finds that nobody asks for it any more.
    """
    data = _read_to_suspend(context, job_id)
    if data is None:
        return
    try:
        bad = _manage(context, data, "suspend")
    except nodes.ManagerMissing as error:
        _note_missing(context, job_id, error)
        return
    if bad:
        _manage(context, data, "resume", but=bad)
        _fail(context, data, EventType.SUSPEND_ERROR, bad)
        return
    if data.job.state is JobState.RUNNING:
        with context.database.begin() as tx:
            suspended = _note_suspended(tx, job_id)
        if suspended:
            _after_suspend(context, data)


def _read_to_suspend(context: Context, job_id: int) -> JobData | None:
    data = _read(context, job_id, JobState.SUSPENDED, JobState.RUNNING)
    if data is None or data.job.state is JobState.SUSPENDED:
        return data
    with context.database.begin() as tx:
        return data if tx.events.is_open(job_id, EventType.HOLD_RUNNING_JOB) else None


def _note_suspended(tx: Transaction, job_id: int) -> bool:
    """Note that a job is frozen; False if it is about to end."""
    tx.events.clear(job_id, EventType.HOLD_RUNNING_JOB)
    tx.outbox.append(Wake(Tag.TERM))
    return lifecycle.move(tx, job_id, JobState.SUSPENDED)


def _note_missing(context: Context, job_id: int, error: nodes.ManagerMissing) -> None:
    """Note, once, that the site's program is not there; the job stays as it is."""
    with context.database.begin() as tx:
        tx.events.clear(job_id, EventType.HOLD_RUNNING_JOB)
        if not tx.events.having([job_id], [EventType.SUSPEND_RESUME_MANAGER_FILE]):
            tx.events.add(EventType.SUSPEND_RESUME_MANAGER_FILE, job_id, f"[bipbip {job_id}] {error}")


def _after_suspend(context: Context, data: JobData) -> None:
    command = context.config.just_after_suspend_exec_file
    if not command:
        return
    try:
        run_script(command, data, context.config.suspend_resume_script_timeout)
    except ScriptFailure as failure:
        with context.database.begin() as tx:
            tx.events.add(EventType.SUSPEND_SCRIPT_ERROR, data.job.id, f"[bipbip {data.job.id}] {failure}")
            tx.outbox.append(Mail("Suspend script error", f"Job {data.job.id}: {failure}"))
            lifecycle.move(tx, data.job.id, JobState.RESUMING)
            tx.outbox.append(Wake(Tag.QRESUME))


def resume(context: Context, job_id: int) -> None:
    """Thaw a job whose resources are free again, or one that is Running and was found frozen."""
    data = _read(context, job_id, JobState.RESUMING, JobState.RUNNING)
    if data is None:
        return
    if data.job.state is JobState.RESUMING and not _before_resume(context, data):
        return
    try:
        bad = _manage(context, data, "resume")
    except nodes.ManagerMissing as error:
        _note_missing(context, job_id, error)
        return
    if bad:
        _fail(context, data, EventType.RESUME_ERROR, bad)
    elif data.job.state is JobState.RESUMING:
        with context.database.begin() as tx:
            running = lifecycle.move(tx, job_id, JobState.RUNNING)
        if not running:  # somebody may have held it meanwhile
            suspend(context, job_id)


def _before_resume(context: Context, data: JobData) -> bool:
    """Run the site's script; False if it failed: then the job ends."""
    command = context.config.just_before_resume_exec_file
    if not command:
        return True
    try:
        run_script(command, data, context.config.suspend_resume_script_timeout)
    except ScriptFailure as failure:
        with context.database.begin() as tx:
            tx.events.add(EventType.RESUME_SCRIPT_ERROR, data.job.id, f"[bipbip {data.job.id}] {failure}")
            control.ask_end(tx, {data.job.id: Cause(EndCode.SUSPENSION, {"text": str(failure)})})
        return False
    return True


def _read(context: Context, job_id: int, *states: JobState) -> JobData | None:
    """Return what is known of a job in one of these states; None if it is not, or is about to end.

    The end needs neither: oarexec, which brings it about, is never frozen.
    """
    with context.database.begin() as tx:
        data = job_data.read(tx, job_id)
        is_wanted = data is not None and data.job.state in states and tx.runs.kill_request(job_id) is None
    return data if is_wanted else None


def _manage(context: Context, data: JobData, action: str, but: Collection[str] = ()) -> dict[str, str]:
    """Freeze or thaw on all nodes but some; return the bad ones with the reason.  Raises ManagerMissing."""
    hosts = [host for host in data.processors(context.config) if host not in but]
    request = _request(context, data, action)
    outcomes = context.remote.run(dict.fromkeys(hosts, request), SECONDS)
    answers = {host: nodes.answer_of(outcome) for host, outcome in outcomes.items()}
    return {host: answer.reason for host, answer in answers.items() if not answer.good}


def _request(context: Context, data: JobData, action: str) -> Request:
    """Return what is to be run on the nodes.  Raises ManagerMissing."""
    path = context.config.suspend_resume_file
    given = job_data.suspend_data(data, context.config)
    if not path or Path(path).stem == BUILT_IN:
        return Request(BUILT_IN, action, given)
    return nodes.site_program(context, path, action, given)


def _fail(context: Context, data: JobData, event: EventType, bad: dict[str, str]) -> None:
    """Suspect the bad nodes, and end the job: nobody knows in which state its parts are."""
    job_id = data.job.id
    text = "; ".join(f"{host}: {reason}" for host, reason in sorted(bad.items()))
    with context.database.begin() as tx:
        tx.events.clear(job_id, EventType.HOLD_RUNNING_JOB)
        tx.events.add(event, job_id, f"[bipbip {job_id}] {text}", to_check=True, hosts=bad)
        control.ask_end(tx, {job_id: Cause(EndCode.SUSPENSION, {"text": text})})
        tx.outbox.append(Wake(Tag.CHSTATE))
