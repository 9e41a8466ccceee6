"""KILL and SIGNAL: requests to the oarexec of a running job.

See docs/design/launch.rst, "Signals".
"""

from collections.abc import Sequence

from oar.lib.bus.messages import Ask, JobAction
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_consequences import NOT_FOR_DESKTOPS
from oar.lib.history.event_types import EventType
from oar.lib.jobs.records import KillRequest
from oar.lib.jobs.sql_runs import SignalEvent
from oar.lib.jobs.states import JobState, KillState, Phase
from oar.lib.logs import of_job
from oar.lib.remote.protocol import ControlSignal, NodeAction
from oar.lib.remote.requests import CommandRan, NodeRequest, Outcome
from oar.modules.runner.actions import desktop, job_data, nodes, probe
from oar.modules.runner.actions.context import ActionContext, RetryAfter, log
from oar.modules.runner.actions.job_data import JobData

SECONDS = 20
#: Exit code of ``oarexec ctl``: the job has no oarexec on this host.
NO_OAREXEC = 1
#: A kill that did not reach the node is repeated after this time, until Sarko's time limit for kills.
KILL_AGAIN_SECONDS = 5
_KILLABLE = (JobState.LAUNCHING, JobState.RUNNING, JobState.SUSPENDED, JobState.RESUMING)
#: Phases in which there may be an oarexec that can get the signal.
_PHASES_WITH_OAREXEC = (Phase.EXEC_SENT, Phase.GO, Phase.STARTED)


def kill(context: ActionContext, job_id: int) -> RetryAfter | None:
    """Request oarexec to end the job."""
    data, request = context.steps.do(_read_kills, job_id)
    if data is None or data.job.state not in _KILLABLE or request is None:
        return None
    if request.state is not KillState.TIMER_ARMED or data.run is None or data.run.phase not in _PHASES_WITH_OAREXEC:
        return None
    if data.is_fetched:
        desktop.kill(context, job_id)
        return None
    match _control(context, data, ControlSignal.END):
        case CommandRan(exit=0):
            return None
        case CommandRan(exit=code) if code == NO_OAREXEC:
            return _treat_missing_oarexec(context, data)
        case outcome:
            error = nodes.answer_of(outcome).error
            host = data.exec_host(context.config)
            of_job(log, job_id, nodes=[host]).warning("the kill did not arrive at %s: %s", host, error)
            return RetryAfter(KILL_AGAIN_SECONDS)


def _read_kills(tx: Transaction, ids: Sequence[int]) -> list[tuple[JobData | None, KillRequest | None]]:
    jobs, requests = job_data.read_all(tx, ids), tx.job_requests.find_kills(ids)
    return [(jobs.get(job_id), requests.get(job_id)) for job_id in ids]


def _treat_missing_oarexec(context: ActionContext, data: JobData) -> RetryAfter | None:
    """Determine whether a job without oarexec has ended or was never started."""
    if data.job.state is JobState.LAUNCHING:
        with context.database.begin() as tx:
            tx.outbox.append(Ask(JobAction.RUN, data.job.id))  # the launch itself detects the kill request
        return None
    finding = probe.ask_one(context, data.exec_host(context.config), data)
    with context.database.begin() as tx:
        probe.note_finding(tx, data, finding)
    return RetryAfter(KILL_AGAIN_SECONDS) if finding is probe.SILENT else None


def signal(context: ActionContext, job_id: int) -> RetryAfter | None:
    """Send the requested signals of a job: for its checkpoint, or from a user."""
    with context.database.begin() as tx:
        data = job_data.read(tx, job_id)
        requests = [
            request
            for request in tx.job_runs.signal_requests(tx.now - context.config.oar_ssh_connection_timeout)
            if request.job_id == job_id
        ]
    for request in requests:
        if data is None or data.job.state not in (JobState.RUNNING, JobState.SUSPENDED):
            error = "the job is not running"
        elif data.is_fetched:
            error = NOT_FOR_DESKTOPS
        else:
            is_checkpoint = request.type == EventType.CHECKPOINT
            user_signal = None if is_checkpoint else int(request.type.rpartition("_")[2])
            outcome = _control(
                context, data, ControlSignal.CHECKPOINT if is_checkpoint else ControlSignal.USER, user_signal
            )
            succeeded = isinstance(outcome, CommandRan) and outcome.exit == 0
            error = "" if succeeded else nodes.answer_of(outcome).error
        with context.database.begin() as tx:
            host = data.exec_host(context.config) if data else ""
            _note(tx, request, host, error)
    return None


def _note(tx: Transaction, request: SignalEvent, host: str, error: str) -> None:
    """Store the event of a signal: sent, or failed with ``error``."""
    job_id, event = request.job_id, request.type
    is_checkpoint = event == EventType.CHECKPOINT
    if error:
        result = EventType.CHECKPOINT_ERROR if is_checkpoint else EventType.SIG_ERROR
        tx.events.add(result, job_id, f"[bipbip {job_id}] {host}: {error}")
        return
    result = EventType.CHECKPOINT_SUCCESS if is_checkpoint else EventType.SIG_SUCCESS
    about = "to checkpoint itself" if is_checkpoint else f"of the signal {event.rpartition('_')[2]}"
    tx.events.add(result, job_id, f"[bipbip {job_id}] The job was notified {about} on {host}")


def _control(context: ActionContext, data: JobData, control: ControlSignal, user_signal: int | None = None) -> Outcome:
    host = data.exec_host(context.config)
    control_data = job_data.control_data(data.job.id, context.config, control, user_signal)
    return context.remote.run({host: NodeRequest("oarexec", NodeAction.CTL, control_data)}, SECONDS)[host]
