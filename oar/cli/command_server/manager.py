"""oar-commands: the server that answers the commands of users.

It accepts connections, reads from the kernel which user each one belongs to, and hands it to a process that answers
(``worker.py``).  It reads nothing that a user writes.  When its program has changed it starts again on the same socket.
"""

import gc
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pkgutil import walk_packages
from typing import NoReturn

from oar.cli.command_server.process_assignment import Places, QueuedRequest, crawls
from oar.cli.command_server.request import COMMANDS, module_of
from oar.cli.command_server.worker import OWNED, READY, Worker
from oar.cli.common.start_up import load
from oar.lib.base import local_socket, version
from oar.lib.base.errors import ConfigError
from oar.lib.base.processes import ServiceManager
from oar.lib.config.files import Config
from oar.lib.runtime import conf_file, file_version, read_config

#: Packages whose modules commands load lazily, with their subpackages.
PACKAGES = (
    *("oar.cli.common", "oar.cli.oarsub_parts", "oar.cli.oarstat_parts"),
    *(
        "oar.lib.access",
        "oar.lib.accounts",
        "oar.lib.base",
        "oar.lib.bus",
        "oar.lib.conditions",
        "oar.lib.db",
        "oar.lib.history",
    ),
    *("oar.lib.jobs", "oar.lib.nodes", "oar.lib.planning", "oar.lib.reservations", "oar.lib.submission"),
    "oar.lib.user_files",
)
#: Modules of them that are for other programs, and load what is heavy.
OF_OTHERS = frozenset(
    {
        *("oar.lib.bus.control_client", "oar.lib.bus.sockets", "oar.lib.db.invariants"),
        *("oar.lib.db.migrations", "oar.lib.db.schema", "oar.lib.db.schema_tables", "oar.lib.db.schema_reservations"),
        "oar.lib.db.schema_accounts",
        *("oar.lib.nodes.energy", "oar.lib.nodes.ping_checker", "oar.lib.nodes.phoenix"),
    }
)
#: What functions of them load.
LATE = (
    *("click._textwrap", "encodings.ascii"),
    *("base64", "cryptography.hazmat.primitives.asymmetric.ed25519", "ctypes", "dateutil.rrule", "difflib"),
    "encodings.idna",
    *("grp", "inspect", "json", "logging", "oar.lib.base.allowed_networks", "oar.lib.bus.doorbell", "oar.lib.logs"),
    *("pwd", "random", "resource", "secrets", "shlex", "socket", "subprocess", "traceback", "yaml", "zoneinfo"),
)
#: Connections that wait for a process, in all and of one user.
MOST_WAITING, MOST_OF_ONE = 1024, 64
#: What a client is sent whose request has to wait for a process.
WAIT = b"wait"
#: Connections that are taken before anything else is done.
AT_ONCE = 64
#: Timeout in seconds for the request of a new connection.
PATIENCE = 1.0
#: Seconds between two looks at what has become old, and to wait before a process is made anew that has failed.
LOOK, PAUSE = 1.0, 1.0
#: A process is held by its client if it has been busy for this time, in seconds, and uses next to no processor time.
LONG_BUSY = 1.0
_TICKS = os.sysconf("SC_CLK_TCK")
_CREDENTIALS = struct.Struct("3i")
#: Connections that the kernel keeps until they are taken; who finds no place goes another way at once.
BACKLOG = 128
_FIRST_PASSED = 3  #: descriptor that systemd passes
_LONGEST_WORD = 64
#: Signals that are held back until they can be heard, while the program starts or becomes another.
_HELD = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@dataclass(slots=True)
class Waiting:
    """A connection without a worker."""

    connection: socket.socket
    uid: int
    since: float
    has_asked: bool = False  #: it has written something
    is_told: bool = False  #: it has been sent WAIT


def preload() -> None:
    """Load all that commands may need, before there are processes that share it."""
    for command in sorted(COMMANDS):
        load(module_of(command))
    for package in PACKAGES:
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            if not {module.name, module.name.rpartition(".")[0]} & OF_OTHERS:
                import_module(module.name)
    for name in LATE:
        getattr(import_module(name), "__all__", None)  # a module that loads itself late does it now


