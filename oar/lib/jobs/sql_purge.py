"""The removal of jobs and advance reservations with everything that was ever written about them (``tx.purge``)."""

from collections.abc import Collection

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Table

_JOBS_OF_RESOURCE = """
    SELECT DISTINCT m.moldable_job_id FROM assigned_resources a
    JOIN moldable_job_descriptions m ON m.moldable_id = a.moldable_job_id WHERE a.resource_id = %s ORDER BY 1"""
_NOT_ACCOUNTED = "SELECT job_id FROM jobs WHERE job_id = ANY(%s) AND accounted = 'NO' ORDER BY job_id"

#: Tables that are walked by the date of a round alone.
_FORMER_PLANS = ("gantt_jobs_predictions_log", "gantt_jobs_resources_log")
ALTERNATIVES = "SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = ANY(%(ids)s)"
_GROUPS = f"SELECT res_group_id FROM job_resource_groups WHERE res_group_moldable_id IN ({ALTERNATIVES})"
_EVENTS = "SELECT event_id FROM event_logs WHERE job_id = ANY(%(ids)s)"

#: The rows of jobs, which are removed in an order in which each condition still finds its rows.
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
    f"event_log_hostnames WHERE event_id IN ({_EVENTS})",
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
            "reservation_jobs",
            "token_jobs",
            "auto_resubmissions",
            "jobs",
        )
    ),
)


#: Advance reservations that ended before a date, no job of which is kept, and whose frame is accounted.
_OLD_RESERVATIONS = """
    SELECT v.reservation_id FROM reservations v
    WHERE v.ended <> 0 AND v.ended < %s
      AND NOT EXISTS (SELECT 1 FROM reservation_jobs i JOIN jobs j ON j.job_id = i.job_id
        WHERE i.reservation_id = v.reservation_id)
      AND NOT EXISTS (SELECT 1 FROM jobs f WHERE f.job_id = v.frame_id AND f.accounted = 'NO')
    ORDER BY v.reservation_id LIMIT %s"""
_FRAMES = "SELECT frame_id FROM reservations WHERE reservation_id = ANY(%s) AND frame_id <> 0"
_SERIES = "SELECT DISTINCT series_id FROM reservations WHERE reservation_id = ANY(%s) AND series_id <> 0"
#: Series that are over, and of which no reservation is kept.
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


class Purge(Table):
    """The removal of jobs and advance reservations, and what is asked before it."""

    def jobs_of_resource(self, resource_id: int) -> list[int]:
        """Return the jobs that ever had a resource, by id."""
        return self._tx.column(_JOBS_OF_RESOURCE, (resource_id,))

    def not_accounted(self, ids: Collection[int]) -> list[int]:
        """Return those of some jobs that the accounting has not counted yet, by id."""
        return self._tx.column(_NOT_ACCOUNTED, (list(ids),))

    def remove(self, ids: Collection[int]) -> None:
        """Remove jobs that have ended from all tables."""
        for rows in ROWS_OF_JOBS:
            self._tx.execute(f"DELETE FROM {rows}", {"ids": list(ids)})
        self._changed(Topic.JOBS, Topic.GANTT, Topic.EVENTS)

    def remove_ended(self, ids: Collection[int]) -> None:
        """Remove jobs that have ended from all tables but those of former plans, which have no index by job."""
        for rows in ROWS_OF_JOBS:
            if not rows.startswith(_FORMER_PLANS):
                self._tx.execute(f"DELETE FROM {rows}", {"ids": list(ids)})
        self._changed(Topic.JOBS, Topic.GANTT, Topic.EVENTS)

    def old_reservations(self, ended_before: int, limit: int | None) -> list[int]:
        """Return advance reservations that may be removed, by id; None: without limit."""
        return self._tx.column(_OLD_RESERVATIONS, (ended_before, limit))

    def remove_reservations(self, ids: Collection[int]) -> None:
        """Remove advance reservations that have left the system, and their frames, from all tables."""
        self.remove(self._tx.column(_FRAMES, (list(ids),)))
        series = self._tx.column(_SERIES, (list(ids),))
        for table in _TABLES_OF_RESERVATIONS:
            self._tx.execute(f"DELETE FROM {table} WHERE reservation_id = ANY(%s)", (list(ids),))
        self._tx.execute(_EMPTY_SERIES, (series,))
        self._changed(Topic.RESERVATIONS)
