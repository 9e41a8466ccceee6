"""Decide on requested changes of advance reservations: grant a change completely, or refuse it with a proposal.

The decision uses the spaces without the reservation itself, which stays unchanged until the whole change is written.

See docs/design/reservations.rst, "Changes".
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial

from oar.kao.facts.job_types import is_inside
from oar.kao.facts.plan import ChangeStep, Reason
from oar.kao.facts.snapshot import FOREVER, PlannedChange, PlannedReservation, RunningJob, WaitingJob
from oar.kao.planner.advance_reservations.reservable import ReservableResources, fit_first
from oar.kao.planner.advance_reservations.search import NoTimeLeft, SearchClock
from oar.kao.planner.placement.placement_reasons import MAX_NAMED, Obstacles
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.resources.resource_holders import Occupation
from oar.kao.planner.resources.slot_search import earliest
from oar.kao.planner.resources.slots import SlotQuery
from oar.kao.planner.resources.spaces import Space
from oar.lib.base.enumerations import enumerated
from oar.lib.base.resource_set import ResourceSet, positions, union
from oar.lib.base.times import format_duration
from oar.lib.nodes.hierarchy import RequestFit
from oar.lib.reservations.grid_engine_times import write_date
from oar.lib.reservations.states import GRANTED

HAS_BEGUN = "the start time of a running advance reservation can't be changed"


class ReservationChanges:
    """Decides on the pending changes."""

    def __init__(self, context: RoundContext, reservable: ReservableResources, clock: SearchClock) -> None:
        self._clock = clock
        self._reservable = reservable
        self._now = context.now
        self._context = context
        self._obstacles = Obstacles(context)
        self._reservations = {each.id: each for each in context.snapshot.reservations}

    def decide(self, reservation_ids: Collection[int]) -> Iterator[ChangeStep]:
        """Iterate over the decisions on the changes of these reservations, in the order of the requests."""
        changes = self._context.snapshot.reservation_changes
        for change in [change for change in changes if change.reservation_id in reservation_ids]:
            reservation = self._reservations.get(change.reservation_id)
            if reservation is None or reservation.state not in GRANTED:
                yield ChangeStep(change.id, change.reservation_id, 0, message="the advance reservation has ended")
            elif not change.is_readable:
                yield _refusal(change, reservation, "what it asks for cannot be read")
            elif change.expires and change.expires < self._now:
                yield _refusal(change, reservation, "nobody waits for its answer any more")
            else:
                yield from self._decide_in_time(change, reservation)

    def _decide_in_time(self, change: PlannedChange, reservation: PlannedReservation) -> Iterator[ChangeStep]:
        """Iterate over the decision on a change; yield nothing if it is left to the next round."""
        try:
            with self._clock.searching("changes"):
                step = self._decide(change, reservation)
        except NoTimeLeft:
            self._clock.left_over.add(reservation.id)
            return
        yield step

    def _decide(self, change: PlannedChange, reservation: PlannedReservation) -> ChangeStep:
        start = reservation.start if change.start is None else self._still_to_come(change, change.start)
        end = reservation.end if change.end is None else self._still_to_come(change, change.end)
        has_begun = reservation.has_begun(self._now)
        if has_begun and start != reservation.start:
            return _refusal(change, reservation, HAS_BEGUN)
        error = self._window_error(reservation, start, end)
        if error:
            return _refusal(change, reservation, error)
        if change.alternatives:
            return self._refit(change, reservation, (start, end), has_begun=has_begun)
        if has_begun:
            return self._move_end(change, reservation, end)
        return self._move(change, reservation, start, end)

    def _still_to_come(self, change: PlannedChange, date: int) -> int:
        """Return a requested date; return ``now`` if the date has passed since the request."""
        return self._now if change.date and change.date <= date < self._now else date

    def _window_error(self, reservation: PlannedReservation, start: int, end: int) -> str:
        if end <= start:
            return "start time is later than end time"
        if start < self._now and start != reservation.start:
            return "start time is in the past"
        if end - start <= reservation.time_offset:
            return f"the duration must be longer than {reservation.time_offset} seconds"
        return "end time is in the past" if end < self._now else ""

    # -- started reservations ----------------------------------------------------------------------------------------

    def _move_end(self, change: PlannedChange, reservation: PlannedReservation, end: int) -> ChangeStep:
        """Change the end of a started reservation: it keeps its resources, including Dead ones."""
        if end > reservation.end:
            free_until = self._free_until(reservation)
            if free_until < end:
                holders = self._holders(reservation, reservation.resources, (free_until, end))
                message = f"its resources are free only until {write_date(free_until)}{holders}"
                proposal = free_until if free_until > reservation.end else 0
                return _refusal(change, reservation, message, proposal)
        if refusal := self._cut_job(change, reservation, end):
            return refusal
        return self._granted(change, reservation, (reservation.start, end), reservation.resources)

    def _free_until(self, reservation: PlannedReservation) -> int:
        """Return until when the resources of a reservation are free of other holders (at least its end)."""
        own = reservation.resources
        return self._latest_end(reservation, self._without(reservation), reservation.end, lambda free: not own & ~free)

    def _cut_job(self, change: PlannedChange, reservation: PlannedReservation, end: int) -> ChangeStep | None:
        """Return the refusal of an end that is too early for a running job; None if there is none, or with force."""
        job = next((job for job in self._bound_jobs(reservation) if job.end > end - reservation.time_offset), None)
        if job is None or change.is_forced or end >= reservation.end:
            return None
        message = f"job {job.id} runs until {write_date(job.end)}; with -f it ends with the reservation"
        return _refusal(change, reservation, message, job.end + reservation.time_offset)

    def _bound_jobs(self, reservation: PlannedReservation) -> Iterator[RunningJob]:
        """Iterate over the running jobs that must end with a reservation; jobs of a flexible one continue."""
        return iter(()) if reservation.is_flexible else self._running(reservation)

    def _running(self, reservation: PlannedReservation) -> Iterator[RunningJob]:
        for job in self._context.snapshot.running:
            if job.id != reservation.frame_id and is_inside(self._context.types[job.id], reservation):
                yield job

    # -- future reservations -----------------------------------------------------------------------------------------

    def _move(self, change: PlannedChange, reservation: PlannedReservation, start: int, end: int) -> ChangeStep:
        """Move a reservation that has not started: on its own resources, or on others if these are not free.

        It keeps Dead resources if there is no other placement.
        """
        space, present = self._without(reservation), self._context.usable.present
        request, own = self._context.requests.get(reservation.groups), reservation.resources

        def place(free: ResourceSet) -> ResourceSet:
            has_its_own = not own & ~free
            if isinstance(request, Reason) or (has_its_own and not own & ~present):
                return own if has_its_own else 0
            return self._reservable.choose(request, free & present, start) or (own if has_its_own else 0)

        if found := place(self._free(reservation, space, start, end)):
            return self._granted(change, reservation, (start, end), found)
        if isinstance(request, Reason):
            return _refusal(change, reservation, "its request cannot be evaluated")
        if start == reservation.start:
            return self._too_late(change, reservation, (start, end), self._latest_end(reservation, space, start, place))
        return self._no_start(change, reservation, request, (start, end))

    def _no_start(
        self, change: PlannedChange, reservation: PlannedReservation, request: RequestFit, window: tuple[int, int]
    ) -> ChangeStep:
        """Refuse a window with a changed start; propose the next start at which the request fits."""
        start, end = window
        usable = self._context.usable.present & ~self._reservable.asleep(reservation)
        query = SlotQuery(request, usable, end - start, kind="any change")
        later = earliest(self._without(reservation).slots, query, start + 1)
        holders = self._holders(reservation, request.reach, window)
        message = f"there is no place for {format_duration(end - start)} from {write_date(start)} on{holders}"
        return _refusal(change, reservation, message, later.start if later else 0)

    def _too_late(
        self, change: PlannedChange, reservation: PlannedReservation, window: tuple[int, int], latest: int
    ) -> ChangeStep:
        """Refuse a window without a placement; propose the latest possible end if a later end was requested."""
        start, end = window
        holders = self._holders(reservation, self._reach(change, reservation), (max(start, latest), end))
        if end <= reservation.end or latest - start <= reservation.time_offset or latest < self._now:
            message = f"there is no place for it from {write_date(start)} to {write_date(end)}{holders}"
            return _refusal(change, reservation, message)
        message = f"there is a place for it only until {write_date(latest)}{holders}"
        has_it = latest <= reservation.end and not change.alternatives
        return _refusal(change, reservation, message, 0 if has_it else latest)

    # -- other resources ---------------------------------------------------------------------------------------------

    def _refit(
        self, change: PlannedChange, reservation: PlannedReservation, window: tuple[int, int], *, has_begun: bool
    ) -> ChangeStep:
        """Give a reservation other resources, in its window or in a new one.

        It keeps the resources held by its jobs, then as many of its other resources as possible, from the first one on.
        """
        start, end = window
        if has_begun and (refusal := self._cut_job(change, reservation, end)):
            return refusal
        space, begin = self._without(reservation), max(start, self._now)
        held = self._reservable.bound(reservation)
        fits = self._fits_of(change, reservation, start, is_now=has_begun)
        free = self._free(reservation, space, begin, end)
        found = [fit(free) for fit in fits]
        for number, resources in enumerate(found):
            if resources and not held & ~resources:
                chosen = replace(reservation, groups=change.alternatives[number])
                return replace(self._granted(change, chosen, window, resources), alternative=number)
        if kept := next(filter(None, found), 0):
            in_the_way = sorted(job.id for job in self._running(reservation) if job.resources & held & ~kept)
            names = enumerated([f"job {number}" for number in in_the_way], MAX_NAMED)
            return _refusal(change, reservation, f"its jobs hold resources that it would give up ({names})")
        request = self._context.requests.get(change.alternatives[0])
        if start != reservation.start and not isinstance(request, Reason):
            return self._no_start(change, reservation, request, window)

        def place(free: ResourceSet) -> bool:
            return any(got and not held & ~got for got in (fit(free) for fit in fits))

        latest = self._latest_end(reservation, space, begin, place)
        if has_begun and self._cut_job(change, reservation, latest):
            latest = 0
        return self._too_late(change, reservation, window, latest)

    def _fits_of(
        self, change: PlannedChange, reservation: PlannedReservation, start: int, *, is_now: bool
    ) -> list[Callable[[ResourceSet], ResourceSet]]:
        """Return one function per requested alternative that selects resources among free ones (0 = none fit)."""
        usable = self._context.usable.present

        def fit(free: ResourceSet, request: RequestFit | Reason) -> ResourceSet:
            if isinstance(request, Reason):
                return 0
            return fit_first(request, self._ranks(reservation, free & usable, start, is_now=is_now))

        requests = [self._context.requests.get(groups) for groups in change.alternatives]
        return [partial(fit, request=request) for request in requests]

    def _ranks(self, reservation: PlannedReservation, free: ResourceSet, start: int, *, is_now: bool) -> list[int]:
        """Return free resources in order of preference: held, granted, others; in each group healthy ones first."""
        others = free & ~reservation.resources
        if is_now:
            others &= self._context.usable.ordinary
        held = free & self._reservable.bound(reservation)
        kept = free & reservation.resources & ~held
        ranks = self._reservable.ranks
        return [*positions(held), *ranks(kept, start), *ranks(others, start)]

    def _reach(self, change: PlannedChange, reservation: PlannedReservation) -> ResourceSet:
        """Return the resources that a change could take."""
        requests = [self._context.requests.get(groups) for groups in change.alternatives or (reservation.groups,)]
        return union(request.reach for request in requests if not isinstance(request, Reason))

    def _holders(self, reservation: PlannedReservation, resources: ResourceSet, window: tuple[int, int]) -> str:
        """Return the other holders of these resources, in brackets; return '' if there are none."""
        start, end = window
        asleep = self._reservable.sleepers(resources, reservation)
        present = resources & self._context.usable.present | reservation.resources & resources
        return self._obstacles.named(self._without(reservation), present, start, end, asleep)

    def _free(self, reservation: PlannedReservation, space: Space, start: int, end: int) -> ResourceSet:
        """Return the free resources of a reservation in a window.

        Of the resources of suspended jobs, only those that the reservation already has in that window are included.  No
        slot contains Dead resources: its own Dead ones are free unless another occupant holds them.
        """
        has_it = reservation.start <= start and end <= reservation.end
        taken = self._reservable.asleep(reservation) & ~(reservation.resources if has_it else 0)
        dead = reservation.resources & ~self._context.usable.present
        others = union(each.resources for each in self._holding(space, dead) if each.start < end and start < each.end)
        return (space.slots.free_between(start, end) | dead & ~others) & ~taken

    def _holding(self, space: Space, resources: ResourceSet) -> list[Occupation]:
        """Return the occupations of some of these resources in a space."""
        return [each for each, _ in space.entered if each.resources & resources] if resources else []

    def _latest_end(
        self,
        reservation: PlannedReservation,
        space: Space,
        start: int,
        place: Callable[[ResourceSet], ResourceSet | bool],
    ) -> int:
        """Return until when a place is free without interruption from ``start`` on; ``start`` = never."""
        dead = reservation.resources & ~self._context.usable.present
        starts = (*space.slots.starts(), *(each.start for each in self._holding(space, dead)))
        dates = [date for date in sorted({*starts, reservation.end, FOREVER}) if date > start]
        count = bisect_left(dates, True, key=lambda end: not place(self._free(reservation, space, start, end)))
        return dates[count - 1] if count else start

    def _without(self, reservation: PlannedReservation) -> Space:
        """Return the common space without a reservation, and without its jobs if they are in that space."""
        own = {job.id for job in self._running(reservation)} if reservation.is_flexible else set()
        return self._context.spaces.common_without({reservation.frame_id, *own})

    def _granted(
        self, change: PlannedChange, reservation: PlannedReservation, window: tuple[int, int], resources: ResourceSet
    ) -> ChangeStep:
        start, end = window
        types = self._context.types[reservation.frame_id]
        self._context.spaces.widen_frame(Occupation(reservation.frame_id, start, end, resources), types)
        moved = replace(reservation, start=start, end=end, resources=resources)
        return ChangeStep(
            change.id,
            reservation.id,
            reservation.revision,
            is_granted=True,
            start=start,
            end=end,
            resources=tuple(sorted(self._context.snapshot.resources.ids_of(resources))),
            ended_jobs=tuple(job.id for job in self._misfits(reservation, moved)),
        )

    def _misfits(self, before: PlannedReservation, after: PlannedReservation) -> Iterator[WaitingJob]:
        """Iterate over the waiting jobs of a reservation that fit before the change, but not after it.

        Jobs that never fitted were accepted on purpose (``--verify n``) and keep waiting.  Jobs of a flexible
        reservation run outside it.
        """
        if before.is_flexible:
            return
        for job in self._context.snapshot.waiting:
            is_ours = job.id != before.frame_id and is_inside(self._context.types[job.id], before)
            if is_ours and not self._fits(job, after) and self._fits(job, before):
                yield job

    def _fits(self, job: WaitingJob, reservation: PlannedReservation) -> bool:
        """Return whether an alternative of a job fits into an otherwise empty reservation."""
        inside = reservation.resources | self._context.usable.shared
        longest = reservation.latest_job_end - max(self._now, reservation.start)
        for alternative in job.alternatives:
            request = self._context.requests.get(alternative.groups)
            is_short = alternative.walltime <= longest or (alternative.cut_at and longest > 0)
            if is_short and (isinstance(request, Reason) or request.fit(inside)):
                return True
        return False


def _refusal(change: PlannedChange, reservation: PlannedReservation, message: str, proposal: int = 0) -> ChangeStep:
    return ChangeStep(change.id, reservation.id, reservation.revision, message=message, proposal=proposal)
