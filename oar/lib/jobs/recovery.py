"""Recovery: repair the database when the server starts.

The Runner calls it at each start, also without a previous crash. Repaired jobs pass through the same actions as all
other jobs. This module contacts no node.
See docs/design/launch.rst, "Start of the server".
"""

from typing import TYPE_CHECKING

from oar.lib.bus.messages import Tag, Wake
from oar.lib.history.event_types import EventType
from oar.lib.jobs import lifecycle
from oar.lib.jobs.ends import ExecCode
from oar.lib.jobs.states import JobState, Reservation

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


def repair(tx: "Transaction") -> None:
    """Make the rows of the database consistent."""
    repairs = tx.invariants
    repairs.make_consistent()
    tx.resources.recount_suspended()
    tx.job_runs.forget_silences()  # the server measures the silence of a node only while it probes the node
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
    """End a job without resources, in the same way as after the death of its oarexec."""
    tx.events.add(EventType.BIPBIP_BAD_JOBID, job_id, f"[Recovery] no resource is assigned to the job {job_id}")
    tx.job_runs.report(job_id, ExecCode.DIED, None)
    lifecycle.move(tx, job_id, JobState.FINISHING)
