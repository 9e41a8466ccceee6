"""oarnodesetting: adds resources, sets their states and properties."""

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import click

from oar.cli.common.administration import note, warn
from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import show_usage
from oar.cli.common.options import ADMIN, NUMBER, Join, Stop, option
from oar.lib.jobs.end_listener import EndListener
from oar.lib.jobs.states import FINAL
from oar.lib.nodes import changes, state_changes
from oar.lib.nodes.changes import BadSettings, NodeChange
from oar.lib.nodes.properties import PropertyProblem, Setting, SettingError
from oar.lib.nodes.reserved import WouldBreak
from oar.lib.nodes.states import ResourceState

USAGE, NOTHING_SELECTED, SOME_UNKNOWN, UNKNOWN_NODE = 1, 2, 3, 4
JOBS_LEFT, EMPTY_CONDITION, NO_FILE, SEVERAL = 11, 12, 13, 15
CODES = {SettingError.SYSTEM: 8, SettingError.VALUE: 9, SettingError.SYNTAX: 10}

#: Default timeout in seconds for the end of each job.
PATIENCE = 30
#: Seconds between two checks of an ending job, without and with notifications.
LOOK, LOOK_IF_TOLD = 0.2, 1.0

#: Digits of the longest resource id, and how many resources one range may name.
LONGEST_ID = 9
LONGEST_RANGE = 1_000_000

_SWITCH = ("on", "off")
_SAID_BY_NODES = (ResourceState.ALIVE, ResourceState.ABSENT)


@dataclass(slots=True)
class Targets:
    """The resources that are meant."""

    names: dict[str, list[int]]  #: by node, or by '' when resources were given
    by_node: bool
    codes: list[int] = field(default_factory=list)  #: of what was not found

    @property
    def ids(self) -> list[int]:
        return sorted({resource for ids in self.names.values() for resource in ids})


@oar_command(
    "oarnodesetting",
    summary="Add resources, set their states and properties.",
    examples={
        "oarnodesetting -h node-1 --drain on --reason 'firmware update'": "Start no new jobs on a node.",
        "oarnodesetting -h node-1 --maintenance off": "Return a node to service after maintenance.",
        "oarnodesetting --sql \"host like 'node-%'\" -p mem=64": "Set a property of selected resources.",
    },
    style=ADMIN,
    help_names=("--help",),
)
@option("-a", "--add", is_flag=True, help="Create a resource for each host.")
@option("-h", "--hostname", "hosts", multiple=True, metavar="NAME,...", help="Hosts (default: this host).")
@option("-f", "--file", "path", metavar="FILE", help="File with host names, one per line.")
@option("-r", "--resource", "ranges", multiple=True, metavar="ID,...", help="Resource ids and ranges such as 3-8.")
@option("--sql", join=Join.CONDITION, metavar="SQL", help="Resources that match this SQL condition.")
@option("-s", "--state", metavar="STATE", help="Alive, Absent, Dead or Suspected.")
@option("-m", "--maintenance", "--care", "maintenance", metavar="on|off", help="Start or end maintenance.")
@option("-d", "--drain", metavar="on|off", help="on: start no new jobs; off: start jobs again.")
@option("--reason", metavar="TEXT", help="Reason of -s, -d on or -m on, shown by oarnodes --reasons.")
@option("-p", "--property", "texts", multiple=True, metavar="NAME=VALUE", help="Set a property; NAME! unsets it.")
@option("-n", "--no-wait", is_flag=True, help="Return without waiting for the end of the jobs on the resources.")
@option(
    "--wait", "patience", type=NUMBER, default=PATIENCE, metavar="SECONDS", help="Wait at most this long for each job."
)
@option("--from-node", "from_node", is_flag=True, help="With -s: the host reports its own shutdown or return.")
@option("--force", is_flag=True, help="Change resources even if that breaks an advance reservation.")
@option("--last-property-value", "last", metavar="NAME", help="Print the largest value of a property.")
def main(
    context: Context,
    *,
    add: bool,
    hosts: tuple[str, ...],
    path: str | None,
    ranges: tuple[str, ...],
    sql: str | None,
    state: str | None,
    maintenance: str | None,
    drain: str | None,
    reason: str | None,
    texts: tuple[str, ...],
    no_wait: bool,
    patience: int,
    from_node: bool,
    force: bool,
    last: str | None,
) -> int:
    """Execute the requested changes."""
    if last is not None:
        return _print_last_value(context, last)
    context.require_admin()
    by_resource = bool(ranges) or sql is not None
    if by_resource and add:
        raise Stop("/!\\ You cannot use -r|--resource or --sql and -a|--add options at a same time")
    if by_resource and (hosts or path):
        raise Stop("/!\\ You cannot use -r|--resource or --sql and -h|--hostname or -f|--file options at a same time")
    if not (add or state or maintenance or drain or texts or reason):
        return show_usage()
    if from_node and (by_resource or add or maintenance or drain or texts or reason or state not in _SAID_BY_NODES):
        raise Stop("/!\\ --from-node requires host names and -s Alive or -s Absent, and excludes all other options")
    try:
        change_request = _change_request(context, state, maintenance, drain, texts)._replace(
            is_forced=force, reason=reason or ""
        )
        names = [] if by_resource else _names(hosts, path)
        if add:
            return _add(context, names, change_request)
        targets = _by_id(context, ranges, sql, change_request) if by_resource else _by_name(context, names)
        if not targets.ids:
            return _code(targets.codes) or NOTHING_SELECTED
        change = _note_words if from_node else _change
        return change(context, targets, change_request, 0 if no_wait else patience)
    except BadSettings as error:
        return _tell(error.problems)


