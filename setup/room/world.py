"""What the machines of a room see: their files, accounts, keys and mounts. Everything here runs inside, as root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from . import cgroups, kernel, layout
from .layout import ACCOUNTS, CONF_DIR, OAR_HOME, OARDIR, ROOM_DIR, Room

_NODE_CONFIGURATION = """\
# A node reads only what concerns it; nothing of the database.
SERVER_HOSTNAME="server"
OAR_RUNTIME_DIRECTORY="/var/lib/oar"
CPUSET_PATH="/oar"
"""


def build_server(room: Room) -> None:
    """Turn the new namespaces of the first machine into the room's server; nodes begin as copies of it."""
    kernel.make_mounts_private()
    kernel.set_host_name(layout.SERVER)
    log_directory = os.open(room.logs / layout.SERVER, os.O_PATH)
    all_logs = os.open(room.logs, os.O_PATH)
    disk = os.open(room.directory / "disk", os.O_PATH)
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.tmpfs("/run")
    for name in ("room", "room/logs", "room/disk", "sshd", "lock"):
        Path("/run", name).mkdir(mode=0o755)
    for top in ("etc", "var", "usr"):
        _overlay(room, top)
    _own_memory_file_systems()
    kernel.tmpfs("/home")
    kernel.tmpfs("/root", "700")
    kernel.bind(f"/proc/self/fd/{all_logs}", ROOM_DIR / "logs")
    kernel.bind(f"/proc/self/fd/{disk}", ROOM_DIR / "disk")
    kernel.bind(f"/proc/self/fd/{log_directory}", "/var/log")
    cgroups.mount_view()
    _write_accounts()
    _write_host_tables(room)
    _make_homes()
    _make_server_home(room)


def build_node(name: str, log_directory: str) -> None:
    """Turn a copy of the server's namespaces into a node of its own; /home and the accounts stay shared."""
    kernel.make_mounts_private()
    kernel.set_host_name(name)
    own = ROOM_DIR / "nodes" / name
    logs = os.open(log_directory, os.O_PATH)
    configuration = os.open(own / "etc", os.O_PATH)
    keys = os.open(ROOM_DIR / "keys", os.O_PATH)
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.tmpfs("/run")
    Path("/run/sshd").mkdir(mode=0o755)
    _own_memory_file_systems()
    kernel.bind(f"/proc/self/fd/{logs}", "/var/log")
    kernel.bind(f"/proc/self/fd/{configuration}", CONF_DIR)
    kernel.tmpfs(OAR_HOME)
    cgroups.mount_view()
    _make_oar_ssh(OAR_HOME, Path(f"/proc/self/fd/{keys}"))
    _own(OAR_HOME, "oar")


def _overlay(room: Room, top: str) -> None:
    """Lay the product's installation over one directory of this computer, with changes kept in memory."""
    layer = ROOM_DIR / "changes" / top
    for name in ("upper", "work"):
        (layer / name).mkdir(parents=True)
    lower = [f"/{top}"]
    if room.installation and (installed := Path(room.installation, top)).is_dir():
        lower.insert(0, str(installed))
    options = f"lowerdir={':'.join(lower)},upperdir={layer / 'upper'},workdir={layer / 'work'}"
    kernel.mount("overlay", f"/{top}", "overlay", options=options)


def _own_memory_file_systems() -> None:
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        kernel.tmpfs(place, "1777")


def _write_accounts() -> None:
    """Add the room's accounts to those of this computer, in place of any with the same name or number."""
    names = {*ACCOUNTS, "oarsh"}
    numbers = {str(uid) for uid, _ in ACCOUNTS.values()} | {"6669"}
    people = ",".join(layout.USERS)
    passwd = [f"{name}:x:{uid}:{uid}::{_home(name)}:{_shell(shell)}" for name, (uid, shell) in ACCOUNTS.items()]
    group = [f"{name}:x:{uid}:" for name, (uid, _) in ACCOUNTS.items()] + [f"oarsh:x:6669:{people}"]
    shadow = [f"{name}:*:19000:0:99999:7:::" for name in ACCOUNTS]  # '*', not '!': sshd takes '!' for a locked account
    for system, number in (("sshd", 6670), ("postgres", 6671)):
        if not _has_line("/etc/passwd", system):
            passwd.append(f"{system}:x:{number}:{number}::/run/{system}:/usr/sbin/nologin")
            group.append(f"{system}:x:{number}:")
            shadow.append(f"{system}:*:19000:0:99999:7:::")
    _add_lines("/etc/passwd", passwd, names, numbers, 0o644)
    _add_lines("/etc/group", group, names, numbers, 0o644)
    _add_lines("/etc/shadow", shadow, names, set(), 0o640)


def _add_lines(path: str, lines: list[str], names: set[str], numbers: set[str], mode: int) -> None:
    kept = [line for line in _lines(path) if not _names_account(line, names, numbers)]
    Path(path).write_text("\n".join([*kept, *lines]) + "\n")
    Path(path).chmod(mode)


def _names_account(line: str, names: set[str], numbers: set[str]) -> bool:
    fields = line.split(":")
    return fields[0] in names or (len(fields) > 2 and fields[2] in numbers)


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def _has_line(path: str, name: str) -> bool:
    return any(line.startswith(f"{name}:") for line in _lines(path))


