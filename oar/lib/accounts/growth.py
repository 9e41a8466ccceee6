"""More time of running jobs, as far as the budgets of their projects allow it.

Requests of users and passes that grant them use this module.  See docs/administrator-guide.rst, "Budgets".
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oar.lib.accounts import budgets
from oar.lib.accounts.budgets import BESTEFFORT, Exhaustion, NewRequest
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


def affordable(tx: "Transaction", config: "Config", job: "Job", end: int, seconds: int) -> int:
    """Return how many of additional seconds the budgets of a running job allow."""
    while seconds > 0 and (exhaustion := find_exhaustion(tx, config, job, end, seconds)):
        if not exhaustion.requested or exhaustion.use.left <= 0:
            return 0
        seconds = min(seconds - 1, int(exhaustion.use.left * seconds // exhaustion.requested))
    return seconds


def lock(tx: "Transaction", config: "Config", projects: Iterable[str]) -> None:
    """Take the locks of all budgets of some projects in one order, so that others who need several do not wait."""
    if config.projects is not ProjectMode.FREE and config.budget_counts is BudgetCount.REQUESTS:
        above = (budget for project in set(projects) for budget in tx.budgets.above(project, tx.now))
        budgets.lock(tx, above)


def _is_accounted(tx: "Transaction", config: "Config", job: "Job") -> bool:
    inside = tx.reservations.select(list(tx.reservations.of_jobs([job.id]).values()))
    types = JobTypes(tx.jobs.types([job.id], current=True).get(job.id, ()))
    return budgets.is_accounted(config, types.names, is_flexible=inside[0].is_flexible if inside else None)
