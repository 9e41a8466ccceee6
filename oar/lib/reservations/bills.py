"""The bill of an advance reservation that ends, from what is stored."""

from typing import TYPE_CHECKING

from oar.lib.facts.advance_reservations import AdvanceReservation, ReservationUsage
from oar.lib.facts.reservation_states import IntervalKind
from oar.lib.rules import reservation_bills

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


def bill(tx: "Transaction", reservation: AdvanceReservation) -> list[ReservationUsage]:
    """Return the bill; what a reservation that never began had reserved is 0."""
    stop = max(reservation.start, min(reservation.ended or tx.now, reservation.end))
    intervals = tx.advance_reservations.intervals(reservation.id)
    history = reservation_bills.ReservationHistory(
        intervals[IntervalKind.GRANTED],
        intervals[IntervalKind.MISSING],
        tx.advance_reservations.job_intervals(reservation.id),
    )
    places = tx.advance_reservations.places({interval.resource_id for interval in history.granted})
    rows = reservation_bills.bill((reservation.start, stop), history, places, reservation.queue)
    return [row._replace(termination_time=reservation.ended or tx.now) for row in rows]
