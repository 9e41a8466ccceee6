"""Sessions of interactive jobs on a node: what their shell finds, and whose end is whose."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.node_box import NODE, NodeBox
from tests.process.test_oarsh import Site, shared_site
from tests.process.this_machine import wait_until

__all__ = ["shared_site"]


@pytest.fixture
def site(shared_site: Site, box: NodeBox) -> Iterator[Site]:
    yield shared_site
    (shared_site.box.base / "hook").unlink(missing_ok=True)


def variables(site: Site, job: dict[str, Any], session: str) -> dict[str, str]:
    """What oarsub sends along."""
    return {
        "OAR_CPUSET": job["cpuset_full_path"] or "",
        "OAR_JOB_USER": job["user"],
        "OAR_JOB_ID": str(job["job_id"]),
        "OAR_SESSION": session,
    }


def ssh(site: Site, names: dict[str, str]) -> str:
    """The command by which oarsub comes in."""
    home = site.box.home("oar")
    words = f"ssh -q -p {site.port} -i {home}/.ssh/oarsh_key -oUserKnownHostsFile={home}/known"
    return f"{words} -oStrictHostKeyChecking=no -oSendEnv='{' '.join(names)}' {NODE}"


def shell(site: Site, job: dict[str, Any], typed: str, session: str = "main") -> "subprocess.CompletedProcess[str]":
    """Have a session, and say this to its shell."""
    names = variables(site, job, session)
    return site.box.run_as("oar", f"printf %s '{typed}' | {ssh(site, names)} -T", **names)


def interactive(site: Site, job_id: int, **more: Any) -> dict[str, Any]:
    """An interactive job that runs, whose user has still to come."""
    job = site.box.job_data(job_id, mode="INTERACTIVE", command=None, **more)
    site.box.start(job)
    return job


def end_of(site: Site, job: dict[str, Any]) -> tuple[int, str]:
    ended = site.box.ended(job)
    return ended["code"], ended["status"]


def test_the_shell_is_the_user_s_in_his_directory_and_group_with_the_job_s_variables(site: Site) -> None:
    (site.box.home("alice") / "work").mkdir(exist_ok=True)
    job = interactive(site, 1, launching_directory=f"{site.box.home('alice')}/work", job_name="it is $x")
    said = shell(site, job, "echo $0; id -un; pwd; cat /proc/self/cpuset; umask; echo $OAR_JOB_NAME; env").stdout
    lines = said.splitlines()
    assert lines[:6] == [
        "-bash",
        "alice",
        f"{site.box.home('alice')}/work",
        f"{site.box.cpuset_path}/alice_1",
        "0022",
        "it is $x",
    ]
    environment = dict(line.split("=", 1) for line in lines[6:])
    wanted = {"TERM": "xterm", "SHLVL": "1", "SUDO_COMMAND": "OAR", "OAR_JOB_ID": "1", "SHELL": "/bin/bash"}
    assert {name: environment.get(name) for name in wanted} == wanted
    hidden = ("SSH_", "SUDO_U", "OARDO", "OAR_SESSION", "OAR_STD")
    assert [name for name in environment if name.startswith(hidden)] == []


@pytest.mark.parametrize(("session", "code"), [("main", 0), ("main:status", 7)])
def test_the_end_of_the_shell_is_that_of_the_job_and_told_to_those_who_ask(site: Site, session: str, code: int) -> None:
    job = interactive(site, 2)
    assert shell(site, job, "sleep 1000 & exit 7", session).returncode == code
    assert end_of(site, job) == (34, "N")


def test_a_further_session_ends_nothing_and_ends_with_the_job(site: Site) -> None:
    job = interactive(site, 3)
    assert shell(site, job, "exit 7", "connect").returncode == 0
    assert site.box.probe(job)["answer"] == "running"
    names = variables(site, job, "connect")
    mark = site.box.home("alice") / "there"
    with staying(site, names, f"touch {mark}") as session:
        wait_until(mark.exists)
        assert shell(site, job, "exit").returncode == 0
        assert session.wait(120) == 255
    assert end_of(site, job) == (34, "N")


@contextlib.contextmanager
def staying(site: Site, names: dict[str, str], typed: str, terminal: str = "-T") -> "Iterator[subprocess.Popen[bytes]]":
    """Have a session, say this to its shell, and stay."""
    words = [*site.box.enter(), "setpriv", "--reuid=oar", "--regid=oar", "--init-groups", "env"]
    words += [f"{name}={value}" for name, value in names.items()]
    client = f"exec {ssh(site, names)} {terminal}"
    with subprocess.Popen([*words, "sh", "-c", client], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as session:
        assert session.stdin is not None
        session.stdin.write(f"{typed}\n".encode())
        session.stdin.flush()
        try:
            yield session
        finally:
            session.kill()


@pytest.mark.parametrize("terminal", ["-T", "-tt"])
def test_a_connection_that_is_lost_ends_the_job_whatever_its_shell_does(site: Site, terminal: str) -> None:
    job = interactive(site, 4)
    names = variables(site, job, "main")
    mark = site.box.home("alice") / "deaf"
    deaf = f'trap "" HUP TERM; touch {mark}; sleep 1000'
    with staying(site, names, deaf, terminal):
        wait_until(mark.exists)
        site.box.sh(f"pkill -KILL -u oar -f '^ssh .*{NODE} {terminal}'")
        assert end_of(site, job) == (34, "N")
    wait_until(lambda: "sleep" not in site.box.sh("ps -o args= -u alice || true"))


def test_a_directory_that_is_not_there_is_told_and_ends_the_job(site: Site) -> None:
    job = interactive(site, 5, launching_directory="/not/there")
    done = shell(site, job, "id", "main:status")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "# Error: cannot go into working directory: /not/there.\n"
    assert end_of(site, job) == (34, "N")
    assert site.box.probe(job)["reason"] == {"kind": "directory", "errno": "ENOENT", "path": "/not/there"}


def test_a_shell_that_is_not_there_is_told_and_ends_the_job(site: Site) -> None:
    site.box.sh("sed -i '/^bob:/s,/bin/bash,/bin/gone,' /etc/passwd")
    try:
        job = interactive(site, 6, user="bob")
        done = shell(site, job, "id")
        assert (done.returncode, done.stderr) == (66, "oarsh: cannot execute /bin/gone: No such file or directory\n")
        assert end_of(site, job) == (34, "N")
        assert site.box.probe(job)["reason"] == {"kind": "shell", "errno": "ENOENT", "path": "/bin/gone"}
    finally:
        site.box.sh("sed -i '/^bob:/s,/bin/gone,/bin/bash,' /etc/passwd")


def test_a_job_has_one_main_session(site: Site) -> None:
    job = interactive(site, 7)
    names = variables(site, job, "main")
    mark = site.box.home("alice") / "first"
    with staying(site, names, f"touch {mark}") as session:
        wait_until(mark.exists)
        second = shell(site, job, "id")
        assert (second.returncode, second.stdout) == (62, "")
        assert site.box.ctl(job, "TERM") == 0
        session.wait(120)
    assert end_of(site, job) == (3, "N")


def test_a_job_to_which_nobody_comes_ends(site: Site) -> None:
    assert end_of(site, interactive(site, 8, interactive_connect_timeout=0)) == (34, "N")


def test_a_reservation_waits_for_nobody(site: Site) -> None:
    job = interactive(site, 9, interactive_connect_timeout=0, reservation="Scheduled")
    assert shell(site, job, "exit", "connect").returncode == 0
    assert site.box.probe(job)["answer"] == "running"
    assert site.box.ctl(job, "TERM") == 0
    assert end_of(site, job) == (3, "N")


def test_the_site_s_hook_runs_as_root_before_the_shell(site: Site) -> None:
    hook, said = site.box.base / "hook", site.box.base / "said"
    hook.write_text(f'#!/bin/sh\nid -un > {said}\necho "$*" >> {said}\n')
    hook.chmod(0o755)
    site.box.sh(f"echo 'INTERACTIVE_JOB_HOOK_EXEC_FILE=\"{hook}\"' >> /etc/oar/oar.conf")
    try:
        job = interactive(site, 10, job_name="fem", project="bio")
        pids = shell(site, job, "echo $$,$PPID").stdout.strip()
    finally:
        site.box.sh("sed -i /HOOK/d /etc/oar/oar.conf")
    assert said.read_text() == f"root\n{pids}:alice:10:fem:bio:3600\n"


def test_on_a_host_without_control_groups_the_state_of_the_job_is_the_proof(site: Site) -> None:
    resources = json.loads(json.dumps(site.box.init_data(11)["resources"]))
    fields = {"node_file_db_fields": "network_address", "node_file_db_fields_distinct_values": "resource_id"}
    job = interactive(
        site, 11, cpuset_full_path=None, init=None, resources=resources, job_env={"WISH": "granted"}, **fields
    )
    names = variables(site, job, "main") | {"OAR_JOB_USER": "bob"}
    assert site.box.run_as("oar", f"{ssh(site, names)} -T </dev/null", **names).returncode == 61
    said = shell(site, job, "id -un; echo $OAR_JOB_ID:$OAR_CPUSET:$WISH; cat $OAR_NODEFILE").stdout
    assert said == f"alice\n11::granted\n{NODE}\n"
    assert end_of(site, job) == (34, "N")
    left = {"oarexec_11.state", "oarexec_11.lock", "main_session_11.lock"}  # until the server has the report
    wait_until(lambda: site.box.files_of(11) <= left)


def test_who_has_connected_to_a_job_without_a_group_leaves_with_it(site: Site) -> None:
    box = site.box
    job = box.job_data(13, command="until [ -e go13 ]; do sleep 0.02; done", cpuset_full_path=None)
    job["init"] |= {"cpuset_path": None}
    box.start(job)
    here = box.home("alice") / "here13"
    with staying(site, variables(site, job, "connect"), f'trap "" HUP; touch {here}; sleep 1000') as session:
        wait_until(here.exists)
        box.sh(f"touch {box.home('alice')}/go13")
        session.wait(120)
    assert end_of(site, job) == (0, "0")
    wait_until(lambda: box.sh("pgrep -u alice || true") == "")  # who was killed waits to be buried


def test_nobody_comes_in_beside_the_group_of_a_job(site: Site) -> None:
    job = interactive(site, 12)
    done = shell(site, job | {"cpuset_full_path": ""}, "id", "connect")
    assert (done.returncode, done.stdout) == (63, "")
    site.box.ctl(job, "TERM")
    assert end_of(site, job) == (3, "N")
