"""The database: begin and end transactions.

One transaction is one unit of work. Its clock (``tx.now``) is that of the database, read once at its start. Effects in
``tx.outbox`` are delivered after the commit, never before, and never after a rollback. The same applies to the
notifications to listeners of the database.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NoReturn, TypeVar

from oar.lib.base.errors import DatabaseReadOnly, DatabaseUnavailable, DatabaseWithoutRoom, Fenced, StatementTooLong
from oar.lib.bus.messages import Stored, without_repetitions
from oar.lib.db.connections import ConnectionPool, DatabaseSettings, tells_loss, unavailable
from oar.lib.db.statements import CLOCK, Prepared, PreparingConnection, psycopg2
from oar.lib.db.transaction import Transaction, retry

if TYPE_CHECKING:
    from oar.lib.bus.messages import Effect, Topic
    from oar.lib.db.locks import Locks
    from oar.lib.db.notifications import GatheredTopics, Later

T = TypeVar("T")

#: SQLSTATE of a statement that took longer than its time limit.
_CANCELED = "57014"
_READ_ONLY, _DISK_FULL = "25006", "53100"
_TOO_LONG = "the database has worked on this for {} s and was stopped\nask for less at a time"

_BEGIN = {
    "write": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "brief": "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout TO '100ms'",
    "snapshot": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
}
#: Sent with the begin of each transaction; the second one with those of a server process that write.
_CLOCK = Prepared(f"SELECT {CLOCK}")
_CLOCK_AND_GENERATION = Prepared(f"SELECT {CLOCK}, generation FROM server_generation")
_COMMIT_AT_ONCE = "SET LOCAL synchronous_commit TO off; COMMIT"


def _raise(error: Fenced) -> NoReturn:
    raise error


class Database:
    """The access to PostgreSQL. Threads may share it: each transaction has its own connection."""

    def __init__(
        self,
        settings: DatabaseSettings,
        *,
        application: str = "oar",
        clock: Callable[[], int] | None = None,
        deliver: "Callable[[Sequence[Effect]], None] | None" = None,
        generation: int | None = None,
    ) -> None:
        """``clock`` replaces the database's clock (tests).

        ``deliver`` gets the outbox of each committed transaction. ``generation``: of the server that this process
        belongs to. Its sessions carry it, and its transactions that write are refused after a take-over
        (docs/design/availability.rst, "The check").
        """
        if generation is not None:
            application = f"{application} g{generation}"
        self.settings = settings
        self.application = application
        self.generation = generation
        self.on_fenced: Callable[[Fenced], NoReturn] = _raise
        self._clock = clock
        self.deliver = deliver
        self.around_writing: Callable[[], AbstractContextManager[None]] = nullcontext  #: what changes rows is within
        self.pool = ConnectionPool(settings, application)
        self._gathered: GatheredTopics | None = None

    @contextmanager
    def begin(self, since: float | None = None, *, is_brief: bool = False) -> Iterator[Transaction]:
        """Open a transaction, commit it at the end of the block, then deliver its outbox.

        Mails and notices in the outbox are stored with the transaction.

        ``since``: when the caller began to wait for the database, by the monotonic clock. ``is_brief``: each statement
        waits at most 0.1 s for a lock; then it raises an error. Raises DatabaseUnavailable if the database is not
        reachable, Fenced if another server has taken over.
        """
        with self._transaction("brief" if is_brief else "write", since) as tx:
            yield tx
            if tx.outbox and (stored := [effect for effect in tx.outbox if isinstance(effect, Stored)]):
                tx.unsent.add(stored)
        if tx.outbox and self.deliver:
            self.deliver(without_repetitions(tx.outbox))

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """Open a read-only transaction that reads a snapshot of the database."""
        with self._transaction("snapshot") as tx:
            yield tx

    def look(self, work: Callable[[Transaction], T]) -> T:
        """Return what ``work`` reads, without BEGIN and COMMIT. Each statement reads its own snapshot.

        Use this for a single statement, or for several about data that no longer change. Raises DatabaseUnavailable.
        """
        since = time.monotonic()
        while idle := self.pool.idle_writer():
            try:
                return self._looked(idle, work)
            except DatabaseUnavailable:  # the connection was dead; others may be dead too since the same outage
                continue
        return self._looked(self.pool.new_writer(since), work)

    def run(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in a transaction. Repeat it after a deadlock, a serialization failure or a lost connection.

        ``work`` must have no effects outside its transaction.
        """
        since = time.monotonic()
        return retry(lambda: self.begin(since), work)

    @contextmanager
    def readonly(self) -> Iterator[Transaction]:
        """Open a transaction of the read-only login, for SQL of users. The next transaction gets a clean session.

        Raises DatabaseUnavailable.
        """
        connection = self.pool.reader()
        tx = Transaction(connection, 0)
        limit = round(self.settings.user_sql_timeout * 1000)
        try:
            with self._guard(connection):
                tx.execute(f"BEGIN READ ONLY; SET LOCAL statement_timeout TO {limit}")
                yield tx
        finally:
            tx.end()
            self.pool.keep_reader(connection)

    def connection(self) -> PreparingConnection:
        """Return a new connection of the read-write login, in autocommit mode. The caller must close it."""
        return self.pool.new_writer()

    def ready(self) -> None:
        """Open an idle connection of each login. Call this first if both are needed at the same time.

        Raises DatabaseUnavailable.
        """
        self.pool.ready()

    def close(self) -> None:
        """Close the idle connections."""
        self.tell_gathered()
        self.pool.close()

    def gather_topics(self, later: "Later | None" = None) -> None:
        """Combine the notifications about a burst of transactions, in a process with many transactions.

        ``later`` replaces the timer (tests).
        """
        from oar.lib.db.notifications import GatheredTopics, by_timer

        self._gathered = GatheredTopics(self._tell, later or by_timer)

    def tell_gathered(self) -> None:
        """Send the combined notifications now."""
        if self._gathered:
            self._gathered.settle()

    def locks(self) -> "Locks":
        """Return a holder of advisory locks with its own connection. Raises DatabaseUnavailable."""
        from oar.lib.db.locks import Locks

        return Locks(self.pool.new_lock_holder())

    @contextmanager
    def hold_lock(self, key: tuple[int, int]) -> Iterator["Locks | None"]:
        """Hold an advisory lock on a separate connection during the block. Yield None if another process holds it."""
        locks = self.locks()
        try:
            yield locks if locks.acquire(key) or locks.take_from_dead(key) else None
        finally:
            locks.close()

    def lock_holder(self, key: tuple[int, int]) -> str:
        """Return the holder of an advisory lock as ``application (pid n)``, '' if it is free."""
        with self.begin() as tx:
            return tx.system.lock_holder(key)

    @contextmanager
    def _transaction(self, kind: str, since: float | None = None) -> Iterator[Transaction]:
        connection, now = self._started(kind, time.monotonic() if since is None else since)
        tx = Transaction(connection, now)
        around = nullcontext() if kind == "snapshot" else self.around_writing()
        with self._guard(connection), around:
            try:
                yield tx
                connection.cursor().execute(_COMMIT_AT_ONCE if tx.is_asynchronous else "COMMIT")
            except BaseException as error:
                try:
                    connection.cursor().execute("ROLLBACK")
                except psycopg2.Error:
                    self.pool.drop(connection)
                else:
                    self.pool.keep_writer(connection)
                code, text = getattr(error, "pgcode", None), str(error).strip().partition("\n")[0]
                if kind != "snapshot" and code == _READ_ONLY:
                    raise DatabaseReadOnly(f"PostgreSQL takes no changes: {text}") from error
                if code == _DISK_FULL:
                    raise DatabaseWithoutRoom(f"the disk of PostgreSQL is full: {text}") from error
                raise
            finally:
                tx.end()
        if self._notify(connection, tx):
            self.pool.keep_writer(connection)

    def _looked(self, connection: PreparingConnection, work: Callable[[Transaction], T]) -> T:
        tx = Transaction(connection, self._clock() if self._clock else None)
        try:
            with self._guard(connection):
                return work(tx)
        finally:
            tx.end()
            if not connection.closed:
                self.pool.keep_writer(connection)

    def _started(self, kind: str, since: float) -> tuple[PreparingConnection, int]:
        """Return a connection with an open transaction, and the time. Skip dead idle connections."""
        while True:
            idle = self.pool.idle_writer()
            connection = idle or self.pool.new_writer(since)
            try:
                cursor = connection.cursor()
                connection.is_prompt = True
                is_checked = self.generation is not None and kind != "snapshot"
                question = connection.preparations.call(_CLOCK_AND_GENERATION if is_checked else _CLOCK, cursor.execute)
                cursor.execute(f"{_BEGIN[kind]}; {question}")
                connection.is_prompt = False
                row = (cursor.fetchall() or [(0, None)])[0]  # without a generation nobody is active
                if is_checked and row[1] != self.generation:
                    connection.close()
                    self.on_fenced(Fenced(f"generation {self.generation} is over: another server is active ({row[1]})"))
                return connection, self._clock() if self._clock else int(row[0])
            except psycopg2.Error as error:
                self.pool.drop(connection)
                if not tells_loss(error):
                    raise
                if idle is None:
                    raise unavailable(error) from error

    def _notify(self, connection: PreparingConnection, tx: Transaction) -> bool:
        """Notify listeners of the changes of a transaction. Return whether the connection can be reused.

        The notification is a separate transaction: a commit with NOTIFY holds a lock of the whole database until it is
        on disk. A lost notification is no error: the change is committed, and listeners also poll.
        """
        if not (self.settings.notify and (tx.topics or tx.ended)):
            return True
        if self._gathered and not tx.ended and self._gathered.take(tx.topics):
            return True
        return self._told(connection, tx.topics, tx.ended)

    def _tell(self, topics: "Collection[Topic]") -> None:
        """Notify listeners of topics on any connection. The notification is lost if there is none."""
        try:
            connection = self.pool.idle_writer() or self.pool.new_writer_at_once()
        except DatabaseUnavailable:
            return
        if self._told(connection, topics, ()):
            self.pool.keep_writer(connection)

    def _told(self, connection: PreparingConnection, topics: "Collection[Topic]", ended: Collection[int]) -> bool:
        from oar.lib.db.notifications import notification

        try:
            connection.cursor().execute(notification(topics, ended))
        except psycopg2.Error as error:
            import logging

            logging.getLogger(__name__).info("a notification is lost: %s", str(error).partition("\n")[0])
            self.pool.drop(connection)
            return False
        return True

    @contextmanager
    def _guard(self, connection: PreparingConnection) -> Iterator[None]:
        """Convert the loss of the connection to DatabaseUnavailable, a statement timeout to StatementTooLong."""
        try:
            yield
        except psycopg2.Error as error:
            if not tells_loss(error):
                raise
            if isinstance(error, psycopg2.OperationalError) and error.pgcode and not connection.closed:
                if error.pgcode == _CANCELED and self.settings.statement_timeout:
                    raise StatementTooLong(_TOO_LONG.format(self.settings.statement_timeout)) from error
                raise
            self.pool.drop(connection)
            raise unavailable(error) from error
