"""Connections to PostgreSQL: its address, its two logins, and the retries while it is down or full.

Every connection is in autocommit mode: its user sends BEGIN and COMMIT.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from select import POLLIN, POLLOUT, poll
from typing import Any, NamedTuple, Protocol, TypeVar

from oar.lib.base.errors import DatabaseFull, DatabaseRefused, DatabaseUnavailable, UserConnectionsUsed
from oar.lib.db.statements import Connection, PreparingConnection, psycopg2

C = TypeVar("C")

#: Seconds without an answer after which a silent peer is reported, and PostgreSQL if only its machine answers.
SILENT_SECONDS, BUSY_SECONDS = 0.8, 3.0
#: Seconds between two looks at a connection without an answer.
_LOOK_SECONDS = 0.4
#: Where the kernel (``struct tcp_info``) tells the state of a connection, and counts retransmissions and keepalive
#: probes that were not acknowledged.
_STATE, _RETRANSMISSIONS, _PROBES = 0, 2, 3
_SYN_SENT = 2
#: Characters of an address, at most.
_LONGEST_ADDRESS = 300
#: Seconds for which one try to connect may take; those of the first round if there are several hosts to try.
CONNECT_SECONDS, FIRST_ROUND_SECONDS = 5.0, 2.0
#: Seconds between tries to connect: they double up to the longest, that of a server that is down or of a full one, of
#: which a connection becomes free at any moment.
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 6.0
LONGEST_PAUSE_IF_FULL = 0.8

#: No statement here is worth compiling: that alone took oaraccounting five of its six seconds.  What is prepared is
#: planned once: PostgreSQL believes that arrays of one job deserve a plan of their own, each time anew.  The
#: rows of the jobs at hand are in memory: for the cost of a disk PostgreSQL would read whole tables of 4000 rows.
_SESSION = (
    "SET jit TO off; SET TimeZone TO 'UTC'; SET standard_conforming_strings TO on; SET search_path TO public;"
    " SET plan_cache_mode TO force_generic_plan; SET random_page_cost TO 1.1"
)
_SESSION_RO = (
    "SET jit TO off; SET TimeZone TO 'UTC'; SET standard_conforming_strings TO on;"
    " SET search_path TO oar_public, public; SET default_transaction_read_only TO on"
)
#: PostgreSQL itself looks at these: what a stopped program holds is given back, and its place among those who wait.
_LIMITS = "; SET lock_timeout TO '{lock_patience}s'; SET statement_timeout TO '{statement_timeout}s'"
#: Only of those who write: a reader, which holds no rows, may wait for a writer of its own process.
_IDLE_LIMIT = "; SET idle_in_transaction_session_timeout TO '{idle_limit}s'"


class TcpLimits(NamedTuple):
    """The time after which a peer that does not respond (power or network failure) counts as dead."""

    idle: int  #: seconds without data before the first keepalive probe
    interval: int  #: seconds between two probes
    probes: int  #: unanswered probes after which it counts as dead
    client_timeout: int  #: milliseconds for which data that we have sent may stay unacknowledged
    server_timeout: int  #: the same for data that PostgreSQL has sent

    def client_options(self) -> dict[str, Any]:
        """Return the libpq parameters for our end of a connection."""
        return {
            "keepalives": 1,
            "keepalives_idle": self.idle,
            "keepalives_interval": self.interval,
            "keepalives_count": self.probes,
            "tcp_user_timeout": self.client_timeout,
        }

    def session(self) -> str:
        """Return the statements that set the limits of PostgreSQL's end. A local socket ignores them."""
        return (
            f"SET tcp_keepalives_idle TO {self.idle}; SET tcp_keepalives_interval TO {self.interval};"
            f" SET tcp_keepalives_count TO {self.probes}; SET tcp_user_timeout TO {self.server_timeout}"
        )


TCP_LIMITS = TcpLimits(10, 3, 3, 10_000, 10_000)
#: If another host may be promoted: used and idle connections to a silent host end within about 5 s.
REPLICATED_TCP_LIMITS = TcpLimits(3, 2, 3, 5_000, 10_000)
#: Of a connection that holds locks: PostgreSQL releases them at most 10 s after the host of their holder has become
#: silent, and the holder notices a silent PostgreSQL before.
LOCK_TCP_LIMITS = TcpLimits(3, 2, 3, 4_000, 9_000)

