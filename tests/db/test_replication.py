"""The state of the PostgreSQL servers: roles, timelines, lags, and their metrics."""

import threading
from collections.abc import Iterator

import pytest

from oar.lib.db.connections import DatabaseSettings
from oar.lib.monitoring import replication
from oar.lib.monitoring.prometheus_text import MetricFamily, document, family_lines
from oar.lib.monitoring.replication import DatabaseRole, LatestReplication, read_hosts, replication_families
from tests.postgres import PostgreSQL, running_pair
from tests.process.this_machine import wait_until
from tests.silence import deaf_server


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[PostgreSQL, PostgreSQL]]:
    """A primary and its replica, with the login of an ordinary user."""
    with running_pair() as (primary, replica):
        primary.execute("CREATE ROLE oar LOGIN")
        primary.execute("CREATE DATABASE oar OWNER oar")
        replica.await_commits(primary)
        yield primary, replica


@pytest.fixture
def settings(servers: tuple[PostgreSQL, PostgreSQL]) -> DatabaseSettings:
    return DatabaseSettings(host=" ".join(server.socket for server in servers))


def lines_of(settings: DatabaseSettings) -> list[str]:
    return document(map(family_lines, replication_families(settings))).splitlines()


def test_a_primary_and_a_replica_without_lag(
    servers: tuple[PostgreSQL, PostgreSQL], settings: DatabaseSettings
) -> None:
    primary, replica = servers
    replica.await_commits(primary)
    wait_until(lambda: read_hosts(settings)[1].lag_bytes == 0)
    first, second = read_hosts(settings)
    assert first[:3] == (f"{primary.socket}:5432", DatabaseRole.PRIMARY, 1)
    assert second[:3] == (f"{replica.socket}:5432", DatabaseRole.REPLICA, 1)
    assert (first.lag_seconds, second.lag_seconds) == (None, 0.0)


def test_the_lag_of_a_replica_that_does_not_replay(
    servers: tuple[PostgreSQL, PostgreSQL], settings: DatabaseSettings
) -> None:
    primary, replica = servers
    primary.execute("CREATE TABLE before (number int)")
    replica.await_commits(primary)
    replica.execute("SELECT pg_wal_replay_pause()")
    wait_until(lambda: replica.value("SELECT pg_get_wal_replay_pause_state()") == "paused")
    primary.execute("CREATE TABLE after (number int)")
    wait_until(lambda: read_hosts(settings)[1].lag_bytes)
    wait_until(lambda: (read_hosts(settings)[1].lag_seconds or 0) > 1)
    host = f"{replica.socket}:5432"
    metrics = dict(line.rsplit(" ", 1) for line in lines_of(settings))
    assert metrics[f'oar_database_up{{host="{host}"}}'] == "1"
    assert float(metrics[f'oar_database_lag_seconds{{host="{host}"}}']) > 1
    assert metrics[f'oar_database_timeline{{host="{host}"}}'] == "1"
    replica.execute("SELECT pg_wal_replay_resume()")
    wait_until(lambda: read_hosts(settings)[1].lag_bytes == 0)


def test_a_host_that_does_not_answer_delays_nothing_for_long(servers: tuple[PostgreSQL, PostgreSQL]) -> None:
    primary, replica = servers
    with deaf_server() as port:
        hosts = read_hosts(DatabaseSettings(host=f"{replica.socket} 127.0.0.1:{port}"))
    assert [host.role for host in hosts] == [DatabaseRole.REPLICA, DatabaseRole.UNREACHABLE]
    assert (hosts[0].lag_bytes, hosts[0].lag_seconds) == (None, None)
    assert hosts[1].error == "it does not answer"
    assert "oar_database_lag_seconds" not in "".join(lines_of(DatabaseSettings(host=primary.socket)))


def test_a_site_with_one_postgresql_server_has_no_such_metrics(servers: tuple[PostgreSQL, PostgreSQL]) -> None:
    assert lines_of(DatabaseSettings(host=servers[0].socket)) == []


def test_a_postgresql_server_that_does_not_answer_does_not_delay_the_reader(
    settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last values are used meanwhile."""
    may_answer = threading.Event()

    def read(settings: DatabaseSettings) -> Iterator[MetricFamily]:
        may_answer.wait()
        yield from replication_families(settings)

    monkeypatch.setattr(replication, "replication_families", read)
    latest = LatestReplication()
    assert latest.families(settings) == latest.families(settings) == []
    may_answer.set()
    wait_until(lambda: latest.families(settings))
    assert [family.name for family in latest.families(settings)] == [
        "oar_database_up",
        "oar_database_lag_seconds",
        "oar_database_timeline",
    ]


def test_one_postgresql_server_needs_no_thread(servers: tuple[PostgreSQL, PostgreSQL]) -> None:
    before = set(threading.enumerate())
    assert LatestReplication().families(DatabaseSettings(host=servers[0].socket)) == []
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "replication"]
