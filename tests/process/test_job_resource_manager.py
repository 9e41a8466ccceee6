"""The job resource manager: control groups, files and keys of jobs, before and after."""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oar.lib.remote.requests import CommandRan
from tests.process.node_box import NODE, NodeBox
from tests.process.this_machine import wait_until

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPkUQxeXGKpBvtYV0cMx1rlFgDNrvyvXYq6hGNEmyyEc"
FORK_BOMB = "bomb() { bomb | bomb & }; bomb; sleep 100"


def cpuset(box: NodeBox, name: str) -> str:
    return (Path("/sys/fs/cgroup/cpuset") / box.cpuset_path[1:] / name / "cpuset.cpus").read_text().strip()


def test_init_binds_the_job_to_its_processors(box: NodeBox) -> None:
    assert box.jrm("init", box.init_data(1, nodes={NODE: ["0"]})).exit == 0
    assert cpuset(box, "alice_1") == "0"
    assert box.jrm("init", box.init_data(1, nodes={NODE: ["0", "1"]})) == CommandRan(0, (), "")
    assert cpuset(box, "alice_1") == "0-1"
    assert box.jrm("clean", box.init_data(1)).exit == 0


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (["0", "77"], "the property cpuset of resource 9 is '77', but this node has the processors "),
        (["x"], "the property cpuset of its resources here is 'x', but this node has the processors "),
        ([], "the property cpuset of its resources here must name at least one processor"),
    ],
)
def test_a_value_that_is_no_processor_is_refused(box: NodeBox, values: list[str], text: str) -> None:
    resources = [{"resource_id": 8, "network_address": "other", "cpuset": "77"}]
    resources += [{"resource_id": 9, "network_address": NODE, "cpuset": "77"}]
    data = box.init_data(2, nodes={NODE: values}, nodes_property="cpuset", resources=resources)
    done = box.jrm("init", data)
    assert done.exit == 14
    assert done.stderr.startswith(f"[job_resource_manager][2][{NODE}][ERROR] ")
    assert text in done.stderr


def test_the_files_of_the_job_say_what_it_has(box: NodeBox) -> None:
    resources = [
        {"resource_id": 1, "type": "default", "network_address": "n2", "core": 1, "state": "Alive", "label": "it's"},
        {"resource_id": 2, "type": "default", "network_address": "n1", "core": 2, "state": "Alive", "label": "a\\b"},
        {"resource_id": 2, "type": "default", "network_address": "n9", "core": 2, "state": "Alive", "label": None},
        {"resource_id": 3, "type": "default", "network_address": "n1", "core": 3, "state": "Alive", "label": ""},
        {"resource_id": 4, "type": "licence", "network_address": "", "core": None, "state": "Alive", "label": ""},
    ]
    done = box.jrm("init", box.init_data(3, resources=resources, job_name="it's $x", launching_directory="/a\nb"))
    assert done == CommandRan(0, (), "")
    assert (box.runtime / "3").read_text() == "n1\nn1\nn2\n"
    lines = (box.runtime / "3_resources").read_text().splitlines()
    assert lines[0] == " core = '1' , label = 'it\\'s' , network_address = 'n2' , type = 'default' "
    assert lines[1] == " core = '2' , label = 'a\\\\b' , network_address = 'n1' , type = 'default' "
    environment = (box.runtime / "alice_3.env").read_text()
    assert "export OAR_JOB_NAME='it'\\''s $x'\n" in environment
    assert "OAR_WORKDIR" not in environment  # a control character is not written
    assert {(path.stat().st_uid, path.stat().st_mode & 0o777) for path in box.runtime.glob("3*")} == {(5001, 0o644)}


