"""The resources that advance reservations may get; shared by requests, changes and replacements of lost resources.

See docs/design/reservations.rst, "Granting" and "Replacement".
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from oar.kao.facts.job_types import ParsedTypes, is_inside
from oar.kao.facts.plan import Reason
from oar.kao.facts.snapshot import PlannedReservation, RunningJob, Snapshot
from oar.kao.planner.advance_reservations.health import Health
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.resources.usable_resources import UsableResources
from oar.lib.base.resource_set import ResourceSet, from_positions, positions, union
from oar.lib.jobs.states import JobState
from oar.lib.nodes.hierarchy import RequestFit
from oar.lib.nodes.states import ResourceState


def fit_first(request: RequestFit, ranks: Sequence[int], kept: ResourceSet = 0) -> ResourceSet:
    """Return where a request fits in ``kept`` and the shortest sufficient prefix of ``ranks``; return 0 if nowhere."""

    def fit(count: int) -> ResourceSet:
        return request.fit(kept | from_positions(ranks[:count]))

    if not fit(len(ranks)):
        return 0
    return fit(bisect_left(range(len(ranks)), True, key=lambda count: bool(fit(count))))


#: A job in them has no date at which it is over.
_ASLEEP = (JobState.SUSPENDED, JobState.RESUMING)


class ReservableResources:
    """Classifies the resources of a snapshot for advance reservations."""

    def __init__(self, snapshot: Snapshot, types: Mapping[int, ParsedTypes], usable: UsableResources) -> None:
        self._now = snapshot.now
        self._types = types
        self._usable = usable
        self._maintained = snapshot.maintenance
        self._sleepers = [job for job in snapshot.running if job.state in _ASLEEP]
        self._asleep = union(job.resources for job in self._sleepers)
        self._held = {job.id: job.resources for job in snapshot.running} if snapshot.reservations else {}

    def bound(self, reservation: PlannedReservation) -> ResourceSet:
        """Return the resources that a reservation must keep because its jobs hold them; 0 for a flexible one."""
        if reservation.is_flexible:
            return 0
        return reservation.resources & union(self._held.get(number, 0) for number in reservation.live_jobs)

    def asleep(self, reservation: PlannedReservation | None = None) -> ResourceSet:
        """Return the resources of suspended jobs that a reservation cannot use (those of its own jobs excluded)."""
        if reservation is None:
            return self._asleep
        return union(job.resources for job in self._sleepers_outside(reservation))

    def sleepers(self, resources: ResourceSet, reservation: PlannedReservation | None = None) -> list[str]:
        """Return texts for the suspended jobs that keep some of these resources, ordered by job id."""
        jobs = self._sleepers_outside(reservation)
        return [f"suspended job {number}" for number in sorted(job.id for job in jobs if job.resources & resources)]

    def healthy(self, start: int) -> ResourceSet:
        """Return the resources that would not be missing in a reservation starting at ``start``.

        For a start in the future, sleeping nodes count because they can be woken.
        """
        present = self._usable.ordinary if start > self._now else self._usable.alive & self._usable.present
        return present & ~self._maintained

    def choose(self, request: RequestFit, free: ResourceSet, start: int) -> ResourceSet:
        """Return where a request fits: on healthy resources, or with as few others as possible; return 0 if nowhere."""
        healthy = free & self.healthy(start)
        return request.fit(healthy) or fit_first(request, self.ranks(free & ~healthy, start), healthy)

    def ranks(self, resources: ResourceSet, start: int) -> list[int]:
        """Return the resources in order of preference: healthy ones, those to be woken, others."""
        healthy = resources & self.healthy(start)
        to_wake = resources & self._usable.wakeable & ~healthy
        return [bit for each in (healthy, to_wake, resources & ~healthy & ~to_wake) for bit in sorted(positions(each))]

    def _sleepers_outside(self, reservation: PlannedReservation | None) -> Iterator[RunningJob]:
        for job in self._sleepers:
            if reservation is None or not is_inside(self._types[job.id], reservation):
                yield job


#: A resource that is missing after the start is replaced after at most so many seconds.
HASTE = 60


class ReservationReplacement:
    """Searches for replacements among the free resources."""

    def __init__(self, context: RoundContext, reservable: ReservableResources) -> None:
        self._reservable = reservable
        self._now = context.now
        self._context = context
        self._resources = context.snapshot.resources

    def overdue(self, reservation: PlannedReservation, health: Health) -> ResourceSet:
        """Return the lost resources to replace now; resources held by jobs of the reservation are kept.

        Removed resources are not included, because they no longer exist.
        """
        dates = self._dates(reservation, health)
        return from_positions(bit for bit, date in dates.items() if date <= self._now)

    def is_due(self, reservation: PlannedReservation, health: Health) -> bool:
        if not reservation.replaces_lost or health.is_queue_disabled:
            return False
        return bool(reservation.removed or self.overdue(reservation, health))

    def next_date(self, reservation: PlannedReservation, health: Health) -> int | None:
        """Return the next date at which more lost resources have to be replaced; return None if there is none."""
        dates = self._dates(reservation, health).values()
        return min((date for date in dates if date > self._now), default=None)

    def find(self, reservation: PlannedReservation, health: Health) -> ResourceSet:
        """Return the complete new resources of the reservation; return 0 if the whole request cannot be satisfied.

        Kept resources are preferred, then free ones on the same nodes; as few as possible are added.
        """
        request = self._context.requests.get(reservation.groups)
        if isinstance(request, Reason):
            return 0
        begin, kept = reservation.held_from(self._now), reservation.resources & ~self.overdue(reservation, health)
        usable = self._context.usable.ordinary & request.reach & ~reservation.resources
        usable &= self._reservable.healthy(begin) & ~self._reservable.asleep(reservation)
        free = self._context.spaces.common.free_between(begin, reservation.end) & usable
        addresses = self._resources.addresses
        nodes = {addresses[bit] for bit in positions(kept)} - {""}
        beside = free & from_positions(bit for bit, address in enumerate(addresses) if address in nodes)
        found = fit_first(request, [*sorted(positions(beside)), *sorted(positions(free & ~beside))], kept)
        return found if not self._reservable.bound(reservation) & ~found else 0

    def _dates(self, reservation: PlannedReservation, health: Health) -> dict[int, int]:
        if not reservation.replaces_lost:
            return {}
        patience = self._context.settings.reservation_replace_after
        if reservation.has_begun(self._now):
            patience = min(patience, HASTE)
        dead = self._resources.where(self._resources.states, ResourceState.DEAD)
        ids, since = self._resources.ids, reservation.missing_since
        return {
            bit: self._now if dead >> bit & 1 else since.get(ids[bit], self._now) + patience
            for bit in positions(health.lost & ~self._reservable.bound(reservation))
        }