def _home(name: str) -> str:
    return str(OAR_HOME) if name == "oar" else f"/home/{name}"


def _shell(shell: str) -> str:
    return shell if Path(shell).exists() else "/bin/sh"


def _write_host_tables(room: Room) -> None:
    hosts = ["127.0.0.1 localhost"] + [f"{layout.address(number)} {name}" for name, number in room.machines.items()]
    _replace("/etc/hosts", "\n".join(hosts) + "\n")
    _replace("/etc/resolv.conf", "")
    _replace("/etc/hostname", layout.SERVER + "\n")
    switch = [line for line in _lines("/etc/nsswitch.conf") if not line.startswith("hosts:")]
    _replace("/etc/nsswitch.conf", "\n".join([*switch, "hosts: files"]) + "\n")


def _replace(path: str, text: str) -> None:
    """Write a file anew; it may be a link that leads nowhere in here."""
    Path(path).unlink(missing_ok=True)
    Path(path).write_text(text)


def _make_homes() -> None:
    for name in layout.USERS:
        home = Path("/home", name)
        home.mkdir(mode=0o755)
        _own(home, name)


def _make_server_home(room: Room) -> None:
    shutil.rmtree(OAR_HOME, ignore_errors=True)
    OAR_HOME.mkdir(mode=0o755, parents=True)
    for path, owner in (("/run/oar", "oar"), ("/run/postgresql", "postgres")):
        Path(path).mkdir(mode=0o755)
        _own(Path(path), owner)
    keys = ROOM_DIR / "keys"
    keys.mkdir(mode=0o700)
    hosts = {name: _make_etc(name) for name in room.machines}
    wanted = [(keys / "id_ed25519", "oar@server"), (keys / "oarsh_key", "oarsh")]
    wanted += [(etc / "oar_ssh_host_ed25519_key", name) for name, etc in hosts.items()]
    _make_keys(wanted)
    public = {name: (etc / "oar_ssh_host_ed25519_key.pub").read_text().split() for name, etc in hosts.items()}
    (keys / "known_hosts").write_text(_known_hosts(room, public))
    for name in ("id_ed25519", "id_ed25519.pub"):
        (OAR_HOME / ".ssh").mkdir(mode=0o700, exist_ok=True)
        shutil.copy(keys / name, OAR_HOME / ".ssh" / name)
    _make_oar_ssh(OAR_HOME, keys)
    _own(OAR_HOME, "oar")


def _make_etc(name: str) -> Path:
    """The directory that is /etc/oar on a machine: on nodes a copy of what is installed for them."""
    if name == layout.SERVER:
        CONF_DIR.mkdir(exist_ok=True)
        return CONF_DIR
    etc = ROOM_DIR / "nodes" / name / "etc"
    etc.mkdir(parents=True)
    for entry in ("sshd_config", "check.d", "oar-node-service", "prologue", "epilogue"):
        source = CONF_DIR / entry
        if source.is_dir():
            shutil.copytree(source, etc / entry)
        elif source.exists():
            shutil.copy(source, etc / entry)
    (etc / "oar.conf").write_text(_NODE_CONFIGURATION)
    return etc


def _make_keys(wanted: Iterable[tuple[Path, str]]) -> None:
    """ssh-keygen for each, at the same time."""
    base = ["ssh-keygen", "-q", "-t", "ed25519", "-N", ""]
    commands = [[*base, "-C", comment, "-f", str(path)] for path, comment in wanted]
    running = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for command in commands]
    if any(process.wait() for process in running):
        raise layout.RoomError("ssh-keygen failed: is the package openssh-client installed?")


def _known_hosts(room: Room, public: dict[str, list[str]]) -> str:
    port = layout.NODE_SSH_PORT
    names = {name: f"[{name}]:{port},[{layout.address(number)}]:{port}" for name, number in room.machines.items()}
    return "".join(f"{names[name]} {' '.join(public[name][:2])}\n" for name in room.machines)


def _make_oar_ssh(home: Path, keys: Path) -> None:
    """The .ssh of the account oar: the server key opens everything, the oarsh key users' sessions only."""
    ssh = home / ".ssh"
    ssh.mkdir(mode=0o700, exist_ok=True)
    server_key, oarsh_key = ((keys / name).read_text().strip() for name in ("id_ed25519.pub", "oarsh_key.pub"))
    session = f'command="{OARDIR}/oarsh_shell --oarsh",environment="OAR_KEY=0",restrict,pty,X11-forwarding {oarsh_key}'
    (ssh / "authorized_keys").write_text(f'environment="OAR_KEY=1" {server_key}\n{session}\n')
    for name in ("known_hosts", "oarsh_key", "oarsh_key.pub"):
        shutil.copy(keys / name, ssh / name)
    for path in ssh.iterdir():
        path.chmod(0o600)


def _own(top: Path, name: str) -> None:
    """Give a directory and all in it to an account (read from our own table: the C library may have cached another)."""
    uid, gid = next((int(f[2]), int(f[3])) for f in (line.split(":") for line in _lines("/etc/passwd")) if f[0] == name)
    for path in (top, *top.rglob("*")):
        os.lchown(path, uid, gid)
