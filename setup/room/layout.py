"""Facts of a room: names, addresses, directories, accounts. No system call that changes anything."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

NETWORK = ipaddress.ip_network("10.101.0.0/16")
SERVER = "server"
#: Host name of PostgreSQL, which has a network of its own inside the server.
DATABASE = "database"
NODE_SSH_PORT = 6667

#: Where an installation puts things; the same paths as a Debian package of the product.
OARDIR = Path("/usr/lib/oar")
CONF_DIR = Path("/etc/oar")
OAR_HOME = Path("/var/lib/oar")

#: Inside the room: its own files, on the memory file system of /run.
ROOM_DIR = Path("/run/room")

#: name: (uid, login shell). The users of a room are the same on all its machines, as with LDAP and NFS.
ACCOUNTS = {
    "oar": (6660, str(OARDIR / "oarsh_shell")),
    "alice": (6661, "/bin/bash"),
    "bob": (6662, "/bin/bash"),
    "carol": (6663, "/bin/bash"),
}
USERS = ("alice", "bob", "carol")

#: Directories in which each machine has its own files.
_OWN = ("/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/usr", "/var/lib/oar", "/var/log", "/var/run", "/var/tmp")

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class RoomError(Exception):
    """What a person is told in one line; the program ends with exit code 1."""


def state_root() -> Path:
    """The directory in which each running room of this user has its own."""
    if chosen := os.environ.get("OAR_ROOM_STATE"):
        return Path(chosen)
    if os.getuid() == 0:
        return Path("/var/lib/oar-room")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "oar-room"


def cache_root() -> Path:
    """Where installations of the product wait to be used again."""
    if chosen := os.environ.get("OAR_ROOM_CACHE"):
        return Path(chosen)
    if os.getuid() == 0:
        return Path("/var/cache/oar-room")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oar-room"


def check_name(name: str) -> str:
    """A room's name becomes part of paths."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,30}", name):
        raise RoomError(f"{name!r} is no name for a room: use at most 31 letters a-z, digits, '.', '_' and '-'")
    return name


def check_shown(path: str) -> str:
    """A directory that machines of a room shall see must not be where each machine has files of its own."""
    place = os.path.realpath(path)
    if not os.path.isdir(place):
        raise RoomError(f"{path}: no such directory")
    if any(f"{place}/".startswith(f"{top}/") for top in _OWN) or place == "/":
        raise RoomError(f"{place} cannot be shown: machines have {', '.join(_OWN)} of their own")
    return place


def home(name: str) -> str:
    """The home directory of an account of the room."""
    return str(OAR_HOME) if name == "oar" else f"/home/{name}"


def node_name(number: int) -> str:
    """The host name of the node with this number, from 1."""
    return f"node-{number}"


def address(number: int) -> str:
    """The address of a machine: the server is number 0."""
    return str(NETWORK[1 + number])


def database_address() -> str:
    """Return the address of PostgreSQL; no room has so many nodes that one of them gets it."""
    return str(NETWORK[-2])


def hardware_address(number: int) -> str:
    """The same after each reboot: its peers remember it."""
    return f"02:0a:00:00:{number // 256:02x}:{number % 256:02x}"


@dataclass(frozen=True)
class Room:
    """One room as it was asked for."""

    name: str
    nodes: int
    cores: int
    #: What is shown of the product inside: the top of an installation made by setup/install.
    installation: str = ""
    #: True where PostgreSQL may lose data at a crash of the computer: for tests.
    fast_database: bool = False
    #: True in a user namespace: no control groups, and of this computer's files only copies can be changed.
    is_rootless: bool = False
    #: Directories of this computer that all machines see, too.
    shown: Sequence[str] = ()
    #: The directory of all rooms, as the environment told at the start.
    state: str = field(default_factory=lambda: str(state_root()))

    @property
    def directory(self) -> Path:
        """On the computer, outside: control socket, logs, database."""
        return Path(self.state, self.name)

    @property
    def control(self) -> Path:
        """The keeper's socket."""
        return self.directory / "control"

    @property
    def logs(self) -> Path:
        """One directory per machine; it is that machine's /var/log."""
        return self.directory / "logs"

    @property
    def machines(self) -> dict[str, int]:
        """Host names and their numbers, the server first."""
        return {SERVER: 0, **{node_name(number): number for number in range(1, self.nodes + 1)}}

    def as_facts(self) -> dict[str, object]:
        """For status and for the keeper's file."""
        return asdict(self)
