"""What a site adds: commands that halt and wake nodes, and a scheduler of its own for a queue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import own_room
from tests.acceptance.harness import Cluster, wait_until
from tests.documents import SOURCE, named_blocks

SETTINGS = {
    "SCHEDULER_NODE_MANAGER_SLEEP_CMD": "/home/site/halt",
    "SCHEDULER_NODE_MANAGER_WAKE_UP_CMD": "/home/site/wake",
    "SCHEDULER_NODE_MANAGER_IDLE_TIME": 1,
    "SCHEDULER_NODE_MANAGER_SLEEP_TIME": 1,
    "EXTERNAL_SCHEDULER_MAX_FAILURES": 1,
    "JOB_KILL_GRACE": 0,
}

#: The commands write down what they are told; a woken node says so itself, unless it is broken.
HALT = '#!/bin/sh\necho "halt $*:" $(cat) >>/home/site/said\n'
WAKE = (
    '#!/bin/sh\necho "wake $*:" $(cat) >>/home/site/said\n[ -e /home/site/broken ] || oarnodesetting -s Alive -h "$1"\n'
)


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of two nodes of one core, with the programs of the site."""
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    with own_room(request, "site", "--nodes", "2", "--cores", "1", "--fast-db", *settings) as made:
        root = made.as_user("root")
        root.run("install -d -o oar /home/site /usr/lib/oar/schedulers")
        for name, text in (("halt", HALT), ("wake", WAKE)):
            root.run(f"cat >/home/site/{name}; chmod 755 /home/site/{name}", stdin=text)
        yield made


@pytest.fixture
def cluster(site: Cluster) -> Cluster:
    """The same, for one test."""
    return site


def said(cluster: Cluster) -> list[str]:
    """What the commands of the site were told."""
    return cluster.as_user("root").run("cat /home/site/said 2>/dev/null || true").splitlines()


def test_an_idle_node_sleeps_until_a_job_needs_it(cluster: Cluster) -> None:
    root, alice = cluster.as_user("root"), cluster.as_user("alice")
    root.run("oarnodesetting -h node-2 -p available_upto=2147483646")
    wait_until(lambda: bool(root.run("oarnotify Term") or said(cluster)))
    assert said(cluster) == ["halt node-2: node-2"]
    assert cluster.sql("SELECT network_address, state FROM resources ORDER BY 1") == [
        ["node-1", "Alive"],
        ["node-2", "Absent"],
    ]
    job = alice.submit("-l nodes=2,walltime=1 'sleep 1000'")
    cluster.wait_for_state(job, "Running")
    assert said(cluster) == ["halt node-2: node-2", "wake node-2: node-2"]
    root.run("touch /home/site/broken")
    alice.run(f"oardel {job}")
    cluster.wait_for_state(job, "Error")
    wait_until(lambda: root.run("oarnotify Term") or len(said(cluster)) == 3)
    job = alice.submit("-l nodes=2,walltime=1 'sleep 1000'")
    for wakes in (1, 2):
        wait_until(lambda: said(cluster)[3:] == ["wake node-2: node-2"] * wakes, lambda: said(cluster))  # noqa: B023
        cluster.sql("UPDATE resource_logs SET date_start = date_start - 1000 WHERE value = 'Absent' AND date_stop = 0")
        cluster.sql("UPDATE event_logs SET date = date - 1000 WHERE type = 'WAKEUP_NODE'")
        root.run("oarnotify Term")
    states = "SELECT state FROM resources WHERE network_address = 'node-2'"
    wait_until(lambda: cluster.sql(states) == [["Suspected"]])
    assert cluster.state(job) == "Waiting"
    root.run("rm /home/site/broken; oarnodesetting -h node-2 -p available_upto=0; oarnodesetting -h node-2 -s Alive")
    cluster.wait_for_state(job, "Running")
    alice.run(f"oardel {job}")
    cluster.wait_for_state(job, "Error")


def test_a_program_of_the_site_plans_a_queue_and_loses_it_when_it_fails(cluster: Cluster) -> None:
    root, alice = cluster.as_user("root"), cluster.as_user("alice")
    program = named_blocks(SOURCE / "docs" / "scheduler.rst")["scheduler"]
    path = "/usr/lib/oar/schedulers/lottery"
    root.run(f"cat >{path}; chmod 755 {path}; oarqueue --add lottery,5,lottery", stdin=program)
    first = alice.submit("-q lottery -l core=1,walltime=1 'sleep 1000'")
    cluster.wait_for_state(first, "Running")
    root.run(f"cat >{path}", stdin="#!/bin/sh\nexit 3\n")
    second = alice.submit("-q lottery -l core=1,walltime=1 'sleep 1000'")
    other = alice.submit("-l core=1,walltime=1 'sleep 1000'")
    cluster.wait_for_state(other, "Running")
    state = "SELECT state FROM queues WHERE queue_name = 'lottery'"
    wait_until(lambda: cluster.sql(state) == [["notActive"]], lambda: cluster.story(second))
    assert cluster.state(second) == "Waiting"
    alice.run("oardel -u")
    for job in (first, second, other):
        cluster.wait_for_state(job, "Error")
