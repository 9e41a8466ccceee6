"""A process that answers: everything is loaded, the database is connected, and it waits for a request.

It answers one request at a time, of any user, until it runs code that was not loaded at its start: an admission rule or
a plug-in of the site.  From then on it answers only the user of that request.  It ends if a request has changed it in
any other way (``process_state``).
"""

import gc
import locale
import os
import pwd
import random
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from types import FrameType
from typing import Any, NoReturn

from oar.cli.command_server.caller import CommandCaller, close_all, longest_time
from oar.cli.command_server.request import UMASK, BadRequestError, CallerLimits, CommandRequest, module_of
from oar.cli.common.command import (
    EXIT_BROKEN_PIPE,
    EXIT_HUNG_UP,
    EXIT_INTERRUPTED,
    CallersPlace,
    Command,
    Context,
    with_person,
)
from oar.cli.common.options import USER
from oar.cli.common.process import Hangup, limited_lookups, prepare_process
from oar.cli.common.start_up import load
from oar.lib.access import name_service
from oar.lib.access.acting import PASSED_ON
from oar.lib.access.records import User
from oar.lib.base.programs import DEFAULT_PATH
from oar.lib.runtime import DEFAULT_OARDIR, Runtime, open_runtime

#: Number of requests after which a process is replaced.
MOST_REQUESTS = 200
#: What a process sends to the manager: it can answer anybody, or only the user of its last request.
READY, OWNED = b"ready", b"owned"
#: Added to the nice value of the manager: the server of OAR launches and schedules before commands are answered.
NICE = 5
#: Exit code of Python if it cannot write to stderr.
EXIT_SILENT = 120
_LONGEST_WORD = 64
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


