"""Figures for health checks and metrics (``tx.figures``), and the last success of each timer task."""

from typing import NamedTuple

from oar.lib.db.statements import Prepared, Table
from oar.lib.history.event_types import EventType
from oar.lib.history.records import PolicyKind
from oar.lib.jobs.ends import LAUNCH_FAILURES, EndCode
from oar.lib.jobs.states import JobState, QueueState
from oar.lib.monitoring.records import FailedLaunches, QueueStatus, Refusals, ServerTask

#: Queues, each with its last noted change.  Of a change that is not noted yet, OAR itself is the author.
_QUEUES = Prepared("""
    SELECT q.queue_name, q.state = %(active)s,
        CASE WHEN l.value LIKE '%%, ' || q.state THEN l.date ELSE 0 END,
        CASE WHEN l.value LIKE '%%, ' || q.state THEN l.author ELSE '' END
    FROM queues q
    LEFT JOIN LATERAL (
        SELECT value, date, author FROM policy_log WHERE kind = %(kind)s AND name = q.queue_name
        ORDER BY log_id DESC LIMIT 1) l ON true
    WHERE q.state <> %(orphaned)s ORDER BY q.queue_name""")

#: Refused submissions since a date, behind the last submission that was accepted.
_REFUSALS = Prepared("""
    SELECT count(*), (array_agg(description ORDER BY event_id DESC))[1] FROM event_logs
    WHERE type = %(type)s AND date > %(since)s
      AND date > COALESCE((SELECT max(submission_time) FROM jobs WHERE submission_time > %(since)s), 0)""")

#: The most frequent reason of failed launches since a date, behind the last start of a job.
_FAILED_LAUNCHES = Prepared("""
    SELECT e.code, count(*) FROM jobs j JOIN job_ends e USING (job_id)
    WHERE j.stop_time > %(since)s AND e.code = ANY(%(codes)s)
      AND e.date > COALESCE((
        SELECT max(date_start) FROM job_state_logs WHERE job_state = %(running)s AND date_start > %(since)s), 0)
    GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1""")

_NOT_ACCOUNTED = Prepared("""
    SELECT stop_time FROM jobs WHERE accounted = 'NO' AND state IN ('Terminated', 'Error') ORDER BY job_id LIMIT 1""")

_SUSPECTED = Prepared("SELECT type, count(*), count(*) FILTER (WHERE state = 'Suspected') FROM resources GROUP BY 1")

_FIGURES = Prepared("""
    SELECT current_setting('server_version'), pg_database_size(current_database()),
        (SELECT numbackends FROM pg_stat_database WHERE datname = current_database()),
        current_setting('max_connections')::int""")

_READ_ONLY = Prepared("SELECT current_setting('transaction_read_only')::boolean")


class DatabaseFigure(NamedTuple):
    """Figures of the database that contains the tables."""

    postgresql: str  #: version of the server
    size: int  #: bytes
    connections: int
    most_connections: int  #: of all databases of the server together


_STORE = """
    INSERT INTO task_runs (task, last_success) VALUES (%s, %s)
    ON CONFLICT (task) DO UPDATE SET last_success = EXCLUDED.last_success"""


class Figures(Table):
    """Queries about the health of the cluster."""

    def queues(self) -> list[QueueStatus]:
        """Return the queues by name, without orphaned ones."""
        states = {"active": QueueState.ACTIVE, "orphaned": QueueState.ORPHANED, "kind": str(PolicyKind.QUEUE)}
        return [QueueStatus(*row) for row in self._tx.rows(_QUEUES, states)]

    def refusals(self, since: int) -> Refusals:
        """Return the submissions rejected since a date and since the last accepted one."""
        number, last = self._tx.rows(_REFUSALS, {"type": str(EventType.SUBMISSION_REFUSED), "since": since})[0]
        return Refusals(number, last or "")

    def failed_launches(self, since: int) -> FailedLaunches | None:
        """Return the launches since a date and since the last job start that failed for the most frequent reason."""
        codes = sorted(str(code) for code in LAUNCH_FAILURES)
        row = self._tx.row(_FAILED_LAUNCHES, {"since": since, "codes": codes, "running": str(JobState.RUNNING)})
        return FailedLaunches(EndCode(row[0]), row[1]) if row else None

    def oldest_not_accounted(self) -> int:
        """Return the end date of the first ended job that is not accounted; return 0 if there is none."""
        row = self._tx.row(_NOT_ACCOUNTED)
        return row[0] if row else 0

    def suspected(self) -> dict[str, tuple[int, int]]:
        """Return for each type the number of resources, and the number of Suspected ones."""
        return {kind: (number, suspected) for kind, number, suspected in self._tx.rows(_SUSPECTED)}

    def database_figures(self) -> DatabaseFigure:
        (row,) = self._tx.rows(_FIGURES)
        return DatabaseFigure(*row)

    def is_read_only(self) -> bool:
        """Return whether a transaction is read-only: on a standby server, or because of a setting."""
        return bool(self._tx.column(_READ_ONLY)[0])

    def record_success(self, task: ServerTask) -> None:
        """Store the current date as the last success of a task."""
        self._tx.execute(_STORE, (str(task), self._tx.now))

    def successes(self) -> list[tuple[str, int]]:
        """Return the date of the last success of each task, by name."""
        return [(task, date) for task, date in self._tx.rows("SELECT task, last_success FROM task_runs ORDER BY task")]
