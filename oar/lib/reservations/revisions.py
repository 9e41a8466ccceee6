"""Revisions of advance reservations, and the granted resources as text."""

from collections import Counter
from typing import TYPE_CHECKING

from oar.lib.reservations.records import AdvanceReservation, ReservationRevision

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


def granted_text(tx: "Transaction", reservation: AdvanceReservation) -> str:
    """Return the granted resources as ``default@node-1=4,licence=2``."""
    rows = tx.resources.select(reservation.resources)
    places = Counter(f"{reservation.queue}@{row.network_address}" if row.network_address else row.type for row in rows)
    return ",".join(f"{place}={count}" for place, count in sorted(places.items()))


def add_revision(tx: "Transaction", reservation: AdvanceReservation, author: str) -> None:
    """Store the current attributes of a reservation as a new revision."""
    tx.reservation_logs.add_revision(
        ReservationRevision(
            reservation.id,
            reservation.revision,
            tx.now,
            author,
            reservation.name,
            reservation.account,
            reservation.start,
            reservation.end,
            reservation.granted_pe,
            granted_text(tx, reservation),
        )
    )
