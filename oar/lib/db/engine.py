"""Connections, transactions, reconnection, locks.

One transaction is one unit of work.  Its clock (``tx.now``) is the database's, read once at its start; what it leaves
to be sent outside (``tx.outbox``) is delivered after the commit, never before, and never when it is rolled back.
Statements are text with bound parameters, run by psycopg2; no other package of OAR holds SQL (architecture.md 5.2).
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from oar.lib.errors import DatabaseUnavailable

# The C module of psycopg2 imports ssl only for call-backs of old OpenSSL versions; a command starts 8 ms sooner
# without it.
_ssl_was_loaded = "ssl" in sys.modules
if not _ssl_was_loaded:
    sys.modules["ssl"] = None  # type: ignore[assignment]
import psycopg2  # noqa: E402
import psycopg2.extensions  # noqa: E402

if not _ssl_was_loaded:
    del sys.modules["ssl"]

if TYPE_CHECKING:
    from oar.lib.db.accounting import Accounting
    from oar.lib.db.ends import Ends
    from oar.lib.db.events import Events
    from oar.lib.db.files import Files
    from oar.lib.db.gantt import Gantt
    from oar.lib.db.jobs import Jobs
    from oar.lib.db.queues import Queues
    from oar.lib.db.resources import Resources
    from oar.lib.db.rounds import Rounds
    from oar.lib.db.runs import Runs
    from oar.lib.db.secrets import Secrets
    from oar.lib.messages import Effect

T = TypeVar("T")
Row = tuple[Any, ...]
Connection = psycopg2.extensions.connection

#: Errors after which the same unit of work may be tried again: serialization failure, deadlock.
RETRIED = frozenset({"40001", "40P01"})
RETRIES = 5

#: Somebody who waits for a connection is told so after this time.
SILENT_SECONDS = 0.8
#: Pauses between tries to connect double up to the longest: of a server that is down, of one that is there and full.
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 6.0
LONGEST_PAUSE_IF_FULL = 0.8
#: A server that is full becomes free again: it is asked for so many times longer.
PATIENCE_IF_FULL = 10
UNDEFINED_TABLE = "42P01"

#: Classes of advisory locks (database.md 5.5): "OAR" for server and jobs, "OAS" for the other singletons, "OAU" for
#: users.
JOB_LOCK_CLASS = 0x4F4152
SOLE_LOCK_CLASS = 0x4F4153
USER_LOCK_CLASS = 0x4F4155
SERVER_LOCK = (JOB_LOCK_CLASS, 0)
ROUND_LOCK = (SOLE_LOCK_CLASS, 2)
ACCOUNTING_LOCK = (SOLE_LOCK_CLASS, 3)
SCHEMA_LOCK = (SOLE_LOCK_CLASS, 4)
ARCHIVE_LOCK = (SOLE_LOCK_CLASS, 5)

_BEGIN = {
    "write": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "snapshot": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
}
_CLOCK = "SELECT EXTRACT(EPOCH FROM clock_timestamp())::bigint"
#: No statement here is worth compiling: that alone took oaraccounting five of its six seconds.
_SESSION = (
    "SET jit TO off; SET TimeZone TO 'UTC'; SET standard_conforming_strings TO on; SET search_path TO public;"
    " SET idle_in_transaction_session_timeout TO '60s'"
)
_SESSION_RO = (
    "SET jit TO off; SET TimeZone TO 'UTC'; SET standard_conforming_strings TO on;"
    " SET search_path TO oar_public, public; SET default_transaction_read_only TO on"
)


def job_lock(job_id: int) -> tuple[int, int]:
    """Return the advisory lock that lets one action at a time work on a job."""
    return JOB_LOCK_CLASS, job_id & 0x7FFFFFFF


class DatabaseSettings(NamedTuple):
    """Where the database is and who we are there (DB_* keys of oar.conf)."""

    host: str = "localhost"  #: a host name, or the directory of a socket
    port: int = 5432
    name: str = "oar"
    user: str = "oar"
    password: str = ""
    ro_user: str = "oar_ro"
    ro_password: str = ""
    user_sql_timeout: int = 5  #: seconds given to one SQL text of a user
    patience: float = 30  #: seconds after which connecting is given up; 0 = one try
    notify: bool = True  #: send NOTIFY oar_event with the commits that ask for it

    def __repr__(self) -> str:
        """Tell where the database is; the passwords are secret."""
        return f"DatabaseSettings({self.user}@{self.host}:{self.port}/{self.name})"


class _Login(NamedTuple):
    """Who connects, and what is said first."""

    user: str
    password: str
    session: str


def _writer(settings: DatabaseSettings) -> _Login:
    return _Login(settings.user, settings.password, _SESSION)


def _reader(settings: DatabaseSettings) -> _Login:
    return _Login(settings.ro_user, settings.ro_password, _SESSION_RO)


class Transaction:
    """A unit of work.  Its tables are its attributes: ``tx.jobs``, ``tx.resources``, ..."""

    def __init__(self, connection: Connection, now: int) -> None:
        self._cursor = connection.cursor()
        self.now = now  #: database clock at the start, epoch seconds
        self.outbox: list[Effect] = []
        self.topics: set[str] = set()  #: what readers are told by NOTIFY oar_event: jobs, resources, gantt, queues

    def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> int:
        """Run a statement; return the number of rows that it touched."""
        self._cursor.execute(sql, parameters or None)
        return self._cursor.rowcount

    def rows(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        """Run a query; return all rows."""
        self._cursor.execute(sql, parameters or None)
        return self._cursor.fetchall()

    def row(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Row | None:
        """Run a query; return its first row, None if there is none."""
        self._cursor.execute(sql, parameters or None)
        return self._cursor.fetchone()

    def value(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Any:
        """Run a query; return the first column of its first row, None if there is none."""
        row = self.row(sql, parameters)
        return row[0] if row else None

    def rows_and_names(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> tuple[list[Row], list[str]]:
        """Run a query; return all rows and the names of its columns."""
        rows = self.rows(sql, parameters)
        return rows, [column.name for column in self._cursor.description or ()]

    def column(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
        """Run a query; return its first column."""
        return [row[0] for row in self.rows(sql, parameters)]

    def schema_version(self) -> str | None:
        """Return the version of the schema; None if it is not there.  The transaction is of no use after that."""
        try:
            version: str | None = self.value("SELECT version FROM schema")
        except psycopg2.Error as error:
            if error.pgcode == UNDEFINED_TABLE:
                return None
            raise
        return version

    def insert_many(self, sql: str, rows: Iterable[Row], page: int = 1000) -> None:
        """Run ``INSERT ... VALUES %s`` for many rows, ``page`` at a time."""
        from psycopg2.extras import execute_values

        execute_values(self._cursor, sql, list(rows), page_size=page)

    def insert_returning(self, sql: str, rows: Iterable[Row], page: int = 1000) -> list[Row]:
        """Run ``INSERT ... VALUES %s RETURNING ...`` for many rows; return what it returns, in order."""
        from psycopg2.extras import execute_values

        returned: list[Row] = execute_values(self._cursor, sql, list(rows), page_size=page, fetch=True)
        return returned

    def need_not_last(self) -> None:
        """Let the commit not wait for the disk: what is written is found out again if it is lost."""
        self._cursor.execute("SET LOCAL synchronous_commit TO off")

    @property
    def connection(self) -> Connection:
        """The connection itself, for a library that brings its own statements."""
        return self._cursor.connection

    @cached_property
    def jobs(self) -> "Jobs":
        """Job rows."""
        from oar.lib.db.jobs import Jobs

        return Jobs(self)

    @cached_property
    def files(self) -> "Files":
        """Files that users gave to their jobs."""
        from oar.lib.db.files import Files

        return Files(self)

    @cached_property
    def resources(self) -> "Resources":
        """Resource rows."""
        from oar.lib.db.resources import Resources

        return Resources(self)

    @cached_property
    def gantt(self) -> "Gantt":
        """Predictions and reasons."""
        from oar.lib.db.gantt import Gantt

        return Gantt(self)

    @cached_property
    def rounds(self) -> "Rounds":
        """What a scheduling round reads, and the starts that it decides on."""
        from oar.lib.db.rounds import Rounds

        return Rounds(self)

    @cached_property
    def ends(self) -> "Ends":
        """Why jobs ended, and what they used."""
        from oar.lib.db.ends import Ends

        return Ends(self)

    @cached_property
    def events(self) -> "Events":
        """The event log."""
        from oar.lib.db.events import Events

        return Events(self)

    @cached_property
    def runs(self) -> "Runs":
        """The Runner's list, kill requests, automatic resubmissions."""
        from oar.lib.db.runs import Runs

        return Runs(self)

    @cached_property
    def secrets(self) -> "Secrets":
        """Challenges and job keys."""
        from oar.lib.db.secrets import Secrets

        return Secrets(self)

    @cached_property
    def accounting(self) -> "Accounting":
        """Consumption windows."""
        from oar.lib.db.accounting import Accounting

        return Accounting(self)

    @cached_property
    def queues(self) -> "Queues":
        """Queues and admission rules."""
        from oar.lib.db.queues import Queues

        return Queues(self)


