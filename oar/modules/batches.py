"""Work on many rows in few transactions: a faulty row must never block the others."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from oar.lib.base.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)

#: Number of items in a transaction: a burst costs few statements, and locks are not held for long.
BATCH_SIZE = 200


def run_in_batches(
    database: "Database",
    items: Sequence[T],
    work: "Callable[[Transaction, Sequence[T]], R]",
    batch_size: int = BATCH_SIZE,
) -> list[R]:
    """Run ``work`` on all items, one batch per transaction. Return the result of each transaction.

    If a batch fails, each of its items gets its own transaction. An item that fails alone is logged and skipped. Raises
    DatabaseUnavailable.
    """
    results: list[R] = []
    for start in range(0, len(items), batch_size):
        batch = items[start : start + batch_size]
        try:
            results.append(_run(database, batch, work))
        except DatabaseUnavailable:
            raise
        except Exception as error:
            if len(batch) == 1:
                log.error("cannot treat %s", batch[0], exc_info=error)
            else:
                log.warning("cannot treat %d together, now one by one: %s", len(batch), error)
                results += run_in_batches(database, batch, work, batch_size=1)
    return results


def _run(database: "Database", batch: Sequence[T], work: "Callable[[Transaction, Sequence[T]], R]") -> R:
    return database.run(lambda tx: work(tx, batch))
