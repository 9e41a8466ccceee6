"""The PostgreSQL servers of DB_HOSTNAME: their roles and timelines, and the lag of replicas."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from oar.lib.base.latest import Latest
from oar.lib.db.connections import REPLICATED_TCP_LIMITS, Address, DatabaseSettings, explain_failure
from oar.lib.db.statements import PreparingConnection, psycopg2
from oar.lib.monitoring.prometheus_text import MetricFamily, gauge

#: Seconds given to a PostgreSQL server to answer.
ANSWER_SECONDS = 2
#: A replica does not know its timeline by pg_walfile_name; the control file has that of its last restart point.
_QUERY = f"""
    SET statement_timeout TO '{ANSWER_SECONDS}s';
    SELECT pg_is_in_recovery(),
        CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END - '0/0'::pg_lsn,
        CASE WHEN pg_is_in_recovery()
            THEN (SELECT GREATEST(c.timeline_id, r.min_recovery_end_timeline)
                  FROM pg_control_checkpoint() c, pg_control_recovery() r)
            ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int END,
        COALESCE(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0)"""


class DatabaseRole(StrEnum):
    """What a PostgreSQL server is."""

    PRIMARY = "primary"
    REPLICA = "replica"
    UNREACHABLE = "unreachable"


class DatabaseHost(NamedTuple):
    """The state of a PostgreSQL server."""

    host: str  #: ``host:port``
    role: DatabaseRole
    timeline: int | None = None
    position: int = 0  #: bytes of the write-ahead log that are stored or replayed
    lag_bytes: int | None = None  #: how far a replica is behind; None if no primary answers
    lag_seconds: float | None = None  #: age of the last replayed transaction, 0 if the replica is not behind
    error: str = ""  #: why it is unreachable


def read_hosts(settings: DatabaseSettings) -> list[DatabaseHost]:
    """Return the state of each PostgreSQL server, in the order of DB_HOSTNAME. It takes a few seconds at most."""
    addresses = settings.addresses
    with ThreadPoolExecutor(len(addresses)) as pool:
        return with_lags(list(pool.map(lambda address: _read_host(settings, address), addresses)))


def with_lags(hosts: Sequence[DatabaseHost]) -> list[DatabaseHost]:
    """Return the hosts with the lags of replicas behind the primary.

    >>> replica = DatabaseHost("b", DatabaseRole.REPLICA, 1, 80, None, 7.5)
    >>> [host.lag_bytes for host in with_lags([DatabaseHost("a", DatabaseRole.PRIMARY, 1, 90), replica])]
    [None, 10]
    """
    positions = [host.position for host in hosts if host.role is DatabaseRole.PRIMARY]
    return [_with_lag(host, max(positions, default=None)) for host in hosts]


def _with_lag(host: DatabaseHost, position: int | None) -> DatabaseHost:
    if host.role is not DatabaseRole.REPLICA or position is None:
        return host._replace(lag_bytes=None, lag_seconds=None)
    behind = max(0, position - host.position)
    return host._replace(lag_bytes=behind, lag_seconds=host.lag_seconds if behind else 0.0)


def _read_host(settings: DatabaseSettings, address: Address) -> DatabaseHost:
    try:
        with closing(_connect(settings, address)) as connection:
            connection.autocommit = True
            cursor = connection.cursor()
            cursor.execute(_QUERY)
            is_replica, position, timeline, age = cursor.fetchall()[0]
    except psycopg2.Error as error:
        return DatabaseHost(str(address), DatabaseRole.UNREACHABLE, error=explain_failure(str(error), quotes=True))
    if not is_replica:
        return DatabaseHost(str(address), DatabaseRole.PRIMARY, timeline, int(position))
    return DatabaseHost(str(address), DatabaseRole.REPLICA, timeline, int(position), None, round(float(age), 1))


def _connect(settings: DatabaseSettings, address: Address) -> PreparingConnection:
    connection: PreparingConnection = psycopg2.connect(
        connection_factory=partial(PreparingConnection, prompt_seconds=float(ANSWER_SECONDS)),
        host=address.host,
        port=address.port,
        dbname=settings.name,
        user=settings.user,
        password=settings.password or None,
        connect_timeout=ANSWER_SECONDS,
        application_name="oar:replication",
        passfile="/dev/null/none",
        **(REPLICATED_TCP_LIMITS.client_options() | {"tcp_user_timeout": 1000 * ANSWER_SECONDS}),
    )
    return connection


def replication_families(settings: DatabaseSettings) -> Iterator[MetricFamily]:
    """Yield the metrics of several PostgreSQL servers; yield nothing if there is only one."""
    if len(settings.addresses) < 2:
        return
    hosts = read_hosts(settings)
    are_up = {host.host: host.role is not DatabaseRole.UNREACHABLE for host in hosts}
    yield gauge("oar_database_up", "Whether a PostgreSQL server answers.", are_up, "host")
    lags = {host.host: host.lag_seconds for host in hosts if host.lag_seconds is not None}
    help_ = "Age of the last transaction that a replica has replayed, 0 if it is not behind the primary."
    yield gauge("oar_database_lag_seconds", help_, lags, "host")
    timelines = {host.host: host.timeline for host in hosts if host.timeline is not None}
    yield gauge("oar_database_timeline", "Timeline of a PostgreSQL server.", timelines, "host")


class LatestReplication:
    """The metrics of several PostgreSQL servers, as a thread has read them last.

    A PostgreSQL server that does not answer so delays no other work of the process.
    """

    def __init__(self) -> None:
        self._latest = Latest[list[MetricFamily]]([], "replication")

    def families(self, settings: DatabaseSettings) -> list[MetricFamily]:
        """Return the last metrics, nothing before the first were read, and begin to read new ones."""
        if len(settings.addresses) < 2:
            return []
        return self._latest.value(lambda: list(replication_families(settings)))