#: How PostgreSQL says that it is there and has no connection left, and that it does not let us in: it gives no code to
#: those whom it does not let in.
_FULL = ("too many clients", "too many connections", "connection slots")
#: Whose commands can have all places.
_OF_USER, _OF_ALL = "your commands", "commands of all users"
_REFUSED = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    'FATAL:  role "',
    'FATAL:  database "',
)
STARTING = "it is starting"
#: How libpq says that a server is a replica.
_STANDBY = "server is in hot standby mode"
_NO_CONNECTION = "it accepts no connection"
#: Why PostgreSQL cannot be used, by words of libpq and of PostgreSQL; the first that occur count.
_REASONS = (
    (_STANDBY, "no server is the primary"),
    ("could not translate host name", "the host name has no address"),
    ("no pg_hba.conf entry", "pg_hba.conf has no line for this machine and login"),
    ("authentication failed", "it refuses the login or the password"),
    ("no password supplied", "it needs a password"),
    ('FATAL:  role "', "it has no such login"),
    ('FATAL:  database "', "it has no such database"),
    *((text, text) for text in (str(UserConnectionsUsed(whose)) for whose in (_OF_USER, _OF_ALL))),
    *((words, "it has no free connection") for words in _FULL),
    ("starting up", STARTING),
    ("shutting down", "it is stopping"),
    ("Connection refused", "no server listens at this address"),
    ("invalid response to SSL negotiation", "the server at this address is not PostgreSQL"),
    ("No such file or directory", "no server listens at this socket"),
    ("Permission denied", "this account has no permission to use the socket"),
    ("No route to host", "the network has no route to it"),
    ("Network is unreachable", "the network has no route to it"),
    ("timeout", "it does not answer"),
    ("timed out", "it does not answer"),
    ("does not answer", "it does not answer"),
    ("no answer within", "it does not answer"),
    ("closed the connection", "it closed the connection"),
    ("connection has been closed", "it closed the connection"),
    ("terminating connection", "it closed the connection"),
)


class Address(NamedTuple):
    """Where PostgreSQL listens."""

    host: str  #: a host name, an IP address, or the directory of a socket
    port: int

    def __str__(self) -> str:
        """Return ``host:port``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host and "/" not in self.host else f"{self.host}:{self.port}"


class DatabaseSettings(NamedTuple):
    """The address of the database and our logins there (DB_* keys of oar.conf)."""

    host: str = "localhost"  #: a host name, or the directory of a socket; or a list of them, with or without ports
    port: int = 5432  #: of hosts without a port
    name: str = "oar"
    user: str = "oar"
    password: str = ""
    ro_user: str = "oar_ro"
    ro_password: str = ""
    user_sql_timeout: int = 5  #: seconds given to one SQL text of a user
    patience: float = 30  #: seconds after which connecting is given up, also if all are taken; 0 = one try
    statement_timeout: int = 0  #: seconds given to one of our own statements; 0 = as long as it takes
    idle_limit: int = 60  #: seconds for which a transaction may do nothing
    lock_patience: int = 0  #: seconds for which a statement waits for the rows of others; 0 = as long as it takes
    notify: bool = True  #: send NOTIFY oar_event with the commits that ask for it
    primary_file: str = ""  #: file that names the last known primary of several hosts; "" = none

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Return the addresses of the servers: at most one of them is the primary."""
        if not any(sign in self.host for sign in " \t,:"):  # one host, as usual
            return (Address(self.host, self.port),)
        from oar.lib.base.host_names import read_addresses

        return tuple(Address(*pair) for pair in read_addresses(self.host, self.port))

    @property
    def servers(self) -> str:
        """Return the addresses, for messages."""
        return ", ".join(map(str, self.addresses))

    @property
    def place(self) -> str:
        """Return the database and the addresses of its servers, for messages."""
        return f"{self.name} at {self.servers}"

    def __repr__(self) -> str:
        """Return the address of the database, without the passwords."""
        return f"DatabaseSettings({self.user}@{self.servers}/{self.name})"