def test_a_key_of_a_job_opens_this_job_alone_and_brings_nothing_else_along(box: NodeBox) -> None:
    keys = {
        "public": {"file_name": ".ssh/authorized_keys_jobs", "key": f'{ED25519} comment\ncommand="evil" {ED25519}'},
        "private": {"file_name": "ignored", "key": "SECRET\n"},
    }
    assert box.jrm("init", box.init_data(4, ssh_keys=keys)).exit == 0
    assert box.jrm("init", box.init_data(4, ssh_keys=keys)).exit == 0
    lines = (box.home("oar") / ".ssh" / "authorized_keys_jobs").read_text().splitlines()
    assert lines == [
        f'environment="OAR_CPUSET={box.cpuset_path}/alice_4",environment="OAR_JOB_USER=alice",environment="OAR_JOB_ID=4",'
        f'command="{box.oardir}/oarsh_shell --oarsh",restrict,pty,X11-forwarding {ED25519}'
    ]
    private = box.runtime / "alice_4.jobkey"
    assert (private.read_text(), private.stat().st_mode & 0o777) == ("SECRET\n", 0o600)
    box.jrm("clean", box.init_data(4, ssh_keys=keys))
    assert (box.home("oar") / ".ssh" / "authorized_keys_jobs").read_text() == ""
    assert not private.exists()


def test_keys_of_a_site_stay_in_the_file_that_it_lets_job_keys_into(box: NodeBox) -> None:
    own = box.home("oar") / ".ssh" / "authorized_keys"
    server = 'environment="OAR_KEY=1" ssh-ed25519 AAAAserver oar@server\n'
    own.write_text(server)
    keys = {"public": {"file_name": ".ssh/authorized_keys", "key": ED25519}, "private": {"file_name": "", "key": "x"}}
    data = box.init_data(31, ssh_keys=keys)
    for _ in range(2):
        assert box.jrm("init", data).exit == 0
    assert own.read_text().startswith(server)
    assert own.read_text().count("\n") == 2
    assert box.jrm("clean", data).exit == 0
    assert own.read_text() == server
    assert box.jrm("init", data).exit == 0
    common = {name: data[name] for name in ("oar_tmp_directory", "cpuset_path")}
    assert box.jrm("sweep", {**common, "jobs": [], "ssh_keys": keys}).exit == 0
    assert own.read_text() == server
    own.unlink()


@pytest.mark.parametrize(
    ("key", "code"), [("ssh-dss AAAA", 10), ("ssh-ed25519 not/base64!", 10), ("", 0), (f"{ED25519} oar's", 13)]
)
def test_what_is_no_key_or_is_oar_s_own_is_refused(box: NodeBox, key: str, code: int) -> None:
    own = box.home("oar") / ".ssh" / "authorized_keys"
    own.write_text(f'environment="OAR_KEY=1" {ED25519} oar\n')
    keys = {"public": {"file_name": ".ssh/authorized_keys_jobs", "key": key}, "private": {"file_name": "", "key": "x"}}
    assert box.jrm("init", box.init_data(5, ssh_keys=keys)).exit == code
    box.jrm("clean", box.init_data(5))
    own.unlink()


def test_a_missing_key_of_the_data_is_named(box: NodeBox) -> None:
    data = box.init_data(6)
    del data["walltime"]
    done = box.jrm("init", data)
    assert (done.exit, "lacks the key 'walltime'" in done.stderr) == (31, True)
    assert box.jrm("explode", {}).exit == 3


def test_a_runtime_directory_that_others_may_write_is_refused(box: NodeBox) -> None:
    box.jrm("init", box.init_data(7))
    box.runtime.chmod(0o777)
    done = box.jrm("init", box.init_data(7))
    box.runtime.chmod(0o755)
    assert (done.exit, "nobody else may write" in done.stderr) == (13, True)


def test_clean_may_be_repeated_and_says_what_was_used(box: NodeBox) -> None:
    job = box.job_data(8, command="python3 -c 'x = bytearray(30 << 20); sum(range(300000))'")
    box.run_to_end(job)
    done = box.clean(job)
    (line,) = done.lines
    usage = json.loads(line)["usage"]
    assert usage["cpu_us"] > 10_000
    assert usage["memory_peak"] > 20_000_000
    assert box.clean(job).exit == 0


