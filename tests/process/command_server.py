"""A command server on a socket of its own, and the program by which users ask it."""

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oar.cli.command_server.request import PROTOCOL
from oar.lib.base.version import VERSION
from oar.lib.db.connections import DatabaseSettings
from tests.process.this_machine import is_alive, wait_until

REPOSITORY = Path(__file__).parent.parent.parent
#: What the wrapper of these tests prints when it is asked to go by sudo, and its exit code.
BY_SUDO, BY_SUDO_CODE = "by sudo:", 42
#: An account that is on every machine, and has no rights.
OTHER = "daemon"
LONGEST = 120
GREETING = PROTOCOL + b"\0" + VERSION.encode()

#: How the client ends that cannot know what was done.
EXIT_UNKNOWN = 3
UNKNOWN = "# Error: the command service ended while it ran your command, whose result is unknown. Check with oarstat.\n"

_WRAPPER = f"""\
#!/bin/sh
echo "{BY_SUDO}" "$OAR_BY_SUDO" "$@"
exit {BY_SUDO_CODE}
"""
_PROGRAM = """\
import sys
sys.path.insert(0, {repository!r})
from oar.lib.base import version
version.__file__ = {version!r} or version.__file__
from oar.cli.command_server import caller
caller.LONGEST, caller.BESIDE_ANSWER = {longest}, {longest} - 900
from oar.cli.command_server.manager import main
sys.exit(main())
"""


@dataclass
class Answer:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


class CommandServer:
    """The server, and where its users find it."""

    def __init__(
        self,
        directory: Path,
        settings: DatabaseSettings,
        *,
        of_own_version: bool = False,
        processes: int = 8,
        longest: float = 900,
    ) -> None:
        """``of_own_version``: it is another program whenever the file ``version`` is another."""
        self._processes = processes
        self._longest = longest
        self.directory = directory
        self.version = directory / "version"
        self._of_own_version = of_own_version
        self.conf = directory / "oar.conf"
        self.socket = directory / "socket"
        self.wrapper = directory / "wrapper"
        self.client = directory / "client.pl"
        self._settings = settings
        self.process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Write all files; everybody may read them."""
        self.directory.chmod(0o755)
        self.wrapper.write_text(_WRAPPER)
        self.wrapper.chmod(0o755)
        shutil.copy(REPOSITORY / "oar/cli/command_server/client.pl", self.client)
        self.client.chmod(0o644)
        watched = str(self.version) if self._of_own_version else ""
        program = _PROGRAM.format(repository=str(REPOSITORY), version=watched, longest=self._longest)
        (self.directory / "program").write_text(f"#!{sys.executable} -I\n{program}")
        (self.directory / "program").chmod(0o755)
        self.configure()

    def configure(self, *lines: str) -> None:
        """Write oar.conf, with these lines at its end."""
        text = (
            f'DB_HOSTNAME="{self._settings.host}"\nDB_BASE_NAME="{self._settings.name}"\n'
            f'SERVER_HOSTNAME="localhost"\nSERVER_PORT="1"\nAPPENDICE_SERVER_PORT="2"\nCOMMANDS_PROCESSES="{self._processes}"\n'
        )
        new = self.conf.with_suffix(".new")
        new.write_text(text + "".join(f"{line}\n" for line in lines))
        new.rename(self.conf)

    def start(self) -> None:
        """Start it, and return when it answers."""
        environment = {"PATH": os.environ["PATH"], "OARCONFFILE": str(self.conf)}
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.words, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.wait_until_it_answers()

    @property
    def words(self) -> list[str]:
        """The words that start it."""
        return [str(self.directory / "program"), "--listen", str(self.socket)]

    def wait_until_it_answers(self) -> None:
        """Return when a process is ready."""
        wait_until(self.socket.exists, LONGEST)
        self.ask("oarstat", "--version")

    def stop(self) -> None:
        """End it; nothing of it stays."""
        assert self.process
        self.process.terminate()
        self.process.wait(LONGEST)

    def log(self) -> str:
        """Return what it has complained of."""
        return (self.directory / "log").read_text()

    def processes(self) -> set[int]:
        """Return the processes that answer."""
        assert self.process
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return {int(pid) for pid in listed.split() if is_alive(int(pid))}

    def command(self, *words: str, place: str = "", version: str = VERSION) -> list[str]:
        """Return the words by which a wrapper asks for a command."""
        program = ["/usr/bin/perl", str(self.client)]
        return [*program, place or str(self.socket), version, str(self.wrapper), *words]

    def ask(self, *words: str, **how: Any) -> Answer:
        """Ask for a command as a user until the server answers; on a busy machine it may be late."""

        def answer() -> Answer | None:
            answer = self.ask_once(*words, **how)
            return None if answer.code == BY_SUDO_CODE else answer

        answered: Answer = wait_until(answer, LONGEST)
        return answered

    def ask_once(self, *words: str, **how: Any) -> Answer:
        """Ask for a command as a user; it may go by sudo."""
        with self.asking(*words, **how) as process:
            out, err = process.communicate("", LONGEST)
        return Answer(process.returncode, out, err)

    def asking(
        self,
        *words: str,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        limits: Mapping[str, int] | None = None,
        **how: str,
    ) -> subprocess.Popen[str]:
        """Ask for a command as a user, under soft limits, which have the names of ``prlimit``."""
        limited = ["prlimit", *(f"--{name}={value}:" for name, value in limits.items())] if limits else []
        account = pwd.getpwnam(user) if user else None
        identity: dict[str, Any] = {}
        if account:
            identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*limited, *self.command(*words, **how)],
            cwd=self.directory,
            env={"PATH": os.environ["PATH"], "PERL_BADLANG": "0", **(env or {})},
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            **identity,
        )

    def call(self) -> socket.socket:
        """Return a connection to it."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(LONGEST)
        connection.connect(str(self.socket))
        connection.send(GREETING)
        return connection

    def talk(self) -> socket.socket:
        """Return a connection whose other end is ready."""
        connection = self.call()
        answer = connection.recv(64)
        if answer == b"wait":
            answer = connection.recv(64)
        assert answer == b"ready"
        return connection


@contextmanager
def command_server(
    settings: DatabaseSettings, *, of_own_version: bool = False, processes: int = 8, longest: float = 900
) -> Iterator[CommandServer]:
    """A server in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="oar-commands-", dir="/tmp") as directory:
        server = CommandServer(
            Path(directory), settings, of_own_version=of_own_version, processes=processes, longest=longest
        )
        server.prepare()
        server.start()
        try:
            yield server
        finally:
            server.stop()
            assert "Traceback" not in server.log(), server.log()


def by_sudo(*words: str) -> Answer:
    """Return the answer of a command that goes by sudo."""
    return Answer(BY_SUDO_CODE, " ".join([BY_SUDO, "yes", *words]) + "\n", "")


def hears_no_more(connection: socket.socket) -> bool:
    """Whether the other end of a connection lets it go: refuses, or closes it."""
    with suppress(ConnectionResetError):
        while (answer := connection.recv(64)) == b"wait":
            pass
        return answer in (b"", b"refused")
    return True
