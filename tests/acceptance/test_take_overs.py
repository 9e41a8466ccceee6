"""Faults of the active server under a load of jobs: another server takes over, no job is lost and none runs twice."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
from room import fault_log

from tests.acceptance.conftest import SETTINGS, own_room
from tests.acceptance.faults import KILLED, LATE, RAN, Scene, Step, stops_in
from tests.acceptance.harness import checked, tool, wait_until
from tests.acceptance.load import Load
from tests.acceptance.reservations import ask
from tests.acceptance.servers import Servers
from tests.acceptance.test_crashes import OF_BIPBIPS
from tests.acceptance.test_keys import SSH

pytestmark = pytest.mark.slow

_OPTIONS = ("--nodes", "2", "--cores", "8", "--servers", "2", "--fast-db")
_SETTINGS = [word for line in SETTINGS for word in ("--set", line)]


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest) -> Iterator[Servers]:
    with own_room(request, "servers", *_OPTIONS, *_SETTINGS) as cluster:
        cluster.sql(fault_log.RECORD)
        yield Servers(cluster)


@pytest.fixture
def servers(both: Servers) -> Iterator[Servers]:
    """Two servers, of which one is active and the other standby."""
    for name in both.names:
        both.do(name, "start")
    wait_until(both.are_ready, "both run")
    wait_until(both.active, "one of them is active")
    yield both
    both.cluster.calm()


@contextlib.contextmanager
def load_on_standby(servers: Servers) -> Iterator[Load]:
    """Have clients on the standby, and check at the end that no job was lost."""
    with Load(servers.cluster, host=servers.other(servers.active())) as load:
        load.wait_for_jobs(10)
        yield load
        load.wait_for_jobs(5)
        load.stop()
    load.assert_nothing_lost()
    servers.assert_sound()


@pytest.mark.parametrize("fault", ["kill-all", "kill", "power-off", "cut", "cut-database", "hang", "cut-and-hang"])
def test_another_server_takes_over(servers: Servers, fault: str) -> None:
    """With `cut-and-hang`, both believe to be active when the network is back."""
    active = servers.active()
    with load_on_standby(servers) as load:
        begin = servers.now()
        servers.do(active, fault)
        try:
            servers.wait_for_take_over(servers.other(active), fault)
            load.wait_for_service()
            servers.print_take_over(fault, begin)
        finally:
            servers.cure(active, fault)


@pytest.mark.parametrize("part", ["warden", "runner.bipbip_commander"])
def test_a_part_that_is_killed_returns_or_another_server_takes_over(servers: Servers, part: str) -> None:
    active = servers.active()
    with load_on_standby(servers) as load:
        servers.do(active, f"kill-{part}")
        load.wait_for_service()
        servers.cure(active, "kill")


def test_a_hand_over_lets_jobs_run_and_shows_users_no_error(servers: Servers) -> None:
    active = servers.active()
    with load_on_standby(servers) as load:
        begin = servers.now()
        servers.cluster.as_user("root").on(active).run("oar-server hand-over")
        servers.wait_for_take_over(servers.other(active), "hand-over")
        load.wait_for_service()
        servers.print_take_over("hand-over", begin)
        # Users see no error: only that the server will treat the request later.
        assert all(" will be treated later." in line for line in load.errors().splitlines()), load.errors()


def test_the_other_server_gets_the_keys_and_the_host_keys(servers: Servers) -> None:
    """Also if it was switched off and on before."""
    active = servers.active()
    servers.do(servers.other(active), "power-off")
    servers.cure(servers.other(active), "power-off")
    here, other = (servers.cluster.as_user("root").on(name) for name in (active, servers.other(active)))
    keys, hosts = (f"cd /var/lib/oar/.ssh && cat {names}" for names in ("id_ed25519.pub oarsh_key*", "known_hosts"))
    before = here.run(keys), here.run(hosts).splitlines()
    other.run("cd /var/lib/oar/.ssh && rm oarsh_key oarsh_key.pub && echo >known_hosts && echo other >id_ed25519.pub")
    printed = here.run(f"oar-keys --servers --ssh '{SSH} -l oar'").replace("root@", "")
    assert printed == f"{other.machine}: the keys are installed.\n"
    assert other.run(keys) == before[0] == here.run(keys)
    assert other.run(hosts) == here.run(hosts)
    assert set(before[1]) <= set(other.run(hosts).splitlines())


def test_a_server_that_is_cut_from_the_nodes_hands_over_and_no_job_ends(servers: Servers) -> None:
    cluster, alice = servers.cluster, servers.cluster.as_user("alice")
    active = servers.active()
    alice.run("rm -f go-on")
    job = alice.submit("-l core=1,walltime=0:10 'until [ -e go-on ]; do sleep 0.2; done; exit 7'")
    cluster.wait_for_start(job)
    servers.do(active, "cut-nodes")
    try:
        wait_until(lambda: servers.active() == servers.other(active), "the other server is active")
        assert cluster.state(job) == "Running"
        assert not cluster.sql("SELECT network_address FROM resources WHERE state <> 'Alive'")
    finally:
        servers.cure(active, "cut-nodes")
    reasons = cluster.sql("SELECT description FROM event_logs WHERE type = 'SERVER_TAKE_OVER' ORDER BY event_id")
    assert f"{active} reaches 0 of 2 nodes, {servers.other(active)} reaches 2" in reasons[-1][0]
    alice.run("touch go-on")
    assert cluster.wait_for_end(job) == {job: RAN[:2]}
    servers.assert_sound()


@pytest.mark.parametrize("fault", ["kill-all", "power-off", "hang"])
def test_a_take_over_at_each_step_of_a_job_loses_nothing(servers: Servers, fault: str) -> None:
    active = servers.active()
    with stops_in(servers.cluster) as stops:
        scene = Scene(servers.cluster, stops)
        jobs = scene.submit(OF_BIPBIPS)
        scene.let_end(*jobs[-2:])
        stops.wait_for(jobs)
        stops.wait_for(scene.submit([Step("toLaunch", LATE)]))
        servers.do(active, fault)
        try:
            servers.wait_for_take_over(servers.other(active), fault)
        finally:
            stops.lift()
            servers.cure(active, fault)
        scene.let_end()
        scene.assert_all(RAN)
    servers.assert_sound()


@pytest.mark.parametrize("fault", ["kill-all", "hang"])
def test_a_take_over_while_a_job_is_deleted_one_suspended_and_a_reservation_begins(
    servers: Servers, fault: str
) -> None:
    cluster, active = servers.cluster, servers.active()
    cluster.as_user("oar").run("oaruserset -a alice arusers")
    with stops_in(cluster) as stops:
        scene = Scene(cluster, stops)
        deleted, suspended = scene.submit([Step("TIMER_ARMED", LATE), Step("Suspended", LATE)])
        scene.wait_for_start(deleted, suspended)
        number = ask(scene.alice, "-a +25 -d 300 -l /resource_id=1")
        job = scene.alice.submit(f"--ar {number} -l /resource_id=1,walltime=0:1 'echo ran >> in-$OAR_AR_ID'")
        scene.alice.run(f"oardel {deleted}")
        cluster.as_user("root").run(f"oarhold -r {suspended}")
        stops.wait_for([deleted, suspended])
        servers.do(active, fault)
        try:
            servers.wait_for_take_over(servers.other(active), fault)
        finally:
            stops.lift()
            servers.cure(active, fault)
        cluster.wait_for_state(suspended, "Suspended")
        cluster.as_user("root").run(f"oarresume {suspended}")
        scene.let_end()
        scene.wait_for_end()
        assert scene.facts() == {deleted: KILLED, suspended: RAN}
    cluster.wait_for_state(job, "Terminated")
    assert scene.alice.run(f"cat in-{number}; rm in-{number}") == "ran\n"
    scene.alice.run(f"qrdel {number}")
    servers.assert_sound()


SEED = os.environ.get("OAR_TEST_SEED", "28")
#: The specification demands 200.
TAKE_OVERS = os.environ.get("OAR_TEST_TAKE_OVERS", "6")


def test_random_take_overs_lose_and_leak_nothing(servers: Servers) -> None:
    words = ("chaos", "--only", "take-over", "--seed", SEED, "--count", TAKE_OVERS)
    try:
        printed = checked(tool(*words, room=servers.cluster.room)).out
    finally:
        servers.cluster.sql(fault_log.FORGET + fault_log.RECORD)  # the command has removed its own
    assert printed.count(" took over after ") == int(TAKE_OVERS), printed
