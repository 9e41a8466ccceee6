"""The lock of rounds: two rounds are never made at the same time. See docs/design/locks.rst, "Advisory locks"."""

from collections.abc import Iterator
from contextlib import contextmanager

from oar.lib.base.errors import Unavailable
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import ROUND_LOCK
from oar.lib.db.locks import Locks


class RoundLock:
    """Holds the lock on its own connection, which is kept between rounds."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._locks: Locks | None = None

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the lock in the ``with`` block.  Raises Unavailable if another round is running.

        The context value is True for the first round on a connection.  PostgreSQL may have crashed since the last
        round, and written data may be lost (``PlanWriter``).
        """
        locks, is_first = self._locks, False
        is_taken = locks.acquire_if_alive(ROUND_LOCK) if locks else None
        if locks is None or is_taken is None:
            locks = self._locks = self._database.locks()
            is_taken, is_first = locks.acquire(ROUND_LOCK), True
        if not is_taken:
            raise Unavailable(f"another round is going on: {self._database.lock_holder(ROUND_LOCK)}")
        try:
            yield is_first
        finally:
            locks.release(ROUND_LOCK)

    def close(self) -> None:
        if self._locks:
            self._locks.close()
            self._locks = None
