"""All resources of all nodes in few bytes: a letter for the condition of each, and the jobs on them."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from fastapi import APIRouter, Query, Request

from oar.api.nodes.chosen_properties import Properties, check_property, choice_of, is_chosen, property_names
from oar.api.parameters import PRINTABLE
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking
from oar.lib.db.jobs.listings import AlikeResources
from oar.lib.facts.states import ResourceState
from oar.lib.views import node_reasons
from oar.lib.views.nodes import ResourceView, resource_views
from oar.lib.views.occupancy import Condition, condition, condition_of

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

router = APIRouter(tags=["nodes"], route_class=ApiRoute)

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
#: What tells the condition of a resource.
COLUMNS = ("resource_id", "network_address", "state", "available_upto", "drain")
Property = Annotated[str, Query(max_length=100, pattern=PRINTABLE, description="Resource property.")]


class NodeMarks(TypedDict):
    """A node in few bytes."""

    name: str
    marks: str
    held: list[tuple[int, int, int]]
    group: str | None


@router.get("/v1/grid", operation_id="grid", summary="State of each resource and its jobs")
def grid(request: Request, group: Property = "", props: Properties = []) -> Answer:  # noqa: B006 - nobody changes it
    """Return for each node the state letter of each resource, the jobs, and the value of the grouping property.

    `props` selects resources by property values. `reasons` are the reasons that administrators gave for a drain or a
    maintenance; `since` is the date since which a node is absent, suspected or dead. `held` lists jobs as triples:
    first resource, number of adjacent resources, job id.
    """
    return answer_unless_known(request, grid_record(asking(request), group, props))


def grid_record(who: Asking, group: str = "", props: Sequence[str] = ()) -> dict[str, Any]:
    """Return the resources of nodes, all or those that are chosen by values of properties.  Raises BadRequest."""
    now = int(time.time())
    with who.database.snapshot() as tx:
        properties = property_names(tx)
        if group:
            check_property(group, properties)
        choice = choice_of(props, properties)
        columns = dict.fromkeys([*COLUMNS, *(f'"{name}"' for name in filter(None, [group, *choice]))])
        views = [view for view in resource_views(tx, columns=columns) if view.node and is_chosen(view.columns, choice)]
        reasons = node_reasons.reasons(tx, views)
        since = _since(tx, views, now)
        jobs = tx.jobs.select(sorted({job for view in views for job in view.jobs}))
    nodes = [_node(name, list(of_node), group, now) for name, of_node in groupby(views, key=lambda view: view.node)]
    numbers: Counter[str] = Counter()
    for node in nodes:
        numbers.update(node["marks"])
    return {
        "items": nodes,
        "letters": {letter: condition for condition, letter in LETTERS.items()},
        "total": {condition: numbers[letter] for condition, letter in LETTERS.items()},
        "jobs": [{"id": job.id, "user": job.user, "name": job.name, "queue": job.queue} for job in jobs],
        "reasons": reasons,
        "since": since,
        "properties": properties,
    }


def _since(tx: "Transaction", views: Sequence[ResourceView], now: int) -> dict[str, int]:
    """Return since when nodes are absent, suspected or dead, where that is known; not of those that can be woken."""
    lost = {view.node for view in views if view.state is not ResourceState.ALIVE and not view.is_standby(now)}
    found = tx.listings.out_of_use({*ResourceState} - {ResourceState.ALIVE}) if lost else []
    return {each.node: each.since for each in found if each.node in lost and each.since}


def totals(who: Asking) -> dict[str, int]:
    """Return how many resources of nodes are in each condition; ``total`` of all."""
    now = int(time.time())
    with who.database.snapshot() as tx:
        groups = tx.listings.alike(now)
    numbers: Counter[str] = Counter()
    for each in groups:
        numbers[name_of(each)] += each.number
    return {"total": numbers.total(), **{name: numbers[name] for name in LETTERS}}


def name_of(alike: AlikeResources) -> str:
    """Return the condition of resources that are alike."""
    found = condition(alike.state, is_held=alike.is_held, is_reserved=alike.is_reserved, is_drained=alike.is_drained)
    return STANDBY if found is Condition.ABSENT and alike.can_be_woken else found


def _condition(view: ResourceView, now: int) -> str:
    return STANDBY if view.is_standby(now) else condition_of(view)


def _node(name: str, views: Sequence[ResourceView], group: str, now: int) -> NodeMarks:
    value = views[0].columns[group] if group else None
    return {
        "name": name,
        "marks": "".join(LETTERS[_condition(view, now)] for view in views),
        "held": list(_runs(views)),
        "group": None if value is None else str(value),
    }


def _runs(views: Sequence[ResourceView]) -> Iterator[tuple[int, int, int]]:
    """Give each job on neighbouring resources: the place of the first, how many, the job."""
    places_of: dict[int, list[int]] = {}
    for place, view in enumerate(views):
        for job in view.jobs:
            places_of.setdefault(job, []).append(place)
    for job, places in sorted(places_of.items()):
        for _, run in groupby(enumerate(places), key=lambda each: each[1] - each[0]):
            first, *others = (place for _, place in run)
            yield first, 1 + len(others), job
