"""sentinelle: runs a command on many hosts and tells on which it failed."""

import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import show_usage
from oar.cli.common.options import ADMIN, NUMBER, Stop, option
from oar.lib.config.kinds import COMMAND
from oar.lib.facts.host_names import is_host_name

A_HOST_WAS_BAD = 2


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


@oar_command(
    "sentinelle", summary="Run a command on many hosts, and tell on which it failed.", style=ADMIN, admins_only=True
)
@option("-m", "--machine", "machines", multiple=True, metavar="HOST", help="This host.")
@option("-f", "--file", "files", multiple=True, metavar="FILE", help="The hosts of FILE, one in each line; -: stdin.")
@option("-c", "--connector", metavar="COMMAND", help="How a host is reached; without it OPENSSH_CMD.")
@option("-w", "--window", type=NUMBER, default=5, metavar="N", help="So many hosts at a time.")
@option("-t", "--timeout", type=NUMBER, default=30, metavar="SECONDS", help="How long a host may take.")
@option("-p", "--program", default="true", metavar="COMMAND", help="What is run there; without it, nothing.")
@option("-v", "--verbose", is_flag=True, help="Show each command before it runs.")
def main(
    context: Context,
    *,
    machines: tuple[str, ...],
    files: tuple[str, ...],
    connector: str | None,
    window: int,
    timeout: int,
    program: str,
    verbose: bool,
) -> int:
    """Ask all hosts; what they print goes on, host by host."""
    hosts = list(dict.fromkeys([*machines, *(host for path in files for host in _read(path))]))
    if not hosts:
        return show_usage()
    for host in hosts:
        if not is_host_name(host):
            raise Stop(f"Error: {host!r} is not the name of a host")
    if window < 1 or timeout < 1:
        raise Stop("Error: --window and --timeout are numbers from 1 on")
    reach = _words(connector or context.runtime.config.openssh_cmd)
    is_bad = False
    with ThreadPoolExecutor(window) as pool:

        def ask(host: str) -> HostResult:
            command = [*reach, host, program]
            if verbose:
                click.echo(f"# {shlex.join(command)}", err=True)
            return _ask(host, command, timeout)

        for result in pool.map(ask, hosts):
            sys.stdout.buffer.write(result.output)
            sys.stdout.buffer.flush()
            click.echo(str(result), err=True)
            is_bad = is_bad or not result.is_good
    return A_HOST_WAS_BAD if is_bad else 0


def _read(path: str) -> Iterator[str]:
    """Give the hosts of a file; what follows a # is a remark."""
    try:
        text = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise Stop(f"Error: cannot open the file {path}: {error.strerror}") from None
    lines = text.decode("utf-8", "replace").splitlines()
    return (host for line in lines if (host := line.partition("#")[0].strip()))


def _words(connector: str) -> Sequence[str]:
    try:
        return shlex.split(COMMAND.read(connector))
    except ValueError as error:
        raise Stop(f"Error: --connector: {error}") from None


def _ask(host: str, command: Sequence[str], timeout: int) -> HostResult:
    """Run the command for a host; it is killed when its time is over."""
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as late:
        return HostResult(host, 0, 9, late.stdout or b"")
    except OSError as error:
        raise Stop(f"Error: cannot start {command[0]}: {error.strerror}") from None
    code = process.returncode
    return HostResult(host, max(code, 0), max(-code, 0), process.stdout)


if __name__ == "__main__":
    main()
