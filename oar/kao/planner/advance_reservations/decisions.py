"""Advance reservations in a round: dates and health change their states, and new requests are decided.

Requests are decided before any waiting job is placed.  Waiting jobs have no guaranteed start, and behind many of them a
reservation for tomorrow could never be granted.  A site can change this with RESERVATION_PRECEDENCE=jobs.

This module only decides; the round writes the decisions.

See docs/design/reservations.rst, "In a round".
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from oar.kao.facts.plan import ChangeStep, Placement, ReservationNote, ReservationStep
from oar.kao.facts.snapshot import Occurrence, PlannedReservation, WaitingJob
from oar.kao.planner.advance_reservations.changes import ReservationChanges
from oar.kao.planner.advance_reservations.health import Health, ReservationHealth, state_of, window_of
from oar.kao.planner.advance_reservations.reservable import ReservableResources, ReservationReplacement
from oar.kao.planner.advance_reservations.search import (
    GrantedPlace,
    NoPlace,
    NoTimeLeft,
    ReservationSearch,
    SearchClock,
)
from oar.kao.planner.placement.placement_search import PlacementSearch
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.placement.starts import Starts
from oar.kao.planner.resources.resource_holders import Occupation
from oar.lib.base.grid_engine_times import write_date
from oar.lib.base.resource_set import ResourceSet, union
from oar.lib.jobs.states import JobState
from oar.lib.reservations.states import INCOMPLETE, STARTED, ReservationEvent, ReservationState
from oar.lib.submission.resource_request import ALL

#: A change that is written later than this many seconds after its date says so.
PUNCTUAL = 5

S = ReservationState

#: What is asked for, and the frame that it would have.
Request = tuple[PlannedReservation, WaitingJob]


class ReservationDecisions:
    """Decides on the advance reservations of a round."""

    def __init__(
        self,
        context: RoundContext,
        search: PlacementSearch,
        starts: Starts,
        health: ReservationHealth,
        clock: SearchClock,
    ) -> None:
        self._clock = clock
        self._now = context.now
        self._settings = context.settings
        self._context = context
        self._bookings = context.bookings
        self._decisions = context.decisions
        self._starts = starts
        self._health = health
        self._reservable = reservable = ReservableResources(context.snapshot, context.types, context.usable)
        self._search = ReservationSearch(context, search, reservable, clock)
        self._replacement = ReservationReplacement(context, reservable)
        self._changes = ReservationChanges(context, reservable, clock)
        self.changes: list[ChangeStep] = []
        self._answered: set[int] = set()
        self._later: list[int] = []  #: dates at which besteffort jobs have to leave, or nodes to be woken
        self._frames = {job.id: job for job in context.snapshot.waiting}
        self.steps: list[ReservationStep] = []

    def decide(self) -> None:
        """Decide on all reservations: on granted ones by date and health, then on requests in their order.

        Requests that are decided after the jobs wait for ``answer``.
        """
        reservations = self._context.snapshot.reservations
        first = self._now % len(reservations) if reservations else 0  # the first one gets replacements first, so rotate
        for reservation in (*reservations[first:], *reservations[:first]):
            if reservation.state is not S.ASKED:
                self._follow(reservation)
        gone = {change.reservation_id for change in self._context.snapshot.reservation_changes}
        self.changes += self._changes.decide(gone - {reservation.id for reservation in reservations})
        if not self._settings.jobs_before_reservations:
            self.answer({reservation.queue for reservation in reservations})

    def answer(self, queues: Collection[str]) -> None:
        """Decide on the pending changes and requests of some queues."""
        asked = [
            each
            for each in self._context.snapshot.reservations
            if each.queue in queues and each.id not in self._answered
        ]
        self._answered |= {reservation.id for reservation in asked}
        self.changes += self._changes.decide({reservation.id for reservation in asked})
        for requests in self._requests(asked):
            _, frame = requests[0]
            self._decisions.guard(frame, lambda _, asked=requests: self._answer_in_time(asked))  # type: ignore[misc]

    @property
    def unanswered_queues(self) -> set[str]:
        """Return the queues of the reservations that have not been processed."""
        reservations = self._context.snapshot.reservations
        return {reservation.queue for reservation in reservations if reservation.id not in self._answered}

    # -- granted reservations ----------------------------------------------------------------------------------------

    def _follow(self, reservation: PlannedReservation) -> None:
        frame = self._frames.get(reservation.frame_id)
        if frame and frame.granted:
            walltime = reservation.end - reservation.start
            self._decisions.placements[frame.id] = Placement(
                frame.id, frame.granted.alternative, reservation.start, walltime, reservation.resources
            )
        if reservation.is_leaving:
            if reservation.is_flexible or not reservation.live_jobs:
                self.steps.append(self._step(reservation, is_over=True))
            return
        health = self._health.of(reservation)
        if self._replace(reservation, health) or self._widen(reservation):
            return
        notes = tuple(self._notes(reservation, health))
        missing = self._missing_ids(reservation, health)
        message = "\n".join(health.reasons)
        if notes or missing != reservation.missing or message != reservation.message:
            self.steps.append(self._step(reservation, notes=notes, missing=missing, message=message))
        self._clear_way(reservation, health)

    def _replace(self, reservation: PlannedReservation, health: Health) -> bool:
        """Replace lost resources if that is due and others are free; the next round evaluates the health again.

        If a date of the reservation has come, the replacement waits for the next round.
        """
        if not self._replacement.is_due(reservation, health):
            return False
        if reservation.is_due(self._now):
            self._later.append(self._now + 1)
            return False
        try:
            with self._clock.searching("replacements"):
                found = self._replacement.find(reservation, health)
        except NoTimeLeft:
            found = 0
        if not found:
            return False
        ids_of = self._context.snapshot.resources.ids_of
        given_up = [*reservation.removed, *ids_of(reservation.resources & ~found)]
        message = f"resources {_listed(given_up)} are replaced by {_listed(ids_of(found & ~reservation.resources))}"
        note = ReservationNote(ReservationEvent.REPLACED, reservation.state, message)
        left = health.missing & found
        self.steps.append(
            self._step(
                reservation,
                notes=(note,),
                missing=tuple(sorted(ids_of(left))),
                message=reservation.message if left else "",
                resources=tuple(sorted(ids_of(found))),
            )
        )
        self._occupy(reservation, found & ~reservation.resources)
        return True

    def _occupy(self, reservation: PlannedReservation, new: ResourceSet) -> None:
        """Reserve new resources of a reservation in this round; schedule the next round soon."""
        self._later.append(self._now + 1)
        widened = Occupation(reservation.frame_id, reservation.held_from(self._now), reservation.end, new)
        self._bookings.spaces.widen_frame(widened, self._context.types[reservation.frame_id])

    def _widen(self, reservation: PlannedReservation) -> bool:
        """Add new resources to a maintenance reservation that requests ALL."""
        added = self._resources_to_add(reservation) if reservation.is_for_nobody else 0
        if added and reservation.is_due(self._now):
            self._later.append(self._now + 1)
        if not added or reservation.is_due(self._now):
            return False
        ids_of = self._context.snapshot.resources.ids_of
        message = f"resources {_listed(ids_of(added))} are added: it asks for ALL"
        note = ReservationNote(ReservationEvent.REPLACED, reservation.state, message)
        ids = tuple(sorted([*reservation.removed, *ids_of(reservation.resources | added)]))
        step = self._step(reservation, notes=(note,), message=reservation.message, resources=ids)
        self.steps.append(replace(step, missing=reservation.missing))
        self._occupy(reservation, added)
        return True

    def _resources_to_add(self, reservation: PlannedReservation) -> ResourceSet:
        """Return the healthy unreserved resources that satisfy a request for ALL."""
        snapshot = self._context.snapshot
        pools = [
            snapshot.pools[group.pool]
            for group in reservation.groups
            if all(level.quantity == ALL for level in group.levels)
        ]
        wanted = union(pool.members for pool in pools if not (pool.is_put_off or pool.trouble))
        reserved = union(
            other.resources
            for other in snapshot.reservations
            if other.start < reservation.end and reservation.start < other.end
        )
        return wanted & self._reservable.healthy(self._now) & ~(reserved | reservation.resources)

    def _notes(self, reservation: PlannedReservation, health: Health) -> Iterator[ReservationNote]:
        """Iterate over the events since the last round, in order; skipped states are added late."""
        state = reservation.state
        if reservation.start <= self._now and state not in STARTED:
            state = S.ERROR if state in INCOMPLETE else S.RUNNING
            lateness = self._lateness(reservation.start)
            told = (lateness, *health.reasons) if state is S.ERROR else (lateness,)
            yield ReservationNote(ReservationEvent.STARTED, state, "\n".join(filter(None, told)))
        if reservation.end <= self._now:
            yield ReservationNote(ReservationEvent.ENDED, S.EXITED, self._lateness(reservation.end))
            return
        if reservation.is_idle(self._now):
            yield ReservationNote(ReservationEvent.IDLE, S.EXITED, f"no job for {reservation.idle_limit} s")
            return
        yield from self._health_notes(reservation, health, state)

    def _health_notes(
        self, reservation: PlannedReservation, health: Health, state: ReservationState
    ) -> Iterator[ReservationNote]:
        now_state, missing = state_of(reservation, health, self._now), self._missing_ids(reservation, health)
        if health.is_complete:
            if state is not now_state:
                yield ReservationNote(ReservationEvent.SATISFIED, now_state)
            return
        is_told = state is S.ERROR and reservation.state is not S.ERROR  # listed by the start event
        if state is not now_state or (missing != reservation.missing and not is_told):
            message = "\n".join(health.reasons)
            hosts = self._context.snapshot.resources.nodes_of(health.missing)
            host = hosts[0] if len(hosts) == 1 else ""
            is_better = state is now_state and set(missing) < set(reservation.missing)
            yield ReservationNote(ReservationEvent.UNSATISFIED, now_state, message, host, is_better)

    def _lateness(self, date: int) -> str:
        late = self._now - date
        return f"{late} s late" if late > PUNCTUAL else ""

    def _missing_ids(self, reservation: PlannedReservation, health: Health) -> tuple[int, ...]:
        ids = self._context.snapshot.resources.ids_of(health.missing)
        return tuple(sorted((*reservation.removed, *ids)))

    def _clear_way(self, reservation: PlannedReservation, health: Health) -> None:
        """Order besteffort jobs to leave before the reservation starts; note the dates at which more is due."""
        margin = max(self._settings.besteffort_kill_before, reservation.time_offset, self._settings.security_time)
        date = reservation.start - margin
        leaving = self._health.leaving(reservation)
        self._starts.clear_in_time(leaving, reservation.frame_id, date)
        for job in leaving:
            self._later += (date - job.checkpoint, date)
        if reservation.resources & ~health.missing & self._context.usable.wakeable:
            self._later.append(reservation.start - self._settings.wakeup_time)

    # -- requests ----------------------------------------------------------------------------------------------------

    def _requests(self, reservations: Iterable[PlannedReservation]) -> Iterable[list[Request]]:
        groups: dict[tuple[int, int], list[Request]] = {}
        for reservation in reservations:
            frame = self._frames.get(reservation.frame_id)
            if reservation.state is S.ASKED and frame and frame.state is JobState.WAITING:
                key = (reservation.together, 0 if reservation.together else reservation.id)
                groups.setdefault(key, []).append((reservation, frame))
        return groups.values()

    def _answer_in_time(self, requests: Sequence[Request]) -> None:
        """Decide on requests; if there is no time, leave them to the next round."""
        try:
            with self._clock.searching("requests"):
                self._answer(requests)
        except NoTimeLeft:
            self._clock.left_over |= {reservation.id for reservation, _ in requests}

    def _answer(self, requests: Sequence[Request]) -> None:
        """Decide on a request or on a series: grant all occurrences, or none; conflicts are skipped if requested."""
        (first, frame), others = requests[0], requests[1:]
        places = self._search.find_all(requests) if others else [self._search.find(first, frame)]
        conflict = next((number for number, place in enumerate(places) if isinstance(place, NoPlace)), None)
        may_skip = first.skips_conflicts and any(isinstance(place, GrantedPlace) for place in places)
        if conflict is not None and first.together and not may_skip:
            self._refuse_series(requests, requests[conflict][0], places[conflict])
            return
        for (reservation, frame), place in zip(requests, places, strict=True):
            if isinstance(place, GrantedPlace):
                self._grant(reservation, frame, place)
            else:
                conflicts = tuple(self._conflicts(reservation, frame))
                self._refuse(reservation, place, goes_on=bool(reservation.occurrence), conflicts=conflicts)

    def _conflicts(self, reservation: PlannedReservation, frame: WaitingJob) -> Iterator[tuple[Occurrence, str]]:
        """Iterate over the occurrences after a refused one that also have no place, until the time runs out."""
        duration = reservation.end - reservation.start
        for each in reservation.followers:
            if self._clock.is_over:
                return
            follower = replace(reservation, start=each.start, end=each.start + duration)
            place = self._search.find(follower, frame, proposes=False)
            if isinstance(place, GrantedPlace):
                return
            yield each, place.message

    def _refuse_series(
        self, requests: Sequence[Request], conflict: PlannedReservation, place: GrantedPlace | NoPlace
    ) -> None:
        """Refuse all first occurrences of a series because one of them has no place."""
        reason = place.message if isinstance(place, NoPlace) else ""
        message = f"occurrence {conflict.occurrence}, {write_date(conflict.start)}: {reason}"
        proposal = self._search.later_start_of_all(requests)
        for reservation, _ in requests:
            self._refuse(reservation, NoPlace(message, proposal if reservation is requests[0][0] else 0))

    def _refuse(
        self,
        reservation: PlannedReservation,
        place: NoPlace,
        *,
        goes_on: bool = False,
        conflicts: tuple[tuple[Occurrence, str], ...] = (),
    ) -> None:
        """Refuse a request; ``goes_on``: its series continues."""
        event = ReservationEvent.SKIPPED if goes_on else ReservationEvent.REFUSED
        notes = (ReservationNote(event, S.REFUSED, place.message),)
        self.steps.append(
            self._step(reservation, notes=notes, message=place.message, proposal=place.proposal, conflicts=conflicts)
        )

    def _grant(self, reservation: PlannedReservation, frame: WaitingJob, place: GrantedPlace) -> None:
        groups = frame.alternatives[place.alternative].groups
        granted = replace(
            reservation, state=S.WAITING, start=place.start, end=place.end, resources=place.resources, groups=groups
        )
        health = self._health.of(granted)
        state = S.WAITING if health.is_complete else S.WARNING
        reasons = "\n".join(health.reasons)
        notes = [ReservationNote(ReservationEvent.CREATED, state, reasons)]
        if place.start <= self._now:
            notes.append(ReservationNote(ReservationEvent.STARTED, state_of(granted, health, self._now), reasons))
        step = self._step(
            reservation,
            notes=tuple(notes),
            missing=self._missing_ids(granted, health),
            message=reasons,
            alternative=place.alternative,
            start=place.start,
            end=place.end,
            resources=tuple(sorted(self._context.snapshot.resources.ids_of(place.resources))),
        )
        self.steps.append(step)
        window = window_of(granted, health.missing, self._settings, self._now)
        self._bookings.enter_frame(frame, window, self._context.types[frame.id])
        alternative = frame.alternatives[place.alternative]
        self._decisions.placements[frame.id] = Placement(
            frame.id, alternative.id, place.start, place.end - place.start, place.resources
        )
        self._clear_way(granted, health)

    def dates(self) -> tuple[int, ...]:
        """Return the later dates at which a reservation changes by itself, including newly granted ones."""
        dates = {*self._later, *(date for step in self.steps for date in (step.start, step.end))}
        if self._clock.left_over:
            dates.add(self._now + 1)
        for reservation in self._context.snapshot.reservations:
            if reservation.state is S.ASKED or reservation.is_leaving:
                continue
            dates |= {reservation.start, reservation.end}
            if reservation.idle_limit and not reservation.live_jobs:
                dates.add(reservation.idle_date)
            replacement = self._replacement.next_date(reservation, self._health.of(reservation))
            dates |= set() if replacement is None else {replacement}
        return tuple(sorted(date for date in dates if date > self._now))

    def _step(self, reservation: PlannedReservation, **fields: object) -> ReservationStep:
        step = ReservationStep(reservation.id, reservation.frame_id, reservation.state, reservation.revision)
        return replace(step, **fields)  # type: ignore[arg-type]


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ids)))
