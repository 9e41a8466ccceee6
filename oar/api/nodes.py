"""Nodes and resources: lists, one of them, their histories."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from oar.api.openapi_schemas import NODE, RESOURCE
from oar.api.parameters import LARGEST_ID, PRINTABLE, CommaList, Fields, split_list
from oar.api.responses import Answer, answer_unless_known, list_answer, select_fields
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking
from oar.lib.base.errors import BadRequest, NoSuchResource
from oar.lib.history.views import event_item
from oar.lib.jobs.sql_listings import NodeInterval
from oar.lib.nodes.occupancy import NodeOccupancy, by_node, total
from oar.lib.nodes.states import ResourceState
from oar.lib.nodes.views import ResourceView, reasons_by_node, resource_views

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

router = APIRouter(tags=["nodes"], route_class=ApiRoute)

#: Events that a node shows, at most.
LAST_EVENTS = 50
#: System columns that are shown with the properties of a resource.
SHOWN_COLUMNS = ("state", "available_upto", "drain", "maintenance", "next_state")
NodeName = Annotated[str, Path(max_length=255, pattern=PRINTABLE, description="Node name (network address).")]


class NodeListing(BaseModel):
    """Filters of a list of nodes; comma-separated values are alternatives."""

    model_config = ConfigDict(extra="forbid")

    node: CommaList = Field(None, description="Node names.")
    state: CommaList = Field(None, description="Nodes with a resource in one of these states.")
    fields: Fields = None

    def views(self, tx: "Transaction") -> list[ResourceView]:
        """Return the resources of the nodes.  Raises BadRequest."""
        states = _states(self.state)
        views = resource_views(tx, nodes=split_list(self.node) or None)
        chosen = {view.node for view in views if view.state in states}
        return [view for view in views if view.node and view.node in chosen]


@router.get("/v1/nodes", operation_id="nodes_list", summary="List nodes")
def nodes_list(request: Request, listing: Annotated[NodeListing, Query()]) -> Answer:
    """Return the nodes with their jobs and the number of their resources in each state, and the totals."""
    record = nodes_record(asking(request), listing)
    return list_answer(request, {**record, "items": select_fields(record["items"], listing.fields, NODE)})


@router.get("/v1/nodes/{name}", operation_id="node", summary="Get a node")
def get_node(request: Request, name: NodeName) -> Answer:
    """Return a node with its resources, their jobs, and the last events of the node."""
    return answer_unless_known(request, node_record(asking(request), name))


def nodes_record(who: Asking, listing: NodeListing | None = None) -> dict[str, Any]:
    """Return nodes with the numbers of their resources, and the totals.  Raises BadRequest."""
    with who.database.snapshot() as tx:
        views = (listing or NodeListing(node=None, state=None)).views(tx)
        reasons = reasons_by_node(tx, views)
    jobs = _jobs(views)
    nodes = by_node(views)
    items = [{**_node_item(node, reasons), "jobs": jobs[node.node]} for node in nodes]
    return {"items": items, "total": total(nodes).record}


def node_record(who: Asking, name: str) -> dict[str, object]:
    """Return a node.  Raises NoSuchResource."""
    with who.database.snapshot() as tx:
        views = resource_views(tx, nodes=[name])
        reasons = reasons_by_node(tx, views)
        events = tx.events.of_nodes([name], last=LAST_EVENTS).get(name, [])
    if not views:
        raise NoSuchResource(f"there is no node {name!r}")
    (node,) = by_node(views)
    return {
        **_node_item(node, reasons),
        "jobs": _jobs(views)[name],
        "resources": resource_items(views),
        "events": [event_item(event) for event in who.privacy.events(events)],
    }


@router.get("/v1/resources", operation_id="resources_list", summary="List resources")
def resources_list(request: Request, listing: Annotated[NodeListing, Query()]) -> Answer:
    """Return the resources with their properties and jobs.

    Without the `node` filter, resources without a node are included.
    """
    who = asking(request)
    states = None if listing.state is None else _states(listing.state)
    with who.database.snapshot() as tx:
        views = resource_views(tx, nodes=split_list(listing.node) or None)
    chosen = views if states is None else [view for view in views if view.state in states]
    return list_answer(
        request, {"items": select_fields(resource_items(chosen), listing.fields, RESOURCE["properties"])}
    )


def resource_items(views: Sequence[ResourceView]) -> list[dict[str, object]]:
    """Return resources with their properties; all of them have the same columns."""
    if not views:
        return []
    columns = views[0].columns
    shown = [name for name in SHOWN_COLUMNS if name in columns]
    names = [name for name, _ in views[0].user_columns]
    return [
        {
            "id": row["resource_id"],
            "node": row["network_address"] or None,
            **{name: row[name] for name in shown},
            "jobs": jobs,
            "advance_reservations": reserved,
            "properties": {name: value for name in names if (value := row[name]) is not None},
        }
        for row, jobs, reserved in views
    ]


def _node_item(node: NodeOccupancy, reasons: Mapping[str, str]) -> dict[str, object]:
    return {"name": node.node, **node.record, "reason": reasons.get(node.node)}


def _jobs(views: Iterable[ResourceView]) -> dict[str, list[int]]:
    jobs: dict[str, set[int]] = {}
    for view in views:
        jobs.setdefault(view.node, set()).update(view.jobs)
    return {node: sorted(ids) for node, ids in jobs.items()}


def _states(text: str | None) -> frozenset[ResourceState]:
    """Return the states of a comma-separated list, all for None.  Raises BadRequest."""
    if text is None:
        return frozenset(ResourceState)
    by_name = {state.lower(): state for state in ResourceState}
    unknown = [name for name in split_list(text) if name.lower() not in by_name]
    if unknown:
        raise BadRequest(f"{unknown[0]!r} is no state of resources: {', '.join(ResourceState)}")
    return frozenset(by_name[name.lower()] for name in split_list(text))


#: Ids that the column can hold.
_LARGEST_RESOURCE = 2**31 - 1
ResourceNumber = Annotated[int, Path(ge=1, le=LARGEST_ID, description="Resource id.")]


@router.get("/v1/resources/{resource_id}", operation_id="resource", summary="Get a resource")
def get_resource(request: Request, resource_id: ResourceNumber) -> Answer:
    """Return a resource with its properties and jobs. Its `version` changes with each change of a value."""
    with asking(request).database.snapshot() as tx:
        (item,) = resource_items([_find_resource(tx, resource_id)])
        version = version_of_resource(tx, resource_id)
    return answer_unless_known(request, {**item, "version": version})


@router.get("/v1/resources/{resource_id}/log", operation_id="resource_log", summary="Attribute history of a resource")
def resource_log(
    request: Request,
    resource_id: ResourceNumber,
    after: Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="`next` of the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Page size.")] = 100,
) -> Answer:
    """Return the current and past values of a resource, newest first; `to` is null for current values."""
    with asking(request).database.snapshot() as tx:
        _find_resource(tx, resource_id)
        values = tx.listings.resource_log(resource_id, after, limit + 1)
    items = [
        {
            "id": value.id,
            "attribute": value.attribute,
            "value": value.value,
            "from": value.start,
            "to": value.stop or None,
        }
        for value in values[:limit]
    ]
    return answer_unless_known(request, {"items": items, "next": values[limit - 1].id if len(values) > limit else None})


def version_of_resource(tx: "Transaction", resource_id: int) -> str:
    """Return the version of a resource: the last row of its log, 0 if it has none.  Raises NoSuchResource.

    Resources of old databases, and those inserted with SQL, have no log until something is set.
    """
    last = tx.listings.resource_log(resource_id, None, 1)
    if not last and not tx.resources.existing([resource_id]):
        raise _no_such_resource(resource_id)
    return str(last[0].id) if last else "0"


def _find_resource(tx: "Transaction", resource_id: int) -> ResourceView:
    views = resource_views(tx, ids=[resource_id]) if resource_id <= _LARGEST_RESOURCE else []
    if not views:
        raise _no_such_resource(resource_id)
    return views[0]


def _no_such_resource(resource_id: int) -> NoSuchResource:
    return NoSuchResource(f"there is no resource {resource_id}")


DAY = 86400
#: Days of a history by default, and at most.
DAYS, MAX_DAYS = 30, 366


class NodePast(BaseModel):
    """The period of a node's history."""

    model_config = ConfigDict(extra="forbid")

    begin: int | None = Field(
        None, alias="from", ge=0, le=LARGEST_ID, description="Start of the period; default: 30 days before its end."
    )
    to: int | None = Field(None, ge=0, le=LARGEST_ID, description="End of the period; default: now.")

    def dates(self, now: int) -> tuple[int, int]:
        """Return its first and last date.  Raises BadRequest."""
        end = now if self.to is None else self.to
        begin = max(0, end - DAYS * DAY) if self.begin is None else self.begin
        if not begin < end <= begin + MAX_DAYS * DAY:
            raise BadRequest(f"a period goes from a date to a later one, over {MAX_DAYS} days at most")
        return begin, end


