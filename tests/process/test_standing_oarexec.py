"""The process of an oarexec serves for one job after the other, and nothing of a job stays in it."""

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from node_base import JobFiles, lock_is_held

from oar.lib.remote.bootstrap import TOOLS
from tests.process.node_box import Almighty, NodeBox
from tests.process.this_machine import wait_until

READY = "oarexec is initialized and ready to do the job"
#: What a command tells of the process that it is.
FACES = "id; umask; ulimit -a; grep -E '^(Sig|Shd|Cap|Groups|NoNewPrivs)' /proc/self/status; ls /proc/self/fd; env"

_PARTING = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
import oarexec_command, oarexec_end
before = set(os.listdir("/proc/self/fd"))
parting, wakeup = oarexec_end.Parting(), oarexec_command.Wakeup()
parting.prepare(sys.argv[2])
connection = socket.socket()
parting.is_free = True
score = oarexec_command.oom_score()
oarexec_command.set_oom_score(score + 100)
assert parting.come_back(wakeup)
assert oarexec_command.oom_score() == score
assert set(os.listdir("/proc/self/fd")) == before | {str(connection.fileno())}
"""


def run(box: NodeBox, job_id: int, user: str = "alice", **more: Any) -> tuple[dict[str, Any], int]:
    """Run a job to its reported end; its data, and the process of its oarexec."""
    server = Almighty(b"OK\n")
    job = box.job_data(job_id, user, almighty_port=server.port, **more)
    box.start(job)
    server.join()
    return job, process_of(box, job_id)


def process_of(box: NodeBox, job_id: int) -> int:
    return int(json.loads((box.runtime / f"oarexec_{job_id}.state").read_text())["pid"])


def lives(box: NodeBox, pid: int) -> bool:
    return box.run_as("root", f"test -e /proc/{pid}").returncode == 0


def rests(box: NodeBox, pid: int) -> bool:
    """Whether a process waits for its next job: it is root again, and has only the pipes of the session."""
    told = box.run_as("root", f"awk '/^Uid/ {{print $3}}' /proc/{pid}/status; ls /proc/{pid}/fd").stdout
    return told.split() == ["0", "0", "1", "2"]


def test_an_oarexec_that_is_not_heard_ends_when_its_job_is_cleaned(box: NodeBox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        job = box.job_data(139, almighty_port=silent.getsockname()[1], command="setsid sleep 1000 & exit 0")
        box.start(job)
        box.ended(job)
        pid = process_of(box, 139)
        wait_until(lambda: "alice_139" not in box.sh(f"cat /proc/{pid}/cgroup"))
        assert box.clean(job).exit == 0
        assert not box.run_as("root", f"grep -v Z /proc/{pid}/stat").stdout
        assert not box.files_of(139)


def test_the_jobs_of_two_users_have_one_oarexec_and_see_nothing_of_each_other(box: NodeBox) -> None:
    first, pid = run(box, 701, command=FACES, job_env={"SECRET": "of alice"})
    wait_until(lambda: rests(box, pid))
    assert box.clean(first).exit == 0
    assert rests(box, pid)
    assert box.cpuset_path not in box.sh(f"cat /proc/{pid}/cgroup")
    _, other = run(box, 702, "bob", command=FACES)
    assert other == pid
    of_alice, of_bob = ((box.home(user) / "out").read_text() for user in ("alice", "bob"))
    assert "SECRET=of alice\n" in of_alice
    expected = of_alice.replace("SECRET=of alice\n", "").replace("701", "702").replace("alice", "bob")
    assert sorted(expected.replace("5002", "5003").splitlines()) == sorted(of_bob.splitlines())


@pytest.mark.slow
def test_after_many_jobs_another_process_takes_its_place(box: NodeBox) -> None:
    processes = []
    for job_id in range(1000, 1110):
        job, pid = run(box, job_id)
        processes.append(pid)
        wait_until(lambda: rests(box, processes[-1]) or not lives(box, processes[-1]))
        box.clean(job)
    assert 1 < len(set(processes)) < 5


def test_one_to_which_a_signal_may_be_under_way_ends(box: NodeBox) -> None:
    """Somebody has looked at the jobs of the node, and is about to signal an oarexec."""
    job, pid = run(box, 703)
    wait_until(lambda: rests(box, pid))
    box.clean(job)
    with open(box.runtime / "lives_of_oarexec.lock") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        job, other = run(box, 704)
        assert other == pid
        wait_until(lambda: not lives(box, pid))


def test_a_signal_for_a_job_that_is_over_does_not_reach_the_next_one(box: NodeBox) -> None:
    first, pid = run(box, 705)
    wait_until(lambda: rests(box, pid))
    second = box.job_data(706, "bob", command="sleep 1000")
    box.start(second)
    assert process_of(box, 706) == pid
    assert box.ctl(first, "TERM") == 1
    assert box.clean(first).exit == 0
    assert box.probe(second)["answer"] == "running"
    assert box.ctl(second, "TERM") == 0
    assert box.ended(second)["code"] == 3


def test_who_asks_for_a_job_that_is_over_does_not_signal_the_next_one_of_its_process(box: NodeBox) -> None:
    """The first job is not cleaned, and its lock is held for a moment by an oarexec that finds that it has been."""
    first, pid = run(box, 714)
    wait_until(lambda: rests(box, pid))
    second = box.job_data(715, "bob", command="sleep 1000")
    box.start(second)
    assert process_of(box, 715) == pid
    with open(box.runtime / "oarexec_714.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert box.ctl(first, "TERM") == 1
    box.clean(first)
    assert box.probe(second)["answer"] == "running"
    assert box.ctl(second, "TERM") == 0
    box.ended(second)


def test_who_looks_whether_an_oarexec_lives_does_not_pass_for_it(tmp_path: Path) -> None:
    files = JobFiles(str(tmp_path), 1)
    with open(files.lock, "w") as oarexec:
        assert not lock_is_held(files)
        fcntl.flock(oarexec, fcntl.LOCK_SH)  # as another one does who looks
        assert not lock_is_held(files)
        fcntl.flock(oarexec, fcntl.LOCK_EX)
        assert lock_is_held(files)


def test_what_the_c_library_keeps_open_stays_open(tmp_path: Path) -> None:
    """It has connected to the service that knows the accounts, and takes the descriptor for that from then on."""
    if os.geteuid() != 0:
        pytest.skip("oarexec is root")
    read, write = os.pipe()
    with open(read, "rb") as session, open(write, "wb"):
        subprocess.run([sys.executable, "-c", _PARTING, TOOLS, tmp_path], check=True, stdin=session)


@pytest.mark.parametrize(
    "more",
    [{"prologue": "/bin/false"}, {"launching_directory": "/nowhere"}, {"detach_oarexec": 0}],
    ids=["the prologue failed", "the directory cannot be entered", "the server stays at its side"],
)
def test_only_a_usual_end_makes_a_process_free(box: NodeBox, more: dict[str, Any]) -> None:
    job, pid = run(box, 707)
    wait_until(lambda: rests(box, pid))
    box.clean(job)
    job = box.job_data(708, **more)
    with box.launch(job) as launch:
        if "prologue" not in more:
            launch.until(READY)
            launch.go()
        launch.end()
    assert process_of(box, 708) == pid
    wait_until(lambda: not lives(box, pid))


def test_a_job_that_is_killed_takes_its_process_along(box: NodeBox) -> None:
    server = Almighty(b"OK\n")
    job = box.job_data(709, command="sleep 1000", almighty_port=server.port)
    box.start(job)
    assert box.ctl(job, "TERM") == 0
    server.join()
    pid = process_of(box, 709)
    wait_until(lambda: not lives(box, pid))


def test_an_end_is_reported_to_the_server_that_answers(box: NodeBox) -> None:
    servers = ["127.0.0.2", "127.0.0.3", "127.0.0.1"]  # the first closes the connection, the second refuses it
    job: dict[str, Any] = {"almighty_hostname": "127.0.0.2", "almighty_hosts": servers}
    server = Almighty(b"OK\n")
    with socket.create_server(("127.0.0.2", server.port)) as fenced:

        def close_one() -> None:
            fenced.accept()[0].close()

        closer = threading.Thread(target=close_one)
        closer.start()
        box.start(box.job_data(713, almighty_port=server.port, **job))
        server.join()
        closer.join()
    assert server.reports[0].startswith("OAREXEC_713_0_")


def test_one_that_the_server_does_not_hear_is_ended_with_its_group(box: NodeBox) -> None:
    job = box.job_data(710)  # nobody listens at its port
    box.run_to_end(job)
    pid = process_of(box, 710)
    wait_until(lambda: f"{box.cpuset_path}/alice_710/oarexec" in box.sh(f"cat /proc/{pid}/cgroup"))
    assert box.clean(job).exit == 0
    wait_until(lambda: not lives(box, pid))


def test_one_whose_session_is_over_ends_after_its_job(box: NodeBox) -> None:
    server = Almighty(b"OK\n")
    job = box.job_data(711, command="cat go", almighty_port=server.port)
    os.mkfifo(box.home("alice") / "go")
    os.chmod(box.home("alice") / "go", 0o644)
    remote = box.new_remote()
    with box.launch(job, remote) as launch:
        launch.until(READY)
        launch.go()
        launch.until("STARTED")
        assert launch.end().exit == 0
    remote.close()
    pid = process_of(box, 711)
    (box.home("alice") / "go").write_text("on")
    server.join()
    wait_until(lambda: not lives(box, pid))
    assert box.clean(job).exit == 0


def test_one_that_is_killed_while_it_rests_costs_the_next_job_nothing(box: NodeBox) -> None:
    job, pid = run(box, 712)
    wait_until(lambda: rests(box, pid))
    box.clean(job)
    box.sh(f"kill -9 {pid}")
    wait_until(lambda: not lives(box, pid))
    job, other = run(box, 713)
    assert other != pid
