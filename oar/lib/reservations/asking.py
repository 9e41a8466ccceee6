"""Requests for advance reservations: written by whoever asks, answered by the scheduler."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.db.lock_keys import RESERVATION_LIMIT_LOCK
from oar.lib.facts.advance_reservations import AccessEntry, AdvanceReservation, NewReservation
from oar.lib.facts.errors import WordedRefusal
from oar.lib.facts.messages import Tag, Wake
from oar.lib.facts.reservation_requests import decode
from oar.lib.facts.reservation_states import ReservationEvent, ReservationState
from oar.lib.reservations import frames, lifecycle

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class TooManyReservations(WordedRefusal):
    """MAX_ADVANCE_RESERVATIONS is reached."""

    exit_code = 25


class AskedReservation(NamedTuple):
    """A request that was written."""

    id: int
    number: int
    frame_id: int
    start: int
    end: int


def ask(tx: "Transaction", new: NewReservation, access: Sequence[AccessEntry], *, limit: int) -> AskedReservation:
    """Write a request; the scheduler is woken after the commit.  Raises TooManyReservations.

    ``limit``: MAX_ADVANCE_RESERVATIONS, 0 = none; two requests at once cannot both be the last.
    """
    if limit:
        tx.advisory_locks.take(RESERVATION_LIMIT_LOCK)
        if tx.advance_reservations.count() >= limit:
            raise TooManyReservations(f"rejected: only {limit} advance reservations are allowed per cluster")
    reservation_id, number = tx.advance_reservations.insert(new)
    tx.advance_reservations.set_access(reservation_id, access)
    (reservation,) = tx.advance_reservations.select([reservation_id])
    frame_id = frames.make(tx, reservation, decode(new.request))
    tx.outbox.append(Wake(Tag.QSUB))
    return AskedReservation(reservation_id, number, frame_id, new.start, new.end)


def withdraw(tx: "Transaction", reservation_id: int, author: str, message: str = "") -> AdvanceReservation | None:
    """Withdraw a request, if it was written; return the reservation if its answer was first, else None."""
    for reservation in tx.advance_reservations.lock([reservation_id]):
        if reservation.state is not ReservationState.ASKED:
            return reservation
        lifecycle.refuse(tx, reservation, message or "withdrawn", event=ReservationEvent.WITHDRAWN, author=author)
    return None
