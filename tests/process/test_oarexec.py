"""oarexec: one job's life on its head node, with real processes, accounts and control groups."""

import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from oar.lib.remote import bootstrap
from oar.lib.remote.requests import CommandRan
from tests.process.node_box import NODE, Almighty, NodeBox
from tests.process.this_machine import wait_until

READY = "oarexec is initialized and ready to do the job"


def test_the_command_runs_as_the_user_in_the_job_s_group_with_its_files(box: NodeBox) -> None:
    command = (
        'id -un; pwd; cat "$OAR_NODEFILE"; cat /proc/self/cpuset; readlink /proc/$$/fd/0; echo problem >&2; exit 3'
    )
    job = box.job_data(101, command=command)
    ended = box.run_to_end(job)
    assert (ended["code"], ended["status"]) == (0, "768")
    home = box.home("alice")
    said = ["alice", str(home), "node1", f"{box.cpuset_path}/alice_101", "/dev/null"]
    assert (home / "out").read_text().split() == said
    assert (home / "err").read_text() == "problem\n"
    assert (home / "out").stat().st_uid == 5002


def test_nothing_of_the_job_is_left_after_clean(box: NodeBox) -> None:
    job = box.job_data(102, command="setsid sleep 1000 & exit 0")
    box.run_to_end(job)
    wait_until(lambda: box.sh("pgrep -u alice sleep || true"))  # the shell may end before it is one
    assert box.clean(job).exit == 0
    assert not box.files_of(102)
    assert not [group for group in box.groups() if "102" in group.name]
    wait_until(lambda: box.sh("pgrep -u alice || true") == "")  # the killed wait to be buried
    assert box.probe(job)["answer"] == "never"


def test_the_command_text_is_data_whatever_is_in_it(box: NodeBox) -> None:
    job = box.job_data(
        103, command="printf '%s\\n' \"it's\" '\"' '\\' '$HOME' 'é'\necho \"$OAR_JOB_NAME\"", job_name="a'b\"c;d $x"
    )
    job["stdout_file"] = "out %jobid%"
    box.run_to_end(job)
    assert (box.home("alice") / "out 103").read_text() == "it's\n\"\n\\\n$HOME\né\na'b\"c;d $x\n"


def test_without_go_nothing_of_the_user_runs(box: NodeBox) -> None:
    job = box.job_data(104, command="touch ran", attempt=2)
    for word in ("ABORT", "GO 1"):
        with box.launch(job) as launch:
            launch.until(READY)
            launch.dialogue.send(word)
            assert launch.end().exit == 3
        assert box.probe(job)["answer"] == "aborted"
        job["attempt"] += 1
    assert not (box.home("alice") / "ran").exists()


def test_kill_ends_the_payload_and_says_so_in_the_error_file(box: NodeBox) -> None:
    job = box.job_data(105, command="sleep 1000 & sleep 1000", stderr_file="err105")
    box.start(job)
    assert box.ctl(job, "TERM") == 0
    ended = box.ended(job)
    assert (ended["code"], ended["status"], ended["processes"]) == (3, "N", 0)
    wait_until(lambda: "Job 105 KILLED ##" in (box.home("alice") / "err105").read_text())
    box.clean(job)
    assert box.ctl(job, "TERM") == 1


