"""What the administrators' commands share: the line in the server's log, warnings, hosts, and lines of shell."""

import logging
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from oar.cli.common.command import Context
from oar.cli.common.options import Stop
from oar.lib.config.kinds import COMMAND
from oar.lib.nodes.topology import NewResource

log = logging.getLogger(__name__)


def note(context: Context) -> None:
    """Write one line about a change in the server's log: who did it, by which command."""
    from oar.lib.logs import logging_to

    parameters = click.get_current_context().params
    parts = [f"{name}={value}" for name, value in sorted(parameters.items()) if value not in ((), None, False)]
    with logging_to(context.runtime.config, "Admin"):
        log.info("[admin] user=%s command=%s %s", context.user.author, context.command.name, " ".join(parts))


def warn(lines: Iterable[str]) -> None:
    """Print warnings, one per line."""
    for line in lines:
        click.echo(f"/!\\ {line}", err=True)


def warn_of_policies(context: Context, names: Collection[str] | None) -> None:
    """Warn of each named queue, of every queue for None, whose policy schedules no job."""
    from oar.kao.rounds.site.scheduler_programs import policy_warnings

    if names is not None and not names:
        return
    with context.database.readonly() as tx:
        queues = [queue for queue in tx.queues.all() if names is None or queue.name in names]
    warn(policy_warnings(context.runtime, queues))


class HostResult(NamedTuple):
    """The result of the command on a host."""

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
    """Iterate over the hosts of a file (-: standard input); # begins a comment.  Raises Stop."""
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
    """Run the command for a host, at most ``timeout`` seconds.  Raises Stop if it cannot be started."""
    try:
        done = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as late:
        return HostResult(host, 0, 9, late.stdout or b"")
    except OSError as error:
        raise Stop(f"Error: cannot start {command[0]}: {error.strerror}") from None
    return HostResult(host, max(done.returncode, 0), max(-done.returncode, 0), done.stdout)


def property_lines(missing: Mapping[str, bool], oarproperty: str = "oarproperty") -> list[str]:
    """Return the commands that add properties; ``missing``: by name, whether it is a text."""
    return [f"{oarproperty} {'-c ' if is_text else ''}-a {name}" for name, is_text in missing.items()]


def resource_lines(
    units: Iterable[NewResource], append: str = "", *, repair: bool, oarnodesetting: str = "oarnodesetting"
) -> list[str]:
    """Return the commands that create resources, or set the properties of those that exist."""
    lines = []
    for unit in units:
        if repair:
            where = f"network_address = '{unit.host}' and cpuset = '{unit.cpuset}'"
            begin = f'{oarnodesetting} --sql "{where}"'
        else:
            begin = f"{oarnodesetting} -a -h {shlex.quote(unit.host)}"
        options = [
            f"-p {name}={shlex.quote(str(value))}"
            for name, value in unit.properties
            if not (repair and name == "cpuset")
        ]
        lines.append(" ".join([begin, *options, *([append] if append else [])]))
    return lines
