"""The bills of advance reservations that end, from what is stored."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oar.lib.reservations import bill
from oar.lib.reservations.bill import ReservationHistory
from oar.lib.reservations.records import AdvanceReservation, ReservationUsage
from oar.lib.reservations.states import IntervalKind

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


def write_bills(tx: "Transaction", reservations: Sequence[AdvanceReservation]) -> None:
    """Write the bills; what a reservation that never began had reserved is 0."""
    ids = [reservation.id for reservation in reservations]
    intervals = tx.reservations.intervals_of(ids)
    job_intervals = tx.reservations.intervals_of_jobs(ids)
    histories = {
        number: ReservationHistory(kinds[IntervalKind.GRANTED], kinds[IntervalKind.MISSING], job_intervals[number])
        for number, kinds in intervals.items()
    }
    granted = {interval.resource_id for history in histories.values() for interval in history.granted}
    places = tx.reservations.interval_places(granted)
    tx.reservation_logs.add_bill({each.id: _bill(each, histories[each.id], places, tx.now) for each in reservations})


def _bill(
    reservation: AdvanceReservation, history: ReservationHistory, places: Mapping[int, str], now: int
) -> list[ReservationUsage]:
    date = reservation.ended or now
    window = reservation.start, max(reservation.start, min(date, reservation.end))
    rows = bill.bill(window, history, places, reservation.queue)
    return [row._replace(termination_time=date) for row in rows]
