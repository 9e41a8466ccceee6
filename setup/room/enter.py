"""Run a program on a machine of a room: join its control groups, then its namespaces, then become the user."""

from __future__ import annotations

import os
import pwd
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import cgroups, kernel, layout, machine


@dataclass(frozen=True)
class Place:
    """A machine in the status of a room."""

    name: str
    pid: int
    groups: tuple[str, ...]


def place(status: Mapping[str, object], name: str) -> Place:
    """Return a machine from a room's status. Raises RoomError if it is not up."""
    machines = status["machines"]
    assert isinstance(machines, dict)
    if name not in machines:
        raise layout.RoomError(f"no machine {name!r} in this room: it has {', '.join(machines)}")
    facts = machines[name]
    if not facts["pid"]:
        raise layout.RoomError(f"{name} is down")
    return Place(name, facts["pid"], tuple(facts["cgroups"]))


def environment(user: str, home: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment after a login."""
    base = {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "PATH": layout.PATH, "LANG": "C.UTF-8"}
    if "TERM" in os.environ:
        base["TERM"] = os.environ["TERM"]
    return {**base, **extra}


def _account(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise layout.RoomError(f"no account {user!r} in the room: try {', '.join(layout.ACCOUNTS)}, root") from None


def run(where: Place, user: str, command: Sequence[str], extra: Mapping[str, str] | None = None) -> int:
    """Run a command on a machine with our standard streams; return its exit status, or 128 + signal number.

    A single word is a shell command line; several words are a program and its arguments.
    """
    child = begin(where, user, command, extra or {})
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda sent, _: os.kill(child, sent))
    return end(child)


def begin(where: Place, user: str, command: Sequence[str], extra: Mapping[str, str]) -> int:
    """Run a command on a machine in a child; return its pid."""
    return machine.fork(lambda: _enter_and_run(where, user, command, extra))


def end(child: int) -> int:
    """Wait for the child of a command; return the command's exit status, or 128 + signal number."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _enter_and_run(where: Place, user: str, command: Sequence[str], extra: Mapping[str, str]) -> None:
    """Run in a child: enter the machine and fork the command, because a pid namespace applies to children only."""
    kernel.die_with_parent()
    cgroups.join(list(where.groups))
    kernel.enter_namespaces(where.pid)
    child = machine.fork(lambda: _become_and_execute(user, command, extra))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda sent, _: os.kill(child, sent))
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os._exit(end(child))


def _become_and_execute(user: str, command: Sequence[str], extra: Mapping[str, str]) -> None:
    _, _, uid, gid, _, home, _ = _account(user)
    os.initgroups(user, gid)
    os.setgid(gid)
    os.setuid(uid)
    kernel.die_with_parent()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores these signals, and programs would inherit that
    os.umask(0o022)
    os.chdir(home if os.path.isdir(home) else "/")
    argv = ["/bin/bash", "-c", command[0]] if len(command) == 1 else list(command)
    try:
        os.execvpe(argv[0], argv, environment(user, home, extra))
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127)
