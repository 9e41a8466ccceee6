"""Old rows (``tx.retention``): find and delete them in batches, with all rows of a job.

A log is read in the order of its ids, which is nearly the order of its dates. A batch without old rows ends the
search. Rows that live jobs or resources need are kept, however old they are.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from oar.lib.bus.messages import Topic
from oar.lib.db.predicates import ENDED, NO_FRAME
from oar.lib.db.statements import Table
from oar.lib.history.event_types import EventType

#: Ended jobs that are accounted, without open events, on which no live job depends.
_JOBS = f"""
    SELECT j.stop_time, j.job_id FROM jobs j
    WHERE j.stop_time > 0 AND j.stop_time < %(before)s AND (j.stop_time, j.job_id) > (%(date)s, %(id)s)
      AND {ENDED} AND j.accounted <> 'NO' AND {NO_FRAME}
      AND NOT EXISTS (SELECT 1 FROM event_logs e WHERE e.job_id = j.job_id AND e.to_check = 'YES')
      AND NOT EXISTS (SELECT 1 FROM job_dependencies d
        WHERE d.job_id_required = j.job_id AND d.job_dependency_index = 'CURRENT')
      AND NOT EXISTS (SELECT 1 FROM reservation_jobs i JOIN reservations v USING (reservation_id)
        WHERE i.job_id = j.job_id AND v.ended = 0)
    ORDER BY j.stop_time, j.job_id LIMIT %(limit)s"""
#: A batch of each log after an id: id, date, and whether the row may be deleted if it is old.
_KEYS = f"""
    SELECT c.job_id, COALESCE(j.submission_time, 0), COALESCE(j.stop_time < %(before)s AND {ENDED}, true)
    FROM challenges c LEFT JOIN jobs j USING (job_id)
    WHERE c.job_id > %(id)s ORDER BY c.job_id LIMIT %(limit)s"""
_STATES = f"""
    SELECT l.job_state_log_id, l.date_start,
        l.date_stop <> 0 AND COALESCE({ENDED} AND j.accounted <> 'NO' AND j.stop_time < %(before)s, true)
    FROM job_state_logs l LEFT JOIN jobs j USING (job_id)
    WHERE l.job_state_log_id > %(id)s ORDER BY l.job_state_log_id LIMIT %(limit)s"""
_EVENTS = f"""
    SELECT e.event_id, e.date, e.to_check = 'NO' AND COALESCE({ENDED}, true)
    FROM event_logs e LEFT JOIN jobs j ON j.job_id = e.job_id AND e.job_id <> 0
    WHERE e.event_id > %(id)s ORDER BY e.event_id LIMIT %(limit)s"""
_RESOURCES = """
    SELECT resource_log_id, date_start, date_stop <> 0 AND date_stop < %(before)s FROM resource_logs
    WHERE resource_log_id > %(id)s ORDER BY resource_log_id LIMIT %(limit)s"""


class OldRows(NamedTuple):
    """How the old rows of a log are found and deleted."""

    find: str
    key: str  #: the column with the ids
    tables: tuple[str, ...]  #: from which they are deleted
    topic: Topic | None = None


#: By the name of the table.
LOGS = {
    "challenges": OldRows(_KEYS, "job_id", ("challenges",)),
    "job_state_logs": OldRows(_STATES, "job_state_log_id", ("job_state_logs",), Topic.JOBS),
    "event_logs": OldRows(_EVENTS, "event_id", ("event_log_hostnames", "event_logs"), Topic.EVENTS),
    "resource_logs": OldRows(_RESOURCES, "resource_log_id", ("resource_logs",), Topic.RESOURCES),
}
_OLD_WINDOWS = ("window_start", "window_start < %(before)s AND window_stop < %(before)s")
#: Tables that are sorted by a date: the first column of the order, and which rows are too old.
_DATED = {
    "gantt_jobs_predictions_log": ("sched_date", "sched_date < %(before)s"),
    "gantt_jobs_resources_log": ("sched_date", "sched_date < %(before)s"),
    "accounting": _OLD_WINDOWS,
    "accounting_costs": _OLD_WINDOWS,
}
_DELETE_DATED = {
    table: f"""
    DELETE FROM {table} WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM {table} WHERE {condition} ORDER BY {column} LIMIT %(limit)s))"""
    for table, (column, condition) in _DATED.items()
}
_COUNT_DATED = {table: f"SELECT count(*) FROM {table} WHERE {condition}" for table, (_, condition) in _DATED.items()}
#: Dates that show that time has passed, by table and column; each has an index.
_DATES = (
    *(("event_logs", "date"), ("jobs", "submission_time"), ("jobs", "start_time"), ("jobs", "stop_time")),
    ("resource_logs", "date_start"),
)
_FIRSTS = ", ".join(f"(SELECT min({date}) FROM {table} WHERE {date} > 0)" for table, date in _DATES)
_LASTS = ", ".join(f"(SELECT max({date}) FROM {table} WHERE {date} <= %(until)s)" for table, date in _DATES)
_LAST_SIGN = f"SELECT GREATEST({_LASTS}, 0)"
#: The first date in the database, and the date of the last purge.
_SIGNS = f"""
    SELECT COALESCE(LEAST({_FIRSTS}), 0), COALESCE((SELECT max(date) FROM event_logs WHERE type = %s), 0)"""


class EndedPlace(NamedTuple):
    """A position in the list of ended jobs."""

    date: int = 0
    id: int = 0


class Piece(NamedTuple):
    """A batch of rows of a log."""

    last: int  #: the id after which the next batch begins
    old: Sequence[int]  #: the rows that may be deleted
    is_end: bool  #: no old row follows


class SignsOfLife(NamedTuple):
    """The date of the first stored row, and the date of the last purge; 0 = none."""

    first: int
    last_purge: int


_JOBS_OF_RESOURCE = """
    SELECT DISTINCT m.moldable_job_id FROM assigned_resources a
    JOIN moldable_job_descriptions m ON m.moldable_id = a.moldable_job_id WHERE a.resource_id = %s ORDER BY 1"""
_NOT_ACCOUNTED = "SELECT job_id FROM jobs WHERE job_id = ANY(%s) AND accounted = 'NO' ORDER BY job_id"
#: Logs of plans, whose old rows are found by the date of the scheduling pass only.
_FORMER_PLANS = ("gantt_jobs_predictions_log", "gantt_jobs_resources_log")
ALTERNATIVES = "SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = ANY(%(ids)s)"
_GROUPS = f"SELECT res_group_id FROM job_resource_groups WHERE res_group_moldable_id IN ({ALTERNATIVES})"
_EVENTS_OF_JOBS = "SELECT event_id FROM event_logs WHERE job_id = ANY(%(ids)s)"
#: The rows of jobs, in an order of deletion in which each condition still finds its rows.
ROWS_OF_JOBS = (
    f"job_resource_descriptions WHERE res_job_group_id IN ({_GROUPS})",
    f"job_resource_groups WHERE res_group_moldable_id IN ({ALTERNATIVES})",
    *(
        f"{table} WHERE moldable_job_id IN ({ALTERNATIVES})"
        for table in (
            "assigned_resources",
            "gantt_jobs_predictions",
            "gantt_jobs_predictions_visu",
            "gantt_jobs_predictions_log",
            "gantt_jobs_sets",
            "gantt_jobs_sets_visu",
            "gantt_jobs_resources_log",
        )
    ),
    "moldable_job_descriptions WHERE moldable_job_id = ANY(%(ids)s)",
    f"event_log_hostnames WHERE event_id IN ({_EVENTS_OF_JOBS})",
    "job_dependencies WHERE job_id = ANY(%(ids)s) OR job_id_required = ANY(%(ids)s)",
    "frag_jobs WHERE frag_id_job = ANY(%(ids)s)",
    *(
        f"{table} WHERE job_id = ANY(%(ids)s)"
        for table in (
            "event_logs",
            "job_types",
            "job_state_logs",
            "walltime_change",
            "challenges",
            "job_runs",
            "job_reasons",
            "job_waits",
            "job_predictions",
            "job_ends",
            "job_usage",
            "job_curves",
            "reservation_jobs",
            "token_jobs",
            "auto_resubmissions",
            "jobs",
        )
    ),
)
#: Ended advance reservations without remaining jobs whose frame is accounted.
_OLD_RESERVATIONS = """
    SELECT v.reservation_id FROM reservations v
    WHERE v.ended <> 0 AND v.ended < %s
      AND NOT EXISTS (SELECT 1 FROM reservation_jobs i JOIN jobs j ON j.job_id = i.job_id
        WHERE i.reservation_id = v.reservation_id)
      AND NOT EXISTS (SELECT 1 FROM jobs f WHERE f.job_id = v.frame_id AND f.accounted = 'NO')
    ORDER BY v.reservation_id LIMIT %s"""
_FRAMES = "SELECT frame_id FROM reservations WHERE reservation_id = ANY(%s) AND frame_id <> 0"
_SERIES = "SELECT DISTINCT series_id FROM reservations WHERE reservation_id = ANY(%s) AND series_id <> 0"
#: Ended series without remaining reservations.
_EMPTY_SERIES = """
    DELETE FROM reservation_series s WHERE s.series_id = ANY(%s) AND s.ended <> 0
      AND NOT EXISTS (SELECT 1 FROM reservations v WHERE v.series_id = s.series_id AND v.series_id <> 0)"""
_TABLES_OF_RESERVATIONS = (
    "reservation_acl",
    "reservation_jobs",
    "reservation_revisions",
    "reservation_changes",
    "reservation_logs",
    "reservation_intervals",
    "reservation_usage",
    "reservations",
)


class Retention(Table):
    """Old rows of growing tables."""

    def signs_of_life(self) -> SignsOfLife:
        ((first, last_purge),) = self._tx.rows(_SIGNS, (EventType.DATABASE_PURGED,))
        return SignsOfLife(first, last_purge)

    def last_sign(self, until: int) -> int:
        """Return the last date in the tables that is not after ``until``."""
        date: int = self._tx.value(_LAST_SIGN, {"until": until})
        return date

    def jobs(self, ended_before: int, after: EndedPlace, limit: int) -> list[EndedPlace]:
        """Return the next jobs that may be deleted."""
        values = {"before": ended_before, "date": after.date, "id": after.id, "limit": limit}
        return [EndedPlace(*row) for row in self._tx.rows(_JOBS, values)]

    def piece(self, log: str, before: int, after: int, limit: int) -> Piece:
        """Return the next batch of a log, with the rows that are older than ``before`` and not needed."""
        rows = self._tx.rows(LOGS[log].find, {"before": before, "id": after, "limit": limit})
        old = [row[0] for row in rows if row[1] < before and row[2]]
        is_young = all(row[1] >= before for row in rows)
        return Piece(rows[-1][0] if rows else after, old, is_young or len(rows) < limit)

    def remove(self, log: str, ids: Sequence[int]) -> None:
        old_rows = LOGS[log]
        for table in old_rows.tables:
            self._tx.execute(f"DELETE FROM {table} WHERE {old_rows.key} = ANY(%s)", (list(ids),))
        if old_rows.topic:
            self._changed(old_rows.topic)

    def remove_before(self, table: str, date: int, limit: int) -> int:
        """Delete at most ``limit`` old rows of a plan log or of the accounting; return the number of deleted rows."""
        if table == "accounting":
            self._changed(Topic.ACCOUNTING)
        return self._tx.execute(_DELETE_DATED[table], {"before": date, "limit": limit})

    def count_before(self, table: str, date: int) -> int:
        """Return the number of rows of a table that are older than a date."""
        count: int = self._tx.value(_COUNT_DATED[table], {"before": date})
        return count

    def jobs_of_resource(self, resource_id: int) -> list[int]:
        """Return the jobs that ever used a resource, by id."""
        return self._tx.column(_JOBS_OF_RESOURCE, (resource_id,))

    def not_accounted(self, ids: Collection[int]) -> list[int]:
        """Return the given jobs that are not accounted yet, by id."""
        return self._tx.column(_NOT_ACCOUNTED, (list(ids),))

    def remove_jobs(self, ids: Collection[int], *, with_former_plans: bool = True) -> None:
        """Delete ended jobs from all tables; the logs of plans have no index by job."""
        for rows in ROWS_OF_JOBS:
            if with_former_plans or not rows.startswith(_FORMER_PLANS):
                self._tx.execute(f"DELETE FROM {rows}", {"ids": list(ids)})
        self._changed(Topic.JOBS, Topic.GANTT, Topic.EVENTS)

    def old_reservations(self, ended_before: int, limit: int | None) -> list[int]:
        """Return the advance reservations that may be deleted, by id; ``limit`` None: all."""
        return self._tx.column(_OLD_RESERVATIONS, (ended_before, limit))

    def remove_reservations(self, ids: Collection[int]) -> None:
        """Delete ended advance reservations and their frames from all tables."""
        self.remove_jobs(self._tx.column(_FRAMES, (list(ids),)))
        series = self._tx.column(_SERIES, (list(ids),))
        for table in _TABLES_OF_RESERVATIONS:
            self._tx.execute(f"DELETE FROM {table} WHERE reservation_id = ANY(%s)", (list(ids),))
        self._tx.execute(_EMPTY_SERIES, (series,))
        self._changed(Topic.RESERVATIONS)
