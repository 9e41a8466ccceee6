"""Nodes check what made launches fail, on a real node: the action CHECK, oar/tools/node_check.py."""

import contextlib
import errno
import fcntl
import json
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import node_base
import node_check
import pytest

from oar.lib.history.event_types import EventType
from oar.lib.jobs.records import LaunchHold
from oar.lib.jobs.states import JobState, LaunchFault
from oar.lib.nodes import state_changes
from oar.lib.nodes.state_changes import Suspicion
from oar.lib.nodes.states import NodeCheck, ResourceState
from oar.lib.remote.requests import CommandRan
from oar.lib.runtime import Runtime
from oar.modules import node_change_state
from oar.modules.runner.actions import finish, node_checks
from oar.modules.runner.actions.launch import launch_job
from tests.process.node_box import NODE, NodeBox
from tests.process.world import World


def holds(world: World) -> list[LaunchHold]:
    """Return the holds of launches."""
    with world.database.begin() as tx:
        return tx.launch_holds.all()


def test_launches_of_an_unknown_account_are_held_until_its_node_knows_it(world: World) -> None:
    job_id = world.launched("true", user="late")
    finish.finish(world.context, job_id)
    node_change_state.run(Runtime(world.context.config, world.database))
    node_checks.check(world.context, NODE)
    (hold,) = holds(world)
    assert (hold.user, hold.is_confirmed, hold.next_try > 0) == ("late", True, True)
    world.box.sh("echo late:x:5321:5321::/tmp:/bin/sh >>/etc/passwd")
    node_checks.check(world.context, NODE)  # it is not due yet
    assert holds(world) == [hold]
    with world.database.begin() as tx:
        tx.execute("UPDATE launch_holds SET next_try = 0")
    node_checks.check(world.context, NODE)
    assert holds(world) == []


def test_a_job_of_root_blames_no_node_and_holds_the_launches_of_nobody_else(world: World) -> None:
    job_id = world.launched("true", user="root")
    finish.finish(world.context, job_id)
    assert world.events(job_id) == [EventType.USER_SHELL]
    node_change_state.run(Runtime(world.context.config, world.database))
    node_checks.check(world.context, NODE)
    assert [(hold.user, hold.is_confirmed) for hold in holds(world)] == [("root", True)]
    with world.database.begin() as tx:
        assert {resource.state for resource in tx.resources.all()} == {ResourceState.ALIVE}


def test_a_node_runs_one_check_of_a_user_at_a_time(world: World) -> None:
    config = world.context.config
    lock = f"{config.oar_runtime_directory}/check_{b'home alice'.hex()}.lock"
    with world.database.begin() as tx:
        tx.launch_holds.hold(LaunchFault.HOME, "alice", NODE, 0, "", is_confirmed=False)
    node_checks.check(world.context, NODE)
    assert holds(world) == []  # and the lock is there
    with world.database.begin() as tx:
        tx.launch_holds.hold(LaunchFault.HOME, "alice", NODE, 0, "", is_confirmed=False)
    with open(lock, encoding="utf-8") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        node_checks.check(world.context, NODE)
    (hold,) = holds(world)
    assert (hold.is_confirmed, hold.failures) == (False, 2)


def test_a_missing_home_holds_launches_until_it_is_there_again(world: World) -> None:
    home = world.box.home("alice")
    home.rename(home.with_name("away"))
    try:
        job_id = world.job("true")
        launch_job(world.context, job_id)
        finish.finish(world.context, job_id)
        assert world.events(job_id) == [EventType.HOME_MISSING]
        node_change_state.run(Runtime(world.context.config, world.database))
        node_checks.check(world.context, NODE)
        assert [(hold.fault, hold.is_confirmed) for hold in holds(world)] == [(LaunchFault.HOME, True)]
    finally:
        home.with_name("away").rename(home)
    with world.database.begin() as tx:
        tx.execute("UPDATE launch_holds SET next_try = 0")
    node_checks.check(world.context, NODE)
    assert holds(world) == []


