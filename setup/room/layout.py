"""Names, addresses, directories and accounts of a test cluster ("room"). Nothing here changes the system."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

NETWORK = ipaddress.ip_network("10.101.0.0/16")
SERVER = "server"
#: Host names of the servers of OAR. The first one is the machine that contains the network and PostgreSQL.
SERVERS = (SERVER, "server2")
#: Host name of PostgreSQL, which has a separate network namespace inside the server.
DATABASE = "database"
#: Host names of the PostgreSQL servers: the first primary and its replica.
DATABASES = (DATABASE, "database2")
#: Host name of the third member of etcd (`--patroni`); the others are on the hosts of PostgreSQL.
WITNESS = "witness"
#: Number of the second server: beyond those of the nodes.
_SECOND_SERVER = 60_000
NODE_SSH_PORT = 6667

#: Directories of an installation; the same paths as in the Debian packages.
OARDIR = Path("/usr/lib/oar")
CONF_DIR = Path("/etc/oar")
OAR_HOME = Path("/var/lib/oar")

#: Directory of the room's own files inside it, on the memory file system of /run.
ROOM_DIR = Path("/run/room")

#: name: (uid, login shell). The users are the same on all machines of a room, as with LDAP and NFS.
ACCOUNTS = {
    "oar": (6660, str(OARDIR / "oarsh_shell")),
    "alice": (6661, "/bin/bash"),
    "bob": (6662, "/bin/bash"),
    "carol": (6663, "/bin/bash"),
}
USERS = ("alice", "bob", "carol")

#: Directories with separate files on each machine.
_OWN = ("/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/usr", "/var/lib/oar", "/var/log", "/var/run", "/var/tmp")

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class RoomError(Exception):
    """An error that the program reports in one line before it exits with code 1."""


def state_root() -> Path:
    """Return the directory that contains one directory for each running room of this user."""
    if chosen := os.environ.get("OAR_ROOM_STATE"):
        return Path(chosen)
    if os.getuid() == 0:
        return Path("/var/lib/oar-room")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "oar-room"


def cache_root() -> Path:
    """Return the directory of cached installations of the product."""
    if chosen := os.environ.get("OAR_ROOM_CACHE"):
        return Path(chosen)
    if os.getuid() == 0:
        return Path("/var/cache/oar-room")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oar-room"


def check_name(name: str) -> str:
    """Check that the name of a room can be part of paths. Raises RoomError."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,30}", name):
        raise RoomError(f"{name!r} is no name for a room: use at most 31 letters a-z, digits, '.', '_' and '-'")
    return name


def check_shown(path: str) -> str:
    """Check a directory that the machines shall see: it must not be in a private directory of the machines."""
    place = os.path.realpath(path)
    if not os.path.isdir(place):
        raise RoomError(f"{path}: no such directory")
    if any(f"{place}/".startswith(f"{top}/") for top in _OWN) or place == "/":
        raise RoomError(f"{place} cannot be shown: machines have {', '.join(_OWN)} of their own")
    return place


def home(name: str) -> str:
    """Return the home directory of an account of the room."""
    return str(OAR_HOME) if name == "oar" else f"/home/{name}"


def node_name(number: int) -> str:
    """Return the host name of the node with a number, from 1."""
    return f"node-{number}"


def address(number: int) -> str:
    """Return the address of a machine; the server is number 0."""
    return str(NETWORK[1 + number])


def database_number(name: str) -> int:
    """Return the number of a host of PostgreSQL or etcd."""
    return (*DATABASES, WITNESS).index(name)


def database_address(name: str = DATABASE) -> str:
    """Return the address of a host of PostgreSQL or etcd; it is beyond the addresses of the nodes."""
    return str(NETWORK[-2 - database_number(name)])


def hardware_address(number: int) -> str:
    """Return the hardware address of a machine; it survives reboots because peers cache it."""
    return f"02:0a:00:00:{number // 256:02x}:{number % 256:02x}"


@dataclass(frozen=True)
class Room:
    """The parameters of a room."""

    name: str
    nodes: int
    cores: int
    #: Root directory of the installation (by setup/install) that the machines see.
    installation: str = ""
    #: Whether PostgreSQL may lose data at a crash of the host: for tests.
    fast_database: bool = False
    #: Whether the room runs in a user namespace: no control groups, and only copies of the host's files can change.
    is_rootless: bool = False
    #: Directories of the host that all machines see.
    shown: Sequence[str] = ()
    #: Number of servers of OAR, and of PostgreSQL servers: a primary and a replica.
    servers: int = 1
    databases: int = 1
    #: Whether a commit is acknowledged before the replica has it.
    is_asynchronous: bool = False
    #: Whether Patroni chooses the primary.
    has_patroni: bool = False
    #: Directory of all rooms, from the environment at the start.
    state: str = field(default_factory=lambda: str(state_root()))

    @property
    def directory(self) -> Path:
        """Directory of the room on the host: control socket, logs, database."""
        return Path(self.state, self.name)

    @property
    def control(self) -> Path:
        """Path of the keeper's socket."""
        return self.directory / "control"

    @property
    def logs(self) -> Path:
        """Directory with one directory per machine, which is that machine's /var/log."""
        return self.directory / "logs"

    @property
    def server_names(self) -> tuple[str, ...]:
        """Host names of the servers of OAR."""
        return SERVERS[: self.servers]

    @property
    def database_names(self) -> tuple[str, ...]:
        """Host names of the PostgreSQL servers."""
        return DATABASES[: self.databases]

    @property
    def etcd_names(self) -> tuple[str, ...]:
        """Host names of the members of etcd."""
        return (*self.database_names, WITNESS) if self.has_patroni else ()

    @property
    def server_numbers(self) -> dict[str, int]:
        """Host names and numbers of the servers of OAR."""
        return dict(zip(self.server_names, (0, _SECOND_SERVER), strict=False))

    @property
    def node_names(self) -> tuple[str, ...]:
        """Host names of the nodes."""
        return tuple(node_name(number) for number in range(1, self.nodes + 1))

    @property
    def machines(self) -> dict[str, int]:
        """Host names and numbers of the machines, the servers first."""
        return self.server_numbers | {node_name(number): number for number in range(1, self.nodes + 1)}

    def as_facts(self) -> dict[str, object]:
        """Return the record for the status and for the keeper's file."""
        return asdict(self)
