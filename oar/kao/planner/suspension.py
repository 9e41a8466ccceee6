"""Suspended jobs: which jobs in Resuming resume now.

The resources that a Suspended job lends are computed by ``held_resources`` of
``oar.kao.planner.resources.resource_holders``.

See docs/design/planner.rst, "Starts".
"""

from collections.abc import Iterable

from oar.kao.facts.planned_reservations import PlannedReservation
from oar.kao.planner.resources.reservation_health import is_inside
from oar.kao.planner.resources.resource_holders import Holder, ResourceHolders
from oar.lib.jobs.states import JobState
from oar.lib.reservations.states import GRANTED

#: States in which a job holds its resources against every other job.
_HOLDING = frozenset({JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING, JobState.FINISHING})


def resuming(holders: ResourceHolders) -> list[Holder]:
    """Return the jobs in Resuming, in the order in which they resume."""
    jobs = [holder for holder in holders.all if holder.job.state is JobState.RESUMING and not holder.job.is_killed]
    return sorted(jobs, key=_turn)


def obstacles(holders: ResourceHolders, resuming_job: Holder) -> list[Holder]:
    """Return the jobs that prevent a job in Resuming from resuming.

    They hold its resources, or are before it in Resuming with common resources: the Runner may be thawing them now.
    """
    inside = holders.inside(resuming_job)
    return [
        holder
        for holder in holders.all
        if holder.resources & resuming_job.resources
        and holder.job.id != resuming_job.job.id
        and holder.job.id not in inside
        and (holder.job.state in _HOLDING or _is_before(holder, resuming_job))
        and not holders.may_share(resuming_job.types, holder)
    ]


def in_the_way(
    reservations: Iterable[PlannedReservation], resuming_job: Holder, now: int, margin: int
) -> list[PlannedReservation]:
    """Return the other reservations that conflict with a job in Resuming before its end.

    ``margin``: SCHEDULER_JOB_SECURITY_TIME, in seconds.  Besteffort jobs are ignored until the reservation begins,
    because they leave in time.
    """
    types, end = resuming_job.types, resuming_job.job.end + margin
    return [
        reservation
        for reservation in reservations
        if reservation.state in GRANTED
        and reservation.start < end
        and now < reservation.end
        and not (types.is_besteffort and now < reservation.start)
        and reservation.resources & resuming_job.resources
        and not is_inside(types, reservation)
    ]


def _is_before(holder: Holder, resuming_job: Holder) -> bool:
    return holder.job.state is JobState.RESUMING and _turn(holder) < _turn(resuming_job)


def _turn(holder: Holder) -> tuple[int, int]:
    return holder.job.turn, holder.job.id
