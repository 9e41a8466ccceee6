"""The health of advance reservations, and the resources that their frames occupy and lend to their jobs.

The resources on which no job could start now are missing.

See docs/design/reservations.rst, "Health" and "In the plan".
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes, is_inside
from oar.kao.facts.plan import Reason
from oar.kao.facts.snapshot import PlannedReservation, RunningJob, Settings, Snapshot
from oar.kao.planner.resources.resource_holders import ResourceIndex, held_resources
from oar.kao.planner.resources.spaces import FrameWindow
from oar.lib.base.grid_engine_times import write_date
from oar.lib.base.resource_set import ResourceSet, from_positions, positions, union
from oar.lib.jobs.states import JobState, QueueState
from oar.lib.nodes.hierarchy import FINEST
from oar.lib.nodes.states import HALTED_NEVER_WOKEN, STANDBY_FOR_EVER, ResourceState
from oar.lib.reservations.states import ReservationState

_STILL_USED = "is still used by job"


@dataclass(frozen=True, slots=True)
class Health:
    """The missing resources of a reservation, and the reasons in the order of the nodes."""

    missing: ResourceSet = 0  #: of those that exist
    lost: ResourceSet = 0  #: those of the missing ones that may be replaced: not those that a job still holds
    reasons: tuple[str, ...] = ()
    is_queue_disabled: bool = False  #: none of its resources can be used as long as that lasts

    @property
    def is_complete(self) -> bool:
        return not self.reasons


#: Nothing is missing.
COMPLETE = Health()


def _is_date(upto: int) -> bool:
    """Return whether ``available_upto`` is a real date of withdrawal."""
    return HALTED_NEVER_WOKEN < upto < STANDBY_FOR_EVER


class ReservationHealth:
    """Evaluates the health of the reservations of a snapshot."""

    def __init__(self, snapshot: Snapshot, types: Mapping[int, ParsedTypes]) -> None:
        resources = snapshot.resources
        self._snapshot = snapshot
        self._types = types
        self._resources = resources
        self._inactive = {queue.name for queue in snapshot.queues if queue.state is QueueState.NOT_ACTIVE}
        self._properties = {*resources.columns, "network_address", FINEST}
        self._dead: ResourceSet = 0
        #: on all other resources nothing but a job or a changed property can be wrong
        self._doubtful = snapshot.maintenance
        self._held: dict[int, ResourceSet] = {}  #: by job; without containers, whose resources their jobs hold
        self._holders: ResourceIndex[RunningJob] = ResourceIndex()
        self._besteffort: ResourceIndex[RunningJob] = ResourceIndex()  #: those in no container
        self._containers: defaultdict[str, list[ParsedTypes]] = defaultdict(list)  #: by the names of their spaces
        self._healths: dict[int, tuple[PlannedReservation, Health]] = {}
        if snapshot.reservations:
            alive = resources.where(resources.states, ResourceState.ALIVE)
            leaving = from_positions(bit for bit, upto in enumerate(resources.available_upto) if _is_date(upto))
            self._dead = resources.where(resources.states, ResourceState.DEAD)
            self._doubtful |= (resources.everything & ~alive) | leaving
            for job in snapshot.running:
                own = types[job.id]
                for name in own.container_names(job.id):
                    self._containers[name].append(own)
                if not own.container:
                    # a job in Resuming waits for the reservation, so it counts as suspended
                    asleep = replace(job, state=JobState.SUSPENDED) if job.state is JobState.RESUMING else job
                    self._held[job.id] = held = held_resources(asleep, resources, snapshot.settings)
                    self._holders.add(job, held)
                    if own.is_besteffort and not own.inner:
                        self._besteffort.add(job, held)

    def of(self, reservation: PlannedReservation) -> Health:
        known = self._healths.get(reservation.id)
        if known is None or known[0] is not reservation:
            known = self._healths[reservation.id] = reservation, self._judge(reservation)
        return known[1]

    def _judge(self, reservation: PlannedReservation) -> Health:
        if reservation.is_for_nobody:
            return COMPLETE
        if reservation.queue in self._inactive:
            reason = f"reserved queue {reservation.queue} is disabled"
            return Health(reservation.resources, 0, (reason,), is_queue_disabled=True)
        unsatisfying = reservation.resources & ~self._satisfying(reservation)
        outsiders = self._outsiders(reservation) if reservation.has_begun(self._snapshot.now) else []
        is_doubtful = unsatisfying or outsiders or reservation.resources & self._doubtful
        if not reservation.removed and not is_doubtful:
            return COMPLETE
        causes = {number: f"reserved resource {number} was removed" for number in reservation.removed}
        by_bit: dict[int, str] = {}
        for bit, cause in self._causes(reservation, outsiders):
            by_bit.setdefault(bit, cause)
        lines = [*causes.values(), *self._lines(reservation, by_bit)]
        lost = union(1 << bit for bit, cause in by_bit.items() if not cause.startswith(_STILL_USED))
        return Health(union(1 << bit for bit in by_bit), lost, tuple(lines))

    def _causes(self, reservation: PlannedReservation, outsiders: list[RunningJob]) -> Iterator[tuple[int, str]]:
        """Iterate over the missing resources by bit, each with its cause; the first cause of a resource counts."""
        resources, snapshot = self._resources, self._snapshot
        has_begun = reservation.has_begun(snapshot.now)
        for bit in positions(reservation.resources & snapshot.maintenance):
            yield bit, "is in maintenance"
        for bit in positions(reservation.resources):
            state, upto = resources.states[bit], resources.available_upto[bit]
            can_be_woken = snapshot.settings.may_wake and upto > snapshot.now
            if state is ResourceState.ABSENT and not has_begun and can_be_woken:
                continue
            if state is not ResourceState.ALIVE:
                yield bit, f"is {state}"
            if _is_date(upto) and upto < reservation.end:
                yield bit, f"is available only up to {write_date(upto)}"
        for bit in positions(reservation.resources & ~self._satisfying(reservation)):
            yield bit, "no longer satisfies the request"
        for job in outsiders:
            for bit in positions(reservation.resources & self._held[job.id]):
                yield bit, f"{_STILL_USED} {job.id}"

    def _satisfying(self, reservation: PlannedReservation) -> ResourceSet:
        """Return the resources that satisfy a filter of the request; return all if the filters were not evaluated."""
        pools = self._snapshot.pools
        if not reservation.groups or any(pools[group.pool].is_put_off for group in reservation.groups):
            return self._resources.everything
        members = self._dead
        for group in reservation.groups:
            has_its_properties = all(level.property in self._properties for level in group.levels)
            if has_its_properties and not pools[group.pool].trouble:
                members |= pools[group.pool].members
        return members

    def leaving(self, reservation: PlannedReservation) -> list[RunningJob]:
        """Return the besteffort jobs from outside the reservation that hold resources which are not lost."""
        wanted = reservation.resources & ~self.of(reservation).lost
        if reservation.queue in self._inactive:
            return []
        return [job for job in self._besteffort.on(wanted) if not is_inside(self._types[job.id], reservation)]

    def _outsiders(self, reservation: PlannedReservation) -> list[RunningJob]:
        """Return the jobs that hold resources of a reservation but are not inside it or one of its containers."""
        return [
            job
            for job in self._holders.on(reservation.resources)
            if job.id != reservation.frame_id
            and not any(is_inside(types, reservation) for types in self._around(self._types[job.id]))
        ]

    def _around(self, types: ParsedTypes) -> Iterator[ParsedTypes]:
        """Iterate over the types of a job and of the containers around it."""
        names, left = {""}, [types]
        while left:
            each = left.pop()
            yield each
            if each.inner not in names:
                names.add(each.inner)
                left += self._containers.get(each.inner, ())

    def _lines(self, reservation: PlannedReservation, causes: Mapping[int, str]) -> list[str]:
        """Return one line per node and cause, in the order of the nodes."""
        addresses, types, ids = self._resources.addresses, self._resources.types, self._resources.ids
        lines: dict[str, None] = {}
        for bit, cause in sorted(causes.items(), key=lambda each: (addresses[each[0]], ids[each[0]])):
            host = addresses[bit]
            if not host or cause.startswith(("no longer", "is available")):
                kind = "" if host else f" ({types[bit]})"
                lines[f"reserved resource {ids[bit]}{kind} {cause}"] = None
                continue
            own = [other for other in positions(reservation.resources) if addresses[other] == host]
            present = sum(other not in causes for other in own)
            count = f" ({present} of {len(own)} slots)" if present else ""
            lines[f"reserved host {host} {cause}{count}"] = None
        return list(lines)


def healths_of(snapshot: Snapshot, health: ReservationHealth) -> dict[int, Health]:
    granted = (each for each in snapshot.reservations if each.state is not ReservationState.ASKED)
    return {reservation.id: health.of(reservation) for reservation in granted}


def state_of(reservation: PlannedReservation, health: Health, now: int) -> ReservationState:
    """Return the state of a granted reservation that was neither ended nor deleted."""
    if reservation.has_begun(now):
        return ReservationState.RUNNING if health.is_complete else ReservationState.ERROR
    return ReservationState.WAITING if health.is_complete else ReservationState.WARNING


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
