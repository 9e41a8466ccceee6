"""Advance reservations whose nodes are lost, on the real cluster, and what administrators may not do to them."""

from __future__ import annotations

from tests.acceptance.harness import Cluster, Person, configured, wait_until
from tests.acceptance.mailbox import Post
from tests.acceptance.reservations import (
    ask,
    hosts,
    log,
    record,
    wait_for_reservation,
)


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


def test_lost_nodes_are_replaced_under_the_jobs_that_go_on(cluster: Cluster, alice: Person) -> None:
    with configured(cluster, "RESERVATION_REPLACE_AFTER=1"):
        number = ask(alice, "-d 600 -l /network_address=2 -replace yes")
        lost, kept = hosts(cluster, number)
        inside = f"--ar {number} -l nodes=1,walltime=0:5 'sleep 1000'"
        runs = alice.submit(f"{inside} -p \"network_address='{kept}'\"")
        cluster.wait_for_state(runs, "Running")
        set_state(cluster, lost, "Absent")
        wait_until(lambda: "RESOURCES REPLACED" in log(cluster, number), lambda: log(cluster, number))
    assert lost not in hosts(cluster, number)
    assert kept in hosts(cluster, number)
    wait_for_reservation(cluster, number, "r")
    (new,) = {*hosts(cluster, number)} - {kept}
    second = alice.submit(inside)
    cluster.wait_for_state(second, "Running")
    assert (nodes_of(cluster, runs), nodes_of(cluster, second)) == ([kept], [new])
    assert cluster.state(runs) == "Running"
    set_state(cluster, lost, "Alive")
    outside = cluster.as_user("bob").submit(f"-p \"network_address='{lost}'\" -l nodes=1,walltime=0:0:10 true")
    cluster.wait_for_state(outside, "Terminated")  # what was given up is not taken back
