"""Advance reservations as the planner reads them, and its decisions on them.  All values are frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oar.kao.facts.request_groups import RequestGroup
from oar.lib.base.resource_set import ResourceSet
from oar.lib.reservations.states import LEAVING, STARTED, ReservationEvent, ReservationState


class Occurrence(NamedTuple):
    """One occurrence of a series of reservations."""

    number: int  #: in the series, from 1
    start: int


@dataclass(frozen=True, slots=True)
class PlannedReservation:
    """A live advance reservation; its frame is a job of the snapshot."""

    id: int
    number: int
    frame_id: int
    state: ReservationState
    revision: int
    queue: str
    start: int
    end: int
    start_window: int
    time_offset: int  #: its jobs are over so many seconds before its end
    is_hard: bool
    replaces_lost: bool
    is_flexible: bool
    ignores_jobs: bool
    idle_limit: int
    message: str
    resources: ResourceSet = 0  #: granted, without those that were removed
    removed: tuple[int, ...] = ()  #: ids of granted resources that do not exist any more
    groups: tuple[RequestGroup, ...] = ()  #: of the granted request; () before it is granted
    missing: tuple[int, ...] = ()  #: ids of the resources that were missing in the last round
    missing_since: Mapping[int, int] = field(default_factory=dict)  #: of these resources, by id
    live_jobs: tuple[int, ...] = ()
    last_job_date: int = 0  #: since when no job of it is live; its start if there never was one
    occurrence: int = 0  #: its number in its series; 0 = it is in none
    together: int = 0  #: the series whose first occurrences are answered together, if it is one of them; 0 = none
    skips_conflicts: bool = False  #: of these: what cannot be granted is left out
    is_for_nobody: bool = False  #: it keeps resources free, for maintenance: nothing of it can be missing
    followers: tuple[Occurrence, ...] = ()  #: of its series, those that are asked for in its place if it is refused

    @property
    def is_leaving(self) -> bool:
        """Return whether the reservation only waits for its last job to end."""
        return self.state in LEAVING

    def has_begun(self, now: int) -> bool:
        """Return whether the reservation is granted and has started.

        A started reservation stays started when the clock is set back.
        """
        return self.state in STARTED or (self.state is not ReservationState.ASKED and self.start <= now)

    def held_from(self, now: int) -> int:
        """Return the date from which the reservation holds its resources (``now`` if it has begun)."""
        return now if self.has_begun(now) else self.start

    def is_due(self, now: int) -> bool:
        """Return whether the reservation has to be processed now: it is a new request, or one of its dates has come."""
        if self.is_leaving:
            return not self.live_jobs
        is_to_start = self.state in (ReservationState.WAITING, ReservationState.WARNING) and self.start <= now
        return self.state is ReservationState.ASKED or is_to_start or self.end <= now or self.is_idle(now)

    def is_idle(self, now: int) -> bool:
        """Return whether the reservation ends because no job has run in it for ``idle_limit`` seconds."""
        if not self.idle_limit or self.live_jobs or self.start > now:
            return False
        return now >= self.idle_date

    @property
    def idle_date(self) -> int:
        """Return when the reservation ends if no job is submitted to it.  Only valid with an idle limit."""
        return max(self.last_job_date, self.start) + self.idle_limit

    @property
    def latest_job_end(self) -> int:
        """Return the date by which its jobs must have ended."""
        return self.end - self.time_offset


@dataclass(frozen=True, slots=True)
class ReservationNote:
    """A log entry of an advance reservation, and the state after it."""

    event: ReservationEvent
    state: ReservationState
    message: str = ""
    hostname: str = ""
    is_better: bool = False  #: less is missing than before, and something still is: that is no mail


@dataclass(frozen=True, slots=True)
class ReservationStep:
    """The decisions of a round on one advance reservation.

    They are written only if the reservation has not been changed in the meantime.
    """

    reservation_id: int
    frame_id: int
    seen: ReservationState  #: its state when it was decided
    revision: int  #: its revision then
    notes: tuple[ReservationNote, ...] = ()  #: in order; the last state is the new one
    missing: tuple[int, ...] = ()  #: ids of the resources that are missing now
    message: str = ""  #: the reasons, one a line; of a refusal: why
    alternative: int = -1  #: of a granted request: the number of the chosen alternative
    start: int = 0  #: of a granted request
    end: int = 0  #: of a granted request
    resources: tuple[int, ...] = ()  #: ids, if they are new
    proposal: int = 0  #: of a refused request: the earliest start that is possible; 0 = none was found
    is_over: bool = False  #: its last job is gone: it is to be closed
    conflicts: tuple[tuple[Occurrence, str], ...] = ()  #: the followers for which there is no place either, and why

    @property
    def state(self) -> ReservationState:
        """Return the state after this step."""
        return self.notes[-1].state if self.notes else self.seen


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A requested change of an advance reservation that has not been decided."""

    id: int
    reservation_id: int
    start: int | None = None  #: None = as it is
    end: int | None = None  #: None = as it is
    is_forced: bool = False  #: jobs that run beyond a new end are ended with it
    alternatives: tuple[tuple[RequestGroup, ...], ...] = ()  #: of other resources, the best one first; () = as it is
    date: int = 0  #: of the asking; 0 = now
    expires: int = 0  #: nobody waits for the answer after this date; 0 = somebody always does
    is_readable: bool = True  #: of one that cannot be read nothing is known


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """The decision on a change request; a granted change is written completely."""

    change_id: int
    reservation_id: int
    revision: int  #: of the reservation when it was decided
    is_granted: bool = False
    message: str = ""
    proposal: int = 0  #: of a refusal: the date that would be possible; 0 = none
    start: int = 0
    end: int = 0
    resources: tuple[int, ...] = ()
    alternative: int = 0  #: if other resources were asked for: the number of the one that is granted
    ended_jobs: tuple[int, ...] = ()  #: jobs that no longer fit
