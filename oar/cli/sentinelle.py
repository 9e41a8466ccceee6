"""sentinelle: run a command on many hosts and report failures."""

import shlex
import sys
from concurrent.futures import ThreadPoolExecutor

import click

from oar.cli.common.administration import HostResult, ask_host, command_words, read_hosts
from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import show_usage
from oar.cli.common.options import ADMIN, NUMBER, Stop, option
from oar.lib.base.host_names import is_host_name

A_HOST_WAS_BAD = 2


@oar_command(
    "sentinelle",
    summary="Run a command on many hosts and report failures.",
    examples={
        "sentinelle -m node-1 -m node-2 -p uptime": "Run a command on two nodes; print where it failed.",
    },
    style=ADMIN,
    admins_only=True,
)
@option("-m", "--machine", "machines", multiple=True, metavar="HOST", help="Host (repeatable).")
@option(
    "-f",
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    help="File with host names, one per line; -: standard input.",
)
@option("-c", "--connector", metavar="COMMAND", help="Command to reach a host (default: OPENSSH_CMD).")
@option("-w", "--window", type=NUMBER, default=5, metavar="N", help="Maximum number of hosts at a time (default: 5).")
@option("-t", "--timeout", type=NUMBER, default=30, metavar="SECONDS", help="Timeout for each host (default: 30).")
@option("-p", "--program", default="true", metavar="COMMAND", help="Command to run (default: true).")
@option("-v", "--verbose", is_flag=True, help="Print each command before running it.")
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
    """Run the command on all hosts; print the output host by host."""
    hosts = list(dict.fromkeys([*machines, *(host for path in files for host in read_hosts(path))]))
    if not hosts:
        return show_usage()
    for host in hosts:
        if not is_host_name(host):
            raise Stop(f"Error: {host!r} is not the name of a host")
    if window < 1 or timeout < 1:
        raise Stop("Error: --window and --timeout must be at least 1")
    reach = command_words("--connector", connector or context.runtime.config.openssh_cmd)
    is_bad = False
    with ThreadPoolExecutor(window) as pool:

        def ask(host: str) -> HostResult:
            command = [*reach, host, program]
            if verbose:
                click.echo(f"# {shlex.join(command)}", err=True)
            return ask_host(host, command, timeout)

        for result in pool.map(ask, hosts):
            sys.stdout.buffer.write(result.output)
            sys.stdout.buffer.flush()
            click.echo(str(result), err=True)
            is_bad = is_bad or not result.is_good
    return A_HOST_WAS_BAD if is_bad else 0


if __name__ == "__main__":
    main()
