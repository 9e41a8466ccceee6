"""PostgreSQL of a room: its own cluster of files and its own network, reached by the machines of the room only.

It sees the files and processes of the server, but has a network namespace with an address and a cable of its own: the
server reaches it as it reaches a database on another machine.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from . import layout, machine

#: Inside the room. The first is on this computer's disk, the second in memory.
_ON_DISK = layout.ROOM_DIR / "disk" / "postgresql"
_IN_MEMORY = Path("/run/postgresql-data")
LOG = "/var/log/postgresql.log"

#: The network namespace, and the end of its cable at the bridge of the room.
_NETWORK = f"/run/netns/{layout.DATABASE}"
_LINK = "vdatabase"
_HARDWARE = "02:0a:00:00:ff:fe"

_SAFE = """\
shared_buffers = 128MB
"""
#: Commits are still written before they are answered: a killed PostgreSQL loses nothing, a crashed computer would.
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
#: Who may be its administrator: whoever is postgres or root on this computer, also from outside of the room.
_NAMES = """\
room postgres postgres
room root postgres
"""


def binaries() -> Path:
    """The directory of initdb, pg_ctl and postgres on this computer."""
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
    """Where the data are, inside the room."""
    return _IN_MEMORY if fast else _ON_DISK


def create_script(*, fast: bool) -> str:
    """Shell text for the account postgres: make the files and the configuration."""
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
    """Return shell text for root on the server: remember the hardware address of PostgreSQL for ever."""
    return f"ip neigh replace {layout.database_address()} lladdr {_HARDWARE} dev br0 nud permanent"


def network_script() -> str:
    """Return shell text for root: make the network of PostgreSQL and plug it in.

    Both ends know each other's hardware address for ever, so that a cut cable does not tell them that it is cut.
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
    """Return shell text for root: what happens to PostgreSQL (``docs/cluster-tool.rst``, "Failures")."""
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
