"""What may be wrong round a job on its node: each ends with a cause of its own, at once, and harms nobody else."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oar.lib.jobs import end_decision
from oar.lib.jobs.end_decision import EndFacts
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.records import NodeUsage
from oar.lib.jobs.states import Phase
from oar.lib.remote.pool import Remote
from oar.lib.remote.requests import RemoteSettings
from oar.lib.remote.transports import LocalTransport
from tests.process.node_box import NODE, Almighty, NodeBox
from tests.process.test_node_cgroups import run as run_script
from tests.process.this_machine import wait_until

READY = "oarexec is initialized and ready to do the job"


def run(box: NodeBox, job: dict[str, Any], remote: Remote | None = None) -> Cause:
    """Run a job to its end and clean up after it; why it ended, as the server would find out."""
    with box.launch(job, remote) as launch:
        launch.until(READY)
        launch.go()
        launch.end()
    return end(box, job, launch.lines)


def end(box: NodeBox, job: dict[str, Any], lines: list[str] | None = None) -> Cause:
    """Wait for the end of a job and clean up after it; why it ended."""
    ended = box.ended(job)
    (line,) = box.clean(job).lines
    said = json.loads(line)
    assert ended.get("reason") == said["reason"]
    told = [line for line in lines or () if line.startswith("REASON ")]
    if told:
        assert json.loads(told[0][len("REASON ") :]) == said["reason"]
    figures = {name: said["usage"][name] for name in ("memory_peak", "memory_limit", "oom_kills", "forks_denied")}
    return end_decision.decide(
        EndFacts(
            job["job_id"],
            exit_code=None if ended["status"] == "N" else int(ended["status"]),
            oarexec_code=ended["code"],
            phase=Phase.CLEANED,
            head=NODE,
            fault=end_decision.read_fault(said["reason"]),
            usage=[NodeUsage(NODE, 1, **figures)],
        )
    )


@contextmanager
def changed(box: NodeBox, change: str, back: str) -> Iterator[None]:
    """Change something of the box, and put it back."""
    box.sh(change)
    try:
        yield
    finally:
        box.sh(back)


@contextmanager
def small_disk(box: NodeBox, options: str) -> Iterator[str]:
    """A file system with little room, where alice may write."""
    place = f"{box.base}/small"
    with changed(box, f"mkdir {place}; mount -t tmpfs -o mode=1777,{options} tmpfs {place}", f"umount {place}"):
        yield place
    os.rmdir(place)


# -- the working directory --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/nonexistent/x", "DIRECTORY_MISSING"),
        ("/etc/passwd", "DIRECTORY_MISSING"),
        ("{home}/a\nb '\"$(touch /tmp/x)é", "DIRECTORY_MISSING"),
        ("/root", "DIRECTORY_DENIED"),
        ("{home}/closed", "DIRECTORY_DENIED"),
    ],
)
def test_a_working_directory_that_cannot_be_entered(box: NodeBox, path: str, code: str) -> None:
    closed = box.home("alice") / "closed"
    closed.mkdir(mode=0, exist_ok=True)
    os.chown(closed, 5002, 5002)
    place = path.format(home=box.home("alice"))
    cause = run(box, box.job_data(201, launching_directory=place))
    closed.rmdir()
    assert (cause.code, cause.data["node"], cause.data["path"]) == (code, NODE, place)


@pytest.mark.parametrize("stub", ["true", "mkdir {home}"])
def test_a_home_that_is_not_mounted_is_told_as_such(box: NodeBox, stub: str) -> None:
    home = str(box.home("alice"))
    take, back = f"mv {home} {home}.away; {stub.format(home=home)}", f"rm -rf {home}; mv {home}.away {home}"
    with changed(box, take, back):
        cause = run(box, box.job_data(202, launching_directory=f"{home}/work"))
        assert (cause.code, cause.data["home"], cause.data["path"]) == ("HOME_MISSING", home, f"{home}/work")
        if stub != "true":
            cause = run(box, box.job_data(203, launching_directory=home))
            assert (cause.code, cause.data["home"], cause.data["path"]) == ("HOME_MISSING", home, "out")


def test_a_job_whose_directory_vanishes_while_it_runs_ends_as_its_command_says(box: NodeBox) -> None:
    place = box.home("alice") / "vanishing"
    place.mkdir()
    os.chown(place, 5002, 5002)
    command = f"rm -rf {place}; sleep 1000"
    job = box.job_data(203, launching_directory=str(place), command=command)
    box.start(job)
    wait_until(lambda: not place.exists())
    assert box.ctl(job, "TERM") == 0
    assert box.ended(job)["code"] == 3
    box.clean(job)
    assert run(box, box.job_data(203, challenge="2", command="mkdir -p v; cd v; rm -rf ../v; exit 4")).data == {
        "status": 4
    }


# -- output files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prepare", "name", "code"),
    [
        ("true", "no/such/out", "OUTPUT_MISSING"),
        ("true", "/root/out", "OUTPUT_DENIED"),
        ("true", "/etc/passwd", "OUTPUT_DENIED"),
        ("mkdir -p isdir", "isdir", "OUTPUT_FAILED"),
        ("mkfifo pipe", "pipe", "OUTPUT_PIPE"),
        ("ln -s loop loop", "loop", "OUTPUT_LINK"),
        ("ln -s /etc/shadow secret", "secret", "OUTPUT_LINK"),
        ("ln -s gone/out dangling", "dangling", "OUTPUT_LINK"),
    ],
)
@pytest.mark.parametrize("which", ["stdout_file", "stderr_file"])
def test_an_output_file_that_cannot_be_opened(box: NodeBox, prepare: str, name: str, code: str, which: str) -> None:
    home = box.home("alice")
    box.run_as("alice", f"cd {home}; {prepare}")
    cause = run(box, box.job_data(204, **{which: name}))
    box.run_as("alice", f"cd {home}; rm -rf isdir pipe loop secret dangling")
    assert (cause.code, cause.data["path"]) == (code, name)


def test_links_of_the_user_s_own_and_one_file_for_both_outputs_are_fine(box: NodeBox) -> None:
    home = box.home("alice")
    box.run_as("alice", f"cd {home}; ln -sf target link")
    job = box.job_data(205, command="echo one; echo two >&2", stdout_file="link", stderr_file="link")
    assert run(box, job).code == "SUCCESS"
    assert (home / "target").read_text() == "one\ntwo\n"
    box.run_as("alice", f"rm {home}/link {home}/target")


def test_a_pipe_that_somebody_reads_takes_the_output(box: NodeBox) -> None:
    home = box.home("alice")
    box.run_as("alice", f"cd {home}; mkfifo pipe; cat pipe >read 2>/dev/null </dev/null & sleep 0")
    wait_until(lambda: box.sh("pgrep -u alice cat || true"))
    job = box.job_data(206, command="seq 20000", stdout_file="pipe")
    cause = wait_until(lambda: one if (one := run(box, job)).code != "OUTPUT_PIPE" else None)
    assert cause.code == "SUCCESS"
    wait_until(lambda: (home / "read").read_text().endswith("20000\n"))


@pytest.mark.parametrize("name", ["{place}/out", "full"])
def test_a_disk_without_room_for_a_file_refuses_the_output(box: NodeBox, name: str) -> None:
    with small_disk(box, "nr_inodes=1") as place:
        box.run_as("alice", f"ln -s {place}/out {box.home('alice')}/full")
        name = name.format(place=place)
        cause = run(box, box.job_data(207, stdout_file=name))
        box.run_as("alice", f"rm {box.home('alice')}/full")
    assert (cause.code, cause.data["path"]) == ("OUTPUT_FULL", name)


def test_the_event_names_file_node_and_reason(box: NodeBox) -> None:
    job = box.job_data(220, stdout_file="no/out")
    with box.launch(job) as launch:
        launch.until(READY)
        launch.go()
        said = launch.end().stderr
    box.ended(job)
    box.clean(job)
    assert said == f"Cannot create {box.home('alice')}/no/out on the node {NODE}: No such file or directory\n"


@pytest.mark.parametrize("where", ["stdout", "directory", "tmp"])
def test_a_job_that_fills_a_disk_is_told_which(box: NodeBox, where: str) -> None:
    with small_disk(box, "size=64k") as place:
        fill = "head -c 1000000 /dev/zero"
        changes: dict[str, dict[str, Any]] = {
            "stdout": {"stdout_file": f"{place}/out", "command": f"{fill}"},
            "directory": {"launching_directory": place, "stderr_file": "err", "command": f"{fill} >big"},
            "tmp": {"job_env": {"TMPDIR": place}, "command": f"{fill} >$TMPDIR/big"},
        }
        cause = run(box, box.job_data(208, **changes[where]))
    assert cause.code == "DISK_FULL"
    assert cause.data == {"status": 1, "node": NODE, "path": f"{place}/out" if where == "stdout" else place}


def test_a_user_who_stops_the_look_at_his_disks_does_not_stop_the_end_of_his_job() -> None:
    script = """
