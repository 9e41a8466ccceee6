"""The primary PostgreSQL fails under load and its replica is promoted: no acknowledged job is lost, none runs twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.acceptance.conftest import SETTINGS, own_room
from tests.acceptance.faults import LATE, RAN, Machine, Scene, Step, assert_sound, stops_in
from tests.acceptance.harness import Cluster, wait_until
from tests.acceptance.load import Load
from tests.acceptance.test_crashes import OF_BIPBIPS

pytestmark = pytest.mark.slow

#: Seconds after the promotion in which jobs must be accepted and started again.
SERVICE_SECONDS = 15
_OPTIONS = ("--nodes", "2", "--cores", "8", "--databases", "2", "--fast-db")
_SETTINGS = [word for line in SETTINGS for word in ("--set", line)]


@dataclass
class Pair:
    """A primary and its replica."""

    cluster: Cluster
    names: list[str] = field(default_factory=lambda: ["database", "database2"])

    def promote(self, fault: str) -> None:
        """Apply a fault to the primary, and promote the replica."""
        primary, replica = self.names
        self.cluster.database_on(primary).do(fault)
        self.cluster.database_on(replica).do("promote")
        self.names.reverse()

    def mend(self) -> None:
        """Start the former primary as a replica of the new one."""
        self.cluster.database_on(self.names[1]).do("follow")


@pytest.fixture(scope="module")
def replicated(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with own_room(request, "pair", *_OPTIONS, *_SETTINGS) as cluster:
        yield Pair(cluster)


@pytest.fixture(scope="module")
def asynchronous(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with own_room(request, "lossy", *_OPTIONS, "--asynchronous", *_SETTINGS) as cluster:
        yield Pair(cluster)


@pytest.fixture
def pair(replicated: Pair) -> Iterator[Pair]:
    yield replicated
    replicated.mend()
    replicated.cluster.calm()


@pytest.mark.parametrize("fault", ["kill", "power-off"])
def test_nothing_is_lost_with_a_synchronous_replica(pair: Pair, fault: str) -> None:
    with Load(pair.cluster) as load:
        load.wait_for_jobs(10)
        pair.promote(fault)
        load.wait_for_service(within=SERVICE_SECONDS)
        load.wait_for_jobs(5)
        load.stop()
    load.assert_nothing_lost()


def test_a_promotion_at_each_step_of_a_job_loses_nothing(pair: Pair) -> None:
    with stops_in(pair.cluster) as stops:
        scene = Scene(pair.cluster, stops)
        jobs = scene.submit(OF_BIPBIPS)
        scene.let_end(*jobs[-2:])
        stops.wait_for(jobs)
        held = scene.submit([Step("toLaunch", LATE)])
        stops.wait_for(held)
        pair.promote("kill")
        stops.lift()
        scene.let_end()
        scene.assert_all(RAN)


#: Seconds for which a job runs that is not to end by itself.
_LONG = "-l core=1,walltime=0:10 'echo start >> starts/$OAR_JOB_ID; sleep 300'"


def test_an_asynchronous_replica_without_the_last_commits(asynchronous: Pair) -> None:
    """Jobs that the replica does not know are ended; no id is given twice; one event names the loss."""
    cluster, alice = asynchronous.cluster, asynchronous.cluster.as_user("alice")
    alice.run("rm -rf starts; mkdir starts")
    known = alice.submit(_LONG)
    cluster.wait_for_start(known)
    primary, replica = asynchronous.names
    wait_until(lambda: state_on(asynchronous, replica, known) == "Running", "the replica knows the job")
    cluster.database_on(replica).do("cut")
    lost = alice.submit_all(f"--array 40 {_LONG}")
    cluster.wait_for_start(lost[0])
    newest = Machine(cluster, "server").path("/run/oar/newest_job")
    wait_until(lambda: newest.read_text().strip() == str(lost[-1]), newest.read_text)
    cluster.database_on(primary).do("kill")
    cluster.database_on(replica).do("heal")
    cluster.database_on(replica).do("promote")
    asynchronous.names.reverse()
    new = alice.submit("-l core=1,walltime=0:10 'echo start >> starts/$OAR_JOB_ID; exit 7'")
    assert new > lost[-1]
    cluster.wait_for_state(new, "Terminated")
    loss = "SELECT description FROM event_logs WHERE type = 'DATABASE_RESTORED'"
    wait_until(lambda: cluster.sql(loss), "the server notices the loss")
    started = {int(path.name) for path in (Machine(cluster, "server").path("/home/alice/starts")).iterdir()}
    unknown = "SELECT job_id FROM event_logs WHERE type = 'UNKNOWN_JOB_ENDED'"
    ended = started - {known, new}
    wait_until(lambda: {int(row[0]) for row in cluster.sql(unknown)} >= ended, f"{ended} were ended")
    ((text,),) = cluster.sql(loss)
    assert f"jobs {known + 1} to {lost[-1]} are lost" in text
    assert cluster.state(known) == "Running"
    alice.run(f"oardel {known}")
    cluster.wait_for_state(known, "Error")
    assert_sound(cluster)


def state_on(pair: Pair, host: str, job: int) -> str:
    """Return the state of a job on a PostgreSQL server."""
    directory = "/run/postgresql" + host.removeprefix("database")
    psql = f"psql -X -A -t -h {directory} -U postgres oar -c 'SELECT state FROM jobs WHERE job_id = {job}'"
    return pair.cluster.as_user("root").run(psql).strip()
