"""Delete old data according to the keys RETENTION_..., in small transactions that do not block other programs.

Private keys of jobs are deleted first. After each transaction the program pauses as long as the transaction took, so
that the other programs get at least half of the disk throughput.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from oar.lib.access.records import User
from oar.lib.base.clock_watch import TOLERANCE, ClockWatch, Look
from oar.lib.base.times import format_date
from oar.lib.db.lock_keys import PURGE_LOCK
from oar.lib.db.system import ServerState
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.jobs.sql_retention import EndedPlace

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

DAY = 86400
#: Maximum numbers of jobs, and of rows of a log, that a transaction deletes. It takes less than 0.1 s then, also for
#: jobs with many rows (measured by ``bench/retention.py``). The number is smaller where a transaction takes longer.
JOBS, ROWS = 100, 2000
#: Duration of a transaction that reduces the number, in seconds: half of what may delay others, since the next one may
#: be slower.
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


#: Called in each transaction of a purge, with the number of rows that it deleted.
PurgeNote = Callable[["Transaction", int], None]


def record_purge(user: User, what: str, days: int) -> PurgeNote:
    """Return a note that records a purge in the audit log once, with its first deletion."""
    is_recorded = False

    def note(tx: "Transaction", count: int) -> None:
        nonlocal is_recorded
        if count and not is_recorded:
            is_recorded = True
            audit.record(tx, user, AuditAction.PURGE, what, Values(former=f"older than {days} days"))

    return note


def _nothing(tx: "Transaction", count: int) -> None:
    """Record nothing."""


class Purge(Protocol):
    """Deletes the rows that are older than some days; yields the number of deleted rows of each transaction."""

    def __call__(self, database: "Database", days: int, note: PurgeNote = ...) -> Iterator[int]: ...


class Kept(NamedTuple):
    """A retention key, and the functions that apply it."""

    key: str
    what: str  #: in the plural, for the report
    days: int  #: 0 = for ever
    purge: Purge
    foresee: "Callable[[Database, int], int]"  #: the number of rows that ``purge`` would delete


def kept(config: "Config", archive: Keeper | None = None) -> list[Kept]:
    """Return the retention rules in the order of deletion. ``archive`` stores jobs before they are deleted."""
    plans = ("gantt_jobs_predictions_log", "gantt_jobs_resources_log")
    return [
        _log("RETENTION_CHALLENGES", "key pairs of ended jobs", config.retention_challenges, "challenges"),
        _dated("RETENTION_GANTT_LOG", "rows of former plans", config.retention_gantt_log, plans),
        _log("RETENTION_JOB_STATE_LOGS", "states of ended jobs", config.retention_job_state_logs, "job_state_logs"),
        _log("RETENTION_EVENT_LOGS", "events", config.retention_event_logs, "event_logs"),
        _log("RETENTION_RESOURCE_LOGS", "states of resources", config.retention_resource_logs, "resource_logs"),
        _jobs("RETENTION_JOBS", "jobs", config.retention_jobs, archive),
        _dated(
            "RETENTION_ACCOUNTING",
            "accounting windows",
            config.retention_accounting,
            ("accounting", "accounting_costs"),
        ),
        Kept(
            "RETENTION_RESERVATIONS",
            "advance reservations",
            config.retention_reservations,
            purge_reservations,
            count_old_reservations,
        ),
        Kept("RETENTION_AUDIT", "rows of the audit log", config.retention_audit, purge_audit_log, count_audit_log),
    ]


def rested(
    database: "Database",
    work: "Callable[[Transaction], int]",
    pace: Pace | None = None,
    note: PurgeNote = _nothing,
) -> int:
    """Run ``work`` in its own transaction, then sleep as long as it took; return its result."""
    begin = time.monotonic()
    with database.begin() as tx:
        tx.system.take_lock(PURGE_LOCK)
        result = work(tx)
        note(tx, result)
    seconds = time.monotonic() - begin
    if pace:
        pace.learn(seconds)
    time.sleep(seconds)
    return result


def _log(key: str, what: str, days: int, table: str) -> Kept:
    """Return the rule of a log, which is searched in the order of its ids."""

    def purge(database: "Database", days: int, note: PurgeNote = _nothing) -> Iterator[int]:
        place, is_end, pace = 0, False, Pace(ROWS)

        def remove(tx: "Transaction") -> int:
            nonlocal place, is_end
            piece = tx.retention.piece(table, tx.now - days * DAY, place, pace.size)
            place, is_end = piece.last, piece.is_end
            if piece.old:
                tx.retention.remove(table, piece.old)
            return len(piece.old)

        while not is_end:
            yield rested(database, remove, pace, note)

    def count(database: "Database", days: int) -> int:
        place, is_end, number = 0, False, 0
        while not is_end:
            with database.snapshot() as tx:
                piece = tx.retention.piece(table, tx.now - days * DAY, place, ROWS)
            place, is_end = piece.last, piece.is_end
            number += len(piece.old)
        return number

    return Kept(key, what, days, purge, count)


def _dated(key: str, what: str, days: int, tables: Sequence[str]) -> Kept:
    """Return the rule of tables that are sorted by a date."""

    def purge(database: "Database", days: int, note: PurgeNote = _nothing) -> Iterator[int]:
        for table in tables:
            yield from purge_table(database, days, table, note)

    def purge_table(database: "Database", days: int, table: str, note: PurgeNote) -> Iterator[int]:
        pace = Pace(ROWS)
        removed = limit = pace.size
        while removed == limit:
            limit = pace.size
            removed = rested(
                database, lambda tx: tx.retention.remove_before(table, tx.now - days * DAY, pace.size), pace, note
            )
            yield removed

    def count(database: "Database", days: int) -> int:
        with database.snapshot() as tx:
            return sum(tx.retention.count_before(table, tx.now - days * DAY) for table in tables)

    return Kept(key, what, days, purge, count)


def _jobs(key: str, what: str, days: int, archive: Keeper | None) -> Kept:
    def purge(database: "Database", days: int, note: PurgeNote = _nothing) -> Iterator[int]:
        def remove(tx: "Transaction", ids: Sequence[int]) -> int:
            if archive:
                archive.keep(tx, ids)
            tx.retention.remove_jobs(ids, with_former_plans=False)
            return len(ids)

        yield from _each_batch(database, days, remove, note)

    def count(database: "Database", days: int) -> int:
        return sum(len(ids) for _, ids in _ended_jobs(database, days))

    return Kept(key, what, days, purge, count)


def archive_jobs(database: "Database", archive: Keeper) -> Iterator[int]:
    """Copy all ended and accounted jobs that the archive does not have; yield the number per transaction."""
    return _each_batch(database, 0, archive.keep)


def count_missing(database: "Database", archive: Keeper) -> int:
    """Return the number of jobs that ``archive_jobs`` would copy."""
    return sum(len(archive.missing(tx, ids)) for tx, ids in _ended_jobs(database, 0))


def _each_batch(
    database: "Database",
    days: int,
    work: "Callable[[Transaction, Sequence[int]], int]",
    note: PurgeNote = _nothing,
) -> Iterator[int]:
    """Run ``work`` for the jobs that may be deleted, in batches; yield its results."""
    place, is_end, pace = EndedPlace(), False, Pace(JOBS)

    def work_on_batch(tx: "Transaction") -> int:
        nonlocal place, is_end
        jobs = tx.retention.jobs(tx.now - days * DAY, place, pace.size)
        is_end, place = len(jobs) < pace.size, jobs[-1] if jobs else place
        return work(tx, [job.id for job in jobs]) if jobs else 0

    while not is_end:
        yield rested(database, work_on_batch, pace, note)


def _ended_jobs(database: "Database", days: int) -> "Iterator[tuple[Transaction, list[int]]]":
    """Yield the jobs that may be deleted, in batches, each with a snapshot."""
    place, number = EndedPlace(), ROWS
    while number == ROWS:
        with database.snapshot() as tx:
            jobs = tx.retention.jobs(tx.now - days * DAY, place, ROWS)
            yield tx, [job.id for job in jobs]
        number, place = len(jobs), jobs[-1] if jobs else place


# -- advance reservations ---------------------------------------------------------------------------------------------


def count_old_reservations(database: "Database", days: int) -> int:
    """Return how many reservations ``purge_reservations`` would remove.  Raises DatabaseUnavailable."""
    with database.snapshot() as tx:
        return len(tx.retention.old_reservations(tx.now - days * DAY, None))


def purge_reservations(database: "Database", days: int, note: PurgeNote = _nothing) -> Iterator[int]:
    """Remove the advance reservations that ended more than ``days`` days ago; yield the number removed in each batch.

    A reservation is kept while one of its jobs is kept, or its frame is not accounted.  Raises DatabaseUnavailable.
    """

    def remove(tx: "Transaction") -> int:
        ids = tx.retention.old_reservations(tx.now - days * DAY, JOBS)
        tx.retention.remove_reservations(ids)
        return len(ids)

    removed = JOBS
    while removed == JOBS:
        removed = rested(database, remove, note=note)
        yield removed


# -- the audit log ----------------------------------------------------------------------------------------------------


def purge_audit_log(database: "Database", days: int, note: PurgeNote = _nothing) -> Iterator[int]:
    """Delete the rows of the audit log that are older than ``days`` days; yield the number deleted in each batch."""
    pace = Pace(ROWS)
    removed = limit = pace.size
    while removed == limit:
        limit = pace.size
        removed = rested(database, lambda tx: tx.audit.purge(tx.now - days * DAY, pace.size), pace, note)
        yield removed


def count_audit_log(database: "Database", days: int) -> int:
    """Return how many rows ``purge_audit_log`` would delete."""
    with database.snapshot() as tx:
        return tx.audit.count_before(tx.now - days * DAY)


# -- the clock --------------------------------------------------------------------------------------------------------
#
# If the clock is far ahead, all rows look old enough to be deleted. When time really passes, OAR stores some rows, at
# least one per purge. The date is therefore doubted after a long period without any stored row, unless a time service
# confirms it. It is also doubted while the server holds its deadlines back because the clock was set ahead.

#: A period without stored rows that raises doubts, in seconds, and the number of such periods that are searched.
QUIET_SECONDS, QUIET_PERIODS = 10 * DAY, 6


def seconds_set_ahead(database: "Database") -> int:
    """Return by how many seconds the clock was set ahead as long as the server does not trust it, else 0."""
    watch, now = _watch_clock(database)
    return watch.ahead(now)


def why_clock_is_doubted(database: "Database", synchronized: float | None = None) -> str:
    """Return why rows must not be deleted by the date of the database; return '' if they may be deleted.

    ``synchronized``: the date of a clock that a time service synchronizes; None if there is none.
    """
    watch, now = _watch_clock(database)
    if held := watch.held_until(now):
        return f"The clock was set ahead; the server waits until {format_date(held)} whether it is set back"
    if synchronized is not None and abs(synchronized - now) <= TOLERANCE:
        return ""
    with database.snapshot() as tx:
        signs = tx.retention.signs_of_life()
        if not signs.first:  # there is no row to delete
            return ""
        since = max(signs.first, signs.last_purge, now - QUIET_PERIODS * QUIET_SECONDS)
        for until in range(now, since + QUIET_SECONDS - 1, -QUIET_SECONDS):
            last = tx.retention.last_sign(until)
            if last <= until - QUIET_SECONDS:
                return (
                    f"The clock of the database says {format_date(now)}, but nothing has happened between"
                    f" {format_date(last)} and {format_date(until)}"
                )
    return ""


def _watch_clock(database: "Database") -> tuple[ClockWatch, int]:
    """Return the watch of the server after it has read the clock of the database, and the date."""
    before = time.monotonic()
    with database.snapshot() as tx:
        watch, now = ClockWatch(tx.system.read_state(ServerState.CLOCK)), tx.now
    watch.set_by(Look(now, before, time.monotonic()))
    return watch, now
