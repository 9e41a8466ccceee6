"""Advance reservations on the real cluster: jobs that must leave, flexible and idle reservations, lost nodes."""

from __future__ import annotations

import pytest

from oar.lib.reservations.grid_engine_times import write_option_date
from tests.acceptance.harness import Cluster, Person, wait_until
from tests.acceptance.mailbox import Post
from tests.acceptance.reservations import (
    EVERYTHING,
    ask,
    hosts,
    log,
    may_reserve,
    now,
    record,
    row,
    wait_for_reservation,
)


@pytest.fixture
def alice(cluster: Cluster) -> Person:
    """She may reserve."""
    return may_reserve(cluster, "alice")


def dates(cluster: Cluster, job: int) -> tuple[int, int]:
    """When a job began and ended."""
    ((start, stop),) = cluster.sql(f"SELECT start_time, stop_time FROM jobs WHERE job_id = {job}")
    return int(start), int(stop)


def held_by(cluster: Cluster, job: int) -> set[str]:
    """The nodes on which a job is, or was."""
    rows = cluster.sql(
        "SELECT DISTINCT network_address FROM jobs JOIN assigned_resources ON moldable_job_id = assigned_moldable_job"
        f" JOIN resources USING (resource_id) WHERE job_id = {job}"
    )
    return {each[0] for each in rows}


def wait_for_date(cluster: Cluster, date: int) -> None:
    """Wait until the clock of the cluster has passed a date."""
    wait_until(lambda: now(cluster) > date)


def test_nothing_is_reserved_under_a_suspended_job_and_none_goes_on_into_a_reservation(
    cluster: Cluster, alice: Person
) -> None:
    root = cluster.as_user("root")
    job = alice.submit("-p \"network_address='node-1'\" -l nodes=1,walltime=0:1:40 'sleep 1000'")
    cluster.wait_for_state(job, "Running")
    (start, _) = dates(cluster, job)
    behind = ask(alice, f"-a {write_option_date(start + 105)} -d 600 -h node-1 -l /network_address=1")
    root.run(f"oarhold -r {job}")
    cluster.wait_for_state(job, "Suspended")
    suspended = now(cluster)
    refused = alice.attempt("qrsub -a +2h -d 60 -h node-1 -l /network_address=1")
    assert (refused.code, f"(suspended job {job})" in refused.err, "no later start was found" in refused.err) == (
        1,
        True,
        True,
    ), refused
    assert hosts(cluster, ask(alice, "-a +2h -d 60 -l /network_address=3")) == ["node-2", "node-3", "node-4"]
    wait_for_date(cluster, suspended + 6)  # with what is left of its walltime it would run into the reservation
    root.run(f"oarresume {job}")
    sentence = f"waits until the advance reservation {behind} is over"
    wait_until(lambda: sentence in alice.run(f"oarstat --explain {job}"), lambda: alice.run(f"oarstat --explain {job}"))
    assert cluster.state(job) == "Resuming"
    alice.run(f"qrdel {behind}")
    cluster.wait_for_state(job, "Running")


def test_jobs_of_a_flexible_reservation_begin_before_it_lie_beside_it_and_go_on_behind_it(
    cluster: Cluster, alice: Person
) -> None:
    number = ask(alice, "-a +35 -d 600 -l /network_address=1 -flex yes")
    wide = alice.submit(f"--ar {number} -l nodes=3,walltime=0:5 'sleep 1000'")
    cluster.wait_for_state(wide, "Running")
    assert dates(cluster, wide)[0] < int(row(cluster, number, "start_time")[0])
    assert {*hosts(cluster, number)} < held_by(cluster, wide)
    other = cluster.as_user("bob").submit("-l nodes=2,walltime=0:0:10 true")
    waits = alice.submit(f"--ar {number} -l nodes=2,walltime=0:0:10 true")
    wait_for_reservation(cluster, number, "r")
    assert cluster.state(other) == "Waiting"
    alice.run(f"qralter -e +5 {number}")
    wait_for_reservation(cluster, number, "gone")
    end, ended = map(int, row(cluster, number, "end_time, ended"))
    assert ended >= end
    assert (cluster.state(wide), cluster.state(waits)) == ("Running", "Waiting")
    assert cluster.sql(f"SELECT 1 FROM reservation_jobs WHERE job_id = {waits}") == []
    alice.run(f"oardel {wide}")
    for job in (other, waits):
        cluster.wait_for_state(job, "Terminated")


