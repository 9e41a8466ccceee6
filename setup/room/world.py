"""Files, accounts, keys and mounts of the machines of a room. Everything here runs inside, as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from . import accounts, cgroups, kernel, layout
from .layout import CONF_DIR, OAR_HOME, OARDIR, ROOM_DIR, Room

_NODE_CONFIGURATION = """\
# A node reads only what concerns it; nothing of the database.
SERVER_HOSTNAME="{servers}"
OAR_RUNTIME_DIRECTORY="/var/lib/oar"
CPUSET_PATH="/oar"
"""


_SUDOERS = """\
Defaults env_reset, secure_path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
root ALL=(ALL:ALL) ALL
@includedir /etc/sudoers.d
"""

#: Without control groups oarsh takes its job from the environment; it still checks the owner of the job.
_ROOTLESS_CONFIGURATION = """\
CGROUP_MANAGER="none"
GET_CURRENT_CPUSET_CMD="/etc/oar/current_job"
"""
_CURRENT_JOB = """\
#!/bin/sh
echo "/oar/${SUDO_USER}_$OAR_JOB_ID"
"""


def build_server(room: Room) -> None:
    """Set up the namespaces of the first machine as the room's server; nodes start as copies of it."""
    kernel.make_mounts_private()
    kernel.set_host_name(layout.SERVER)
    log_directory = os.open(room.logs / layout.SERVER, os.O_PATH)
    all_logs = os.open(room.logs, os.O_PATH)
    disk = os.open(room.directory / "disk", os.O_PATH)
    shown = {path: os.open(path, os.O_PATH) for path in room.shown}
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.tmpfs("/run")
    for name in ("room", "room/logs", "room/disk", "sshd", "lock"):
        Path("/run", name).mkdir(mode=0o755)
    _prepare_changes(room)
    for top in ("etc", "usr"):
        _overlay(room, top)
    _empty_var()
    if room.is_rootless:
        kernel.bind(_changes("sudoers.d"), "/etc/sudoers.d")
    _own_memory_file_systems()
    kernel.tmpfs("/home")
    kernel.tmpfs("/root", "700")
    kernel.bind(f"/proc/self/fd/{all_logs}", ROOM_DIR / "logs")
    kernel.bind(f"/proc/self/fd/{disk}", ROOM_DIR / "disk")
    kernel.bind(f"/proc/self/fd/{log_directory}", "/var/log")
    cgroups.mount_view()
    _make_homes()
    for path, directory in shown.items():
        Path(path).mkdir(parents=True, exist_ok=True)
        kernel.bind_read_only(f"/proc/self/fd/{directory}", path)
    _make_server_home(room)


def build_copy(name: str, log_directory: str) -> None:
    """Set up a copy of the server's namespaces as a node or as another server; /home and the accounts stay shared.

    The servers also share /etc/oar, with the host key, and the SSH key of the account oar.
    """
    kernel.make_mounts_private()
    kernel.set_host_name(name)
    own = ROOM_DIR / "nodes" / name
    logs = os.open(log_directory, os.O_PATH)
    configuration = os.open(CONF_DIR if name in layout.SERVERS else own / "etc", os.O_PATH)
    disk = os.open(_disk(own), os.O_PATH)
    keys = os.open(ROOM_DIR / "keys", os.O_PATH)
    (own / "boot_id").write_text(f"{uuid.uuid4()}\n")
    boot = os.open(own / "boot_id", os.O_PATH)
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.bind(f"/proc/self/fd/{boot}", "/proc/sys/kernel/random/boot_id")
    kernel.tmpfs("/run")
    Path("/run/sshd").mkdir(mode=0o755)
    _own_memory_file_systems()
    kernel.bind(f"/proc/self/fd/{logs}", "/var/log")
    kernel.bind(f"/proc/self/fd/{configuration}", CONF_DIR)
    kernel.bind(f"/proc/self/fd/{disk}", OAR_HOME)
    cgroups.mount_view()
    if name in layout.SERVERS:
        _make_run_directories("oar")
    if not (OAR_HOME / ".ssh").exists():
        _make_oar_ssh(OAR_HOME, Path(f"/proc/self/fd/{keys}"), is_server=name in layout.SERVERS)
        _own(OAR_HOME, "oar")


def _disk(own: Path) -> Path:
    """Set up the persistent directory of a node: its /var/lib/oar."""
    disk = own / "disk"
    disk.mkdir(exist_ok=True)
    return disk


def _changes(top: str) -> Path:
    """Return the directory, in memory, of the room's changes to a directory of the host."""
    return ROOM_DIR / "changes" / top / "upper"


def _prepare_changes(room: Room) -> None:
    """Write the room's own files before the overlay: a rootless room cannot change files of root."""
    for top in ("etc", "usr"):
        _changes(top).mkdir(parents=True)
        (_changes(top).parent / "work").mkdir()
    accounts.write_tables(_changes("etc"))
    accounts.write_host_tables(_changes("etc"), room)
    if room.is_rootless:
        _bring_sudo(room)


def _bring_sudo(room: Room) -> None:
    """Copy sudo so that the room's root owns it: only such a program may change the user in the room."""
    usr, etc = _changes("usr"), _changes("etc")
    for source in (Path("/usr/bin/sudo"), *Path("/usr/libexec/sudo").glob("*")):
        target = usr / source.relative_to("/usr")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o4755 if source.name == "sudo" else 0o644)
    (etc / "sudoers").write_text(_SUDOERS)
    (etc / "sudo.conf").write_text("")
    rules = _changes("sudoers.d")
    rules.mkdir(parents=True)
    for file in Path(room.installation, "etc/sudoers.d").iterdir():
        shutil.copyfile(file, rules / file.name)
    for path in (etc / "sudoers", *rules.iterdir()):
        path.chmod(0o440)