def test_the_environment_is_built_from_nothing_but_what_is_documented(box: NodeBox) -> None:
    (box.home("oar") / ".batch_job_bashrc").write_text("")
    job = box.job_data(
        106, command="env -0 >env", job_name="n", job_env={"MINE": "a\nb", "not a name": "x", "PATH": "/p"}
    )
    job |= {"types": {"besteffort": 1, "inner": "7"}, "project": "p", "command": "/usr/bin/env -0 >env"}
    box.run_to_end(job)
    text = (box.home("alice") / "env").read_text()
    found = dict(item.split("=", 1) for item in text.split("\0") if item)
    home, runtime = str(box.home("alice")), str(box.runtime)
    expected = dict.fromkeys(["OAR_JOB_ID", "OAR_JOBID", "OAR_ARRAY_ID", "OAR_ARRAYID"], "106")
    expected |= dict.fromkeys(["OAR_ARRAY_INDEX", "OAR_ARRAYINDEX", "OAR_JOB_INDEX", "OAR_JOBINDEX"], "1")
    expected |= dict.fromkeys(["OAR_WORKDIR", "OAR_WORKING_DIRECTORY", "OAR_O_WORKDIR", "HOME"], home)
    nodes = ["OAR_NODEFILE", "OAR_NODE_FILE", "OAR_FILE_NODES", "OAR_RESOURCE_FILE"]
    expected |= dict.fromkeys(nodes, f"{runtime}/106")
    mpi = ["OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "HYDRA_HOST_FILE"]
    expected |= dict.fromkeys(mpi, f"{runtime}/106") | {"HYDRA_LAUNCHER": "ssh"}
    agents = ["OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC"]
    expected |= dict.fromkeys(agents, "oarsh")
    expected |= dict.fromkeys(["USER", "LOGNAME", "OAR_USER"], "alice")
    expected |= {
        "OAR_RESOURCE_PROPERTIES_FILE": f"{runtime}/106_resources", "OAR_JOB_NAME": "n", "OAR_PROJECT_NAME": "p",
        "OAR_STDOUT": "out", "OAR_STDERR": "err", "OAR_JOB_WALLTIME": "1:0:0", "OAR_JOB_WALLTIME_SECONDS": "3600",
        "OAR_CPUSET": f"{box.cpuset_path}/alice_106", "OAR_JOB_TYPES": "besteffort;inner=7", "SHELL": "/bin/bash",
        "SUDO_COMMAND": "OAR", "TERM": "unknown", "MINE": "a\nb", "PATH": "/p",
        "BASH_ENV": f"{box.home('oar')}/.batch_job_bashrc",
    }  # fmt: skip
    for name in ("LANG", "SHLVL", "PWD", "OLDPWD", "_"):
        found.pop(name, None)
    assert found == expected


def test_a_script_that_was_kept_is_the_users_alone_and_goes_with_the_job(box: NodeBox) -> None:
    script = "#!/usr/bin/env python3\nimport os, sys\nprint(sys.argv[1:], os.stat(sys.argv[0]))\n"
    job = box.job_data(107, command="\"$OAR_SCRIPT\" 'two words' é", script=script, job_env={"A": "1"})
    path = box.runtime / "alice_107.script"
    with box.launch(job) as launch:
        launch.until("oarexec is initialized and ready to do the job")
        assert path.stat().st_uid == box.runtime.stat().st_uid
        assert box.run_as("alice", f"chmod u+w {path} || echo x >>{path} || rm -f {path}").returncode != 0
        assert box.run_as("alice", f"cat {path}").stdout == script
        assert box.run_as("bob", f"cat {path}; {path}").stdout == ""
        given = (box.runtime / "alice_107.given").stat()
        assert (given.st_mode & 0o777, given.st_uid) == (0o600, box.runtime.stat().st_uid)
        launch.go()
        launch.until("STARTED")
        assert launch.end().exit == 0
    box.ended(job)
    assert (box.home("alice") / "out").read_text().startswith("['two words', 'é']")
    box.clean(job)
    assert not list(box.runtime.glob("alice_107*"))


def test_where_files_have_no_access_lists_a_script_is_its_user_s_own(box: NodeBox) -> None:
    job = box.job_data(108, command='"$OAR_SCRIPT"', script="#!/bin/sh\nstat -c '%a %U' $0\n", stdout_file="out108")
    box.sh(f"install -d -o oar {box.runtime}; mount -t ramfs ramfs {box.runtime}; chown oar: {box.runtime}")
    try:
        box.start(job)
        box.ended(job)
        assert (box.home("alice") / "out108").read_text() == "500 alice\n"
        box.clean(job)
    finally:
        box.sh(f"umount {box.runtime}")


@pytest.mark.parametrize(
    ("changes", "code", "status"),
    [
        ({"command": "exit 3"}, 0, "768"),
        ({"command": "kill -9 $$"}, 0, "9"),
        ({"command": "kill -9 -1; exit 3"}, 0, "768"),
        ({"command": "no-such-command-here"}, 0, str(127 << 8)),
        ({"launching_directory": "/nonexistent"}, 10, "N"),
        ({"stdout_file": "/proc/version"}, 20, "N"),
        ({"stderr_file": "no/such/directory"}, 20, "N"),
    ],
)
def test_how_a_job_ended_is_told_by_code_and_raw_status(
    box: NodeBox, changes: dict[str, Any], code: int, status: str
) -> None:
    job = box.job_data(107, **changes)
    with box.launch(job) as launch:
        launch.until(READY)
        launch.go()
        request_ended = launch.end()
    ended = box.ended(job)
    assert (ended["code"], ended["status"]) == (code, status)
    assert request_ended.exit == code
    assert ("OAREXEC_SCRIPT_EXIT_VALUE N" in launch.lines) == (code != 0)


def script(box: NodeBox, name: str, text: str) -> str:
    path = box.base / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def test_prologue_and_epilogue_run_as_oar_with_their_arguments(box: NodeBox) -> None:
    text = 'echo "$0 $@ $(id -un) $OAR_JOB_ID $MINE" >>{}/said\n'
    said = box.base / "scripts"
    said.mkdir(exist_ok=True)
    os.chown(said, 5001, 5001)
    prologue = script(box, "pro", text.format(said))
    epilogue = script(box, "epi", text.format(said))
    job = box.job_data(108, prologue=prologue, epilogue=epilogue, job_env={"MINE": "users"})
    assert box.run_to_end(job)["code"] == 0
    files = f"{box.runtime}/108"
    assert (said / "said").read_text().splitlines() == [
        f"{prologue} 108 alice {files} 3600 oar 108 ",
        f"{epilogue} 108 alice {files} oar 108 ",
    ]


def test_a_prologue_that_fails_or_hangs_ends_the_job_before_its_command(box: NodeBox) -> None:
    failing = script(box, "failing", "exit 1\n")
    hanging = script(box, "hanging", "sleep 1000 & echo $! >/tmp/child; wait\n")
    for number, prologue in enumerate((failing, hanging)):
        job = box.job_data(109 + number, prologue=prologue, pro_epi_timeout=4, command="touch ran109")
        with box.launch(job) as launch:
            assert launch.end().exit == 1
        box.clean(job)
    assert not (box.home("alice") / "ran109").exists()
    wait_until(lambda: box.sh("kill -0 $(cat /tmp/child) 2>&1 || true"))
    wait_until(lambda: box.sh("pgrep -u oar sleep || true") == "")


def test_a_prologue_whose_time_is_over_at_once_is_ended_too(box: NodeBox) -> None:
    prologue = script(box, "long", "exec sleep 1000\n")
    job = box.job_data(112, prologue=prologue, pro_epi_timeout=0)
    with box.launch(job) as launch:
        assert launch.end().exit == 1
    box.clean(job)
    assert box.sh("pgrep -u oar sleep || true") == ""


@pytest.mark.parametrize(
    ("command", "action", "code"),
    [("exit 0", None, 2), ("sleep 1000", "TERM", 4), ("trap 'exit 0' USR2; sleep 1000 & wait", "USR2", 41)],
)
def test_an_epilogue_that_fails_changes_the_code(box: NodeBox, command: str, action: str | None, code: int) -> None:
    job = box.job_data(111, epilogue=script(box, "bad", "exit 1\n"), command=command)
    box.start(job)
    if action:
        wait_until(lambda: box.probe(job)["processes"] > 1 or action == "TERM")
        box.ctl(job, action)
    assert box.ended(job)["code"] == code


def test_a_kill_that_comes_after_the_command_has_ended_changes_nothing(box: NodeBox) -> None:
    epilogue = script(box, "slow", "touch /tmp/epilogue; until [ -e /tmp/over ]; do sleep 0.02; done\n")
    job = box.job_data(129, epilogue=epilogue, command="exit 6")
    box.start(job)
    wait_until(lambda: box.sh("ls /tmp").count("epilogue"))
    assert box.ctl(job, "TERM") == 0
    box.sh("touch /tmp/over")
    ended = box.ended(job)
    assert (ended["code"], ended["status"]) == (0, str(6 << 8))
    box.sh("rm -f /tmp/over /tmp/epilogue")


def test_a_process_that_was_killed_before_its_word_is_an_end_too(box: NodeBox) -> None:
    job = box.job_data(130, command="touch ran130")
    with box.launch(job) as launch:
        launch.until(READY)
        wait_until(lambda: box.sh("pkill -9 -u alice && echo killed || true"))  # it begins as root
        launch.go()
        launch.end()
    ended = box.ended(job)
    assert (ended["code"], ended["status"]) == (0, "9")
    assert not (box.home("alice") / "ran130").exists()


def test_checkpoint_and_user_signals_reach_the_command_and_are_noted(box: NodeBox) -> None:
    command = "trap 'echo got usr2; exit 5' USR2; trap 'echo got usr1' USR1; echo on; while :; do sleep 0.05; done"
    job = box.job_data(112, command=command, stdout_file="out112", stderr_file="err112", checkpoint_signal=12)
    box.start(job)
    out, err = box.home("alice") / "out112", box.home("alice") / "err112"
    wait_until(lambda: "on" in out.read_text())
    assert box.ctl(job, "URG", user_signal=10) == 0
    wait_until(lambda: "got usr1" in out.read_text())
    assert box.ctl(job, "URG", user_signal="SIGNOTHING; rm -rf") == 2
    assert box.ctl(job, "USR1") == 0  # means nothing to a passive job
    assert box.ctl(job, "USR2") == 0
    ended = box.ended(job)
    assert (ended["code"], ended["status"]) == (40, str(5 << 8))
    assert out.read_text().split("\n")[:-1] == ["on", "got usr1", "got usr2"]
    date = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]"
    lines = err.read_text().splitlines()
    assert re.fullmatch(f"## OAR {date} Job 112 SIGNALED with SIGUSR1 ##", lines[0])
    assert re.fullmatch(f"## OAR {date} Job 112 CHECKPOINTED with signal 12 ##", lines[1])


