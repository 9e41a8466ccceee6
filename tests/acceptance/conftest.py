"""The cluster of the acceptance tests: one room for each worker, and a look at what is left of it at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines.roots import MachineError

from tests.acceptance.faults import Scene, stops_in
from tests.acceptance.harness import Cluster, Person, configured, wait_until
from tests.acceptance.mailbox import MAIL_PORT, Post, mail_server
from tests.acceptance.old_programs import OldPrograms
from tests.acceptance.sharing import pytest_xdist_make_scheduler

__all__ = ["pytest_xdist_make_scheduler"]

_FAILED = pytest.StashKey[bool]()

#: Often looked, soon repeated: what is lost is found within seconds.  What is given up is given up late: no machine
#: stands still for so long, and who waits for it has ``impatient``.
SETTINGS = (
    "OAR_SSH_CONNECTION_TIMEOUT=60",
    "JOB_KILL_GRACE=1",
    "JOBDEL_SOFTWALLTIME=3",
    "JOBDEL_WALLTIME=60",
    "LAUNCH_UNKNOWN_TIMEOUT=60",
    "JOB_PROBE_FREQUENCY=3",
    "SARKO_FREQUENCY=5",
    "FINAUD_FREQUENCY=5",
    "WALLTIME_CHANGE_ENABLED=yes",
    "WALLTIME_MAX_INCREASE=3600",
    "RESERVATION_WAITING_RESOURCES_TIMEOUT=2",
    "SCHEDULER_TOKEN_SCRIPTS={ lic => '/bin/echo 1' }",
    f"MAIL_SMTP_SERVER=127.0.0.1:{MAIL_PORT}",  # a server only where a test starts one
    "MAIL_SENDER=oar@server",
    "MAIL_RECIPIENT=root@server",
    "INSTANCE_NAME=demo",
)
#: What a test that waits for the end of patience shortens.
IMPATIENT = (
    "OAR_SSH_CONNECTION_TIMEOUT=8",
    "JOBDEL_WALLTIME=12",
    "LAUNCH_UNKNOWN_TIMEOUT=10",
    "MAX_DB_CONNECTION_TIMEOUT=4",
    "NODE_LOST_TIMEOUT=30",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a room."""
    for item in items:
        if "acceptance" in item.path.parts:
            item.add_marker("room")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember that something failed: the logs are kept then."""
    report = yield
    if report.failed:  # type: ignore[attr-defined]
        item.session.stash[_FAILED] = True
    return report


@pytest.fixture(scope="session", autouse=True)
def _a_room_is_possible() -> None:
    """Without root and namespaces these tests are skipped, but never in CI."""
    if obstacle := Cluster.obstacle():
        if os.environ.get("CI"):
            pytest.fail(obstacle, pytrace=False)
        pytest.skip(obstacle)


@pytest.fixture(scope="session")
def room(request: pytest.FixtureRequest, _a_room_is_possible: None) -> Iterator[Cluster]:
    """Four nodes with two cores each, for the whole session."""
    settings = [word for line in SETTINGS for word in ("--set", line)]
    cluster = Cluster.start(f"test-{os.getpid()}", "--nodes", "4", "--cores", "2", "--fast-db", *settings)
    cluster.as_user("oar").run("oaruserset -a alice arusers")
    yield from looked_after(request, cluster)


def looked_after(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Cluster]:
    """Lend a room to a fixture, see that nothing is wrong in it at the end, and end it."""
    try:
        yield cluster
        cluster.server.do("stop")
        cluster.commands.do("stop")
        assert_nothing_crashed(cluster)
        assert_nobody_left(cluster)
    except AssertionError:
        request.session.stash[_FAILED] = True
        raise
    finally:
        if request.session.stash.get(_FAILED, False):
            keep_logs(cluster)
        cluster.stop()


@contextlib.contextmanager
def own_room(request: pytest.FixtureRequest, name: str, *options: str) -> Iterator[Cluster]:
    """A room for the tests of one file; its logs are kept if a test has failed."""
    cluster = Cluster.start(f"{name}-{os.getpid()}", *options)
    try:
        yield cluster
    finally:
        if request.session.testsfailed:
            keep_logs(cluster)
        cluster.stop()


@pytest.fixture
def cluster(room: Cluster) -> Iterator[Cluster]:
    """Lend the room to one test and make it whole again."""
    yield room
    room.calm()


@pytest.fixture
def alice(cluster: Cluster) -> Person:
    """Alice at the frontend, in an empty home; she may reserve."""
    person = cluster.as_user("alice")
    person.run("rm -rf ~/* ~/.oar_ar_request ~/.oarsubrc ~/.Xauthority ~/.command*")
    return person


@pytest.fixture
def impatient(cluster: Cluster) -> Iterator[None]:
    """Give up soon what does not answer: for a test that waits until something is given up."""
    with configured(cluster, *IMPATIENT):
        yield


@pytest.fixture
def scene(cluster: Cluster) -> Iterator[Scene]:
    """Jobs that can be held at each step of their lives."""
    with stops_in(cluster) as stops:
        yield Scene(cluster, stops)


@pytest.fixture
def post(cluster: Cluster) -> Iterator[Post]:
    """The mails that the server sends."""
    with mail_server(cluster) as post:
        yield post


def assert_nothing_crashed(cluster: Cluster) -> None:
    """No program of ours left a stack trace in a log."""
    traces = [
        str(path)
        for path in Path(cluster.status()["logs"]).rglob("*")
        if path.is_file() and "Traceback (most recent call last)" in path.read_text(errors="replace")
    ]
    assert not traces, f"stack traces in {traces}"


def assert_nobody_left(cluster: Cluster) -> None:
    """After the server's stop no process of oar or of a user lives on any machine."""
    everywhere = [cluster.as_user("root"), *(node.as_user("root") for node in cluster.nodes)]
    people = "oar,alice,bob,carol"
    wait_until(
        lambda: not any(person.attempt(f"ps -o user=,args= -u {people}").out.strip() for person in everywhere),
        f"the processes of {people} have ended: "
        f"{[person.attempt(f'ps -o user=,args= -u {people}').out for person in everywhere]}",
    )


def keep_logs(cluster: Cluster) -> None:
    """Copy the logs of all machines to where they survive the room."""
    target = Path(os.environ.get("OAR_TEST_LOGS") or tempfile.mkdtemp(prefix="oar-test-logs-"))
    shutil.copytree(cluster.status()["logs"], target / cluster.room, dirs_exist_ok=True)
    sys.stderr.write(f"\nThe logs of the cluster are in {target}.\n")


@pytest.fixture
def programs(cluster: Cluster) -> OldPrograms:
    """The programs of OAR 2.5, on the database of the room."""
    try:
        return OldPrograms.of(cluster)
    except MachineError as error:
        pytest.fail(f"the programs of OAR 2.5 cannot be had: {error}", pytrace=False)