@router.get("/v1/nodes/{name}/history", operation_id="node_history", summary="State history of a node")
def node_history(request: Request, name: NodeName, period: Annotated[NodePast, Query()]) -> Answer:
    """Return the periods in which resources of a node had a state, were drained or in maintenance, oldest first.

    `seconds` is the time in each state within the period, summed over all resources.
    """
    return answer_unless_known(request, history_record(asking(request), name, period))


def history_record(who: Asking, name: str, period: NodePast) -> dict[str, object]:
    """Return the history of a node.  Raises BadRequest, NoSuchResource."""
    with who.database.snapshot() as tx:
        begin, end = period.dates(tx.now)
        if not (name and tx.resources.of_nodes([name])):
            raise NoSuchResource(f"there is no node {name!r}")
        intervals = tx.listings.node_history(name, begin, end)
    items = [
        {"attribute": interval.attribute, "value": interval.value, "from": interval.start, "to": interval.stop or None}
        | {"resources": interval.resources}
        for interval in intervals
    ]
    return {"from": begin, "to": end, "items": items, "seconds": seconds_by_state(intervals, begin, end)}


def seconds_by_state(intervals: Iterable[NodeInterval], begin: int, end: int) -> dict[str, int]:
    """Return the time in each state within a period, summed over all resources."""
    seconds: Counter[str] = Counter()
    for interval in intervals:
        if interval.attribute == "state":
            lasted = min(interval.stop or end, end) - max(interval.start, begin)
            seconds[interval.value] += lasted * len(interval.resources)
    return dict(sorted(seconds.items()))
