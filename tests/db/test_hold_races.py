"""A hold and a round at once, interleaved at each of their statements: an acknowledged hold is in force."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.jobs import control
from oar.lib.jobs.control import ControlRefusal, HoldRules
from oar.lib.jobs.states import JobState
from oar.lib.runtime import Runtime
from tests.builders import add_job, add_resources, state_of

ALICE = User("alice", 1001)
PATIENCE = 120.0

#: Whether a session waits for a lock that another one has.
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"


class SteppingCursor:
    """A cursor that tells of each statement before it runs."""

    def __init__(self, cursor: Any, step: Callable[[], None]) -> None:
        self._cursor = cursor
        self._step = step

    def execute(self, sql: Any, parameters: Any = None) -> None:
        """Run a statement.  To prepare one is none: a connection does it once."""
        if not str(sql).startswith("PREPARE"):
            self._step()
        self._cursor.execute(sql, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


class SteppingDatabase(Database):
    """Stops its user once, before the statement with a number; a commit is a statement."""

    def __init__(self, settings: DatabaseSettings, application: str) -> None:
        super().__init__(settings, application=application)
        self.name = application
        self.stop_before = -1
        self.steps = 0
        self.stopped = threading.Event()
        self.go_on = threading.Event()

    def prepare(self, stop_before: int) -> None:
        """Begin to count anew."""
        self.stop_before, self.steps = stop_before, 0
        self.stopped.clear()
        self.go_on.clear()

    def step(self) -> None:
        """Note that the next statement comes."""
        if self.steps == self.stop_before:
            self.stopped.set()
            assert self.go_on.wait(PATIENCE)
        self.steps += 1

    @contextmanager
    def _transaction(self, kind: str, since: float | None = None) -> Iterator[Transaction]:
        with super()._transaction(kind, since) as tx:
            tx._cursor = SteppingCursor(tx._cursor, self.step)  # type: ignore[assignment]
            yield tx
            self.step()


class Race:
    """A round and the command that holds a job."""

    def __init__(self, settings: DatabaseSettings, database: Database) -> None:
        self.database = database
        self.scheduling = SteppingDatabase(settings, "oar:race-round")
        self.holding = SteppingDatabase(settings, "oar:race-hold")
        self.scheduler = MetaScheduler(Runtime(Config(), self.scheduling))
        add_resources(database, nodes=100, cores=2)
        self.job_id = 0

    def close(self) -> None:
        """Give the connections back."""
        self.scheduler.close()
        self.scheduling.close()
        self.holding.close()

    def round(self) -> None:
        """Schedule."""
        self.scheduler.round()

    def hold(self) -> ControlRefusal | None:
        """Hold the job."""
        with self.holding.begin() as tx:
            return control.hold(tx, ALICE, [self.job_id], HoldRules(), running=False)[0].refusal

    def run(self, stopped: SteppingDatabase, first: Callable[[], Any], second: Callable[[], Any], at: int) -> list[Any]:
        """Stop ``first`` before a statement, until ``second`` has ended or waits for it; return what came of both."""
        self.job_id = add_job(self.database)
        for each in (self.scheduling, self.holding):
            each.prepare(at if each is stopped else -1)
        other = self.holding if stopped is self.scheduling else self.scheduling
        with ThreadPoolExecutor(2) as threads:
            one = threads.submit(first)
            self._await(lambda: stopped.stopped.is_set() or one.done())
            two = threads.submit(second)
            self._await(lambda: two.done() or self._waits(other))
            stopped.go_on.set()
            return [self._result(one), self._result(two)]

    def _waits(self, session: SteppingDatabase) -> bool:
        with self.database.begin() as tx:
            return bool(tx.value(WAITS, (session.name,)))

    def _await(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def _result(self, future: "Future[Any]") -> Any:
        return future.result(PATIENCE)


@pytest.fixture
def race(settings: DatabaseSettings, database: Database) -> Iterator[Race]:
    """A cluster on which all jobs find room."""
    made = Race(settings, database)
    yield made
    made.close()


def check(race: Race, refusal: ControlRefusal | None) -> None:
    """An acknowledged hold is in force and stays so; one that came too late is refused."""
    assert refusal in (None, ControlRefusal.HAS_BEGUN)
    expected = JobState.HOLD if refusal is None else JobState.TO_LAUNCH
    assert state_of(race.database, race.job_id) is expected
    race.round()
    assert state_of(race.database, race.job_id) is expected
    with race.database.begin() as tx:
        planned = tx.value("SELECT count(*) FROM gantt_jobs_predictions WHERE moldable_job_id <> 0")
        held = tx.value("SELECT count(*) FROM jobs WHERE state = 'Hold'")
        assert planned == tx.value("SELECT count(*) FROM jobs") - held
        assert tx.column("SELECT DISTINCT code FROM job_reasons") in ([], ["HOLD"])


def test_a_hold_at_each_step_of_a_round(race: Race) -> None:
    answers: list[ControlRefusal | None] = []
    while True:
        _, refusal = race.run(race.scheduling, race.round, race.hold, len(answers))
        check(race, refusal)
        if not race.scheduling.stopped.is_set():
            break
        answers.append(refusal)
    begun = answers.index(ControlRefusal.HAS_BEGUN)  # from the statement on that has locked the job
    assert 0 < begun < len(answers) - 1
    assert set(answers[:begun]) == {None}
    assert set(answers[begun:]) == {ControlRefusal.HAS_BEGUN}


def test_a_round_at_each_step_of_a_hold(race: Race) -> None:
    answers: list[ControlRefusal | None] = []
    while True:
        refusal, _ = race.run(race.holding, race.hold, race.round, len(answers))
        check(race, refusal)
        if not race.holding.stopped.is_set():
            break
        answers.append(refusal)
    assert answers[0] is ControlRefusal.HAS_BEGUN
    assert len(answers) > 3
    assert set(answers[1:]) == {None}
