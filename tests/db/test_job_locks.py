"""The locks of the jobs of a bipbip: the actions of a burst share statements, and nobody waits for nothing."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import JOB_LOCK_CLASS, job_lock
from oar.lib.db.locks import Locks
from oar.modules.runner.job_locks import JobLocks
from tests.process.this_machine import wait_until

#: Ends every session that holds locks of jobs.
_END_HOLDERS = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s"


class Wire:
    """What is sent for locks: the numbers of releases and of wanted locks of each statement.

    The first statement is answered only when ``is_open``.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[int, int]] = []
        self.is_open = threading.Event()
        exchange_really = Locks.exchange

        def exchange(
            locks: Locks, releases: Sequence[tuple[int, int]], wanted: Sequence[tuple[int, int]]
        ) -> list[bool]:
            self.sent.append((len(releases), len(wanted)))
            if len(self.sent) == 1:
                assert self.is_open.wait(60)
            return exchange_really(locks, releases, wanted)

        monkeypatch.setattr(Locks, "exchange", exchange)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


@pytest.fixture
def others(database: Database) -> Iterator[Locks]:
    """Locks of another process."""
    locks = database.locks()
    yield locks
    locks.close()


def test_a_lock_that_another_process_holds_is_refused_until_it_is_released(
    database: Database, others: Locks, wire: Wire
) -> None:
    wire.is_open.set()
    locks = JobLocks(database)
    assert locks.acquire(7)
    assert not others.exchange([], [job_lock(7)])[0]
    locks.release(7)
    assert others.exchange([], [job_lock(7)]) == [True]
    assert not locks.acquire(7)
    assert locks.acquire(8)
    assert wire.sent == [(0, 1), (0, 1), (1, 0), (0, 1), (0, 1), (0, 1)]  # none waits for others


def test_the_locks_of_a_burst_share_a_statement(database: Database, wire: Wire) -> None:
    """Twenty actions begin and five end while a statement is under way."""
    locks = JobLocks(database)
    wire.is_open.set()
    assert all(locks.acquire(job_id) for job_id in range(100, 105))
    wire.sent.clear()
    wire.is_open.clear()
    with ThreadPoolExecutor(30) as threads:
        first = threads.submit(locks.acquire, 1)
        wait_until(lambda: bool(wire.sent))
        wanted = [threads.submit(locks.acquire, job_id) for job_id in range(2, 22)]
        released = [threads.submit(locks.release, job_id) for job_id in range(100, 105)]
        wait_until(lambda: len(locks._wishes) == 25)
        wire.is_open.set()
        assert all(future.result() for future in [first, *wanted])
        assert [future.result() for future in released] == [None] * 5
    assert wire.sent == [(0, 1), (5, 20)]


def test_locks_outlive_a_lost_connection(database: Database) -> None:
    locks = JobLocks(database)
    assert locks.acquire(7)
    with database.begin() as tx:
        tx.execute(_END_HOLDERS, (JOB_LOCK_CLASS,))
    locks.release(7)  # PostgreSQL has released it
    assert locks.acquire(7)
    with database.begin() as tx:
        tx.execute(_END_HOLDERS, (JOB_LOCK_CLASS,))
    assert locks.acquire(8)


def test_whoever_wants_a_lock_is_told_that_the_database_is_gone(settings: DatabaseSettings) -> None:
    locks = JobLocks(Database(settings._replace(port=1, patience=0)))
    for job_id in (1, 2):
        with pytest.raises(DatabaseUnavailable):
            locks.acquire(job_id)
    locks.release(1)
