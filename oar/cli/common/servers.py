"""Several servers: their states, those of the PostgreSQL servers, and the hand-over from one server to another."""

import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from oar.cli.common.options import Stop
from oar.lib.access.records import User
from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.base.times import format_date
from oar.lib.config.files import Config
from oar.lib.db.connections import explain_failure
from oar.lib.db.database import Database
from oar.lib.db.servers import SEEN_SECONDS, WISH_SECONDS, ServerRow
from oar.lib.db.transaction import Transaction
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.jobs.states import ServerRole
from oar.lib.monitoring.replication import DatabaseHost, read_hosts
from oar.lib.monitoring.seen_servers import read_seen
from oar.lib.runtime import database_settings

#: Seconds that a hand-over may take.
HAND_OVER_SECONDS = WISH_SECONDS + 5
_LOOK_SECONDS = 0.1
_HEADINGS = ("SERVER", "ROLE", "SINCE", "LAST SEEN", "VERSION", "CONFIGURATION")
_DATABASE_HEADINGS = ("DATABASE", "ROLE", "TIMELINE", "LAG")


class Report(NamedTuple):
    """The servers of OAR and of PostgreSQL."""

    rows: Sequence[ServerRow]
    date: int  #: of the rows: now, or when the warden of this host read them last
    databases: Sequence[DatabaseHost]
    error: str = ""  #: why the database cannot be used


def _open(config: Config) -> Database:
    return Database(database_settings(config, patience=0), application="oar:oar-server")


def load_servers(config: Config) -> tuple[list[ServerRow], int]:
    """Return the servers of the site, and the date. Raises DatabaseUnavailable."""
    database = _open(config)
    with database.snapshot() as tx:
        rows, now = tx.servers.all(), tx.now
    database.close()
    return _of_site(config, rows), now


def load_report(config: Config) -> Report:
    """Return the servers as the database shows them, else as the warden of this host read them last."""
    error = ""
    try:
        rows, date = load_servers(config)
    except DatabaseUnavailable as failure:
        rows, date = read_seen(config)
        error = explain_failure(str(failure), quotes=True)
    return Report(_of_site(config, rows), date, read_hosts(database_settings(config)), error)


def _of_site(config: Config, rows: Sequence[ServerRow]) -> list[ServerRow]:
    return [row for row in rows if row.server_name in config.server_hostnames]


def server_records(rows: Sequence[ServerRow]) -> list[dict[str, Any]]:
    """Return the records of the servers. Their configuration is compared with that of the active one."""
    active = next((row.config_digest for row in rows if row.role is ServerRole.ACTIVE), None)
    return [{**row._asdict(), "config_differs": row.config_digest != (active or row.config_digest)} for row in rows]


def format_report(report: Report, *, with_servers: bool) -> str:
    """Return the tables of the servers and of the PostgreSQL servers, if there are several of each."""
    parts = []
    if report.error:
        remark = f" The servers as this one saw them at {format_date(report.date)}:" if report.rows else ""
        parts.append(f"The database cannot be used: {report.error}.{remark}")
    if with_servers and report.rows:
        parts.append(format_servers(report.rows))
    if len(report.databases) > 1:
        parts.append(format_databases(report.databases))
    return "\n".join(parts)


def format_servers(rows: Sequence[ServerRow]) -> str:
    """Return the table of the servers.

    >>> print(format_servers([ServerRow("a", "a", 6666, ServerRole.ACTIVE, 0, 0, "3.3.0", "", 0)]).split()[0])
    SERVER
    """
    cells = [_HEADINGS]
    for record in server_records(rows):
        configuration = "different" if record["config_differs"] else "same"
        dates = format_date(record["since"]), format_date(record["last_seen"])
        cells.append((record["server_name"], str(record["role"]), *dates, record["version"], configuration))
    return _format_table(cells)


def format_databases(hosts: Sequence[DatabaseHost]) -> str:
    """Return the table of the PostgreSQL servers."""
    cells: list[tuple[str, ...]] = [_DATABASE_HEADINGS]
    for host in hosts:
        lag = "" if host.lag_seconds is None else f"{host.lag_seconds:.1f} s, {host.lag_bytes} bytes"
        cells.append((host.host, host.role, str(host.timeline or ""), host.error or lag))
    return _format_table(cells)


def _format_table(cells: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "\n".join(lines)


def format_json(report: Report, pid: int | None, role: str) -> str:
    """Return the status of this host and of all servers as JSON."""
    record = {
        "pid": pid,
        "role": role,
        "date": report.date,
        "database_error": report.error,
        "servers": server_records(report.rows),
        "databases": [host._asdict() for host in report.databases],
    }
    return json.dumps(record, indent=2)


def choose_server(rows: Sequence[ServerRow], now: int, wanted: str | None) -> str:
    """Return the standby that takes over: the wanted one, or the first one that runs.

    >>> row = ServerRow("srv2", "srv2", 6666, ServerRole.STANDBY, 0, 100, "3.3.0", "", 0)
    >>> choose_server([row], 110, None)
    'srv2'
    """
    running = [row for row in rows if row.last_seen > now - SEEN_SECONDS]
    standbys = [row.server_name for row in running if row.role is ServerRole.STANDBY]
    if wanted is None and not standbys:
        raise Stop("[ERROR] no standby server is running: see oar-server status")
    if wanted is not None and wanted not in standbys:
        known = f"running standby servers: {' '.join(standbys)}" if standbys else "no standby server is running"
        raise Stop(f"[ERROR] --to: {wanted} must be a running standby server; {known}")
    return wanted or standbys[0]


def hand_over(config: Config, user: User, wanted: str | None) -> None:
    """Have a standby become the active server, and wait until it is; the user is recorded.

    Raises DatabaseUnavailable.
    """
    rows, now = load_servers(config)
    name = choose_server(rows, now, wanted)
    database = _open(config)
    with database.begin() as tx:
        request_hand_over(tx, user, name, rows)
    _wake_active(config)
    begin = time.monotonic()
    while time.monotonic() < begin + HAND_OVER_SECONDS:
        with database.snapshot() as tx:
            if any(row.server_name == name and row.role is ServerRole.ACTIVE for row in tx.servers.all()):
                click.echo(f"{name} is the active server.")
                return
        time.sleep(_LOOK_SECONDS)
    raise Stop(f"[ERROR] {name} has not become active within {HAND_OVER_SECONDS} s: see oar-server status and its log")


def request_hand_over(tx: Transaction, user: User, name: str, rows: Sequence[ServerRow]) -> None:
    """Store which server is to become the active one, and record who has asked; ``rows``: the servers."""
    tx.servers.want(name)
    active = next((row.server_name for row in rows if row.role is ServerRole.ACTIVE), "")
    audit.record(tx, user, AuditAction.HAND_OVER, f"server {name}", Values(active, name))


def _wake_active(config: Config) -> None:
    """Let the warden on this host read the request at once; that of another host reads it within 2 s."""
    from oar.lib.bus import frames, sockets

    with sockets.connected(sockets.control_endpoint(config)) as dealer:
        dealer.send(frames.encode(frames.LookAgain()))
