"""Agents of desktop computers as real processes, and a real service of the API that they ask."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from installer.programs import agent as write_agent

#: Who runs the agents, if the tests are run by root: an agent is an ordinary account.
ACCOUNT = "nobody"


class AgentProcess:
    """An oar-agent in a directory of its own."""

    def __init__(self, directory: Path, port: int, name: str, token: str) -> None:
        self.directory = directory
        self.program = directory.parent / "oar-agent"
        if not self.program.exists():
            write_agent(self.program)
        directory.mkdir()
        self._log = directory / "log"
        (directory / "token").write_text(token)
        (directory / "token").chmod(0o600)
        for path in (directory, directory / "token"):
            shutil.chown(path, *self._identity())
        self._words = ["-n", name, "-i", "1", "-k", str(directory / "token"), "-v", f"http://127.0.0.1:{port}"]
        self.process: subprocess.Popen[bytes] | None = None

    def _identity(self) -> tuple[int, int]:
        account = pwd.getpwnam(ACCOUNT) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        return account.pw_uid, account.pw_gid

    def start(self, words: Sequence[str] = (), *, last: bool = False) -> None:
        """Start it, after another one perhaps; ``last``: the words come behind its own."""
        uid, gid = self._identity()
        identity = {"user": uid, "group": gid, "extra_groups": []} if os.geteuid() == 0 else {}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    str(self.program),
                    *(() if last else words),
                    *self._words,
                    *(words if last else ()),
                ],
                cwd=self.directory,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": str(self.directory)},
                **identity,  # type: ignore[call-overload]
            )

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send it a signal; return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(90)

    def is_alive(self) -> bool:
        """Fail if it has ended."""
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        return True

    def log(self) -> str:
        """What it has told."""
        return self._log.read_text()
