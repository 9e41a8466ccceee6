"""The changes of advance reservations that are asked for (``tx.reservation_change_requests``).

Statements are about all reservations at once: never a query for each.  See docs/design/reservations.rst.
"""

from collections.abc import Collection

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Row, Table
from oar.lib.reservations.records import ReservationChange
from oar.lib.reservations.states import ChangeAnswer

_CHANGE_COLUMNS = "change_id, reservation_id, date, author, change, answer, message, proposal, expires"
_ASK_CHANGE = """
    INSERT INTO reservation_changes (reservation_id, date, author, change, expires) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (reservation_id) WHERE answer = '' DO NOTHING RETURNING change_id"""
_OPEN_CHANGES = f"SELECT {_CHANGE_COLUMNS} FROM reservation_changes WHERE answer = '' ORDER BY change_id"
_CHANGE = f"SELECT {_CHANGE_COLUMNS} FROM reservation_changes WHERE change_id = %s"
_ANSWER_CHANGE = """
    UPDATE reservation_changes SET answer = %s, message = %s, proposal = %s WHERE change_id = %s AND answer = ''"""
_DROP_CHANGE = """
    UPDATE reservation_changes SET answer = 'dropped', message = %s
    WHERE reservation_id = ANY(%s) AND answer = ''"""


class ReservationChangeRequests(Table):
    """Requests of which a reservation has one at a time without an answer; the scheduler gives it."""

    def ask(self, reservation_id: int, author: str, change: str, expires: int) -> int | None:
        """Ask for a change; return its id, None if another one of the reservation is not answered yet."""
        self._tx.topics.add(Topic.RESERVATIONS)
        change_id: int | None = self._tx.value(_ASK_CHANGE, (reservation_id, self._tx.now, author, change, expires))
        return change_id

    def open(self) -> list[ReservationChange]:
        """Return the changes that wait for an answer, by id."""
        return [_change(row) for row in self._tx.rows(_OPEN_CHANGES)]

    def find(self, change_id: int) -> ReservationChange | None:
        """Return a change; None if there is none of this id."""
        row = self._tx.row(_CHANGE, (change_id,))
        return _change(row) if row else None

    def answer(self, change_id: int, answer: ChangeAnswer, message: str = "", proposal: int = 0) -> bool:
        """Answer a change; False if it has an answer already."""
        self._tx.topics.add(Topic.RESERVATIONS)
        return self._tx.execute(_ANSWER_CHANGE, (str(answer), message, proposal, change_id)) == 1

    def drop(self, ids: Collection[int], message: str) -> None:
        """Answer the changes of reservations that wait for an answer: they come too late."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute(_DROP_CHANGE, (message, list(ids)))


def _change(row: Row) -> ReservationChange:
    record = ReservationChange(*row)
    return record._replace(answer=ChangeAnswer(record.answer))
