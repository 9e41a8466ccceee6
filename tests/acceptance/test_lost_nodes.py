"""Nodes reboot, hang, and lose what runs jobs there, on a site that has changed no time of its configuration."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import own_room
from tests.acceptance.harness import Cluster, wait_until
from tests.acceptance.test_outages import WORK, assert_ran_once, let_end, started

#: A pause of a node in which no job may be lost.
PAUSE_SECONDS = 60


@pytest.fixture(scope="module")
def plain(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of two nodes with the shipped configuration."""
    with own_room(request, "lost", "--nodes", "2", "--cores", "1", "--fast-db") as cluster:
        yield cluster


@pytest.fixture
def cluster(plain: Cluster) -> Iterator[Cluster]:
    """The same, made whole after each test."""
    yield plain
    plain.calm()


def test_a_killed_oarexec_is_noticed_at_once(cluster: Cluster) -> None:
    job = cluster.as_user("alice").submit(f"-l nodes=1,walltime=1 {WORK}")
    head = started(cluster, job)
    pid = f"/var/lib/oar/pid_of_oarexec_for_jobId_{job}"
    head.as_user("root").run(f"kill -KILL $(cat {pid})")
    cluster.wait_for_state(job, "Error", within=120)  # its node is looked at every five minutes only
    assert cluster.cause(job) == "OAREXEC_LOST"
    assert cluster.node_state(head.name) == "Alive"


def test_a_node_that_reboots_under_its_jobs_heals_itself(cluster: Cluster) -> None:
    alice = cluster.as_user("alice")
    lost = alice.submit(f"-l nodes=1,walltime=1 {WORK}")
    head = started(cluster, lost)
    again = alice.submit(f"-t idempotent -l nodes=1,walltime=1 {WORK}")
    other = started(cluster, again)
    for node in (head, other):
        node.do("crash")
        node.do("reboot")
    for job in (lost, again):
        cluster.wait_for_state(job, "Error")
        assert cluster.cause(job) == "NODE_REBOOTED"
    assert f"{head.name} was rebooted while the job ran there" in alice.run(f"oarstat --explain {lost}")
    for node in (head, other):
        wait_until(lambda: cluster.node_state(node.name) == "Alive", f"{node.name} is Alive again")  # noqa: B023
    ((copy,),) = cluster.sql("SELECT job_id FROM jobs WHERE resubmit_job_id <> 0")
    let_end(cluster, int(copy))
    assert_ran_once(cluster, int(copy))


def test_a_node_that_hangs_for_a_minute_keeps_its_job(cluster: Cluster) -> None:
    job = cluster.as_user("alice").submit(f"-l nodes=1,walltime=0:30 {WORK}")
    head = started(cluster, job)
    begin = time.monotonic()
    head.do("hang")
    wait_until(lambda: time.monotonic() > begin + PAUSE_SECONDS + 2, "the pause is over")
    failures = "SELECT max(failures) > 0 FROM job_runs"
    wait_until(lambda: cluster.sql(failures) == [["t"]], "the server has noticed it")
    assert cluster.state(job) == "Running"
    head.do("resume")
    let_end(cluster, job)
    assert_ran_once(cluster, job)
    assert cluster.node_state(head.name) == "Alive"
