"""Launch and kill jobs of desktop computers. OAR sends nothing to their agents: the agents fetch the jobs.

See docs/design/desktop.rst, "Launch".
"""

from oar.lib.bus.messages import Ask, JobAction, Tag, Wake
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_consequences import NOT_STARTED
from oar.lib.history.event_types import EventType
from oar.lib.jobs.ends import ExecCode
from oar.lib.jobs.records import JobRun
from oar.lib.jobs.states import JobState, Phase
from oar.lib.logs import of_job
from oar.modules.runner.actions.context import ActionContext, RetryAfter, log

#: Times the longest silence of a computer after which a job that was not fetched is given up.
EXPIRIES = 2
#: Seconds after which a launch looks again, if nothing has asked for that before.
LOOK_SECONDS = 60


def await_agent(context: ActionContext, job_id: int) -> RetryAfter | None:
    """Wait until the agent has fetched the job. Give up the launch if the agent sends no request for too long.

    The job is locked meanwhile, so a request of its agent is handled before or after this transaction.
    """
    with context.database.begin() as tx:
        job, run = tx.jobs.lock_all([job_id]).get(job_id), tx.job_runs.find(job_id)
        if job is None or run is None or job.state not in (JobState.LAUNCHING, JobState.RUNNING):
            return None
        if run.phase is Phase.GO:
            return RetryAfter(LOOK_SECONDS)  # the response to the agent may be lost: wait for its next request
        if run.phase is not Phase.EXEC_SENT:
            return None
        if tx.job_requests.find_kill(job_id):
            _note_kill(tx, job_id)
            return None
        remaining = run.updated + EXPIRIES * context.config.desktop_computing_expiry - tx.now
        if remaining > 0:
            return RetryAfter(min(remaining, LOOK_SECONDS))
        _give_up(tx, run)
    return None


def kill(context: ActionContext, job_id: int) -> None:
    """End a job that its agent has not fetched. The agent is notified of other kills at its next request."""
    with context.database.begin() as tx:
        jobs, run = tx.jobs.lock_all([job_id]), tx.job_runs.find(job_id)
        if job_id in jobs and run is not None and run.phase is Phase.EXEC_SENT:
            _note_kill(tx, job_id)


def _note_kill(tx: Transaction, job_id: int) -> None:
    tx.job_runs.report(job_id, ExecCode.KILLED, None)
    tx.outbox.append(Ask(JobAction.END, job_id))


def _give_up(tx: Transaction, run: JobRun) -> None:
    """Store the event of a launch that no agent has fetched. NodeChangeState handles the event."""
    text = f"[bipbip {run.job_id}] {NOT_STARTED}: the agent of {run.head_host} has not fetched the job"
    of_job(log, run.job_id, nodes=[run.head_host]).warning("the launch is given up: %s", text)
    tx.events.add(EventType.LAUNCHING_OAREXEC_TIMEOUT, run.job_id, text, to_check=True, hosts=[run.head_host])
    tx.job_runs.update(run.job_id, phase=Phase.FAILED)
    tx.outbox.append(Wake(Tag.CHSTATE))
