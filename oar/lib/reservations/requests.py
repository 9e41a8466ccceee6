"""Requests for advance reservations: create, cancel, wait for the decision of the scheduler."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from oar.lib.base.errors import WordedRefusal
from oar.lib.bus.messages import Tag, Wake
from oar.lib.db.lock_keys import RESERVATION_LIMIT_LOCK
from oar.lib.reservations import frames, listed_users
from oar.lib.reservations.frames import StoredRequest
from oar.lib.reservations.listener import ReservationListener
from oar.lib.reservations.records import AccessEntry, AdvanceReservation, NewReservation, NewSeries, ReservationChange
from oar.lib.reservations.states import ChangeAnswer, ReservationEvent, ReservationState

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction


class TooManyReservations(WordedRefusal):
    """MAX_ADVANCE_RESERVATIONS is reached."""

    exit_code = 25


def create(tx: "Transaction", new: NewReservation, access: Sequence[AccessEntry], *, limit: int) -> StoredRequest:
    """Store a request and wake the scheduler after the commit.  Raises TooManyReservations.

    ``limit``: MAX_ADVANCE_RESERVATIONS, 0 means unlimited; a lock prevents concurrent requests from exceeding it.
    """
    listed_users.keep_usersets(tx, access)
    check_limit(tx, limit, 1)
    tx.outbox.append(Wake(Tag.QSUB))
    return frames.insert_request(tx, new, access)


def create_series(
    tx: "Transaction",
    new: NewReservation,
    access: Sequence[AccessEntry],
    series: NewSeries,
    starts: Sequence[int],
    *,
    limit: int,
) -> StoredRequest:
    """Store a series and the requests of its first occurrences, at ``starts``; return the first one.

    The limit counts the occurrences that are requested together, not later ones.  Raises TooManyReservations.
    """
    from oar.lib.reservations import occurrences

    listed_users.keep_usersets(tx, access)
    check_limit(tx, limit, len(starts))
    tx.outbox.append(Wake(Tag.QSUB))
    return occurrences.begin(tx, new, access, series, starts)


def check_limit(tx: "Transaction", limit: int, wanted: int) -> None:
    """Raise TooManyReservations if ``wanted`` more reservations would exceed the site's limit; 0 means unlimited."""
    if limit:
        tx.system.take_lock(RESERVATION_LIMIT_LOCK)
        if tx.reservations.count() + wanted > limit:
            raise TooManyReservations(f"rejected: only {limit} advance reservations are allowed per cluster")


def cancel(tx: "Transaction", reservation_id: int, author: str, message: str = "") -> AdvanceReservation | None:
    """Withdraw a request that was not decided; return the reservation if it was already decided, else None.

    With an occurrence, all undecided occurrences of its series are withdrawn, and the series ends.
    """
    from oar.lib.reservations import lifecycle

    for reservation in tx.reservations.lock([reservation_id]):
        if reservation.state is not ReservationState.ASKED:
            return reservation
        withdrawn = [reservation]
        if reservation.series_id:
            withdrawn = tx.reservations.lock(tx.reservations.live_of_series(reservation.series_id))
            tx.reservations.end_series(reservation.series_id)
        for each in withdrawn:
            if each.state is ReservationState.ASKED:
                lifecycle.refuse(tx, each, message or "withdrawn", event=ReservationEvent.WITHDRAWN, author=author)
    return None


Answer = TypeVar("Answer")

#: Seconds between two looks, at most; without notifications the first ones follow each other faster.
LONGEST_PAUSE, FIRST_PAUSE = 1.0, 0.05


def wait_for_answer(
    database: "Database",
    look: Callable[[], Answer | None],
    patience: float,
    clock: Callable[[], float] = time.monotonic,
) -> Answer | None:
    """Return the result of ``look`` as soon as it is not empty; return None after ``patience`` seconds."""
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


def find_answer(database: "Database", reservation_id: int) -> AdvanceReservation | None:
    """Return the decided reservation; None if it is not decided yet."""
    with database.snapshot() as tx:
        (reservation,) = tx.reservations.select([reservation_id])
    return None if reservation.state is ReservationState.ASKED else reservation


def find_change_answer(database: "Database", change_id: int) -> ReservationChange | None:
    """Return the answered change; None if it is not answered yet."""
    with database.snapshot() as tx:
        change = tx.reservations.find_change(change_id)
    return None if change is None or change.answer is ChangeAnswer.NONE else change


def cancel_unanswered(database: "Database", reservation_id: int, author: str) -> AdvanceReservation | None:
    """Withdraw a request that was not decided; return the reservation if it was already decided, else None."""
    with database.begin() as tx:
        return cancel(tx, reservation_id, author)
