"""Accounting: store the resource consumption of ended jobs per time window, and report it per user and project."""

from collections import defaultdict
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.errors import OarError
from oar.lib.db.lock_keys import ACCOUNTING_LOCK
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.jobs.sql_accounting import Rules, WindowChange

if TYPE_CHECKING:
    from oar.lib.access.records import User
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.sql_accounting import Consumption

#: Number of jobs in one transaction.
BATCH = 10_000


class AccountingIsRunning(OarError):
    """Another process is running the accounting."""


class OtherWindowWidth(OarError):
    """The table contains windows whose width differs from ACCOUNTING_WINDOW."""


class Batch(NamedTuple):
    """Jobs that were accounted in one transaction, and the changes of their windows."""

    ids: tuple[int, ...]
    not_applicable: frozenset[int]
    changes: tuple[WindowChange, ...]


def accounting_rules(config: "Config") -> Rules:
    return Rules(
        config.accounting_window,
        all_types=config.accounting_all_types,
        subtract_suspended=config.accounting_subtract_suspended,
        inner=config.accounting_inner,
        by_users=config.reservation_accounting == "users",
    )


def count(database: "Database", rules: Rules, since: int = 0) -> Generator[Batch, None, None]:
    """Account the jobs that ended since `since` and are not accounted yet, with one transaction per batch.

    After an interruption, the next run continues after the last batch. Raises AccountingIsRunning, OtherWindowWidth.
    """
    with database.hold_lock(ACCOUNTING_LOCK) as lock:
        if lock is None:
            raise _another_runs(database)
        with database.snapshot() as tx:
            other = tx.accounting.other_width(rules.width)
        if other is not None:
            text = f"The table has windows of {other} s, ACCOUNTING_WINDOW is {rules.width}: use --reinitialize."
            raise OtherWindowWidth(text)
        last = 0
        while True:
            with database.begin() as tx:
                ids = tx.accounting.not_counted(BATCH, after=last, since=since)
                if not ids:
                    return
                batch = _count(tx, ids, rules)
            last = ids[-1]
            yield batch


def recount(database: "Database", rules: Rules, user: "User") -> Generator[Batch, None, None]:
    """Delete all windows and account all ended jobs again, in one transaction, which the audit log names.

    Readers see the old rows until the commit. Raises AccountingIsRunning.
    """
    with database.hold_lock(ACCOUNTING_LOCK) as lock:
        if lock is None:
            raise _another_runs(database)
        with database.begin() as tx:
            tx.accounting.clear()
            audit.record(tx, user, AuditAction.CHANGE, "accounting", Values(new="all ended jobs counted again"))
            last = 0
            while ids := tx.accounting.ended(BATCH, after=last):
                yield _count(tx, ids, rules)
                last = ids[-1]


def delete_before(tx: "Transaction", user: "User", seconds: int) -> int:
    """Delete the windows that ended more than `seconds` seconds ago; return the number of rows."""
    removed = tx.accounting.delete_before(tx.now - seconds)
    if removed:
        former = f"{removed} windows older than {seconds} seconds"
        audit.record(tx, user, AuditAction.PURGE, "accounting", Values(former=former))
    return removed


def _count(tx: "Transaction", ids: list[int], rules: Rules) -> Batch:
    changes = tx.accounting.count(ids, rules)
    return Batch(tuple(ids), tx.accounting.not_applicable(ids), tuple(changes))


def _another_runs(database: "Database") -> AccountingIsRunning:
    location = database.lock_holder(ACCOUNTING_LOCK).partition(" ")[2]
    return AccountingIsRunning(" ".join(["Another oaraccounting is running", location]).rstrip() + ".")


# -- consumption ------------------------------------------------------------------------------------------------------


class ProjectConsumption(NamedTuple):
    """The consumption of a user in a project, in resource seconds."""

    project: str
    requested: int
    used: int
    karma: float | None


class UserConsumption(NamedTuple):
    """The consumption of a user, in resource seconds, with the start of the first and the end of the last window."""

    user: str
    first_window_start: int
    last_window_stop: int
    projects: tuple[ProjectConsumption, ...]

    @property
    def requested(self) -> int:
        """The requested consumption of all projects: resources times walltime."""
        return sum(project.requested for project in self.projects)

    @property
    def used(self) -> int:
        """The real consumption of all projects."""
        return sum(project.used for project in self.projects)

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        return {
            "first_window_start": self.first_window_start,
            "last_window_stop": self.last_window_stop,
            "asked": self.requested,
            "used": self.used,
            "projects": {
                project.project: {"asked": project.requested, "used": project.used, "karma": project.karma}
                for project in self.projects
            },
        }


def consumption_by_user(tx: "Transaction", start: int, stop: int, user: str | None = None) -> list[UserConsumption]:
    """Return the consumption in the windows that overlap ``[start, stop)``, sorted by user.

    ``user`` None: the consumption of all users, without karma.
    """
    by_user: dict[str, list[Consumption]] = defaultdict(list)
    for row in tx.accounting.between(start, stop, user):
        by_user[row.user].append(row)

    def project_consumption(row: "Consumption") -> ProjectConsumption:
        karma = tx.accounting.last_karma(user, row.project) if user is not None else None
        return ProjectConsumption(row.project, row.asked, row.used, karma)

    return [
        UserConsumption(
            name,
            min(row.first_window_start for row in rows),
            max(row.last_window_stop for row in rows),
            tuple(map(project_consumption, rows)),
        )
        for name, rows in sorted(by_user.items())
    ]
