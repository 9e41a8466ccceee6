"""What is looked for and put right when the server starts (server.md 10).

There is no separate path for "after a crash": the Runner calls this at each start, and what it finds goes through the
same actions as every day.  No node is contacted here.
"""

from typing import TYPE_CHECKING

from oar.lib import lifecycle
from oar.lib.db.repairs import Repairs
from oar.lib.messages import Tag, Wake
from oar.lib.states import EventType, ExecCode, JobState, Reservation

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction


def repair(tx: "Transaction") -> None:
    """Make the rows of the database agree with one another."""
    repairs = Repairs(tx)
    repairs.logs_and_indexes()
    for job_id, state in repairs.without_resources():
        if state is JobState.TO_LAUNCH:
            _schedule_again(tx, job_id)
        elif state is not JobState.FINISHING:
            _end_without_resources(tx, job_id)


def _schedule_again(tx: "Transaction", job_id: int) -> None:
    if not lifecycle.move(tx, job_id, JobState.WAITING):
        return
    job = tx.jobs.get(job_id)
    start_time = 0 if job.reservation is Reservation.NONE else job.start_time
    tx.jobs.update(job_id, assigned_moldable_job=0, start_time=start_time, message="Reset after a server restart")
    tx.outbox.append(Wake(Tag.SCHEDULING))


def _end_without_resources(tx: "Transaction", job_id: int) -> None:
    """Let a job end that runs nowhere: its end is noted as if a node had reported the death of its oarexec."""
    tx.events.add(EventType.BIPBIP_BAD_JOBID, job_id, f"[Recovery] no resource is assigned to the job {job_id}")
    tx.runs.report(job_id, ExecCode.DIED, None)
    lifecycle.move(tx, job_id, JobState.FINISHING)
