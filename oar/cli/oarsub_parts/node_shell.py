"""The connection from a frontend to a user's shell on a node: ssh with the key that opens sessions.

The connection can be opened before the job runs, as a control master: then only a channel has to be opened when the
shell may start.  All processes of this module end with the process that holds the connection.

See docs/design/nodes.rst, "Interactive jobs".
"""

import os
import re
import shlex
import signal
import sys
import termios
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property

import oar
from oar.lib.config.files import Config
from oar.lib.user_files.files import UserFiles

#: Variables that the client sends; the node's sshd accepts no others.
SENT = "OAR_CPUSET OAR_JOB_USER OAR_JOB_ID OAR_SESSION"
#: Exit code of ssh when there is no connection, or none any more.
NO_CONNECTION = 255
#: Seconds that a connection that was begun early may still take.
_PATIENCE = 30.0
#: Seconds that ssh gets to end by itself.
_GRACE = 1.0
_LOOK = 0.003
_PROXY = re.compile(r"(?i)proxy(?:command|jump)\W+(?!none\b)\w")
_SSH_SOCKET = os.path.join(os.path.dirname(oar.__file__), "tools", "ssh_socket")
_DISPLAY = re.compile(r"[A-Za-z0-9._/-]*(?:\[[0-9a-fA-F:]+\])?:[0-9]+(?:\.[0-9]+)?\Z")
_SIGNALS = (signal.SIGINT, signal.SIGQUIT)


