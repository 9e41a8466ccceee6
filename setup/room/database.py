"""PostgreSQL of a room: a private database cluster in a private network, reachable only by the machines of the room.

It shares the files and processes of the server, but has a network namespace with its own address and link: the server
reaches it like a database on another machine.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from . import layout, machine

#: Data directories inside the room: on the disk of the host, and in memory.
_ON_DISK = layout.ROOM_DIR / "disk" / "postgresql"
_IN_MEMORY = Path("/run/postgresql-data")
LOG = "/var/log/postgresql.log"

#: The network namespace, and its interface at the bridge of the room.
_NETWORK = f"/run/netns/{layout.DATABASE}"
_LINK = "vdatabase"
_HARDWARE = "02:0a:00:00:ff:fe"

_SAFE = """\
shared_buffers = 128MB
"""
#: Commits are still written before they are acknowledged: a killed PostgreSQL loses nothing, a crashed host would.
_FAST = """\
fsync = off
full_page_writes = off
shared_buffers = 64MB
"""
_COMMON = f"""\
listen_addresses = 'localhost,{layout.database_address()}'
unix_socket_directories = '/run/postgresql,/tmp'
max_connections = 300
idle_in_transaction_session_timeout = 60s
logging_collector = off
log_line_prefix = '%m [%p] %a '
"""
_ACCESS = f"""\
local all postgres peer map=room
local all all scram-sha-256
host oar oar,oar_ro 127.0.0.1/32 scram-sha-256
host oar oar,oar_ro {layout.NETWORK} scram-sha-256
"""
#: Administrators of the database: postgres and root of the host, also from outside of the room.
_NAMES = """\
room postgres postgres
room root postgres
"""


def binaries() -> Path:
    """Return the directory of initdb, pg_ctl and postgres on the host. Raises RoomError."""
    candidates = [Path(os.environ["OAR_TEST_PG_BIN"])] if os.environ.get("OAR_TEST_PG_BIN") else []
    candidates += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: _version(path.parent.name), reverse=True
    )
    if found := shutil.which("pg_ctl", path=layout.PATH):
        candidates.append(Path(found).resolve().parent)
    for candidate in candidates:
        if (candidate / "initdb").exists():
            return candidate
    raise layout.RoomError("PostgreSQL is missing: install the package postgresql")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def directory(*, fast: bool) -> Path:
    """Return the data directory inside the room."""
    return _IN_MEMORY if fast else _ON_DISK


def create_script(*, fast: bool) -> str:
    """Return shell text for the account postgres: create the data directory and the configuration."""
    data = directory(fast=fast)
    settings = _COMMON + (_FAST if fast else _SAFE)
    return f"""\
set -e
{binaries()}/initdb -D {data} -U postgres -A trust --no-sync -E UTF8 --locale=C.UTF-8 >/dev/null
cat >> {data}/postgresql.conf <<'END'
{settings}END
cat > {data}/pg_hba.conf <<'END'
{_ACCESS}END
cat > {data}/pg_ident.conf <<'END'
{_NAMES}END
"""


def neighbour() -> str:
    """Return shell text for root on the server: a permanent neighbour entry for PostgreSQL."""
    return f"ip neigh replace {layout.database_address()} lladdr {_HARDWARE} dev br0 nud permanent"


def network_script() -> str:
    """Return shell text for root: create the network of PostgreSQL and connect it.

    Both ends have permanent neighbour entries, so that a cut network looks like silence, not like an unreachable host.
    """
    name, server = layout.DATABASE, layout.hardware_address(0)
    return f"""\
set -e
ip netns add {name}
ip link add {_LINK} type veth peer name eth0 address {_HARDWARE} netns {name}
ip link set {_LINK} master br0 up
ip -n {name} link set lo up
ip -n {name} addr add {layout.database_address()}/16 dev eth0
ip -n {name} link set eth0 up
ip -n {name} neigh replace {layout.address(0)} lladdr {server} dev eth0 nud permanent
{neighbour()}
"""


def control_command(action: str, *, fast: bool) -> str:
    """Return shell text for root: an action on PostgreSQL (``docs/cluster-tool.rst``, "Failures")."""
    as_postgres = f"nsenter --net={_NETWORK} setpriv --reuid=postgres --regid=postgres --init-groups"
    base = f"cd / && {as_postgres} {binaries()}/pg_ctl -D {directory(fast=fast)} -s -w -t 60"
    commands = {
        "start": f"ip link set {_LINK} up && {base} -l {LOG} start </dev/null >/dev/null",
        "stop": f"{base} -m fast stop",
        "kill": f"head -n 1 {directory(fast=fast)}/postmaster.pid | xargs kill -KILL",
        "cut": f"ip link set {_LINK} down",
        "heal": f"ip link set {_LINK} up",
        "power-off": (
            f"ip link set {_LINK} down; ip netns pids {layout.DATABASE} | xargs -r kill -KILL;"
            f" {machine.destroy_sockets(_NETWORK)}"
        ),
    }
    return commands[action]
