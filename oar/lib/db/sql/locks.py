"""Advisory locks that a process holds on a connection of its own; PostgreSQL frees them when the process dies."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from oar.lib.db.sql.connections import tells_loss, unavailable
from oar.lib.db.sql.statements import Connection, psycopg2
from oar.lib.facts.errors import DatabaseUnavailable


class Locks:
    """Any number of locks on one connection, which belongs to them."""

    def __init__(self, connection: Connection) -> None:
        """``connection`` is in autocommit mode."""
        self._connection = connection

    def acquire(self, key: tuple[int, int]) -> bool:
        """Take the lock if nobody else has it; return whether it is taken.  Raises DatabaseUnavailable."""
        return bool(self._value("SELECT pg_try_advisory_lock(%s, %s)", key))

    def release(self, key: tuple[int, int]) -> None:
        """Give the lock back.  Raises DatabaseUnavailable."""
        self._value("SELECT pg_advisory_unlock(%s, %s)", key)

    def alive(self) -> bool:
        """Whether the connection still stands, and with it the locks."""
        try:
            return self._value("SELECT true", ()) is True
        except DatabaseUnavailable:
            return False

    def close(self) -> None:
        """Free all of them: whoever asks after this finds them free."""
        # The server frees what a closed connection held only when it comes to notice the end of the connection.
        with contextlib.suppress(psycopg2.Error):
            self._connection.cursor().execute("SELECT pg_advisory_unlock_all()")
        self._connection.close()

    def _value(self, sql: str, parameters: Sequence[int]) -> Any:
        try:
            cursor = self._connection.cursor()
            cursor.execute(sql, parameters or None)
            return cursor.fetchall()[0][0]
        except psycopg2.Error as error:
            if not tells_loss(error):
                raise
            raise unavailable(error) from error


class Lock:
    """One lock, which is taken again on a new connection after the connection was lost."""

    def __init__(self, connect: Callable[[], Connection], key: tuple[int, int]) -> None:
        self._connect = connect
        self._key = key
        self._locks: Locks | None = None

    def take(self) -> bool:
        """Take the lock, or see whether it is still held, again after the connection was lost.

        False: somebody else has it.  Raises DatabaseUnavailable.
        """
        if self._locks is not None and self._locks.alive():
            return True
        self.close()
        self._locks = Locks(self._connect())
        return self._locks.acquire(self._key)

    def close(self) -> None:
        """Give it back."""
        if self._locks is not None:
            self._locks.close()