class Manager:
    """The server: one thread, one poll."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        """``path``: of oar.conf."""
        self._listener = listener
        self._path = path
        self._program = file_version(version.__file__)
        self._conf_version = file_version(path)
        self._is_usable = False
        self._places = Places()
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], object]] = {}  #: by descriptor
        self._waiting: dict[int, Waiting] = {}  #: by descriptor; in the order of their coming
        self._channels: dict[int, socket.socket] = {}  #: to the processes, by descriptor
        self._pids: dict[int, int] = {}  #: of the processes, by the descriptors of their channels
        self._cpu_times: dict[int, int] = {}  #: of the processes that have been busy for long
        self._next_look = self._last_look = 0.0
        self._is_ending = False
        self._is_old = False
        self._earliest_fork = 0.0

    def run(self) -> bool:
        """Answer until SIGTERM comes, or the program is another; return whether it is the latter alone.

        Processes that carry out a request when it is so end by themselves.  Signals are held back then.
        """
        self._watch_signals()
        self._listener.setblocking(False)
        self._watch(self._listener.fileno(), self._accept)
        self._read_config()
        self._make_processes(time.monotonic())
        while self._channels if self._is_ending else not self._is_old:
            for descriptor, _ in self._poll.poll(LOOK):
                if descriptor in self._handlers:
                    self._handlers[descriptor]()
            self._look(time.monotonic())
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        return not self._is_ending

    def _watch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries those that have ended
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGHUP, self._forget_config)
        signal.signal(signal.SIGINT, self._end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
        self._watch(reader, lambda: os.read(reader, _LONGEST_WORD))

    def _end(self, number: int, frame: object) -> None:
        self._is_ending = True

    def _forget_config(self, number: int, frame: object) -> None:
        self._conf_version = None

    def _read_config(self) -> None:
        """Read oar.conf; all processes are made anew, as each has read it."""
        self._conf_version = file_version(self._path)
        config = _usable_config(self._path)
        self._is_usable = config is not None
        self._places.most = config.commands_processes if config else 0
        self._release(self._places.renew())

    def _watch(self, descriptor: int, handler: Callable[[], object]) -> None:
        self._poll.register(descriptor, select.EPOLLIN)
        self._handlers[descriptor] = handler

    def _unwatch(self, descriptor: int) -> None:
        if self._handlers.pop(descriptor, None):
            self._poll.unregister(descriptor)

    def _look(self, now: float) -> None:
        """Run the periodic tasks."""
        self._is_old = file_version(version.__file__) != self._program
        if file_version(self._path) != self._conf_version:
            self._read_config()
        for waiting in list(self._waiting.values()):
            if not waiting.has_asked and now - waiting.since > PATIENCE:
                self._forget(waiting)
        if self._is_ending:
            self._unwatch(self._listener.fileno())
            self._listener.close()  # the next one listens while this one ends
            for waiting in list(self._waiting.values()):
                self._forget(waiting)
            self._release(self._places.renew())
            return
        if now >= self._next_look:
            self._next_look = now + LOOK
            self._find_held(now)
        self._hand_over(now)
        entitled = self._places.count_entitled(self._queue())
        self._release(self._places.ending(now, entitled=entitled))
        self._make_processes(now, entitled)

    # -- clients -------------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        """Accept new connections; close those above the limit, whose clients use sudo."""
        for _ in range(AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except OSError:  # there is none any more; or no descriptor, and then one becomes free
                return
            uid = _uid(connection)
            of_user = sum(waiting.uid == uid for waiting in self._waiting.values())
            if not self._is_usable or of_user >= MOST_OF_ONE or len(self._waiting) >= MOST_WAITING:
                connection.close()
                continue
            connection.setblocking(False)
            descriptor = connection.fileno()
            self._waiting[descriptor] = Waiting(connection, uid, time.monotonic())
            self._watch(descriptor, partial(self._hear, self._waiting[descriptor]))

    def _hear(self, waiting: Waiting) -> None:
        """See that a connection has something to be read, or is gone; what there is, its process reads."""
        try:
            is_there = bool(waiting.connection.recv(1, socket.MSG_PEEK))
        except OSError:
            is_there = False
        if not is_there or waiting.has_asked:
            self._forget(waiting)
            return
        waiting.has_asked = True
        self._poll.modify(waiting.connection, 0)  # from now on only its end is news

    def _forget(self, waiting: Waiting) -> None:
        descriptor = waiting.connection.fileno()
        del self._waiting[descriptor]
        self._unwatch(descriptor)
        waiting.connection.close()

    def _queue(self) -> list[QueuedRequest]:
        """Return the requests that wait for a process, oldest first."""
        return [QueuedRequest(number, waiting.uid) for number, waiting in self._waiting.items() if waiting.has_asked]

    def _hand_over(self, now: float) -> None:
        """Assign requests to idle processes; queue the others, or close them if they cannot be served."""
        for request, process in self._places.assign(self._queue(), now):
            with suppress(OSError):  # the process has just died; the client sees the end of its connection
                socket.send_fds(self._channels[process], [b"%d" % request.uid], [request.number])
            self._forget(self._waiting[request.number])
        for waiting in [waiting for waiting in self._waiting.values() if waiting.has_asked]:
            if self._places.is_hopeless(waiting.uid):
                self._forget(waiting)
            elif not waiting.is_told:
                waiting.is_told = True
                with suppress(OSError):
                    waiting.connection.send(WAIT)

    def _find_held(self, now: float) -> None:
        """Find the long busy processes that have used next to no processor time since the last look."""
        long_busy = self._places.busy_since(now - LONG_BUSY)
        former, seconds, self._last_look = self._cpu_times, now - self._last_look, now
        self._cpu_times = {number: _cpu_time(self._pids[number]) for number in long_busy}
        known = [(number, cpu - former[number]) for number, cpu in self._cpu_times.items() if number in former]
        self._places.mark_held([number for number, ticks in known if crawls(ticks / _TICKS, seconds)])

    # -- workers -------------------------------------------------------------------------------------------------------

    def _make_processes(self, now: float, entitled: int = 0) -> None:
        if self._is_usable and now >= self._earliest_fork:
            for _ in range(self._places.wanted(entitled)):
                self._fork(now)

    def _fork(self, now: float) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if not (pid := os.fork()):
            self._become_process(theirs, ours)
        theirs.close()
        process = ours.fileno()
        self._channels[process], self._pids[process] = ours, pid
        self._places.add(process, now)
        self._watch(process, partial(self._news, process))

    def _become_process(self, channel: socket.socket, other: socket.socket) -> NoReturn:
        """Be a process that answers; nothing of the manager stays open."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._poll.close()
        connections = (waiting.connection for waiting in self._waiting.values())
        for opened in (other, self._listener, *self._channels.values(), *connections):
            opened.close()
        Worker(channel, self._path).run()

    def _news(self, process: int) -> None:
        """A process is ready, or has ended."""
        channel, now = self._channels[process], time.monotonic()
        try:
            word = channel.recv(_LONGEST_WORD)
        except OSError:
            word = b""
        if word in (READY, OWNED):
            if not self._places.ready(process, now, is_owned=word == OWNED):
                self._release([process])
            return
        if self._places.processes[process].is_new:  # as the next one would
            self._earliest_fork = now + PAUSE
        self._places.gone(process)
        self._unwatch(process)
        del self._channels[process], self._pids[process]
        channel.close()

    def _release(self, processes: list[int]) -> None:
        """Let processes end."""
        for process in processes:
            self._channels[process].shutdown(socket.SHUT_WR)