def test_a_reservation_that_nobody_uses_ends_when_its_idle_limit_is_reached(cluster: Cluster, alice: Person) -> None:
    number = ask(alice, f"-d 900 -idle 35 {EVERYTHING}")
    outside = cluster.as_user("bob").submit("-l nodes=4,walltime=0:0:10 true")
    inside = alice.submit(f"--ar {number} -l core=1,walltime=0:1 'sleep 6'")
    cluster.wait_for_state(inside, "Terminated")
    assert record(alice, number)["state"] == "r"
    wait_for_reservation(cluster, number, "gone")
    assert log(cluster, number) == ["CREATED", "START TIME REACHED", "IDLE", "TERMINATED"]
    assert int(row(cluster, number, "ended")[0]) - dates(cluster, inside)[1] >= 35
    cluster.wait_for_state(outside, "Terminated")


def set_state(cluster: Cluster, node: str, state: str) -> None:
    """An administrator tells the state of a node."""
    cluster.as_user("root").run(f"oarnodesetting -h {node} -s {state}")


def nodes_of(cluster: Cluster, job: int) -> list[str]:
    """The nodes that a job has now."""
    rows = cluster.sql(
        "SELECT DISTINCT network_address FROM jobs JOIN assigned_resources ON moldable_job_id = assigned_moldable_job"
        f" JOIN resources USING (resource_id) WHERE job_id = {job} AND assigned_resource_index = 'CURRENT' ORDER BY 1"
    )
    return [each[0] for each in rows]


def test_with_soft_errors_jobs_begin_on_what_is_left_and_the_owner_is_told(
    cluster: Cluster, alice: Person, post: Post
) -> None:
    number = ask(alice, "-a +30 -d 600 -N soft -h node-1,node-2 -l /network_address=2 -m bea -replace no")
    cluster.node("node-1").do("crash")
    set_state(cluster, "node-1", "Absent")
    wait_for_reservation(cluster, number, "W")
    assert record(alice, number)["reasons"] == ["reserved host node-1 is Absent"]
    assert "reserved host node-1 is Absent" in alice.run("qrstat -explain")
    small, wide = (alice.submit(f"--ar {number} -l nodes={nodes},walltime=0:1 hostname") for nodes in (1, 2))
    wait_for_reservation(cluster, number, "E")
    cluster.wait_for_state(small, "Terminated")
    assert nodes_of(cluster, small) in ([], ["node-2"])
    assert cluster.state(wide) == "Waiting"
    cluster.node("node-1").do("reboot")
    set_state(cluster, "node-1", "Alive")
    wait_for_reservation(cluster, number, "r")
    cluster.wait_for_state(wide, "Terminated")
    alice.run(f"qrdel {number}")
    wait_until(lambda: len(post.to("alice")) >= 4, lambda: post.to("alice"))
    about = [f"*OAR* [AR {tag}]: {number} (soft) on demo" for tag in ("BEGIN", "ERROR", "VALID", "END")]
    assert [subject for subject, _ in post.to("alice")] == about  # none when it was in the state W
    begin, error, valid, end = (text.splitlines() for _, text in post.to("alice"))
    start = f"Advance reservation {number} (soft) of alice"
    assert (begin[0], valid[0], end[0]) == (
        f"{start} has begun.",
        f"{start} is valid again.",
        f"{start} was deleted by alice.",
    )
    assert error[:3] == [
        f"{start} is in error.",
        "reserved host node-1 is Absent",
        "Its jobs go on with 2 of 4 slots (soft error handling).",
    ]
    assert end[1].startswith("Reserved ")
    assert log(cluster, number) == [
        *("CREATED", "RESOURCES UNSATISFIED", "START TIME REACHED", "RESOURCES SATISFIED", "DELETED", "TERMINATED")
    ]
