"""Replacement of the resources that an advance reservation has lost.

See docs/design/reservations.rst, "Replacement".
"""

from oar.kao.facts.plan import Reason
from oar.kao.facts.planned_reservations import PlannedReservation
from oar.kao.planner.placement.first_fit import fit_first
from oar.kao.planner.placement.reservable import ReservableResources
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.resources.reservation_health import Health
from oar.lib.base.resource_set import ResourceSet, from_positions, positions
from oar.lib.nodes.states import ResourceState

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
        """Return whether resources have to be replaced now."""
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
        free = self._context.spaces.common.slots.free_between(begin, reservation.end) & usable
        beside = free & self._on_nodes_of(kept)
        found = fit_first(request, [*sorted(positions(beside)), *sorted(positions(free & ~beside))], kept)
        return found if not self._reservable.bound(reservation) & ~found else 0

    def _dates(self, reservation: PlannedReservation, health: Health) -> dict[int, int]:
        """Return the replacement date of each lost resource."""
        if not reservation.replaces_lost:
            return {}
        patience = self._context.settings.reservation_replace_after
        if reservation.has_begun(self._now):
            patience = min(patience, HASTE)
        dead, ids, since = self._dead(), self._resources.ids, reservation.missing_since
        return {
            bit: self._now if dead >> bit & 1 else since.get(ids[bit], self._now) + patience
            for bit in positions(health.lost & ~self._reservable.bound(reservation))
        }

    def _on_nodes_of(self, kept: ResourceSet) -> ResourceSet:
        """Return all resources on the nodes of ``kept``."""
        addresses = self._resources.addresses
        nodes = {addresses[bit] for bit in positions(kept)} - {""}
        return from_positions(bit for bit, address in enumerate(addresses) if address in nodes)

    def _dead(self) -> ResourceSet:
        return self._resources.where(self._resources.states, ResourceState.DEAD)