# -- the program -------------------------------------------------------------------------------------------------------


def main() -> int:
    """Run the server on the socket of systemd, or on one of its own: ``oar-commands [--listen PATH]``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    listener, path = _listener(sys.argv[1:]), conf_file()
    preload()
    gc.disable()
    gc.freeze()
    manager = Manager(listener, path)
    ServiceManager(os.environ).ready()
    if manager.run():
        _start_again(listener)
    ServiceManager(os.environ).stopping()
    return 0


def _listener(arguments: list[str]) -> socket.socket:
    """Return the socket that was passed, or make one that everybody may call."""
    if os.environ.get("LISTEN_PID") == str(os.getpid()):
        os.set_inheritable(_FIRST_PASSED, False)
        return socket.socket(fileno=_FIRST_PASSED)
    if len(arguments) != 2 or arguments[0] != "--listen":
        sys.exit("usage: oar-commands --listen PATH")
    try:
        return local_socket.listening(arguments[1], socket.SOCK_SEQPACKET, BACKLOG)
    except OSError as error:
        sys.exit(f"oar-commands: cannot listen on {arguments[1]}: {error.strerror}")


def _start_again(listener: socket.socket) -> NoReturn:
    """Replace this process by the present version of the program, with the same socket and blocked signals."""
    os.dup2(listener.fileno(), _FIRST_PASSED)
    os.set_inheritable(_FIRST_PASSED, True)  # it may have been this one before
    os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
    os.execv(sys.argv[0], sys.argv)


def _usable_config(path: str) -> Config | None:
    """Return the configuration; None where commands would complain of it, which they do by themselves."""
    try:
        parsed = read_config(path)
    except ConfigError:
        return None
    return None if parsed.errors else parsed.config


def _cpu_time(pid: int) -> int:
    """Return the processor time that a process has used, in clock ticks; -1 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return -1
    return int(fields[11]) + int(fields[12])


def _uid(connection: socket.socket) -> int:
    """Return who has made a connection, as the kernel says."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(credentials)[1]
    return uid


if __name__ == "__main__":
    sys.exit(main())
