"""oar_resources_add: creates the resources of machines that are all alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import click

from oar.cli.common.administration import note, property_lines, resource_lines
from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import show_usage
from oar.cli.common.options import ADMIN, NUMBER, Stop, option
from oar.lib.base.errors import BadRequest
from oar.lib.base.formats import Format, dump
from oar.lib.base.texts import shell_words
from oar.lib.nodes import changes, machines, properties, topology
from oar.lib.nodes.changes import BadSettings
from oar.lib.nodes.machines import NoSuchMachine
from oar.lib.nodes.properties import Setting
from oar.lib.nodes.topology import BadTopology, Machines, NewResource

Function = TypeVar("Function", bound=Callable[..., object])

#: Options, field of ``Machines``, help.
_NUMBERS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("-H", "--hosts"), "hosts", "Number of hosts."),
    (("-C", "--cpus"), "cpus", "Processors of each host."),
    (("-c", "--cores"), "cores", "Cores of each processor."),
    (("-t", "--threads"), "threads", "Threads of each core."),
    (("-g", "--gpus"), "gpus", "GPUs of each host."),
    (("--host0",), "first_host", "Number of the first host."),
    (("--cpu0",), "first_cpu", "Number of the first processor."),
    (("--core0",), "first_core", "Number of the first core."),
    (("--thread0",), "first_thread", "Number of the first thread."),
    (("--gpu0",), "first_gpu", "Number of the first GPU."),
    (("--cpusets",), "cpusets", "Cpusets of each host."),
    (("--gpudevices",), "gpu_devices", "GPU devices of each host."),
)
_TEXTS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("--cputopo",), "cpu_topology", "Cpusets in order of processors and cores, or RR for round robin."),
    (("--gputopo",), "gpu_topology", "GPU devices in order."),
    (("--host-prefix",), "prefix", "Prefix of the host names."),
    (("--host-suffix",), "suffix", "Suffix of the host names."),
)


def machine_options(function: Function) -> Function:
    """Declare the options that describe machines; the function gets each value by the name of its field."""
    for names, name, text in reversed(_TEXTS):
        option(*names, name, help=text)(function)
    for names, name, text in reversed(_NUMBERS):
        option(*names, name, type=NUMBER, help=text)(function)
    return function


@oar_command(
    "oar_resources_add",
    summary="Create the resources of machines.",
    examples={
        "oar_resources_add -H 16 --cpus 2 --cores 8 --host-prefix node- --execute": "Create 16 nodes.",
        "oar_resources_add -H 4 -C 1 -c 8 --host0 17 --host-prefix node- --auto-offset": "Print commands for 4 more.",
    },
    style=ADMIN,
)
@machine_options
@option(
    "-T", "--use-threads", "each_thread", is_flag=True, help="Create a resource for each thread (default: each core)."
)
@option("-a", "--auto-offset", is_flag=True, help="Continue after the largest existing numbers.")
@option("-p", "--no-create-properties", "no_columns", is_flag=True, help="Do not create missing properties.")
@option("-A", "--append", default="", metavar="TEXT", help="Additional -p options for each resource.")
@option("-R", "--repair", is_flag=True, help="Set the properties of existing resources.")
@option("-o", "--write-to", "path", metavar="FILE", help="Write the commands to a file.")
@option("-Y", "--yaml", "as_yaml", is_flag=True, help="Print the resources as YAML.")
@option("-x", "--execute", is_flag=True, help="Create the resources in one transaction.")
def main(
    context: Context,
    *,
    each_thread: bool,
    auto_offset: bool,
    no_columns: bool,
    append: str,
    repair: bool,
    path: str | None,
    as_yaml: bool,
    execute: bool,
    **values: int | str | None,
) -> int:
    """Print what would create the resources, or create them."""
    context.require_admin()
    fields = {name: value for name, value in values.items() if value is not None}
    described = Machines(**{"hosts": 0, "each_thread": each_thread, **fields})  # type: ignore[arg-type]
    try:
        topology.units(replace(described, hosts=min(described.hosts, 1)))  # before the database is asked
        if auto_offset:
            with context.database.snapshot() as tx:
                described = machines.behind_the_last(tx, described, fields)
        units = topology.units(described)
    except BadTopology as error:
        show_usage()
        raise Stop(f"Error: {error}") from None
    if execute:
        _execute(context, described, units, append, repair=repair, columns=not no_columns)
        note(context)
        click.echo(f"{len(units)} resource(s) {'repaired' if repair else 'added'}.")
        return 0
    if as_yaml:
        records = [{"network_address": unit.host, **dict(unit.properties)} for unit in units]
        _write(path, dump(records, Format.YAML))
    else:
        with context.database.snapshot() as tx:
            missing = {} if no_columns else machines.missing_properties(tx, described)
        lines = [*property_lines(missing), *resource_lines(units, append, repair=repair)]
        _write(path, "".join(f"{line}\n" for line in lines))
    return 0


def _write(path: str | None, text: str) -> None:
    if path is None:
        click.echo(text, nl=False)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Stop(f"[ERROR] cannot write {path}: {error.strerror}") from None


# -- deeds ------------------------------------------------------------------------------------------------------------


def _execute(
    context: Context, described: Machines, units: Sequence[NewResource], append: str, *, repair: bool, columns: bool
) -> None:
    """Create or repair the resources, all or nothing.  Raises Stop, Busy."""
    act = machines.repair if repair else machines.create
    try:
        with context.database.begin() as tx:
            missing = machines.missing_properties(tx, described) if columns else {}
            types = {name: "character varying" if is_text else "integer" for name, is_text in missing.items()}
            act(tx, context.user, units, _appended(append, {**tx.resources.columns(), **types}), missing)
    except BadSettings as error:
        problem = error.problems[0]
        raise Stop(f"/!\\ Cannot update property {problem.name}: {problem.text or 'it cannot be set'}", 9) from None
    except NoSuchMachine as error:
        raise Stop(f"/!\\ {error}", error.exit_code) from None


def _appended(text: str, columns: Mapping[str, str]) -> Sequence[Setting]:
    """Return the settings of ``-p a=b -p c=d``.  Raises Stop, BadSettings."""
    try:
        arguments = shell_words(text)
    except BadRequest as error:
        raise Stop(f"[ERROR] --append {text}: {error}.") from None
    if len(arguments) % 2 or any(argument not in ("-p", "--property") for argument in arguments[::2]):
        raise Stop(f"[ERROR] only -p NAME=VALUE can be appended, not: {text}")
    return changes.sound([properties.parse_setting(argument, columns) for argument in arguments[1::2]])
