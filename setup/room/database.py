"""PostgreSQL of a room: a private database cluster in a private network, reachable only by the machines of the room.

It shares the files and processes of the server, but has a network namespace with its own address and link: the server
reaches it like a database on another machine. A second one, with its own network namespace, is a streaming replica.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from . import layout, machine
from .layout import Room

_SAFE = """\
shared_buffers = 128MB
"""
#: Commits are still written before they are acknowledged: a killed PostgreSQL loses nothing, a crashed host would.
_FAST = """\
fsync = off
full_page_writes = off
shared_buffers = 64MB
"""
_COMMON = """\
max_connections = 300
idle_in_transaction_session_timeout = 60s
logging_collector = off
log_line_prefix = '%m [%p] %a '
"""
#: What a new primary gets: a replica that is away for a while continues where it was.
_KEPT_LOG = "256MB"
ACCESS = f"""\
local all postgres peer map=room
local all all scram-sha-256
host oar oar,oar_ro 127.0.0.1/32 scram-sha-256
host oar oar,oar_ro {layout.NETWORK} scram-sha-256
"""
#: Administrators of the database: postgres and root of the host, also from outside of the room.
NAMES = """\
room postgres postgres
room root postgres
"""


class Server(NamedTuple):
    """A PostgreSQL server and its host."""

    name: str
    #: Whether its data is in memory.
    is_fast: bool

    @property
    def address(self) -> str:
        return layout.database_address(self.name)

    @property
    def hardware(self) -> str:
        """Hardware address."""
        return f"02:0a:00:00:ff:{0xFE - layout.database_number(self.name):02x}"

    @property
    def network(self) -> str:
        """Path of its network namespace."""
        return f"/run/netns/{self.name}"

    @property
    def link(self) -> str:
        """Interface of the room's bridge to its host."""
        return f"v{self.name}"

    @property
    def _suffix(self) -> str:
        return self.name.removeprefix(layout.DATABASE)

    @property
    def directory(self) -> str:
        """Data directory: on the disk of the host, or in memory."""
        parent = "/run/postgresql-data" if self.is_fast else f"{layout.ROOM_DIR}/disk/postgresql"
        return parent + self._suffix

    @property
    def sockets(self) -> tuple[str, ...]:
        """Directories of its sockets."""
        return (f"/run/postgresql{self._suffix}", *(["/tmp"] if self.name == layout.DATABASE else []))

    @property
    def log(self) -> str:
        return f"/var/log/postgresql{self._suffix}.log"

    @property
    def configuration(self) -> str:
        """Lines of postgresql.conf that name its address."""
        return f"listen_addresses = 'localhost,{self.address}'\n{self.sockets_line}"

    @property
    def sockets_line(self) -> str:
        """Line of postgresql.conf that names the directories of its sockets."""
        return f"unix_socket_directories = '{','.join(self.sockets)}'\n"


def servers(room: Room) -> list[Server]:
    """Return the PostgreSQL servers of a room."""
    return [Server(name, room.fast_database) for name in room.database_names]


def server(room: Room, name: str) -> Server:
    """Return a PostgreSQL server. Raises RoomError."""
    if name not in room.database_names:
        raise layout.RoomError(
            f"no database {name!r} in room {room.name!r}: it has {', '.join(room.database_names)}; a second one needs"
            " `start --databases 2`"
        )
    return Server(name, room.fast_database)


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


def prepare_script(target: Server) -> str:
    """Return shell text for root: directories and log of a PostgreSQL server."""
    directories = " ".join([target.directory, target.sockets[0]])
    return f"""\
set -e
install -d -o postgres -g postgres {directories}
chmod 700 {target.directory}
install -o postgres -m 640 /dev/null {target.log}
"""


def parameters(target: Server, room: Room) -> str:
    """Return lines of postgresql.conf: the parameters without the address."""
    lines = _COMMON + (_FAST if target.is_fast else _SAFE)
    if room.servers > 1:  # tests compare the order of commits
        lines += "track_commit_timestamp = on\n"
    return lines


