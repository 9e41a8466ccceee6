"""A database on another machine that falls silent: limits of both ends of each connection."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import psycopg2
import pytest

from oar.cli import oarstat, oarsub
from oar.lib.adoption.sql_old_databases import OldDatabase
from oar.lib.base.errors import DatabaseUnavailable, SchemaError
from oar.lib.db.connections import DatabaseSettings, use_own_waits, use_waits_of_libpq
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import ROUND_LOCK
from oar.lib.db.locks import Locks
from oar.lib.db.migrations import connect_admin
from tests.builders import execute_sql
from tests.postgres import PROFILE, running
from tests.silence import Relay, relay_to

pytestmark = pytest.mark.slow

SERVER_LIMITS = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
CLIENT_LIMITS = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)


def _own_address() -> str:
    """Return a loopback address that no other test process uses."""
    return f"127.{os.getpid() >> 16 & 127 | 1}.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"


@pytest.fixture(scope="module")
def remote() -> Iterator[DatabaseSettings]:
    """A PostgreSQL that is reached over TCP."""
    address = _own_address()
    with running(PROFILE.replace("listen_addresses = ''", f"listen_addresses = '{address}'")) as server:
        server.execute("CREATE ROLE oar LOGIN")
        server.execute("CREATE ROLE oar_ro LOGIN")
        yield DatabaseSettings(host=address, name="postgres", patience=0)


def _client_limits(connection: psycopg2.extensions.connection) -> tuple[int, ...]:
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        return tuple(end.getsockopt(socket.IPPROTO_TCP, option) for option in CLIENT_LIMITS)


def _server_limits(connection: psycopg2.extensions.connection) -> tuple[str, ...]:
    cursor = connection.cursor()
    values = []
    for name in SERVER_LIMITS:
        cursor.execute(f"SHOW {name}")
        values.append(cursor.fetchall()[0][0])
    return tuple(values)


def test_a_dead_peer_is_noticed_at_both_ends_of_every_connection(remote: DatabaseSettings) -> None:
    database = Database(remote)
    with database.begin() as tx, database.readonly() as reader:
        for connection in (tx.connection, reader.connection, database.connection(), database.pool.new_writer_at_once()):
            assert _client_limits(connection) == (10, 3, 3, 10_000)
            assert _server_limits(connection) == ("10", "3", "3", "10000")
    with database.readonly() as used_again:
        assert _server_limits(used_again.connection) == ("10", "3", "3", "10000")


def test_a_connection_that_holds_locks_is_closed_by_postgresql_sooner(remote: DatabaseSettings) -> None:
    database = Database(remote, application="oar:test")
    locks = database.locks()
    assert locks.acquire(ROUND_LOCK)
    assert _client_limits(locks._connection) == (3, 2, 3, 4_000)
    assert _server_limits(locks._connection) == ("3", "2", "3", "9000")
    assert database.lock_holder(ROUND_LOCK).startswith(f"oar:test@{os.uname().nodename} (pid ")


def test_the_installation_notices_a_dead_peer_too(remote: DatabaseSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = connect_admin(remote.addresses, "postgres", "postgres", None)
    assert _client_limits(admin) == (10, 3, 3, 10_000)
    opened = []
    connect = psycopg2.connect

    def noted(*arguments: object, **options: object) -> psycopg2.extensions.connection:
        opened.append(connect(*arguments, **options))  # type: ignore[call-overload]
        return opened[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr(psycopg2, "connect", noted)
    with pytest.raises(SchemaError, match="is not a database of OAR"):
        OldDatabase.open(f"postgresql://postgres@{remote.host}/postgres")
    assert "keepalives_idle=10" in opened[0].dsn
    assert "tcp_user_timeout=10000" in opened[0].dsn


@pytest.fixture
def relay(settings: DatabaseSettings) -> Iterator[Relay]:
    """The way to the database, which can fall silent while connections stay open."""
    with relay_to(f"{settings.host}/.s.PGSQL.5432") as relay:
        yield relay


@pytest.fixture
def own_waits() -> Iterator[None]:
    use_own_waits()
    yield
    use_waits_of_libpq()


def _behind(relay: Relay, settings: DatabaseSettings, patience: float) -> DatabaseSettings:
    return settings._replace(host="127.0.0.1", port=relay.port, patience=patience)


@pytest.mark.usefixtures("own_waits")
def test_a_silent_database_is_reported_once_and_given_up(settings: DatabaseSettings, relay: Relay) -> None:
    database = Database(_behind(relay, settings, 2))
    reports = list[DatabaseUnavailable]()
    database.pool.outage.follow(reports.append)
    execute_sql(database, "SELECT 1")
    relay.fall_silent()
    with pytest.raises(DatabaseUnavailable, match="no answer within"), database.begin():
        pass
    assert [str(report) for report in reports] == ["it does not answer"]


@pytest.mark.usefixtures("own_waits")
def test_a_command_waits_for_a_silent_database_and_goes_on_when_it_is_back(
    settings: DatabaseSettings, relay: Relay
) -> None:
    database = Database(_behind(relay, settings, 600))
    relay.fall_silent()
    reports = list[DatabaseUnavailable]()

    def recover(problem: DatabaseUnavailable) -> None:
        reports.append(problem)
        relay.recover()

    database.pool.outage.follow(recover)
    assert database.run(lambda tx: tx.value("SELECT 42")) == 42
    assert len(reports) == 1
    relay.fall_silent()
    assert database.run(lambda tx: tx.value("SELECT 43")) == 43
    assert len(reports) == 2  # another outage, another report


@pytest.mark.usefixtures("own_waits")
def test_a_slow_statement_is_no_silence(settings: DatabaseSettings, relay: Relay) -> None:
    database = Database(_behind(relay, settings, 1))
    reports = list[DatabaseUnavailable]()
    database.pool.outage.follow(reports.append)
    execute_sql(database, "SELECT pg_sleep(2)")
    assert reports == []


@pytest.mark.usefixtures("own_waits")
def test_an_interrupt_ends_the_wait_for_a_silent_database(settings: DatabaseSettings, relay: Relay) -> None:
    database = Database(_behind(relay, settings, 600))
    relay.fall_silent()

    def interrupt(problem: DatabaseUnavailable) -> None:
        signal.raise_signal(signal.SIGINT)

    database.pool.outage.follow(interrupt)
    with pytest.raises(KeyboardInterrupt), database.begin():
        pass


@pytest.mark.parametrize("command", [oarstat, oarsub])
def test_a_command_tells_its_user_that_the_database_is_silent(
    settings: DatabaseSettings, relay: Relay, tmp_path: Path, command: ModuleType
) -> None:
    conf = tmp_path / "oar.conf"
    lines = ['DB_HOSTNAME="127.0.0.1"', f'DB_PORT="{relay.port}"', f'DB_BASE_NAME="{settings.name}"']
    conf.write_text("\n".join([*lines, 'MAX_DB_CONNECTION_TIMEOUT="2"']))
    relay.fall_silent()
    words = ["sleep 1"] if command is oarsub else []
    done = subprocess.run(
        [sys.executable, "-c", f"from oar.cli.common.start_up import run; run('{command.__name__}')", *words],
        env={**os.environ, "OARCONFFILE": str(conf)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"cannot reach the OAR database at 127.0.0.1:{relay.port}, trying for 2 s.\n" in done.stderr
    reason = f"{settings.name} at 127.0.0.1:{relay.port}: it does not answer, tried for 2 s."
    way_out = "Try again later, or inform an administrator."
    assert done.stderr.splitlines()[-1].endswith(f"cannot reach the OAR database: {reason} {way_out}")
    assert (done.returncode, done.stdout) == (2, "")
    assert relay.accepted <= 4


def test_a_living_process_of_this_host_keeps_its_lock(remote: DatabaseSettings) -> None:
    one, other = (Database(remote, application="oar:test") for _ in range(2))
    with one.hold_lock(ROUND_LOCK) as lock, other.hold_lock(ROUND_LOCK) as refused:
        assert lock is not None
        assert refused is None
        assert lock.alive()


def _named_lock(remote: DatabaseSettings, name: str) -> Locks:
    """Return locks of a session of this host whose socket another process has: a relay passes the data on."""
    with relay_to((remote.host, 5432)) as relay:
        return Database(remote._replace(host="127.0.0.1", port=relay.port), application=name).locks()


def test_a_holder_behind_another_socket_of_this_host_keeps_its_lock(remote: DatabaseSettings) -> None:
    holder = _named_lock(remote, "oar:test")
    assert holder.acquire(ROUND_LOCK)
    with Database(remote, application="oar:test").hold_lock(ROUND_LOCK) as refused:
        assert refused is None
    assert holder.alive()


def test_a_process_that_is_hidden_by_a_router_takes_no_lock(remote: DatabaseSettings) -> None:
    holder = Database(remote, application="oar:test").locks()
    assert holder.acquire(ROUND_LOCK)
    seeker = _named_lock(remote, "oar:test")
    assert not seeker.take_from_dead(ROUND_LOCK)
    assert holder.alive()


def test_the_lock_of_a_session_without_a_socket_is_taken(
    remote: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = Database(remote, application="oar:test").locks()
    assert holder.acquire(ROUND_LOCK)
    monkeypatch.setattr("oar.lib.db.locks._is_free", lambda address, port: True)  # its host lost its power
    with Database(remote, application="oar:other").hold_lock(ROUND_LOCK) as refused:
        assert refused is None
    with Database(remote, application="oar:test").hold_lock(ROUND_LOCK) as lock:
        assert lock is not None
    assert not holder.alive()