class NodeConnection:
    """A connection to nodes for one user at a terminal.  It must be closed."""

    def __init__(self, config: Config, files: UserFiles, environment: Mapping[str, str]) -> None:
        self._ssh = _ssh(config)
        self._files = files
        self._caller = environment
        self._master: int | None = None  #: process of the connection that was begun
        self._host = ""

    def begin(self, host: str) -> None:
        """Start to connect in the background.  Errors are reported when the shell is opened."""
        if self._master is not None or any("Control" in argument for argument in self._ssh):
            return
        self._host = host
        with suppress(OSError):
            os.unlink(self._path("socket"))
        socket = self._path("socket")
        options = ["-M", "-S", socket, "-N", "-T", "-oBatchMode=yes", *self._forwarding, "--", host]
        master = _dying("TERM", [self._ssh[0], *quick_connection(self._ssh), *self._ssh[1:], *options])
        self._master = _start(master, self._environment, is_silent=True)

    def shell(self, host: str, variables: Mapping[str, str]) -> int:
        """Open the shell on a host, with the streams of this process; return the exit status of ssh, 128 + a signal.

        ``variables``: the environment variables of ``SENT``.
        """
        shared = ["-S", self._path("socket"), "-oControlMaster=no", "-q"] if self._is_ready(host) else []
        terminal = ["-t"] if os.isatty(0) else ["-T"]
        command = [*self._ssh, *shared, *terminal, *self._forwarding, "--", host]
        with _left_to_the_terminal():
            process = _start(_dying("HUP", command), {**self._environment, **variables})
            try:
                _, status = os.waitpid(process, 0)
            except BaseException:
                _end(process)
                raise
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    @property
    def has_display(self) -> bool:
        """Whether X11 is forwarded."""
        return bool(self._cookie)

    def close(self) -> None:
        """End the connection and remove its files."""
        if self._master is not None:
            _end(self._master)
            self._master = None
        for kind in ("socket", "xauth"):
            with suppress(OSError):
                os.unlink(self._path(kind))

    def _is_ready(self, host: str) -> bool:
        """Return whether a connection can be shared; wait for one that is being opened."""
        if self._master is None or host != self._host:
            return False
        limit = time.monotonic() + _PATIENCE
        while not os.path.exists(self._path("socket")):
            if os.waitpid(self._master, os.WNOHANG)[0]:
                self._master = None
                return False
            if time.monotonic() > limit:
                return False
            time.sleep(_LOOK)
        return True

    # -- options and environment of ssh -----------------------------------------------------------------------------

    @cached_property
    def _directory(self) -> str:
        """A directory of oar alone, without the files of processes of this machine that have ended."""
        path = os.path.join(os.path.expanduser("~"), ".ssh", "sessions")
        os.makedirs(path, mode=0o700, exist_ok=True)
        for name in os.listdir(path):
            machine, _, process = name.partition(".")
            if machine == self._machine and not os.path.exists(f"/proc/{process.partition('.')[0]}"):
                with suppress(OSError):
                    os.unlink(os.path.join(path, name))
        return path

    @cached_property
    def _machine(self) -> str:
        """A short name of this machine: frontends may share the home of oar, and names of sockets must not be long."""
        return f"{zlib.crc32(os.uname().nodename.encode()):08x}"

    def _path(self, kind: str) -> str:
        return os.path.join(self._directory, f"{self._machine}.{os.getpid()}.{kind}")

    @cached_property
    def _environment(self) -> dict[str, str]:
        environment = {name: self._caller[name] for name in ("TERM", "LANG") if name in self._caller}
        environment |= {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.path.expanduser("~")}
        if self._cookie:
            environment |= {"DISPLAY": self._caller["DISPLAY"], "XAUTHORITY": self._path("xauth")}
        return environment

    @property
    def _forwarding(self) -> list[str]:
        return ["-X" if self.has_display else "-x"]

    @cached_property
    def _cookie(self) -> bytes:
        """The cookie of the user's display, also in a file for ssh; empty without display or xauth."""
        display = self._caller.get("DISPLAY", "")
        if not _DISPLAY.match(display):
            return b""
        import subprocess

        variables = [f"XAUTHORITY={self._caller['XAUTHORITY']}"] if self._caller.get("XAUTHORITY") else []
        try:
            cookie = self._files.output(["env", *variables, "xauth", "-q", "extract", "-", display])
            merge = ["xauth", "-q", "-f", self._path("xauth"), "merge", "-"]
            subprocess.run(merge, input=cookie, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        except (OSError, subprocess.SubprocessError):
            return b""
        return cookie


def _ssh(config: Config) -> list[str]:
    """Return ssh with the options that all sessions share."""
    home = os.path.expanduser("~")
    command = [*shlex.split(config.openssh_cmd), *shlex.split(config.oarsh_openssh_default_options)]
    command = [argument.replace("~oar/", f"{home}/") for argument in command]
    command += [
        "-oStrictHostKeyChecking=accept-new",
        "-oForwardAgent=no",
        "-oLogLevel=ERROR",
        f"-oSendEnv={SENT}",
        "-l",
        "oar",
    ]
    key = os.path.join(home, ".ssh", "oarsh_key")
    return [*command, "-oIdentitiesOnly=yes", "-i", key] if os.path.exists(key) else command


def quick_connection(ssh: Sequence[str]) -> list[str]:
    """Return the options by which ssh connects without delays of the kernel; none where the site has its own way."""
    if os.path.basename(ssh[0]) != "ssh" or any(text.startswith("-J") or _PROXY.search(text) for text in ssh):
        return []
    program = shlex.join([sys.executable, "-I", "-S", _SSH_SOCKET]).replace("%", "%%")
    return ["-oProxyUseFdpass=yes", f"-oProxyCommand={program} %h %p"]


def _start(command: Sequence[str], environment: Mapping[str, str], *, is_silent: bool = False) -> int:
    """Start a program with our streams, or none; return its process id.  ``subprocess`` takes too long to import."""
    actions = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (range(3) if is_silent else ())]
    return os.posix_spawnp(
        command[0], list(command), environment, file_actions=actions, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
    )


def _end(pid: int) -> None:
    """Terminate a child process, if it still runs; ssh may miss the first signal."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGTERM)
        limit = time.monotonic() + _GRACE
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > limit:
                os.kill(pid, signal.SIGKILL)
            time.sleep(_LOOK)


def _dying(with_signal: str, command: Sequence[str]) -> list[str]:
    """Return the command with which a program ends when this process does, whatever ends it."""
    return ["setpriv", "--pdeathsig", with_signal, *command]


@contextmanager
def _left_to_the_terminal() -> Iterator[None]:
    """Ignore signals of the terminal during the session; restore the terminal afterwards."""
    former = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    modes = termios.tcgetattr(0) if os.isatty(0) else None
    try:
        yield
    finally:
        if modes is not None:
            with suppress(termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, modes)
        for number, handler in former.items():
            signal.signal(number, handler)
