"""What users run on frontends is enclosed: limited, and nothing of it is left when it is over."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oar.lib.remote.requests import CommandRan, TimedOut
from tests.process.node_box import NODE, NodeBox, remove_groups
from tests.process.this_machine import wait_until

#: A program that leaves session, parent and environment behind.
ESCAPES = "for number in 1 2 3; do (setsid env -i sleep 1000 &) done"
WITH_GROUPS = pytest.mark.parametrize("has_groups", [True, False])


@pytest.fixture(autouse=True)
def _nothing_stays(box: NodeBox) -> Iterator[None]:
    """Let no oarexec stay: it tries to report until somebody answers."""
    yield
    box.sh("pkill -KILL -u oar || true")
    wait_until(lambda: not groups(box))
    for mount in Path("/sys/fs/cgroup").iterdir():
        remove_groups(mount / f"{box.cpuset_path[1:]}_commands")


def enclosure(box: NodeBox, *, has_groups: bool = True) -> dict[str, Any]:
    """Return what the server says about the enclosure of a command."""
    return {
        "cpuset_path": f"{box.cpuset_path}_commands" if has_groups else None,
        "options": {},
        "processes": 50,
        "memory": 64 << 20,
    }


def job_of(box: NodeBox, job_id: int, command: str, *, has_groups: bool = True) -> dict[str, Any]:
    """Return the data of a job on a frontend."""
    fields: dict[str, Any] = {"resources": [], "node_file_db_fields": "network_address"}
    fields |= {"node_file_db_fields_distinct_values": "resource_id", "init": None, "cpuset_full_path": None}
    return box.job_data(job_id, command=command, enclosure=enclosure(box, has_groups=has_groups)) | fields


def sleepers(box: NodeBox) -> str:
    return box.sh("pgrep -u alice sleep || true")


def groups(box: NodeBox) -> list[Path]:
    """Return the groups of commands."""
    pattern = f"{box.cpuset_path[1:]}_commands/alice_*"
    return [path for mount in Path("/sys/fs/cgroup").iterdir() for path in mount.glob(pattern)]


@WITH_GROUPS
def test_a_job_on_a_frontend_leaves_no_process_behind(box: NodeBox, has_groups: bool) -> None:
    job = job_of(box, 301, f"{ESCAPES}; sleep 0.2; exit 3", has_groups=has_groups)
    assert box.run_to_end(job)["status"] == "768"
    wait_until(lambda: not sleepers(box))
    wait_until(lambda: not groups(box) or box.probe(job)["answer"] == "ended")


@WITH_GROUPS
def test_a_job_on_a_frontend_that_is_killed_leaves_no_process_behind(box: NodeBox, has_groups: bool) -> None:
    job = job_of(box, 302, f"{ESCAPES}; sleep 1000", has_groups=has_groups)
    box.start(job)
    wait_until(lambda: len(sleepers(box).split()) >= 4)
    assert box.ctl(job, "TERM") == 0
    assert box.ended(job)["code"] == 3
    wait_until(lambda: not sleepers(box))


def test_an_oarexec_that_is_killed_on_a_frontend_takes_its_job_along(box: NodeBox) -> None:
    job = job_of(box, 303, f"{ESCAPES}; sleep 1000")
    box.start(job)
    wait_until(lambda: len(sleepers(box).split()) >= 4)
    assert groups(box)
    box.sh(f"kill -KILL $(cat {box.runtime}/pid_of_oarexec_for_jobId_303)")
    wait_until(lambda: not sleepers(box))
    wait_until(lambda: not groups(box))


def limits(box: NodeBox) -> set[str]:
    """Return the limits of the groups of commands."""
    files = [
        path for group in groups(box) for name in ("*.max", "*limit_in*") for path in group.glob(f"payload/{name}")
    ]
    return {path.read_text().strip() for path in files}


def test_a_job_on_a_frontend_has_limits(box: NodeBox) -> None:
    fork = "i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done"
    job = job_of(box, 304, f"{fork}; wait")
    box.start(job)
    wait_until(lambda: {"50", str(64 << 20)} & limits(box))
    assert box.ctl(job, "TERM") == 0
    box.ended(job)
    wait_until(lambda: not sleepers(box))


def command(box: NodeBox, *argv: str, seconds: float = 120, has_groups: bool = True) -> object:
    data = {"argv": argv, "account": "alice", "enclosure": enclosure(box, has_groups=has_groups)}
    return box.run("notification_command", "run", data, seconds)


@WITH_GROUPS
def test_a_command_of_a_notice_leaves_no_process_behind(box: NodeBox, has_groups: bool) -> None:
    script = f"{ESCAPES}; sleep 0.2; id -un >$HOME/who; exit 3"
    assert command(box, "/bin/sh", "-c", script, has_groups=has_groups) == CommandRan(3, (), "")
    assert (box.home("alice") / "who").read_text() == "alice\n"
    wait_until(lambda: not sleepers(box))  # who has ended waits to be buried
    wait_until(lambda: not groups(box))


@pytest.mark.slow
@WITH_GROUPS
def test_a_command_of_a_notice_that_takes_too_long_is_ended(box: NodeBox, has_groups: bool) -> None:
    script, seconds, outcome = f"trap '' TERM; {ESCAPES}; sleep 1000", 4, None
    while outcome == TimedOut(seconds, began=False) or outcome is None:  # a busy machine did not come to its begin
        seconds *= 2
        outcome = command(box, "/bin/sh", "-c", script, seconds=seconds, has_groups=has_groups)
    assert outcome in (CommandRan(143, (), ""), TimedOut(seconds, began=True)), outcome
    wait_until(lambda: not sleepers(box))
    wait_until(lambda: not groups(box))


def test_why_a_command_of_a_notice_did_not_start_is_told(box: NodeBox) -> None:
    assert command(box, "/not/there") == CommandRan(1, (), "/not/there: No such file or directory\n")
    say = "yes | head -c 40000000; yes | head -c 40000000 >&2; exit 4"
    assert command(box, "sh", "-c", say) == CommandRan(4, (), "")
    data = {"argv": ["true"], "account": "nobody-at-all", "enclosure": {}}
    told = box.run("notification_command", "run", data)
    assert told == CommandRan(1, (), f"user 'nobody-at-all' is not known on {NODE}\n")


@pytest.mark.parametrize("account", ["root", "oar"])
def test_no_command_of_a_notice_runs_as_root_or_oar(box: NodeBox, account: str) -> None:
    data = {"argv": ["true"], "account": account, "enclosure": {}}
    told = box.run("notification_command", "run", data)
    assert told == CommandRan(1, (), f"user '{account}' must not run jobs on {NODE}\n")
