"""Leon: carries out the requests to end jobs (server.md 5.2).

A job that is not launched yet ends here; for the others the Runner is asked, and Sarko watches the time.  One that
does not obey is given up: the Runner cleans what it can and ends it.
"""

import logging
import sys
from collections import defaultdict
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from oar.lib import lifecycle
from oar.lib.logs import of_job
from oar.lib.messages import Ask, JobAction
from oar.lib.model import Job
from oar.lib.request import JobTypes
from oar.lib.states import FINAL, EventType, ExecCode, JobState, JobType, KillState
from oar.modules import worker
from oar.modules.guard import in_groups

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction
    from oar.lib.runtime import Runtime

log = logging.getLogger(__name__)

NOTHING, JOBS_LEFT = 0, 1

#: Digits of the longest job id.
LONGEST_ID = 18

#: States of jobs about which nothing is left to do: the scheduler finishes one in toError.
_OVER = FINAL | {JobState.TO_ERROR}

#: What the oarsub that waits for a killed job is told.
KILLED = "JOB KILLED"


class Way(Enum):
    """What Leon does with a job that must end."""

    OVER = auto()  #: nothing: it ends or has ended
    AT_ONCE = auto()  #: it has not been launched
    NOOP = auto()  #: it runs, but nothing of it does
    ASK = auto()  #: the Runner aborts its launch
    SEND = auto()  #: the Runner sends the signal to its oarexec


def way_of(job: Job | None, types: JobTypes) -> Way:
    """Decide how a job is ended."""
    match job.state if job else None:
        case JobState.WAITING | JobState.HOLD | JobState.TO_ACK_RESERVATION | JobState.TO_LAUNCH:
            return Way.AT_ONCE
        case JobState.LAUNCHING:
            return Way.ASK
        case JobState.RUNNING | JobState.SUSPENDED | JobState.RESUMING:
            return Way.NOOP if "noop" in types else Way.SEND
    return Way.OVER


def run(runtime: "Runtime") -> int:
    """Make one pass; return 1 if a job left the queue, else 0."""
    with runtime.database.snapshot() as tx:
        requests = tx.runs.kill_requests((KillState.LEON, KillState.LEON_EXTERMINATE))
    wanted = [request.job_id for request in requests if request.state is KillState.LEON]
    given_up = [request.job_id for request in requests if request.state is KillState.LEON_EXTERMINATE]
    left = in_groups(runtime.database, wanted, _end)
    in_groups(runtime.database, given_up, _exterminate)
    return JOBS_LEFT if any(left) else NOTHING


# -- kills ------------------------------------------------------------------------------------------------------------


def _end(tx: "Transaction", ids: Sequence[int]) -> bool:
    """Carry out kill requests; return whether a job left the queue or its resources."""
    jobs = tx.jobs.lock_all(ids)
    types = tx.jobs.types(jobs, current=True)
    ways: dict[Way, list[int]] = defaultdict(list)
    for job_id in ids:
        ways[way_of(jobs.get(job_id), JobTypes(types.get(job_id, ())))].append(job_id)
    _end_at_once(tx, [jobs[job_id] for job_id in ways[Way.AT_ONCE]])
    _end_noop(tx, ways[Way.NOOP])
    _send(tx, ways[Way.SEND])
    tx.outbox.extend(Ask(JobAction.KILL, job_id) for job_id in ways[Way.ASK] + ways[Way.SEND])
    tx.runs.move_kill(ways[Way.ASK] + ways[Way.SEND], KillState.TIMER_ARMED, (KillState.LEON,))
    tx.runs.move_kill(ways[Way.OVER] + ways[Way.NOOP], KillState.FRAGGED, (KillState.LEON,))
    return bool(ways[Way.AT_ONCE] or ways[Way.NOOP])


def _end_at_once(tx: "Transaction", jobs: Sequence[Job]) -> None:
    """End jobs that have not been launched; who waits for them is told."""
    if not jobs:
        return
    tx.jobs.say([job.id for job in jobs], "Job killed by Leon directly")
    lifecycle.move_all(tx, [job.id for job in jobs], JobState.ERROR)
    for job in jobs:
        if job.job_type is JobType.INTERACTIVE or job.state is JobState.TO_ACK_RESERVATION:
            tx.outbox.append(Ask(JobAction.TELL, job.id, (KILLED,)))


def _end_noop(tx: "Transaction", ids: Sequence[int]) -> None:
    """Let jobs end of which nothing runs: as if their command had ended well."""
    if not ids:
        return
    tx.jobs.say(ids, "NOOP job killed by Leon")
    for job_id in lifecycle.move_all(tx, ids, JobState.FINISHING):
        tx.runs.report(job_id, ExecCode.OK, 0)
        tx.outbox.append(Ask(JobAction.END, job_id))


def _send(tx: "Transaction", ids: Sequence[int]) -> None:
    runs = tx.runs.select(ids) if ids else {}
    heads = {job_id: runs[job_id].head_host if job_id in runs else "" for job_id in ids}
    tx.events.add_many(
        [
            (
                EventType.SEND_KILL_JOB,
                job_id,
                f"[Leon] Send the kill TERM signal to oarexec on {heads[job_id]} for job {job_id}",
            )
            for job_id in ids
        ]
    )


# -- extermination ----------------------------------------------------------------------------------------------------


def _exterminate(tx: "Transaction", ids: Sequence[int]) -> None:
    """Give jobs up that did not end: the Runner ends them, whatever their nodes say."""
    jobs = tx.jobs.lock_all(ids)
    waiting = [job for job in jobs.values() if way_of(job, JobTypes(())) is Way.AT_ONCE]
    _end_at_once(tx, waiting)
    over = [job_id for job_id in ids if job_id not in jobs or jobs[job_id].state in _OVER]
    tx.runs.move_kill(over, KillState.FRAGGED, (KillState.LEON_EXTERMINATE,))
    started = sorted(set(jobs) - set(over) - {job.id for job in waiting})
    fresh = lifecycle.move_all(tx, started, JobState.FINISHING)
    tx.jobs.say(fresh, "Job exterminated by Leon")
    tx.jobs.begin_now(fresh)
    tx.runs.exterminate(started)
    tx.outbox.extend(Ask(JobAction.EXTERMINATE, job_id) for job_id in started)


def exterminate_one(runtime: "Runtime", job_id: int) -> int:
    """Give one job up that Sarko wants given up; always 0."""
    with runtime.database.snapshot() as tx:
        request = tx.runs.kill_request(job_id)
    if request is None or request.state is not KillState.LEON_EXTERMINATE:
        of_job(log, job_id).error("the job is not to be exterminated: nobody asked for it, or it has ended")
    else:
        in_groups(runtime.database, [job_id], _exterminate)
    return NOTHING


def main() -> int:
    """Run as a program: a pass, or the extermination of the job that is named."""
    match sys.argv[1:]:
        case [text] if text.isascii() and text.isdigit() and len(text) <= LONGEST_ID:
            return worker.one_shot("leon", lambda opened, order: exterminate_one(opened, int(text)))
    return worker.main("leon", run)


if __name__ == "__main__":
    sys.exit(main())
