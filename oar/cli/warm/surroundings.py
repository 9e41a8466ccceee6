"""What surrounds a command: its streams, environment, limits.

A process that answers takes those of the client for the time of a command, and has its own ones again afterwards;
``state`` is what must be the same before and after.
"""

import locale
import os
import pwd
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from types import FrameType
from typing import Any

from oar.cli.warm.caller import close_all
from oar.cli.warm.request import UMASK, CallerLimits, CommandRequest
from oar.lib.access.records import User
from oar.lib.base.programs import DEFAULT_PATH
from oar.lib.runtime import DEFAULT_OARDIR

_LIMITS = {
    resource.RLIMIT_FSIZE: "fsize",
    resource.RLIMIT_DATA: "data",
    resource.RLIMIT_AS: "address_space",
    resource.RLIMIT_CPU: "cpu",
}
#: Signals that commands handle, with their initial handlers.
_HANDLERS: Mapping[signal.Signals, Callable[[int, FrameType | None], Any] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGALRM: signal.SIG_DFL,
    signal.SIGPIPE: signal.SIG_IGN,
}


#: Bytes that a command must be able to take beyond what the process has.
ROOM = 256 << 20
_RESOURCES = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))


def leaves_room(limits: CallerLimits) -> bool:
    """Return whether a command can run here under the memory limits of its caller."""
    with open("/proc/self/statm", encoding="utf-8") as statm:
        pages = list(map(int, statm.read().split()))
    size, data = (pages[field] * resource.getpagesize() for field in (0, 5))
    needs = ((limits.address_space, size), (limits.data, data))
    return all(limit < 0 or limit >= used + ROOM for limit, used in needs)


def state() -> tuple[object, ...]:
    """Return the state of the process that a command could change."""
    umask = os.umask(UMASK)
    os.umask(umask)
    return (
        umask,
        os.getcwd(),
        dict(os.environ),
        time.tzname,
        locale.setlocale(locale.LC_ALL),
        os.getresuid(),
        os.getresgid(),
        os.getgroups(),
        os.nice(0),
        tuple(map(resource.getrlimit, _RESOURCES)),
        tuple(map(signal.getsignal, signal.valid_signals())),
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        sorted(os.listdir("/proc/self/fd")),
        threading.active_count(),
        _has_children(),
        random.getstate(),
    )


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def quiet() -> None:
    """Ignore signals of terminals and close the streams between requests."""
    for number in _HANDLERS:
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
    _open_streams()  # what is left in the former ones goes nowhere


@contextmanager
def taken(request: CommandRequest, user: User, streams: Sequence[int]) -> Iterator[None]:
    """Have the surroundings of a caller, as sudo would hand them over; ``streams`` are closed."""
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
    close_all(streams)
    former, limits = dict(os.environ), _limited(request.limits)
    try:
        _set_environment(environment(request, user))
        os.umask(request.umask)
        _open_streams()
        for number, handler in _HANDLERS.items():
            signal.signal(number, handler)
        yield
    finally:
        for limit, values in limits.items():
            resource.setrlimit(limit, values)
        os.umask(UMASK)
        _set_environment(former)


def environment(request: CommandRequest, user: User) -> dict[str, str]:
    """Return the environment that sudo would give to a command of a user."""
    own = pwd.getpwuid(os.geteuid())
    of_user = pwd.getpwuid(user.uid)
    return {
        **request.environment,
        "OARDIR": os.environ.get("OARDIR", DEFAULT_OARDIR),
        "PATH": DEFAULT_PATH,
        "HOME": own.pw_dir,
        "LOGNAME": own.pw_name,
        "USER": own.pw_name,
        "SHELL": own.pw_shell,
        "SUDO_USER": user.name,
        "SUDO_UID": str(user.uid),
        "SUDO_GID": str(of_user.pw_gid),
    }


def _set_environment(variables: Mapping[str, str]) -> None:
    zone = os.environ.get("TZ")
    os.environ.clear()
    os.environ.update(variables)
    if os.environ.get("TZ") != zone:
        time.tzset()


def _limited(limits: CallerLimits) -> dict[int, tuple[int, int]]:
    """Take over the soft limits of a caller, where they are lower than ours; return the former ones."""
    former = {}
    for limit, name in _LIMITS.items():
        wish: int = getattr(limits, name)
        soft, hard = resource.getrlimit(limit)
        if wish < 0 or (soft >= 0 and wish >= soft):
            continue
        former[limit] = soft, hard
        used = int(time.process_time()) if limit == resource.RLIMIT_CPU else 0
        resource.setrlimit(limit, (wish + used, hard))
    return former


def _open_streams() -> None:
    """Have new objects for the streams, which know what they are now."""
    sys.stdin = sys.__stdin__ = _stream(0, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", buffering=1)  # type: ignore[misc]


def _stream(number: int, mode: str, *, buffering: int = -1) -> TextIOWrapper:
    stream = open(number, mode, buffering=buffering, encoding="utf-8", closefd=False)  # noqa: SIM115 - it stays
    assert isinstance(stream, TextIOWrapper)
    return stream
