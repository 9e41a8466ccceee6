"""What happened to advance reservations, and what they were (``tx.reservation_logs``).

Statements are about all reservations at once: never a query for each.  See docs/design/reservations.rst.
"""

from collections.abc import Collection, Sequence

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Row, Table
from oar.lib.reservations.records import LogLine, ReservationLog, ReservationRevision
from oar.lib.reservations.states import ReservationState

_LOG = """
    INSERT INTO reservation_logs (reservation_id, date, event, state, hostname, message, author)
    VALUES (%s, %s, %s, %s, %s, %s, %s)"""
_LOG_ALL = """
    INSERT INTO reservation_logs (reservation_id, date, event, state, hostname, message, author) VALUES %s"""
_LAST_LINE = "SELECT COALESCE(max(reservation_log_id), 0) FROM reservation_logs"
_NEW_LINES = """
    SELECT l.reservation_log_id, v.frame_id, v.reservation_id, v.ar_id, l.event, l.state
    FROM reservations v JOIN reservation_logs l ON l.reservation_id = v.reservation_id
    WHERE v.frame_id = ANY(%s) AND v.frame_id <> 0 AND l.reservation_log_id > %s ORDER BY l.reservation_log_id"""
#: The lines of requests that were not granted have a state of their own: whether a line is shown never changes.
_SHOWN_LINES = """
    SELECT reservation_log_id, reservation_id, date, event, state, hostname, message, author FROM reservation_logs
    WHERE reservation_log_id > %s AND reservation_log_id <= %s AND state <> '' AND state <> 'n'
    ORDER BY reservation_log_id LIMIT %s"""
_LOGS = """
    SELECT reservation_id, date, event, state, hostname, message, author FROM reservation_logs
    WHERE reservation_id = ANY(%s) ORDER BY reservation_id, reservation_log_id"""
_ADD_REVISION = """
    INSERT INTO reservation_revisions (reservation_id, revision, date, author, ar_name, account, start_time, end_time,
        granted_pe, granted_resources)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (reservation_id, revision) DO UPDATE SET date = EXCLUDED.date, author = EXCLUDED.author,
        ar_name = EXCLUDED.ar_name, account = EXCLUDED.account, start_time = EXCLUDED.start_time,
        end_time = EXCLUDED.end_time, granted_pe = EXCLUDED.granted_pe,
        granted_resources = EXCLUDED.granted_resources"""
_REVISIONS = """
    SELECT reservation_id, revision, date, author, ar_name, account, start_time, end_time, granted_pe,
        granted_resources
    FROM reservation_revisions WHERE reservation_id = %s ORDER BY revision"""


class ReservationLogs(Table):
    """Lines of what happened, and revisions: what a reservation is from a change on to the next one."""

    def log(self, row: ReservationLog) -> None:
        """Write what happened."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute(_LOG, row)

    def log_all(self, rows: Sequence[ReservationLog]) -> None:
        """Write what happened to several reservations."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.insert_many(_LOG_ALL, rows)

    def last_line(self) -> int:
        """Return the number of the newest line of the log; 0 if it is empty."""
        line: int = self._tx.value(_LAST_LINE)
        return line

    def new_lines(self, frames: Collection[int], after: int) -> list[LogLine]:
        """Return the lines about the reservations of some frames behind a line, in order of writing."""
        return [LogLine(*row) for row in self._tx.rows(_NEW_LINES, (list(frames), after))]

    def logs(self, ids: Collection[int]) -> list[ReservationLog]:
        """Return what happened to reservations, each in order of time."""
        rows = self._tx.rows(_LOGS, (list(ids),)) if ids else []
        return [_log_row(row) for row in rows]

    def shown_lines(self, after: int, until: int, limit: int) -> list[tuple[int, ReservationLog]]:
        """Return the lines about what was granted behind a line, up to and including another one, with their ids."""
        return [(row[0], _log_row(row[1:])) for row in self._tx.rows(_SHOWN_LINES, (after, until, limit))]

    def add_revision(self, revision: ReservationRevision) -> None:
        """Write what a reservation is from now on, in the place of what another program wrote of the same revision."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute(_ADD_REVISION, revision)

    def revisions(self, reservation_id: int) -> list[ReservationRevision]:
        """Return what a reservation ever was, in order."""
        return [ReservationRevision(*row) for row in self._tx.rows(_REVISIONS, (reservation_id,))]


def _log_row(row: Row) -> ReservationLog:
    return ReservationLog(*row)._replace(state=ReservationState(row[3]))
