"""Advisory locks that a process holds on a connection of its own; PostgreSQL frees them when the process dies."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from oar.lib.db.sql.connections import tells_loss, unavailable
from oar.lib.db.sql.statements import Prepared, PreparingConnection, psycopg2
from oar.lib.facts.errors import DatabaseUnavailable

_TAKE = Prepared("SELECT pg_try_advisory_lock(%s, %s)")
_GIVE_BACK = Prepared("SELECT pg_advisory_unlock(%s, %s)")
_IS_ALIVE = Prepared("SELECT true")


class Locks:
    """Any number of locks on one connection, which belongs to them."""

    def __init__(self, connection: PreparingConnection) -> None:
        """``connection`` is in autocommit mode."""
        self._connection = connection

    def acquire(self, key: tuple[int, int]) -> bool:
        """Take the lock if nobody else has it; return whether it is taken.  Raises DatabaseUnavailable."""
        return bool(self._value(_TAKE, key))

    def acquire_if_alive(self, key: tuple[int, int]) -> bool | None:
        """Do as ``acquire``; None if the connection does not stand any more."""
        try:
            return self.acquire(key)
        except DatabaseUnavailable:
            return None

    def release(self, key: tuple[int, int]) -> None:
        """Give the lock back.  Raises DatabaseUnavailable."""
        self._value(_GIVE_BACK, key)

    def alive(self) -> bool:
        """Whether the connection still stands, and with it the locks."""
        try:
            return self._value(_IS_ALIVE, ()) is True
        except DatabaseUnavailable:
            return False

    def close(self) -> None:
        """Free all of them: whoever asks after this finds them free."""
        # The server frees what a closed connection held only when it comes to notice the end of the connection.
        with contextlib.suppress(psycopg2.Error):
            self._connection.cursor().execute("SELECT pg_advisory_unlock_all()")
        self._connection.close()

    def _value(self, sql: Prepared, parameters: Sequence[int]) -> Any:
        try:
            cursor = self._connection.cursor()
            cursor.execute(self._connection.preparations.call(sql, cursor.execute), parameters or None)
            return cursor.fetchall()[0][0]
        except psycopg2.Error as error:
            if not tells_loss(error):
                raise
            raise unavailable(error) from error


class Lock:
    """One lock, which is taken again on a new connection after the connection was lost."""

    def __init__(self, connect: Callable[[], PreparingConnection], key: tuple[int, int]) -> None:
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
