"""The servers of the site and their generation (``tx.servers``).

Only the session that holds SERVER_LOCK may call ``next_generation`` and ``end_former_sessions``.

See docs/design/availability.rst, "Take-over".
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from oar.lib.db.lock_keys import SERVER_LOCK
from oar.lib.db.statements import CLOCK, Prepared, Table, psycopg2
from oar.lib.jobs.states import ServerRole

#: Seconds for which a wanted server may take the lock before others do.
WISH_SECONDS = 10
#: Seconds without a report after which a server counts as stopped.
SEEN_SECONDS = 30
#: Seconds for which a request to count nodes is valid.
COUNT_SECONDS = 30

_GENERATION = "generation, server_name, wanted, wanted_at, wanted_reason, count_requested_at"
_CURRENT = Prepared(f"SELECT {CLOCK}, {_GENERATION} FROM server_generation")
#: At least the date in seconds: a database that lost its last changes, or was restored, gives no generation twice.
_NEXT = f"""
    UPDATE server_generation SET generation = GREATEST(generation + 1, {CLOCK}), server_name = %s,
           since = {CLOCK}, take_overs = take_overs + 1, wanted = '', wanted_at = 0, wanted_reason = ''
    RETURNING generation"""
_FIRST = f"""
    INSERT INTO server_generation (generation, server_name, since, take_overs) VALUES ({CLOCK}, %s, {CLOCK}, 1)
    RETURNING generation"""
#: Sessions that keep the row of the generation locked: a stopped process of a former server, or a command.
_END_BLOCKERS = """
    SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'relation' AND relation = 'server_generation'::regclass AND granted AND pid <> pg_backend_pid()
      AND mode NOT IN ('AccessShareLock', 'RowShareLock') AND usename = current_user
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
#: The application name of a process of the server holds its generation (``runtime.open_runtime``). Sessions of the
#: read-only login change nothing.
_END_FORMER = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user
      AND substring(application_name FROM ' g([0-9]{1,18})(?:@|$)')::bigint <> %s"""
#: The warden of an active server asks every 2 s. Its host answers probes also if the process is stopped.
_END_SILENT_HOLDER = """
    SELECT pg_terminate_backend(a.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objid = %s AND l.objsubid = 2 AND l.granted
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND a.usename = current_user AND a.application_name LIKE 'oar:warden@%%'
      AND a.state_change < clock_timestamp() - make_interval(secs => %s)"""
_WANT = f"UPDATE server_generation SET wanted = %s, wanted_at = {CLOCK}, wanted_reason = %s"
_CHOOSE = f"""
    WITH chosen AS (UPDATE servers SET chosen_at = {CLOCK} WHERE server_name = %s)
    UPDATE server_generation SET wanted = %s, wanted_at = {CLOCK}, wanted_reason = %s, count_requested_at = 0"""
_REQUEST_COUNT = f"UPDATE server_generation SET count_requested_at = {CLOCK}"
_NOTE_REACHED = f"UPDATE servers SET sees_nodes = %s, counted_at = {CLOCK} WHERE server_name = %s"
_REPORT = f"""
    INSERT INTO servers (server_name, host, server_port, role, since, last_seen, version, config_digest)
    VALUES (%s, %s, %s, %s, {CLOCK}, {CLOCK}, %s, %s)
    ON CONFLICT (server_name) DO UPDATE SET host = excluded.host, server_port = excluded.server_port,
        since = CASE WHEN servers.role = excluded.role THEN servers.since ELSE excluded.since END,
        role = excluded.role, last_seen = excluded.last_seen, version = excluded.version,
        config_digest = excluded.config_digest"""
_FENCE = f"UPDATE servers SET role = %s, since = {CLOCK} WHERE role = %s AND server_name <> %s"
_ALL = """
    SELECT server_name, host, server_port, role, since, last_seen, version, config_digest, sees_nodes,
           counted_at, chosen_at
    FROM servers ORDER BY server_name"""
_TAKE_OVERS = "SELECT take_overs, since FROM server_generation"


class Generation(NamedTuple):
    """The current generation, and the server that must take over."""

    now: int  #: the clock of the database
    number: int
    server_name: str  #: the server that has begun it
    wanted: str  #: '' if there is none
    wanted_at: int
    wanted_reason: str = ""  #: '' if an administrator has requested it
    count_requested_at: int = 0  #: when the active server requested that standbys count the nodes they reach

    def wants_other_than(self, name: str) -> bool:
        """Return whether the lock must be left to another server."""
        return self.wanted not in ("", name) and self.now < self.wanted_at + WISH_SECONDS

    @property
    def is_count_requested(self) -> bool:
        """Return whether standbys must count the nodes that they reach."""
        return self.now < self.count_requested_at + COUNT_SECONDS


class ServerReport(NamedTuple):
    """What a server reports of itself."""

    server_name: str
    host: str
    server_port: int
    role: ServerRole
    version: str
    config_digest: str


class ServerRow(NamedTuple):
    """A row of ``servers``. Its dates are Unix times."""

    server_name: str
    host: str
    server_port: int
    role: ServerRole
    since: int
    last_seen: int
    version: str
    config_digest: str
    sees_nodes: int  #: number of nodes that it reached when it counted last; negative: the check failed
    counted_at: int = 0
    chosen_at: int = 0  #: when it was last chosen for an automatic hand-over


class TakeOvers(NamedTuple):
    """The number of take-overs, and the date of the last one."""

    number: int
    since: int


class Servers(Table):
    """The tables ``server_generation`` and ``servers``."""

    def generation(self) -> Generation:
        """Return the current generation."""
        row = self._tx.row(_CURRENT)
        return Generation(*row) if row else Generation(0, 0, "", "", 0)

    def next_generation(self, server_name: str) -> int:
        """Begin a new generation, and return its number. From the commit on, former generations may not write."""
        number: int = self._tx.value(_NEXT, (server_name,)) or self._tx.value(_FIRST, (server_name,))
        return number

    @contextmanager
    def lock_patience(self, milliseconds: int) -> Iterator[None]:
        """Let a statement that waits longer for a lock fail with LockNotAvailable, until the end of the block."""
        former = self._tx.value("SHOW lock_timeout")
        self._tx.execute("SET lock_timeout TO %s", (milliseconds,))
        try:
            yield
        finally:
            with suppress(psycopg2.Error):
                self._tx.execute("SET lock_timeout TO %s", (former,))

    def end_generation_blockers(self) -> int:
        """Terminate the sessions that have changed or locked the generation and have not committed. Return how many."""
        return len(self._tx.rows(_END_BLOCKERS))

    def end_former_sessions(self, generation: int) -> int:
        """Terminate the sessions of all other generations. Return how many there were."""
        return len(self._tx.rows(_END_FORMER, (generation,)))

    def end_silent_holder(self, seconds: int) -> bool:
        """Terminate the session of the warden that holds SERVER_LOCK if it was silent for ``seconds``."""
        return bool(self._tx.rows(_END_SILENT_HOLDER, (*SERVER_LOCK, seconds)))

    def want(self, server_name: str, reason: str = "") -> None:
        """Request that a server takes over. ``reason``: '' if an administrator wants it.

        A request with a reason is an automatic one: its date is stored in the row of that server.
        """
        if reason:
            self._tx.execute(_CHOOSE, (server_name, server_name, reason))
        else:
            self._tx.execute(_WANT, (server_name, reason))

    def request_count(self) -> None:
        """Request that the standby servers count the nodes that they reach."""
        self._tx.execute(_REQUEST_COUNT)

    def note_reached(self, server_name: str, nodes: int) -> None:
        """Store how many nodes a server reaches, -1 if its check failed."""
        self._tx.execute(_NOTE_REACHED, (nodes, server_name))

    def report(self, report: ServerReport) -> None:
        """Store what a server reports of itself."""
        self._tx.execute(_REPORT, report)

    def fence_others(self, server_name: str) -> None:
        """Mark a former active server that has not reported its end as fenced."""
        self._tx.execute(_FENCE, (ServerRole.FENCED, ServerRole.ACTIVE, server_name))

    def all(self) -> list[ServerRow]:
        """Return all servers that have ever reported, by name."""
        return [ServerRow(*row)._replace(role=ServerRole(row[3])) for row in self._tx.rows(_ALL)]

    def take_overs(self) -> TakeOvers:
        """Return the number of take-overs, and the date of the last one."""
        row = self._tx.row(_TAKE_OVERS)
        return TakeOvers(*row) if row else TakeOvers(0, 0)
