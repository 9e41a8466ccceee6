"""More time of running jobs, as far as the budgets of their projects allow it.

Requests of users and passes that grant them use this module.  See docs/administrator-guide.rst, "Budgets".
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oar.lib.accounts import budgets
from oar.lib.accounts.budgets import BESTEFFORT, BudgetUse, Exhaustion, NewRequest
from oar.lib.accounts.records import Budget
from oar.lib.jobs.states import BudgetCount, ProjectMode
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.records import Job


def find_exhaustion(tx: "Transaction", config: "Config", job: "Job", end: int, seconds: int) -> Exhaustion | None:
    """Return the budget that does not allow a running job more time; None if all do.

    ``end``: of its present walltime.  If use counts, a job may grow while something is left; otherwise the additional
    time must fit into the periods in which it lies.
    """
    if config.projects is ProjectMode.FREE or job.queue == BESTEFFORT or not tx.budgets.above(job.project, tx.now):
        return None
    if config.budget_counts is BudgetCount.USE:
        new = NewRequest(job.queue, job.project, 0, _is_accounted(tx, config, job), user=job.user)
    else:
        weight = tx.budgets.weight(job.assigned_moldable, all_types=config.accounting_all_types)
        windows = [(end, end + seconds)]
        new = NewRequest(job.queue, job.project, weight * seconds, _is_accounted(tx, config, job), windows, job.user)
    return budgets.exhaustion_of(tx, config, new)


class Growth:
    """Grants more time to running jobs of a pass: it reads the uses of their budgets once, and subtracts the grants."""

    def __init__(self, tx: "Transaction", config: "Config", projects: Iterable[str]) -> None:
        """Take the locks of all budgets of the projects in one order, so that others who need several do not wait."""
        self._tx = tx
        self._config = config
        self._counts_requests = config.budget_counts is BudgetCount.REQUESTS
        self._uses: dict[Budget, BudgetUse] | None = None
        self._above: dict[str, list[Budget]] = {}
        if config.projects is not ProjectMode.FREE:
            self._above = {project: tx.budgets.above(project, tx.now) for project in set(projects)}
        if self._counts_requests:
            budgets.lock(tx, (budget for above in self._above.values() for budget in above))

    def grant(self, job: "Job", end: int, seconds: int, *, least: int = 1) -> int:
        """Return how many of additional seconds the budgets of a running job allow; 0 if fewer than ``least``.

        ``end``: of its present walltime.
        """
        above = self._above.get(job.project, [])
        if not above or job.queue == BESTEFFORT or not _is_accounted(self._tx, self._config, job):
            return seconds
        uses = self._read_uses()
        if not self._counts_requests:
            is_used_up = any(uses[budget].is_exhausted() for budget in budgets.in_force(above, self._tx.now))
            return 0 if is_used_up else seconds
        weight = self._tx.budgets.weight(job.assigned_moldable, all_types=self._config.accounting_all_types)
        fitting = min(fitting_seconds(uses[budget], end, seconds, weight) for budget in above)
        if fitting < least:
            return 0
        for budget in above:
            used = weight * _seconds_inside(budget, end, fitting)
            uses[budget] = uses[budget]._replace(counted=uses[budget].counted + used)
        return fitting

    def _read_uses(self) -> dict[Budget, BudgetUse]:
        if self._uses is None:
            all_budgets = list({budget for above in self._above.values() for budget in above})
            self._uses = {use.budget: use for use in budgets.read_uses(self._tx, self._config, all_budgets)}
        return self._uses


def fitting_seconds(use: BudgetUse, end: int, seconds: int, weight: float) -> int:
    """Return for how many of ``seconds`` from ``end`` on a budget leaves enough; each second inside counts ``weight``.

    >>> budget = Budget("physics", start=100, end=200, hours=1)
    >>> use = BudgetUse(budget, used=0, counted=3580, since=100)  # 20 resource seconds are left
    >>> [fitting_seconds(use, end, 50, weight=2) for end in (0, 70, 120, 195, 200)]
    [50, 40, 10, 50, 50]
    """
    inside = _seconds_inside(use.budget, end, seconds)
    possible = 0 if use.left <= 0 else inside if not weight else int(use.left // weight)
    return seconds if possible >= inside else max(0, use.budget.start - end) + possible


def _seconds_inside(budget: Budget, end: int, seconds: int) -> int:
    return max(0, min(end + seconds, budget.end) - max(end, budget.start))


def _is_accounted(tx: "Transaction", config: "Config", job: "Job") -> bool:
    inside = tx.reservations.select(list(tx.reservations.of_jobs([job.id]).values()))
    types = JobTypes(tx.jobs.types([job.id], current=True).get(job.id, ()))
    return budgets.is_accounted(config, types.names, is_flexible=inside[0].is_flexible if inside else None)
