"""Faults of the active server under a load of jobs: another server takes over, no job is lost and none runs twice."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from random import Random

import pytest
from room import chaos, layout

from oar.lib.db.lock_keys import SERVER_LOCK
from tests.acceptance.conftest import SETTINGS, own_room
from tests.acceptance.faults import LATE, RAN, Machine, Scene, Step, stops_in
from tests.acceptance.harness import Cluster, wait_until
from tests.acceptance.load import Load
from tests.acceptance.test_crashes import OF_BIPBIPS
from tests.acceptance.test_keys import SSH

pytestmark = pytest.mark.slow

#: Seconds after a fault after which a test fails if no other server is active: four times the limit for a real site,
#: because all machines of a room share the processors of this computer.
TAKE_OVER_SECONDS = 4 * 15
_OPTIONS = ("--nodes", "2", "--cores", "8", "--servers", "2", "--fast-db")
_SETTINGS = [word for line in SETTINGS for word in ("--set", line)]
_CURES = {"cut": "heal", "cut-database": "heal", "cut-nodes": "heal", "hang": "resume"}

_HOLDERS = f"""
SELECT a.client_addr, a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.classid = {SERVER_LOCK[0]} AND l.objid = {SERVER_LOCK[1]} AND l.granted"""


class Servers:
    """Two servers with one database."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.names = layout.SERVERS
        self._hosts = {facts["address"]: name for name, facts in cluster.status()["machines"].items()}

    def active(self) -> str:
        """Return the host of the session that holds the server lock, '' if none does."""
        rows = self.cluster.sql(_HOLDERS)
        assert len(rows) <= 1, f"several holders of the server lock: {rows}"
        return self._hosts[rows[0][0]] if rows else ""

    def other(self, name: str) -> str:
        """Return the host of the other server."""
        return next(other for other in self.names if other != name)

    def do(self, name: str, action: str) -> None:
        """Apply an action to a server."""
        if action == "kill-all":
            for process in Machine(self.cluster, name).processes("oar.modules."):
                process.kill()
        elif action.startswith("kill-"):
            for process in Machine(self.cluster, name).processes(f"oar.modules.{action.removeprefix('kill-')}"):
                process.kill()
        else:
            self.cluster.server_on(name).do(action)

    def cure(self, name: str, fault: str) -> None:
        """Undo a fault, and wait until the server is active or standby."""
        self.do(name, _CURES.get(fault, "start"))
        if fault in _CURES:
            self.do(name, "start")
        wait_until(lambda: self.parts(name) >= {"almighty", "warden"}, f"{name} is active or standby")

    def parts(self, name: str) -> set[str]:
        """Return the programs of the server that run on a host."""
        commands = [process.command for process in Machine(self.cluster, name).processes("oar.modules.")]
        return {command.partition("oar.modules.")[2].split()[0] for command in commands}

    def wait_for_take_over(self, by: str) -> float:
        """Wait until a server is the active one. Return the seconds that it took."""
        begin = time.monotonic()
        wait_until(lambda: self.active() == by, lambda: f"{by} is active: {self.active()}", within=TAKE_OVER_SECONDS)
        return time.monotonic() - begin

    def assert_sound(self) -> None:
        """Check that generations did not interleave, and that nothing of a former one is left."""
        active = wait_until(self.active, "a server is active")
        standby = self.other(active)
        wait_until(
            lambda: self.parts(standby) == {"almighty", "warden"},
            lambda: f"{standby} is standby: {self.parts(standby)}",
        )
        wait_until(lambda: len(self.cluster.sql(chaos.GENERATIONS)) == 1, "one generation has sessions")
        interleaved = self.cluster.sql(chaos.INTERLEAVED)
        assert not interleaved, f"writes after those of a later generation: {interleaved}"


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest) -> Iterator[Servers]:
    with own_room(request, "servers", *_OPTIONS, *_SETTINGS) as cluster:
        cluster.sql(chaos.RECORD)
        yield Servers(cluster)


@pytest.fixture
def servers(both: Servers) -> Iterator[Servers]:
    """Two servers, of which one is active and the other standby."""
    for name in both.names:
        both.do(name, "start")
    wait_until(lambda: all(both.parts(name) >= {"almighty", "warden"} for name in both.names), "both run")
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


@pytest.mark.parametrize("fault", ["kill-all", "kill", "power-off", "cut", "cut-database", "hang"])
def test_another_server_takes_over(servers: Servers, fault: str) -> None:
    active = servers.active()
    with load_on_standby(servers) as load:
        servers.do(active, fault)
        try:
            servers.wait_for_take_over(servers.other(active))
            load.wait_for_service()
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
        servers.cluster.as_user("root").on(active).run("oar-server hand-over")
        servers.wait_for_take_over(servers.other(active))
        load.wait_for_service()
        # Users see no error: only that the server will treat the request later.
        assert all(" will be treated later." in line for line in load.errors().splitlines()), load.errors()


def test_the_other_server_gets_the_keys_and_the_host_keys(servers: Servers) -> None:
    active = servers.active()
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
    alice.run("rm -f end")
    job = alice.submit("-l core=1,walltime=0:10 'until [ -e end ]; do sleep 0.2; done; exit 7'")
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
    alice.run("touch end")
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
            servers.wait_for_take_over(servers.other(active))
        finally:
            stops.lift()
            servers.cure(active, fault)
        scene.let_end()
        scene.assert_all(RAN)
    servers.assert_sound()


SEED = int(os.environ.get("OAR_TEST_SEED", "28"))
#: The specification demands 200.
TAKE_OVERS = int(os.environ.get("OAR_TEST_TAKE_OVERS", "10"))


def test_random_take_overs_lose_nothing(servers: Servers) -> None:
    random = Random(SEED)
    with load_on_standby(servers) as load:
        for _ in range(TAKE_OVERS):
            active = wait_until(servers.active, "a server is active")
            fault = random.choice(["kill-all", "kill", "cut-database", "hang"])
            servers.do(active, fault)
            seconds = servers.wait_for_take_over(servers.other(active))
            servers.cure(active, fault)
            sys.stderr.write(f"\n{time.strftime('%T')} {fault}: {seconds:.1f} s; {len(load.acknowledged())} jobs")
        load.wait_for_service()
