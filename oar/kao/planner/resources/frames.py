"""Advance reservations in the spaces: the resources that their frames occupy and lend to their jobs.

See docs/design/reservations.rst, "In the plan".
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Reason
from oar.kao.facts.planned_reservations import PlannedReservation
from oar.kao.facts.snapshot import Settings, Snapshot
from oar.kao.planner.resources.reservation_health import Health, is_inside
from oar.lib.base.resource_set import ResourceSet
from oar.lib.jobs.states import QueueState
from oar.lib.reservations.states import ReservationState


@dataclass(frozen=True, slots=True)
class FrameWindow:
    """The resources and dates that a frame takes from the common space and lends to its own space."""

    start: int
    end: int
    resources: ResourceSet  #: all that are granted, missing or not
    lent_end: int  #: what is lent is lent from the start on; at the end the security time of its jobs is over
    lent: ResourceSet


def window_of(reservation: PlannedReservation, missing: ResourceSet, settings: Settings, now: int) -> FrameWindow:
    """Return the window of a granted reservation.

    No security time follows its end, because its jobs end earlier: the next reservation may begin at its end.  After
    its end it keeps its resources until its last job has ended.  A started reservation holds them now, even if the
    clock was set back.
    """
    start = min(reservation.start, reservation.held_from(now))
    end = reservation.end if reservation.end > now else now + settings.security_time
    lent = 0 if reservation.is_leaving else reservation.resources & ~missing
    return FrameWindow(start, end, reservation.resources, reservation.latest_job_end + settings.security_time, lent)


def frame_windows(snapshot: Snapshot, healths: Mapping[int, Health]) -> dict[int, FrameWindow]:
    """Return the windows of all granted reservations, by the job id of their frame."""
    return {
        reservation.frame_id: window_of(reservation, healths[reservation.id].missing, snapshot.settings, snapshot.now)
        for reservation in snapshot.reservations
        if reservation.state is not ReservationState.ASKED
    }


def closed_frames(
    snapshot: Snapshot, healths: Mapping[int, Health], types: Mapping[int, ParsedTypes]
) -> dict[str, Reason]:
    """Return the reservations in which no job may start now: the reasons by the name of their space.

    Only reservations with waiting jobs or containers are included.  Containers in a closed reservation are closed too.
    """
    if not snapshot.reservations:
        return {}
    boxes = [(types[job.id], job.id) for job in snapshot.running if types[job.id].container and types[job.id].inner]
    waited_for = {types[job.id].inner for job in snapshot.waiting} | {box.inner for box, _ in boxes}
    closed: dict[str, Reason] = {}
    for reservation in snapshot.reservations:
        health, name = healths.get(reservation.id), str(reservation.frame_id)
        if health is None or reservation.is_leaving or name not in waited_for:
            continue
        if not reservation.has_begun(snapshot.now):
            closed[name] = reasons.before_reservation(reservation.number, reservation.start)
        elif reservation.is_hard and not health.is_complete:
            closed[name] = reasons.hard_error(reservation.number, health.reasons[0])
    while inside := [box for box in boxes if box[0].inner in closed]:
        boxes = [box for box in boxes if box not in inside]
        closed |= {name: closed[box.inner] for box, job_id in inside for name in box.container_names(job_id)}
    return closed


def left_behind(snapshot: Snapshot, types: Mapping[int, ParsedTypes]) -> set[int]:
    """Return the unplanned waiting jobs of orphaned queues: those in no advance reservation of the queue."""
    orphaned = {queue.name for queue in snapshot.queues if queue.state is QueueState.ORPHANED}
    return {
        job.id
        for job in (snapshot.waiting if orphaned else ())
        if job.queue in orphaned
        and job.id in types
        and not any(each.queue == job.queue and is_inside(types[job.id], each) for each in snapshot.reservations)
    }


def outside_quotas(snapshot: Snapshot, types: dict[int, ParsedTypes]) -> dict[int, ParsedTypes]:
    """Exempt the jobs inside reservations from quotas; return the types of all jobs."""
    names = {str(reservation.frame_id): reservation for reservation in snapshot.reservations}
    for job_id, job_types in types.items() if names else ():
        reservation = names.get(job_types.inner)
        if reservation and is_inside(job_types, reservation):
            types[job_id] = replace(job_types, counts_in_quotas=False)
    return types
