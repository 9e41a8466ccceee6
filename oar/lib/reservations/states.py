"""States, moves and events of advance reservations (docs/design/reservations.rst, "States").

An advance reservation is an object of its own, created by qrsub.  A job that was submitted with ``oarsub -r`` is called
a reservation job; its enumeration is ``oar.lib.jobs.states.Reservation``.
"""

from collections.abc import Mapping
from enum import StrEnum


class ReservationState(StrEnum):
    """State of an advance reservation, ``reservations.state``."""

    ASKED = ""  #: the scheduler has not answered yet
    REFUSED = "n"  #: refused by the scheduler, or withdrawn by who asked (final)
    WAITING = "w"  #: granted; its start is to come
    WARNING = "W"  #: granted; its start is to come, and some of its resources are missing
    RUNNING = "r"  #: its start has come; jobs may run in it
    ERROR = "E"  #: its start has come, and some of its resources are missing
    EXITED = "x"  #: its end has come; over when its last job is gone
    DELETED = "d"  #: somebody deleted it; over when its last job is gone


S = ReservationState

#: Granted, and neither deleted nor at the end.
GRANTED = frozenset({S.WAITING, S.WARNING, S.RUNNING, S.ERROR})
#: The start has come.
STARTED = frozenset({S.RUNNING, S.ERROR})
#: What counts in MAX_ADVANCE_RESERVATIONS.
COUNTED = GRANTED | {S.ASKED}
#: States that are left only by closing: ``reservations.ended`` gets a date.
LEAVING = frozenset({S.EXITED, S.DELETED})
#: Some of its resources are missing.
INCOMPLETE = frozenset({S.WARNING, S.ERROR})

#: From each state, the states that an advance reservation may enter.  Nothing else is legal.
RESERVATION_MOVES: Mapping[ReservationState, frozenset[ReservationState]] = {
    S.ASKED: GRANTED | {S.REFUSED},
    S.REFUSED: frozenset(),
    S.WAITING: frozenset({S.WARNING, S.RUNNING, S.ERROR, S.DELETED}),
    S.WARNING: frozenset({S.WAITING, S.RUNNING, S.ERROR, S.DELETED}),
    S.RUNNING: frozenset({S.ERROR, S.EXITED, S.DELETED}),
    S.ERROR: frozenset({S.RUNNING, S.EXITED, S.DELETED}),
    S.EXITED: frozenset(),
    S.DELETED: frozenset(),
}


def may_enter(state: ReservationState) -> frozenset[ReservationState]:
    """Return the states from which an advance reservation may enter ``state``."""
    return frozenset(source for source, targets in RESERVATION_MOVES.items() if state in targets)


class ReservationEvent(StrEnum):
    """Event of an advance reservation, ``reservation_logs.event``; most names are Grid Engine's."""

    CREATED = "CREATED"  #: granted
    REFUSED = "REFUSED"  #: there is no place for it
    WITHDRAWN = "WITHDRAWN"  #: who asked did not wait for the answer
    STARTED = "START TIME REACHED"
    UNSATISFIED = "RESOURCES UNSATISFIED"  #: resources are missing
    SATISFIED = "RESOURCES SATISFIED"  #: none is missing any more
    REPLACED = "RESOURCES REPLACED"  #: others stand in for lost ones
    ALTERED = "ALTERED"
    ENDED = "END TIME REACHED"
    IDLE = "IDLE"  #: ended because no job was in it for too long
    DELETED = "DELETED"
    TERMINATED = "TERMINATED"  #: its last job is gone
    SKIPPED = "SKIPPED"  #: an occurrence of a series was refused, and the series goes on


class ChangeAnswer(StrEnum):
    """The answer to a requested change, ``reservation_changes.answer``."""

    NONE = ""  #: not yet answered
    GRANTED = "granted"
    REFUSED = "refused"
    DROPPED = "dropped"  #: its reservation ended, or nobody waited any more


class IntervalKind(StrEnum):
    """Kind of a resource interval of an advance reservation, ``reservation_intervals.kind``."""

    GRANTED = "granted"
    MISSING = "missing"
