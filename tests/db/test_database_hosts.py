"""Several hosts of the database: the primary is found, also after another server was promoted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.db import connections, migrations
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.migrations import connect_admin
from tests.builders import add_job
from tests.conftest import SETUP
from tests.postgres import PostgreSQL, running_pair
from tests.silence import deaf_server

pytestmark = pytest.mark.slow


@pytest.fixture
def servers() -> Iterator[tuple[PostgreSQL, PostgreSQL]]:
    """A primary and its replica."""
    with running_pair() as pair:
        yield pair


@pytest.fixture
def settings(servers: tuple[PostgreSQL, PostgreSQL]) -> DatabaseSettings:
    """The address of both, the replica first, and a schema."""
    primary, replica = servers
    both = DatabaseSettings(host=f"{replica.socket} {primary.socket}", patience=60)
    migrations.Migrator(
        both,
        SETUP,
        connect_admin=lambda name: connect_admin(both.addresses, name, "postgres", None),
        with_rules=False,
    ).create()
    return both


def test_a_promoted_replica_goes_on_where_the_primary_ended(
    servers: tuple[PostgreSQL, PostgreSQL], settings: DatabaseSettings
) -> None:
    primary, replica = servers
    database = Database(settings, application="oar:test")
    before = add_job(database)
    replica.await_commits(primary)
    primary.stop()
    replica.promote()
    after = add_job(database)
    assert database.run(lambda tx: tx.jobs.get(before).id) == before
    assert after > before
    assert database.pool.hosts.in_order()[0].host == replica.socket
    database.close()


def test_a_replica_alone_is_not_used(servers: tuple[PostgreSQL, PostgreSQL], settings: DatabaseSettings) -> None:
    primary, _ = servers
    primary.stop()
    database = Database(settings._replace(patience=0), application="oar:test")
    with pytest.raises(DatabaseUnavailable) as caught:
        add_job(database)
    assert connections.explain_failure(str(caught.value)) == "no server listens at this socket"


def test_only_replicas(servers: tuple[PostgreSQL, PostgreSQL], settings: DatabaseSettings) -> None:
    _, replica = servers
    both = settings._replace(host=f"{replica.socket} {replica.socket}", patience=0)
    with pytest.raises(DatabaseUnavailable) as caught:
        add_job(Database(both, application="oar:test"))
    assert connections.explain_failure(str(caught.value)) == "no server is the primary"


def test_programs_try_the_last_primary_first(
    servers: tuple[PostgreSQL, PostgreSQL], settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, replica = servers
    monkeypatch.setattr("os.geteuid", lambda: 12345)  # root does not write into a directory of others
    path = tmp_path / "database_primary"
    remembering = settings._replace(primary_file=str(path))
    add_job(Database(remembering, application="oar:test"))
    assert path.read_text() == f"{primary.socket}:5432\n"
    hosts = connections.DatabaseHosts(remembering.addresses, str(path))
    assert [address.host for address in hosts.in_order()] == [primary.socket, replica.socket]
    path.write_text("elsewhere:5432\n")  # an address that is not configured is ignored
    hosts = connections.DatabaseHosts(remembering.addresses, str(path))
    assert [address.host for address in hosts.in_order()] == [replica.socket, primary.socket]


def test_a_silent_host_costs_one_short_try(servers: tuple[PostgreSQL, PostgreSQL], settings: DatabaseSettings) -> None:
    primary, _ = servers
    with deaf_server() as port:
        both = settings._replace(host=f"127.0.0.1:{port} {primary.socket}")
        database = Database(both, application="oar:test")
        add_job(database)
        assert [address.host for address in database.pool.hosts.in_order()] == [primary.socket, "127.0.0.1"]
        database.close()


def test_messages_name_all_hosts() -> None:
    settings = DatabaseSettings(host="pg1, /run/pg fd00::1\t[fd00::2]:5433", port=5434)
    assert settings.servers == "pg1:5434, /run/pg:5434, [fd00::1]:5434, [fd00::2]:5433"
    assert DatabaseSettings(host="pg1").place == "oar at pg1:5432"