@pytest.mark.parametrize("event", ["CAN_NOT_WRITE_NODE_FILE", "CPUSET_CLEAN_ERROR", "SSH_TRANSFER_TIMEOUT"])
def test_a_node_that_passes_its_check_comes_back(world: World, event: str) -> None:
    job_id = world.job("true", JobState.LAUNCHING)
    with world.database.begin() as tx:
        tx.events.add(event, job_id, "it failed", to_check=True, hosts=[NODE])
    node_change_state.run(Runtime(world.context.config, world.database))
    node_checks.check(world.context, NODE)
    with world.database.begin() as tx:
        assert tx.resources.to_sweep() == [NODE]
        (lifted,) = tx.events.of_nodes([NODE], last=1)[NODE]
    assert "checked again" in lifted.description


def test_a_site_that_forbids_it_uses_no_node_again_after_a_check(world: World) -> None:
    config = world.context.config.replace(disable_suspected_nodes_repair=True)
    job_id = world.job("true", JobState.LAUNCHING)
    with world.database.begin() as tx:
        tx.events.add("CAN_NOT_WRITE_NODE_FILE", job_id, "it failed", to_check=True, hosts=[NODE])
    node_change_state.run(Runtime(world.context.config, world.database))
    node_checks.check(replace(world.context, config=config), NODE)
    with world.database.begin() as tx:
        assert tx.resources.to_sweep() == []


def test_a_node_that_fails_its_check_stays_suspected(world: World) -> None:
    with world.database.begin() as tx:
        reasons = {NODE: Suspicion("USER_SHELL: gone", NodeCheck.ACCOUNT, "gone")}
        state_changes.suspect(tx, [NODE], finaud=True, reasons=reasons)
    node_checks.check(world.context, NODE)
    with world.database.begin() as tx:
        assert tx.resources.to_sweep() == []


# -- what a node answers ----------------------------------------------------------------------------------------------

#: Mounts a file system whose program never answers, until the end of the standard input.
_HANG = """
import ctypes, os, sys
fd = os.open("/dev/fuse", os.O_RDWR)
options = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % fd
libc = ctypes.CDLL(None, use_errno=True)
code = libc.mount(b"hang", sys.argv[1].encode(), b"fuse", 0, options.encode())
print(code, os.strerror(ctypes.get_errno()), flush=True)
sys.stdin.read()
libc.umount2(sys.argv[1].encode(), 2)
"""


#: Mounts a file system of automatic mounts, none of which is ever made, until the end of the standard input.
_HANG_ABOVE = """
import ctypes, os, sys
answers, fd = os.pipe()
os.setpgid(0, 0)
options = "fd=%d,pgrp=%d,minproto=5,maxproto=5,indirect" % (fd, os.getpgrp())
libc = ctypes.CDLL(None, use_errno=True)
code = libc.mount(b"hang", sys.argv[1].encode(), b"autofs", 0, options.encode())
print(code, os.strerror(ctypes.get_errno()), flush=True)
sys.stdin.read()
libc.umount2(sys.argv[1].encode(), 2)
"""


@contextlib.contextmanager
def hanging(box: NodeBox, directory: Path, program: str = _HANG) -> Iterator[None]:
    """In here a directory of the node does not answer."""
    words = [*box.enter(), sys.executable, "-c", program, str(directory)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as mount:
        assert mount.stdin
        assert mount.stdout
        try:
            assert mount.stdout.readline() == "0 Success\n"
            yield
        finally:
            mount.stdin.close()


def answers(world: World, *checks: tuple[NodeCheck, str]) -> list[dict[str, Any]]:
    """Return what the node says of some checks."""
    data: dict[str, Any] = {
        "oar_tmp_directory": world.context.config.oar_runtime_directory,
        "cpuset_path": None,
        "options": {},
        "checks": [{"kind": kind, "user": user} for kind, user in checks],
    }
    outcome = world.box.run("node_check", "check", data)
    assert isinstance(outcome, CommandRan), outcome
    assert outcome.exit == 0, outcome
    return [json.loads(line) for line in outcome.lines]


def test_a_home_that_hangs_delays_no_other_check(world: World) -> None:
    others = [(NodeCheck.HOME, "bob"), (NodeCheck.ACCOUNT, "alice"), (NodeCheck.DISK, "")]
    with hanging(world.box, world.box.home("alice")):
        hung, *well = answers(world, (NodeCheck.HOME, "alice"), *others)
    assert "home of alice hangs" in hung["error"]
    assert not hung["is_of_node"]  # users can mount such a file system on their homes
    assert [answer["error"] for answer in well] == ["", "", ""]


@pytest.mark.parametrize("used_at_once", [False, True])
def test_two_processes_create_the_runtime_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, used_at_once: bool
) -> None:
    path = tmp_path / "run" / "oar"
    account = pwd.getpwnam("nobody")
    monkeypatch.setattr(node_base, "oar_account", lambda: account)
    change_owner = os.chown

    def chown_later_than_the_other(directory: str, *owner: int) -> None:
        monkeypatch.setattr(os, "chown", change_owner)
        node_base.runtime_directory(str(path), code=1)
        if used_at_once:
            (path / "file").touch()
        os.chown(directory, *owner)

    monkeypatch.setattr(os, "chown", chown_later_than_the_other)
    assert node_base.runtime_directory(str(path), code=1) == str(path)
    assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (account.pw_uid, 0o755)
    assert os.listdir(path.parent) == ["oar"]
    assert os.listdir(path) == ["file"] * used_at_once


