"""Budgets (``tx.budgets``): the resource hours of projects in periods, and what is used of them."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from oar.lib.accounts.records import Budget
from oar.lib.accounts.sql_accounts import CURRENT_STATES, RESOURCES, SECONDS
from oar.lib.accounts.states import OnExhaustion
from oar.lib.db.predicates import LIVE, NO_FRAME
from oar.lib.db.statements import Row, Table
from oar.lib.jobs.sql_accounting import ProjectUse

_COLUMNS = "project_name, period_start, period_end, resource_hours, on_exhaustion"
_ALL = f"""
    SELECT {_COLUMNS} FROM project_budgets
    WHERE %(projects)s::text[] IS NULL OR project_name = ANY(%(projects)s::text[])
    ORDER BY project_name, period_start"""
#: Budgets of a project and of the projects above it at a date, and those after it.
_ABOVE = f"""
    WITH RECURSIVE above AS (
        SELECT project_name, parent FROM projects WHERE project_name = %(project)s
        UNION SELECT p.project_name, p.parent FROM projects p JOIN above a ON p.project_name = a.parent)
    SELECT {_COLUMNS} FROM project_budgets JOIN above USING (project_name)
    WHERE period_end > %(date)s ORDER BY project_name, period_start"""
_PRESENT = f"SELECT {_COLUMNS}, notified FROM project_budgets WHERE period_end > %s ORDER BY project_name, period_start"
#: The threshold of mails is kept where the hours do not change.
_STORE = f"""
    INSERT INTO project_budgets ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (project_name, period_start) DO UPDATE
    SET period_end = EXCLUDED.period_end, resource_hours = EXCLUDED.resource_hours,
        on_exhaustion = EXCLUDED.on_exhaustion,
        notified = CASE WHEN project_budgets.resource_hours = EXCLUDED.resource_hours
            THEN project_budgets.notified ELSE 0 END"""
_REMOVE = "DELETE FROM project_budgets WHERE project_name = %s AND period_start = ANY(%s::bigint[])"

_MARK = """
    UPDATE project_budgets SET notified = %s
    WHERE project_name = %s AND period_start = %s AND resource_hours = %s AND notified < %s"""
#: What jobs request that wait without a date, as far as accounting will count it to their project; besteffort jobs do
#: not count.
_REQUESTED = f"""
    SELECT j.project, {SECONDS} FROM jobs j
    WHERE {LIVE} AND j.state IN ('Waiting', 'Hold') AND j.reservation = 'None'
      AND j.queue_name <> 'besteffort' AND j.project = ANY(%(projects)s::text[]) AND j.job_id <> %(but)s
      AND (%(by_users)s::boolean OR NOT EXISTS (
          SELECT FROM reservation_jobs i JOIN reservations r USING (reservation_id)
          WHERE i.job_id = j.job_id AND r.flex = 'NO'))
      AND (%(inner)s::boolean OR NOT EXISTS (
          SELECT FROM job_types t WHERE t.job_id = j.job_id AND t.type LIKE 'inner=%%'
            AND NOT EXISTS (SELECT FROM reservation_jobs i WHERE i.job_id = j.job_id)))
    GROUP BY 1"""
#: What live reservations will use from now on in periods, by jobs (``oarsub -r``) and advance reservations; those that
#: have started only if they are asked for.
_RESERVED = f"""
    WITH dated AS (
        SELECT j.project, GREATEST(j.start_time, %(now)s) AS begins,
            CASE WHEN j.state IN ({CURRENT_STATES}) THEN j.start_time ELSE GREATEST(j.start_time, %(now)s) END
                + m.walltime AS ends, m.resources
        FROM jobs j CROSS JOIN LATERAL (
            SELECT w.moldable_walltime AS walltime,
                COALESCE(NULLIF(w.resources, 0)::bigint, {RESOURCES}::bigint, 0) AS resources
            FROM moldable_job_descriptions w
            WHERE w.moldable_job_id = j.job_id
              AND (j.assigned_moldable_job = 0 OR w.moldable_id = j.assigned_moldable_job)
            ORDER BY resources * w.moldable_walltime DESC LIMIT 1) m
        WHERE {LIVE} AND j.reservation <> 'None' AND {NO_FRAME}
          AND (j.state IN ('Waiting', 'Hold', 'toAckReservation') OR %(started)s AND j.state IN ({CURRENT_STATES}))
          AND j.queue_name <> 'besteffort' AND j.project = ANY(%(projects)s::text[])
        UNION ALL
        SELECT v.project, GREATEST(v.start_time, %(now)s), v.end_time, COALESCE(
            NULLIF(cardinality(v.resources), 0),
            (SELECT max(w.resources) FROM moldable_job_descriptions w WHERE w.moldable_job_id = v.frame_id), 0)
        FROM reservations v
        WHERE v.ended = 0 AND (v.state IN ('', 'w', 'W') OR %(started)s AND v.state IN ('r', 'E'))
          AND v.queue_name <> 'besteffort' AND v.project = ANY(%(projects)s::text[])
          AND v.reservation_id <> %(but)s)
    SELECT p.number - 1, d.project,
        sum(d.resources * (LEAST(d.ends, p.ends) - GREATEST(d.begins, p.begins)))::bigint
    FROM unnest(%(begins)s::bigint[], %(ends)s::bigint[]) WITH ORDINALITY p (begins, ends, number)
    JOIN dated d ON d.begins < p.ends AND d.ends > p.begins AND d.ends > d.begins GROUP BY 1, 2"""


class PresentBudget(NamedTuple):
    """A budget, and the last threshold in percent about which its managers got a mail."""

    budget: Budget
    notified: int


class Budgets(Table):
    """Rows of ``project_budgets`` and ``accounting_costs``."""

    def all(self, projects: Collection[str] | None = None) -> list[Budget]:
        """Return the budgets of some or all projects, by name and period."""
        rows = self._tx.rows(_ALL, {"projects": None if projects is None else list(projects)})
        return [_budget(row) for row in rows]

    def present(self) -> list[PresentBudget]:
        """Return the budgets of all projects that are in force now or later, by name and period."""
        return [PresentBudget(_budget(row[:-1]), row[-1]) for row in self._tx.rows(_PRESENT, (self._tx.now,))]

    def mark_notified(self, budget: Budget, percent: int) -> bool:
        """Store that the managers got a mail at a threshold; return False if they had one before."""
        return self._tx.execute(_MARK, (percent, budget.project, budget.start, budget.hours, percent)) == 1

    def above(self, project: str, date: int) -> list[Budget]:
        """Return the budgets of a project and of those above it that are in force at a date or later."""
        return [_budget(row) for row in self._tx.rows(_ABOVE, {"project": project, "date": date})]

    def requested(
        self, projects: Collection[str], *, but: int = 0, by_users: bool = False, inner: bool = False
    ) -> dict[str, int]:
        """Return the resource seconds that jobs request that wait without a date, by project.

        ``but``: a job that does not count.  ``by_users``, ``inner``: jobs in advance reservations and in containers
        count themselves, as in accounting.
        """
        values = {"projects": list(projects), "but": but, "by_users": by_users, "inner": inner}
        return dict(self._tx.rows(_REQUESTED, values))

    def reserved(
        self, projects: Collection[str], periods: Sequence[tuple[int, int]], *, with_started: bool, but: int = 0
    ) -> list[ProjectUse]:
        """Return the resource seconds that live reservations will use in periods, from now on.

        ``with_started``: also what remains of those that have started.  ``but``: an advance reservation that does not
        count.
        """
        values = {
            "projects": list(projects),
            "begins": [begin for begin, _ in periods],
            "ends": [end for _, end in periods],
            "now": self._tx.now,
            "started": with_started,
            "but": but,
        }
        return [ProjectUse(*row) for row in self._tx.rows(_RESERVED, values)]

    def store(self, budget: Budget) -> None:
        """Insert a budget, or replace that of the same project with the same start."""
        self._tx.execute(_STORE, tuple(budget))

    def remove(self, project: str, starts: Sequence[int]) -> int:
        """Remove the budgets of a project with these starts; return their number."""
        return self._tx.execute(_REMOVE, (project, list(starts)))


def _budget(row: Row) -> Budget:
    project, start, end, hours, on_exhaustion = row
    return Budget(project, start, end, hours, OnExhaustion(on_exhaustion))
