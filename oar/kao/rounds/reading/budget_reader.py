"""The budgets of projects in a round: which waiting jobs they stop, and whose managers get a mail.

What is used changes slowly, and its statement reads many rows: it is cached for some seconds.  If requests count, it
changes with each start and end of a job, and with each reservation.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.kao.facts.snapshot import BudgetStop
from oar.kao.rounds.reading.snapshot_jobs import CachedJob
from oar.lib.accounts import budgets
from oar.lib.accounts.budgets import BESTEFFORT, HOUR, BudgetNotice, BudgetUse
from oar.lib.accounts.records import Budget
from oar.lib.jobs.states import CURRENT, BudgetCount, JobTypeName, Reservation
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction

#: For so many seconds the use of budgets is not read again, unless a budget changes.
LIFETIME = 30
#: The space of a flexible advance reservation; users name other spaces.
_OF_FLEXIBLE = re.compile(r"ar\d+", re.ASCII)


class BudgetState(NamedTuple):
    """The budgets that limit jobs in a round."""

    uses: Sequence[BudgetUse] = ()  #: of those in force
    budgets: Sequence[Budget] = ()  #: in force now or later
    chains: Mapping[str, Sequence[str]] = {}  #: each project of live jobs with those above it
    notices: Sequence[BudgetNotice] = ()


class BudgetReader:
    """Reads the budgets, and caches what is used of them."""

    def __init__(self, config: "Config") -> None:
        self._config = config
        self._uses: Sequence[BudgetUse] = ()
        self._read_at = 0
        self._live: frozenset[int] = frozenset()

    def forget(self) -> None:
        self._read_at = 0

    def read(self, tx: "Transaction", jobs: Collection[CachedJob]) -> BudgetState:
        """Return the state of all budgets in force; ``jobs``: all live jobs."""
        present = tx.budgets.present()
        current = budgets.in_force((row.budget for row in present), tx.now)
        is_by_use = self._config.budget_counts is BudgetCount.USE
        live = frozenset(() if is_by_use else (job.row.id for job in jobs if _counts(job)))
        is_same = [use.budget for use in self._uses] == current and live == self._live
        if not is_same or not 0 <= tx.now - self._read_at < LIFETIME:
            self._uses = budgets.read_uses(tx, self._config, current, with_waiting=False)
            self._read_at, self._live = tx.now, live
        notified = {row.budget: row.notified for row in present}
        return BudgetState(
            self._uses,
            [row.budget for row in present],
            budgets.chains_of(tx.projects.parents_above({job.row.project for job in jobs})) if current else {},
            [
                BudgetNotice(use, percent)
                for use in self._uses
                if (percent := use.threshold) and percent > notified[use.budget]
            ],
        )


def _counts(job: CachedJob) -> bool:
    """Return whether a job counts with its request: it holds resources, or will at a known date."""
    return job.row.state in CURRENT or job.row.reservation is not Reservation.NONE


def find_stops(state: BudgetState, config: "Config", jobs: Iterable[CachedJob]) -> dict[int, BudgetStop]:
    """Return the waiting jobs that budgets do not allow to start, with the budget.

    With BUDGET_COUNTS=requests, those jobs start whose requests fit into what is left, in the order of submission.
    """
    left = {use.budget.project: use for use in state.uses}
    stops: dict[int, BudgetStop] = {}
    by_project: dict[str, BudgetStop | None] = {}  # if use counts, all jobs of a project are equal
    is_by_use = config.budget_counts is BudgetCount.USE
    for job in sorted(jobs, key=lambda job: job.row.id) if left else ():
        names = [name for name in state.chains.get(job.row.project, ()) if name in left]
        if not names or not _is_limited(config, job):
            continue
        if is_by_use and job.row.project in by_project:
            stop = by_project[job.row.project]
        else:
            requested = None if is_by_use else _requested(job)
            stop = _find_stop(state, [left[name] for name in names], requested)
            by_project[job.row.project] = stop
            if stop is None and requested:
                left |= {name: left[name]._replace(counted=left[name].counted + requested) for name in names}
        if stop:
            stops[job.row.id] = stop
    return stops


def _find_stop(state: BudgetState, uses: Sequence[BudgetUse], requested: float | None) -> BudgetStop | None:
    exhaustion = budgets.find_exhaustion([(use, requested) for use in uses], state.budgets)
    if exhaustion is None:
        return None
    use = exhaustion.use
    return BudgetStop(use.budget.project, use.counted / HOUR, use.budget.hours, exhaustion.resumes)


def _is_limited(config: "Config", job: CachedJob) -> bool:
    if not job.is_waiting or job.row.reservation is not Reservation.NONE or job.row.queue == BESTEFFORT:
        return False
    types = JobTypes(job.types)
    is_flexible = True if _OF_FLEXIBLE.fullmatch(types.value(JobTypeName.ALLOWED) or "") else None
    return budgets.is_accounted(config, types.names, is_flexible=is_flexible)


def _requested(job: CachedJob) -> float:
    """Return the resource seconds that the largest alternative of a job requests."""
    match = re.match(r"R=(\d+)", job.row.message)
    size = int(match[1]) if match else 0
    return float(max(((each.resources or size) * each.walltime for each in job.moldables), default=0))