def test_a_kill_gives_the_payload_time_to_end_by_itself(box: NodeBox) -> None:
    command = "trap 'echo saved; exit 0' TERM; echo on; while :; do sleep 0.05; done"
    job = box.job_data(113, command=command, stdout_file="out113", kill_grace=20)
    box.start(job)
    out = box.home("alice") / "out113"
    wait_until(lambda: "on" in out.read_text())
    box.ctl(job, "TERM")
    ended = box.ended(job)
    assert (ended["code"], ended["status"], out.read_text()) == (3, "N", "on\nsaved\n")


def test_a_payload_that_does_not_end_by_itself_is_killed(box: NodeBox) -> None:
    command = "trap '' TERM; echo on; while :; do sleep 0.05; done"
    job = box.job_data(114, command=command, stdout_file="out114", kill_grace=1)
    box.start(job)
    wait_until(lambda: "on" in (box.home("alice") / "out114").read_text())
    box.ctl(job, "TERM")
    assert box.ended(job)["code"] == 3
    assert box.probe(job)["processes"] == 0


def test_of_many_launches_of_one_job_one_runs_it(box: NodeBox) -> None:
    job = box.job_data(115, command="echo run >>ran115; sleep 1")
    ends: list[CommandRan | list[str]] = []

    def launch() -> None:
        with box.launch(job) as one:
            said = one.dialogue.receive(120)
            while isinstance(said, str):
                one.lines.append(said)
                if said == READY:
                    one.go()
                said = one.dialogue.receive(120)
            assert isinstance(said, CommandRan)
            ends.append([f"exit {said.exit}", *one.lines])

    threads = [Thread(target=launch) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sum("STARTED" in one for one in ends) == 1  # type: ignore[operator]
    assert sum(any(str(line).startswith("ALREADY") for line in one) for one in ends) == 4  # type: ignore[union-attr]
    box.ended(job)
    with box.launch(job) as late:
        assert late.end().exit == 0
        assert late.lines == ["ALREADY ended"]
    assert (box.home("alice") / "ran115").read_text() == "run\n"


def test_a_fenced_attempt_never_runs_and_a_later_one_does(box: NodeBox) -> None:
    job = box.job_data(116, command="echo run >>ran116")
    box.jrm("init", job["init"])
    assert box.probe(job, fence=True)["answer"] == "never"
    with box.launch(job) as late:
        assert late.end().exit == 36
        assert late.lines == ["STALE"]
    box.start(job | {"attempt": 2})
    box.ended(job | {"attempt": 2})
    assert (box.home("alice") / "ran116").read_text() == "run\n"


def test_the_server_s_death_before_go_ends_the_launch_and_after_go_does_not_touch_the_job(box: NodeBox) -> None:
    before, after = box.job_data(117, command="touch ran117"), box.job_data(118, command="cat fifo118")
    box.sh(f"mkfifo {box.home('alice')}/fifo118", user="alice")
    server = box.new_remote()
    first = box.launch(before, server)
    first.until(READY)
    second = box.launch(after, server)
    second.until(READY)
    second.go()
    second.until("STARTED")
    server.close()
    wait_until(lambda: nothing_left(box, before))
    assert box.probe(before)["answer"] == "never"
    assert box.probe(after)["answer"] == "running"
    box.sh(f"echo go >{box.home('alice')}/fifo118", user="alice")
    assert box.ended(after)["status"] == "0"
    assert not (box.home("alice") / "ran117").exists()


def nothing_left(box: NodeBox, job: dict[str, Any]) -> bool:
    """Whether nothing of a job is on the node, not even the lock of an oarexec."""
    name = f"{job['user']}_{job['job_id']}"
    return not box.files_of(job["job_id"]) and not any(group.name == name for group in box.groups())


def begin_and_leave(box: NodeBox, job: dict[str, Any]) -> None:
    """Send a job to a session that finds the end of its connection behind it; wait for the end of its oarexec.

    A former life of the job has the lock until the session is gone: the oarexec gets no further before.
    """
    assert box.probe(job)["answer"] == "never"  # the directory is there then
    state, lock = (box.runtime / f"oarexec_{job['job_id']}.{kind}" for kind in ("state", "lock"))
    of_another = json.dumps({"challenge": "of a former life", "phase": "ended", "job_id": job["job_id"]})
    box.run_as("oar", f"echo {shlex.quote(of_another)} >{state}; touch {lock}")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        pid = _send_and_leave(box, job)
    wait_until(lambda: box.run_as("root", f"kill -0 {pid}").returncode != 0)


def _send_and_leave(box: NodeBox, job: dict[str, Any]) -> int:
    """Send a job to a session that ends then; return the pid of its oarexec."""
    programs = bootstrap.programs()
    asked = {"op": "run", "id": 1, "program": "oarexec", "action": "run", "node": NODE, "data": job}
    asked["hash"] = programs["oarexec"].hash
    lines = b"".join(program.load for program in programs.values()) + json.dumps(asked).encode() + b"\n"
    words = [*box.enter(), "/bin/sh", "-c", bootstrap.command(())]
    given = bootstrap.session_program() + lines
    said = subprocess.run(words, input=given, stdout=subprocess.PIPE, check=True, timeout=120).stdout.splitlines()
    return int(next(answer["accepted"] for answer in map(json.loads, said) if "accepted" in answer))


def test_an_oarexec_whose_server_is_gone_before_it_begins_leaves_nothing(box: NodeBox) -> None:
    job = box.job_data(134, command="touch ran134")
    begin_and_leave(box, job)
    assert nothing_left(box, job), box.files_of(134)
    assert not (box.home("alice") / "ran134").exists()


def test_an_oarexec_whose_server_is_gone_during_the_prologue_leaves_nothing(box: NodeBox) -> None:
    prologue = script(box, "prologue", "echo began >/tmp/began135; until [ -e /tmp/go135 ]; do sleep 0.05; done\n")
    job = box.job_data(135, prologue=prologue, command="touch ran135")
    server = box.new_remote()
    box.launch(job, server)
    wait_until(lambda: box.run_as("root", "cat /tmp/began135").stdout == "began\n")
    server.close()
    assert not nothing_left(box, job)
    box.sh("touch /tmp/go135")
    wait_until(lambda: nothing_left(box, job))
    assert not (box.home("alice") / "ran135").exists()


def test_an_oarexec_whose_group_was_swept_and_whose_server_is_gone_leaves_no_state(box: NodeBox) -> None:
    job = box.job_data(137)
    del job["init"]  # the job resource manager was here on its own, before a sweep
    begin_and_leave(box, job)
    assert nothing_left(box, job), box.files_of(137)


def test_a_fence_outlives_an_oarexec_whose_server_is_gone(box: NodeBox) -> None:
    job = box.job_data(136)
    assert box.probe(job, fence=True)["answer"] == "never"
    server = box.new_remote()
    launch = box.launch(job | {"attempt": 2}, server)
    launch.until(READY)
    pid = int((box.runtime / "pid_of_oarexec_for_jobId_136").read_text())
    server.close()
    wait_until(lambda: box.run_as("root", f"kill -0 {pid}").returncode != 0)
    assert box.probe(job)["answer"] == "aborted"
    with box.launch(job) as late:
        assert (late.end().exit, late.lines) == (36, ["STALE"])


def test_a_killed_oarexec_is_known_as_dead_and_its_leftovers_are_cleaned(box: NodeBox) -> None:
    job = box.job_data(119, command="sleep 1000")
    box.start(job)
    pid = int((box.runtime / "pid_of_oarexec_for_jobId_119").read_text())
    box.sh(f"kill -9 {pid}")
    wait_until(lambda: box.probe(job)["answer"] == "died")
    assert box.ctl(job, "TERM") == 1
    assert box.clean(job).exit == 0
    wait_until(lambda: box.sh("pgrep -u alice || true") == "")  # the killed wait to be buried


def test_the_end_is_reported_until_the_server_has_it(box: NodeBox) -> None:
    server = Almighty(b"", b"OK\n")
    job = box.job_data(120, command="exit 3", challenge="98765", almighty_port=server.port)
    box.start(job)
    server.join()
    first, second = server.reports
    assert first == "OAREXEC_120_0_768_98765\n"
    assert re.fullmatch(r"OAREXEC_120_0_768_98765_[0-9]+\n", second)  # and how long ago it ended
    wait_until(lambda: box.sh("pgrep -u oar || true") == "")
    assert not (box.runtime / "pid_of_oarexec_for_jobId_120").exists()


@pytest.mark.parametrize("who", ["oarexec", "sleep"], ids=["oarexec first", "the command first"])
def test_a_node_that_goes_down_ends_its_jobs_and_says_so_whom_ever_its_signal_reaches_first(
    box: NodeBox, who: str
) -> None:
    server = Almighty(b"OK\n")
    job = box.job_data(125, command="exec sleep 1000", challenge="98765", almighty_port=server.port)
    box.start(job)
    pid = (box.runtime / "pid_of_oarexec_for_jobId_125").read_text()
    with box.going_down():
        box.sh(f"kill {pid}" if who == "oarexec" else "pkill -u alice sleep")
        server.join()
        wait_until(lambda: box.sh("pgrep -u oar || true") == "")
    assert server.reports == [f"OAREXEC_125_43_{'N' if who == 'oarexec' else 15}_98765\n"]


def test_a_command_that_ends_well_while_its_node_goes_down_has_ended_well(box: NodeBox) -> None:
    job = box.job_data(126, command="trap 'exit 0' TERM; while :; do sleep 0.1; done")
    box.start(job)
    with box.going_down():
        box.sh("pkill -u alice bash")
        assert (box.ended(job)["code"], box.ended(job)["status"]) == (0, "0")


def test_an_oarexec_that_nobody_answers_does_not_keep_its_node_from_going_down(box: NodeBox) -> None:
    server = Almighty(b"")
    job = box.job_data(127, command="until [ -e ends ]; do sleep 0.01; done; exit 3", almighty_port=server.port)
    box.start(job)
    pid = (box.runtime / "pid_of_oarexec_for_jobId_127").read_text()
    (box.home("alice") / "ends").touch()
    server.join()
    with box.going_down():
        # told again and again: it may end before it is told, and it acts as root while it goes back to the group
        wait_until(lambda: box.run_as("root", f"pkill -u oar; test -e /proc/{pid}").returncode)
    found = box.probe(job)
    assert (found["answer"], found["code"], found["status"]) == ("ended", 0, "768")


def test_a_launch_that_meets_a_node_going_down_says_that_the_command_was_not_started(box: NodeBox) -> None:
    job = box.job_data(128, command="touch ran")
    with box.launch(job) as launch:
        launch.until(READY)
        pid = (box.runtime / "pid_of_oarexec_for_jobId_128").read_text()
        with box.going_down():
            box.sh(f"kill {pid}")
            end = launch.end()
    assert (end.exit, end.stderr.strip()) == (43, "node1 was shut down; the command was not started")
    assert not (box.home("alice") / "ran").exists()


def test_an_attached_oarexec_stays_until_the_end(box: NodeBox) -> None:
    job = box.job_data(121, command="cat; exit 4", detach_oarexec=0)
    with box.launch(job) as launch:
        launch.until(READY)
        launch.go()
        assert launch.end().exit == 0
    assert launch.lines[-2:] == ["STARTED", "OAREXEC_SCRIPT_EXIT_VALUE 1024"]


def test_an_unknown_user_or_bad_data_ends_before_anything_is_run(box: NodeBox) -> None:
    job = box.job_data(122, user="alice") | {"user": "nobody_here"}
    job["init"] |= {"user": "nobody_here", "name": "nobody_here_122"}
    job["cpuset_full_path"] = f"{box.cpuset_path}/nobody_here_122"
    with box.launch(job) as launch:
        ended = launch.end()
    assert (ended.exit, "user 'nobody_here' is not known" in ended.stderr) == (7, True)
    assert box.jrm("clean", job["init"]).exit == 0
    del job["walltime"]
    with box.launch(job) as launch:
        assert launch.end().exit == 31


@pytest.mark.parametrize("user", ["root", "oar", "toor"])
def test_nobody_who_writes_into_the_table_jobs_becomes_root_or_oar(box: NodeBox, user: str) -> None:
    box.sh("grep -q toor /etc/passwd || echo toor:x:0:0::/:/bin/sh >>/etc/passwd")
    keys = {"public": {"file_name": ".ssh/authorized_keys_jobs", "key": "ssh-ed25519 AAAA"}, "private": {"key": "x"}}
    job = box.job_data(124, command="touch /tmp/was_run") | {"user": user}
    job["init"] |= {"user": user, "name": f"{user}_124", "ssh_keys": keys}
    job["cpuset_full_path"] = f"{box.cpuset_path}/{user}_124"
    with box.launch(job) as launch:
        ended = launch.end()
    assert ended.exit == 7
    assert f"user '{user}' must not run jobs on {NODE}" in ended.stderr
    own = box.home("oar") / ".ssh" / "authorized_keys_jobs"
    assert not own.exists() or "AAAA" not in own.read_text()
    assert not (box.runtime / f"{user}_124.jobkey").exists()
    assert box.jrm("clean", job["init"]).exit == 0
    assert box.sh("ls /tmp/was_run 2>/dev/null || true") == ""


def test_an_init_that_fails_is_told_apart_from_oarexec(box: NodeBox) -> None:
    job = box.job_data(123)
    job["init"] |= {"nodes": {NODE: ["77"]}}
    with box.launch(job) as launch:
        ended = launch.end()
    assert (launch.lines, ended.exit) == (["INIT 14"], 14)
    assert "is '77', but this node has the processors" in ended.stderr


def test_the_hook_runs_as_root_before_the_command_and_may_forbid_it(box: NodeBox) -> None:
    hook = script(box, "hook", 'echo "$1" >>/tmp/hook; id -u >>/tmp/hook; [ -z "$(echo "$1" | grep refuse)" ]\n')
    job = box.job_data(124, passive_job_hook=hook, job_name="good", command="cat /tmp/hook", stdout_file="out124")
    assert box.run_to_end(job)["status"] == "0"
    pid_and_rest, uid = (box.home("alice") / "out124").read_text().splitlines()
    assert (pid_and_rest.partition(":")[2], uid) == ("alice:124:good:default:3600", "0")
    refused = box.job_data(125, passive_job_hook=hook, job_name="refuse", command="touch ran125")
    box.start(refused)
    assert box.ended(refused)["status"] == str(255 << 8)
    assert not (box.home("alice") / "ran125").exists()


def test_a_job_of_the_same_id_with_another_challenge_is_another_life(box: NodeBox) -> None:
    first = box.job_data(126, command="exit 1")
    box.start(first)
    box.ended(first)
    second = first | {"challenge": "555", "command": "exit 2"}
    assert box.probe(second)["answer"] == "never"
    box.clean(first)
    box.start(second)
    assert box.ended(second)["status"] == "512"


def test_an_interactive_job_ends_when_its_main_session_does(box: NodeBox) -> None:
    job = box.job_data(127, mode="INTERACTIVE", command=None)
    box.start(job)
    assert box.probe(job)["answer"] == "running"
    assert box.ctl(job, "USR1") == 0
    ended = box.ended(job)
    assert (ended["code"], ended["status"]) == (34, "N")


def test_no_process_of_oar_is_in_the_user_s_reach(box: NodeBox) -> None:
    job = box.job_data(128, command="sleep 1000")
    box.start(job)
    with pytest.raises(Exception, match="returned non-zero"):
        box.sh(f"kill -{signal.SIGKILL} $(cat {box.runtime}/pid_of_oarexec_for_jobId_128)", user="alice")
    freezer = Path("/sys/fs/cgroup/freezer") / box.cpuset_path[1:] / "alice_128"
    assert len((freezer / "oarexec" / "cgroup.procs").read_text().split()) == 1
    assert len((freezer / "payload" / "cgroup.procs").read_text().split()) == 1
    box.ctl(job, "TERM")
    box.ended(job)


@pytest.mark.skipif(not Path("/usr/bin/systemd-run").exists(), reason="needs systemd-run to stand in for")
def test_what_the_user_sets_holds_for_his_command_and_not_for_the_program_of_root_before_it(box: NodeBox) -> None:
    fake, evil = box.base / "systemd-run", box.base / "evil"
    fake.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec setpriv --reuid=alice "$@"\n')
    evil.mkdir()
    (evil / "systemd-run").write_text(f"#!/bin/sh\nid -u >{evil}/ran\n")
    for path in (fake, evil / "systemd-run"):
        path.chmod(0o755)
    box.sh(f"mount --bind {fake} /usr/bin/systemd-run")
    try:
        job = box.job_data(
            190,
            command="id -un >env; env -0 >>env",
            deploy_cosystem_job_exec_system="systemd-run",
            job_env={"PATH": f"{evil}:/usr/bin:/bin", "MINE": "\u00e9\nx"},
        )
        box.start(job)
        assert box.ended(job)["code"] == 0
    finally:
        box.sh("umount /usr/bin/systemd-run")
    said = (box.home("alice") / "env").read_text()
    assert said.startswith("alice\n")
    assert "MINE=\u00e9\nx\0" in said
    assert f"PATH={evil}:" in said
    assert not (evil / "ran").exists()
