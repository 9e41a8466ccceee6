"""Budgets of projects: what is used of them, and what happens to jobs when one is used up.

The use is that of accounting and of the jobs that are not accounted yet, of a project and of all projects below it.
Jobs of the queue besteffort do not count.  See docs/administrator-guide.rst, "Budgets".
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.accounts.projects import ancestors, entries_of
from oar.lib.accounts.records import NO_END, Budget
from oar.lib.accounts.sql_budgets import Period
from oar.lib.accounts.states import OnExhaustion
from oar.lib.db.lock_keys import BUDGET_LOCK_CLASS
from oar.lib.jobs.accounting import accounting_rules
from oar.lib.jobs.states import BudgetCount, JobTypeName, ProjectMode

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction

HOUR = 3600
#: The queue whose jobs do not count.
BESTEFFORT = "besteffort"
#: Percentages of use at which managers get a mail.
THRESHOLDS = (80, 100)
#: The strictest first.
_STRICTNESS = (OnExhaustion.REFUSE, OnExhaustion.WAIT, OnExhaustion.BESTEFFORT)


class BudgetUse(NamedTuple):
    """A budget, and what is used of it."""

    budget: Budget
    used: float  #: resource seconds
    counted: float  #: resource seconds that count against it: the same, or with what live and waiting jobs request
    since: int  #: start of the first window of accounting that counts

    @property
    def left(self) -> float:
        """The resource seconds that are left; negative if more is used."""
        return self.budget.hours * HOUR - self.counted

    def is_exhausted(self, requested: float | None = None) -> bool:
        """Return whether it is used up; ``requested``: resource seconds that must be left, None if use counts."""
        return self.left <= 0 or self.left < (requested or 0)

    @property
    def threshold(self) -> int:
        """The last of THRESHOLDS that is reached; 0: none."""
        limit = self.budget.hours * HOUR
        return max((percent for percent in THRESHOLDS if self.counted * 100 >= limit * percent), default=0)

    def exhaustion_date(self, now: int) -> int | None:
        """Return when it will be used up at the present rate; None if that is not in its period."""
        elapsed = now - self.since
        if self.left <= 0 or self.used <= 0 or elapsed <= 0 or not self.since:
            return None
        date = now + self.left * elapsed / self.used
        return int(date) if date < self.budget.end else None

    def __str__(self) -> str:
        """Return the used and the total hours, and the period."""
        return f"{self.counted / HOUR:,.1f} of {self.budget.hours:,.10g} resource hours {self.budget.period}"


class BudgetNotice(NamedTuple):
    """A budget of which more than a threshold is used."""

    use: BudgetUse
    percent: int


class Exhaustion(NamedTuple):
    """The budget that stops a job."""

    use: BudgetUse
    requested: float | None  #: resource seconds of the job; None if use counts
    resumes: int  #: start of the next period with a budget; 0: there is none
    shows_use: bool = True  #: false: the user may not see what others used

    @property
    def text(self) -> str:
        """One sentence that names the project, the use and the period."""
        budget = self.use.budget
        figures = str(self.use) if self.shows_use else f"{budget.hours:,.10g} resource hours {budget.period}"
        if self.requested is None or self.use.left <= 0:
            return f'The budget of the project "{budget.project}" is used up: {figures}.'
        hours = f"This request has {self.requested / HOUR:,.1f} resource hours"
        left = f"{self.use.left / HOUR:,.1f} are left" if self.shows_use else "fewer are left"
        return f'{hours}, but {left} in the budget of the project "{budget.project}": {figures}.'


class Replaced(NamedTuple):
    """What new jobs or a new reservation replace, which does not count; 0: nothing."""

    job: int = 0  #: a waiting job
    reservation: int = 0  #: an advance reservation


_NOTHING_REPLACED = Replaced()


def read_uses(
    tx: "Transaction",
    config: "Config",
    budgets: Sequence[Budget],
    *,
    replaced: Replaced = _NOTHING_REPLACED,
    with_waiting: bool = True,
    with_reserved: bool = False,
) -> list[BudgetUse]:
    """Return the use of budgets until now.

    ``with_waiting``: with BUDGET_COUNTS=requests, count waiting jobs, too.  ``with_reserved``: count live reservations
    in the periods that they overlap; with BUDGET_COUNTS=requests they always count.
    """
    if not budgets:
        return []
    bounds = [Period(budget.project, *budget.bounds(config.accounting_window)) for budget in budgets]
    rules = accounting_rules(config)
    is_by_use = config.budget_counts is BudgetCount.USE
    used = counted = tx.budgets.used(bounds, rules)
    if with_reserved or not is_by_use:
        running = used if is_by_use else tx.budgets.used(bounds, rules, is_ahead=True)
        reserved = tx.budgets.reserved(bounds, with_started=is_by_use, but=replaced.reservation)
        waiting = dict[str, int]()
        if with_waiting and not is_by_use:
            waiting = tx.budgets.requested({budget.project for budget in budgets}, rules, but=replaced.job)
        requested = [waiting.get(budget.project, 0) if budget.is_in_force(tx.now) else 0 for budget in budgets]
        counted = [sum(parts) for parts in zip(running, reserved, requested, strict=True)]
    rows = zip(budgets, used, counted, bounds, strict=True)
    return [BudgetUse(budget, seconds, total, bound.begin) for budget, seconds, total, bound in rows]


class NewRequest(NamedTuple):
    """Jobs as far as budgets limit them."""

    queue: str
    project: str
    seconds: float  #: resource seconds that they request together
    is_accounted: bool = True  #: false: accounting counts their container or advance reservation instead
    windows: Sequence[tuple[int, int]] = ()  #: start and end of each reservation
    user: str = ""  #: who reads why it is refused; '': an administrator

    def limits(self, budget: Budget, now: int) -> bool:
        """Return whether a budget limits the jobs: that of the present, or of the periods of reservations."""
        if not self.windows:
            return budget.is_in_force(now)
        return any(start < budget.end and budget.start < end for start, end in self.windows)

    def seconds_in(self, budget: Budget) -> float:
        """Return the resource seconds that count in the period of a budget."""
        total = sum(end - start for start, end in self.windows)
        inside = sum(max(0, min(end, budget.end) - max(start, budget.start)) for start, end in self.windows)
        return self.seconds * inside / total if total else self.seconds


def exhaustion_of(
    tx: "Transaction", config: "Config", new: NewRequest, *, replaced: Replaced = _NOTHING_REPLACED, locks: bool = True
) -> Exhaustion | None:
    """Return the budget that does not allow new jobs; None if all do.

    Reservations must fit into what other live reservations leave.  If requests count, or for reservations, block other
    submissions of the projects until the end of the transaction, unless ``locks`` is false.
    """
    if config.projects is ProjectMode.FREE or new.queue == BESTEFFORT or not new.is_accounted:
        return None
    budgets = tx.budgets.above(new.project, min((start for start, _ in new.windows), default=tx.now))
    current = [budget for budget in budgets if new.limits(budget, tx.now)]
    if not current:
        return None
    is_by_use = config.budget_counts is BudgetCount.USE and not new.windows
    if locks and not is_by_use:
        lock(tx, current)
    uses = read_uses(tx, config, current, replaced=replaced, with_reserved=bool(new.windows))
    found = find_exhaustion([(use, None if is_by_use else new.seconds_in(use.budget)) for use in uses], budgets)
    return found and found._replace(shows_use=_shows_use(tx, config, found.use.budget, new.user))


def _shows_use(tx: "Transaction", config: "Config", budget: Budget, user: str) -> bool:
    """Return whether a user may see the use of a budget: if consumption is private, members and managers may."""
    if not config.api_accounting_private or not user:
        return True
    entries = entries_of(tx, user)
    return budget.project in {*tx.projects.usable(entries), *tx.projects.managed(entries)}


def lock(tx: "Transaction", budgets: Iterable[Budget]) -> None:
    """Block other submissions that budgets limit until the end of the transaction."""
    for name in sorted({budget.project for budget in budgets}):
        tx.system.take_named_lock(BUDGET_LOCK_CLASS, name)


def is_accounted(config: "Config", types: Collection[str], *, is_flexible: bool | None = None) -> bool:
    """Return whether accounting counts a job itself, not its container or advance reservation.

    ``is_flexible``: whether its advance reservation is; None: it is in none.
    """
    if is_flexible is not None:
        return is_flexible or accounting_rules(config).by_users
    return config.accounting_inner or JobTypeName.INNER not in types


def chains_of(parents: Mapping[str, str | None]) -> dict[str, list[str]]:
    """Return each project with the projects above it, from the bottom to the top; ``parents``: by name."""
    return {name: ancestors(parents, name) for name in parents}


def retention_warning(config: "Config", budgets: Iterable[Budget]) -> str:
    """Return a warning if accounting of the periods of budgets is purged before they end; '' otherwise."""
    seconds = config.retention_accounting * 86400
    longer = [budget for budget in budgets if 0 < seconds < budget.end - budget.start]
    if not longer:
        return ""
    project, days = longer[0].project, (longer[0].end - longer[0].start) // 86400
    length = f"lasts {days} days" if longer[0].start and longer[0].end < NO_END else "has no beginning or no end"
    more = f" (and {len(longer) - 1} more)" if len(longer) > 1 else ""
    purge = f"accounting is purged after {config.retention_accounting} days, and then counts no longer"
    way_out = "set RETENTION_ACCOUNTING to 0 (never), or to more days"
    return f"the budget of the project {project}{more} {length}, but {purge}: {way_out}"


def in_force(budgets: Iterable[Budget], date: int) -> list[Budget]:
    """Return the budgets whose period contains a date."""
    return [budget for budget in budgets if budget.is_in_force(date)]


def find_exhaustion(uses: Iterable[tuple[BudgetUse, float | None]], budgets: Collection[Budget]) -> Exhaustion | None:
    """Return the budget that stops a job, the strictest one; None if no budget is used up.

    ``uses``: of the budgets that limit the job, each with the resource seconds that it requests, None if use counts.
    ``budgets``: those of present and later periods.
    """
    exhausted = [(use, requested) for use, requested in uses if use.is_exhausted(requested)]
    if not exhausted:
        return None
    use, requested = min(
        exhausted, key=lambda pair: (_STRICTNESS.index(pair[0].budget.on_exhaustion), -pair[0].budget.end)
    )
    dates = [next_period(each.budget, budgets) for each, _ in exhausted]
    return Exhaustion(use, requested, max(dates) if all(dates) else 0)


def next_period(budget: Budget, budgets: Iterable[Budget]) -> int:
    """Return the start of the next period in which the project has hours; 0 if there is none."""
    later = [other for other in budgets if other.project == budget.project and other.start >= budget.end]
    return min((other.start for other in later if other.hours > 0), default=0)
