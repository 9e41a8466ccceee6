"""The ordered log rows (``tx.history``), the positions of readers, and the log of policies.

See docs/design/events.rst, "The feed".
"""

from collections.abc import Collection
from enum import StrEnum

from oar.lib.db.statements import Prepared, Table
from oar.lib.history.records import JobStateChange, PolicyChange, PolicyItem, Position
from oar.lib.jobs.states import JobState


class Log(StrEnum):
    """A log table: rows are only added."""

    STATES = "job_state_logs"
    EVENTS = "event_logs"
    RESERVATIONS = "reservation_logs"


_KEYS = {Log.STATES: "job_state_log_id", Log.EVENTS: "event_id", Log.RESERVATIONS: "reservation_log_id"}

_NEWEST = """
    SELECT coalesce((SELECT max(job_state_log_id) FROM job_state_logs), 0),
           coalesce((SELECT max(event_id) FROM event_logs), 0)"""

_INSTANT = "SELECT pg_current_snapshot()::text"

#: Transactions that may add a row: an INSERT takes this lock before it draws an id, and keeps it until the end.
_WRITERS = """
    SELECT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND relation = %s::regclass
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND pid <> pg_backend_pid()"""

#: No index has the order of ``+ 0``: PostgreSQL might go backwards through the changes of all jobs to one of this job.
_STATE_CHANGES = """
    SELECT l.job_state_log_id, l.job_id, l.job_state,
           (SELECT b.job_state FROM job_state_logs b
            WHERE b.job_id = l.job_id AND b.job_state_log_id < l.job_state_log_id
            ORDER BY b.job_state_log_id + 0 DESC LIMIT 1),
           l.date_start, coalesce(j.job_user, ''), coalesce(j.job_name, ''), coalesce(j.queue_name, ''),
           coalesce(j.array_id, l.job_id)
    FROM job_state_logs l LEFT JOIN jobs j USING (job_id)
    WHERE l.job_state_log_id > %s AND l.job_state_log_id <= %s ORDER BY l.job_state_log_id LIMIT %s"""

_FIND = "SELECT state_log, event FROM history_positions WHERE reader = %s"

_STORE = """
    INSERT INTO history_positions (reader, state_log, event) VALUES (%s, %s, %s)
    ON CONFLICT (reader) DO UPDATE SET state_log = EXCLUDED.state_log, event = EXCLUDED.event"""

#: What is in force as far as the log knows: the last row of each name that does not say that it has gone.
_LAST = Prepared("""
    SELECT kind, name, value FROM (
        SELECT DISTINCT ON (kind, name) kind, name, value FROM policy_log WHERE kind = ANY(%s)
        ORDER BY kind, name, log_id DESC) l
    WHERE value IS NOT NULL""")

_CHANGES = """
    SELECT date, author, kind, name, former, value FROM policy_log
    WHERE %(name)s::text IS NULL OR name = %(name)s
    ORDER BY log_id"""


class History(Table):
    """State changes and events by id, positions of readers, and policies."""

    def newest(self) -> Position:
        """Return the position of the newest visible rows; older rows may still appear."""
        row = self._tx.row(_NEWEST)
        assert row is not None
        return Position(*row)

    def instant(self) -> str:
        """Return a text that stays the same as long as this transaction sees no new write."""
        return str(self._tx.column(_INSTANT)[0])

    def writers(self, log: Log) -> frozenset[str]:
        """Return the transactions that may have used ids of a log whose rows are not visible yet."""
        return frozenset(self._tx.column(_WRITERS, (log,)))

    def ids_after(self, log: Log, newest: int, limit: int) -> list[int]:
        """Return the ids of the next rows of a log, ascending."""
        key = _KEYS[log]
        return self._tx.column(f"SELECT {key} FROM {log} WHERE {key} > %s ORDER BY {key} LIMIT %s", (newest, limit))

    def state_changes(self, after: int, until: int, limit: int) -> list[JobStateChange]:
        """Return the state changes with ids above ``after``, up to ``until``, oldest first."""
        return [
            JobStateChange(row[0], row[1], JobState(row[2]), JobState(row[3]) if row[3] else None, *row[4:])
            for row in self._tx.rows(_STATE_CHANGES, (after, until, limit))
        ]

    def find_position(self, reader: str) -> Position | None:
        """Return the stored position of a reader; return None if there is none."""
        row = self._tx.row(_FIND, (reader,))
        return Position(*row) if row else None

    def store_position(self, reader: str, position: Position) -> None:
        self._tx.execute(_STORE, (reader, *position))

    def last_policies(self, kinds: Collection[str]) -> dict[PolicyItem, str]:
        """Return the last known policies of these kinds."""
        rows = self._tx.rows(_LAST, ([str(kind) for kind in kinds],))
        return {PolicyItem(kind, name): value for kind, name, value in rows}

    def add_policy_changes(self, changes: Collection[PolicyChange]) -> None:
        self._tx.insert_many(
            "INSERT INTO policy_log (date, author, kind, name, former, value) VALUES %s",
            [(change.date, change.author, *change.item, change.former, change.value) for change in changes],
        )

    def policy_changes(self, name: str | None = None) -> list[PolicyChange]:
        """Return the policy changes, oldest first; ``name`` None: of all policies."""
        rows = self._tx.rows(_CHANGES, {"name": name})
        return [PolicyChange(row[0], row[1], PolicyItem(row[2], row[3]), row[4], row[5]) for row in rows]