class DatabaseHosts:
    """The hosts of the database, the last known primary first. May be shared by threads."""

    def __init__(self, addresses: Sequence[Address], primary_file: str) -> None:
        self._addresses = list(addresses)
        self._file = primary_file
        self._primary: Address | None = self._addresses[0]  #: the last known one, None if it was lost
        if self.are_several and primary_file:
            with suppress(OSError, ValueError), open(primary_file, encoding="utf-8") as file:
                self._put_first(file.read(_LONGEST_ADDRESS).strip())

    @property
    def are_several(self) -> bool:
        """Whether the primary has to be found."""
        return len(self._addresses) > 1

    def in_order(self) -> tuple[Address, ...]:
        """Return the addresses in the order in which they are tried."""
        return tuple(self._addresses)

    def remember(self, primary: Address) -> None:
        """Try this address first from now on; other programs too, if this process may write the file."""
        if primary == self._primary:
            return
        self._put_first(str(primary))
        if self._file and os.geteuid():  # the directory is not root's
            new = f"{self._file}.{os.getpid()}"
            with suppress(OSError):
                with open(new, "x", encoding="utf-8") as file:
                    file.write(f"{primary}\n")
                os.replace(new, self._file)

    def try_last(self, lost: Address) -> None:
        """Try this address after the others until it is the primary again."""
        self._addresses, self._primary = sorted(self._addresses, key=lambda address: address == lost), None

    def _put_first(self, primary: str) -> None:
        self._addresses = sorted(self._addresses, key=lambda address: str(address) != primary)
        self._primary = self._addresses[0]


class OutageReport:
    """Report each outage once, if it lasts for more than a moment."""

    def __init__(self) -> None:
        self._on_wait: Callable[[DatabaseUnavailable], None] | None = None
        self._is_reported = False

    def follow(self, on_wait: Callable[[DatabaseUnavailable], None]) -> None:
        """Report to another callback from now on, including an outage that was already reported."""
        self._on_wait, self._is_reported = on_wait, False

    def add(self, problem: DatabaseUnavailable) -> None:
        """Report an outage that has not been reported yet."""
        if self._on_wait and not self._is_reported:
            self._is_reported = True
            self._on_wait(problem)

    def add_silence(self) -> None:
        """Report that PostgreSQL does not respond."""
        self.add(DatabaseUnavailable("it does not answer"))

    def close(self) -> None:
        """End the outage: PostgreSQL has responded."""
        self._is_reported = False


class _Login(NamedTuple):
    """A login, and the statements at the start of its sessions."""

    user: str
    password: str
    session: str
    application: str
    limits: TcpLimits = TCP_LIMITS


def _login(user: str, password: str, session: str, application: str, limits: TcpLimits) -> _Login:
    return _Login(user, password, f"{session}; {limits.session()}", application, limits)


class Place(Protocol):
    """A permission to open connections, whose number is limited for several processes. May be shared by threads."""

    is_own_missing: bool  #: whether those of its user are all taken, or else those of all, when it was not there

    def take(self) -> bool:
        """Take the place, if one is free. Return whether it is held."""

    def give_back(self) -> None:
        """Release the place, if it is held."""


class _NoPlaceError(psycopg2.OperationalError):
    """No place is free. The text names the users whose commands have them."""


