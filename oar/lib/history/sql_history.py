"""The history as it is followed (``tx.history``): rows of the logs in the order of their ids, and who writes them now.

See docs/design/events.rst, "The feed".
"""

from enum import StrEnum

from oar.lib.db.statements import Table
from oar.lib.history.records import JobStateChange, Position
from oar.lib.jobs.states import JobState


class Log(StrEnum):
    """A table that is a log: its rows are only added."""

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


class History(Table):
    """Changes of states and events, by their ids."""

    def newest(self) -> Position:
        """Return the newest rows that can be seen; older ones may still come."""
        row = self._tx.row(_NEWEST)
        assert row is not None
        return Position(*row)

    def instant(self) -> str:
        """Return a text that is the same as long as nothing has been written that this transaction sees."""
        return str(self._tx.column(_INSTANT)[0])

    def writers(self, log: Log) -> frozenset[str]:
        """Return the transactions that may have drawn ids of a log whose rows cannot be seen yet."""
        return frozenset(self._tx.column(_WRITERS, (log,)))

    def ids_after(self, log: Log, newest: int, limit: int) -> list[int]:
        """Return the ids of the next rows of a log, ascending."""
        key = _KEYS[log]
        return self._tx.column(f"SELECT {key} FROM {log} WHERE {key} > %s ORDER BY {key} LIMIT %s", (newest, limit))

    def state_changes(self, after: int, until: int, limit: int) -> list[JobStateChange]:
        """Return the changes of states behind a row, up to and including another one, oldest first."""
        return [
            JobStateChange(row[0], row[1], JobState(row[2]), JobState(row[3]) if row[3] else None, *row[4:])
            for row in self._tx.rows(_STATE_CHANGES, (after, until, limit))
        ]
