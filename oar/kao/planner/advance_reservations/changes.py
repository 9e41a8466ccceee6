"""Decide on requested changes of advance reservations: grant a change completely, or refuse it with a proposal.

The decision uses the spaces without the reservation itself, which stays unchanged until the whole change is written.

See docs/design/reservations.rst, "Changes".
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cached_property

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
from oar.lib.base.grid_engine_times import write_date
from oar.lib.base.resource_set import ResourceSet, positions, union
from oar.lib.base.texts import enumerated
from oar.lib.base.times import format_duration
from oar.lib.nodes.hierarchy import RequestFit
from oar.lib.reservations.states import GRANTED

HAS_BEGUN = "the start time of a running advance reservation can't be changed"


class ReservationChanges:
    """Decides on the pending changes."""

    def __init__(self, context: RoundContext, reservable: ReservableResources, clock: SearchClock) -> None:
        self._clock = clock
        self._reservable = reservable
        self._context = context
        self._obstacles = Obstacles(context)
        self._reservations = {each.id: each for each in context.snapshot.reservations}

    def decide(self, reservation_ids: Collection[int]) -> Iterator[ChangeStep]:
        """Iterate over the decisions on changes of these reservations, in order; without time, a change waits."""
        changes = self._context.snapshot.reservation_changes
        for change in [change for change in changes if change.reservation_id in reservation_ids]:
            reservation = self._reservations.get(change.reservation_id)
            if reservation is None or reservation.state not in GRANTED:
                yield ChangeStep(change.id, change.reservation_id, 0, message="the advance reservation has ended")
                continue
            decision = _ChangeDecision(self._context, self._reservable, self._obstacles, change, reservation)
            if not change.is_readable:
                yield decision.refusal("what it asks for cannot be read")
            elif change.expires and change.expires < self._context.now:
                yield decision.refusal("nobody waits for its answer any more")
            else:
                try:
                    with self._clock.searching("changes"):
                        step = decision.step()
                except NoTimeLeft:
                    self._clock.left_over.add(reservation.id)
                else:
                    yield step


class _ChangeDecision:
    """The decision on one change of a granted reservation."""

    def __init__(
        self,
        context: RoundContext,
        reservable: ReservableResources,
        obstacles: Obstacles,
        change: PlannedChange,
        reservation: PlannedReservation,
    ) -> None:
        self._context = context
        self._now = context.now
        self._reservable = reservable
        self._obstacles = obstacles
        self._change = change
        self._reservation = reservation

    def step(self) -> ChangeStep:
        reservation = self._reservation
        start = self._still_to_come(self._change.start, reservation.start)
        end = self._still_to_come(self._change.end, reservation.end)
        has_begun = reservation.has_begun(self._now)
        if has_begun and start != reservation.start:
            return self.refusal(HAS_BEGUN)
        if error := self._window_error(start, end):
            return self.refusal(error)
        if self._change.alternatives:
            return self._refit(start, end, has_begun=has_begun)
        return self._move_end(end) if has_begun else self._move(start, end)

    def refusal(self, message: str, proposal: int = 0) -> ChangeStep:
        reservation = self._reservation
        return ChangeStep(self._change.id, reservation.id, reservation.revision, message=message, proposal=proposal)

    def _still_to_come(self, date: int | None, present: int) -> int:
        """Return a requested date (None = ``present``); return ``now`` if the date has passed since the request."""
        if date is None:
            return present
        return self._now if self._change.date and self._change.date <= date < self._now else date

    def _window_error(self, start: int, end: int) -> str:
        if end <= start:
            return "start time is later than end time"
        if start < self._now and start != self._reservation.start:
            return "start time is in the past"
        if end - start <= self._reservation.time_offset:
            return f"the duration must be longer than {self._reservation.time_offset} seconds"
        return "end time is in the past" if end < self._now else ""

    # -- started reservations ----------------------------------------------------------------------------------------

    def _move_end(self, end: int) -> ChangeStep:
        """Change the end of a started reservation: it keeps its resources, including Dead ones."""
        reservation, own = self._reservation, self._reservation.resources
        if end > reservation.end:
            free_until = self._latest_end(reservation.end, lambda free: not own & ~free)
            if free_until < end:
                holders = self._holders(own, free_until, end)
                message = f"its resources are free only until {write_date(free_until)}{holders}"
                return self.refusal(message, free_until if free_until > reservation.end else 0)
        return self._cut_job(end) or self._granted(reservation.start, end, own)

    def _cut_job(self, end: int) -> ChangeStep | None:
        """Return the refusal of an end that is too early for a running job; None if there is none, or with force."""
        reservation = self._reservation
        if reservation.is_flexible or self._change.is_forced or end >= reservation.end:
            return None
        job = next((job for job in self._running() if job.end > end - reservation.time_offset), None)
        if job is None:
            return None
        message = f"job {job.id} runs until {write_date(job.end)}; with -f it ends with the reservation"
        return self.refusal(message, job.end + reservation.time_offset)

    def _running(self) -> Iterator[RunningJob]:
        for job in self._context.snapshot.running:
            is_inner = is_inside(self._context.types[job.id], self._reservation)
            if is_inner and job.id != self._reservation.frame_id:
                yield job

    # -- future reservations -----------------------------------------------------------------------------------------

    def _move(self, start: int, end: int) -> ChangeStep:
        """Move a future reservation: on its own resources if they are free, else on others, else on its Dead ones."""
        present = self._context.usable.present
        request, own = self._context.requests.get(self._reservation.groups), self._reservation.resources

        def place(free: ResourceSet) -> ResourceSet:
            has_its_own = not own & ~free
            if isinstance(request, Reason) or (has_its_own and not own & ~present):
                return own if has_its_own else 0
            return self._reservable.choose(request, free & present, start) or (own if has_its_own else 0)

        if found := place(self._free(start, end)):
            return self._granted(start, end, found)
        if isinstance(request, Reason):
            return self.refusal("its request cannot be evaluated")
        if start == self._reservation.start:
            return self._too_late(start, end, self._latest_end(start, place))
        return self._no_start(request, start, end)

    def _no_start(self, request: RequestFit, start: int, end: int) -> ChangeStep:
        """Refuse a window with a changed start; propose the next start at which the request fits."""
        usable = self._context.usable.present & ~self._reservable.asleep(self._reservation)
        query = SlotQuery(request, usable, end - start, kind="any change")
        later = earliest(self._space.slots, query, start + 1)
        holders = self._holders(request.reach, start, end)
        message = f"there is no place for {format_duration(end - start)} from {write_date(start)} on{holders}"
        return self.refusal(message, later.start if later else 0)

    def _too_late(self, start: int, end: int, latest: int) -> ChangeStep:
        """Refuse a window without a placement; propose the latest possible end if a later end was requested."""
        reservation, alternatives = self._reservation, self._change.alternatives
        requests = [self._context.requests.get(groups) for groups in alternatives or (reservation.groups,)]
        reach = union(request.reach for request in requests if not isinstance(request, Reason))
        holders = self._holders(reach, max(start, latest), end)
        if end <= reservation.end or latest - start <= reservation.time_offset or latest < self._now:
            return self.refusal(f"there is no place for it from {write_date(start)} to {write_date(end)}{holders}")
        has_it = latest <= reservation.end and not alternatives
        message = f"there is a place for it only until {write_date(latest)}{holders}"
        return self.refusal(message, 0 if has_it else latest)

    # -- other resources ---------------------------------------------------------------------------------------------

    def _refit(self, start: int, end: int, *, has_begun: bool) -> ChangeStep:
        """Give a reservation other resources, in its window or in a new one.

        It keeps the resources held by its jobs, then as many of its other resources as possible, from the first one on.
        """
        if has_begun and (refusal := self._cut_job(end)):
            return refusal
        begin, held = max(start, self._now), self._reservable.bound(self._reservation)
        requests = [self._context.requests.get(groups) for groups in self._change.alternatives]

        def fits(free: ResourceSet) -> list[ResourceSet]:
            """Return the resources that each requested alternative would get; 0 = it does not fit."""
            ranks = self._ranks(free & self._context.usable.present, start, is_now=has_begun)
            return [0 if isinstance(request, Reason) else fit_first(request, ranks) for request in requests]

        found = fits(self._free(begin, end))
        for number, resources in enumerate(found):
            if resources and not held & ~resources:
                return replace(self._granted(start, end, resources), alternative=number)
        if kept := next(filter(None, found), 0):
            in_the_way = sorted(job.id for job in self._running() if job.resources & held & ~kept)
            names = enumerated([f"job {number}" for number in in_the_way], MAX_NAMED)
            return self.refusal(f"its jobs hold resources that it would give up ({names})")
        if start != self._reservation.start and not isinstance(requests[0], Reason):
            return self._no_start(requests[0], start, end)
        latest = self._latest_end(begin, lambda free: any(got and not held & ~got for got in fits(free)))
        if has_begun and self._cut_job(latest):
            latest = 0
        return self._too_late(start, end, latest)

    def _ranks(self, free: ResourceSet, start: int, *, is_now: bool) -> list[int]:
        """Return free resources in order of preference: held, granted, others; in each group healthy ones first."""
        reservation, ranks = self._reservation, self._reservable.ranks
        others = free & ~reservation.resources
        if is_now:
            others &= self._context.usable.ordinary
        held = free & self._reservable.bound(reservation)
        kept = free & reservation.resources & ~held
        return [*positions(held), *ranks(kept, start), *ranks(others, start)]

    def _holders(self, resources: ResourceSet, start: int, end: int) -> str:
        """Return the other holders of these resources, in brackets; return '' if there are none."""
        asleep = self._reservable.sleepers(resources, self._reservation)
        present = resources & self._context.usable.present | self._reservation.resources & resources
        return self._obstacles.named(self._space, present, start, end, asleep)

    @cached_property
    def _space(self) -> Space:
        own = {job.id for job in self._running()} if self._reservation.is_flexible else set()
        return self._context.spaces.common_without({self._reservation.frame_id, *own})

    @cached_property
    def _dead(self) -> ResourceSet:
        """Return the Dead resources of the reservation, which are in no slot."""
        return self._reservation.resources & ~self._context.usable.present

    @cached_property
    def _holding_dead(self) -> list[Occupation]:
        """Return the other occupations of the Dead resources of the reservation."""
        return [each for each, _ in self._space.entered if each.resources & self._dead] if self._dead else []

    def _free(self, start: int, end: int) -> ResourceSet:
        """Return the free resources of a reservation in a window.

        Of the resources of suspended jobs, only those that the reservation already has in that window are included.
        Its own Dead ones are free unless another occupant holds them.
        """
        reservation = self._reservation
        has_it = reservation.start <= start and end <= reservation.end
        taken = self._reservable.asleep(reservation) & ~(reservation.resources if has_it else 0)
        others = union(each.resources for each in self._holding_dead if each.start < end and start < each.end)
        return (self._space.free_between(start, end) | self._dead & ~others) & ~taken

    def _latest_end(self, start: int, place: Callable[[ResourceSet], ResourceSet | bool]) -> int:
        """Return until when a place is free without interruption from ``start`` on; ``start`` = never."""
        starts = (*self._space.slots.starts(), *(each.start for each in self._holding_dead))
        dates = [date for date in sorted({*starts, self._reservation.end, FOREVER}) if date > start]
        count = bisect_left(dates, True, key=lambda end: not place(self._free(start, end)))
        return dates[count - 1] if count else start

    def _granted(self, start: int, end: int, resources: ResourceSet) -> ChangeStep:
        reservation = self._reservation
        types = self._context.types[reservation.frame_id]
        self._context.spaces.widen_frame(Occupation(reservation.frame_id, start, end, resources), types)
        moved = replace(reservation, start=start, end=end, resources=resources)
        return ChangeStep(
            self._change.id,
            reservation.id,
            reservation.revision,
            is_granted=True,
            start=start,
            end=end,
            resources=tuple(sorted(self._context.snapshot.resources.ids_of(resources))),
            ended_jobs=tuple(job.id for job in self._misfits(moved)),
        )

    def _misfits(self, moved: PlannedReservation) -> Iterator[WaitingJob]:
        """Iterate over the waiting jobs of a reservation that fit before the change, but not after it.

        Jobs that never fitted were accepted on purpose (``--verify n``) and keep waiting.  Jobs of a flexible
        reservation run outside it.
        """
        before = self._reservation
        for job in () if before.is_flexible else self._context.snapshot.waiting:
            is_ours = job.id != before.frame_id and is_inside(self._context.types[job.id], before)
            if is_ours and not self._fits(job, moved) and self._fits(job, before):
                yield job

    def _fits(self, job: WaitingJob, reservation: PlannedReservation) -> bool:
        """Return whether an alternative of a job fits into an otherwise empty reservation."""
        inside = reservation.resources | self._context.usable.shared
        longest = reservation.latest_job_end - max(self._now, reservation.start)
        for alternative in job.alternatives:
            request = self._context.requests.of_alternative(alternative)
            is_short = alternative.walltime <= longest or (alternative.cut_at and longest > 0)
            if is_short and (isinstance(request, Reason) or request.fit(inside)):
                return True
        return False
