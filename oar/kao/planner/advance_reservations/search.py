"""The search for resources of an advance reservation: the complete request at its date, or the reason for refusal.

See docs/design/reservations.rst, "Granting".
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from oar.kao.facts.plan import Reason
from oar.kao.facts.snapshot import PlannedReservation, RequestGroup, ResourceColumns, WaitingJob
from oar.kao.planner.advance_reservations.reservable import ReservableResources
from oar.kao.planner.placement.placement_reasons import Obstacles
from oar.kao.planner.placement.placement_search import PlacementSearch
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.resources.resource_holders import Occupation
from oar.kao.planner.resources.slot_search import earliest
from oar.kao.planner.resources.slots import SlotQuery
from oar.kao.planner.resources.spaces import Space
from oar.lib.base.grid_engine_times import write_date
from oar.lib.base.resource_set import ResourceSet, positions
from oar.lib.base.times import format_duration
from oar.lib.jobs.records import Level
from oar.lib.nodes.hierarchy import FINEST, RequestFit

#: Seconds in all.  What is not searched for in that time is searched for in the next round, before all that came later.
SEARCH_SECONDS = 2.0


class NoTimeLeft(Exception):
    """A search was stopped: there is no time left for it in this round."""


class SearchClock:
    """Limits the total time of searches; the first search of each kind always completes.

    So each round decides at least one search of each kind.  A round that is planned twice uses one clock for both
    plans.
    """

    def __init__(self, now: Callable[[], float] = lambda: 0.0, seconds: float = SEARCH_SECONDS) -> None:
        """``now``: returns the time in seconds; with the default, no time passes."""
        self._now = now
        self._left = seconds
        self._settled: set[str] = set()  #: kinds of which one search went to its end
        self._is_first = False  #: the present search goes to its end
        self._since = 0.0
        self.left_over: set[int] = set()  #: ids of the reservations that wait for the next round

    @property
    def is_over(self) -> bool:
        return self._left <= 0

    @contextmanager
    def searching(self, kind: str) -> Iterator[None]:
        """Count the time of a search.  Raises NoTimeLeft, also in ``check`` during the search."""
        if self.is_over and kind in self._settled:
            raise NoTimeLeft
        self._is_first = kind not in self._settled
        self._settled.add(kind)
        self._since = self._now()
        try:
            yield
        finally:
            self._count()

    def check(self) -> None:
        """Raise NoTimeLeft if the time has run out and the current search is not the first of its kind."""
        self._count()
        if self.is_over and not self._is_first:
            raise NoTimeLeft

    def _count(self) -> None:
        now = self._now()
        self._left -= now - self._since
        self._since = now


#: The property of resources that is a node.
NODE = "network_address"


#: The type of resources that are slots.
SLOT = "default"


def describe_shortage(
    resources: ResourceColumns,
    request: RequestFit,
    groups: Sequence[RequestGroup],
    free: ResourceSet,
    present: ResourceSet,
) -> tuple[str, ResourceSet]:
    """Return a text with the number of free units, and the suitable resources.

    They refer to the first group that does not fit; if each group fits alone, to the whole request.  ``present``: what
    is not Dead and has not left.
    """
    reach: ResourceSet = request.reach
    levels: tuple[Level, ...] = ()
    for group, fit, pool in zip(groups, request.groups, request.pools, strict=True):
        if len(groups) == 1 or not fit.is_satisfied(free & present):
            reach, levels = pool, group.levels
            break
    suitable = reach & present
    free &= suitable
    names = [level.property for level in levels]
    if names == [NODE]:
        nodes = resources.nodes_of(suitable)
        held = resources.nodes_of(suitable & ~free)
        return f"only {len(nodes) - len(held)} of {len(nodes)} suitable nodes are free", suitable
    is_of_slots = names[:1] == [NODE] and len(names) == 2 and levels[1].quantity > 0
    if is_of_slots and _is_slot(resources, names[1], suitable):
        slots = levels[1].quantity
        number, of_all = (
            sum(count >= slots for count in Counter(resources.addresses[bit] for bit in positions(members)).values())
            for members in (free, suitable)
        )
        text = f"only {number} of {of_all} suitable nodes have {slots} free slot{'s' * (slots > 1)}"
        return text, suitable
    types = {resources.types[bit] for bit in positions(suitable)}
    unit = f"resources of the type {types.pop()}" if len(types) == 1 and SLOT not in types else "slots"
    return f"only {free.bit_count()} of {suitable.bit_count()} suitable {unit} are free", suitable


def _is_slot(resources: ResourceColumns, name: str, suitable: ResourceSet) -> bool:
    """Return whether each value of a property belongs to one resource of its node."""
    if name == FINEST:
        return True
    column, addresses = resources.columns[name], resources.addresses
    return max(Counter((addresses[bit], column[bit]) for bit in positions(suitable)).values(), default=0) == 1


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
        self, reservation: PlannedReservation, frame: WaitingJob, space: Space | None = None, *, proposes: bool = True
    ) -> GrantedPlace | NoPlace:
        """Return the placement of a request at its date, or within its start window.  Raises NoTimeLeft.

        ``space``: where to search; None: the common space.  ``proposes``: search for a later start if there is none.
        """
        space = space or self._space(reservation)
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

    def find_all(self, requests: Sequence[tuple[PlannedReservation, WaitingJob]]) -> list[GrantedPlace | NoPlace]:
        """Return the placements of requests of one kind, placed one after the other.  Raises NoTimeLeft."""
        space = self._space(requests[0][0]).copy()
        places = []
        for reservation, frame in requests:
            place = self.find(reservation, frame, space)
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
        """Return ``shift`` if all requests fit with it; else that of the first misfit, or 0 if that never fits."""
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
        free = space.free_between(start, start + query.duration, query.keys) & query.usable
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
        if not reservation.ignores_jobs:
            return self._spaces.common
        return self._spaces.common_without(self._running - self._frames)

    def _lack(self, space: Space, query: SlotQuery, start: int, groups: Sequence[RequestGroup]) -> str:
        """Return a sentence that names the missing resources and their holders at the requested date."""
        end, resources, present = start + query.duration, self._context.snapshot.resources, self._context.usable.present
        free = space.free_between(start, end, query.keys) & ~self._reservable.asleep()
        shortage, suitable = describe_shortage(resources, query.request, groups, free, present)
        holders = self._obstacles.named(space, suitable, start, end, self._reservable.sleepers(suitable))
        return f"{shortage} until {write_date(end)}{holders}"
