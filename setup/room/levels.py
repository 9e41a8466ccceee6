"""Capabilities of the host: a room with root, a rootless room in a user namespace, or none and the reason."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import kernel, layout
from .layout import RoomError

#: Environment variable of the program that was restarted inside a user namespace.
_ROOTLESS = "OAR_ROOM_ROOTLESS"
_PROGRAMS = {
    "sshd": "openssh-server",
    "ip": "iproute2",
    "sudo": "sudo",
    "ping": "iputils-ping",
    "ssh-keygen": "openssh-client",
}
_ENTER = ("unshare", "--user", "--map-root-user", "--map-auto", "--setgroups", "allow", "--")


def is_rootless() -> bool:
    """Return whether this process runs inside the user namespace of `become_root_of_a_namespace`."""
    return _ROOTLESS in os.environ


def describe(*, is_rootless: bool) -> str:
    """Return a description of the available level of rooms."""
    if is_rootless:
        return "Level 2, without root: everything but control groups (jobs are not confined to their cores)."
    return "Level 1, with root: everything."


def missing() -> str:
    """Return one line on what the host lacks for a room; empty if nothing."""
    lacking = [package for name, package in _PROGRAMS.items() if not _has_program(name)]
    if lacking:
        return f"missing programs, install the packages: {' '.join(sorted(lacking))}"
    if os.getuid() != 0:
        return _missing_without_root()
    if problem := kernel.missing_namespaces():
        return f"this computer does not let root make namespaces ({problem}); a container needs --privileged"
    return ""


def _missing_without_root() -> str:
    if not _has_program("newuidmap"):
        return "a room without root needs the package uidmap; with root it needs nothing more"
    user = pwd.getpwuid(os.getuid()).pw_name
    for table in ("/etc/subuid", "/etc/subgid"):
        lines = Path(table).read_text().splitlines() if Path(table).exists() else []
        if not any(line.split(":")[0] in (user, str(os.getuid())) for line in lines):
            return f"a room without root needs a line for {user} in {table} (usermod --add-subuids 100000-165535 ...)"
    tried = subprocess.run([*_ENTER, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"this computer gives {user} no user namespace ({tried.stderr.strip()}): run as root"
    return ""


def _has_program(name: str) -> bool:
    return any(Path(directory, name).exists() for directory in layout.PATH.split(":"))


def become_root_of_a_namespace(arguments: Sequence[str]) -> None:
    """Without root: restart this program as root of a user namespace; does not return then."""
    if os.getuid() == 0:
        return
    environment = {
        **os.environ,
        _ROOTLESS: "1",
        "OAR_ROOM_STATE": str(layout.state_root()),
        "OAR_ROOM_CACHE": str(layout.cache_root()),
    }
    program = [sys.executable, "-I", str(Path(sys.argv[0]).resolve()), *arguments]
    try:
        os.execvpe(_ENTER[0], [*_ENTER, *program], environment)
    except OSError as error:
        raise RoomError(f"unshare cannot be run: {error.strerror}") from None
