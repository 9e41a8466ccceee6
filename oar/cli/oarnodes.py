"""oarnodes: the resources, their states, the jobs and the events on nodes."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from oar.cli.common import render
from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import DIGITS, Join, machine_formats, option, optional_argument
from oar.lib.base.errors import BadRequest
from oar.lib.base.formats import Format, dump
from oar.lib.base.times import parse_date
from oar.lib.db.transaction import Transaction
from oar.lib.nodes.views import ResourceView, jobs_on_nodes, node_reasons, reasons_by_node, resource_views

if TYPE_CHECKING:
    from oar.lib.nodes.occupancy import NodeOccupancy

NOTHING = "/!\\ No nodes to display..."
#: What shows something else than reasons.
_NO_REASONS = ("--events", "--jobs", "--list", "--state", "--summary", "--free")
LAST_EVENTS = 20  #: per node, where neither a date nor a number is given


@oar_command(
    "oarnodes",
    summary="Show the resources of all nodes, or of the given nodes.",
    examples={
        "oarnodes --summary": "Count the free, used and unavailable resources of each node.",
        "oarnodes --reasons": "List the nodes that accept no jobs, and the reasons.",
        "oarnodes --sql \"network_address like 'node-%'\" -s": "Print the states of selected resources.",
    },
)
@option("-a", "--all", is_flag=True, expose_value=False, help="Show all resources with their properties (default).")
@optional_argument(
    "-r", "--resource", "resources", numeric=True, metavar="[ID]", help="Show this resource (default: all)."
)
@option("-s", "--state", is_flag=True, help="Show the states only.")
@option("-l", "--list", "names_only", is_flag=True, help="Show the names of the nodes only.")
@option("-j", "--jobs", is_flag=True, help="Show the jobs on the nodes.")
@optional_argument("-e", "--events", metavar="[DATE|last|last N]", help="Show the events of the nodes since a date.")
@option("--summary", is_flag=True, help="Count the free, used and unavailable resources of each node.")
@option("--reasons", "with_reasons", is_flag=True, help="Show why nodes accept no jobs: state, start, author, reason.")
@option("--free", "free_only", is_flag=True, help="Show only the resources on which a job could start now.")
@option("--sql", join=Join.CONDITION, metavar="CONDITION", help="Show the resources that match an SQL condition.")
@machine_formats
@click.argument("nodes", nargs=-1)
def main(
    context: Context,
    *,
    resources: tuple[int | None, ...],
    state: bool,
    names_only: bool,
    jobs: bool,
    events: tuple[str | None, ...],
    summary: bool,
    with_reasons: bool,
    free_only: bool,
    sql: str | None,
    machine: Format | None,
    nodes: tuple[str, ...],
) -> None:
    """Check what goes together, then show."""
    by_resource = bool(resources) or sql is not None
    options = {"node names": nodes, "--events": events, "--jobs": jobs, "--list": names_only, "--state": state}
    _exclude(
        "--resource and --sql" if by_resource else "", options, ("node names", "--events", "--jobs", "--list"), nodes
    )
    _exclude("--summary" if summary else "", options, ("--events", "--jobs", "--list", "--state"))
    _exclude("--reasons" if with_reasons else "", {**options, "--summary": summary, "--free": free_only}, _NO_REASONS)
    _exclude("--free" if free_only else "", options, ("--events", "--jobs"))
    ids = _ids(context, resources, sql)
    lacking: list[str] = []
    with context.database.snapshot() as tx:
        event_range, nodes = _event_range(events, nodes, tx.now)
        if event_range or (names_only and not free_only):
            names = [node for node in tx.resources.nodes() if not nodes or node in nodes]
            with_types = context.user.is_admin
            text = (
                _events(tx, names, event_range, machine, with_types=with_types)
                if event_range
                else _names(names, machine)
            )
            is_empty = not names
        else:
            states_only = state and not (jobs or free_only)
            views = resource_views(tx, ids=ids, nodes=nodes or None, states_only=states_only)
            is_empty = not views
            lacking += [] if machine or sql else _lacking(resources, views)
            if free_only:
                from oar.lib.nodes.occupancy import Condition, condition_of

                views = [view for view in views if condition_of(view) is Condition.FREE]
            if with_reasons:
                text = _reasons(tx, views, machine)
            elif summary:
                text = _summary(tx, views, machine)
            elif names_only:
                text = _names(sorted({resource.node for resource in views if resource.node}), machine)
            elif jobs:
                text = _jobs(tx, views, machine)
            elif state:
                text = _states(views, machine, by_resource=by_resource)
            else:
                text = _full(views, tx.now, machine, properties_only=by_resource and ids is None)
        lacking += [] if machine else _unknown(tx, nodes)
    click.echo(text, nl=False)
    for complaint in lacking:
        context.warn(complaint)
    if is_empty and not by_resource:
        click.echo(NOTHING, err=True)


def _exclude(option: str, options: Mapping[str, object], others: Sequence[str], nodes: Sequence[str] = ()) -> None:
    """Reject options that an option excludes ('': it is not given).  Raises BadRequest."""
    for name in others if option else ():
        if options[name]:
            which = f': "{render.visible(nodes[0])}"' if name == "node names" and nodes else ""
            raise BadRequest(f"{option} cannot be combined with {name}{which}")


def _lacking(numbers: Sequence[int | None], resources: Sequence[ResourceView]) -> list[str]:
    if None in numbers:
        return []
    existing = {resource.id for resource in resources}
    missing = {number for number in numbers if number is not None and number not in existing}
    return [f"resource {number} does not exist." for number in sorted(missing)]


def _unknown(tx: Transaction, nodes: Sequence[str]) -> list[str]:
    """Return the complaints about names that no node has."""
    node_names = tx.resources.nodes() if nodes else []
    missing = sorted(set(nodes).difference(node_names))
    if not missing:
        return []
    from oar.lib.base.texts import did_you_mean

    return [f"node {render.visible(name)} does not exist.{did_you_mean(name, node_names)}" for name in missing]


def _ids(context: Context, resources: Sequence[int | None], sql: str | None) -> list[int] | None:
    """Return the resources that are named or satisfy the condition; None for all.  Raises BadCondition."""
    ids = [number for number in resources if number is not None and number < 2**31]
    if sql is None:
        return None if None in resources or not resources else ids
    from oar.lib.db.user_sql import Subject, evaluate

    matching = evaluate(context.database, Subject.RESOURCES, sql, context.asker)
    return sorted(set(matching).intersection(ids)) if resources and None not in resources else matching


class EventRange(NamedTuple):
    """Which events of nodes: the last ones of each, or those since a date."""

    last: int = LAST_EVENTS
    since: int | None = None


def _event_range(
    values: Sequence[str | None], nodes: tuple[str, ...], now: int
) -> tuple[EventRange | None, tuple[str, ...]]:
    """Return the range that -e names, and the nodes without the number that belongs to ``last``.  Raises BadRequest."""
    if not values:
        return None, nodes
    text = values[-1]
    if text is None:
        return EventRange(), nodes
    keyword, *counts = text.split()
    if keyword != "last":
        return EventRange(since=parse_date(text, now, is_past=True)), nodes
    if not counts and nodes and DIGITS.issuperset(nodes[0]):
        counts, nodes = [nodes[0]], nodes[1:]
    if not counts:
        return EventRange(), nodes
    if len(counts) > 1 or not DIGITS.issuperset(counts[0]):
        raise BadRequest(f"--events takes a date, last, or last and a number, not '{text}'")
    return EventRange(last=min(int(counts[0][:10]), 1_000_000)), nodes


# -------------------------------------------------------------------------------------------------------------- texts


def _full(shown: Sequence[ResourceView], now: int, machine: Format | None, *, properties_only: bool) -> str:
    if machine is Format.YAML:
        return dump({resource.id: _with_plain_job(resource) for resource in shown}, machine)
    if machine:
        return dump({resource.id: resource.record for resource in shown}, machine, one_line=True)
    if properties_only:
        return "".join(render.properties_line(resource) for resource in shown)
    return render.full_resources(shown, now)


def _with_plain_job(resource: ResourceView) -> dict[str, object]:
    """Return the record with a single job as a number: readers of YAML expect it without quotes."""
    record = resource.record
    return {**record, "jobs": resource.jobs[0]} if len(resource.jobs) == 1 else record


def _states(resources: Sequence[ResourceView], machine: Format | None, *, by_resource: bool) -> str:
    if not machine:
        return render.resource_states(resources) if by_resource else render.node_states(resources)
    if by_resource:
        return dump({resource.id: resource.state for resource in resources}, machine, one_line=True)
    nodes: dict[str, dict[int, str]] = {}
    for resource in resources:
        nodes.setdefault(resource.node, {})[resource.id] = resource.state
    return dump(nodes, machine, one_line=True)


def _summary(tx: Transaction, shown: Sequence[ResourceView], machine: Format | None) -> str:
    """Return the occupancy of each node and of all, with the reasons why nodes are drained or in maintenance."""
    from oar.lib.nodes import occupancy

    nodes, reasons = occupancy.by_node(shown), reasons_by_node(tx, shown)
    if machine:
        records = {node.node: {**node.record, "reason": reasons.get(node.node)} for node in nodes}
        return dump(records, machine, one_line=True)
    if not nodes:
        return ""
    width = max(len("total"), *(len(render.visible(node.node)) for node in nodes))
    lines = [_summary_line(node, width, reasons.get(node.node, "")) for node in nodes]
    if len(nodes) > 1:
        lines.append(_summary_line(occupancy.total(nodes), width, ""))
    head = " ".join(f"{word:>9}" for word in ("total", "reserved", *occupancy.SHOWN))
    return f"{'Node':<{width}} {head}\n" + "".join(lines)


def _summary_line(node: "NodeOccupancy", width: int, reason: str) -> str:
    """Return the line of a node; zeros are shown as dashes."""
    cells = " ".join(f"{number or '-':>9}" for number in node.shown)
    notes = ": ".join(filter(None, ("no new jobs" if node.is_draining else "", render.visible(reason))))
    return f"{render.visible(node.node):<{width}} {cells}{f'  {notes}' if notes else ''}\n"


def _reasons(tx: Transaction, shown: Sequence[ResourceView], machine: Format | None) -> str:
    reasons = node_reasons(tx, shown)
    return dump([reason._asdict() for reason in reasons], machine) if machine else render.node_reasons(reasons)


def _names(names: Sequence[str], machine: Format | None) -> str:
    return dump(names, machine, one_line=True) if machine else render.node_names(names)


def _jobs(tx: Transaction, shown: Sequence[ResourceView], machine: Format | None) -> str:
    nodes = jobs_on_nodes(tx, shown)
    if not machine:
        return render.node_jobs(nodes)
    records = {node: {job.job.id: job.record for job in jobs} for node, jobs in nodes.items()}
    return dump(records, machine, one_line=True)


def _events(
    tx: Transaction, names: Sequence[str], event_range: EventRange, machine: Format | None, *, with_types: bool
) -> str:
    """Return events of nodes; ``with_types``: readers at a terminal also see the types."""
    if event_range.since is None:
        events_by_node = tx.events.of_nodes(names, last=event_range.last)
    else:
        events_by_node = tx.events.of_nodes(names, since=event_range.since)
    events = {node: events_by_node[node] for node in names if node in events_by_node}
    if not machine and sys.stdout.isatty():
        from oar.cli.common import event_story

        return event_story.node_story(events, with_types=with_types)
    if not machine:
        return render.node_events(events)
    from oar.lib.history.views import event_record

    records = {
        node: [{**event_record(event), "hostname": node} for event in node_events]
        for node, node_events in events.items()
    }
    return dump(records, machine, one_line=True)
