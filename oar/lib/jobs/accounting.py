"""Accounting: store the resource consumption of ended jobs per time window."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oar.lib.base.errors import OarError
from oar.lib.db.lock_keys import ACCOUNTING_LOCK
from oar.lib.jobs.sql_accounting import Rules, WindowChange

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

#: Number of jobs in one transaction.
BATCH = 10_000


class AccountingIsRunning(OarError):
    """Another process is running the accounting."""


class OtherWindowWidth(OarError):
    """The table contains windows whose width differs from ACCOUNTING_WINDOW."""


@dataclass(frozen=True, slots=True)
class Batch:
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
            _check_width(tx, rules.width)
        last = 0
        while True:
            with database.begin() as tx:
                ids = tx.accounting.not_counted(BATCH, after=last, since=since)
                if not ids:
                    return
                batch = _count(tx, ids, rules)
            last = ids[-1]
            yield batch


def recount(database: "Database", rules: Rules) -> Generator[Batch, None, None]:
    """Delete all windows and account all ended jobs again, in one transaction.

    Readers see the old rows until the commit. Raises AccountingIsRunning.
    """
    with database.hold_lock(ACCOUNTING_LOCK) as lock:
        if lock is None:
            raise _another_runs(database)
        with database.begin() as tx:
            tx.accounting.clear()
            last = 0
            while ids := tx.accounting.ended(BATCH, after=last):
                yield _count(tx, ids, rules)
                last = ids[-1]


def delete_before(database: "Database", seconds: int) -> int:
    """Delete the windows that ended more than `seconds` seconds ago; return the number of rows."""
    return database.run(lambda tx: tx.accounting.delete_before(tx.now - seconds))


def _count(tx: "Transaction", ids: list[int], rules: Rules) -> Batch:
    changes = tx.accounting.count(ids, rules)
    return Batch(tuple(ids), tx.accounting.not_applicable(ids), tuple(changes))


def _check_width(tx: "Transaction", width: int) -> None:
    other = tx.accounting.other_width(width)
    if other is not None:
        raise OtherWindowWidth(f"The table has windows of {other} s, ACCOUNTING_WINDOW is {width}: use --reinitialize.")


def _another_runs(database: "Database") -> AccountingIsRunning:
    location = database.lock_holder(ACCOUNTING_LOCK).partition(" ")[2]
    return AccountingIsRunning(" ".join(["Another oaraccounting is running", location]).rstrip() + ".")