def _overlay(room: Room, top: str) -> None:
    """Overlay one directory of the host with the product's installation and the room's changes."""
    upper = _changes(top)
    options = f"lowerdir={room.installation}/{top}:/{top},upperdir={upper},workdir={upper.parent / 'work'}"
    kernel.mount("overlay", f"/{top}", "overlay", options=options + (",userxattr" if room.is_rootless else ""))


def _empty_var() -> None:
    """Set up the room's private /var."""
    kernel.tmpfs("/var")
    for name in ("cache", "lib/oar", "lib/postgresql", "log", "mail", "spool", "tmp"):
        Path("/var", name).mkdir(parents=True)
    for name, target in (("run", "/run"), ("lock", "/run/lock")):
        Path("/var", name).symlink_to(target)


def _own_memory_file_systems() -> None:
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        kernel.tmpfs(place, "1777")


def _make_homes() -> None:
    for name in layout.USERS:
        home = Path("/home", name)
        home.mkdir(mode=0o755)
        _own(home, name)


def _make_server_home(room: Room) -> None:
    OAR_HOME.chmod(0o755)
    _make_run_directories("oar", "postgres")
    keys = ROOM_DIR / "keys"
    keys.mkdir(mode=0o700)
    hosts = {name: _make_etc(room, name) for name in room.machines}
    wanted = {keys / "id_ed25519": "oar@server", keys / "oarsh_key": "oarsh"}
    _make_keys(wanted | {etc / "oar_ssh_host_ed25519_key": name for name, etc in hosts.items()})
    public = {name: (etc / "oar_ssh_host_ed25519_key.pub").read_text().split() for name, etc in hosts.items()}
    (keys / "known_hosts").write_text(_known_hosts(room, public))
    _make_oar_ssh(OAR_HOME, keys, is_server=True)
    _own(OAR_HOME, "oar")


def _make_run_directories(*owners: str) -> None:
    """Make directories and log of the services of a server."""
    places = (("/run/oar", "oar"), ("/run/postgresql", "postgres"), ("/var/lib/postgresql", "postgres"))
    for path, owner in places:
        if owner in owners:
            Path(path).mkdir(mode=0o755, exist_ok=True)
            _own(Path(path), owner)
    log = Path("/var/log/oar.log")
    log.touch(0o640)
    _own(log, "oar")


def _make_etc(room: Room, name: str) -> Path:
    """Return the directory that becomes /etc/oar on a machine: on nodes a copy of the files installed for them."""
    if name == layout.SERVER:
        return CONF_DIR
    etc = ROOM_DIR / "nodes" / name / "etc"
    etc.mkdir(parents=True)
    if name in layout.SERVERS:
        return CONF_DIR
    for entry in ("sshd_config", "check.d", "oar-node-service", "prologue", "epilogue"):
        source = CONF_DIR / entry
        if source.is_dir():
            shutil.copytree(source, etc / entry)
        elif source.exists():
            shutil.copy(source, etc / entry)
    configuration = _NODE_CONFIGURATION.format(servers=" ".join(room.server_names))
    (etc / "oar.conf").write_text(configuration + (_ROOTLESS_CONFIGURATION if room.is_rootless else ""))
    (etc / "current_job").write_text(_CURRENT_JOB)
    (etc / "current_job").chmod(0o755)
    return etc


def _make_keys(wanted: Mapping[Path, str]) -> None:
    """Run ssh-keygen for each key concurrently."""
    base = ["ssh-keygen", "-q", "-t", "ed25519", "-N", ""]
    commands = [[*base, "-C", comment, "-f", str(path)] for path, comment in wanted.items()]
    pipe = subprocess.PIPE
    running = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) for command in commands]
    for process in running:
        _, said = process.communicate()
        if process.returncode:
            raise layout.RoomError(
                f"ssh-keygen ended with {process.returncode}: {said.decode(errors='replace').strip()}"
            )


def _known_hosts(room: Room, public: dict[str, list[str]]) -> str:
    port = layout.NODE_SSH_PORT
    names = {name: f"[{name}]:{port},[{layout.address(number)}]:{port}" for name, number in room.machines.items()}
    return "".join(f"{names[name]} {' '.join(public[name][:2])}\n" for name in room.machines)


def _make_oar_ssh(home: Path, keys: Path, *, is_server: bool = False) -> None:
    """Set up the .ssh of the account oar: the server key gives full access, the oarsh key users' sessions only."""
    ssh = home / ".ssh"
    ssh.mkdir(mode=0o700, exist_ok=True)
    server_key, oarsh_key = ((keys / name).read_text().strip() for name in ("id_ed25519.pub", "oarsh_key.pub"))
    session = f'command="{OARDIR}/oarsh_shell --oarsh",environment="OAR_KEY=0",restrict,pty,X11-forwarding {oarsh_key}'
    (ssh / "authorized_keys").write_text(f'environment="OAR_KEY=1" {server_key}\n{session}\n')
    for name in ("known_hosts", "oarsh_key", "oarsh_key.pub", *(["id_ed25519", "id_ed25519.pub"] if is_server else [])):
        shutil.copy(keys / name, ssh / name)
    for path in ssh.iterdir():
        path.chmod(0o600)


def _own(top: Path, name: str) -> None:
    """Change the owner of a file, or of a directory and its contents."""
    uid, gid = accounts.ids(name)
    for path in (top, *top.rglob("*")):
        os.lchown(path, uid, gid)
