"""Other resources in the place of those that an advance reservation has lost.

See docs/design/reservations.rst, "Replacement".
"""

from oar.kao.facts.plan import Reason
from oar.kao.facts.planned_reservations import PlannedReservation
from oar.kao.planner.placement.first_fit import fit_first
from oar.kao.planner.placement.reservable import ReservableResources
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.resources.reservation_health import Health
from oar.lib.facts.resource_set import ResourceSet, positions
from oar.lib.facts.states import ResourceState

#: A resource that is missing after the start is replaced after at most so many seconds.
HASTE = 60


class ReservationReplacement:
    """Searches replacements among what the bookings leave."""

    def __init__(self, context: RoundContext, reservable: ReservableResources) -> None:
        self._reservable = reservable
        self._now = context.now
        self._context = context
        self._resources = context.snapshot.resources

    def due_date(self, reservation: PlannedReservation, health: Health) -> int | None:
        """Return the date from which on lost resources are to be replaced; None if none is."""
        if not reservation.replaces_lost or (not health.lost and not reservation.removed):
            return None
        if reservation.removed or health.lost & self._dead():
            return self._now
        patience = self._context.settings.reservation_replace_after
        if reservation.start <= self._now:
            patience = min(patience, HASTE)
        ids = self._resources.ids_of(health.lost)
        return min(reservation.missing_since.get(number, self._now) for number in ids) + patience

    def find(self, reservation: PlannedReservation, health: Health) -> ResourceSet:
        """Return the resources that the reservation has from now on; 0 if it cannot be satisfied as a whole.

        Those that it keeps are preferred: of the free ones the shortest run is added with which the request fits.
        """
        request = self._context.requests.get(reservation.groups)
        if isinstance(request, Reason):
            return 0
        kept = reservation.resources & ~health.missing
        usable = self._context.usable.ordinary & request.reach & ~reservation.resources
        usable &= self._reservable.healthy(reservation.start) & ~self._reservable.asleep(reservation)
        free = self._context.spaces.common.slots.free_between(self._now, reservation.end) & usable
        found = fit_first(request, sorted(positions(free)), kept)
        bound = 0 if reservation.is_flexible else reservation.used  # its jobs need not be on what it has
        return found if not bound & ~found else 0

    def _dead(self) -> ResourceSet:
        return self._resources.where(self._resources.states, ResourceState.DEAD)
