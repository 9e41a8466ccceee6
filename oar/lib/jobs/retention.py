"""Delete old data according to the keys RETENTION_..., in small transactions that do not block other programs.

Private keys of jobs are deleted first. After each transaction the program pauses as long as the transaction took, so
that the other programs get at least half of the disk throughput.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from oar.lib.db.lock_keys import PURGE_LOCK
from oar.lib.jobs.sql_retention import EndedPlace

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

DAY = 86400
#: At most so many jobs, or rows of a log, are removed in a transaction, which takes less than a tenth of a second then,
#: also where jobs have many rows (measured by ``bench/retention.py``); fewer where it takes longer.
JOBS, ROWS = 100, 2000
#: So long a transaction may take, in seconds: half of what may hold somebody up, as the next one may be slower.
LONGEST = 0.05


class Keeper(Protocol):
    """An archive of the jobs that are deleted."""

    def keep(self, source: "Transaction", ids: Sequence[int]) -> int:
        """Store jobs in the archive; return the number of jobs that were new to it."""

    def missing(self, source: "Transaction", ids: Sequence[int]) -> list[int]:
        """Return the given jobs that are not in the archive."""


class Pace:
    """The number of rows per transaction: halved after a transaction that took too long, doubled after short ones."""

    def __init__(self, most: int) -> None:
        self._most = self.size = most

    def learn(self, seconds: float) -> None:
        """Adapt the number to the duration of the last transaction."""
        if seconds > LONGEST:
            self.size = max(1, self.size // 2)
        elif seconds < LONGEST / 4:
            self.size = min(self._most, 2 * self.size)


class Kept(NamedTuple):
    """A retention key, and the functions that apply it."""

    key: str
    what: str  #: in the plural, for the report
    days: int  #: 0 = for ever
    purge: "Callable[[Database, int], Iterator[int]]"  #: numbers of what was removed, a transaction each
    foresee: "Callable[[Database, int], int]"  #: how many it would be


def kept(config: "Config", archive: Keeper | None = None) -> list[Kept]:
    """Return the retention rules in the order of deletion. ``archive`` stores jobs before they are deleted."""
    purge_jobs = partial(_purge_jobs, archive=archive)
    return [
        _log("RETENTION_CHALLENGES", "key pairs of ended jobs", config.retention_challenges, "challenges"),
        Kept("RETENTION_GANTT_LOG", "rows of former plans", config.retention_gantt_log, _purge_before, _count_plans),
        _log("RETENTION_JOB_STATE_LOGS", "states of ended jobs", config.retention_job_state_logs, "job_state_logs"),
        _log("RETENTION_EVENT_LOGS", "events", config.retention_event_logs, "event_logs"),
        _log("RETENTION_RESOURCE_LOGS", "states of resources", config.retention_resource_logs, "resource_logs"),
        Kept("RETENTION_JOBS", "jobs", config.retention_jobs, purge_jobs, _count_jobs),
        Kept(
            "RETENTION_ACCOUNTING",
            "accounting windows",
            config.retention_accounting,
            partial(_purge_before, tables=("accounting",)),
            lambda database, days: _count_before(database, "accounting", days),
        ),
    ]


def rested(database: "Database", work: "Callable[[Transaction], int]", pace: Pace | None = None) -> int:
    """Run ``work`` in its own transaction, then sleep as long as it took; return its result."""
    begin = time.monotonic()
    with database.begin() as tx:
        tx.system.take_lock(PURGE_LOCK)
        result = work(tx)
    seconds = time.monotonic() - begin
    if pace:
        pace.learn(seconds)
    time.sleep(seconds)
    return result


# -- logs -------------------------------------------------------------------------------------------------------------


def _log(key: str, what: str, days: int, table: str) -> Kept:
    def purge(database: "Database", days: int) -> Iterator[int]:
        place, is_end, pace = 0, False, Pace(ROWS)

        def remove(tx: "Transaction") -> int:
            nonlocal place, is_end
            piece = tx.retention.piece(table, tx.now - days * DAY, place, pace.size)
            place, is_end = piece.last, piece.is_end
            if piece.old:
                tx.retention.remove(table, piece.old)
            return len(piece.old)

        while not is_end:
            yield rested(database, remove, pace)

    def count(database: "Database", days: int) -> int:
        place, is_end, found = 0, False, 0
        while not is_end:
            with database.snapshot() as tx:
                piece = tx.retention.piece(table, tx.now - days * DAY, place, ROWS)
            place, is_end = piece.last, piece.is_end
            found += len(piece.old)
        return found

    return Kept(key, what, days, purge, count)


# -- plans, accounting ------------------------------------------------------------------------------------------------

_PLANS = ("gantt_jobs_predictions_log", "gantt_jobs_resources_log")


def _purge_before(database: "Database", days: int, tables: Sequence[str] = _PLANS) -> Iterator[int]:
    for table in tables:
        pace = Pace(ROWS)
        removed = limit = pace.size
        while removed == limit:
            limit = pace.size
            removed = rested(database, partial(_remove_before, table=table, days=days, limit=limit), pace)
            yield removed


def _remove_before(tx: "Transaction", *, table: str, days: int, limit: int) -> int:
    return tx.retention.remove_before(table, tx.now - days * DAY, limit)


def _count_plans(database: "Database", days: int) -> int:
    return sum(_count_before(database, table, days) for table in _PLANS)


def _count_before(database: "Database", table: str, days: int) -> int:
    with database.snapshot() as tx:
        return tx.retention.count_before(table, tx.now - days * DAY)


# -- jobs -------------------------------------------------------------------------------------------------------------


def _purge_jobs(database: "Database", days: int, archive: Keeper | None = None) -> Iterator[int]:
    place, is_end, pace = EndedPlace(), False, Pace(JOBS)

    def remove(tx: "Transaction") -> int:
        nonlocal place, is_end
        jobs = tx.retention.jobs(tx.now - days * DAY, place, pace.size)
        is_end = len(jobs) < pace.size
        if jobs:
            place = jobs[-1]
            ids = [job.id for job in jobs]
            if archive:
                archive.keep(tx, ids)
            tx.retention.remove_ended_jobs(ids)
        return len(jobs)

    while not is_end:
        yield rested(database, remove, pace)


def _count_jobs(database: "Database", days: int) -> int:
    place, found, count = EndedPlace(), ROWS, 0
    while found == ROWS:
        with database.snapshot() as tx:
            jobs = tx.retention.jobs(tx.now - days * DAY, place, ROWS)
        found, place = len(jobs), jobs[-1] if jobs else place
        count += found
    return count


# -- the archive ------------------------------------------------------------------------------------------------------


def archive_jobs(database: "Database", archive: Keeper) -> Iterator[int]:
    """Copy all ended and accounted jobs that the archive does not have; yield the number per transaction."""
    place, is_end, pace = EndedPlace(), False, Pace(JOBS)

    def copy(tx: "Transaction") -> int:
        nonlocal place, is_end
        jobs = tx.retention.jobs(tx.now, place, pace.size)
        is_end, place = len(jobs) < pace.size, jobs[-1] if jobs else place
        return archive.keep(tx, [job.id for job in jobs])

    while not is_end:
        yield rested(database, copy, pace)


def count_missing(database: "Database", archive: Keeper) -> int:
    """Return the number of jobs that ``archive_jobs`` would copy."""
    place, is_end, count = EndedPlace(), False, 0
    while not is_end:
        with database.snapshot() as tx:
            jobs = tx.retention.jobs(tx.now, place, ROWS)
            count += len(archive.missing(tx, [job.id for job in jobs]))
        is_end, place = len(jobs) < ROWS, jobs[-1] if jobs else place
    return count
