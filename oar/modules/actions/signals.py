"""KILL and SIGNAL: what oarexec is asked to do with a running job (server.md 6.5)."""

from oar.lib.db.engine import Transaction
from oar.lib.db.runs import SignalRequest
from oar.lib.logs import of_job
from oar.lib.messages import Ask, JobAction
from oar.lib.remote.requests import Outcome, Ran, Request
from oar.lib.states import EventType, JobState, KillState, Phase
from oar.modules.actions import job_data, nodes, probe
from oar.modules.actions.context import Context, Later, log
from oar.modules.actions.job_data import JobData

SECONDS = 20
#: Exit code of ``ctl``: no such oarexec here.
GONE = 1
#: A kill that did not reach the node is repeated after this time; in the end Sarko's timers decide.
KILL_AGAIN_SECONDS = 5
_KILLABLE = (JobState.LAUNCHING, JobState.RUNNING, JobState.SUSPENDED, JobState.RESUMING)
#: Phases in which there may be an oarexec to be told.
_THERE = (Phase.EXEC_SENT, Phase.GO, Phase.STARTED)


def kill(context: Context, job_id: int) -> Later | None:
    """Ask oarexec to end the job."""
    with context.database.begin() as tx:
        data = job_data.read(tx, job_id)
        request = tx.runs.kill_request(job_id)
    if data is None or data.job.state not in _KILLABLE or request is None:
        return None
    if request.state is not KillState.TIMER_ARMED or data.run is None or data.run.phase not in _THERE:
        return None
    match _control(context, data, "TERM"):
        case Ran(exit=0):
            return None
        case Ran(exit=code) if code == GONE:
            return _ask_what_happened(context, data)
        case outcome:
            reason = nodes.answer_of(outcome).reason
            host = data.exec_host(context.config)
            of_job(log, job_id).warning("the kill did not arrive at %s: %s", host, reason)
            return Later(KILL_AGAIN_SECONDS)


def _ask_what_happened(context: Context, data: JobData) -> Later | None:
    """There is no oarexec: either the job has ended, or it was never started."""
    if data.job.state is JobState.LAUNCHING:
        with context.database.begin() as tx:
            tx.outbox.append(Ask(JobAction.RUN, data.job.id))  # the launch itself sees the request
        return None
    finding = probe.ask_one(context, data.exec_host(context.config), data)
    with context.database.begin() as tx:
        probe.note_finding(tx, data, finding)
    return Later(KILL_AGAIN_SECONDS) if finding is probe.SILENT else None


def signal(context: Context, job_id: int) -> Later | None:
    """Send the signals that were asked for: the checkpoint's, or a user's."""
    with context.database.begin() as tx:
        data = job_data.read(tx, job_id)
        requests = [
            one
            for one in tx.runs.signal_requests(tx.now - context.config.oar_ssh_connection_timeout)
            if one.job_id == job_id
        ]
    for request in requests:
        if data is None or data.job.state not in (JobState.RUNNING, JobState.SUSPENDED):
            problem = "the job is not running"
        else:
            problem = _send(context, data, request.type)
        with context.database.begin() as tx:
            host = data.exec_host(context.config) if data else ""
            _note(tx, request, host, problem)
    return None


def _send(context: Context, data: JobData, event: str) -> str:
    """Send the signal of a request; return what went wrong, '' if nothing."""
    if event == EventType.CHECKPOINT:
        outcome = _control(context, data, "USR2")
    else:
        outcome = _control(context, data, "URG", int(event.rpartition("_")[2]))
    return "" if isinstance(outcome, Ran) and outcome.exit == 0 else nodes.answer_of(outcome).reason


def _note(tx: Transaction, request: SignalRequest, host: str, problem: str) -> None:
    job_id, event = request.job_id, request.type
    checkpoint = event == EventType.CHECKPOINT
    if problem:
        result = EventType.CHECKPOINT_ERROR if checkpoint else EventType.SIG_ERROR
        tx.events.add(result, job_id, f"[bipbip {job_id}] {host}: {problem}")
        return
    result = EventType.CHECKPOINT_SUCCESS if checkpoint else EventType.SIG_SUCCESS
    what = "to checkpoint itself" if checkpoint else f"of the signal {event.rpartition('_')[2]}"
    tx.events.add(result, job_id, f"[bipbip {job_id}] The job was notified {what} on {host}")


def _control(context: Context, data: JobData, name: str, user_signal: int | None = None) -> Outcome:
    host = data.exec_host(context.config)
    request = Request("oarexec", "ctl", job_data.control_data(data.job.id, context.config, name, user_signal))
    return context.remote.run({host: request}, SECONDS)[host]