import oarexec_command, signal
oarexec_command.ROOM_SECONDS = 0.1
payload = oarexec_command.Payload({}, None, None, {}, 0)
payload.tell_room = lambda write: os.kill(os.getpid(), signal.SIGSTOP)
payload.look_for_room()
(looking,) = payload.noting
print(json.dumps([payload.fault, os.waitpid(looking, 0)[1]]))
"""
    assert run_script(script) == [None, signal.SIGKILL]


@contextmanager
def small_runtime_directory(box: NodeBox, options: str = "size=128k") -> Iterator[None]:
    """The files of OAR on the node have a small disk of their own."""
    made = f"install -d -o 5001 -g 5001 {box.runtime}"
    mount = f"{made}; mount -t tmpfs -o {options},mode=755,uid=5001,gid=5001 tmpfs {box.runtime}"
    with changed(box, mount, f"umount {box.runtime}"):
        yield


@pytest.mark.parametrize("inodes", range(1, 9))
def test_a_node_without_room_for_another_file_says_so_and_blames_no_prologue(box: NodeBox, inodes: int) -> None:
    job = box.job_data(221, command="true", script="#!/bin/sh\n", job_env={"A": "1"})
    with small_runtime_directory(box, f"nr_inodes={inodes}"):
        with box.launch(job) as launch:
            ended = launch.end()
        assert ended.exit not in (0, 1)
        assert ended.stderr.count("No space left on device") == 1
        assert "Errno" not in ended.stderr
        box.sh(f"mount -o remount,nr_inodes=100 {box.runtime}")
        assert box.clean(job).exit == 0


def test_the_end_of_a_job_is_told_though_the_disk_of_the_node_is_full(box: NodeBox) -> None:
    server = Almighty(b"OK\n")
    job = box.job_data(218, command="until [ -e go218 ]; do sleep 0.02; done", almighty_port=server.port)
    with small_runtime_directory(box):
        box.start(job)
        box.sh(f"head -c 1000000 /dev/zero >{box.runtime}/big || touch {box.home('alice')}/go218")
        server.join()
        assert server.reports == ["OAREXEC_218_0_0_1234567890\n"]
        pid = json.loads(box.sh(f"cat {box.runtime}/oarexec_218.state"))["pid"]  # the state of a job that runs
        wait_until(lambda: box.run_as("root", f"kill -0 {pid}").returncode != 0)
        box.sh(f"rm {box.runtime}/big")
        box.clean(job)


def test_a_node_whose_disk_is_full_says_so_before_anything_of_the_job_runs(box: NodeBox) -> None:
    job = box.job_data(219, command="touch ran219")
    with small_runtime_directory(box):
        box.sh(f"head -c 1000000 /dev/zero >{box.runtime}/big || true")
        with box.launch(job) as launch:
            ended = launch.end()
        assert ended.exit != 0
        assert "No space left on device" in ended.stderr
        box.sh(f"rm {box.runtime}/big")
        box.clean(job)
    assert not (box.home("alice") / "ran219").exists()


def test_what_a_job_left_in_tmp_goes_with_it(box: NodeBox) -> None:
    job = box.job_data(209, command="head -c 3000000 /dev/zero >/tmp/big209; mkdir -p /tmp/d209/x; exit 0")
    assert run(box, job).code == "SUCCESS"
    assert "209" not in box.sh("ls /tmp")


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code", "data"),
    [
        ("./noexec", "NOT_EXECUTABLE", {"status": 126}),
        ("./nowhere", "NOT_FOUND", {"status": 127}),
        ("./badinterpreter", "NOT_EXECUTABLE", None),
        ("kill -SEGV $$", "SIGNAL", {"signal": signal.SIGSEGV}),
        ("exit 200", "EXIT_STATUS", {"status": 200}),
    ],
)
def test_a_command_that_cannot_run_or_fails(box: NodeBox, command: str, code: str, data: dict[str, Any] | None) -> None:
    home = box.home("alice")
    box.run_as("alice", f"cd {home}; printf '#!/bin/sh\\n' >noexec; printf '#!/no/such\\n' >badinterpreter")
    box.run_as("alice", f"chmod +x {home}/badinterpreter")
    cause = run(box, box.job_data(210, command=command))
    assert cause.code == code or (command == "./badinterpreter" and cause.code == "NOT_FOUND")
    assert data is None or cause.data == data


@pytest.mark.parametrize(("shell", "code"), [("/no/such/shell", "SHELL_MISSING"), ("/etc/passwd", "SHELL_FAILED")])
def test_a_login_shell_that_is_not_there_or_is_none(box: NodeBox, shell: str, code: str) -> None:
    change = "sed -i '/^bob:/s,:[^:]*$,:{},' /etc/passwd"
    with changed(box, change.format(shell), change.format("/bin/bash")):
        job = box.job_data(211, user="bob")
        cause = run(box, job)
    assert (cause.code, cause.data["path"]) == (code, shell)
    assert f"cannot execute {shell}" in (box.home("bob") / "err").read_text()


def test_a_user_who_has_as_many_processes_as_he_may_is_told_so(box: NodeBox) -> None:
    limited = Remote(RemoteSettings(), LocalTransport([*box.enter(), "prlimit", "--nproc=1"]))
    keeper = box.job_data(212, command="sleep 1000 & sleep 1000")
    box.start(keeper)
    wait_until(lambda: box.probe(keeper)["processes"] >= 2)
    cause = run(box, box.job_data(213), limited)
    limited.close()
    assert (cause.code, cause.data["node"]) == ("PROCESS_LIMIT", NODE)
    box.ctl(keeper, "TERM")
    box.ended(keeper)


def test_a_fork_bomb_is_bounded_and_told(box: NodeBox) -> None:
    forks = "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(1000)"
    job = box.job_data(214, command=f"python3 -c '{forks}' || exit 9")
    job["init"]["options"] = {"processes": 40}
    assert run(box, job) == Cause(EndCode.PROCESS_LIMIT, {"status": 9, "node": NODE})
    wait_until(lambda: box.sh("pgrep -u alice || true") == "")  # who was killed waits to be buried


def test_a_job_that_wants_more_memory_than_its_share_is_told_how_much(box: NodeBox) -> None:
    grow = "y = []\nwhile True: y.append(bytes(1 << 22))"
    job = box.job_data(215, command=f"exec python3 -c '{grow}'")
    job["init"]["options"] = {"memory": True}
    with box.launch(job) as launch:
        launch.until(READY)
        for path in box.groups():
            limit = path / "payload/memory.limit_in_bytes"
            if limit.exists():
                limit.write_text(str(64 << 20))
        launch.go()
        launch.end()
    cause = end(box, job)
    assert (cause.code, cause.data["signal"]) == ("OUT_OF_MEMORY", signal.SIGKILL)
    figures = cause.data["nodes"][NODE]
    assert figures["limit"] == 64 << 20
    assert figures["peak"] == pytest.approx(64 << 20, rel=0.1)
    assert figures["kills"] >= 1


# -- other users ------------------------------------------------------------------------------------------------------


def test_others_see_neither_the_environment_nor_the_files_of_a_job(box: NodeBox) -> None:
    secret = "swordfish-216"
    job = box.job_data(216, command="sleep 1000", job_env={"PASSWORD": secret}, stdout_file="out216")
    box.start(job)
    wait_until(lambda: box.probe(job)["processes"])
    look = f"cat /proc/[0-9]*/environ {box.runtime}/* 2>/dev/null; ps -ef"
    seen = box.run_as("bob", look).stdout
    assert secret not in seen
    assert "sleep 1000" in seen
    assert secret in box.run_as("alice", look).stdout
    box.ctl(job, "TERM")
    box.ended(job)