class Database:
    """The way to PostgreSQL.  May be shared by threads: each transaction has a connection of its own."""

    def __init__(
        self,
        settings: DatabaseSettings,
        *,
        application: str = "oar",
        clock: Callable[[], int] | None = None,
        deliver: "Callable[[Sequence[Effect]], None] | None" = None,
    ) -> None:
        """``clock`` replaces the database's clock (tests); ``deliver`` gets the outbox of what was committed."""
        self.settings = settings
        self.application = application
        self._clock = clock
        self.deliver = deliver
        self.waiting: Callable[[], None] | None = None  #: called once, when connecting takes longer than a moment
        self._idle: list[Connection] = []
        self._idle_ro: list[Connection] = []

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        """Open a transaction; commit it at the end of the block, then deliver its outbox.

        Raises DatabaseUnavailable when the database cannot be reached.
        """
        with self._transaction("write") as tx:
            yield tx
        if tx.outbox and self.deliver:
            self.deliver(tx.outbox)

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """Open a read-only transaction that sees one instant of the database."""
        with self._transaction("snapshot") as tx:
            yield tx

    def run(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in a transaction; again after a deadlock, a serialization failure or a lost connection.

        ``work`` must have no effect of its own but on its transaction.
        """
        for attempt in range(RETRIES):
            try:
                with self.begin() as tx:
                    return work(tx)
            except psycopg2.Error as error:
                if error.pgcode not in RETRIED:
                    raise
            except DatabaseUnavailable:
                if attempt == RETRIES - 1:
                    raise
            time.sleep(_between(0, 0.02 * 2**attempt))
        with self.begin() as tx:
            return work(tx)

    @contextmanager
    def readonly(self) -> Iterator[Transaction]:
        """Open a transaction of the read-only login, for SQL text of users; its connection is thrown away.

        Raises DatabaseUnavailable.
        """
        try:
            connection = self._idle_ro.pop()
        except IndexError:
            (connection,) = self._connect(_reader(self.settings))
        try:
            with self._guard(connection):
                cursor = connection.cursor()
                cursor.execute("BEGIN READ ONLY")
                cursor.execute("SET LOCAL statement_timeout TO %s", (self.settings.user_sql_timeout * 1000,))
                yield Transaction(connection, 0)
        finally:
            connection.close()

    @contextmanager
    def sole(self, lock: tuple[int, int]) -> Iterator["Lock | None"]:
        """Hold an advisory lock on a connection of its own; None if somebody else has it."""
        held = Lock(self, lock)
        try:
            yield held if held.take() else None
        finally:
            held.close()

    def holder(self, lock: tuple[int, int]) -> str:
        """Tell who holds an advisory lock: ``application (pid n)``; '' if nobody."""
        with self.begin() as tx:
            row = tx.row(_LOCK_HOLDER, lock)
        return f"{row[0]} (pid {row[1]})" if row else ""

    def connection(self) -> Connection:
        """Return a new connection of the read-write login, in autocommit mode; the caller closes it."""
        (connection,) = self._connect(_writer(self.settings))
        return connection

    def ready(self) -> None:
        """Have a connection of each login at hand.  Work that needs both at once begins with this.

        Raises DatabaseUnavailable.
        """
        if self._idle and not self._idle_ro:
            self._have_reader_too()
        if not (self._idle and self._idle_ro):
            writer, reader = self._connect(_writer(self.settings), _reader(self.settings))
            self._idle.append(writer)
            self._idle_ro.append(reader)

    def _have_reader_too(self) -> None:
        """Open the second connection; if that fails give the first one back, as others wait for theirs."""
        try:
            self._idle_ro.append(self._open(_reader(self.settings)))
        except psycopg2.OperationalError:
            self.close()

    def close(self) -> None:
        """Close the idle connections."""
        for idle in (self._idle, self._idle_ro):
            with suppress(IndexError):  # another thread took the last one
                while True:
                    idle.pop().close()

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[Transaction]:
        connection, now = self._started(kind)
        tx = Transaction(connection, now)
        with self._guard(connection):
            try:
                yield tx
                connection.cursor().execute(self._commit(tx.topics))
            except BaseException:
                self._roll_back(connection)
                raise
        self._idle.append(connection)

    def _started(self, kind: str) -> tuple[Connection, int]:
        """Return a connection on which a transaction has begun, and the time; an idle one may be dead."""
        sql = f"{_BEGIN[kind]}; {_CLOCK}"
        while True:
            fresh = not self._idle
            try:
                connection = self.connection() if fresh else self._idle.pop()
            except IndexError:  # another thread took the last one
                continue
            try:
                cursor = connection.cursor()
                cursor.execute(sql)
                return connection, self._clock() if self._clock else int(cursor.fetchall()[0][0])
            except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
                connection.close()
                if fresh:
                    raise DatabaseUnavailable(_first_line(error)) from error

    def _commit(self, topics: set[str]) -> str:
        if not (topics and self.settings.notify):
            return "COMMIT"
        return "".join(f"NOTIFY oar_event, '{topic}'; " for topic in sorted(topics)) + "COMMIT"

    @contextmanager
    def _guard(self, connection: Connection) -> Iterator[None]:
        """Turn the loss of the connection into DatabaseUnavailable."""
        try:
            yield
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
            if isinstance(error, psycopg2.OperationalError) and error.pgcode and not connection.closed:
                raise
            connection.close()
            raise DatabaseUnavailable(_first_line(error)) from error

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.cursor().execute("ROLLBACK")
        except psycopg2.Error:
            connection.close()
        else:
            self._idle.append(connection)

    def _connect(self, *logins: "_Login") -> list[Connection]:
        """Connect with each login, trying again for ``settings.patience`` seconds, and for longer if it is only full.

        Who waits keeps no connection: PostgreSQL may be full because many wait for their second one.
        """
        begin = time.monotonic()
        pause = FIRST_PAUSE
        while True:
            opened: list[Connection] = []
            try:
                for login in logins:
                    opened.append(self._open(login))
            except psycopg2.OperationalError as error:
                for connection in opened:
                    connection.close()
                self.close()
                waited, full = time.monotonic() - begin, _is_full(error)
                if waited + pause > self.settings.patience * (PATIENCE_IF_FULL if full else 1):
                    raise DatabaseUnavailable(_first_line(error)) from error
                if self.waiting and waited >= SILENT_SECONDS:
                    self.waiting()
                    self.waiting = None
                time.sleep(_between(pause / 2, pause))
                pause = min(2 * pause, LONGEST_PAUSE_IF_FULL if full else LONGEST_PAUSE)
            else:
                return opened

    def _open(self, login: "_Login") -> Connection:
        connection = psycopg2.connect(
            host=self.settings.host,
            port=self.settings.port,
            dbname=self.settings.name,
            user=login.user,
            password=login.password or None,
            connect_timeout=5,
            application_name=self.application,
            passfile="/dev/null/none",  # there is none: libpq warns of one that is not a plain file
            client_encoding="UTF8",
        )
        connection.autocommit = True
        connection.cursor().execute(login.session)
        return connection


class Locks:
    """Advisory locks held by this process on one dedicated connection; the kernel frees them when it dies."""

    def __init__(self, database: Database) -> None:
        self._connection = database.connection()

    def acquire(self, lock: tuple[int, int]) -> bool:
        """Take the lock if nobody else has it."""
        return bool(self._ask("SELECT pg_try_advisory_lock(%s, %s)", lock))

    def release(self, lock: tuple[int, int]) -> None:
        """Give the lock back."""
        self._ask("SELECT pg_advisory_unlock(%s, %s)", lock)

    def alive(self) -> bool:
        """Whether the connection still stands, and with it the locks."""
        try:
            return self._ask("SELECT true", ()) is True
        except DatabaseUnavailable:
            return False

    def close(self) -> None:
        """Free all of them."""
        self._connection.close()

    def _ask(self, sql: str, parameters: Sequence[int]) -> Any:
        try:
            cursor = self._connection.cursor()
            cursor.execute(sql, parameters or None)
            return cursor.fetchall()[0][0]
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
            raise DatabaseUnavailable(_first_line(error)) from error


class Lock:
    """An advisory lock held on a dedicated connection."""

    def __init__(self, database: Database, key: tuple[int, int]) -> None:
        self._database = database
        self._key = key
        self._locks: Locks | None = None

    def take(self) -> bool:
        """Take the lock, or see whether it is still held, again after the connection was lost.

        False: somebody else has it.  Raises DatabaseUnavailable.
        """
        if self._locks is not None and self._locks.alive():
            return True
        self.close()
        self._locks = Locks(self._database)
        return self._locks.acquire(self._key)

    def close(self) -> None:
        """Give it back."""
        if self._locks is not None:
            self._locks.close()


_LOCK_HOLDER = """
    SELECT a.application_name, a.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objid = %s AND l.granted LIMIT 1
"""


def _between(shortest: float, longest: float) -> float:
    """Return a chance length of a pause: those who wait for the same thing come back one after the other."""
    import random

    return random.uniform(shortest, longest)


def _is_full(error: psycopg2.Error) -> bool:
    """Whether PostgreSQL is there and has no connection left (it gives no code to those whom it does not let in)."""
    return any(words in str(error) for words in ("too many clients", "too many connections", "connection slots"))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
