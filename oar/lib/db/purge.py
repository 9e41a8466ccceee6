"""The removal of jobs with everything that was ever written about them (``tx.purge``)."""

from collections.abc import Collection

from oar.lib.db.statements import Table
from oar.lib.facts.topics import Topic

_JOBS_OF_RESOURCE = """
    SELECT DISTINCT m.moldable_job_id FROM assigned_resources a
    JOIN moldable_job_descriptions m ON m.moldable_id = a.moldable_job_id WHERE a.resource_id = %s ORDER BY 1"""
_NOT_ACCOUNTED = "SELECT job_id FROM jobs WHERE job_id = ANY(%s) AND accounted = 'NO' ORDER BY job_id"

_ALTERNATIVES = "SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = ANY(%(ids)s)"
_GROUPS = f"SELECT res_group_id FROM job_resource_groups WHERE res_group_moldable_id IN ({_ALTERNATIVES})"
_EVENTS = "SELECT event_id FROM event_logs WHERE job_id = ANY(%(ids)s)"

#: Rows that are removed, in an order in which each condition still finds its rows.
_DELETES = (
    f"job_resource_descriptions WHERE res_job_group_id IN ({_GROUPS})",
    f"job_resource_groups WHERE res_group_moldable_id IN ({_ALTERNATIVES})",
    *(
        f"{table} WHERE moldable_job_id IN ({_ALTERNATIVES})"
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
            "auto_resubmissions",
            "jobs",
        )
    ),
)


class Purge(Table):
    """The removal of jobs, and what is asked before it."""

    def jobs_of_resource(self, resource_id: int) -> list[int]:
        """Return the jobs that ever had a resource, by id."""
        return self._tx.column(_JOBS_OF_RESOURCE, (resource_id,))

    def not_accounted(self, ids: Collection[int]) -> list[int]:
        """Return those of some jobs that the accounting has not counted yet, by id."""
        return self._tx.column(_NOT_ACCOUNTED, (list(ids),))

    def remove(self, ids: Collection[int]) -> None:
        """Remove jobs that have ended from all tables."""
        for rows in _DELETES:
            self._tx.execute(f"DELETE FROM {rows}", {"ids": list(ids)})
        self._changed(Topic.JOBS, Topic.GANTT, Topic.EVENTS)
