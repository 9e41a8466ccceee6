"""Retention of advance reservations (RETENTION_RESERVATIONS)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from oar.lib.jobs.retention import DAY, rested

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

#: So many are removed in a transaction.
BATCH = 100


def count_old(database: "Database", days: int) -> int:
    """Return how many reservations ``purge`` would remove.  Raises DatabaseUnavailable."""
    with database.snapshot() as tx:
        return len(tx.retention.old_reservations(tx.now - days * DAY, None))


def purge(database: "Database", days: int) -> Iterator[int]:
    """Remove the advance reservations that ended more than ``days`` days ago; yield the number removed in each batch.

    A reservation is kept while one of its jobs is kept, or its frame is not accounted.  Raises DatabaseUnavailable.
    """

    def remove(tx: "Transaction") -> int:
        ids = tx.retention.old_reservations(tx.now - days * DAY, BATCH)
        tx.retention.remove_reservations(ids)
        return len(ids)

    removed = BATCH
    while removed == BATCH:
        removed = rested(database, remove)
        yield removed
