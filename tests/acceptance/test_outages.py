"""Nodes are away for a while or for ever while jobs run on them."""

from __future__ import annotations

import pytest

from tests.acceptance.harness import Cluster, Node, wait_until


def started(cluster: Cluster, job: int) -> Node:
    """The head of a job whose command has begun, as the server knows."""
    cluster.wait_for_start(job)
    wait_until(lambda: lines(cluster, job) == ["start"], "the command runs")
    return cluster.node(cluster.as_user("alice").jobs(f"-j {job}")[job]["assigned_network_address"][0])


#: A command that leaves a line when it starts and one when it ends, and ends with 3 when it is let.
WORK = (
    "'echo start >> ran.$OAR_JOB_ID; until [ -e end.$OAR_JOB_ID ]; do sleep 0.1; done;"
    " echo end >> ran.$OAR_JOB_ID; exit 3'"
)


def let_end(cluster: Cluster, job: int) -> None:
    """Let the command of a job end, now or when its node goes on."""
    cluster.as_user("alice").run(f"touch end.{job}")


def lines(cluster: Cluster, job: int) -> list[str]:
    """What the job's command left."""
    return cluster.as_user("alice").run(f"cat ran.{job} 2>/dev/null || true").split()


def exit_code(cluster: Cluster, job: int) -> str:
    """The wait status that is stored for a job."""
    return cluster.sql(f"SELECT exit_code FROM jobs WHERE job_id = {job}")[0][0]


def assert_ran_once(cluster: Cluster, job: int) -> None:
    """It ended by itself and everybody knows how."""
    cluster.wait_for_state(job, "Terminated")
    assert lines(cluster, job) == ["start", "end"]
    assert exit_code(cluster, job) == str(3 << 8)


@pytest.mark.usefixtures("impatient")
def test_a_job_on_a_dead_node_ends_at_its_walltime(cluster: Cluster) -> None:
    job = cluster.as_user("alice").submit(f"-l nodes=1,walltime=1 {WORK}")
    head = started(cluster, job)
    head.do("power-off")
    cluster.let_pass(3600, job)
    cluster.wait_for_state(job, "Error")
    wait_until(lambda: cluster.node_state(head.name) != "Alive", f"{head.name} is no longer Alive")


@pytest.mark.usefixtures("impatient")
def test_a_job_on_a_node_that_falls_silent_ends_long_before_its_walltime(cluster: Cluster) -> None:
    alice = cluster.as_user("alice")
    job = alice.submit(f"-t idempotent -l nodes=1,walltime=1 {WORK}")
    head = started(cluster, job)
    head.do("power-off")
    cluster.wait_for_state(job, "Error")
    assert cluster.cause(job) == "NODE_LOST"
    assert f"{head.name} cannot be reached any more" in alice.run(f"oarstat --explain {job}")
    ((copy,),) = cluster.sql(f"SELECT job_id FROM jobs WHERE resubmit_job_id = {job}")
    let_end(cluster, int(copy))
    assert_ran_once(cluster, int(copy))
    assert cluster.node_state(head.name) == "Suspected"
    head.do("reboot")
    wait_until(lambda: cluster.node_state(head.name) == "Alive", f"{head.name} is Alive again by itself")


@pytest.mark.parametrize(("harm", "cure"), [("cut", "heal"), ("hang", "resume")])
def test_a_job_survives_that_its_node_is_away_for_a_while(cluster: Cluster, harm: str, cure: str) -> None:
    job = cluster.as_user("alice").submit(f"-l nodes=1,walltime=0:5 {WORK}")
    head = started(cluster, job)
    head.do(harm)
    head.do(cure)
    let_end(cluster, job)
    assert_ran_once(cluster, job)


def test_the_end_of_a_job_is_reported_when_the_network_is_back(cluster: Cluster) -> None:
    job = cluster.as_user("alice").submit(f"-l nodes=1,walltime=0:5 {WORK}")
    head = started(cluster, job)
    head.do("cut")
    let_end(cluster, job)
    wait_until(lambda: lines(cluster, job) == ["start", "end"], "the command has ended, unheard")
    assert cluster.state(job) == "Running"
    head.do("heal")
    assert_ran_once(cluster, job)
