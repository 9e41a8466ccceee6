"""Steps of many actions in one transaction."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.modules.runner.actions import shared_steps
from oar.modules.runner.actions.shared_steps import STEPS_AT_A_TIME, SharedSteps
from tests.builders import add_job
from tests.process.this_machine import wait_until


class Desk:
    """A kind of step that notes which items came together; the first of them waits until it may go on."""

    def __init__(self, database: Database) -> None:
        self.together = SharedSteps(database)
        self.batches: list[list[int]] = []
        self.go_on = threading.Event()

    def step(self, tx: Transaction, items: Sequence[int]) -> list[int]:
        """Double each item; a negative one fails."""
        self.batches.append(list(items))
        if len(self.batches) == 1:
            assert self.go_on.wait(120)
        if min(items) < 0:
            raise ValueError(items)
        return [2 * tx.value("SELECT %s", (item,)) for item in items]

    def do(self, item: int) -> int:
        """Do one step."""
        return self.together.do(self.step, item)

    def waiting(self) -> int:
        """Return how many steps wait for the one that is under way."""
        return sum(len(queue._waiting) for queue in self.together._queues.values())


@pytest.fixture
def desk(database: Database, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(shared_steps, "PATIENCE", 60.0)
    return Desk(database)


def do_behind_a_first(desk: Desk, items: Sequence[int]) -> list[int | Exception]:
    """Begin with the step 1000; let it go on when the steps of all items wait; return what came of these."""
    with ThreadPoolExecutor(1 + len(items)) as threads:
        first = threads.submit(desk.do, 1000)
        wait_until(lambda: bool(desk.batches))
        others = []
        for number, item in enumerate(items):
            others.append(threads.submit(desk.do, item))
            wait_until(lambda number=number: desk.waiting() == number + 1)  # type: ignore[misc]
        desk.go_on.set()
        assert first.result(30) == 2000
        return [other.exception(30) or other.result() for other in others]  # type: ignore[misc]


def test_a_single_step_waits_for_nobody(desk: Desk) -> None:
    desk.go_on.set()
    assert [desk.do(1), desk.do(2)] == [2, 4]
    assert desk.batches == [[1], [2]]


def test_steps_that_come_while_one_is_under_way_share_the_next_transaction(desk: Desk) -> None:
    assert do_behind_a_first(desk, [1, 2, 3]) == [2, 4, 6]
    assert desk.batches == [[1000], [1, 2, 3]]


def test_steps_that_only_read_share_statements_without_a_transaction(
    desk: Desk, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.go_on.set()
    monkeypatch.setattr(database, "begin", None)
    assert desk.together.look(desk.step, 3) == 6


def test_a_step_that_fails_costs_the_others_nothing(desk: Desk) -> None:
    good, bad, other = do_behind_a_first(desk, [1, -1, 3])
    assert (good, other) == (2, 6)
    assert isinstance(bad, ValueError)
    assert desk.batches[:2] == [[1000], [1, -1, 3]]
    assert sorted(desk.batches[2:]) == [[-1], [1], [3]]


def test_a_lock_that_somebody_holds_on_one_job_delays_no_other(database: Database) -> None:
    steps = SharedSteps(database)
    locked, other, third = (add_job(database) for _ in range(3))
    done: list[int] = []
    begun = threading.Event()

    def hold(tx: Transaction, jobs: Sequence[int]) -> Sequence[int]:
        begun.set()
        tx.jobs.hold(jobs)
        return jobs

    def do(job_id: int) -> None:
        done.append(steps.do(hold, job_id))

    with ThreadPoolExecutor(5) as threads, database.begin() as mine:
        mine.jobs.hold([locked])
        threads.submit(do, locked)
        assert begun.wait(120)
        for job_id in (locked, other, third):
            threads.submit(do, job_id)
        wait_until(lambda: sorted(done) == [other, third])
        mine.connection.rollback()
    assert sorted(done) == [locked, locked, other, third]


def test_so_many_share_a_transaction_and_no_more(desk: Desk) -> None:
    items = list(range(STEPS_AT_A_TIME + 5))
    assert do_behind_a_first(desk, items) == [2 * item for item in items]
    assert [len(batch) for batch in desk.batches] == [1, STEPS_AT_A_TIME, 5]


def test_steps_that_nobody_waits_for_are_done_soon_and_together(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_steps, "SOON", 0.0)
    desk.go_on.set()
    desk.together.do_soon(desk.step, 1)
    wait_until(lambda: desk.batches == [[1]])
    monkeypatch.setattr(shared_steps, "SOON", 3600.0)
    for item in (2, -1, 3):
        desk.together.do_soon(desk.step, item)
    desk.together.settle()
    assert desk.batches[1:] == [[2, -1, 3], [2], [-1], [3]]  # the one that fails is left out
    assert desk.do(4) == 8


def test_all_are_told_that_the_database_is_gone_and_the_next_one_is_tried(settings: DatabaseSettings) -> None:
    gone = Database(settings._replace(host="/nowhere", patience=0))
    steps = SharedSteps(gone)
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable):
            steps.do(lambda tx, items: items, 1)
