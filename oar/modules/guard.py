"""The guard round a module's units of work: one bad row must never stop the others."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from oar.lib.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from oar.lib.db.engine import Database, Transaction

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)

#: Items that share a transaction: a burst costs few statements, and locks are not kept for long.
TOGETHER = 200


def in_groups(
    database: "Database",
    items: Sequence[T],
    work: "Callable[[Transaction, Sequence[T]], R]",
    together: int = TOGETHER,
) -> list[R]:
    """Do ``work`` on all items, several in one transaction; return what each transaction gave.

    When a group fails, each of its items has a transaction of its own; one that fails alone is logged and left as it
    is.  Raises DatabaseUnavailable.
    """
    results: list[R] = []
    for start in range(0, len(items), together):
        group = items[start : start + together]
        try:
            results.append(_unit(database, group, work))
        except DatabaseUnavailable:
            raise
        except Exception as error:
            if len(group) == 1:
                log.error("cannot treat %s", group[0], exc_info=error)
            else:
                log.warning("cannot treat %d together, now one by one: %s", len(group), error)
                results += in_groups(database, group, work, together=1)
    return results


def _unit(database: "Database", group: Sequence[T], work: "Callable[[Transaction, Sequence[T]], R]") -> R:
    return database.run(lambda tx: work(tx, group))
