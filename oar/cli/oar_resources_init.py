"""oar_resources_init: detect the hardware of hosts and create their resources."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import click

from oar.cli.common.administration import (
    ask_host,
    command_words,
    note,
    property_lines,
    read_hosts,
    resource_lines,
)
from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import show_usage
from oar.cli.common.options import ADMIN, Stop, option
from oar.lib.base.errors import ConfigError
from oar.lib.base.host_names import is_host_name
from oar.lib.nodes import changes, machines, properties, topology
from oar.lib.nodes.topology import BadTopology, FoundMachine, Machines, NewResource

ANSWERED_NO, CANNOT_WRITE, A_HOST_FAILED, BAD_CONFIGURATION = 2, 4, 5, 20
#: Number of hosts probed at a time, and the timeout for each host in seconds.
AT_A_TIME, SECONDS = 32, 60
_PROBE = Path(__file__).parent.parent / "tools" / "describe_machine.sh"
_MEMORY = "mem"


class HostUnits(NamedTuple):
    host: str
    units: Sequence[NewResource]
    memory: Mapping[str, int]  #: GiB in the property "mem", MiB in MEMORY_PROPERTY
    is_known: bool  #: it has resources already


class HostAnswers(NamedTuple):
    """The hardware of the hosts, and the hosts without a valid answer."""

    machines: Mapping[str, FoundMachine]
    failed: Sequence[str]


@oar_command(
    "oar_resources_init",
    summary="Detect the hardware of hosts and create their resources.",
    examples={
        "oar_resources_init -y -x - < hosts.txt": "Detect the hardware of listed hosts and create their resources.",
        "oar_resources_init -y -o /tmp/resources.sh - < hosts.txt": "Write the commands to a file instead.",
    },
    style=ADMIN,
    admins_only=True,
    exit_codes={ConfigError: BAD_CONFIGURATION},
)
@click.argument("hostfile", required=False, metavar="HOSTFILE|-")
@option("-H", "with_threads", is_flag=True, help="Put the threads of a core into its cpuset (always the case).")
@option(
    "-T", "--use-threads", "each_thread", is_flag=True, help="Create a resource for each thread (default: each core)."
)
@option("-o", "--write-to", "path", metavar="FILE", help="Write the commands to this file.")
@option("-x", "--execute", is_flag=True, help="Create the resources in one transaction; write no file.")
@option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@option("-v", "--verbose", is_flag=True, help="Print the commands.")
@option("-e", "--ssh", "connector", metavar="COMMAND", help="Command to reach a host (default: OPENSSH_CMD).")
@option(
    "-n",
    "--oarnodesetting",
    metavar="COMMAND",
    default="oarnodesetting",
    help="Name of oarnodesetting in the commands.",
)
@option("-p", "--oarproperty", metavar="COMMAND", default="oarproperty", help="Name of oarproperty in the commands.")
@option("-c", "--conf", metavar="FILE", help="Path of oar.conf.")
@option("--update", is_flag=True, help="Also update hosts that already have resources.")
def main(
    context: Context,
    *,
    hostfile: str | None,
    with_threads: bool,
    each_thread: bool,
    path: str | None,
    execute: bool,
    is_sure: bool,
    verbose: bool,
    connector: str | None,
    oarnodesetting: str,
    oarproperty: str,
    conf: str | None,
    update: bool,
) -> int:
    """Probe all hosts in parallel; write or execute the commands that create their resources."""
    if not hostfile:
        return show_usage()
    if hostfile == "-" and not is_sure:
        raise Stop("Error: -y is required when the hosts are read from standard input: add -y.")
    if conf:
        context.environment = {**context.environment, "OARCONFFILE": os.path.abspath(conf)}
    hosts = _checked(read_hosts(hostfile))
    reach = command_words("--ssh", connector or context.runtime.config.openssh_cmd)
    _confirm("# Is the OAR SSH key configured on all hosts?", is_sure=is_sure)
    answers = _ask(reach, hosts)
    units, missing = _resources(context, answers, each_thread=each_thread, update=update)
    if execute:
        _execute(context, units, missing)
    else:
        lines = property_lines(missing, oarproperty) if units else []
        for host in units:
            memory = " ".join(f"-p {name}={size}" for name, size in host.memory.items())
            lines += resource_lines(host.units, memory, repair=host.is_known, oarnodesetting=oarnodesetting)
        _write(path, lines, verbose=verbose, is_sure=is_sure)
    return A_HOST_FAILED if answers.failed else 0


def _checked(hosts: Iterator[str]) -> list[str]:
    """Return each host once.  Raises Stop."""
    names = list(dict.fromkeys(hosts))
    for host in names:
        if not is_host_name(host):
            raise Stop(f"Error: {host!r} is not the name of a host")
    if not names:
        raise Stop("Error: the file contains no host")
    return names


def _confirm(question: str, *, is_sure: bool) -> None:
    """Ask for confirmation.  Raises Stop without it."""
    if is_sure:
        return
    click.echo(f"{question} (press y to confirm) ", nl=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Stop("Aborted, nothing was done.", ANSWERED_NO)


def _ask(reach: Sequence[str], hosts: Sequence[str]) -> HostAnswers:
    """Let the hosts describe themselves; a line of progress for each."""
    probe = _PROBE.read_bytes()
    found: dict[str, FoundMachine] = {}
    failed = []

    def ask(host: str) -> tuple[str, FoundMachine | str]:
        result = ask_host(host, [*reach, host, "sh -s"], SECONDS, probe)
        if not result.is_good:
            return host, "no answer in time" if result.signal else f"exit code {result.exit}"
        try:
            return host, topology.parse_description(result.output.decode("utf-8", "replace"))
        except BadTopology as error:
            return host, str(error)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for host, answer in pool.map(ask, hosts):
            if isinstance(answer, FoundMachine):
                found[host] = answer
                click.echo(f"#   Checking {host} ... OK")
            else:
                failed.append(host)
                click.echo(f"#   Checking {host} ... KO ({answer})")
    return HostAnswers(found, failed)


def _resources(
    context: Context, answers: HostAnswers, *, each_thread: bool, update: bool
) -> tuple[list[HostUnits], dict[str, bool]]:
    """Return the resources of the hosts, and the properties that are missing, each with whether it is a text."""
    with context.database.snapshot() as tx:
        existing = {resource.network_address for resource in tx.resources.of_nodes(answers.machines)}
        last, columns = machines.last_numbers(tx), tx.resources.columns()
    hosts, counted = [], context.runtime.config.memory_property
    for host, machine in answers.machines.items():
        if host in existing and not update:
            context.warn(
                f"{host}: it already has resources, which stay unchanged. To update their properties, use --update"
            )
            continue
        units, last = topology.units_of_machine(host, machine, last, each_thread=each_thread)
        memory = {_MEMORY: machine.memory} | ({counted: machine.mib} if counted else {})
        hosts.append(HostUnits(host, units, memory, host in existing))
    has_gpus = any(unit.gpu is not None for host in hosts for unit in host.units)
    needed = topology.property_types(Machines(1, each_thread=each_thread, gpus=int(has_gpus)))
    needed |= dict.fromkeys((_MEMORY, *([counted] if counted else [])), False)
    return hosts, {name: is_text for name, is_text in needed.items() if name not in columns}


# -- lines and deeds --------------------------------------------------------------------------------------------------


def _write(path: str | None, lines: Sequence[str], *, verbose: bool, is_sure: bool) -> None:
    """Print the lines, or write them to a file.  Raises Stop."""
    text = "".join(f"{line}\n" for line in lines)
    if verbose:
        click.echo(text, nl=False)
        if path is None:
            return
    if path is not None and os.path.lexists(path):
        _confirm(f"# {path} exists. Overwrite it?", is_sure=is_sure)
    try:
        if path is None:
            with tempfile.NamedTemporaryFile("w", prefix="oar_resources_init.", suffix=".sh", delete=False) as file:
                file.write(text)
            path = file.name
        else:
            Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Stop(f"[ERROR] cannot write {path or 'a temporary file'}: {error.strerror}", CANNOT_WRITE) from None
    click.echo(f"# Look at {path}, then: sh {path}")


def _execute(context: Context, hosts: Sequence[HostUnits], missing: Mapping[str, bool]) -> None:
    """Create and repair the resources, all or nothing."""
    count = 0
    with context.database.begin() as tx:
        for host in hosts:
            columns = {**tx.resources.columns(), **dict.fromkeys(host.memory, "integer")}
            memory = changes.sound([properties.check(name, str(size), columns) for name, size in host.memory.items()])
            act = machines.repair if host.is_known else machines.create
            count += len(act(tx, context.user, host.units, memory, missing))
            missing = {}
    note(context)
    click.echo(f"{count} resource(s) created or repaired.")
