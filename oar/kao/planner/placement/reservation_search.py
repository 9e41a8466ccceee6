"""The search for resources of an advance reservation: the complete request at its date, or the reason for refusal.

See docs/design/reservations.rst, "Granting".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oar.kao.facts.plan import Reason
from oar.kao.facts.planned_reservations import PlannedReservation
from oar.kao.facts.request_groups import RequestGroup
from oar.kao.facts.snapshot import WaitingJob
from oar.kao.planner.placement.obstacles import Obstacles
from oar.kao.planner.placement.placement_search import PlacementSearch
from oar.kao.planner.placement.reservable import ReservableResources
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.placement.search_clock import SearchClock
from oar.kao.planner.placement.shortages import Shortage
from oar.kao.planner.resources.endings import Occupation
from oar.kao.planner.resources.slot_search import earliest
from oar.kao.planner.resources.slots import SlotQuery
from oar.kao.planner.resources.spaces import Space
from oar.lib.base.resource_set import ResourceSet
from oar.lib.base.times import format_duration
from oar.lib.reservations.grid_engine_times import write_date

#: So many dates are tried at which a whole series might begin.
MAX_SHIFTS = 16

NO_TIME = "the scheduler had no time to look for a later start"


@dataclass(frozen=True, slots=True)
class GrantedPlace:
    """Window and resources of a request that can be granted."""

    alternative: int  #: its number among those of the request, from 0
    start: int
    end: int
    resources: ResourceSet


@dataclass(frozen=True, slots=True)
class NoPlace:
    """Why a request is refused, and its earliest possible start; 0 = none was found."""

    message: str
    proposal: int = 0


class ReservationSearch:
    """Searches for resources for reservation requests among the free resources."""

    def __init__(
        self, context: RoundContext, search: PlacementSearch, reservable: ReservableResources, clock: SearchClock
    ) -> None:
        self._clock = clock
        self._now = context.now
        self._context = context
        self._search = search
        self._spaces = context.spaces
        self._reservable = reservable
        self._running = {job.id for job in context.snapshot.running}
        self._frames = {each.frame_id for each in context.snapshot.reservations}
        self._obstacles = Obstacles(context)

    def find(
        self, reservation: PlannedReservation, frame: WaitingJob, *, proposes: bool = True
    ) -> GrantedPlace | NoPlace:
        """Return the placement of a request at its date, or within its start window.  Raises NoTimeLeft.

        ``proposes``: search for a later start if there is none.
        """
        return self._find(reservation, frame, self._space(reservation), proposes=proposes)

    def find_all(self, requests: Sequence[tuple[PlannedReservation, WaitingJob]]) -> list[GrantedPlace | NoPlace]:
        """Return the placements of requests of one kind, placed one after the other.  Raises NoTimeLeft."""
        space = self._space(requests[0][0]).copy()
        places = []
        for reservation, frame in requests:
            place = self._find(reservation, frame, space)
            places.append(place)
            if isinstance(place, GrantedPlace):
                taken = Occupation(frame.id, place.start, place.end, place.resources)
                space.enter(taken, self._context.types[frame.id])
        return places

    def later_start_of_all(self, requests: Sequence[tuple[PlannedReservation, WaitingJob]]) -> int:
        """Return the earliest later start of the first request at which all requests have a place.

        The requests are of one kind, and all are delayed by the same time.  Return 0 if no start was found, or if there
        is no time.  Raises NoTimeLeft.
        """
        shift = 1
        for _ in range(MAX_SHIFTS):
            needed = self._needed_shift(requests, shift)
            if needed in (0, shift):
                return requests[0][0].start + shift if needed else 0
            shift = needed
        return 0

    def _needed_shift(self, requests: Sequence[tuple[PlannedReservation, WaitingJob]], shift: int) -> int:
        """Return ``shift`` if all requests fit with this delay; otherwise the delay at which the first misfit fits.

        Return 0 if it never fits.
        """
        space = self._space(requests[0][0]).copy()
        for reservation, frame in requests:
            self._clock.check()
            if self._clock.is_over:
                return 0
            start, duration = reservation.start + shift, reservation.end - reservation.start
            queries = [query for _, query in self._queries(reservation, frame, duration)]
            if taken := next(filter(None, (self._choose(space, query, start) for query in queries)), 0):
                space.enter(Occupation(frame.id, start, start + duration, taken), self._context.types[frame.id])
                continue
            found = filter(None, (earliest(space.slots, query, start + 1) for query in queries))
            return min((match.start for match in found), default=reservation.start) - reservation.start
        return shift

    def _find(
        self, reservation: PlannedReservation, frame: WaitingJob, space: Space, *, proposes: bool = True
    ) -> GrantedPlace | NoPlace:
        start, end = max(reservation.start, self._now), reservation.end
        if start <= reservation.start + reservation.start_window:
            end += start - reservation.start  # the start may be later; the duration stays the same
        if end - start <= reservation.time_offset:
            offset = format_duration(reservation.time_offset)
            return NoPlace(f"the time that is left until its end is not longer than {offset}")
        queries = list(self._queries(reservation, frame, end - start))
        if not queries:
            return NoPlace("its request cannot be evaluated")
        for number, query in queries:
            self._clock.check()
            if resources := self._choose(space, query, start):
                return GrantedPlace(number, start, end, resources)
        latest = reservation.start + reservation.start_window
        if reservation.start_window and (later := self._in_window(reservation, queries, space, start, latest)):
            return later
        message = self._lack(space, queries[0][1], start, frame.alternatives[queries[0][0]].groups)
        if not proposes or self._clock.is_over:
            return NoPlace(f"{message}; {NO_TIME}" if proposes else message)
        match = earliest(space.slots, queries[0][1], max(start, latest) + 1)
        return NoPlace(message, match.start if match else 0)

    def _in_window(
        self,
        reservation: PlannedReservation,
        queries: list[tuple[int, SlotQuery]],
        space: Space,
        start: int,
        latest: int,
    ) -> GrantedPlace | None:
        """Return the placement with the earliest start in the window and the same duration; return None without one."""
        best: GrantedPlace | None = None
        for number, query in queries:
            self._clock.check()
            match = earliest(space.slots, query, start, best.start - 1 if best else latest)
            if match:
                resources = self._choose(space, query, match.start) or match.resources
                best = GrantedPlace(number, match.start, match.start + query.duration, resources)
        return best

    def _choose(self, space: Space, query: SlotQuery, start: int) -> ResourceSet:
        free = space.slots.free_between(start, start + query.duration, query.keys) & query.usable
        return self._reservable.choose(query.request, free, start)

    def _queries(
        self, reservation: PlannedReservation, frame: WaitingJob, duration: int
    ) -> Iterator[tuple[int, SlotQuery]]:
        types = self._context.types[frame.id]
        for number, alternative in enumerate(frame.alternatives):
            query = self._search.frame_query(frame, alternative, types, duration)
            if not isinstance(query, Reason):
                usable, kind = query.usable & ~self._reservable.asleep(), f"{query.kind} frame"
                yield number, query._replace(usable=usable, kind=kind)

    def _space(self, reservation: PlannedReservation) -> Space:
        """Return the common space, without the running jobs if the reservation ignores them."""
        if not reservation.ignores_jobs:
            return self._spaces.common
        return self._spaces.common_without(self._running - self._frames)

    def _lack(self, space: Space, query: SlotQuery, start: int, groups: Sequence[RequestGroup]) -> str:
        """Return a sentence that names the missing resources and their holders at the requested date."""
        end = start + query.duration
        shortage = Shortage(self._context.snapshot.resources, query.request, groups, self._context.usable.present)
        told, suitable = shortage.told(space.slots.free_between(start, end, query.keys) & ~self._reservable.asleep())
        holders = self._obstacles.named(space, suitable, start, end, self._reservable.sleepers(suitable))
        return f"{told} until {write_date(end)}{holders}"
