"""Leon: carry out the kill requests.

Leon ends jobs that have not been launched. The Runner kills the other jobs, and Sarko checks the time limit. A job that
does not end is exterminated: the Runner ends it in the database, and cleans its nodes if possible.

See docs/design/launch.rst, "Kill requests".
"""

import logging
import sys
from collections import defaultdict
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from oar.lib.bus.exit_codes import LeonCode
from oar.lib.bus.messages import Ask, JobAction, OarsubLine
from oar.lib.history.event_types import EventType
from oar.lib.jobs import lifecycle
from oar.lib.jobs.ends import ExecCode
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import FINAL, JobState, JobType, JobTypeName, KillState
from oar.lib.logs import of_job
from oar.lib.reservations import deletion
from oar.lib.submission.resource_request import JobTypes
from oar.modules import worker
from oar.modules.worker import run_in_batches

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.runtime import Runtime

log = logging.getLogger(__name__)


#: Digits of the longest job id.
LONGEST_ID = 18

#: States of jobs that end without Leon: the scheduler ends a job in toError.
_OVER = FINAL | {JobState.TO_ERROR}


class KillMethod(Enum):
    """The ways to end a job."""

    OVER = auto()  #: nothing: it ends or has ended
    AT_ONCE = auto()  #: it has not been launched
    NOOP = auto()  #: it is of type noop: it has no processes
    ABORT_LAUNCH = auto()  #: the Runner aborts its launch
    SIGNAL = auto()  #: the Runner sends the signal to its oarexec


def choose_method(job: Job | None, types: JobTypes) -> KillMethod:
    """Return the method to end a job."""
    match job.state if job else None:
        case JobState.WAITING | JobState.HOLD | JobState.TO_ACK_RESERVATION | JobState.TO_LAUNCH:
            return KillMethod.AT_ONCE
        case JobState.LAUNCHING:
            return KillMethod.ABORT_LAUNCH
        case JobState.RUNNING | JobState.SUSPENDED | JobState.RESUMING:
            return KillMethod.NOOP if JobTypeName.NOOP in types else KillMethod.SIGNAL
    return KillMethod.OVER


def run(runtime: "Runtime") -> int:
    """Run one pass. Return 1 if a job left the queue, else 0."""
    with runtime.database.snapshot() as tx:
        requests = tx.job_requests.kills_in_states((KillState.LEON, KillState.LEON_EXTERMINATE))
    kills = [request.job_id for request in requests if request.state is KillState.LEON]
    exterminations = [request.job_id for request in requests if request.state is KillState.LEON_EXTERMINATE]
    freed = run_in_batches(runtime.database, kills, _end)
    run_in_batches(runtime.database, exterminations, _exterminate)
    return LeonCode.SCHEDULE if any(freed) else LeonCode.NOTHING


# -- kills ------------------------------------------------------------------------------------------------------------


def _end(tx: "Transaction", ids: Sequence[int]) -> bool:
    """Carry out kill requests. Return whether a job left the queue or released its resources."""
    frames = tx.reservations.of_frames(ids)
    if frames:  # a frame must not end before its reservation
        deletion.delete_all_with_frames(tx, {reservation_id for reservation_id, _ in frames.values()})
        tx.job_requests.move_kill(list(frames), KillState.FRAGGED, (KillState.LEON,))
        ids = [job_id for job_id in ids if job_id not in frames]
    jobs = tx.jobs.lock_all(ids)
    types = tx.jobs.types(jobs, current=True)
    by_method: dict[KillMethod, list[int]] = defaultdict(list)
    for job_id in ids:
        by_method[choose_method(jobs.get(job_id), JobTypes(types.get(job_id, ())))].append(job_id)
    _end_at_once(tx, [jobs[job_id] for job_id in by_method[KillMethod.AT_ONCE]])
    _end_noop(tx, by_method[KillMethod.NOOP])
    _note_signals(tx, by_method[KillMethod.SIGNAL])
    for_runner = by_method[KillMethod.ABORT_LAUNCH] + by_method[KillMethod.SIGNAL]
    tx.outbox.extend(Ask(JobAction.KILL, job_id) for job_id in for_runner)
    tx.job_requests.move_kill(for_runner, KillState.TIMER_ARMED, (KillState.LEON,))
    tx.job_requests.move_kill(
        by_method[KillMethod.OVER] + by_method[KillMethod.NOOP], KillState.FRAGGED, (KillState.LEON,)
    )
    return bool(frames or by_method[KillMethod.AT_ONCE] or by_method[KillMethod.NOOP])


