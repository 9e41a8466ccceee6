"""States, moves and events of advance reservations (docs/design/reservations.rst, "States").

An advance reservation is an object of its own, created by qrsub.  A job that was submitted with ``oarsub -r`` is called
a reservation job; its enumeration is ``oar.lib.jobs.states.Reservation``.
"""

from collections.abc import Mapping
from enum import StrEnum


class ReservationState(StrEnum):
    """State of an advance reservation, ``reservations.state``."""

    ASKED = ""  #: not decided yet
    REFUSED = "n"  #: refused by the scheduler, or withdrawn (final)
    WAITING = "w"  #: granted, not started
    WARNING = "W"  #: granted, not started; some of its resources are missing
    RUNNING = "r"  #: started; jobs may run in it
    ERROR = "E"  #: started; some of its resources are missing
    EXITED = "x"  #: ended; closed when its last job has ended
    DELETED = "d"  #: deleted; closed when its last job has ended


S = ReservationState

#: Granted, and neither deleted nor at the end.
GRANTED = frozenset({S.WAITING, S.WARNING, S.RUNNING, S.ERROR})
#: Never granted: not shown.
HIDDEN = frozenset({S.ASKED, S.REFUSED})
#: Started.
STARTED = frozenset({S.RUNNING, S.ERROR})
#: States that count in MAX_ADVANCE_RESERVATIONS.
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


class ReservationEvent(StrEnum):
    """Event of an advance reservation, ``reservation_logs.event``; most names are Grid Engine's."""

    CREATED = "CREATED"  #: granted
    REFUSED = "REFUSED"  #: it cannot be placed
    WITHDRAWN = "WITHDRAWN"  #: the client stopped waiting
    STARTED = "START TIME REACHED"
    UNSATISFIED = "RESOURCES UNSATISFIED"  #: resources are missing
    SATISFIED = "RESOURCES SATISFIED"  #: no resource is missing any more
    REPLACED = "RESOURCES REPLACED"  #: lost resources were replaced
    ALTERED = "ALTERED"
    ENDED = "END TIME REACHED"
    IDLE = "IDLE"  #: ended because no job was in it for too long
    DELETED = "DELETED"
    TERMINATED = "TERMINATED"  #: its last job has ended
    SKIPPED = "SKIPPED"  #: an occurrence of a series was refused, and the series goes on


class ChangeAnswer(StrEnum):
    """The answer to a requested change, ``reservation_changes.answer``."""

    NONE = ""  #: not decided yet
    GRANTED = "granted"
    REFUSED = "refused"
    DROPPED = "dropped"  #: its reservation ended, or the client stopped waiting


class IntervalKind(StrEnum):
    """Kind of a resource interval of an advance reservation, ``reservation_intervals.kind``."""

    GRANTED = "granted"
    MISSING = "missing"
