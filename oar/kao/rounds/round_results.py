"""The results of a round for Almighty: the exit code, and the date of the next round."""

from oar.kao.facts.job_types import expiry_date
from oar.kao.facts.plan import KillAction, Plan
from oar.kao.facts.snapshot import Snapshot
from oar.lib.bus.exit_codes import MetaSchedCode
from oar.lib.jobs.states import Reservation
from oar.lib.reservations.states import STARTED


def exit_code(plan: Plan) -> MetaSchedCode:
    """Return the exit code, which is the instruction for Almighty."""
    if any(kill.action is not KillAction.CHECKPOINT for kill in plan.kills):
        return MetaSchedCode.KILL
    has_begun = any(step.notes and (step.state in STARTED or step.resources) for step in plan.reservations)
    is_near = any(answer.start <= plan.now + 1 for answer in plan.accepted)
    return MetaSchedCode.AGAIN if has_begun or is_near else MetaSchedCode.DONE


def next_start(snapshot: Snapshot, plan: Plan) -> int | None:
    """Return the next date at which a job starts or expires, or an advance reservation changes.

    Reservation jobs are not counted: Sarko watches them.
    """
    reserved = {job.id for job in snapshot.waiting if job.reservation is not Reservation.NONE}
    starts = (placement.start for placement in plan.placements if placement.job_id not in reserved)
    ends = (expiry_date(job) for job in snapshot.waiting if job.types and job.id not in reserved)
    return min((date for date in (*starts, *ends, *plan.reservation_dates) if date > plan.now), default=None)