class ConnectionPool:
    """Connections of both logins: new ones, and idle ones that are kept. May be shared by threads."""

    def __init__(self, settings: DatabaseSettings, application: str) -> None:
        self._settings = settings
        self.hosts = DatabaseHosts(settings.addresses, settings.primary_file)
        limits = _LIMITS.format_map(settings._asdict())
        writing = _SESSION + limits + _IDLE_LIMIT.format_map(settings._asdict())
        reading = _SESSION_RO + limits
        tcp_limits = REPLICATED_TCP_LIMITS if self.hosts.are_several else TCP_LIMITS
        self._writer = _login(settings.user, settings.password, writing, application, tcp_limits)
        self._reader = _login(settings.ro_user, settings.ro_password, reading, application, tcp_limits)
        holder = f"{application}@{os.uname().nodename}"
        self._lock_holder = _login(settings.user, settings.password, writing, holder, LOCK_TCP_LIMITS)
        self._idle_writers: list[PreparingConnection] = []
        self._idle_readers: list[PreparingConnection] = []
        self._used_readers: list[PreparingConnection] = []  #: idle too; their sessions may have been changed
        self.cursors: type[psycopg2.extensions.cursor] | None = None  #: kind of the cursors; None: plain ones
        self.outage = OutageReport()
        self.place: Place | None = None  #: is held while there are connections; other processes share the places

    def new_writer(self, since: float | None = None) -> PreparingConnection:
        """Open a connection of the read-write login. Raises DatabaseUnavailable.

        ``since``: when the caller began to wait, by the monotonic clock.
        """
        (connection,) = self._connect(self._writer, since=since)
        return connection

    def new_lock_holder(self) -> PreparingConnection:
        """Open a connection for locks. Its application name ends with the host name. Raises DatabaseUnavailable."""
        (connection,) = self._connect(self._lock_holder)
        return connection

    def new_writer_at_once(self) -> PreparingConnection:
        """Open a connection of the read-write login without a retry. Raises DatabaseUnavailable."""
        try:
            return self._open(self._writer)
        except psycopg2.OperationalError as error:
            raise unavailable(error) from error

    def idle_writer(self) -> PreparingConnection | None:
        """Take an idle connection of the read-write login, None if there is none. It may be dead."""
        return _popped(self._idle_writers)

    def keep_writer(self, connection: PreparingConnection) -> None:
        """Keep a connection that is idle again."""
        connection.idle_since = time.monotonic()
        self._idle_writers.append(connection)

    def close_surplus(self, seconds: float) -> None:
        """Close the connections of the read-write login that have been idle for this time, except one.

        After a burst, PostgreSQL would keep a process with its memory for each of them.
        """
        oldest = time.monotonic() - seconds
        while surplus := self._surplus(oldest):
            surplus.close()

    def _surplus(self, oldest: float) -> PreparingConnection | None:
        """Take the connection that has been idle for the longest time, if that is long enough and others are idle.

        Other threads take idle connections at any moment.
        """
        with suppress(IndexError):
            if len(self._idle_writers) > 1 and self._idle_writers[0].idle_since <= oldest:
                return self._idle_writers.pop(0)
        return None

    def reader(self) -> PreparingConnection:
        """Take or open a connection of the read-only login, with a clean session. Raises DatabaseUnavailable."""
        while used := _popped(self._used_readers):
            try:
                used.cursor().execute("DISCARD ALL")
                used.preparations.forget()
                used.cursor().execute(self._reader.session)
            except psycopg2.Error:  # it is lost: PostgreSQL was restarted
                used.close()
            else:
                return used
        idle = _popped(self._idle_readers)
        return idle or self._connect(self._reader)[0]

    def keep_reader(self, connection: PreparingConnection) -> None:
        """Keep a connection of the read-only login, on which SQL of users has run, for the next use."""
        try:
            connection.cursor().execute("ROLLBACK")
        except psycopg2.Error:
            connection.close()
        else:
            self._used_readers.append(connection)

    def ready(self) -> None:
        """Open an idle connection of each login. Raises DatabaseUnavailable."""
        if self._idle_writers and not self._has_reader():
            try:
                self._idle_readers.append(self._open(self._reader))
            except psycopg2.OperationalError:
                self._close_idle()  # other processes wait for the first connection
        if not (self._idle_writers and self._has_reader()):
            writer, reader = self._connect(self._writer, self._reader)
            self._idle_writers.append(writer)
            self._idle_readers.append(reader)

    def connect_ahead(self) -> None:
        """Open an idle connection of each login, if possible at once."""
        with suppress(psycopg2.OperationalError):
            if not self._idle_writers:
                self._idle_writers.append(self._open(self._writer))
            if not self._has_reader():  # it is used late, and checked then like a used one
                self._used_readers.append(self._open(self._reader))

    def drop(self, connection: PreparingConnection) -> None:
        """Close a lost connection. If there are several hosts, do not wait for this one again: it may be silent."""
        if self.hosts.are_several and connection.info.host:  # it has none once it was closed
            self.hosts.try_last(Address(connection.info.host, connection.info.port))
            self._close_idle()
        connection.close()

    def close(self) -> None:
        """Close the idle connections, and release the place."""
        self._close_idle()
        if self.place:
            self.place.give_back()

    def _close_idle(self) -> None:
        for idle in (self._idle_writers, self._idle_readers, self._used_readers):
            while connection := _popped(idle):
                connection.close()

    def _has_reader(self) -> bool:
        return bool(self._idle_readers or self._used_readers)

    def _connect(self, *logins: _Login, since: float | None = None) -> list[PreparingConnection]:
        """Connect with each login. Retry for ``settings.patience`` seconds, unless the login is rejected.

        No connection is kept during the wait: PostgreSQL may be full of processes that wait for their second
        connection.
        """
        since = time.monotonic() if since is None else since
        patience, pause = self._settings.patience, FIRST_PAUSE
        longest = FIRST_ROUND_SECONDS if self.hosts.are_several else CONNECT_SECONDS
        while True:
            opened: list[PreparingConnection] = []
            try:
                for login in logins:
                    left = since + patience - time.monotonic() if patience else CONNECT_SECONDS
                    opened.append(self._open(login, min(left, longest)))
            except psycopg2.OperationalError as error:
                for connection in opened:
                    connection.close()
                self._close_idle()
                waited, problem = time.monotonic() - since, unavailable(error)
                if waited + pause > patience or isinstance(problem, DatabaseRefused):
                    raise problem from error
                if waited >= SILENT_SECONDS:
                    self.outage.add(problem)
                time.sleep(random_pause(pause / 2, pause))
                longest = CONNECT_SECONDS  # a busy host gets its time after the others were tried
                is_full = isinstance(problem, DatabaseFull)
                pause = min(2 * pause, LONGEST_PAUSE_IF_FULL if is_full else LONGEST_PAUSE)
            else:
                self.outage.close()
                return opened

    def _open(self, login: _Login, left: float = CONNECT_SECONDS) -> PreparingConnection:
        """Connect to the primary, trying each host once. ``left``: remaining seconds of the caller's wait."""
        if self.place and not self.place.take():
            raise _NoPlaceError(_OF_USER if self.place.is_own_missing else _OF_ALL)
        seconds = max(SILENT_SECONDS, min(CONNECT_SECONDS, left))
        address, connection = connect_to_primary(
            self.hosts.in_order(), lambda address: self._open_at(address, login, seconds)
        )
        self.hosts.remember(address)
        return connection

    def _open_at(self, address: Address, login: _Login, seconds: float) -> PreparingConnection:
        connection: PreparingConnection = psycopg2.connect(
            connection_factory=partial(PreparingConnection, prompt_seconds=seconds, on_silence=self.outage.add_silence),
            cursor_factory=self.cursors,
            host=address.host,
            port=address.port,
            target_session_attrs="primary" if self.hosts.are_several else "any",
            dbname=self._settings.name,
            user=login.user,
            password=login.password or None,
            connect_timeout=math.ceil(seconds),
            application_name=login.application,
            passfile="/dev/null/none",  # a file that does not exist: libpq warns of one that is not a plain file
            client_encoding="UTF8",
            **login.limits.client_options(),
        )
        connection.autocommit = True
        try:
            connection.cursor().execute(login.session)
        except psycopg2.Error as error:
            connection.close()
            if tells_loss(error):
                raise psycopg2.OperationalError(str(error)) from error
            raise
        connection.is_prompt = False
        connection.prompt_seconds = min(CONNECT_SECONDS, self._settings.patience or CONNECT_SECONDS)
        return connection


