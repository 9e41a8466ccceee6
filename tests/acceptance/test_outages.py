"""Nodes, database and server fail while jobs wait, start, run and end: each job comes to its right end, once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import keep_logs
from tests.acceptance.harness import Cluster, Node, wait_until

pytestmark = pytest.mark.timeout(240)

#: Who looks for trouble looks more often than on a real site.
IMPATIENT = {
    "JOB_PROBE_FREQUENCY": 2,
    "FINAUD_FREQUENCY": 3,
    "SARKO_FREQUENCY": 2,
    "OAR_SSH_CONNECTION_TIMEOUT": 6,
    "JOB_KILL_GRACE": 1,
    "JOBDEL_SOFTWALLTIME": 4,
    "JOBDEL_WALLTIME": 8,
    "MAX_DB_CONNECTION_TIMEOUT": 3,
}


@pytest.fixture(scope="module")
def impatient(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of three nodes that notices failures within seconds."""
    settings = [word for key, value in IMPATIENT.items() for word in ("--set", f"{key}={value}")]
    cluster = Cluster.start(f"outages-{os.getpid()}", "--nodes", "3", "--cores", "1", "--fast-db", *settings)
    try:
        yield cluster
    finally:
        if request.session.testsfailed:
            keep_logs(cluster)
        cluster.stop()


@pytest.fixture
def cluster(impatient: Cluster) -> Iterator[Cluster]:
    """The same, made whole after each test."""
    yield impatient
    impatient.calm()


def started(cluster: Cluster, job: int) -> Node:
    """The head of a job that has begun to run."""
    cluster.wait_for_state(job, "Running")
    return cluster.node(cluster.as_user("alice").jobs(f"-j {job}")[job]["assigned_network_address"][0])


def work(seconds: str) -> str:
    """A command that leaves a line when it starts and one when it ends, and ends with 3."""
    return f"'echo start >> ran.$OAR_JOB_ID; sleep {seconds}; echo end >> ran.$OAR_JOB_ID; exit 3'"


def lines(cluster: Cluster, job: int) -> list[str]:
    """What the job's command left."""
    return cluster.as_user("alice").run(f"cat ran.{job} 2>/dev/null || true").split()


def exit_code(cluster: Cluster, job: int) -> str:
    """The wait status that is stored for a job."""
    return cluster.sql(f"SELECT exit_code FROM jobs WHERE job_id = {job}")[0][0]


def events(cluster: Cluster, job: int) -> set[str]:
    """The kinds of events of a job."""
    return {row[0] for row in cluster.sql(f"SELECT type FROM event_logs WHERE job_id = {job}")}


def assert_ran_once(cluster: Cluster, job: int) -> None:
    """It ended by itself and everybody knows how."""
    cluster.wait_for_state(job, "Terminated", deadline=60)
    assert lines(cluster, job) == ["start", "end"]
    assert exit_code(cluster, job) == str(3 << 8)


def test_a_job_whose_head_crashes_ends_when_the_node_is_back(cluster: Cluster) -> None:
    job = cluster.as_user("alice").submit(f"-l nodes=1,walltime=1 {work('600')}")
    head = started(cluster, job)
    head.do("crash")
    head.do("reboot")
    cluster.wait_for_state(job, "Error", deadline=60)
    assert lines(cluster, job) == ["start"]


def test_a_job_on_a_dead_node_ends_at_its_walltime(cluster: Cluster) -> None:
    job = cluster.as_user("alice").submit(f"-l nodes=1,walltime=0:0:3 {work('600')}")
    head = started(cluster, job)
    head.do("power-off")
    cluster.wait_for_state(job, "Error", deadline=120)
    wait_until(lambda: state_of(cluster, head) != "Alive", 60, f"{head.name} is no longer Alive")


def state_of(cluster: Cluster, node: Node) -> str:
    """The state of a node's resources."""
    return cluster.sql(f"SELECT DISTINCT state FROM resources WHERE network_address = '{node.name}'")[0][0]


