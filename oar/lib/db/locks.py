"""Advisory locks that a process holds on its own connection. PostgreSQL releases them when the process ends."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from oar.lib.base.errors import DatabaseReadOnly, DatabaseUnavailable
from oar.lib.db.connections import tells_loss, unavailable
from oar.lib.db.statements import Prepared, PreparingConnection, Row, psycopg2

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

T = TypeVar("T")

_TAKE = Prepared("SELECT pg_try_advisory_lock(%s, %s)")
_GIVE_BACK = Prepared("SELECT pg_advisory_unlock(%s, %s)")
#: Locks to release, then locks to try to take, in this order.
_EXCHANGE = Prepared("""
    SELECT CASE WHEN is_release THEN pg_advisory_unlock(class, number) ELSE pg_try_advisory_lock(class, number) END
    FROM unnest(%s::integer[], %s::integer[], %s::boolean[]) AS n (class, number, is_release)""")
_IS_ALIVE = Prepared("SELECT true")
#: The holder of a lock if it has our login, name and address; our own port comes with it.
_HOLDER_FROM_HERE = """
    SELECT a.pid, a.backend_start, host(a.client_addr), a.client_port, inet_client_port()
    FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objid = %s AND l.objsubid = 2 AND l.granted
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND a.usename = current_user AND a.application_name = current_setting('application_name')
      AND a.client_addr = inet_client_addr()"""
_TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND backend_start = %s"
#: PostgreSQL needs a moment to end a session.
_ACQUIRE_SOON = "SET lock_timeout TO '5s'; SELECT pg_advisory_lock(%s, %s)"
#: Waits neither for the rows of others nor for a replica.
_BEGIN_BRIEFLY = """
    BEGIN; SET LOCAL lock_timeout TO '1s'; SET LOCAL statement_timeout TO '2s'; SET LOCAL synchronous_commit TO off"""
_LOCK_NOT_AVAILABLE, _READ_ONLY = "55P03", "25006"


class Locks:
    """Any number of locks on one connection, which they own."""

    def __init__(self, connection: PreparingConnection) -> None:
        """``connection`` is in autocommit mode."""
        self._connection = connection

    def acquire(self, key: tuple[int, int]) -> bool:
        """Try to take the lock. Return whether it is taken. Raises DatabaseUnavailable."""
        return bool(self._value(_TAKE, key))

    def take_from_dead(self, key: tuple[int, int]) -> bool:
        """Take the lock if its holder was a process of this host that has ended. Return whether it is taken.

        PostgreSQL may detect such an end late, after a power failure of the host or a network failure. The holder has
        ended if its connection came from our own address and no socket of this host has its port: no process can use
        that session. The comparison with our own connection excludes an address that is shared by a NAT router. See
        docs/design/locks.rst, "Advisory locks". Raises DatabaseUnavailable.
        """
        with _converting_errors():
            try:
                cursor = self._connection.cursor()
                cursor.execute(_HOLDER_FROM_HERE, key)
                for pid, begun, address, port, own_port in cursor.fetchall():
                    if self._local_name() == (address, own_port) and _is_free(address, port):
                        cursor.execute(_TERMINATE, (pid, begun))
                        cursor.execute(_ACQUIRE_SOON, key)
                        return True
            except psycopg2.Error as error:
                if error.pgcode != _LOCK_NOT_AVAILABLE:
                    raise
        return False

    def _local_name(self) -> tuple[str, int]:
        """Return address and port of our end of the connection."""
        with socket.socket(fileno=os.dup(self._connection.fileno())) as end:
            name: tuple[str, int] = end.getsockname()[:2]
        return name

    def look(self, work: "Callable[[Transaction], T]") -> T:
        """Return what ``work`` does in this session, each statement in a transaction of its own.

        Raises DatabaseUnavailable. A statement that succeeds shows that the session still held its locks.
        """
        from oar.lib.db.transaction import Transaction

        tx = Transaction(self._connection, None)
        try:
            with _converting_errors():
                return work(tx)
        finally:
            tx.end()

    def try_to_store(self, work: "Callable[[Transaction], object]") -> str:
        """Store what ``work`` writes here or in a file, unless it has to wait. Return why this failed, else ''."""
        try:
            self.look(lambda tx: _store_briefly(tx, work))
        except (DatabaseUnavailable, psycopg2.Error, OSError) as error:
            return str(error).strip().partition("\n")[0]
        return ""

    def acquire_if_alive(self, key: tuple[int, int]) -> bool | None:
        """Try to take the lock as ``acquire`` does. Return None if the connection is lost."""
        try:
            return self.acquire(key)
        except DatabaseUnavailable:
            return None

    def release(self, key: tuple[int, int]) -> None:
        """Release the lock. Raises DatabaseUnavailable."""
        self._value(_GIVE_BACK, key)

    def exchange(self, releases: Sequence[tuple[int, int]], wanted: Sequence[tuple[int, int]]) -> list[bool]:
        """Release locks and try to take others, in one statement. Return for each wanted one whether it is taken.

        Raises DatabaseUnavailable.
        """
        keys = [*releases, *wanted]
        are_releases = [True] * len(releases) + [False] * len(wanted)
        parameters = ([key[0] for key in keys], [key[1] for key in keys], are_releases)
        return [bool(row[0]) for row in self._rows(_EXCHANGE, parameters)[len(releases) :]]

    def alive(self) -> bool:
        """Return whether the connection, and with it the locks, still exist."""
        try:
            return self._value(_IS_ALIVE, ()) is True
        except DatabaseUnavailable:
            return False

    def close(self) -> None:
        """Release all locks before this function returns."""
        # Without this statement, PostgreSQL would release the locks only when it detects the end of the connection.
        with contextlib.suppress(psycopg2.Error):
            self._connection.cursor().execute("SELECT pg_advisory_unlock_all()")
        self._connection.close()

    def _value(self, sql: Prepared, parameters: Sequence[int]) -> Any:
        return self._rows(sql, parameters)[0][0]

    def _rows(self, sql: Prepared, parameters: Sequence[Any]) -> list[Row]:
        with _converting_errors():
            cursor = self._connection.cursor()
            cursor.execute(self._connection.preparations.call(sql, cursor.execute), parameters or None)
            return cursor.fetchall()


@contextlib.contextmanager
def _converting_errors() -> Iterator[None]:
    """Convert the loss of the session to DatabaseUnavailable, and a refused change to DatabaseReadOnly."""
    try:
        yield
    except psycopg2.Error as error:
        if error.pgcode == _READ_ONLY:
            raise DatabaseReadOnly(f"PostgreSQL takes no changes: {str(error).strip()}") from error
        if not tells_loss(error):
            raise
        raise unavailable(error) from error


def _store_briefly(tx: "Transaction", work: "Callable[[Transaction], object]") -> None:
    tx.execute(_BEGIN_BRIEFLY)
    try:
        work(tx)
        tx.execute("COMMIT")
    except (psycopg2.Error, OSError):
        with contextlib.suppress(psycopg2.Error):
            tx.execute("ROLLBACK")
        raise


def _is_free(address: str, port: int) -> bool:
    """Return whether no socket of this host is bound to a port."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True
