"""Budgets (``tx.budgets``): the resource hours of projects in periods, and what is used of them."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from oar.lib.accounts.records import Budget
from oar.lib.accounts.states import OnExhaustion
from oar.lib.db.lock_keys import BUDGET_LOCK_CLASS
from oar.lib.db.statements import Row, Table

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

    def lock(self, project: str) -> None:
        """Block other submissions that the budgets of a project limit until the end of the transaction."""
        self._tx.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (BUDGET_LOCK_CLASS, project))

    def store(self, budget: Budget) -> None:
        """Insert a budget, or replace that of the same project with the same start."""
        self._tx.execute(_STORE, tuple(budget))

    def remove(self, project: str, starts: Sequence[int]) -> int:
        """Remove the budgets of a project with these starts; return their number."""
        return self._tx.execute(_REMOVE, (project, list(starts)))


def _budget(row: Row) -> Budget:
    project, start, end, hours, on_exhaustion = row
    return Budget(project, start, end, hours, OnExhaustion(on_exhaustion))
