"""The rows of a request for an advance reservation: it stands beside its frame from the first moment on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.reservations import frames
from oar.lib.reservations.records import AccessEntry, NewReservation
from oar.lib.reservations.request_records import decode

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class AskedReservation(NamedTuple):
    """A request that was written."""

    id: int
    number: int
    frame_id: int
    start: int
    end: int
    series_id: int = 0  #: it is the first occurrence of this series


def insert(tx: "Transaction", new: NewReservation, access: Sequence[AccessEntry]) -> AskedReservation:
    """Write a request; whoever calls this wakes the scheduler."""
    reservation_id, number = tx.reservations.insert(new)
    tx.reservations.set_access(reservation_id, access)
    (reservation,) = tx.reservations.select([reservation_id])
    frame_id = frames.make(tx, reservation, decode(new.request))
    return AskedReservation(reservation_id, number, frame_id, new.start, new.end, new.series_id)