def use_own_waits() -> None:
    """Wait for PostgreSQL with ``wait_for_answer`` in this process from now on, so that silence can be reported.

    By default psycopg2 waits in C code, where no report is possible and ^C has no effect. COPY does not work with this
    function.
    """
    psycopg2.extensions.set_wait_callback(wait_for_answer)


def use_waits_of_libpq() -> None:
    """Undo ``use_own_waits``, for a program that copies tables."""
    psycopg2.extensions.set_wait_callback(None)


def wait_for_answer(connection: Connection) -> None:
    """Wait until a statement, or the start of a session, is answered.

    Raises OperationalError if PostgreSQL does not answer in time, for requests that it always answers at once.
    """
    begun: float | None = None
    while (state := connection.poll()) != psycopg2.extensions.POLL_OK:
        answers = poll()
        answers.register(connection, POLLIN if state == psycopg2.extensions.POLL_READ else POLLOUT)
        while not answers.poll(_LOOK_SECONDS * 1000):
            begun = begun or time.monotonic() - _LOOK_SECONDS
            if isinstance(connection, PreparingConnection):
                _treat_silence(connection, time.monotonic() - begun)


def _treat_silence(connection: PreparingConnection, waited: float) -> None:
    is_over = connection.is_prompt and waited >= connection.prompt_seconds
    is_busy = connection.is_prompt and waited >= BUSY_SECONDS
    is_silent = is_over or is_busy or (waited >= SILENT_SECONDS and _is_peer_silent(connection))
    if is_silent and connection.on_silence:
        connection.on_silence()
    if is_over:
        raise psycopg2.OperationalError(f"no answer within {waited:.0f} s")


