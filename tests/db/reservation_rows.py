"""Rows of advance reservations as a test wants them, whatever rounds would have made of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from oar.lib.db.database import Database
from oar.lib.reservations.records import AccessEntry
from tests.builders import execute_sql

#: What a row has that a test says nothing about.
PLAIN: dict[str, Any] = {
    "owner": "user1",
    "owner_group": "users",
    "queue_name": "default",
    "state": "w",
    "time_offset": 6,
}


@contextmanager
def numbers_begin_again(database: Database) -> Iterator[None]:
    """Let the numbers of reservations be small behind the block: the database goes on to other tests."""
    try:
        yield
    finally:
        execute_sql(database, "SELECT setval('reservations_reservation_id_seq', 1, false)")


def add_reservation(
    database: Database, number: int | None = None, *, access: Sequence[AccessEntry] = (), **columns: Any
) -> int:
    """Add a row with these columns; return its id, which is its number too."""
    values = {**PLAIN, **columns}
    names, marks = ", ".join(values), ", ".join(["%s"] * len(values))
    with database.begin() as tx:
        if number is not None:
            tx.execute("SELECT setval('reservations_reservation_id_seq', %s, false)", (number,))
        row = tx.row(
            f"INSERT INTO reservations ({names}) VALUES ({marks}) RETURNING reservation_id", tuple(values.values())
        )
        assert row is not None
        reservation_id: int = row[0]
        tx.reservations.set_access(reservation_id, access)
    return reservation_id