def _print_last_value(context: Context, name: str) -> int:
    """Print the largest value of a property, under the login that may only read."""
    with context.database.readonly() as tx:
        value = tx.nodes.largest_value(name.lower()) if name.lower() in tx.resources.columns() else None
    if value is None:
        click.echo(
            f"# Warning: Cannot retrieve the last value for {name}."
            " Either no resource or no such property exists (yet).",
            err=True,
        )
    else:
        click.echo(value)
    return 0


# -- requests ---------------------------------------------------------------------------------------------------------


def _change_request(
    context: Context, state: str | None, maintenance: str | None, drain: str | None, texts: Sequence[str]
) -> NodeChange:
    """Check the request before anything is written.  Raises Stop, BadSettings."""
    if state is not None and state not in list(ResourceState):
        raise Stop(f"/!\\ Bad state value. Possible values are: Alive | Absent | Dead | Suspected, not {state}")
    if maintenance is not None and maintenance not in _SWITCH:
        raise Stop(f"/!\\ Bad maintenance mode value. Possible values are: on | off, not {maintenance}")
    if drain is not None and drain not in _SWITCH:
        raise Stop(f"/!\\ Bad drain mode value. Possible values are: on | off, not {drain}")
    if drain:
        texts = [*texts, f"drain={'YES' if drain == 'on' else 'NO'}"]
    with context.database.snapshot() as tx:
        settings = changes.settings_of(tx, texts)
    return NodeChange(
        ResourceState(state) if state else None, None if maintenance is None else maintenance == "on", settings
    )


def _tell(problems: Sequence[PropertyProblem]) -> int:
    """Print the problems of properties; return the exit code."""
    for problem in problems:
        match problem.kind:
            case SettingError.SYNTAX:
                warn([f"Bad property syntax: {problem.name}"])
            case SettingError.SYSTEM:
                warn([f"Cannot update property {problem.name} because it is a system field."])
            case SettingError.VALUE:
                warn([f"Cannot update property {problem.name}: {problem.text}"])
    return _code([CODES[problem.kind] for problem in problems])


def _code(codes: Sequence[int]) -> int:
    """Return the exit code of failures: their code, or the code for different failures."""
    different = set(codes) - {0}
    return SEVERAL if len(different) > 1 else max(different, default=0)


# -- which resources --------------------------------------------------------------------------------------------------


def _names(hosts: Sequence[str], path: str | None) -> list[str]:
    """Return the names of the hosts that are meant, each once.  Raises Stop."""
    names = [name.strip() for text in hosts for name in text.split(",")]
    if path is not None:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in file]
        except OSError:
            raise Stop(f"/!\\ Cannot open the file {path}.", NO_FILE) from None
        names += [line for line in lines if line and not line.startswith("#")]
    if not hosts and path is None:
        names = [socket.gethostname()]
    return list(dict.fromkeys(names))


def _ids(ranges: Sequence[str]) -> list[int]:
    """Return the ids of ``1,3-8``.  Raises Stop."""
    ids: list[int] = []
    for id_range in (id_range.strip() for text in ranges for id_range in text.split(",")):
        first, dash, last = id_range.partition("-")
        ends = (first, last if dash else first)
        if not all(end.isascii() and end.isdigit() and len(end) <= LONGEST_ID for end in ends):
            raise Stop(f'/!\\ "{id_range}" is not a resource identifier')
        if int(ends[1]) - int(ends[0]) >= LONGEST_RANGE:
            raise Stop(f'/!\\ "{id_range}" is more resources than allowed')
        ids += range(int(ends[0]), int(ends[1]) + 1)
    return list(dict.fromkeys(ids))


def _by_id(context: Context, ranges: Sequence[str], sql: str | None, change_request: NodeChange) -> Targets:
    """Return the resources that were named by id or by a condition.  Raises Stop, BadCondition."""
    ids = _ids(ranges)
    if sql is not None:
        from oar.lib.db.user_sql import Subject, evaluate

        matching = evaluate(context.database, Subject.RESOURCES, sql, context.asker)
        if not matching and not ids:
            raise Stop("/!\\ Your SQL clause returns nothing and there is no resource specified.", EMPTY_CONDITION)
        ids = list(dict.fromkeys([*ids, *matching]))
    with context.database.snapshot() as tx:
        existing = tx.resources.existing(ids)
    missing = sorted(set(ids) - set(existing))
    if missing and change_request.is_maintained is not None:
        warn(f"The resource {resource} does not exist in OAR database." for resource in missing)
        return Targets({"": existing}, False, [USAGE])
    if not existing:
        warn(["Cannot find resources to set in OAR database."])
        return Targets({}, False, [NOTHING_SELECTED])
    if missing:
        warn([f" {len(missing)} resource(s) cannot be updated."])
    return Targets({"": existing}, False, [SOME_UNKNOWN] if missing else [])