def test_a_node_that_cannot_be_reached_at_a_launch_is_suspected_and_the_work_goes_elsewhere(cluster: Cluster) -> None:
    broken = cluster.node("node-1")
    broken.do("sshd-stop")
    cluster.server.do("stop")  # no warm connection is left
    cluster.server.do("start")
    job = cluster.as_user("alice").submit(f"-p \"network_address = 'node-1'\" -l nodes=1,walltime=0:2 {work('0')}")
    cluster.wait_for_state(job, "Error", deadline=60)
    wait_until(lambda: state_of(cluster, broken) == "Suspected", 30, "node-1 is Suspected")
    assert lines(cluster, job) == []
    other = cluster.as_user("alice").submit(f"-l nodes=2,walltime=0:2 {work('0')}")
    assert_ran_once(cluster, other)


def test_a_suspected_node_that_answers_again_is_alive(cluster: Cluster) -> None:
    node = cluster.node("node-2")
    node.do("cut")
    cluster.as_user("root").run("oarnodesetting -s Suspected -h node-2")
    wait_until(lambda: state_of(cluster, node) == "Suspected", what="node-2 is Suspected")
    node.do("heal")
    cluster.as_user("root").run("oarnodesetting -s Alive -h node-2")
    wait_until(lambda: state_of(cluster, node) == "Alive", 60, "node-2 is Alive")
    job = cluster.as_user("alice").submit(f"-p \"network_address = 'node-2'\" -l nodes=1,walltime=0:2 {work('0')}")
    assert_ran_once(cluster, job)


@pytest.mark.parametrize(("harm", "cure"), [("cut", "heal"), ("hang", "resume")])
def test_a_job_survives_that_its_node_is_away_for_a_while(cluster: Cluster, harm: str, cure: str) -> None:
    job = cluster.as_user("alice").submit(f"-l nodes=1,walltime=0:5 {work('4')}")
    head = started(cluster, job)
    head.do(harm)
    head.do(cure)
    assert_ran_once(cluster, job)


def test_the_end_of_a_job_is_reported_when_the_network_is_back(cluster: Cluster) -> None:
    job = cluster.as_user("alice").submit(f"-l nodes=1,walltime=0:5 {work('2')}")
    head = started(cluster, job)
    head.do("cut")
    wait_until(lambda: lines(cluster, job) == ["start", "end"], what="the command has ended, unheard")
    assert cluster.state(job) == "Running"
    head.do("heal")
    assert_ran_once(cluster, job)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_jobs_outlive_the_database(cluster: Cluster, how: str) -> None:
    alice = cluster.as_user("alice")
    running = alice.submit(f"-l nodes=1,walltime=0:5 {work('5')}")
    started(cluster, running)
    waiting = alice.submit(f"-l nodes=3,walltime=0:5 {work('0')}")
    cluster.database.do(how)
    refused = alice.attempt("oarstat")
    assert refused.code != 0
    assert len(refused.err.splitlines()) == 1
    cluster.database.do("start")
    assert_ran_once(cluster, running)
    assert_ran_once(cluster, waiting)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_job_that_ends_while_the_server_is_away_is_known_afterwards(cluster: Cluster, how: str) -> None:
    alice = cluster.as_user("alice")
    job = alice.submit(f"-l nodes=1,walltime=0:5 {work('2')}")
    started(cluster, job)
    cluster.server.do(how)
    late = alice.attempt(f"oarsub -l nodes=1,walltime=0:5 {work('0')}")
    assert late.code == 0
    wait_until(lambda: lines(cluster, job) == ["start", "end"], what="the command has ended")
    assert cluster.state(job) == "Running"
    cluster.server.do("start")
    assert_ran_once(cluster, job)
    assert_ran_once(cluster, int(late.out.rpartition("OAR_JOB_ID=")[2]))


@pytest.mark.parametrize("moment", ["Waiting", "Launching", "Running"])
def test_a_job_can_be_deleted_at_any_time(cluster: Cluster, moment: str) -> None:
    alice = cluster.as_user("alice")
    if moment == "Waiting":
        alice.submit("-l nodes=3,walltime=1 'sleep 601'")
    job = alice.submit(f"-l nodes=2,walltime=1 {work('600')}")
    if moment == "Running":
        started(cluster, job)
    alice.run(f"oardel {job}")
    cluster.wait_for_state(job, "Error")
    assert "FRAG_JOB_REQUEST" in events(cluster, job)
    assert "end" not in lines(cluster, job)
    for node in cluster.nodes:
        left = node.as_user("root")
        wait_until(lambda left=left: not left.attempt("pgrep -f '^sleep 600'").out, what=f"{node.name} is clean")
