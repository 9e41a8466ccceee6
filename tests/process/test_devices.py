"""The GPUs of a node are open to the job that has them, and to no other."""

import fcntl
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oar.lib.db.database import Database
from oar.modules.runner.actions import job_data
from tests.builders import add_job, add_resources
from tests.process.node_box import NODE, NodeBox
from tests.process.this_machine import wait_until

CARDS = Path("/dev/dri")


@pytest.fixture
def cards(box: NodeBox) -> Iterator[None]:
    """Two GPUs in the box: they are zero, full, random and urandom of this machine, which nothing else here opens."""
    with place_of_cards():
        nodes = "mknod card0 c 1 5; mknod card1 c 1 7; mknod renderD128 c 1 8; mknod renderD129 c 1 9; chmod 666 *"
        box.sh(f"mount -t tmpfs tmpfs {CARDS}; cd {CARDS}; {nodes}")
        yield
        box.sh(f"umount {CARDS}")


@contextmanager
def place_of_cards() -> Iterator[None]:
    """Have the directory of GPUs: it is the machine's, and who removes it takes what is mounted there from all boxes.

    So one test has it at a time, of all workers and suites.
    """
    directory = os.open(CARDS.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        made = not CARDS.exists()
        if made:
            CARDS.mkdir()
        yield
        if made:
            CARDS.rmdir()
    finally:
        os.close(directory)


def open_to(box: NodeBox, number: int, gpudevice: str | None, **more: Any) -> list[str]:
    """Run a job that has a GPU, or none; the devices that it can open."""
    look = 'for d in /dev/dri/*; do head -c 1 $d >/dev/null 2>&1 && echo "${d#/dev/dri/}"; done; true'
    job = box.job_data(number, command=look, stdout_file=f"devices{number}")
    resource = {"resource_id": 7, "type": "default", "network_address": NODE, "cpuset": "0", "gpudevice": gpudevice}
    job["init"] |= {"resources": [resource], "options": {"devices": True}, **more}
    box.run_to_end(job)
    box.clean(job)
    return (box.home("alice") / f"devices{number}").read_text().split()


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize(
    ("gpudevice", "found"),
    [
        ("0", ["card0", "renderD128"]),
        ("1", ["card1", "renderD129"]),
        ("0+1", ["card0", "card1", "renderD128", "renderD129"]),
        ("/dev/dri/renderD129", ["renderD129"]),
    ],
)
def test_a_job_opens_its_own_gpus_and_no_others(box: NodeBox, gpudevice: str, found: list[str]) -> None:
    assert open_to(box, 301, gpudevice) == found


@pytest.mark.usefixtures("cards")
def test_a_job_without_gpu_opens_none_of_a_node_that_has_some(box: NodeBox) -> None:
    assert open_to(box, 302, None, gpu_hosts=[NODE]) == []


@pytest.mark.usefixtures("cards")
def test_a_node_without_gpus_of_the_site_keeps_its_devices_open(box: NodeBox) -> None:
    assert len(open_to(box, 303, None)) == 4


@pytest.mark.usefixtures("cards")
def test_jobs_side_by_side_have_a_gpu_each(box: NodeBox) -> None:
    first = box.job_data(304, command="sleep 1000")
    resource = {"resource_id": 7, "type": "default", "network_address": NODE, "cpuset": "0", "gpudevice": "0"}
    first["init"] |= {"resources": [resource], "options": {"devices": True}}
    box.start(first)
    wait_until(lambda: box.probe(first)["processes"])
    assert open_to(box, 305, "1") == ["card1", "renderD129"]
    box.ctl(first, "TERM")
    box.ended(first)


SHOW = "echo ${CUDA_VISIBLE_DEVICES-unset} ${ROCR_VISIBLE_DEVICES-unset} ${GPU_DEVICE_ORDINAL-unset}"


def shown(box: NodeBox, number: int, gpudevice: str | None, **more: Any) -> str:
    """Run a job that has a GPU, or none; what its variables tell it."""
    job = box.job_data(number, command=SHOW, stdout_file=f"gpus{number}", **more)
    resource = {"resource_id": 7, "type": "default", "network_address": NODE, "cpuset": "0", "gpudevice": gpudevice}
    job["init"] |= {"resources": [resource, dict(resource, resource_id=8, network_address="other", gpudevice="7")]}
    box.run_to_end(job)
    environment = (box.runtime / f"alice_{number}.env").read_text()
    box.clean(job)
    said = (box.home("alice") / f"gpus{number}").read_text().strip()
    if not more:
        assert (f"export CUDA_VISIBLE_DEVICES='{said.split()[0]}'" in environment) is (gpudevice is not None)
    return said


def test_a_job_and_its_sessions_are_told_their_gpus_of_this_node(box: NodeBox) -> None:
    assert shown(box, 307, "2,3") == "2,3 2,3 0,1"


def test_nothing_is_told_where_no_resource_has_a_gpu(box: NodeBox) -> None:
    assert shown(box, 308, None) == "unset unset unset"


def test_what_a_user_gave_to_his_job_himself_counts(box: NodeBox) -> None:
    assert shown(box, 309, "2,3", job_env={"CUDA_VISIBLE_DEVICES": "3"}) == "3 2,3 0,1"


def test_the_server_tells_the_nodes_that_have_gpus_of_which_the_job_has_none(database: Database) -> None:
    with database.begin() as tx:
        tx.execute("ALTER TABLE resources ADD COLUMN gpudevice varchar(255)")
    try:
        resources = add_resources(database, nodes=3, cores=2)
        with database.begin() as tx:
            tx.execute("UPDATE resources SET gpudevice = '0' WHERE resource_id = ANY(%s)", (resources[0:3:2],))
        job_id = add_job(database, on=[resources[0], resources[3], resources[5]])
        with database.begin() as tx:
            data = job_data.read(tx, job_id)
        assert data is not None
        assert data.gpu_hosts == ("node-2",)
    finally:
        with database.begin() as tx:
            tx.execute("ALTER TABLE resources DROP COLUMN gpudevice")


VERSION_TWO = """
import os, sys
sys.path.insert(0, {oardir!r})
import node_cgroups, node_devices
groups = node_cgroups.GroupsV2({mount!r}, {path!r})
groups.prepare()
leaves = node_cgroups.Leaves("alice_306", "alice", 306)
groups.create(leaves, None, None, None)
node_devices.restrict(groups, leaves.payload, {allowed!r})
pid = os.fork()
if pid == 0:
    groups.join(leaves, "payload")
    for name in sorted(os.listdir("/dev/dri")):
        try:
            os.close(os.open("/dev/dri/" + name, os.O_RDONLY))
            os.write(1, name.encode() + b" ")
        except PermissionError:
            pass
    os._exit(0)
os.waitpid(pid, 0)
groups.remove("alice_306")
os.rmdir(groups.base)
"""


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize(("allowed", "found"), [(["0"], "card0 renderD128"), (["1"], "card1 renderD129"), ([], "")])
def test_version_2_refuses_the_gpus_of_others_to_real_processes(box: NodeBox, allowed: list[str], found: str) -> None:
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line]
    assert mounts, "no control groups of version 2 are mounted here"
    script = VERSION_TWO.format(
        oardir=str(box.oardir), mount=mounts[0][4], path=f"{box.cpuset_path}_two", allowed=allowed
    )
    assert box.sh(f"python3 -c {shlex.quote(script)}").strip() == found
