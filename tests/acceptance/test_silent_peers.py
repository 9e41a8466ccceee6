"""Machines that fall silent: no packet tells their peers, whose connections stay open until they are given up."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator

import pytest

from tests.acceptance.faults import EARLY, KILLED, LATE, RAN, Machine, Scene, Step, assert_sound
from tests.acceptance.harness import Cluster, Service, checked, tool, wait_until
from tests.acceptance.test_failures import NOT_HELD, on

#: Each fault and what ends it.
FAULTS = {"cut": "heal", "power-off": "start"}
#: A client of the stream that comes again when its stream has ended, as clients do.
FOLLOW = "while :; do curl -sfN http://127.0.0.1:6668/v1/stream >>stream; sleep 0.1; done"
API = "curl -s -o answer -w '%{http_code}' --max-time 60 http://127.0.0.1:6668/v1/jobs"

#: People who submit one job after the other; what they were told is in the file.
TYPED = "while :; do oarsub -l core=1 true >>typed; done"
_REQUEST = """'{"command": "true", "resources": "core=1"}'"""
POSTED = f"while :; do curl -s --unix-socket /run/oar/api.sock --json {_REQUEST} http://oar/v1/jobs >>posted; done"


@contextlib.contextmanager
def silent(service: Service, fault: str) -> Iterator[None]:
    """A time in which a machine is silent."""
    service.do(fault)
    try:
        yield
    finally:
        service.do(FAULTS[fault])


@pytest.fixture
def api(cluster: Cluster) -> Iterator[None]:
    checked(tool("api", "start", room=cluster.room))
    yield
    checked(tool("api", "stop", room=cluster.room))


@pytest.fixture
def stream(api: None, cluster: Cluster) -> Iterator[Callable[[int], bool]]:
    """Follow the stream; whether it has told of a job."""
    alice = cluster.as_user("alice")
    leader = alice.run(f"rm -f stream; setsid sh -c '{FOLLOW}' </dev/null >/dev/null 2>&1 & echo $!").strip()
    yield lambda job: re.search(rf'"job": ?{job}\b', alice.run("cat stream || true")) is not None
    alice.attempt(f"kill -- -{leader}")  # it has ended where the server has lost its power


def _run_short_job(scene: Scene) -> int:
    job = scene.alice.submit("-l core=1 true")
    scene.cluster.wait_for_state(job, "Terminated")
    return job


def _acknowledged(scene: Scene) -> tuple[set[int], set[int]]:
    """The jobs of which oarsub and the API have told that they are there."""
    typed = re.findall(r"OAR_JOB_ID=(\d+)\n", scene.alice.run("cat typed"))
    posted = re.findall(r'"id": ?(\d+)', scene.alice.run("cat posted"))
    return set(map(int, typed)), set(map(int, posted))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_while_the_database_is_silent(scene: Scene, stream: Callable[[int], bool], fault: str) -> None:
    alice = scene.alice
    wait_until(lambda: stream(_run_short_job(scene)), "the stream is followed")
    launching = scene.submit([Step("Launching", EARLY), Step("EXEC_SENT", LATE), Step("GO", EARLY)])
    ending, doomed, running = scene.submit([Step("CLEANED", EARLY), Step("TIMER_ARMED", LATE), NOT_HELD])
    scene.wait_for_start(ending, doomed, running)
    scene.let_end(ending)
    alice.run(f"oardel {doomed}")
    scene.stops.wait_for([*launching, ending, doomed])
    with silent(scene.cluster.database, fault):
        answers = [alice.attempt(command) for command in ("oarstat", "oarsub -l core=1 true", f"oardel {running}")]
        api = alice.run(API)
        scene.let_end(*launching, running)
    for answer in answers:
        assert (answer.code, answer.out) == (2, ""), answer
        assert "cannot reach the OAR database at database:5432, trying for 4 s." in answer.err
        assert answer.err.splitlines()[-1].endswith("Try again later, or inform an administrator.")
    assert api == "503"
    scene.stops.lift()
    scene.wait_for_end()
    assert scene.facts() == {doomed: KILLED} | dict.fromkeys([*launching, ending, running], RAN)
    assert_sound(scene.cluster)
    assert alice.run(API) == "200"
    (late,) = scene.submit([NOT_HELD])
    scene.let_end()
    scene.wait_for_end()
    assert scene.facts()[late] == RAN
    wait_until(lambda: stream(late), "the stream goes on")


def test_no_end_is_lost_while_the_server_is_silent(scene: Scene) -> None:
    reporting, running = scene.prepare([NOT_HELD] * 2, on("node-1"))
    scene.begin([reporting, running])
    scene.wait_for_start(reporting, running)
    with silent(scene.cluster.server, "power-off"):
        scene.let_end(reporting)
        scene.ends_on(Machine(scene.cluster, "node-1"), reporting)
    scene.cluster.commands.do("start")
    scene.let_end(running)
    scene.wait_for_end()
    assert scene.facts() == {reporting: RAN, running: RAN}
    assert_sound(scene.cluster)


def test_what_was_acknowledged_before_the_server_lost_its_power_runs(
    scene: Scene, stream: Callable[[int], bool]
) -> None:
    """The power goes while people submit, by oarsub and by the API, and while the stream is followed."""
    cluster, alice = scene.cluster, scene.alice
    alice.run("rm -f typed posted; touch typed posted")
    for line in (TYPED, POSTED):
        alice.run(f"setsid sh -c {shlex.quote(line)} </dev/null >/dev/null 2>&1 &")
    wait_until(lambda: all(len(jobs) > 1 for jobs in _acknowledged(scene)), "both ways are answered")
    wait_until(lambda: stream(max(_acknowledged(scene)[0])), "the stream is followed")
    with silent(cluster.server, "power-off"):
        acknowledged = set.union(*_acknowledged(scene))
    cluster.commands.do("start")
    checked(tool("api", "start", room=cluster.room))
    for job in acknowledged:
        cluster.wait_for_state(job, "Terminated")
    assert_sound(cluster)
    assert alice.run(API) == "200"
    alice.run(f"setsid sh -c {shlex.quote(FOLLOW)} </dev/null >/dev/null 2>&1 & echo $! >follower")
    wait_until(lambda: stream(_run_short_job(scene)), "the stream goes on")
    alice.run("kill -- -$(cat follower)")


@pytest.mark.usefixtures("impatient")
def test_the_runner_survives_a_cut_of_any_length(scene: Scene) -> None:
    """The cut lasts until the Runner has given up all its connections and waits in its second try to connect."""
    runner = [process.pid for process in Machine(scene.cluster, "server").processes("bipbip_commander")]
    lines = "grep -c 'Runner.*the database cannot be reached' /var/log/oar.log || true"
    root = scene.cluster.as_user("root")
    before = int(root.run(lines))
    with silent(scene.cluster.database, "cut"):
        wait_until(lambda: int(root.run(lines)) >= before + 3, "the Runner tries again and again")
    (job,) = scene.submit([NOT_HELD])
    scene.let_end()
    scene.wait_for_end()
    assert scene.facts() == {job: RAN}
    assert [process.pid for process in Machine(scene.cluster, "server").processes("bipbip_commander")] == runner
