"""The wait for the answer of the scheduler to a request for an advance reservation, or to a change of one."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from oar.lib.reservations import asking
from oar.lib.reservations.listener import ReservationListener
from oar.lib.reservations.records import AdvanceReservation, ReservationChange
from oar.lib.reservations.states import ChangeAnswer, ReservationState

if TYPE_CHECKING:
    from oar.lib.db.database import Database

Answer = TypeVar("Answer")

#: Seconds between two looks, at most; without notifications the first ones follow each other faster.
LONGEST_PAUSE, FIRST_PAUSE = 1.0, 0.05


def wait(
    database: "Database",
    look: Callable[[], Answer | None],
    patience: float,
    clock: Callable[[], float] = time.monotonic,
) -> Answer | None:
    """Return what ``look`` finds as soon as it finds something; None if there was nothing for ``patience`` seconds."""
    limit, pause = clock() + patience, FIRST_PAUSE
    with ReservationListener(database) as listener:
        while True:
            is_told = listener.listen()
            if answer := look():
                return answer
            if clock() >= limit:
                return None
            pause = LONGEST_PAUSE if is_told else min(2 * pause, LONGEST_PAUSE)
            listener.wait(max(0.0, min(pause, limit - clock())))


def find(database: "Database", reservation_id: int) -> AdvanceReservation | None:
    """Return a reservation with its answer; None if it has none yet."""
    with database.snapshot() as tx:
        (reservation,) = tx.reservations.select([reservation_id])
    return None if reservation.state is ReservationState.ASKED else reservation


def find_change(database: "Database", change_id: int) -> ReservationChange | None:
    """Return a change with its answer; None if it has none yet."""
    with database.snapshot() as tx:
        change = tx.reservations.find_change(change_id)
    return None if change is None or change.answer is ChangeAnswer.NONE else change


def withdraw(database: "Database", reservation_id: int, author: str) -> AdvanceReservation | None:
    """Withdraw a request, if it was written; return the reservation if its answer was first, else None."""
    with database.begin() as tx:
        return asking.withdraw(tx, reservation_id, author)
