"""The output of the planner: a ``Plan``, with a ``Placement`` or a ``Reason`` for each waiting job.

All values are frozen.  Sets of resources are ints whose bits number ``Snapshot.resources``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from oar.kao.facts.snapshot import Occurrence
from oar.lib.base.resource_set import ResourceSet
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.reservations.states import ReservationEvent, ReservationState

#: A value that JSON can hold.
Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why a job has no placement, or does not start now."""

    code: ReasonCode
    text: str  #: one line for ``jobs.scheduler_info``
    data: Mapping[str, Json] = field(default_factory=dict)  #: the numbers and names in the text


@dataclass(frozen=True, slots=True)
class Placement:
    """Planned start, alternative and resources of a job."""

    job_id: int
    alternative: int
    start: int
    walltime: int
    resources: ResourceSet

    @property
    def end(self) -> int:
        return self.start + self.walltime


@dataclass(frozen=True, slots=True)
class JobStart:
    """A job that starts now."""

    placement: Placement
    old_walltime: int = 0  #: of a reservation that starts late: the walltime before it was cut; 0 = not cut
    is_reduced: bool = False  #: a reservation that starts without its missing resources


class KillAction(StrEnum):
    """The order sent to a besteffort job."""

    KILL = "KILL"  #: to end
    CHECKPOINT = "CHECKPOINT"  #: to write a checkpoint, and then to end by itself
    CHECKPOINT_TIMEOUT = "CHECKPOINT_TIMEOUT"  #: to end, for the time for its checkpoint is over


@dataclass(frozen=True, slots=True)
class Kill:
    """An order to a besteffort job that holds resources needed by another job's placement."""

    job_id: int
    for_job: int
    action: KillAction


@dataclass(frozen=True, slots=True)
class Answer:
    """The decision on a new reservation, or the refusal of a job that can never run."""

    job_id: int
    message: str  #: for the submitter; '' for an accepted reservation
    start: int = 0  #: of a reservation: its date, or the date of the round if it was in the past


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception raised while a job was being planned."""

    job_id: int
    origin: str  #: its class, file and line: equal for all jobs that fail in the same way
    trace: str  #: the traceback


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
        return self.notes[-1].state if self.notes else self.seen


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


@dataclass(frozen=True, slots=True)
class Plan:
    """All decisions of a round."""

    now: int
    placements: tuple[Placement, ...] = ()  #: of waiting jobs and accepted reservations, in the order of planning
    #: of each job that does not start now, and of those in Resuming that wait for advance reservations
    reasons: Mapping[int, Reason] = field(default_factory=dict)
    messages: Mapping[int, str] = field(default_factory=dict)  #: text of ``jobs.message``
    karma: Mapping[int, float] = field(default_factory=dict)
    started: tuple[JobStart, ...] = ()
    kills: tuple[Kill, ...] = ()
    accepted: tuple[Answer, ...] = ()  #: new reservations that have a placement
    refused: tuple[Answer, ...] = ()  #: jobs that go to toError
    expired: tuple[Answer, ...] = ()  #: reservations whose time is over: they go to Error
    regained: tuple[int, ...] = ()  #: reservations without stored resources that were given new ones
    lost: tuple[int, ...] = ()  #: reservations without stored resources that find none
    resumed: tuple[int, ...] = ()  #: jobs in Resuming that go on
    wake: tuple[str, ...] = ()  #: nodes to wake
    halt: tuple[str, ...] = ()  #: nodes to halt
    outside: tuple[int, ...] = ()  #: jobs placed by schedulers of the site: their requests are not checked
    troubles: tuple[str, ...] = ()  #: lines for the log: limits reached, errors of the site's extensions
    failures: tuple[Failure, ...] = ()
    reservations: tuple[ReservationStep, ...] = ()  #: of advance reservations: what changes
    reservation_changes: tuple[ChangeStep, ...] = ()  #: answers to changes of advance reservations
    reservation_dates: tuple[int, ...] = ()  #: later dates at which advance reservations change by themselves
    undecided: tuple[int, ...] = ()  #: jobs that do not start now; an urgent pass does not say when they start
    foreseen_at: int = 0  #: the date of the full plan that foresaw the places of the undecided jobs; 0 = none
    is_certain: bool = True  #: False: an undecided job may have been able to start now


@dataclass(frozen=True, slots=True)
class JobForecast:
    """Prediction for one job, provided that nothing changes and no limit of a scheduling round applies."""

    placement: Placement | None = None
    reason: Reason | None = None  #: why it does not start now, or has no placement
    refusal: str = ""  #: it can never run: what it would be told
    not_before: int | None = None  #: there was no time to plan as far as this job: it starts then or later
