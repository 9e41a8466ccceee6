"""Which resources of an advance reservation are missing, and why: no job could be started on them now.

See docs/design/reservations.rst, "Health".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.planned_reservations import PlannedReservation
from oar.kao.facts.snapshot import RunningJob, Snapshot
from oar.kao.planner.resources.resource_holders import held_resources
from oar.lib.facts.reservation_states import STARTED, ReservationState
from oar.lib.facts.resource_set import ResourceSet, from_positions, positions, union
from oar.lib.facts.states import HALTED_NEVER_WOKEN, STANDBY_FOR_EVER, JobState, JobTypeName, QueueState, ResourceState
from oar.lib.facts.times import format_date

_STILL_USED = "is still used by job"


@dataclass(frozen=True, slots=True)
class Health:
    """The missing resources of a reservation, with the reasons in the order of the nodes."""

    missing: ResourceSet = 0  #: of those that exist
    lost: ResourceSet = 0  #: those of the missing ones that may be replaced: not those that a job still holds
    reasons: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.reasons


#: Nothing is missing.
COMPLETE = Health()


def _is_date(upto: int) -> bool:
    """Whether a resource leaves at a date."""
    return HALTED_NEVER_WOKEN < upto < STANDBY_FOR_EVER


def is_inside(types: ParsedTypes, reservation: PlannedReservation) -> bool:
    """Whether a job of these types belongs to a reservation."""
    if reservation.is_flexible:
        return (JobTypeName.PLACEHOLDER, f"ar{reservation.id}") in types.shared_keys
    return types.inner == str(reservation.frame_id)


class ReservationHealth:
    """Judges the reservations of a snapshot."""

    def __init__(self, snapshot: Snapshot, types: Mapping[int, ParsedTypes]) -> None:
        resources = snapshot.resources
        self._snapshot = snapshot
        self._types = types
        self._resources = resources
        self._inactive = {queue.name for queue in snapshot.queues if queue.state is QueueState.NOT_ACTIVE}
        self._dead: ResourceSet = 0
        #: on all other resources nothing but a job or a changed property can be wrong
        self._doubtful = snapshot.maintenance
        self._held: ResourceSet = 0
        self._healths: dict[int, tuple[PlannedReservation, Health]] = {}
        if snapshot.reservations:
            alive = resources.where(resources.states, ResourceState.ALIVE)
            leaving = from_positions(bit for bit, upto in enumerate(resources.available_upto) if _is_date(upto))
            self._dead = resources.where(resources.states, ResourceState.DEAD)
            self._doubtful |= (resources.everything & ~alive) | leaving
            self._held = union(self._held_by(job) for job in snapshot.running if not types[job.id].container)

    def of(self, reservation: PlannedReservation) -> Health:
        """Return what is missing of a granted reservation now."""
        known = self._healths.get(reservation.id)
        if known is None or known[0] is not reservation:
            known = self._healths[reservation.id] = reservation, self._judge(reservation)
        return known[1]

    def _judge(self, reservation: PlannedReservation) -> Health:
        if reservation.queue in self._inactive:
            return Health(reservation.resources, 0, (f"reserved queue {reservation.queue} is disabled",))
        unsatisfying = reservation.resources & ~self._satisfying(reservation)
        if not reservation.removed and not unsatisfying and not reservation.resources & (self._doubtful | self._held):
            return COMPLETE
        causes = {number: f"reserved resource {number} was removed" for number in reservation.removed}
        by_bit: dict[int, str] = {}
        for bit, cause in self._causes(reservation):
            by_bit.setdefault(bit, cause)
        lines = [*causes.values(), *self._lines(reservation, by_bit)]
        lost = union(1 << bit for bit, cause in by_bit.items() if not cause.startswith(_STILL_USED))
        return Health(union(1 << bit for bit in by_bit), lost, tuple(lines))

    def _causes(self, reservation: PlannedReservation) -> Iterator[tuple[int, str]]:
        """Iterate over the missing resources by bit, each with half a sentence; the first one of a resource counts."""
        resources, snapshot = self._resources, self._snapshot
        has_started = reservation.state in STARTED or reservation.start <= snapshot.now
        for bit in positions(reservation.resources & snapshot.maintenance):
            yield bit, "is in maintenance"
        for bit in positions(reservation.resources):
            state, upto = resources.states[bit], resources.available_upto[bit]
            can_be_woken = snapshot.settings.may_wake and upto > snapshot.now
            if state is ResourceState.ABSENT and not has_started and can_be_woken:
                continue
            if state is not ResourceState.ALIVE:
                yield bit, f"is {state}"
            if _is_date(upto) and upto < reservation.end:
                yield bit, f"is available only up to {format_date(upto)}"
        for bit in positions(reservation.resources & ~self._satisfying(reservation)):
            yield bit, "no longer satisfies the request"
        if has_started:
            for job in self._outsiders(reservation):
                for bit in positions(reservation.resources & self._held_by(job)):
                    yield bit, f"{_STILL_USED} {job.id}"

    def _satisfying(self, reservation: PlannedReservation) -> ResourceSet:
        """Return the resources that satisfy a condition of the request; all if that cannot be told."""
        pools = [self._snapshot.pools[group.pool] for group in reservation.groups]
        if not pools or any(pool.trouble for pool in pools):
            return self._resources.everything
        return union(pool.members for pool in pools) | self._dead

    def _outsiders(self, reservation: PlannedReservation) -> Iterator[RunningJob]:
        for job in self._snapshot.running:
            types = self._types[job.id]
            is_ours = job.id == reservation.frame_id or is_inside(types, reservation)
            if self._held_by(job) & reservation.resources and not is_ours and not types.container:
                yield job

    def _held_by(self, job: RunningJob) -> ResourceSet:
        """Return what a job keeps from the jobs of a reservation; one that is to go on waits for the reservation."""
        asleep = replace(job, state=JobState.SUSPENDED) if job.state is JobState.RESUMING else job
        return held_resources(asleep, self._resources, self._snapshot.settings)

    def _lines(self, reservation: PlannedReservation, causes: Mapping[int, str]) -> list[str]:
        """Return one line for each cause of each node, in the order of the nodes."""
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
    """Return the health of each reservation that has been granted, by id."""
    granted = (each for each in snapshot.reservations if each.state is not ReservationState.ASKED)
    return {reservation.id: health.of(reservation) for reservation in granted}


def state_of(reservation: PlannedReservation, health: Health, now: int) -> ReservationState:
    """Return the state of a granted reservation that neither ended nor was deleted."""
    if now >= reservation.start:
        return ReservationState.RUNNING if health.is_complete else ReservationState.ERROR
    return ReservationState.WAITING if health.is_complete else ReservationState.WARNING
