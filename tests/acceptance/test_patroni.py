"""Patroni chooses the primary PostgreSQL under load: no acknowledged job is lost, and none runs twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import SETTINGS, own_room
from tests.acceptance.harness import Cluster, wait_until
from tests.acceptance.load import Load

pytestmark = pytest.mark.slow

#: Seconds after the promotion in which jobs must be accepted and started again.
SERVICE_SECONDS = 15
_OPTIONS = ("--nodes", "2", "--cores", "8", "--servers", "2", "--databases", "2", "--patroni", "--fast-db")
_SETTINGS = [word for line in SETTINGS for word in ("--set", line)]
_HOSTS = ["database", "database2"]


@pytest.fixture(scope="module")
def managed(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with own_room(request, "patroni", *_OPTIONS, *_SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def load(managed: Cluster) -> Iterator[Load]:
    """Give a load during a fault; then wait until all jobs have ended, and check that nothing was lost."""
    with Load(managed) as load:
        load.wait_for_jobs(10)
        yield load
        load.wait_for_jobs(5)
        load.stop()
    load.assert_nothing_lost()
    managed.calm()


def _primaries(cluster: Cluster) -> list[str]:
    """Return the host that Patroni has made the primary, in a list; an empty one if there is none."""
    ask = "nsenter --net=/run/netns/witness curl -sf -o /dev/null http://{host}:8008/primary"
    root = cluster.as_user("root")
    return [host for host in _HOSTS if root.attempt(ask.format(host=host)).code == 0]


def _roles(cluster: Cluster) -> tuple[str, str]:
    """Return the host of the primary and that of the replica."""
    (primary,) = wait_until(lambda: _primaries(cluster), "there is a primary")
    (replica,) = set(_HOSTS) - {primary}
    return primary, replica


@pytest.mark.parametrize("fault", ["power-off", "cut"])
def test_the_replica_replaces_a_primary_whose_host_is_lost(managed: Cluster, load: Load, fault: str) -> None:
    primary, replica = _roles(managed)
    managed.database_on(primary).do(fault)
    wait_until(lambda: replica in _primaries(managed), "Patroni promotes the replica")
    load.wait_for_service(within=SERVICE_SECONDS)
    if fault == "cut":
        managed.database_on(primary).do("heal")
    managed.database_on(primary).do("start")  # returns when it is the synchronous replica
    assert _roles(managed) == (replica, primary)


def test_a_switchover_loses_nothing(managed: Cluster, load: Load) -> None:
    primary, replica = _roles(managed)
    managed.database_on(replica).do("promote")
    load.wait_for_service(within=SERVICE_SECONDS)
    assert _roles(managed) == (replica, primary)
    managed.database_on(primary).do("start")


def test_the_loss_of_a_member_of_etcd_is_not_noticed(managed: Cluster, load: Load) -> None:
    before = _roles(managed)
    managed.database_on("witness").do("power-off")
    load.wait_for_service(within=SERVICE_SECONDS)
    assert load.errors() == ""
    managed.database_on("witness").do("start")
    assert _roles(managed) == before
