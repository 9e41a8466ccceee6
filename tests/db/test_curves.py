"""Curves of jobs in the database: what nodes report is stored once, by whatever process, and stays small."""

import json
import time
from typing import Any, cast

import pytest

from oar.cli import oarstat
from oar.cli.common.command import invoke
from oar.lib.access.records import User
from oar.lib.db.database import Database
from oar.lib.jobs.curves import MOST_POINTS, PERIOD, Curve, Sample
from oar.lib.jobs.sql_curves import CurvePlace, NewPoints
from oar.lib.jobs.states import JobState
from oar.lib.remote.pool import Remote
from oar.lib.remote.requests import RemoteSettings, Unreachable
from oar.lib.remote.session import Lost, NodeSession, OutputLine, ProgramEnded
from oar.lib.runtime import Runtime
from oar.modules.runner.curves import CurveCollector
from tests.builders import add_job, add_resources, execute_sql, move_job

ALICE = User("alice", 1001)


def curves_of(database: Database, job_id: int) -> list[Curve]:
    with database.snapshot() as tx:
        return tx.job_curves.of_jobs([job_id])[job_id]


def append(database: Database, *new: NewPoints) -> set[tuple[int, str]]:
    with database.begin() as tx:
        return tx.job_curves.append(new)


def test_points_are_appended_with_gaps_and_never_twice(database: Database) -> None:
    first = NewPoints(7, "node-1", 1000, PERIOD, [(2, Sample(100, 10)), (4, Sample(300, 30))])
    assert append(database, first) == {(7, "node-1")}
    assert append(database, first) == set()
    again = NewPoints(7, "node-1", 1000, PERIOD, [(4, Sample(999, 999)), (6, Sample(500, 50, 700, 7, 2))])
    assert append(database, again) == {(7, "node-1")}
    (curve,) = curves_of(database, 7)
    assert curve.cpu == [None, None, 100, None, 300, None, 500]
    assert curve.memory == [None, None, 10, None, 30, None, 50]
    assert (curve.gpu, curve.gpus) == ([None] * 6 + [700], 2)


def test_points_with_other_steps_are_not_appended(database: Database) -> None:
    append(database, NewPoints(7, "node-1", 1000, 2 * PERIOD, [(0, Sample(1, 1))]))
    assert append(database, NewPoints(7, "node-1", 1000, PERIOD, [(5, Sample(1, 1))])) == set()


def test_longer_steps_halve_a_curve(database: Database) -> None:
    points = [(number, Sample(number, number)) for number in range(MOST_POINTS)]
    append(database, NewPoints(7, "node-1", 1000, PERIOD, points))
    with database.begin() as tx:
        tx.job_curves.lengthen_steps({(7, "node-1"): 2 * PERIOD})
    (curve,) = curves_of(database, 7)
    assert curve.step == 2 * PERIOD
    assert curve.memory == list(range(1, MOST_POINTS, 2))


def test_a_node_may_tell_only_of_its_own_live_jobs(database: Database) -> None:
    resources = add_resources(database, nodes=2, cores=1)
    running = add_job(database, JobState.RUNNING, on=resources[:1])
    ended = add_job(database, JobState.TERMINATED, on=resources[:1])
    pairs = [(running, "node-1"), (running, "node-2"), (ended, "node-1"), (999, "node-1"), (running, "node-9")]
    with database.begin() as tx:
        places = tx.job_curves.places(pairs)
        start = tx.jobs.get(running).start_time
    assert places == {(running, "node-1"): CurvePlace(start, 0, 0)}


def test_nodes_are_watched_while_jobs_have_processes_there(database: Database) -> None:
    resources = add_resources(database, nodes=6, cores=1)
    add_job(database, JobState.RUNNING, on=resources[0:1])
    add_job(database, JobState.SUSPENDED, on=resources[1:2])
    add_job(database, JobState.LAUNCHING, on=resources[2:3])
    add_job(database, JobState.TERMINATED, on=resources[3:4])
    add_job(database, JobState.RUNNING, on=resources[4:5], types=["deploy"])
    add_job(database, JobState.RUNNING, on=resources[5:6], types=["noop"])
    with database.begin() as tx:
        assert tx.job_curves.nodes(tx.now - PERIOD) == []
        assert tx.job_curves.nodes(tx.now) == ["node-1", "node-2"]