def _by_name(context: Context, names: Sequence[str]) -> Targets:
    with context.database.snapshot() as tx:
        ids_by_node = tx.resources.ids_of_nodes(names)
    missing = [name for name in names if name not in ids_by_node]
    warn(f"Node {name} does not exist in OAR database." for name in missing)
    ids = {name: ids_by_node[name] for name in names if name in ids_by_node}
    return Targets(ids, True, [UNKNOWN_NODE] * len(missing))


# -- changes ----------------------------------------------------------------------------------------------------------


def _add(context: Context, names: Sequence[str], change_request: NodeChange) -> int:
    """Create a resource for each name.  Raises BadSettings."""
    with context.database.begin() as tx:
        changes.add(tx, context.user, names, change_request)
    for name in names:
        click.echo(f"New resource added:  {name}")
        _print_settings(change_request.settings, dict.fromkeys(change_request.values, 1))
    note(context)
    return 0


def _change(context: Context, targets: Targets, change_request: NodeChange, patience: int) -> int:
    """Change existing resources in one transaction; then wait for the jobs that must end."""
    try:
        with context.database.begin() as tx:
            doomed = {label: list(state_changes.doomed(tx, ids)) for label, ids in _labelled(targets).items()}
            counts = changes.change_resources(tx, context.user, targets.ids, change_request)
    except WouldBreak as refused:
        raise Stop(str(refused), refused.exit_code) from None
    note(context)
    _print(targets, change_request, counts)
    codes = list(targets.codes)
    if patience and change_request.ends_jobs:
        codes += _wait(context, doomed, patience)
    if change_request.state is ResourceState.ALIVE and not targets.by_node:
        click.echo("Done")
    return _code(codes)


def _note_words(context: Context, targets: Targets, change_request: NodeChange, _patience: int) -> int:
    """Do what nodes say of themselves; what an administrator decided of them stays, and no job is waited for."""
    say = state_changes.welcome if change_request.state is ResourceState.ALIVE else state_changes.take_leave
    with context.database.begin() as tx:
        changed = {name: say(tx, name) for name in targets.names}
    note(context)
    for name, ids in changed.items():
        click.echo(f"{name} --> {change_request.state}" if ids else f"{name} stays as it is")
    return _code(targets.codes)


def _labelled(targets: Targets) -> Mapping[str, list[int]]:
    """Return the resources under what the user reads: the node, or each resource by itself."""
    if targets.by_node:
        return {f"node {name}": ids for name, ids in targets.names.items()}
    return {f"resource {resource}": [resource] for resource in targets.ids}


def _print(targets: Targets, change_request: NodeChange, counts: Mapping[str, int]) -> None:
    if change_request.state and targets.by_node:
        for name in targets.names:
            click.echo(f"{name} --> {change_request.state}")
    elif change_request.state:
        click.echo(f"({','.join(str(resource) for resource in targets.ids)}) --> {change_request.state}")
    if change_request.is_maintained is not None:
        for resource in targets.ids:
            click.echo(
                f'Maintenance mode set to "{"ON" if change_request.is_maintained else "OFF"}" on resource {resource}'
            )
    _print_settings(change_request.settings, counts)


def _print_settings(settings: Sequence[Setting], counts: Mapping[str, int]) -> None:
    for name, value in settings:
        change = f"Unset property {name}" if value is None else f"Set property {name} to {str(value)!r}"
        click.echo(f"{change}... {counts[name]} resource(s) updated.")


def _wait(context: Context, doomed: Mapping[str, Sequence[int]], patience: int) -> list[int]:
    """Print the ends of the jobs; return the codes of those that do not end in time."""
    codes = []
    with EndListener(context.database) as listener:
        for label, jobs in doomed.items():
            click.echo(f"Check jobs to delete on {label}:")
            for job_id in jobs:
                click.echo(f"\t{job_id} ", nl=False)
                ended = _await_end(context, listener, job_id, patience)
                click.echo(" Deleted" if ended else " Timeout")
                codes += [] if ended else [JOBS_LEFT]
    click.echo("Check done")
    return codes


def _await_end(context: Context, listener: EndListener, job_id: int, patience: int) -> bool:
    """Wait for the end of a job, a dot for each second; whether it came."""
    begin, dots = time.monotonic(), 0
    while True:
        pause = LOOK_IF_TOLD if listener.listen() else LOOK
        with context.database.snapshot() as tx:
            state = tx.jobs.states([job_id]).get(job_id)
        if state is None or state in FINAL:
            return True
        waited = time.monotonic() - begin
        if waited >= patience:
            return False
        if waited > dots + 1:
            click.echo(".", nl=False)
            dots += 1
        listener.wait([job_id], min(pause, patience - waited))
