"""Budgets (``tx.budgets``): the resource hours of projects in periods, and what is used of them."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from oar.lib.accounts.records import Budget
from oar.lib.accounts.sql_accounts import CURRENT_STATES, RESOURCES, SECONDS
from oar.lib.accounts.states import OnExhaustion
from oar.lib.db.predicates import LIVE, NO_FRAME
from oar.lib.db.statements import Row, Table
from oar.lib.jobs.sql_accounting import FACTOR, Rules, spans_cte
from oar.lib.nodes.states import ALWAYS_AVAILABLE

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
#: Projects with budgets, and the projects below them with the one that has the budget.
_TREE = """tree (owner, project) AS (
    SELECT project_name, project_name FROM projects WHERE project_name = ANY(%(owners)s::text[])
    UNION SELECT t.owner, p.project_name FROM tree t JOIN projects p ON p.parent = t.project)"""
#: Each period with the project that has the budget.
_PERIODS = """periods AS (
    SELECT * FROM unnest(%(owners)s::text[], %(begins)s::bigint[], %(ends)s::bigint[])
        WITH ORDINALITY p (owner, begins, ends, number))"""
_IN_TREE = "IN (SELECT project FROM tree)"
#: Jobs whose use is in no window yet.
_PENDING = f"""pending AS MATERIALIZED (
    SELECT j.job_id FROM jobs j
    WHERE {LIVE} AND j.state IN ({CURRENT_STATES}) AND j.queue_name <> 'besteffort' AND j.project {_IN_TREE}
    UNION ALL
    SELECT job_id FROM jobs
    WHERE accounted = 'NO' AND state IN ('Terminated', 'Error')
      AND queue_name <> 'besteffort' AND project {_IN_TREE})"""
#: ``ahead``: live jobs count as if they ended at the end of their walltime.
_PENDING_STOP = f"""(CASE WHEN NOT ({LIVE}) THEN j.stop_time WHEN %(ahead)s
    THEN GREATEST(%(now)s, j.start_time + (SELECT w.moldable_walltime FROM moldable_job_descriptions w
        WHERE w.moldable_id = j.assigned_moldable_job)) ELSE %(now)s END)"""
#: What was used in periods: windows of accounting with their costs, and the jobs that are in no window yet.
_USED = f"""
    WITH RECURSIVE {_TREE}, {_PERIODS}, {_PENDING},
    {spans_cte("IN (SELECT job_id FROM pending)", _PENDING_STOP, FACTOR)},
    parts AS (
        SELECT p.number, a.consumption::float8 AS seconds
        FROM periods p JOIN tree t USING (owner) JOIN accounting a ON a.accounting_project = t.project
        WHERE a.window_start >= p.begins AND a.window_start < p.ends
          AND a.consumption_type = 'USED' AND a.queue_name <> 'besteffort'
        UNION ALL
        SELECT p.number, c.extra
        FROM periods p JOIN tree t USING (owner) JOIN accounting_costs c ON c.accounting_project = t.project
        WHERE c.window_start >= p.begins AND c.window_start < p.ends
        UNION ALL
        SELECT p.number, s.adds * (LEAST(s.ends, p.ends) - GREATEST(s.begins, p.begins))
        FROM periods p JOIN tree t USING (owner)
        JOIN spans s ON s.project = t.project AND s.begins < p.ends AND s.ends > p.begins
        WHERE s.kind = 'USED' AND s.ends > s.begins)
    SELECT number, sum(seconds) FROM parts GROUP BY 1"""
#: What jobs request that wait without a date, as far as accounting will count it to their project; besteffort jobs do
#: not count.
_REQUESTED = f"""
    WITH RECURSIVE {_TREE}
    SELECT t.owner, {SECONDS} FROM jobs j JOIN tree t ON t.project = j.project
    WHERE {LIVE} AND j.state IN ('Waiting', 'Hold') AND j.reservation = 'None'
      AND j.queue_name <> 'besteffort' AND j.job_id <> %(but)s
      AND (%(by_users)s::boolean OR NOT EXISTS (
          SELECT FROM reservation_jobs i JOIN reservations r USING (reservation_id)
          WHERE i.job_id = j.job_id AND r.flex = 'NO'))
      AND (%(inner)s::boolean OR NOT EXISTS (
          SELECT FROM job_types t WHERE t.job_id = j.job_id AND t.type LIKE 'inner=%%'
            AND NOT EXISTS (SELECT FROM reservation_jobs i WHERE i.job_id = j.job_id)))
    GROUP BY 1"""
#: What live reservations will use from now on in periods, by jobs (``oarsub -r``) and advance reservations; those that
#: have started only if they are asked for.  Granted resources count with their cost factors.
_RESERVED = f"""
    WITH RECURSIVE {_TREE}, {_PERIODS}, dated AS (
        SELECT j.project, GREATEST(j.start_time, %(now)s) AS begins,
            CASE WHEN j.state IN ({CURRENT_STATES}) THEN j.start_time ELSE GREATEST(j.start_time, %(now)s) END
                + m.walltime AS ends, m.resources::float8 AS resources
        FROM jobs j CROSS JOIN LATERAL (
            SELECT w.moldable_walltime AS walltime,
                COALESCE(NULLIF(w.resources, 0)::bigint, {RESOURCES}::bigint, 0) AS resources
            FROM moldable_job_descriptions w
            WHERE w.moldable_job_id = j.job_id
              AND (j.assigned_moldable_job = 0 OR w.moldable_id = j.assigned_moldable_job)
            ORDER BY resources * w.moldable_walltime DESC LIMIT 1) m
        WHERE {LIVE} AND j.reservation <> 'None' AND {NO_FRAME}
          AND (j.state IN ('Waiting', 'Hold', 'toAckReservation') OR %(started)s AND j.state IN ({CURRENT_STATES}))
          AND j.queue_name <> 'besteffort' AND j.project {_IN_TREE}
        UNION ALL
        SELECT v.project, GREATEST(v.start_time, %(now)s), v.end_time, COALESCE(
            (SELECT sum({FACTOR}) FROM resources r WHERE r.resource_id = ANY(v.resources)),
            (SELECT max(w.resources) FROM moldable_job_descriptions w WHERE w.moldable_job_id = v.frame_id), 0)
        FROM reservations v
        WHERE v.ended = 0 AND (v.state IN ('', 'w', 'W') OR %(started)s AND v.state IN ('r', 'E'))
          AND v.queue_name <> 'besteffort' AND v.project {_IN_TREE} AND v.reservation_id <> %(but)s)
    SELECT p.number, sum(d.resources * (LEAST(d.ends, p.ends) - GREATEST(d.begins, p.begins)))
    FROM periods p JOIN tree t USING (owner)
    JOIN dated d ON d.project = t.project AND d.begins < p.ends AND d.ends > p.begins AND d.ends > d.begins
    GROUP BY 1"""

#: What a second of the resources of a started alternative counts.
_WEIGHT = f"""
    SELECT COALESCE(sum({FACTOR}), 0) FROM assigned_resources a JOIN resources r USING (resource_id)
    WHERE a.moldable_job_id = %s AND (%s OR r.type = 'default')"""
#: What a second of some resources counts.
_FACTORS = f"SELECT COALESCE(sum({FACTOR}), 0) FROM resources r WHERE r.resource_id = ANY(%s)"


class Period(NamedTuple):
    """A period in which the use of a project and of those below it is summed up."""

    project: str
    begin: int
    end: int  #: not part of it


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

    def used(self, periods: Sequence[Period], rules: Rules, *, is_ahead: bool = False) -> list[float]:
        """Return what was used in each period, in resource seconds times their cost factors.

        It is the sum of the windows of accounting and of the jobs that are not accounted yet, without the queue
        besteffort.  A window belongs to the period that contains its start.  ``is_ahead``: live jobs count until the
        end of their walltime.
        """
        values = {**rules._asdict(), "now": self._tx.now, "ahead": is_ahead, "end_of_time": ALWAYS_AVAILABLE}
        return self._sums(_USED, periods, values)

    def requested(self, projects: Collection[str], rules: Rules, *, but: int = 0) -> dict[str, int]:
        """Return the resource seconds that jobs request that wait without a date, by project, with those below it.

        ``but``: a job that does not count.
        """
        values = {"owners": list(projects), "but": but, "by_users": rules.by_users, "inner": rules.inner}
        return dict(self._tx.rows(_REQUESTED, values))

    def reserved(self, periods: Sequence[Period], *, with_started: bool, but: int = 0) -> list[float]:
        """Return the resource seconds that live reservations will use in each period, from now on.

        ``with_started``: also what remains of those that have started.  ``but``: an advance reservation that does not
        count.
        """
        return self._sums(_RESERVED, periods, {"now": self._tx.now, "started": with_started, "but": but})

    def weight(self, moldable: int, *, all_types: bool) -> float:
        """Return what a second of the resources of a started alternative counts, as accounting counts them."""
        return float(self._tx.value(_WEIGHT, (moldable, all_types)))

    def factors(self, resources: Collection[int]) -> float:
        """Return what a second of some resources counts together, in a granted advance reservation."""
        return float(self._tx.value(_FACTORS, (list(resources),)))

    def _sums(self, sql: str, periods: Sequence[Period], values: dict[str, Any]) -> list[float]:
        columns = (list(column) for column in zip(*periods, strict=True))
        sums: dict[int, float] = dict(
            self._tx.rows(sql, values | dict(zip(("owners", "begins", "ends"), columns, strict=True)))
        )
        return [sums.get(number, 0.0) for number, _ in enumerate(periods, start=1)]

    def store(self, budget: Budget) -> None:
        """Insert a budget, or replace that of the same project with the same start."""
        self._tx.execute(_STORE, tuple(budget))

    def remove(self, project: str, starts: Sequence[int]) -> int:
        """Remove the budgets of a project with these starts; return their number."""
        return self._tx.execute(_REMOVE, (project, list(starts)))


def _budget(row: Row) -> Budget:
    project, start, end, hours, on_exhaustion = row
    return Budget(project, start, end, hours, OnExhaustion(on_exhaustion))
