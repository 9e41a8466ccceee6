"""A database on another machine that falls silent: limits of both ends of each connection."""

import os
import socket
from collections.abc import Iterator

import psycopg2
import pytest

from oar.lib.db.database import Database
from oar.lib.db.installation.migrations import connect_admin
from oar.lib.db.installation.old_databases import OldDatabase
from oar.lib.db.sql.connections import DatabaseSettings
from oar.lib.db.sql.lock_keys import ROUND_LOCK
from oar.lib.facts.errors import SchemaError
from tests.postgres import PROFILE, running

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
        for connection in (tx.connection, reader.connection, database.connection(), database.connection_at_once()):
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
    admin = connect_admin(remote.host, remote.port, "postgres", "postgres", None)
    assert _client_limits(admin) == (10, 3, 3, 10_000)
    opened = []
    connect = psycopg2.connect

    def noted(*arguments: object, **options: object) -> psycopg2.extensions.connection:
        opened.append(connect(*arguments, **options))  # type: ignore[call-overload]
        return opened[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr(psycopg2, "connect", noted)
    with pytest.raises(SchemaError, match="is no database of OAR"):
        OldDatabase.open(f"postgresql://postgres@{remote.host}/postgres")
    assert "keepalives_idle=10" in opened[0].dsn
    assert "tcp_user_timeout=10000" in opened[0].dsn