def test_what_a_killed_writer_has_left_of_a_job_goes_with_it(box: NodeBox) -> None:
    box.jrm("init", box.init_data(12))
    left, other, living = (box.runtime / name for name in (".alice_12.given.4194304", ".12x.4194304", ".12.1"))
    for path in (left, other, living):
        path.write_text("half")
    assert box.jrm("clean", box.init_data(12)).exit == 0
    assert [path.exists() for path in (left, other, living)] == [False, True, True]
    other.unlink()
    living.unlink()


def test_a_clean_that_has_no_room_for_the_keys_ends_the_job_all_the_same(box: NodeBox) -> None:
    place = box.home("oar") / ".ssh"
    box.sh(f"mount -t tmpfs -o size=8k,mode=700,uid=5001,gid=5001 tmpfs {place}")
    try:
        job = box.job_data(13, command="sleep 1000")
        keys = {"public": {"key": ED25519, "file_name": ".ssh/authorized_keys_jobs"}, "private": {"key": "-"}}
        assert box.jrm("init", box.init_data(14, "bob", ssh_keys=keys)).exit == 0
        box.start(job | {"init": box.init_data(13, ssh_keys=keys)})
        box.sh(f"head -c 100000 /dev/zero >{place}/big || true")
        done = box.jrm("clean", box.init_data(13, ssh_keys=keys))
        assert done.exit == 11
        assert "authorized_keys_jobs: No space left on device" in done.stderr
        wait_until(lambda: box.sh("pgrep -u alice || true") == "")  # who was killed waits to be buried
        assert not box.files_of(13)
        box.sh(f"rm {place}/big")
        box.jrm("clean", box.init_data(14, "bob", ssh_keys=keys))
        assert box.sh(f"cat {place}/authorized_keys_jobs") == ""
    finally:
        box.sh(f"umount {place}")


def test_a_fork_bomb_does_not_survive(box: NodeBox) -> None:
    job = box.job_data(9, command="ulimit -u 400; " + FORK_BOMB)
    box.start(job)
    wait_until(lambda: box.probe(job)["processes"] > 20)
    assert box.clean(job).exit == 0
    assert set(box.sh("ps -o state= -u alice || true").split()) <= {"Z"}  # dead, and perhaps not buried yet
    assert not [group for group in box.groups() if group.name == "alice_9"]


def test_the_last_job_of_a_user_takes_his_leftovers_along_and_nobody_else_s(box: NodeBox) -> None:
    leave = (
        "mkdir -p /tmp/a/b; echo x > /tmp/a/b/c; ln -s /etc/passwd /tmp/link; mkdir /tmp/shared; chmod 777 /tmp/shared;"
        "echo y > /dev/shm/z; ipcmk -M 1000 >/dev/null; ipcmk -Q >/dev/null; ipcmk -S 2 >/dev/null"
    )
    box.sh("echo theirs > /tmp/bobs; mkdir /tmp/closed", user="bob")
    box.sh("touch /tmp/closed/alices; chown alice /tmp/closed/alices")
    first, second = box.job_data(10, command=leave), box.job_data(11, command="sleep 1000")
    box.start(second)
    box.start(first)
    box.ended(first)
    box.sh("echo in > /tmp/shared/bobs", user="bob")
    box.clean(first)
    assert "a" in box.sh("ls /tmp").split()  # another job of alice is here
    box.clean(second)
    # Where she cannot have written nobody looks: what others have there would cost time.
    assert sorted(box.sh("find /tmp /dev/shm -user alice").split()) == ["/tmp/closed/alices", "/tmp/shared"]
    assert sorted(box.sh("find /tmp -user bob").split()) == ["/tmp/bobs", "/tmp/closed", "/tmp/shared/bobs"]
    assert box.sh("ipcs | grep -c alice || true").strip() == "0"
    box.sh("rm -rf /tmp/bobs /tmp/closed /tmp/shared")