@pytest.mark.slow
def test_a_home_that_hangs_is_the_nodes_fault_where_no_user_can_mount(world: World) -> None:
    world.box.sh("echo distant:x:5324:5324::/opt/far:/bin/sh >>/etc/passwd")
    with hanging(world.box, Path("/opt"), _HANG_ABOVE):
        (far,) = answers(world, (NodeCheck.HOME, "distant"))
    assert "home of distant hangs" in far["error"]
    assert far["is_of_node"]


def test_a_check_that_is_busy_looks_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Mock(return_value={"gone": ""})
    monkeypatch.setattr(node_check, "causes_of_missing_homes", look)
    monkeypatch.setattr(node_check, "error_of", lambda _data, check: check["error"])
    checks = [
        {"kind": NodeCheck.HOME, "user": user, "error": error}
        for user, error in (("busy", node_check.BUSY), ("gone", "missing"))
    ]
    assert node_check.results_of({}, checks) == [(None, False), ("missing", False)]
    look.assert_called_once_with(["gone"])


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.EACCES])
def test_a_mount_that_fails_is_the_nodes_fault(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(path: int | bytes, **_keys: object) -> os.stat_result:
        if isinstance(path, int):
            raise OSError(number, os.strerror(number))
        return os.lstat(path)

    account = SimpleNamespace(pw_dir="/proc/1")
    monkeypatch.setattr(node_base, "account_of", lambda _user: account)
    monkeypatch.setattr(node_base, "oar_account", lambda: account)
    monkeypatch.setattr(node_base, "acting_as", lambda _account: contextlib.nullcontext())
    assert node_check.cause_of_missing_home("anna") == ""
    monkeypatch.setattr(node_check, "os", SimpleNamespace(**{**vars(os), "stat": fail}))
    is_of_node = number != errno.EACCES
    assert node_check.cause_of_missing_home("anna") == (f"/proc/1: {os.strerror(number)}" if is_of_node else "")


def test_a_node_tells_what_no_user_can_have_caused(world: World) -> None:
    world.box.sh("echo roamer:x:5322:5322::/tmp/roamer:/bin/sh >>/etc/passwd")
    home = world.box.home("alice")
    home.rename(home.with_name("away"))
    try:
        missing, roamer, unknown = answers(
            world, (NodeCheck.HOME, "alice"), (NodeCheck.HOME, "roamer"), (NodeCheck.ACCOUNT, "nobody-knows")
        )
    finally:
        home.with_name("away").rename(home)
    assert (missing["error"], missing["is_of_node"]) == (f"{home} is missing", True)
    assert (roamer["error"], roamer["is_of_node"]) == ("/tmp/roamer is missing", False)  # anybody may write in /tmp
    assert unknown["is_of_node"]


def test_a_directory_above_the_homes_that_is_missing_is_the_nodes_fault(world: World) -> None:
    world.box.sh("echo far:x:5323:5323::/mnt/nfs/far:/bin/sh >>/etc/passwd")
    (far,) = answers(world, (NodeCheck.HOME, "far"))
    assert (far["error"], far["is_of_node"]) == ("/mnt/nfs/far is missing", True)
