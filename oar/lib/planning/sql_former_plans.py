"""Plans of former rounds, where they are kept: SCHEDULER_LOG_DECISIONS (``tx.former_plans``)."""

from typing import NamedTuple

from oar.lib.db.predicates import NO_FRAME
from oar.lib.db.statements import Table

#: The last plan of each of so many parts of a period: an index is asked once for each of them.
_DATES = """
    SELECT DISTINCT found.date FROM generate_series(0, %(parts)s::numeric - 1) AS part,
        trunc((%(stop)s::numeric - %(start)s) / %(parts)s, 3) AS width,
        LATERAL (SELECT max(sched_date) AS date FROM gantt_jobs_predictions_log
            WHERE sched_date >= trunc(%(start)s + width * part)::bigint
              AND sched_date < CASE WHEN part < %(parts)s - 1 THEN trunc(%(start)s + width * (part + 1))::bigint
                  ELSE %(stop)s::bigint END) found
    WHERE found.date IS NOT NULL ORDER BY 1"""
_LAST = "SELECT COALESCE(max(sched_date), 0) FROM gantt_jobs_predictions_log WHERE sched_date <= %s"
_JOBS = f"""
    SELECT j.job_id, COALESCE(j.job_name, ''), j.job_user, l.start_time, m.moldable_walltime, j.start_time, j.stop_time,
        ARRAY(SELECT r.resource_id FROM gantt_jobs_resources_log r
            WHERE r.sched_date = l.sched_date AND r.moldable_job_id = l.moldable_job_id ORDER BY 1)
    FROM gantt_jobs_predictions_log l
    JOIN moldable_job_descriptions m ON m.moldable_id = l.moldable_job_id
    JOIN jobs j ON j.job_id = m.moldable_job_id
    WHERE l.sched_date = %(date)s AND l.start_time >= %(date)s AND {NO_FRAME}
    ORDER BY l.start_time, j.job_id LIMIT %(most)s"""


class FormerlyPlanned(NamedTuple):
    """A job as a former round planned it, and what came of it.  Dates are epoch seconds, 0 = not yet."""

    id: int
    name: str
    user: str
    start: int  #: as it was planned
    walltime: int
    real_start: int
    real_stop: int
    resources: list[int]


class FormerPlans(Table):
    """Questions about what was planned once."""

    def dates(self, start: int, stop: int, parts: int) -> list[int]:
        """Return dates of rounds of a period whose plans are kept: in each of so many parts the last."""
        rows = self._tx.rows(_DATES, {"start": start, "stop": stop, "parts": parts})
        return [row[0] for row in rows]

    def last(self, date: int) -> int:
        """Return the date of the last plan up to a date, 0: none is kept."""
        return int(self._tx.value(_LAST, (date,)))

    def jobs(self, date: int, most: int) -> list[FormerlyPlanned]:
        """Return the jobs that the round of a date planned to start then or later, those that start first."""
        return [FormerlyPlanned(*row) for row in self._tx.rows(_JOBS, {"date": date, "most": most})]
