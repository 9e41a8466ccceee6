"""The state of each resource (grid), and the numbers of resources in each state (by a property)."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, cast

from pydantic import Field
from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.parameters import PRINTABLE
from oar.api.properties import Properties, check_property, choice_of, is_chosen, property_names
from oar.api.records import ConditionsAndStandby, Triple
from oar.api.routing import OF_RESOURCES, Router
from oar.api.service import Asking, asking
from oar.lib.bus.messages import Topic
from oar.lib.jobs.sql_listings import AlikeResources
from oar.lib.jobs.states import NOT_STARTED
from oar.lib.nodes.occupancy import Condition, Taken, condition, condition_of, next_free
from oar.lib.nodes.states import ResourceState
from oar.lib.nodes.views import ResourceView, reasons_by_node, resource_views

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

router = Router("nodes")


GridNode = TypedDict("GridNode", {"name": str, "marks": str, "held": list[Triple], "group": str | None})


class GridTotals(ConditionsAndStandby):
    pass


GridJob = TypedDict("GridJob", {"id": int, "user": str, "name": str | None, "queue": str})


class Grid(TypedDict):
    items: list[GridNode]
    letters: dict[str, str]
    total: GridTotals
    jobs: list[GridJob]
    reasons: dict[str, str]
    since: dict[str, int]
    properties: list[str]


class Group(ConditionsAndStandby):
    value: str
    total: int
    next_free: int | None


class Groups(TypedDict):
    items: list[Group]
    by: str | None
    properties: list[str]
    more: int
    pools: list[Group]


STANDBY = "standby"
#: The letter of each condition; an absent resource that is woken when a job needs it has one of its own.
LETTERS = {
    Condition.FREE: "f",
    Condition.USED: "u",
    Condition.RESERVED: "r",
    Condition.DRAINING: "d",
    STANDBY: "z",
    Condition.ABSENT: "a",
    Condition.SUSPECTED: "s",
    Condition.DEAD: "x",
}
#: Columns that determine the condition of a resource.
COLUMNS = ("resource_id", "network_address", "state", "available_upto", "drain")
Property = Annotated[str, Field(max_length=100, pattern=PRINTABLE, description="Resource property.")]


@router.get("/v1/grid", "grid", "State of each resource and its jobs", topics=OF_RESOURCES | {Topic.EVENTS})
def grid(request: Request, group: Property = "", props: Properties = []) -> Grid:  # noqa: B006 - nobody changes it
    """Return for each node the state letter of each resource, the jobs, and the value of the grouping property.

    `props` selects resources by property values. `reasons` are the reasons that administrators gave for a drain or a
    maintenance; `since` is the date since which a node is absent, suspected or dead. `held` lists jobs as triples:
    first resource, number of adjacent resources, job id.
    """
    return grid_record(asking(request), group, props)


def grid_record(who: Asking, group: str = "", props: Sequence[str] = ()) -> Grid:
    """Return the resources of nodes, all or those with some values of properties.  Raises BadRequest."""
    now = int(time.time())
    with who.database.snapshot() as tx:
        properties = property_names(tx)
        if group:
            check_property(group, properties)
        choice = choice_of(props, properties)
        columns = dict.fromkeys([*COLUMNS, *(f'"{name}"' for name in filter(None, [group, *choice]))])
        views = [view for view in resource_views(tx, columns=columns) if view.node and is_chosen(view.columns, choice)]
        reasons = reasons_by_node(tx, views)
        since = _since(tx, views, now)
        jobs = tx.jobs.select(sorted({job for view in views for job in view.jobs}))
    nodes = [_node(name, list(of_node), group, now) for name, of_node in groupby(views, key=lambda view: view.node)]
    numbers: Counter[str] = Counter()
    for node in nodes:
        numbers.update(node["marks"])
    return {
        "items": nodes,
        "letters": {letter: condition for condition, letter in LETTERS.items()},
        "total": cast("GridTotals", {condition: numbers[letter] for condition, letter in LETTERS.items()}),
        "jobs": [{"id": job.id, "user": job.user, "name": job.name, "queue": job.queue} for job in jobs],
        "reasons": reasons,
        "since": since,
        "properties": properties,
    }


def _since(tx: "Transaction", views: Sequence[ResourceView], now: int) -> dict[str, int]:
    """Return since when nodes are absent (unless they can be woken), suspected or dead, where that is known."""
    lost = {view.node for view in views if view.state is not ResourceState.ALIVE and not view.is_standby(now)}
    nodes = tx.listings.out_of_use({*ResourceState} - {ResourceState.ALIVE}) if lost else []
    return {node.node: node.since for node in nodes if node.node in lost and node.since}


def totals(who: Asking) -> dict[str, int]:
    """Return how many resources of nodes are in each condition; ``total`` of all."""
    now = int(time.time())
    with who.database.snapshot() as tx:
        groups = tx.listings.alike(now)
    numbers: Counter[str] = Counter()
    for group in groups:
        numbers[name_of(group)] += group.number
    return {"total": numbers.total(), **{name: numbers[name] for name in LETTERS}}


def name_of(alike: AlikeResources) -> str:
    """Return the condition of resources that are alike."""
    state = condition(alike.state, is_held=alike.is_held, is_reserved=alike.is_reserved, is_drained=alike.is_drained)
    return STANDBY if state is Condition.ABSENT and alike.can_be_woken else state


def _condition(view: ResourceView, now: int) -> str:
    return STANDBY if view.is_standby(now) else condition_of(view)


def _node(name: str, views: Sequence[ResourceView], group: str, now: int) -> GridNode:
    value = views[0].columns[group] if group else None
    return {
        "name": name,
        "marks": "".join(LETTERS[_condition(view, now)] for view in views),
        "held": list(_runs(views)),
        "group": None if value is None else str(value),
    }


def _runs(views: Sequence[ResourceView]) -> Iterator[tuple[int, int, int]]:
    """Yield each job on adjacent resources: the index of the first one, their number, the job."""
    places_of: dict[int, list[int]] = {}
    for index, view in enumerate(views):
        for job in view.jobs:
            places_of.setdefault(job, []).append(index)
    for job, places in sorted(places_of.items()):
        for _, run in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
            first, *others = (index for _, index in run)
            yield first, 1 + len(others), job


#: Values of a property in a response, at most.
MAX_GROUPS = 50
#: Running and planned jobs, at most, for which the next free date is computed.
MAX_JOBS = 5000
#: The end of all plans.
_END = 2**40
By = Annotated[Property, Field(description="Resource property; default: the one in the site's web.yaml.")]


@router.get("/v1/groups", "groups", "Resources in each state, grouped by a property")
def groups(request: Request, by: By = "") -> Groups:
    """Return for each value of a property the number of resources in each state, and when one becomes free.

    `next_free` is null if a resource is free or no date is known. `pools` are the same figures, by type, for resources
    without a node, such as licences.
    """
    who = asking(request)
    usual = request.app.state.site_file.choices(who.config.web_conf_file).group_by
    return groups_record(who, by, usual)


def groups_record(who: Asking, by: str, usual: str = "") -> Groups:
    """Return groups of resources; ``usual``: the property if none is named, ignored if there is none of this name.

    Raises BadRequest.
    """
    with who.database.snapshot() as tx:
        names = property_names(tx)
        if by:
            check_property(by, names)
        name = by or (usual if usual in names else "")
        items = _groups(tx, name, on_nodes=True) if name else []
        pools = _groups(tx, "type", on_nodes=False)
    return {
        "by": name or None,
        "properties": names,
        "items": items[:MAX_GROUPS],
        "more": len(items[MAX_GROUPS:]),
        "pools": pools,
    }


def _groups(tx: "Transaction", column: str, *, on_nodes: bool) -> list[Group]:
    """Return the numbers of resources by values of a column, and the next free date where none is free."""
    numbers: dict[str, Counter[str]] = {}
    for value, alike in tx.listings.alike_by(column, tx.now, on_nodes=on_nodes):
        numbers.setdefault(value, Counter())[name_of(alike)] += alike.number
    full = [value for value, counted in numbers.items() if not counted["free"]][:MAX_GROUPS]
    dates = _free_again(tx, column, full, on_nodes=on_nodes)
    return [
        {
            "value": value,
            "total": counted.total(),
            **cast("ConditionsAndStandby", {name: counted[name] for name in LETTERS}),
            "next_free": dates.get(value),
        }
        for value, counted in sorted(numbers.items())
    ]


def _free_again(tx: "Transaction", column: str, full: Sequence[str], *, on_nodes: bool) -> dict[str, int | None]:
    """Return when the first resource of each value is free that could be used."""
    usable = tx.listings.usable_by(column, full, on_nodes=on_nodes) if full else {}
    if not usable:
        return {}
    resources = sorted(number for numbers in usable.values() for number in numbers)
    jobs = [job for job in tx.gantt_days.on(resources, tx.now, _END, MAX_JOBS) if not job.stop]
    planned = [job for job in jobs if job.state in NOT_STARTED]
    if MAX_JOBS in (len(planned), len(jobs) - len(planned)):
        return {}
    taken = [Taken(job.start, job.latest_end, job.resources) for job in jobs]
    taken += [
        Taken(reservation.start, reservation.end, reservation.resources) for reservation in tx.reservations.planned()
    ]
    return {value: next_free(numbers, taken, tx.now) for value, numbers in usable.items()}
