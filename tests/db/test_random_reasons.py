"""Whatever happens to jobs, nodes and queues: after each round each job that waits has its reason, and no other has."""

import random
from collections.abc import Iterator

import pytest

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.base.times import format_date
from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle, sql_waits
from oar.lib.jobs.reasons import WAITING_FOR, Waits, divide_waiting_time, reason_sentence
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobState, QueueState, Reservation
from oar.lib.runtime import Runtime
from tests.builders import add_resources, execute_sql
from tests.db.test_meta_sched import NOW, at, submit

pytestmark = pytest.mark.slow

REQUESTS = [
    *("/resource_id=1", "/resource_id=2", "/network_address=1", "/network_address=2", "/network_address=9"),
    *("{network_address = 'node-1'}/resource_id=1", "{nothing = 3}/resource_id=1"),
]
TYPES = [
    *[(), (), (), ("besteffort",), ("timesharing",), ("token:t=1",), ("inner=1",), ("container",)],
    *[("timesharing=x",), ("deadline=2026-01-01",), (f"postpone={format_date(NOW + 900)}",)],
]
MOST_CHANGES, CHANGES_LEFT = 2, 1
WAITING = (JobState.WAITING, JobState.HOLD, JobState.TO_ACK_RESERVATION)


class World:
    """A small site to which anything may happen."""

    def __init__(self, database: Database, runtime: Runtime, rng: random.Random) -> None:
        self.database, self.rng, self.now = database, rng, NOW
        self.scheduler = MetaScheduler(runtime)
        self.resources = add_resources(at(database, NOW), nodes=2, cores=2)
        self.met: set[str] = set()  #: codes of reasons
        self.has_folded = False
        with database.begin() as tx:
            tx.queues.insert(Queue("night", 1, "default", QueueState.ACTIVE))
            tx.queues.insert(Queue("restless", 1, "default", QueueState.ACTIVE))
        self.restless = submit(database, "{nothing = 3}/resource_id=1,walltime=0:5", queue="restless")

    def states(self) -> dict[int, JobState]:
        with self.database.snapshot() as tx:
            return {number: JobState(state) for number, state in tx.rows("SELECT job_id, state FROM jobs")}

    def live(self, *states: JobState) -> list[int]:
        """The jobs in some states to which anything may happen."""
        return [number for number, state in self.states().items() if state in states and number != self.restless]

    def submit(self) -> None:
        rng = self.rng
        known = list(self.states())
        after = [rng.choice(known)] if known and rng.random() < 0.15 else []
        columns: dict[str, object] = {"queue": rng.choice(["default", "default", "night"]), "after": after}
        if rng.random() < 0.15:
            columns |= {"reservation": Reservation.TO_SCHEDULE, "start_time": self.now + rng.randint(0, 600)}
        requests = rng.sample(REQUESTS, rng.choice([1, 1, 2]))
        walltime = f",walltime=0:{rng.randint(1, 30)}"
        types, state = rng.choice(TYPES), rng.choice([JobState.WAITING] * 5 + [JobState.HOLD])
        submit(self.database, *(text + walltime for text in requests), types=types, state=state, **columns)

    def move(self, to: JobState, *sources: JobState) -> None:
        """Move one job, if there is one in such a state."""
        if found := self.live(*sources):
            with self.database.begin() as tx:
                lifecycle.move(tx, self.rng.choice(found), to)

    def break_or_mend(self) -> None:
        state = self.rng.choice(["Alive", "Alive", "Suspected", "Absent"])
        execute_sql(
            self.database,
            "UPDATE resources SET state = %s WHERE resource_id = %s",
            state,
            self.rng.choice(self.resources),
        )

    def stop_or_start_queue(self) -> None:
        with self.database.begin() as tx:
            tx.queues.set_state(["night"], self.rng.choice(list(QueueState)))

    def change_reason_of_restless_job(self) -> None:
        """Stop the queue of a job that no resource suits, or start it again: each round finds another reason."""
        with self.database.begin() as tx:
            is_active = next(each for each in tx.queues.all() if each.name == "restless").state is QueueState.ACTIVE
            tx.queues.set_state(["restless"], QueueState.NOT_ACTIVE if is_active else QueueState.ACTIVE)

    def happen(self) -> None:
        """Let something happen, at some time."""
        self.now += self.rng.choice([0, 1, 30, 300])
        at(self.database, self.now)
        self.change_reason_of_restless_job()
        for _ in range(self.rng.randint(3, 8)):
            what = self.rng.choice(
                [
                    *[self.submit] * 6,
                    lambda: self.move(JobState.HOLD, JobState.WAITING),
                    lambda: self.move(JobState.WAITING, JobState.HOLD, JobState.TO_ACK_RESERVATION),
                    lambda: self.move(JobState.ERROR, JobState.WAITING, JobState.RUNNING),
                    lambda: self.move(JobState.LAUNCHING, JobState.TO_LAUNCH),
                    lambda: self.move(JobState.RUNNING, JobState.LAUNCHING),
                    lambda: self.move(JobState.TERMINATED, JobState.RUNNING),
                    self.break_or_mend,
                    self.stop_or_start_queue,
                ]
            )
            what()

    def look(self) -> None:
        """See that each job is explained."""
        states = self.states()
        with self.database.snapshot() as tx:
            reasons, history = tx.job_waits.reasons(states), tx.job_waits.history(states)
            logs = tx.jobs.state_changes(list(states))
            foretold = set(tx.column("SELECT job_id FROM job_predictions WHERE real_start = 0"))
        waiting = {number for number, state in states.items() if state in WAITING}
        assert reasons.keys() == waiting
        self.met |= {reason.code for reason in reasons.values()}
        assert all(reason.code in WAITING_FOR and reason_sentence(reason).endswith(".") for reason in reasons.values())
        assert all(history[number].changes[-1][1] == reason.code for number, reason in reasons.items())
        assert all(len(each.changes) <= MOST_CHANGES for each in history.values())
        self.has_folded |= bool(history[self.restless].sums)
        assert foretold <= waiting
        for number, log in logs.items():
            before = [each for each in log if each.state in (*WAITING, JobState.TO_LAUNCH, JobState.LAUNCHING)]
            seconds = sum((each.stop or self.now) - each.start for each in before)
            assert sum(divide_waiting_time(log, history.get(number, Waits()), self.now).values()) == seconds


@pytest.fixture
def world(
    database: Database, runtime: Runtime, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.setattr(sql_waits, "MOST_CHANGES", MOST_CHANGES)
    monkeypatch.setattr(sql_waits, "CHANGES_LEFT", CHANGES_LEFT)
    made = World(database, runtime, random.Random(request.param))
    yield made
    made.scheduler.close()


@pytest.mark.parametrize("world", range(3), indirect=True)
def test_every_job_that_waits_is_explained_after_each_round(world: World) -> None:
    for _ in range(15):
        world.happen()
        world.scheduler.round()
        world.look()
    assert len(world.met) > 4, world.met
    assert world.has_folded