class Worker:
    """A worker process; ``channel``: connection to the manager."""

    def __init__(self, channel: socket.socket, conf_file: str) -> None:
        self._channel = channel
        self._conf_file = conf_file
        self._runtime: Runtime | None = None
        self._owner: int | None = None  #: the user whom alone it answers; None: anybody
        self._has_run_other_code = False
        self._is_idle = True
        self._is_ending = False

    def run(self) -> NoReturn:
        """Answer until the manager sends nothing more."""
        journal = os.dup(2)
        try:
            quiet()
            os.nice(NICE)
            signal.signal(signal.SIGTERM, self._end)
            sys.addaudithook(self._notice)
            self._answer_all()
        except (KeyboardInterrupt, Hangup):  # of a caller who sent several, and has had his answer
            pass
        except BaseException:  # noqa: BLE001 - what nobody has foreseen ends this process, and is told
            os.write(journal, traceback.format_exc().encode("utf-8", "replace"))
        finally:
            os._exit(0)

    def _notice(self, event: str, arguments: tuple[object, ...]) -> None:
        """Note that code runs that was not loaded at the start; the interpreter reports all of it."""
        if event == "exec":
            self._has_run_other_code = True

    def _end(self, number: int, frame: object) -> None:
        """End; a request that has begun is finished first."""
        self._is_ending = True
        if self._is_idle:
            os._exit(0)

    def _answer_all(self) -> None:
        self._runtime = open_runtime("commands", self._conf_file, is_of_user=True)
        self._runtime.database.pool.connect_ahead()
        gc.collect()
        former, self._has_run_other_code = process_state(), False
        for _ in range(MOST_REQUESTS):
            if not self._next():
                return
            gc.collect()  # it is disabled while a command runs
            if self._owner is None and process_state() != former:
                return

    def _next(self) -> bool:
        """Answer one request; return whether another may follow."""
        try:
            self._channel.send(READY if self._owner is None else OWNED)
            word, descriptors, _, _ = socket.recv_fds(self._channel, _LONGEST_WORD, 1, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:  # the manager is gone, or another program now, and has not read our last word
            return False
        if not descriptors:
            return False
        uid = int(word)
        self._is_idle = False
        with socket.socket(fileno=descriptors[0]) as connection:
            if self._owner not in (None, uid):
                return False
            goes_on = self._answer(CommandCaller(connection), uid)
        if self._has_run_other_code:
            self._owner = uid
        self._is_idle = True
        return goes_on and not self._is_ending

    def _answer(self, caller: CommandCaller, uid: int) -> bool:
        """Answer a user's request; return whether the process is as before."""
        try:
            request, streams = caller.request()
        except (BadRequestError, OSError):
            caller.refuse()
            return True
        try:
            with name_service.watched(limited_lookups(lambda text: _say(streams, USER.warning + text))):
                user = User(name_service.account(uid).pw_name, uid)
                user = with_person(user, _passed_on(request), caller.process())
        except KeyError:
            close_all(streams)
            caller.refuse()
            return True
        except name_service.NameServiceSilent as error:
            _say(streams, f"{USER.error}{error}")
            close_all(streams)
            caller.end(error.exit_code)
            return False
        lasts = load(module_of(request.command)).lasts(request.arguments)  # the wrapper of another version asked
        if lasts or not leaves_room(request.limits):
            close_all(streams)
            caller.refuse()
            return True
        code, is_clean = self._carried_out(caller, request, user, streams)
        try:
            caller.end(code)
        except (KeyboardInterrupt, Hangup):  # one more signal, which came when the command had ended
            caller.end(code)
            return False
        return is_clean and threading.active_count() == 1

    def _carried_out(
        self, caller: CommandCaller, request: CommandRequest, user: User, streams: list[int]
    ) -> tuple[int, bool]:
        """Run a command; return its exit code, and whether the process is as before."""
        assert self._runtime
        command = load(module_of(request.command))
        longest = longest_time(self._runtime.config.reservation_answer_timeout)
        try:
            with surroundings_of(request, user, streams):
                prepare_process()
                with caller.listening(longest):
                    code, is_written = self._run(caller, request, command, user)
                quiet()
        except KeyboardInterrupt:  # when the command was about to begin, or had just ended
            return command.exit_codes.get(KeyboardInterrupt, EXIT_INTERRUPTED), False
        except Hangup:
            return command.exit_codes.get(Hangup, EXIT_HUNG_UP), False
        return code, is_written and not caller.has_raised

    def _run(self, caller: CommandCaller, request: CommandRequest, command: Command, user: User) -> tuple[int, bool]:
        """Run a command; return its exit code, and whether all that it printed is written."""
        assert self._runtime
        context = Context(command, os.environ, user, None, CallersPlace(request.directory, caller.start))
        context.speak_for(self._runtime)
        try:
            code = command.run(request.arguments, context)
        except OSError:  # it cannot even say what is wrong
            return EXIT_SILENT, False
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            return code, False
        return code, code != EXIT_BROKEN_PIPE


def _passed_on(request: CommandRequest) -> dict[str, str]:
    """Return the variable from which the acting person is known, as sudo would set and keep it.

    It counts for root alone, whom the kernel has named.
    """
    name = request.environment.get(PASSED_ON, "")
    return {"SUDO_USER": name} if name else {}


def _say(streams: Sequence[int], text: str) -> None:
    """Print a line for a user whose command has not begun."""
    with suppress(OSError):
        os.write(streams[2], f"{text}\n".encode())


# -- streams, environment and limits of the caller ---------------------------------------------------------------------


def leaves_room(limits: CallerLimits) -> bool:
    """Return whether a command can run here under the memory limits of its caller."""
    with open("/proc/self/statm", encoding="utf-8") as statm:
        pages = list(map(int, statm.read().split()))
    size, data = (pages[field] * resource.getpagesize() for field in (0, 5))
    needs = ((limits.address_space, size), (limits.data, data))
    return all(limit < 0 or limit >= used + ROOM for limit, used in needs)


def process_state() -> tuple[object, ...]:
    """Return the state of the process that a command could change."""
    umask = os.umask(UMASK)
    os.umask(umask)
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        has_children = True
    except ChildProcessError:
        has_children = False
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
        has_children,
        random.getstate(),
    )


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
def surroundings_of(request: CommandRequest, user: User, streams: Sequence[int]) -> Iterator[None]:
    """Take over streams, environment and limits of a caller as sudo would; restore the former ones afterwards.

    ``streams`` are closed.
    """
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
        limit_of_caller: int = getattr(limits, name)
        soft, hard = resource.getrlimit(limit)
        if limit_of_caller < 0 or 0 <= soft <= limit_of_caller:
            continue
        former[limit] = soft, hard
        used = int(time.process_time()) if limit == resource.RLIMIT_CPU else 0
        resource.setrlimit(limit, (limit_of_caller + used, hard))
    return former


def _open_streams() -> None:
    """Replace the stream objects: the descriptors below them have changed, so their kind may have, too."""
    sys.stdin = sys.__stdin__ = _stream(0, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", buffering=1)  # type: ignore[misc]


def _stream(number: int, mode: str, *, buffering: int = -1) -> TextIOWrapper:
    stream = open(number, mode, buffering=buffering, encoding="utf-8", closefd=False)  # noqa: SIM115 - it stays
    assert isinstance(stream, TextIOWrapper)
    return stream
