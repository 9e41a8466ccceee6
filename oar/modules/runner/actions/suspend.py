"""SUSPEND and RESUME: freeze and thaw a job on all its nodes.

See docs/design/launch.rst, "Suspension".
"""

from collections.abc import Collection

from oar.lib.base.errors import ConfigError
from oar.lib.base.host_names import describe_host_failures
from oar.lib.base.programs import site_program
from oar.lib.bus.messages import Mail, Tag, Wake
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control, lifecycle
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.states import JobState
from oar.lib.remote.protocol import NodeAction
from oar.lib.remote.requests import NodeRequest
from oar.modules.runner.actions import job_data, nodes
from oar.modules.runner.actions.context import ActionContext
from oar.modules.runner.actions.job_data import JobData
from oar.modules.runner.actions.server_scripts import ScriptFailure, SiteScript, run_script

BUILT_IN = "suspend_resume_manager"
SECONDS = 30


def suspend(context: ActionContext, job_id: int) -> None:
    """Freeze a running job with an open hold request, or a Suspended job that a probe has found running.

    If the job has been resumed meanwhile, its hold request is no longer open, and nothing is done.
    """
    data = _read(context, job_id, JobState.SUSPENDED, JobState.RUNNING)
    if data is None:
        return
    if data.job.state is JobState.RUNNING:
        with context.database.begin() as tx:
            if not tx.events.is_open(job_id, EventType.HOLD_RUNNING_JOB):
                return
    try:
        failures = _manage(context, data, NodeAction.SUSPEND)
    except ConfigError as error:
        _note_missing(context, job_id, error)
        return
    if failures:
        _manage(context, data, NodeAction.RESUME, excluded=failures)
        _fail(context, data, EventType.SUSPEND_ERROR, failures)
        return
    if data.job.state is JobState.RUNNING:
        with context.database.begin() as tx:
            tx.events.clear(job_id, EventType.HOLD_RUNNING_JOB)
            tx.outbox.append(Wake(Tag.TERM))
            suspended = lifecycle.move(tx, job_id, JobState.SUSPENDED)
        if suspended:  # it does not end meanwhile
            _after_suspend(context, data)


def _note_missing(context: ActionContext, job_id: int, error: ConfigError) -> None:
    """Store the event of a missing program of the site, once. The job keeps its state."""
    with context.database.begin() as tx:
        tx.events.clear(job_id, EventType.HOLD_RUNNING_JOB)
        if not tx.events.having([job_id], [EventType.SUSPEND_RESUME_MANAGER_FILE]):
            tx.events.add(EventType.SUSPEND_RESUME_MANAGER_FILE, job_id, f"[bipbip {job_id}] {error}")


def _after_suspend(context: ActionContext, data: JobData) -> None:
    """Run the site's script. If it fails, resume the job."""
    try:
        run_script(context.config, SiteScript.AFTER_SUSPEND, data)
    except ScriptFailure as failure:
        with context.database.begin() as tx:
            tx.events.add(failure.event, data.job.id, f"[bipbip {data.job.id}] {failure}")
            tx.outbox.append(Mail("Suspend script error", f"Job {data.job.id}: {failure}"))
            lifecycle.move(tx, data.job.id, JobState.RESUMING)
            tx.outbox.append(Wake(Tag.QRESUME))


def resume(context: ActionContext, job_id: int) -> None:
    """Thaw a job whose resources are free again, or a Running job that a probe has found frozen."""
    data = _read(context, job_id, JobState.RESUMING, JobState.RUNNING)
    if data is None:
        return
    if data.job.state is JobState.RESUMING and not _before_resume(context, data):
        return
    try:
        failures = _manage(context, data, NodeAction.RESUME)
    except ConfigError as error:
        _note_missing(context, job_id, error)
        return
    if failures:
        _fail(context, data, EventType.RESUME_ERROR, failures)
    elif data.job.state is JobState.RESUMING:
        with context.database.begin() as tx:
            running = lifecycle.move(tx, job_id, JobState.RUNNING)
        if not running:  # there may be a new hold request
            suspend(context, job_id)


def _before_resume(context: ActionContext, data: JobData) -> bool:
    """Run the site's script. If it fails, end the job and return False."""
    try:
        run_script(context.config, SiteScript.BEFORE_RESUME, data)
    except ScriptFailure as failure:
        with context.database.begin() as tx:
            tx.events.add(failure.event, data.job.id, f"[bipbip {data.job.id}] {failure}")
            control.ask_end(tx, {data.job.id: Cause(EndCode.SUSPENSION, {"text": str(failure)})})
        return False
    return True


def _read(context: ActionContext, job_id: int, *states: JobState) -> JobData | None:
    """Return the data of a job, None if it is in none of these states or has a kill request.

    A job that ends need not be thawed: oarexec, which ends it, is never frozen.
    """
    with context.database.begin() as tx:
        data = job_data.read(tx, job_id)
        is_ready = data is not None and data.job.state in states and tx.job_requests.find_kill(job_id) is None
    return data if is_ready else None


def _manage(
    context: ActionContext, data: JobData, action: NodeAction, excluded: Collection[str] = ()
) -> dict[str, str]:
    """Freeze or thaw a job on its nodes, except ``excluded``. Return the failures by node. Raises ConfigError."""
    hosts = [host for host in data.processors(context.config) if host not in excluded]
    path = site_program(context.config.suspend_resume_file)
    content = job_data.suspend_data(data, context.config)
    if path is None:
        request = NodeRequest(BUILT_IN, action, content)
    else:
        request = nodes.site_request(context, path, action, content)
    outcomes = context.remote.run(dict.fromkeys(hosts, request), SECONDS)
    answers = {host: nodes.answer_of(outcome) for host, outcome in outcomes.items()}
    return {host: answer.error for host, answer in answers.items() if not answer.succeeded}


def _fail(context: ActionContext, data: JobData, event: EventType, failures: dict[str, str]) -> None:
    """Suspect the nodes that failed, and end the job: the state of its processes on them is unknown."""
    job_id = data.job.id
    text = describe_host_failures(failures)
    with context.database.begin() as tx:
        tx.events.clear(job_id, EventType.HOLD_RUNNING_JOB)
        tx.events.add(event, job_id, f"[bipbip {job_id}] {text}", to_check=True, hosts=failures)
        control.ask_end(tx, {job_id: Cause(EndCode.SUSPENSION, {"text": text})})
        tx.outbox.append(Wake(Tag.CHSTATE))
