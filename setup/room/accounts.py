"""The tables in a room's /etc: accounts and host names of the host, with those of the room added."""

from __future__ import annotations

from pathlib import Path

from . import layout
from .layout import ACCOUNTS, Room

_OARSH_GROUP = ("oarsh", 6669)
#: Service accounts that a host may lack.
_SERVICES = {"sshd": 6670, "postgres": 6671}


def write_tables(etc: Path) -> None:
    """Write passwd, group and shadow; the room's accounts replace those with the same name or number."""
    services = {name: uid for name, uid in _SERVICES.items() if not _has_account(name)}
    passwd = [f"{name}:x:{uid}:{uid}::{layout.home(name)}:{shell}" for name, (uid, shell) in ACCOUNTS.items()]
    passwd += [f"{name}:x:{uid}:{uid}::/run/{name}:/usr/sbin/nologin" for name, uid in services.items()]
    group = [f"{name}:x:{uid}:" for name, (uid, _) in ACCOUNTS.items()]
    group += [f"{name}:x:{uid}:" for name, uid in services.items()]
    group.append(f"{_OARSH_GROUP[0]}:x:{_OARSH_GROUP[1]}:{','.join(layout.USERS)}")
    shadow = [
        f"{name}:*:19000:0:99999:7:::" for name in (*ACCOUNTS, *services)
    ]  # sshd would regard '!' as a locked account
    _write(etc / "passwd", passwd, 0o644)
    _write(etc / "group", group, 0o644)
    _write(etc / "shadow", shadow, 0o640)


def write_host_tables(etc: Path, room: Room) -> None:
    """Write the names of the room's machines as the only source of host names: there is no other network."""
    hosts = ["127.0.0.1 localhost", *(f"{layout.database_address(name)} {name}" for name in room.database_names)]
    hosts += [f"{layout.address(number)} {name}" for name, number in room.machines.items()]
    (etc / "hosts").write_text("\n".join(hosts) + "\n")
    (etc / "resolv.conf").write_text("")
    (etc / "hostname").write_text(layout.SERVER + "\n")
    switch = [line for line in _lines(Path("/etc/nsswitch.conf")) if not line.startswith("hosts:")]
    (etc / "nsswitch.conf").write_text("\n".join([*switch, "hosts: files"]) + "\n")


def ids(name: str) -> tuple[int, int]:
    """Return uid and gid from the table itself, because the C library may have cached the host's table."""
    for line in _lines(Path("/etc/passwd")):
        fields = line.split(":")
        if fields[0] == name:
            return int(fields[2]), int(fields[3])
    raise layout.RoomError(f"no account {name!r}")


def _has_account(name: str) -> bool:
    return any(line.startswith(f"{name}:") for line in _lines(Path("/etc/passwd")))


def _write(path: Path, lines: list[str], mode: int) -> None:
    names = {line.split(":")[0] for line in lines}
    numbers = {line.split(":")[2] for line in lines} if path.name != "shadow" else set()
    kept = [line for line in _lines(Path("/etc", path.name)) if not _is_replaced(line, names, numbers)]
    path.write_text("\n".join([*kept, *lines]) + "\n")
    path.chmod(mode)


def _is_replaced(line: str, names: set[str], numbers: set[str]) -> bool:
    fields = line.split(":")
    return fields[0] in names or (len(fields) > 2 and fields[2] in numbers)


def _lines(path: Path) -> list[str]:
    """Return the lines of a table; none if it is not readable (shadow, in a rootless room)."""
    try:
        return path.read_text().splitlines()
    except (FileNotFoundError, PermissionError):
        return []