def create_script(target: Server, room: Room) -> str:
    """Return shell text for the account postgres: create the data directory and the configuration."""
    data = target.directory
    settings = target.configuration + parameters(target, room)
    replicas = "".join(f"host replication postgres {entry.address}/32 trust\n" for entry in servers(room)[1:])
    if replicas:
        replicas += f"host replication postgres {target.address}/32 trust\n"
    return f"""\
set -e
{binaries()}/initdb -D {data} -U postgres -A trust --no-sync -E UTF8 --locale=C.UTF-8 >/dev/null
cat >> {data}/postgresql.conf <<'END'
{settings}END
cat > {data}/pg_hba.conf <<'END'
{ACCESS}{replicas}END
cat > {data}/pg_ident.conf <<'END'
{NAMES}END
"""


def follow_script(target: Server, primary: Server, *, is_asynchronous: bool) -> str:
    """Return shell text for root: make a PostgreSQL server a replica of another one, with a copy of its data.

    Unless `is_asynchronous`, the primary acknowledges a commit when the replica has written it to its disk.
    """
    data = target.directory
    base_backup = f"{binaries()}/pg_basebackup -h {primary.name} -U postgres -D {data} -R -c fast --no-sync"
    alter = f"{as_postgres(primary)} {binaries()}/psql -qX -h {primary.sockets[0]} postgres"
    waits_for = "" if is_asynchronous else "*"
    return f"""\
set -e
cd /
ip link set {target.link} up
[ ! -e {data}/postmaster.pid ] || {_control(target)} -m immediate stop || true
find {data} -mindepth 1 -delete
{alter} -c "ALTER SYSTEM SET wal_keep_size = '{_KEPT_LOG}'" -c "ALTER SYSTEM RESET synchronous_standby_names"
{as_postgres(target)} {base_backup}
cat >> {data}/postgresql.conf <<'END'
{target.configuration}END
{_start(target)}
{alter} -c "ALTER SYSTEM SET synchronous_standby_names = '{waits_for}'" -c "SELECT pg_reload_conf()" >/dev/null
"""


def neighbours(room: Room, device: str) -> str:
    """Return shell text for root on a server: permanent neighbour entries for PostgreSQL."""
    return " && ".join(
        f"ip neigh replace {entry.address} lladdr {entry.hardware} dev {device} nud permanent"
        for entry in servers(room)
    )


def network_script(target: Server, room: Room) -> str:
    """Return shell text for root: create the network of a host of PostgreSQL or etcd and connect it.

    Both ends have permanent neighbour entries, so that a cut network looks like silence, not like an unreachable host.
    """
    name = target.name
    peers = [(layout.address(number), layout.hardware_address(number)) for number in room.server_numbers.values()]
    hosts = [Server(name, target.is_fast) for name in room.etcd_names or room.database_names]
    peers += [(entry.address, entry.hardware) for entry in hosts if entry != target]
    entries = "\n".join(
        f"ip -n {name} neigh replace {address} lladdr {hardware} dev eth0 nud permanent" for address, hardware in peers
    )
    return f"""\
set -e
ip netns add {name}
ip link add {target.link} type veth peer name eth0 address {target.hardware} netns {name}
ip link set {target.link} master br0 up
ip -n {name} link set lo up
ip -n {name} addr add {target.address}/16 dev eth0
ip -n {name} link set eth0 up
{entries}
"""


def as_postgres(target: Server) -> str:
    """Return the words that run a command on the host as postgres."""
    return f"nsenter --net={target.network} setpriv --reuid=postgres --regid=postgres --init-groups"


def _control(target: Server) -> str:
    return f"{as_postgres(target)} {binaries()}/pg_ctl -D {target.directory} -s -w -t 60"


def _start(target: Server) -> str:
    return f"ip link set {target.link} up && {_control(target)} -l {target.log} start </dev/null >/dev/null"


def control_command(target: Server, action: str) -> str:
    """Return shell text for root: an action on PostgreSQL (``docs/cluster-tool.rst``, "Failures")."""
    commands = {
        "start": _start(target),
        "stop": f"{_control(target)} -m fast stop",
        "kill": f"head -n 1 {target.directory}/postmaster.pid | xargs kill -KILL",
        "promote": f"{_control(target)} promote",
        "cut": f"ip link set {target.link} down",
        "heal": f"ip link set {target.link} up",
        "power-off": (
            f"ip link set {target.link} down; ip netns pids {target.name} | xargs -r kill -KILL;"
            f" {machine.destroy_sockets(target.network)}"
        ),
    }
    return f"cd / && {commands[action]}"
