"""Requests for advance reservations: written by whoever asks, answered by the scheduler."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oar.lib.base.errors import WordedRefusal
from oar.lib.bus.messages import Tag, Wake
from oar.lib.db.lock_keys import RESERVATION_LIMIT_LOCK
from oar.lib.reservations import insertion, listed_users
from oar.lib.reservations.insertion import AskedReservation
from oar.lib.reservations.records import AccessEntry, AdvanceReservation, NewReservation
from oar.lib.reservations.series_records import NewSeries
from oar.lib.reservations.states import ReservationEvent, ReservationState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class TooManyReservations(WordedRefusal):
    """MAX_ADVANCE_RESERVATIONS is reached."""

    exit_code = 25


def ask(tx: "Transaction", new: NewReservation, access: Sequence[AccessEntry], *, limit: int) -> AskedReservation:
    """Write a request; the scheduler is woken after the commit.  Raises TooManyReservations.

    ``limit``: MAX_ADVANCE_RESERVATIONS, 0 = none; two requests at once cannot both be the last.
    """
    listed_users.keep_usersets(tx, access)
    check_limit(tx, limit, 1)
    tx.outbox.append(Wake(Tag.QSUB))
    return insertion.insert(tx, new, access)


def ask_series(
    tx: "Transaction",
    new: NewReservation,
    access: Sequence[AccessEntry],
    series: NewSeries,
    starts: Sequence[int],
    *,
    limit: int,
) -> AskedReservation:
    """Write a series and the requests of its first occurrences, which begin at ``starts``; return the first one.

    The limit counts those that are asked for at a time, not those that follow.  Raises TooManyReservations.
    """
    from oar.lib.reservations import occurrences

    listed_users.keep_usersets(tx, access)
    check_limit(tx, limit, len(starts))
    tx.outbox.append(Wake(Tag.QSUB))
    return occurrences.begin(tx, new, access, series, starts)


def check_limit(tx: "Transaction", limit: int, wanted: int) -> None:
    """Refuse more reservations than the site allows at a time; 0 = all.  Raises TooManyReservations."""
    if limit:
        tx.system.take_lock(RESERVATION_LIMIT_LOCK)
        if tx.reservations.count() + wanted > limit:
            raise TooManyReservations(f"rejected: only {limit} advance reservations are allowed per cluster")


def withdraw(tx: "Transaction", reservation_id: int, author: str, message: str = "") -> AdvanceReservation | None:
    """Withdraw a request, if it was written; return the reservation if its answer was first, else None.

    With an occurrence all others of its series are withdrawn that have no answer, and the series ends.
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
