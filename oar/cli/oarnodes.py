"""oarnodes: the resources, their states, the jobs and the events on nodes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

from oar.cli.common import render
from oar.cli.common.command import DIGITS, Context, machine_formats, oar_command, option, optional_argument
from oar.lib.db.transaction import Transaction
from oar.lib.facts.errors import BadRequest
from oar.lib.facts.formats import Format, dump
from oar.lib.facts.times import parse_date
from oar.lib.views.nodes import ResourceView, jobs_on_nodes, resource_views

NOTHING = "/!\\ No nodes to display..."
LAST_EVENTS = 20  #: per node, where neither a date nor a number is given


@oar_command("oarnodes", summary="Show the resources of all nodes, or of those that are named.")
@option("-a", "--all", is_flag=True, expose_value=False, help="All resources with their properties (default).")
@optional_argument("-r", "--resource", "resources", numeric=True, metavar="[ID]", help="This resource; all without ID.")
@option("-s", "--state", is_flag=True, help="The states only.")
@option("-l", "--list", "names_only", is_flag=True, help="The names of the nodes only.")
@option("-j", "--jobs", is_flag=True, help="The jobs on the nodes.")
@optional_argument("-e", "--events", metavar="[DATE|last|last N]", help="The events of the nodes since a date.")
@option("--summary", is_flag=True, help="How many resources of each node are free, used, out of service.")
@option("--free", "free_only", is_flag=True, help="Only the resources on which a job could start now.")
@option("--sql", metavar="CONDITION", help="The resources that satisfy a condition of SQL.")
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
    free_only: bool,
    sql: str | None,
    machine: Format | None,
    nodes: tuple[str, ...],
) -> None:
    """Check what goes together, then show."""
    by_resource = bool(resources) or sql is not None
    asked = {"node names": nodes, "--events": events, "--jobs": jobs, "--list": names_only, "--state": state}
    _exclude("--resource and --sql" if by_resource else "", asked, ("node names", "--events", "--jobs", "--list"))
    _exclude("--summary" if summary else "", asked, ("--events", "--jobs", "--list", "--state"))
    _exclude("--free" if free_only else "", asked, ("--events", "--jobs"))
    ids = _ids(context, resources, sql)
    events_asked, nodes = _events_asked(events, nodes)
    with context.database.snapshot() as tx:
        if events_asked or (names_only and not free_only):
            names = [node for node in tx.resources.nodes() if not nodes or node in nodes]
            text = _events(tx, names, events_asked, machine) if events_asked else _names(names, machine)
            is_empty = not names
        else:
            states_only = state and not (jobs or free_only)
            shown = resource_views(tx, ids=ids, nodes=nodes or None, states_only=states_only)
            is_empty = not shown
            if free_only:
                shown = _free(shown)
            if summary:
                text = _summary(shown, machine)
            elif names_only:
                text = _names(sorted({each.node for each in shown if each.node}), machine)
            elif jobs:
                text = _jobs(tx, shown, machine)
            elif state:
                text = _states(shown, machine, by_resource=by_resource)
            else:
                text = _full(shown, tx.now, machine, properties_only=by_resource and ids is None)
        unknown = [] if machine else _unknown(tx, nodes)
    click.echo(text, nl=False)
    for complaint in unknown:
        context.warn(complaint)
    if is_empty and not by_resource:
        click.echo(NOTHING, err=True)


def _exclude(option: str, asked: Mapping[str, object], others: Sequence[str]) -> None:
    """Refuse what cannot stand beside an option ('' if it is not given).  Raises BadRequest."""
    for name in others if option else ():
        if asked[name]:
            raise BadRequest(f"{option} cannot be combined with {name}")


def _unknown(tx: Transaction, nodes: Sequence[str]) -> list[str]:
    """Return what there is to say of names that no node has."""
    known = tx.resources.nodes() if nodes else []
    missing = sorted(set(nodes).difference(known))
    if not missing:
        return []
    from oar.lib.facts.did_you_mean import did_you_mean

    return [f"node {render.visible(name)} does not exist.{did_you_mean(name, known)}" for name in missing]


def _ids(context: Context, resources: Sequence[int | None], sql: str | None) -> list[int] | None:
    """Return the resources that are named or satisfy the condition; None for all.  Raises BadCondition."""
    ids = [number for number in resources if number is not None and number < 2**31]
    if sql is None:
        return None if None in resources or not resources else ids
    from oar.lib.db.user_sql import Subject, evaluate

    matching = evaluate(context.database, Subject.RESOURCES, sql, context.asker)
    return sorted(set(matching).intersection(ids)) if resources and None not in resources else matching


class EventsAsked(NamedTuple):
    """Which events of nodes: the last ones of each, or those since a date."""

    last: int = LAST_EVENTS
    since: int | None = None


def _events_asked(given: Sequence[str | None], nodes: tuple[str, ...]) -> tuple[EventsAsked | None, tuple[str, ...]]:
    """Return what -e means, and the words that are nodes: a number behind ``last`` is not one.  Raises BadRequest."""
    if not given:
        return None, nodes
    text = given[-1]
    if text is None:
        return EventsAsked(), nodes
    word, *rest = text.split()
    if word != "last":
        return EventsAsked(since=parse_date(text)), nodes
    if not rest and nodes and DIGITS.issuperset(nodes[0]):
        rest, nodes = [nodes[0]], nodes[1:]
    if not rest:
        return EventsAsked(), nodes
    if len(rest) > 1 or not DIGITS.issuperset(rest[0]):
        raise BadRequest(f"--events takes a date, last, or last and a number, not '{text}'")
    return EventsAsked(last=min(int(rest[0][:10]), 1_000_000)), nodes


# -------------------------------------------------------------------------------------------------------------- texts


def _full(shown: Sequence[ResourceView], now: int, machine: Format | None, *, properties_only: bool) -> str:
    if machine is Format.YAML:
        return dump({each.id: _with_plain_job(each) for each in shown}, machine)
    if machine:
        return dump({each.id: each.record for each in shown}, machine, one_line=True)
    if properties_only:
        return "".join(render.properties_line(each) for each in shown)
    return render.full_resources(shown, now)


def _with_plain_job(resource: ResourceView) -> dict[str, object]:
    """Return the record with a single job as a number: readers of YAML expect it without quotes."""
    record = resource.record
    return {**record, "jobs": resource.jobs[0]} if len(resource.jobs) == 1 else record


def _states(shown: Sequence[ResourceView], machine: Format | None, *, by_resource: bool) -> str:
    if not machine:
        return render.resource_states(shown) if by_resource else render.node_states(shown)
    if by_resource:
        return dump({each.id: each.state for each in shown}, machine, one_line=True)
    nodes: dict[str, dict[int, str]] = {}
    for each in shown:
        nodes.setdefault(each.node, {})[each.id] = each.state
    return dump(nodes, machine, one_line=True)


def _free(shown: Sequence[ResourceView]) -> list[ResourceView]:
    from oar.lib.views.occupancy import Condition, condition_of

    return [each for each in shown if condition_of(each) is Condition.FREE]


def _summary(shown: Sequence[ResourceView], machine: Format | None) -> str:
    from oar.cli import oarnodes_summary
    from oar.lib.views import occupancy

    nodes = occupancy.by_node(shown)
    if machine:
        return dump({each.node: each.record for each in nodes}, machine, one_line=True)
    return oarnodes_summary.table(nodes)


def _names(names: Sequence[str], machine: Format | None) -> str:
    return dump(names, machine, one_line=True) if machine else render.node_names(names)


def _jobs(tx: Transaction, shown: Sequence[ResourceView], machine: Format | None) -> str:
    nodes = jobs_on_nodes(tx, shown)
    if not machine:
        return render.node_jobs(nodes)
    records = {node: {each.job.id: each.record for each in jobs} for node, jobs in nodes.items()}
    return dump(records, machine, one_line=True)


def _events(tx: Transaction, names: Sequence[str], asked: EventsAsked, machine: Format | None) -> str:
    if asked.since is None:
        found = tx.events.of_nodes(names, last=asked.last)
    else:
        found = tx.events.of_nodes(names, since=asked.since)
    events = {node: found[node] for node in names if node in found}
    if not machine:
        return render.node_events(events)
    from oar.lib.views.events import event_record

    records = {node: [{**event_record(each), "hostname": node} for each in some] for node, some in events.items()}
    return dump(records, machine, one_line=True)
