"""The stored bills of advance reservations (``tx.reservation_bills``).

Statements are about all reservations at once: never a query for each.  See docs/design/reservations.rst.
"""

from collections.abc import Collection, Mapping, Sequence

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Table
from oar.lib.reservations.records import ReservationUsage

_ADD_USAGE = """
    INSERT INTO reservation_usage (reservation_id, queue_name, network_address, slots, reserved, used, unusable,
        termination_time)
    VALUES %s ON CONFLICT (reservation_id, queue_name, network_address) DO NOTHING"""
_USAGE = """
    SELECT reservation_id, queue_name, network_address, slots, reserved, used, unusable, termination_time
    FROM reservation_usage WHERE reservation_id = ANY(%s) ORDER BY reservation_id, queue_name, network_address"""


class ReservationBills(Table):
    """Bills, each of which is written once: what a reservation had and used, by queue and node."""

    def add(self, bills: Mapping[int, Sequence[ReservationUsage]]) -> None:
        """Write the bills of reservations; those that are there already stay."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.insert_many(_ADD_USAGE, [(number, *row) for number, rows in bills.items() for row in rows])

    def find(self, reservation_id: int) -> list[ReservationUsage]:
        """Return the bill of a reservation, by queue and node."""
        return self.select([reservation_id])[reservation_id]

    def select(self, ids: Collection[int]) -> dict[int, list[ReservationUsage]]:
        """Return the bills of reservations, by id; each by queue and node."""
        found: dict[int, list[ReservationUsage]] = {number: [] for number in ids}
        for reservation_id, *row in self._tx.rows(_USAGE, (list(ids),)) if ids else ():
            found[reservation_id].append(ReservationUsage(*row))
        return found
