"""Hosts that a command of administrators asks, each by the site's way to reach it."""

import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from oar.cli.common.options import Stop
from oar.lib.config.kinds import COMMAND


class HostResult(NamedTuple):
    """What came of the command on a host."""

    host: str
    exit: int
    signal: int
    output: bytes

    @property
    def is_good(self) -> bool:
        """Whether it ended by itself with 0."""
        return self.exit == self.signal == 0

    def __str__(self) -> str:
        """As the checkers of nodes read it: exit code, signal, whether there is a core."""
        return f"{self.host} : {'GOOD' if self.is_good else 'BAD'} ({self.exit},{self.signal},0)"


def read_hosts(path: str) -> Iterator[str]:
    """Give the hosts of a file, - is stdin; what follows a # is a remark.  Raises Stop."""
    try:
        text = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise Stop(f"Error: cannot open the file {path}: {error.strerror}") from None
    lines = text.decode("utf-8", "replace").splitlines()
    return (host for line in lines if (host := line.partition("#")[0].strip()))


def command_words(option: str, command: str) -> list[str]:
    """Return the words of a command that an option gives.  Raises Stop."""
    try:
        return shlex.split(COMMAND.read(command))
    except ValueError as error:
        raise Stop(f"Error: {option} {command}: {error}") from None


def ask_host(host: str, command: Sequence[str], timeout: int, stdin: bytes = b"") -> HostResult:
    """Run the command for a host; it is killed when its time is over.  Raises Stop if it cannot be started."""
    try:
        done = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as late:
        return HostResult(host, 0, 9, late.stdout or b"")
    except OSError as error:
        raise Stop(f"Error: cannot start {command[0]}: {error.strerror}") from None
    return HostResult(host, max(done.returncode, 0), max(-done.returncode, 0), done.stdout)