def test_jobs_of_a_user_begin_and_end_while_another_one_does(box: NodeBox) -> None:
    """The lock of the user is shared, as it is by whoever prepares, enters or cleans another of his jobs."""
    box.jrm("init", box.init_data(16))
    with shared_lock(box, "alice"):
        began = box.jrm("init", box.init_data(17))
        assert began.exit == 0, began.stderr
        ended = box.jrm("clean", box.init_data(17))
        assert ended.exit == 0, ended.stderr
    box.clean(box.job_data(16))


def test_a_job_that_begins_meanwhile_keeps_the_files_of_its_user(box: NodeBox) -> None:
    """The clean-up of what seemed to be the last job waits for those who prepare jobs of the user."""
    box.sh("echo mine > /tmp/mine", user="alice")
    box.jrm("init", box.init_data(18))
    with ThreadPoolExecutor(1) as threads:
        with shared_lock(box, "alice"):
            ending = threads.submit(box.jrm, "clean", box.init_data(18))
            wait_until(lambda: not (box.runtime / "alice_18.env").exists())
            begins = box.runtime / "alice_19.env"
            begins.write_text("")
            assert ending.result(60).exit == 0
        assert box.sh("cat /tmp/mine") == "mine\n"
    begins.unlink()
    box.sh("rm /tmp/mine")