class Nodes:
    """The nodes of a collector: those that are asked for, and their sessions."""

    def __init__(self) -> None:
        self.settings = RemoteSettings(pool_max=4)
        self.asked: list[str] = []
        self.opened: dict[str, Any] = {}

    def session(self, node: str, use: Any) -> None:
        self.asked.append(node)
        self.opened[node] = use


class FakeSession(NodeSession):
    """An open session without a connection."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.forgotten: list[int] = []

    def send(self, request: Any, seconds: float, sink: Any) -> int:
        self.requests.append((request, sink))
        return len(self.requests)

    def forget(self, number: int) -> None:
        self.forgotten.append(number)


class Watched:
    """A collector, and a clock that the test moves."""

    def __init__(self, database: Database) -> None:
        self.nodes = Nodes()
        self.collector = CurveCollector(database, cast(Remote, self.nodes), lambda: {"period": PERIOD})
        self.now = time.monotonic()

    def open(self, node: str) -> FakeSession:
        self.collector._look(self.now)
        session = FakeSession()
        self.nodes.opened.pop(node)(session)
        self.receive()
        return session

    def receive(self) -> None:
        while not self.collector._messages.empty():
            name, attempt, _, message = self.collector._messages.get()
            self.collector.take((name, attempt, self.now, message))

    def report(self, session: FakeSession, jobs: list[Any], seconds: float = PERIOD) -> None:
        self.now += seconds
        session.requests[-1][1](OutputLine(json.dumps({"seconds": seconds, "jobs": jobs})))
        self.receive()

    def store(self) -> None:
        self.collector.store(self.now)


@pytest.fixture
def watched(database: Database) -> Watched:
    return Watched(database)


def started(database: Database, seconds: int) -> int:
    """Add a job on node-1 that started so long ago."""
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database, nodes=1, cores=2))
    execute_sql(database, "UPDATE jobs SET start_time = start_time - %s WHERE job_id = %s", seconds, job_id)
    return job_id


def watch(watched: Watched, *hosts: str) -> FakeSession:
    watched.collector.follow(hosts)
    return watched.open(hosts[0])


def test_what_a_node_reports_becomes_a_curve(database: Database, watched: Watched) -> None:
    job = started(database, 10 * PERIOD)
    session = watch(watched, "node-1")
    for number in range(4):
        watched.report(session, [[job, 60_000, (number + 1) << 20]])
        watched.store()
    (curve,) = curves_of(database, job)
    assert (curve.node, curve.step) == ("node-1", PERIOD)
    assert [value for value in curve.cpu if value is not None] == [2000] * len([*filter(None, curve.cpu)])
    assert len([*filter(None, curve.cpu)]) >= 3


def test_what_a_node_reports_of_others_is_not_stored(database: Database, watched: Watched) -> None:
    job = started(database, 10 * PERIOD)
    other = add_job(database, JobState.RUNNING, on=add_resources(database, nodes=1, cores=1, network_address="node-7"))
    session = watch(watched, "node-1")
    for _ in range(3):
        watched.report(session, [[job, 1, 1], [other, 1, 1], [4_000_000, 1, 1]])
        watched.store()
    assert curves_of(database, job)
    assert not curves_of(database, other)
    assert not curves_of(database, 4_000_000)


def test_a_flood_of_reports_is_ignored(database: Database, watched: Watched) -> None:
    job = started(database, 10 * PERIOD)
    session = watch(watched, "node-1")
    for _ in range(100):
        watched.report(session, [[job, 1, 1]], seconds=0.01)
    assert sum(map(len, watched.collector._waiting.values())) == 1


def test_nonsense_ends_nothing(database: Database, watched: Watched) -> None:
    job = started(database, 10 * PERIOD)
    session = watch(watched, "node-1")
    for text in ("nonsense", '{"seconds": 30, "jobs": [[1, 2]]}', "[]"):
        watched.now += PERIOD
        session.requests[-1][1](OutputLine(text))
        watched.receive()
    watched.report(session, [[job, 30_000, 1 << 20]])
    watched.store()
    watched.report(session, [[job, 30_000, 1 << 20]])
    watched.store()
    assert curves_of(database, job)


def test_a_node_is_asked_again_after_its_session_was_lost(database: Database, watched: Watched) -> None:
    session = watch(watched, "node-1")
    session.requests[-1][1](Lost("gone"))
    watched.receive()
    watched.collector._look(watched.now)
    assert watched.nodes.asked == ["node-1", "node-1"]
    session.requests[-1][1](OutputLine('{"seconds": 30, "jobs": [[1, 2, 3]]}'))
    watched.receive()
    assert not watched.collector._waiting


def test_a_node_that_cannot_be_reached_is_not_asked_at_once(watched: Watched) -> None:
    watched.collector.follow(("node-1",))
    watched.collector._look(watched.now)
    watched.nodes.opened["node-1"](Unreachable("no route"))
    watched.receive()
    for _ in range(5):
        watched.collector._look(watched.now)
    assert watched.nodes.asked == ["node-1"]
    watched.collector._look(watched.now + 61)
    assert watched.nodes.asked == ["node-1", "node-1"]


def test_a_node_without_control_groups_is_left_alone_for_an_hour(watched: Watched) -> None:
    session = watch(watched, "node-1")
    session.requests[-1][1](ProgramEnded(4, "[node_curves] jobs have no control groups here"))
    watched.receive()
    watched.collector._look(watched.now + 3000)
    assert watched.nodes.asked == ["node-1"]


def test_a_node_without_jobs_is_left(watched: Watched) -> None:
    session = watch(watched, "node-1")
    watched.collector.follow(())
    watched.collector._look(watched.now)
    assert session.forgotten == [1]
    assert not watched.collector._nodes


def test_launches_keep_their_share_of_connections(watched: Watched) -> None:
    watched.collector.follow(tuple(f"node-{number}" for number in range(9)))
    watched.collector._look(watched.now)
    assert len(watched.nodes.asked) == 3


def test_another_process_continues_a_curve(database: Database, watched: Watched) -> None:
    job = started(database, 10 * PERIOD)
    session = watch(watched, "node-1")
    for _ in range(3):
        watched.report(session, [[job, 30_000, 1 << 20]])
        watched.store()
    (before,) = curves_of(database, job)
    other = Watched(database)
    other.now = watched.now
    session = watch(other, "node-1")
    for _ in range(3):
        other.report(session, [[job, 60_000, 2 << 20]])
        other.store()
    (after,) = curves_of(database, job)
    assert after.cpu[: len(before.cpu)] == before.cpu
    assert after.cpu[-1] == 2000
    watched.now = other.now
    for _ in range(2):  # both at the same time: the first one asks for the place of the curve again
        watched.report(watched_session(watched), [[job, 60_000, 2 << 20]])
        watched.store()
    (last,) = curves_of(database, job)
    assert last.cpu[: len(after.cpu)] == after.cpu


def watched_session(watched: Watched) -> FakeSession:
    return cast(FakeSession, watched.collector._nodes["node-1"].session)


def test_a_long_job_keeps_a_small_curve(database: Database, watched: Watched) -> None:
    job = started(database, 0)
    session = watch(watched, "node-1")
    for number in range(3 * MOST_POINTS):
        watched.report(session, [[job, 30_000, number << 20]])
        if number % 5 == 0:
            watched.store()
    watched.store()
    watched.store()
    (curve,) = curves_of(database, job)
    assert MOST_POINTS / 2 <= len(curve.cpu) <= MOST_POINTS
    assert curve.step == 4 * PERIOD
    assert set(curve.cpu[1:]) == {1000}


def test_oarstat_draws_the_curves_of_a_job(database: Database, runtime: Runtime) -> None:
    job = started(database, 10 * PERIOD)
    points = [(number, Sample(200 * number, 512 * number)) for number in range(10)]
    append(database, NewPoints(job, "node-1", 1000, PERIOD, points))
    shown = invoke(oarstat.main, ["--usage", "-f", str(job)], runtime=runtime, user=ALICE).out
    assert "node-1: one character for 0:0:30" in shown
    assert "CPU    1.80 of 2 cores" in shown
    assert "memory 4.5 GiB" in shown
    assert "_.:-" in shown
    record = json.loads(invoke(oarstat.main, ["--usage", "-f", "-J", str(job)], runtime=runtime, user=ALICE).out)
    assert record[str(job)]["curves"]["total"]["cpu"][-1] == 1.8
    plain = json.loads(invoke(oarstat.main, ["--usage", "-J", str(job)], runtime=runtime, user=ALICE).out)
    assert "curves" not in plain[str(job)]


def test_curves_are_deleted_with_their_job(database: Database) -> None:
    job = started(database, PERIOD)
    append(database, NewPoints(job, "node-1", 1000, PERIOD, [(0, Sample(1, 1))]))
    move_job(database, job, JobState.FINISHING, JobState.TERMINATED)
    with database.begin() as tx:
        tx.retention.remove_jobs([job])
    assert curves_of(database, job) == []
