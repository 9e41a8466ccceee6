"""Whatever happens to jobs and nodes in whatever order, the rows fit together, and every job comes to an end.

A scheduler and a Runner that throw dice act beside the real services and modules: first each after the other, then all
at once on connections of their own.
"""

import random
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.history import event_consequences
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control, lifecycle
from oar.lib.jobs.control import HoldRules
from oar.lib.jobs.ends import ExecCode
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import FINAL, JobState, Phase
from oar.lib.nodes import state_changes
from oar.lib.nodes.states import ResourceState
from oar.lib.runtime import Runtime
from oar.modules import leon, node_change_state, sarko
from tests.builders import add_job, add_resources, for_no_reason

pytestmark = pytest.mark.slow

ROOT = User("root", 0)
TYPES: tuple[list[str], ...] = (
    [],
    [],
    [],
    ["idempotent"],
    ["besteffort", "idempotent"],
    ["noop"],
    ["container"],
    ["deploy"],
)
CODES = [*event_consequences.EXEC_EVENTS, 0, 0, 0, 0, 0, 77]


class Cluster:
    """Everything that can happen, each thing by a method."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self.now = 1_900_000_000
        self.database = Database(settings, clock=lambda: self.now)
        config = Config(job_resource_manager_property_db_field="cpuset", dead_switch_time=5000)
        self.runtime = Runtime(config, self.database)
        add_resources(self.database, nodes=3, cores=2)

    def submit(self, dice: random.Random) -> None:
        """Somebody submits a job."""
        add_job(
            self.database, walltime=dice.choice([60, 600]), types=dice.choice(TYPES), checkpoint=dice.choice([0, 30])
        )

    def change(self, work: Callable[[Transaction], None]) -> None:
        """Do something in a transaction."""
        self.database.run(work)

    # -- people

    def delete(self, dice: random.Random) -> None:
        """Somebody deletes a job."""
        self.change(lambda tx: self._steer(tx, dice, lambda ids: control.delete(tx, ROOT, ids, with_inner=True)))

    def hold(self, dice: random.Random) -> None:
        """Somebody holds or suspends a job."""
        running = dice.random() < 0.7
        self.change(
            lambda tx: self._steer(tx, dice, lambda ids: control.hold(tx, ROOT, ids, HoldRules(), running=running))
        )

    def resume(self, dice: random.Random) -> None:
        """Somebody lets a job go on."""
        self.change(lambda tx: self._steer(tx, dice, lambda ids: control.resume(tx, ROOT, ids, HoldRules())))

    def set_state(self, dice: random.Random) -> None:
        """An administrator takes a node away or brings it back."""
        to = dice.choice([*ResourceState, *[ResourceState.ALIVE] * 8])
        node = f"node-{dice.randint(1, 3)}"
        self.change(lambda tx: state_changes.ask_state(tx, [one.id for one in tx.resources.of_nodes([node])], to))

    def _steer(self, tx: Transaction, dice: random.Random, request: Callable[[Sequence[int]], object]) -> None:
        jobs = tx.jobs.live()
        if jobs:
            request([dice.choice(jobs).id])

    # -- the scheduler

    def schedule(self, dice: random.Random) -> None:
        """Start a waiting job on what is free, and let what was suspended go on."""
        self.change(lambda tx: self._schedule(tx, dice))

    def _schedule(self, tx: Transaction, dice: random.Random) -> None:
        held = {one for job in tx.jobs.live() for one in _resources(tx, job.id)}
        free = [one.id for one in tx.resources.all() if one.state is ResourceState.ALIVE and one.id not in held]
        waiting = tx.jobs.in_states([JobState.WAITING])
        if not free or not waiting:
            return
        job = dice.choice(waiting)
        if lifecycle.move(tx, job.id, JobState.TO_LAUNCH):
            moldable = tx.new_jobs.moldables_of_jobs([job.id])[job.id][0].id
            tx.jobs.update(job.id, assigned_moldable_job=moldable, start_time=tx.now)
            chosen = dice.sample(free, min(len(free), dice.randint(1, 3)))
            tx.insert_many(
                "INSERT INTO assigned_resources (moldable_job_id, resource_id) VALUES %s",
                [(moldable, one) for one in chosen],
            )

    # -- the Runner

    def launch(self, dice: random.Random) -> None:
        """Claim a job, or go on with its launch."""
        self.change(lambda tx: self._each(tx, dice, [JobState.TO_LAUNCH, JobState.LAUNCHING], self._launch))

    def end(self, dice: random.Random) -> None:
        """Let a job end that runs, or finish one that has ended."""
        states = [JobState.RUNNING, JobState.SUSPENDED, JobState.RESUMING, JobState.FINISHING]
        self.change(lambda tx: self._each(tx, dice, states, self._end))

    def freeze(self, dice: random.Random) -> None:
        """Suspend a job that is to be held, or thaw one that resumes."""
        self.change(lambda tx: self._each(tx, dice, [JobState.RUNNING, JobState.RESUMING], self._freeze))

    def sweep(self, dice: random.Random) -> None:
        """Clean a node that comes back."""
        self.change(lambda tx: self._sweep(tx, dice))

    def _each(
        self,
        tx: Transaction,
        dice: random.Random,
        states: Sequence[JobState],
        act: Callable[[Transaction, random.Random, Job], None],
    ) -> None:
        jobs = tx.jobs.in_states(states)
        job = tx.jobs.lock(dice.choice(jobs).id) if jobs else None
        if job is not None and job.state in states:
            act(tx, dice, job)

    def _launch(self, tx: Transaction, dice: random.Random, job: Job) -> None:
        if job.state is JobState.TO_LAUNCH:
            lifecycle.move(tx, job.id, JobState.LAUNCHING)
            tx.job_runs.claim(job.id, "node-1")
        elif tx.job_requests.jobs_to_kill([job.id]):
            self._report(tx, job, ExecCode.KILLED)
        elif dice.random() < 0.3:
            type_ = dice.choice([EventType.CPUSET_ERROR, EventType.LAUNCHING_OAREXEC_TIMEOUT, EventType.PROLOGUE_ERROR])
            hosts = sorted({one.network_address for one in tx.jobs.assigned([job.id]).get(job.id, [])})[:1]
            tx.job_runs.update(job.id, phase=Phase.FAILED)
            tx.events.add(type_, job.id, dice.choice(["not started", "state unknown"]), to_check=True, hosts=hosts)
        else:
            tx.job_runs.update(job.id, phase=Phase.STARTED)
            lifecycle.move(tx, job.id, JobState.RUNNING)

    def _report(self, tx: Transaction, job: Job, code: int) -> None:
        tx.job_runs.report(job.id, code, None)
        lifecycle.move(tx, job.id, JobState.FINISHING)

    def _end(self, tx: Transaction, dice: random.Random, job: Job) -> None:
        run = tx.job_runs.find(job.id)
        if job.state is not JobState.FINISHING:
            killed = tx.job_requests.jobs_to_kill([job.id])
            self._report(tx, job, ExecCode.KILLED if killed else dice.choice(CODES))
            tx.jobs.update(job.id, exit_code=dice.choice([0, 256, 99 << 8]))
        elif run is not None and run.phase is not Phase.CLEANED:
            exterminated = run.phase is Phase.EXTERMINATE
            types = [EventType.EXTERMINATE_JOB] if exterminated else event_consequences.events_of(run.oarexec_code or 0)
            for type_ in types:
                tx.events.add(type_, job.id, "", to_check=True)
            if dice.random() < 0.2:
                tx.events.add(EventType.CPUSET_CLEAN_ERROR, job.id, "", to_check=True, hosts=["node-2"])
            tx.job_runs.update(job.id, phase=Phase.CLEANED)

    def _freeze(self, tx: Transaction, dice: random.Random, job: Job) -> None:
        if job.state is JobState.RESUMING:
            lifecycle.move(tx, job.id, JobState.RUNNING)
        elif any(event.type == EventType.HOLD_RUNNING_JOB for event in tx.events.pending() if event.job_id == job.id):
            lifecycle.move(tx, job.id, JobState.SUSPENDED)
            tx.events.clear(job.id, EventType.HOLD_RUNNING_JOB)

    def _sweep(self, tx: Transaction, dice: random.Random) -> None:
        hosts = tx.resources.to_sweep()
        if hosts:
            tx.events.add(EventType.NODE_SWEPT, 0, "", to_check=True, hosts=[dice.choice(hosts)])

    # -- the modules

    def node_change_state(self, dice: random.Random) -> None:
        """NodeChangeState makes a pass."""
        node_change_state.run(self.runtime)

    def leon(self, dice: random.Random) -> None:
        """Leon makes a pass."""
        leon.run(self.runtime)

    def sarko(self, dice: random.Random) -> None:
        """Sarko makes a pass."""
        sarko.run(self.runtime)

    def time_goes_by(self, dice: random.Random) -> None:
        """Nothing happens for a while."""
        self.now += dice.choice([1, 10, 100, 400])

    # -- what must be true

    def check(self) -> None:
        """See that the rows fit together."""
        with self.database.snapshot() as tx:
            found = tx.invariants.violations(self.database.settings.ro_user)
        assert [str(violation) for violation in found] == []

    def finish(self, dice: random.Random) -> None:
        """Let everything come to its end."""
        for _ in range(60):
            with self.database.snapshot() as tx:
                live = [job.id for job in tx.jobs.live()]
            self._ask_end(live)
            for act in (self.leon, *[self.launch, self.end, self.end] * max(1, len(live)), self.node_change_state):
                act(dice)
            self.now += 100
            self.sarko(dice)
            if not live:
                return

    def _ask_end(self, ids: Sequence[int]) -> None:
        self.database.run(lambda tx: control.ask_end(tx, for_no_reason(*ids)))

    def pending(self) -> list[str]:
        """Return what nobody has looked at."""
        with self.database.snapshot() as tx:
            return [event.type for event in tx.events.pending()]


def _resources(tx: Transaction, job_id: int) -> list[int]:
    return [one.id for one in tx.jobs.assigned([job_id], current=True).get(job_id, [])]


@pytest.fixture
def cluster(settings: DatabaseSettings) -> Iterator[Cluster]:
    """Three nodes, nothing on them."""
    cluster = Cluster(settings)
    yield cluster
    cluster.database.close()


PEOPLE = (*["submit"] * 5, "delete", "hold", "hold", "resume", "resume", "set_state", "set_state", "time_goes_by")
SERVER = ("schedule", "schedule", "launch", "launch", "launch", "end", "end", "freeze", "sweep")
MODULES = ("node_change_state", "leon", "sarko")


def all_ended(cluster: Cluster) -> bool:
    """Whether every job is in a final state."""
    with cluster.database.snapshot() as tx:
        return {state for (state,) in tx.rows("SELECT DISTINCT state FROM jobs")} <= {str(state) for state in FINAL}


@pytest.mark.parametrize("seed", range(4))
def test_one_after_the_other(cluster: Cluster, seed: int) -> None:
    dice = random.Random(seed)
    for step in range(400):
        getattr(cluster, dice.choice(PEOPLE + SERVER * 2 + MODULES * 2))(dice)
        if step % 25 == 0:
            cluster.check()
    cluster.finish(dice)
    cluster.check()
    assert all_ended(cluster)
    assert cluster.pending() == []


def act_at_once(cluster: object, seed: int, actors: Sequence[Sequence[str]], seconds: float) -> None:
    """Let each actor do 40 deeds, of those that are his, at the same time as the others."""
    problems: list[BaseException] = []

    def act(number: int, deeds: Sequence[str]) -> None:
        dice = random.Random(f"{seed} {number}")
        try:
            for _ in range(40):
                getattr(cluster, dice.choice(deeds))(dice)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            problems.append(error)

    threads = [threading.Thread(target=act, args=(number, deeds)) for number, deeds in enumerate(actors)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    assert problems == []


@pytest.mark.parametrize("seed", range(2))
def test_all_at_once(cluster: Cluster, seed: int) -> None:
    # One scheduler, and one of each module, as the server runs them; the rest as many as like to.
    actors = [
        PEOPLE,
        PEOPLE,
        ("schedule",),
        ("launch", "end", "freeze", "sweep"),
        ("launch", "end"),
        *((one,) for one in MODULES),
    ]
    act_at_once(cluster, seed, actors, 60)
    cluster.leon(random.Random(seed))  # puts away the request that came while its job was ending
    cluster.check()
    cluster.finish(random.Random(seed))
    cluster.check()
    assert all_ended(cluster)
