"""Curves of jobs in the database: what nodes report is stored once, by whatever process, and stays small."""

import json
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.cli import oarstat
from oar.cli.common.command import invoke
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.curves import MOST_POINTS, PERIOD, Curve, Sample
from oar.lib.jobs.sql_curves import CurvePlace, JobCurves, NewPoints
from oar.lib.jobs.states import JobState
from oar.lib.remote.pool import Remote
from oar.lib.remote.requests import RemoteSettings, Unreachable, most_watched, needed_connections
from oar.lib.remote.session import Lost, NodeSession, OutputLine, ProgramEnded
from oar.lib.runtime import Runtime
from oar.modules.runner.bipbip_commander import Runner
from oar.modules.runner.bipbip_pipe import WatchNodes
from oar.modules.runner.curves import STORE_SECONDS, CurveCollector
from oar.modules.runner.watched_nodes import WatchedNodes
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
        assert tx.job_curves.watched_jobs(tx.now - PERIOD) == []
        jobs = tx.job_curves.watched_jobs(tx.now)
        assert tx.job_curves.nodes(jobs, 9) == ["node-1", "node-2"]
        assert tx.job_curves.nodes(jobs, 1) == ["node-1"]
        assert tx.job_curves.nodes([], 9) == []


def test_nodes_are_read_only_when_jobs_have_begun_or_ended(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    real = JobCurves.nodes

    def nodes(table: JobCurves, ids: list[int], most: int) -> list[str]:
        reads.append(most)
        return real(table, ids, most)

    monkeypatch.setattr(JobCurves, "nodes", nodes)
    watched = WatchedNodes(database)
    found = []
    for _ in range(3):
        started(database, 10 * PERIOD)
        for _ in range(3):
            watched.read(9)
        found.append(watched._nodes)
    assert reads == [9, 9, 9]
    assert found == [["node-1"]] * 3


def test_the_runner_does_not_wait_for_the_nodes(database: Database) -> None:
    started(database, 10 * PERIOD)
    watched = WatchedNodes(database)
    assert watched.follow(Config()) == []
    thread = watched._thread
    assert thread is not None
    thread.join(60)
    nodes = watched.follow(Config())
    assert nodes == ["node-1"]
    assert watched.follow(Config()) is nodes
    assert watched._thread is thread  # it is not time yet
    watched._next = 0.0
    assert watched.follow(Config(job_curves=False)) == []


def test_a_bipbip_is_told_its_nodes_when_they_change_and_when_it_is_new() -> None:
    told: list[tuple[int, tuple[str, ...]]] = []

    def bipbip(number: int) -> Any:
        def write(message: WatchNodes) -> bool:
            told.append((number, message.hosts))
            return True

        return SimpleNamespace(write=write)

    runner: Any = Runner.__new__(Runner)
    runner._bipbips, runner._watched = {0: bipbip(0), 1: bipbip(1)}, {}
    runner._dispatch = SimpleNamespace(worker_of_host=lambda host: int(host[-1]) % 2)
    nodes, more = ["node-1", "node-2"], ["node-1", "node-2", "node-3"]
    for hosts in ([], nodes, nodes, more):
        runner._watch(hosts)
    assert told == [(0, ("node-2",)), (1, ("node-1",)), (1, ("node-1", "node-3"))]
    del runner._watched[0]  # it was replaced
    runner._watch(more)
    assert told[3:] == [(0, ("node-2",))]


@given(st.integers(1, 10**6))
def test_the_proposed_number_of_connections_is_the_smallest_that_is_enough(nodes: int) -> None:
    connections = needed_connections(nodes)
    assert most_watched(connections) >= nodes > most_watched(connections - 1)


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
        self.write(session, json.dumps({"seconds": seconds, "jobs": jobs}), seconds)

    def write(self, session: FakeSession, text: str, seconds: float = PERIOD) -> None:
        """Let a node write a line so long after the last one."""
        self.now += seconds
        for node in self.collector._nodes.values():
            node.accepted = None if node.accepted is None else node.accepted - seconds
        session.requests[-1][1](OutputLine(text))
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
    for text in ("nonsense", '{"seconds": 30, "jobs": [[1, 2]]}', "[]", " " * 10**6):
        watched.write(session, text)
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


def test_too_few_connections_are_logged_once_with_the_number_that_is_enough(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    for count in (9, 9, 9, 2, 9):
        watched.collector.follow(tuple(f"node-{number}" for number in range(count)))
        watched.collector.turn()
    text = "the curves of jobs are recorded on 3 of 9 nodes only: OAR_SSH_POOL_MAX is 4. Set it to 12 or more."
    assert [record.message for record in caplog.records] == [text, text]


def test_invalid_reports_are_logged_together(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    session = watch(watched, "node-1")
    for number in range(5):
        watched.write(session, f"nonsense {number}")
        watched.collector.turn()
    (record,) = caplog.records
    assert record.message.startswith("invalid reports about the usage of jobs were ignored: 1 from 1 nodes.")
    assert record.message.endswith("from node-1: 'nonsense 0'")
    assert watched.collector._bad_reports == {"node-1": 4}


def test_a_flood_of_messages_leaves_the_queue_short(watched: Watched) -> None:
    session = watch(watched, "node-1")
    for _ in range(1000):
        session.requests[-1][1](OutputLine("{}"))
    assert watched.collector._messages.qsize() == 1


class Over(BaseException):
    """The end of an endless loop."""


def test_messages_without_end_do_not_prevent_the_turns(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is followed by another one, and takes a second."""
    now, turns = [watched.now], [0]
    collector = watched.collector
    monkeypatch.setattr("oar.modules.runner.curves.time", SimpleNamespace(monotonic=lambda: now[0]))

    def take(_: object) -> None:
        now[0] += 1
        collector._put("node-1", 0, Lost("gone"))
        if now[0] > watched.now + 10 * STORE_SECONDS:
            raise Over

    def turn() -> None:
        turns[0] += 1

    monkeypatch.setattr(collector, "take", take)
    monkeypatch.setattr(collector, "turn", turn)
    collector._put("node-1", 0, Lost("gone"))
    with pytest.raises(Over):
        collector.run()
    assert turns[0] >= 10


def test_an_exception_does_not_end_the_thread_and_is_logged_once(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[object] = []

    def take(item: object) -> None:
        taken.append(item)
        if len(taken) == 3:
            raise Over
        raise ArithmeticError("wrong")

    monkeypatch.setattr(watched.collector, "take", take)
    monkeypatch.setattr(watched.collector, "turn", lambda: None)
    for _ in range(3):
        watched.collector._put("node-1", 0, Lost("gone"))
    with pytest.raises(Over):
        watched.collector.run()
    assert [record.message for record in caplog.records] == [
        "the curves of jobs are incomplete: a message cannot be handled"
    ]


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


def test_oarstat_draws_the_curves_of_a_job_at_terminals(
    database: Database, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = started(database, 10 * PERIOD)
    points = [(number, Sample(200 * number, 512 * number)) for number in range(10)]
    append(database, NewPoints(job, "node-1", 1000, PERIOD, points))
    piped = invoke(oarstat.main, ["--usage", "-f", str(job)], runtime=runtime, user=ALICE).out
    with monkeypatch.context() as patch:
        patch.setattr("oar.cli.oarstat.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
        shown = invoke(oarstat.main, ["--usage", "-f", str(job)], runtime=runtime, user=ALICE).out
    assert shown.startswith(piped)
    assert "one character for" not in piped
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
