"""The disk of the log of the server is full for a while: jobs come and go as ever."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.acceptance.harness import Cluster, Person, configured, wait_until

#: Where the server writes what it has to say, and what fills the rest of the disk.
PLACE, REST = "/run/small", "/run/small/rest"


@pytest.fixture
def small_disk(cluster: Cluster) -> Iterator[Person]:
    """Root on a server whose logs are on a disk of their own."""
    root = cluster.as_user("root")
    root.run(f"mkdir -p {PLACE} && mount -t tmpfs -o size=256k,mode=755 small {PLACE} && chown oar {PLACE}")
    with configured(cluster, f"LOG_FILE={PLACE}/oar.log", f"COMPLETION_LOG={PLACE}/ended.json"):
        start_again(cluster)
        yield root
    start_again(cluster)
    root.run(f"umount {PLACE} && rmdir {PLACE}")


def start_again(cluster: Cluster) -> None:
    cluster.server.do("stop")
    cluster.server.do("start")


def test_a_server_that_cannot_write_its_log_loses_no_job_and_says_what_is_wrong(
    cluster: Cluster, alice: Person, small_disk: Person
) -> None:
    running = alice.submit("-l core=1,walltime=0:10 'until [ -e end ]; do sleep 0.1; done'")
    cluster.wait_for_start(running)
    small_disk.run(f"head -c 1m /dev/zero >{REST} || test $(df --output=avail {PLACE} | tail -1) = 0")
    meanwhile = alice.submit_all("--array 4 -l core=1,walltime=0:1 'echo ran >> ran'")
    alice.run("touch end")
    for job in (running, *meanwhile):
        cluster.wait_for_state(job, "Terminated")
    assert alice.run("cat ran").split() == ["ran"] * 4
    told = small_disk.attempt("oar-server status --check")
    assert (told.code, "no space is left on its file system" in told.out) == (1, True), told.out

    small_disk.run(f"rm {REST}")
    afterwards = alice.submit("-l core=1,walltime=0:1 true")
    cluster.wait_for_state(afterwards, "Terminated")
    wait_until(lambda: f"|{afterwards}|ended: Terminated" in small_disk.run(f"cat {PLACE}/oar.log"), "its last line")
    wait_until(lambda: {running, *meanwhile, afterwards} <= {*told_ends(small_disk)}, "no end is missing")


def told_ends(root: Person) -> list[int]:
    """The jobs in the file of ended ones."""
    return [json.loads(line)["job_id"] for line in root.run(f"cat {PLACE}/ended.json").splitlines()]