def test_nobody_prepares_a_job_while_it_is_cleaned(box: NodeBox) -> None:
    """Its clean-up holds the lock of the job until its last file is removed."""
    with ThreadPoolExecutor(1) as threads:
        with open(box.runtime / "jobs-20.lock", "a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            beginning = threads.submit(box.jrm, "init", box.init_data(20))
            box.jrm("init", box.init_data(21))  # other jobs do not wait
            assert not (box.runtime / "alice_20.env").exists()
        assert beginning.result(60).exit == 0
    for job_id in (20, 21):
        box.clean(box.job_data(job_id))


def test_jobs_of_others_do_not_wait_for_the_leftovers_of_a_user(box: NodeBox) -> None:
    """Two jobs have the same lock file; that of bob, his last one, is removed, and then all that he has left."""
    ended, other = box.init_data(22, user="bob"), box.init_data(22 + 64)
    box.jrm("init", ended)
    with ThreadPoolExecutor(1) as threads:
        with shared_lock(box, "bob"):  # his leftovers stay for now
            ending = threads.submit(box.jrm, "clean", ended)
            wait_until(lambda: not (box.runtime / "bob_22.env").exists())
            began = box.jrm("init", other)
            assert (began.exit, began.stderr) == (0, "")
            assert not ending.done()
        assert ending.result(60).exit == 0
    box.clean(box.job_data(22 + 64))


@contextlib.contextmanager
def shared_lock(box: NodeBox, user: str) -> Iterator[None]:
    """Share the lock of a user, as another clean-up does."""
    number = box.sh("id -u", user=user).strip()
    with open(box.runtime / f"user_{number}.lock", "a") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        yield


def test_a_user_who_is_logged_in_outside_any_job_keeps_his_files(box: NodeBox) -> None:
    box.sh("echo mine > /tmp/mine; (setsid sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid)", user="bob")
    job = box.job_data(12, user="bob")
    box.run_to_end(job)
    box.clean(job)
    assert box.sh("cat /tmp/mine") == "mine\n"
    box.sh("kill $(cat /tmp/pid); rm /tmp/mine /tmp/pid")


def test_jobs_with_one_forced_name_share_a_group_and_end_apart(box: NodeBox) -> None:
    shared = {"name": "alice_work", "nodes": {NODE: ["0"]}}
    first = box.job_data(13, command="sleep 1000", cpuset_full_path=f"{box.cpuset_path}/alice_work")
    second = box.job_data(14, command="sleep 1000", cpuset_full_path=f"{box.cpuset_path}/alice_work")
    first["init"] |= shared
    second["init"] |= shared | {"nodes": {NODE: ["1"]}}
    box.start(first)
    box.start(second)
    assert cpuset(box, "alice_work") == "0-1"
    assert box.jrm("clean", first["init"]).exit == 0
    assert cpuset(box, "alice_work") == "1"
    assert box.probe(second, name="alice_work")["processes"] > 0
    other = box.init_data(15, user="bob", name="alice_work")
    assert box.jrm("init", other).exit == 2
    assert box.jrm("clean", second["init"]).exit == 0
    assert not [group for group in box.groups() if group.name == "alice_work"]


def test_sweep_removes_every_job_that_may_not_be_here(box: NodeBox) -> None:
    kept, ghost = box.job_data(16, command="sleep 1000"), box.job_data(17, user="bob", command="sleep 1000")
    box.start(kept)
    box.start(ghost)
    (box.runtime / "99_resources").write_text("old")
    ended, living = box.runtime / ".bob_99.given.4194304", box.runtime / ".oarexec_16.state.1"
    ended.write_text("half")
    living.write_text("half")
    data = {
        "oar_tmp_directory": str(box.runtime),
        "cpuset_path": box.cpuset_path,
        "jobs": [{"job_id": 16, "name": "alice_16"}],
    }
    done = box.jrm("sweep", data)
    assert done.exit == 0, done
    assert sorted(line.split('"')[3] for line in done.lines) == ["bob_17", "oar_99"]
    assert (box.probe(kept)["answer"], box.probe(ghost)["answer"]) == ("running", "never")
    wait_until(lambda: box.sh("pgrep -u bob || true") == "")  # who was killed waits to be buried
    assert not box.files_of(17) | box.files_of(99)
    assert not ended.exists()
    assert living.exists()
    living.unlink()


def test_memory_is_limited_where_the_site_wants_it(box: NodeBox) -> None:
    grow = "python3 -c 'x = bytearray(1 << 20); y = []\nwhile True: y.append(bytes(1 << 24))'; echo $?"
    job = box.job_data(18, command=grow, stdout_file="out18")
    job["init"]["options"] = {"memory": True}
    with box.launch(job) as launch:
        launch.until("oarexec is initialized and ready to do the job")
        limit = Path("/sys/fs/cgroup/memory") / box.cpuset_path[1:] / "alice_18/payload/memory.limit_in_bytes"
        half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // os.cpu_count()  # type: ignore[operator]
        assert int(limit.read_text()) == pytest.approx(half, rel=0.05)
        limit.write_text(str(64 << 20))  # reached sooner
        launch.go()
        launch.end()
    ended = box.ended(job)
    assert ended["usage"]["oom_kills"] >= 1
    assert ended["usage"]["memory_limit"] == 64 << 20
    assert (ended["code"], (box.home("alice") / "out18").read_text()) == (0, "137\n")


def test_a_job_is_limited_to_the_memory_that_it_asked_for(box: NodeBox) -> None:
    grow = "python3 -c 'y = []\nwhile True: y.append(bytes(1 << 22))'; echo $?"
    job = box.job_data(20, command=grow, stdout_file="out20")
    job["init"]["options"] = {"memory": True}  # its share would be more
    job["init"]["memory_limits"] = {NODE: 64, "other": 1}
    with box.launch(job) as launch:
        launch.until("oarexec is initialized and ready to do the job")
        launch.go()
        launch.end()
    ended = box.ended(job)
    assert ended["usage"]["oom_kills"] >= 1
    assert ended["usage"]["memory_limit"] == 64 << 20
    assert (ended["code"], (box.home("alice") / "out20").read_text()) == (0, "137\n")


def test_suspending_freezes_the_payload_and_not_oarexec(box: NodeBox) -> None:
    job = box.job_data(19, command="while :; do date +%N > beat; sleep 0.01; done")
    box.start(job)
    data = {"job_id": 19, "name": "alice_19", "user": "alice", "cpuset_path": box.cpuset_path}
    beat = box.home("alice") / "beat"
    wait_until(beat.exists)
    assert box.run("suspend_resume_manager", "suspend", data) == CommandRan(0, (), "")
    assert box.probe(job)["frozen"]
    assert set(box.sh("ps -o state= -u alice").split()) - {"Z"} == {"D"}  # one may have just ended
    before = beat.read_text()
    assert box.run("suspend_resume_manager", "resume", data) == CommandRan(0, (), "")
    wait_until(lambda: beat.read_text() not in ("", before))
    assert not box.probe(job)["frozen"]
    assert box.run("suspend_resume_manager", "suspend", data) == CommandRan(0, (), "")
    assert box.ctl(job, "TERM") == 0
    assert box.ended(job)["code"] == 3
    box.clean(job)
    gone = box.run("suspend_resume_manager", "suspend", data)
    assert isinstance(gone, CommandRan)
    assert gone.exit == 5


def test_without_cpuset_path_there_are_files_only_and_leftovers_are_found_by_their_environment(box: NodeBox) -> None:
    job = box.job_data(20, command="setsid sleep 1000 & sleep 1000", cpuset_full_path=None)
    job["init"] |= {"cpuset_path": None}
    box.start(job)
    assert (box.runtime / "20").exists()
    assert not [group for group in box.groups() if "20" in group.name]
    assert box.ctl(job, "TERM") == 0
    assert box.ended(job)["code"] == 3
    wait_until(lambda: box.sh("pgrep -u alice || true") == "")
    assert box.jrm("clean", job["init"]).exit == 0


def test_a_site_s_own_manager_gets_the_action_and_the_data_as_oar(box: NodeBox) -> None:
    source = "#!/usr/bin/python3\nimport json, os, sys\n"
    source += (
        "print(sys.argv[1], json.load(sys.stdin)['job_id'], os.getuid(), os.environ['TAKTUK_HOSTNAME'])\nsys.exit(9)"
    )
    assert box.run("site_script", "init", {"file": "x.py", "source": source, "data": {"job_id": 21}}) == CommandRan(
        9, (f"init 21 5001 {NODE}",), ""
    )
    perl = 'my $data = eval do { local $/; <DATA> }; print "$ARGV[0] $data->{name}\\n"; exit 4;'
    given = {"file": "x.pl", "source": perl, "data": {"name": "it's a \\ 'x'"}}
    assert box.run("site_script", "clean", given) == CommandRan(4, ("clean it's a \\ 'x'",), "")


def scripted(box: NodeBox, job_id: int, *, prologue: str = "", epilogue: str = "", **more: object) -> dict[str, Any]:
    """Return the data of a job whose site has a prologue or an epilogue of nodes, with these lines."""
    options: dict[str, Any] = {"script_seconds": 20}
    for name, lines in (("prologue", prologue), ("epilogue", epilogue)):
        if lines:
            path = box.base / f"node_{name}"
            path.write_text(f"#!/bin/sh\n{lines}\n")
            path.chmod(0o755)
            options[name] = str(path)
    return box.init_data(job_id, options=options | more)


def test_root_runs_prologue_and_epilogue_of_the_site_on_each_node(box: NodeBox) -> None:
    said = box.base / "said"
    line = f'echo "$1 $2 $4 $(id -un) [$OAR_JOB_NAME] $(cat "$3") $HOME" >>{said}'
    data = scripted(box, 401, prologue=f"echo P; {line}", epilogue=line) | {"job_name": "$(touch /tmp/evil) it's"}
    assert box.jrm("init", data) == CommandRan(0, (), "")
    assert said.read_text() == f"401 alice 3600 root [$(touch /tmp/evil) it's] {NODE} /root\n"
    cleaned = box.jrm("clean", data)
    assert (cleaned.exit, len(cleaned.lines)) == (0, 1)
    assert said.read_text().splitlines()[1:] == [f"401 alice  root [$(touch /tmp/evil) it's] {NODE} /root"]
    assert box.files_of(401) == set()
    assert box.jrm("clean", data).exit == 0
    assert len(said.read_text().splitlines()) == 2  # an epilogue runs where the job was prepared
    said.unlink()


def test_a_prologue_of_nodes_that_fails_is_quoted_and_leaves_nothing(box: NodeBox) -> None:
    said = box.base / "said"
    data = scripted(box, 402, prologue="echo no licence >&2; exit 3", epilogue=f"echo E >>{said}")
    done = box.jrm("init", data)
    path = box.base / "node_prologue"
    assert done.exit == 20
    assert f"[ERROR] prologue {path}: it ended with exit code 3: no licence\n" in done.stderr
    assert (box.files_of(402), said.exists()) == (set(), False)


def test_a_prologue_of_nodes_that_hangs_is_killed_with_its_children(box: NodeBox) -> None:
    data = scripted(box, 403, prologue="sleep 4711 & wait", script_seconds=1)
    done = box.jrm("init", data)
    assert (done.exit, "it did not end within 1 s" in done.stderr) == (20, True)
    wait_until(lambda: box.run_as("root", "pgrep -f '[s]leep 4711'").returncode == 1)


def test_an_epilogue_of_nodes_finds_no_process_and_does_not_stop_the_clean_up(box: NodeBox) -> None:
    said = box.base / "said"
    data = scripted(box, 404, epilogue=f"pgrep -u alice >{said}; exit 7")
    box.start(box.job_data(404, command="sleep 1000", init=data))
    done = box.jrm("clean", data)
    assert (done.exit, "exit code 7" in done.stderr) == (21, True)
    assert (said.read_text(), box.files_of(404), len(done.lines)) == ("", set(), 1)
    said.unlink()


def test_a_sweep_runs_the_epilogue_of_a_job_that_nobody_has_cleaned(box: NodeBox) -> None:
    said = box.base / "said"
    data = scripted(box, 405, epilogue=f'echo "$1 $2 $OAR_JOB_ID" >>{said}')
    assert box.jrm("init", data).exit == 0
    common = {name: data[name] for name in ("oar_tmp_directory", "cpuset_path", "options")}
    assert box.jrm("sweep", {**common, "jobs": []}).exit == 0
    assert (said.read_text(), box.files_of(405)) == ("405 alice 405\n", set())
    said.unlink()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("chown alice {path}", "{path} must belong to root, and only root may write to it"),
        ("chmod g+w {path}", "{path} must belong to root"),
        ("chmod o+w {base}/scripts", "{base}/scripts must belong to root"),
        ("chown alice {base}/scripts", "{base}/scripts must belong to root"),
        ("mv {path} {path}.real && ln -s {path}.real {path}", "without symbolic links: {path}.real"),
        ("chmod -x {path}", "it cannot be executed: Permission denied"),
        ("rm {path}", "it cannot be executed: No such file or directory"),
        ("rm {path} && mkdir {path}", "it must be a file"),
    ],
)
def test_a_program_that_others_can_replace_is_not_run_as_root(box: NodeBox, change: str, text: str) -> None:
    directory = box.base / "scripts"
    path, ran = directory / "prologue", box.base / "ran"
    directory.mkdir()
    path.write_text(f"#!/bin/sh\ntouch {ran}\n")
    path.chmod(0o755)
    data = box.init_data(406, options={"prologue": str(path), "script_seconds": 20})
    box.sh(change.format(path=path, base=box.base))
    done = box.jrm("init", data)
    assert (done.exit, ran.exists()) == (20, False)
    assert text.format(path=path, base=box.base) in done.stderr
    shutil.rmtree(directory)
