"""The table ``outbox`` (``tx.unsent``): messages to people and to the site that are not delivered yet.

A transaction stores its messages with its decision. The Runner deletes a message after its delivery.
See docs/design/events.rst, "The outbox".
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from oar.lib.bus import frames
from oar.lib.bus.messages import Notice, ReservationMail, Stored
from oar.lib.db.statements import Prepared, Table

_ADD = "INSERT INTO outbox (date, job_user, message) VALUES %s"

_READ = Prepared("SELECT outbox_id, date, message FROM outbox WHERE outbox_id = ANY(%s) ORDER BY outbox_id")

_REMOVE = "DELETE FROM outbox WHERE outbox_id = ANY(%s)"

#: The oldest messages of the user with the most messages.
_REMOVE_OLDEST = """
    DELETE FROM outbox WHERE outbox_id IN (
        SELECT outbox_id FROM outbox
        WHERE job_user = (SELECT job_user FROM outbox GROUP BY job_user ORDER BY count(*) DESC, job_user LIMIT 1)
        ORDER BY outbox_id LIMIT %s)
    RETURNING outbox_id, job_user"""


class UnsentMessage(NamedTuple):
    """A row of ``outbox``."""

    id: int
    date: int
    content: Stored


class UnsentMessages(Table):
    """The messages that are not delivered yet."""

    def add(self, messages: Sequence[Stored]) -> None:
        """Store messages."""
        rows = [(self._tx.now, _user(message), frames.encode(message).decode()) for message in messages]
        self._tx.insert_many(_ADD, rows)

    def ids(self) -> list[int]:
        """Return the ids of all messages, in the order of their creation."""
        return self._tx.column("SELECT outbox_id FROM outbox ORDER BY outbox_id")

    def read(self, ids: Collection[int]) -> list[UnsentMessage]:
        """Return messages in the order of their creation, without those that this release cannot parse."""
        rows = self._tx.rows(_READ, (list(ids),))
        return [UnsentMessage(row[0], row[1], message) for row in rows if (message := _parse(row[2]))]

    def remove(self, ids: Collection[int]) -> None:
        self._tx.execute(_REMOVE, (list(ids),))

    def remove_oldest(self, number: int) -> tuple[str, list[int]]:
        """Delete at most this many messages of the user with the most messages; return the user and their ids."""
        rows = self._tx.rows(_REMOVE_OLDEST, (number,))
        return (rows[0][1] if rows else ""), [row[0] for row in rows]


def _user(message: Stored) -> str:
    return message.user if isinstance(message, Notice | ReservationMail) else ""


def _parse(text: str) -> Stored | None:
    try:
        message = frames.decode(text.encode())
    except frames.BadFrame:  # of a later release
        return None
    return message if isinstance(message, Stored) else None