def _end_at_once(tx: "Transaction", jobs: Sequence[Job]) -> None:
    """End jobs that have not been launched. Notify the oarsubs that wait for them."""
    if not jobs:
        return
    tx.jobs.set_message([job.id for job in jobs], "Job killed by Leon directly")
    lifecycle.move_all(tx, [job.id for job in jobs], JobState.ERROR)
    for job in jobs:
        if job.job_type is JobType.INTERACTIVE or job.state is JobState.TO_ACK_RESERVATION:
            tx.outbox.append(Ask(JobAction.TELL, job.id, (OarsubLine.JOB_KILLED,)))


def _end_noop(tx: "Transaction", ids: Sequence[int]) -> None:
    """End jobs of type noop, as if their command had ended with exit code 0."""
    if not ids:
        return
    tx.jobs.set_message(ids, "NOOP job killed by Leon")
    for job_id in lifecycle.move_all(tx, ids, JobState.FINISHING):
        tx.job_runs.report(job_id, ExecCode.OK, 0)
        tx.outbox.append(Ask(JobAction.END, job_id))


def _note_signals(tx: "Transaction", ids: Sequence[int]) -> None:
    """Store the events of the kill signals that the Runner will send."""
    runs = tx.job_runs.select(ids) if ids else {}
    rows = []
    for job_id in ids:
        head = runs[job_id].head_host if job_id in runs else ""
        text = f"[Leon] Send the kill TERM signal to oarexec on {head} for job {job_id}"
        rows.append((EventType.SEND_KILL_JOB, job_id, text))
    tx.events.add_many(rows)


# -- extermination ----------------------------------------------------------------------------------------------------


def _exterminate(tx: "Transaction", ids: Sequence[int]) -> None:
    """Exterminate jobs that did not end: the Runner ends them without waiting for their nodes."""
    jobs = tx.jobs.lock_all(ids)
    waiting = [job for job in jobs.values() if choose_method(job, JobTypes(())) is KillMethod.AT_ONCE]
    _end_at_once(tx, waiting)
    over = [job_id for job_id in ids if job_id not in jobs or jobs[job_id].state in _OVER]
    tx.job_requests.move_kill(over, KillState.FRAGGED, (KillState.LEON_EXTERMINATE,))
    started = sorted(set(jobs) - set(over) - {job.id for job in waiting})
    moved = lifecycle.move_all(tx, started, JobState.FINISHING)
    tx.jobs.set_message(moved, "Job exterminated by Leon")
    tx.jobs.set_start_now(moved)
    tx.job_runs.exterminate(started)
    tx.outbox.extend(Ask(JobAction.EXTERMINATE, job_id) for job_id in started)


def exterminate_one(runtime: "Runtime", job_id: int) -> int:
    """Exterminate one job that Sarko has marked for extermination. Always return exit code 0."""
    with runtime.database.snapshot() as tx:
        request = tx.job_requests.find_kill(job_id)
    if request is None or request.state is not KillState.LEON_EXTERMINATE:
        of_job(log, job_id).error("the job must not be exterminated: there is no such request, or it has ended")
    else:
        run_in_batches(runtime.database, [job_id], _exterminate)
    return LeonCode.NOTHING


def main() -> int:
    """Run one pass, or exterminate the job in the argument."""
    match sys.argv[1:]:
        case [text] if text.isascii() and text.isdigit() and len(text) <= LONGEST_ID:
            return worker.one_shot("leon", lambda opened, order: exterminate_one(opened, int(text)))
    return worker.main("leon", run)


if __name__ == "__main__":
    sys.exit(main())