def _is_peer_silent(connection: Connection) -> bool:
    """Return whether the kernel retransmits unacknowledged data. A slow statement does not count as silence."""
    import socket

    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        if end.family == socket.AF_UNIX:
            return False
        state = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    return state[_RETRANSMISSIONS] >= (1 if state[_STATE] == _SYN_SENT else 2) or state[_PROBES] > 0


def tells_loss(error: psycopg2.Error) -> bool:
    """Return whether an error means that the connection is lost. psycopg2 has no class for a killed server."""
    is_unknown = type(error) is psycopg2.DatabaseError and error.pgcode is None
    return is_unknown or isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError)


def unavailable(error: Exception) -> DatabaseUnavailable:
    """Return the error of an unreachable database, in one line."""
    if isinstance(error, _NoPlaceError):
        return UserConnectionsUsed(str(error))
    kinds = {DatabaseFull: _FULL, DatabaseRefused: _REFUSED}
    lines = str(error).strip().splitlines() or [type(error).__name__]
    for kind, words in kinds.items():
        found = next((line for line in lines if any(word in line for word in words)), None)
        if found:
            return kind(found.strip())
    return DatabaseUnavailable(lines[0])


def explain_failure(text: str, *, quotes: bool = False) -> str:
    """Return why PostgreSQL cannot be used, in our own words. ``text``: message of libpq.

    ``quotes``: for administrators, quote the first line of an unknown message.

    >>> explain_failure('connection to server at "db", port 5432 failed: Connection refused')
    'no server listens at this address'
    """
    otherwise = f'PostgreSQL reports "{text.strip().splitlines()[0]}"' if quotes and text.strip() else _NO_CONNECTION
    return next((reason for words, reason in _REASONS if words in text), otherwise)


def connect_to_primary(addresses: Iterable[Address], connect: Callable[[Address], C]) -> tuple[Address, C]:
    """Return the first connection, with its address. Raises OperationalError if ``connect`` fails for each host.

    libpq does not try the next host if one refuses the login, as a replica does to which a new login has not come yet.
    """
    failures: list[psycopg2.OperationalError] = []
    for address in addresses:
        try:
            return address, connect(address)
        except psycopg2.OperationalError as error:
            failures.append(error)
    raise min(failures, key=_finality)


def _finality(error: psycopg2.OperationalError) -> int:
    """Rank the failures of several hosts: the lowest decides whether the primary may still appear."""
    if _STANDBY in str(error):
        return 2
    return 1 if isinstance(unavailable(error), DatabaseRefused) else 0


def random_pause(shortest: float, longest: float) -> float:
    """Return a random length of a pause, so that waiting processes do not retry at the same time."""
    import random

    # Do not use the shared generator of the program: a caller may have seeded it, and other threads use it.
    return random.SystemRandom().uniform(shortest, longest)


def _popped(idle: list[PreparingConnection]) -> PreparingConnection | None:
    """Take the last idle connection, None if there is none. Another thread may take it concurrently."""
    with suppress(IndexError):
        return idle.pop()
    return None
