"""Nodes and resources: lists, one of them, their histories."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, cast

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.parameters import LARGEST_ID, PRINTABLE, CommaList, Fields, check_period, split_list
from oar.api.records import Conditions, Event, selectable
from oar.api.responses import select_fields
from oar.api.routing import OF_RESOURCES, Router
from oar.api.service import Asking, asking
from oar.lib.base.errors import BadRequest, NoSuchResource
from oar.lib.bus.messages import Topic
from oar.lib.history.gantt import DAY
from oar.lib.history.views import event_item
from oar.lib.jobs.sql_listings import NodeInterval
from oar.lib.nodes.occupancy import NodeOccupancy, by_node, total
from oar.lib.nodes.states import ResourceState
from oar.lib.nodes.views import ResourceView, reasons_by_node, resource_views

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

router = Router("nodes")


class Occupancy(Conditions):
    total: int
    drain: bool


@selectable
class NodeItem(Occupancy):
    name: str
    jobs: list[int]
    reason: str | None


NodePage = TypedDict("NodePage", {"items": list[NodeItem], "total": Occupancy})


class Resource(TypedDict):
    id: int
    node: str | None
    state: str
    available_upto: int
    drain: str
    next_state: str
    jobs: list[int]
    advance_reservations: list[int]
    properties: dict[str, Any]
    maintenance: NotRequired[str]


class Node(Occupancy):
    name: str
    jobs: list[int]
    reason: str | None
    resources: list[Resource]
    events: list[Event]


NodeSpan = TypedDict(
    "NodeSpan", {"attribute": str, "value": str, "from": int, "to": int | None, "resources": Sequence[int]}
)
NodeHistory = TypedDict("NodeHistory", {"items": list[NodeSpan], "from": int, "to": int, "seconds": dict[str, int]})


@selectable
class ResourceItem(Resource):
    pass


ResourcePage = TypedDict("ResourcePage", {"items": list[ResourceItem]})


class ResourceDetails(Resource):
    version: str


ResourceLogEntry = TypedDict(
    "ResourceLogEntry", {"id": int, "attribute": str, "value": str, "from": int, "to": int | None}
)


ResourceLog = TypedDict("ResourceLog", {"items": list[ResourceLogEntry], "next": int | None})


#: Events that a node shows, at most.
LAST_EVENTS = 50
#: System columns that are shown with the properties of a resource.
SHOWN_COLUMNS = ("state", "available_upto", "drain", "maintenance", "next_state")
NodeName = Annotated[str, Field(max_length=255, pattern=PRINTABLE, description="Node name (network address).")]


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


@router.get("/v1/nodes", "nodes_list", "List nodes", exports=True, topics=OF_RESOURCES | {Topic.EVENTS})
def nodes_list(request: Request, listing: NodeListing) -> NodePage:
    """Return the nodes with their jobs and the number of their resources in each state, and the totals."""
    record = nodes_record(asking(request), listing)
    return {**record, "items": select_fields(record["items"], listing.fields, NodeItem.__annotations__)}


@router.get("/v1/nodes/{name}", "node", "Get a node")
def get_node(request: Request, name: NodeName) -> Node:
    """Return a node with its resources, their jobs, and the last events of the node."""
    return node_record(asking(request), name)


def nodes_record(who: Asking, listing: NodeListing | None = None) -> NodePage:
    """Return nodes with the numbers of their resources, and the totals.  Raises BadRequest."""
    with who.database.snapshot() as tx:
        views = (listing or NodeListing(node=None, state=None)).views(tx)
        reasons = reasons_by_node(tx, views)
    jobs = _jobs(views)
    nodes = by_node(views)
    items = [_node_item(node, reasons, jobs) for node in nodes]
    return {"items": items, "total": cast("Occupancy", total(nodes).record)}


def node_record(who: Asking, name: str) -> Node:
    """Return a node.  Raises NoSuchResource."""
    with who.database.snapshot() as tx:
        views = resource_views(tx, nodes=[name])
        reasons = reasons_by_node(tx, views)
        events = tx.events.of_nodes([name], last=LAST_EVENTS).get(name, [])
    if not views:
        raise NoSuchResource(f"there is no node {name!r}")
    (node,) = by_node(views)
    return {
        **_node_item(node, reasons, _jobs(views)),
        "resources": resource_items(views),
        "events": [cast("Event", event_item(event)) for event in who.privacy.events(events)],
    }


@router.get("/v1/resources", "resources_list", "List resources", exports=True, topics=OF_RESOURCES)
def resources_list(request: Request, listing: NodeListing) -> ResourcePage:
    """Return the resources with their properties and jobs.

    Without the `node` filter, resources without a node are included.
    """
    who = asking(request)
    states = None if listing.state is None else _states(listing.state)
    with who.database.snapshot() as tx:
        views = resource_views(tx, nodes=split_list(listing.node) or None)
    chosen = views if states is None else [view for view in views if view.state in states]
    return {"items": select_fields(resource_items(chosen), listing.fields, ResourceItem.__annotations__)}


def resource_items(views: Sequence[ResourceView]) -> list[Resource]:
    """Return resources with their properties; all of them have the same columns."""
    if not views:
        return []
    columns = views[0].columns
    shown = [name for name in SHOWN_COLUMNS if name in columns]
    names = [name for name, _ in views[0].user_columns]
    return [
        cast(
            "Resource",
            {
                "id": row["resource_id"],
                "node": row["network_address"] or None,
                **{name: row[name] for name in shown},
                "jobs": jobs,
                "advance_reservations": reserved,
                "properties": {name: value for name in names if (value := row[name]) is not None},
            },
        )
        for row, jobs, reserved in views
    ]


def _node_item(node: NodeOccupancy, reasons: Mapping[str, str], jobs: Mapping[str, list[int]]) -> NodeItem:
    counts = cast("Occupancy", node.record)
    return {"name": node.node, **counts, "reason": reasons.get(node.node), "jobs": jobs[node.node]}


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
        raise BadRequest(f"state: {unknown[0]!r} must be one of {', '.join(ResourceState)}")
    return frozenset(by_name[name.lower()] for name in split_list(text))


#: Ids that the column can hold.
_LARGEST_RESOURCE = 2**31 - 1
ResourceNumber = Annotated[int, Field(ge=1, le=LARGEST_ID, description="Resource id.")]


@router.get("/v1/resources/{resource_id}", "resource", "Get a resource")
def get_resource(request: Request, resource_id: ResourceNumber) -> ResourceDetails:
    """Return a resource with its properties and jobs. Its `version` changes with each change of a value."""
    with asking(request).database.snapshot() as tx:
        (item,) = resource_items([_find_resource(tx, resource_id)])
        version = version_of_resource(tx, resource_id)
    return {**item, "version": version}


@router.get("/v1/resources/{resource_id}/log", "resource_log", "Attribute history of a resource")
def resource_log(
    request: Request,
    resource_id: ResourceNumber,
    after: Annotated[int | None, Field(ge=1, le=LARGEST_ID, description="`next` of the previous page.")] = None,
    limit: Annotated[int, Field(ge=1, le=1000, description="Page size.")] = 100,
) -> ResourceLog:
    """Return the current and past values of a resource, newest first; `to` is null for current values."""
    with asking(request).database.snapshot() as tx:
        _find_resource(tx, resource_id)
        values = tx.listings.resource_log(resource_id, after, limit + 1)
    items: list[ResourceLogEntry] = [
        {
            "id": value.id,
            "attribute": value.attribute,
            "value": value.value,
            "from": value.start,
            "to": value.stop or None,
        }
        for value in values[:limit]
    ]
    return {"items": items, "next": values[limit - 1].id if len(values) > limit else None}


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
        check_period(begin, end, MAX_DAYS)
        return begin, end


@router.get("/v1/nodes/{name}/history", "node_history", "State history of a node")
def node_history(request: Request, name: NodeName, period: NodePast) -> NodeHistory:
    """Return the periods in which resources of a node had a state, were drained or in maintenance, oldest first.

    `seconds` is the time in each state within the period, summed over all resources.
    """
    return history_record(asking(request), name, period)


def history_record(who: Asking, name: str, period: NodePast) -> NodeHistory:
    """Return the history of a node.  Raises BadRequest, NoSuchResource."""
    with who.database.snapshot() as tx:
        begin, end = period.dates(tx.now)
        if not (name and tx.resources.of_nodes([name])):
            raise NoSuchResource(f"there is no node {name!r}")
        intervals = tx.listings.node_history(name, begin, end)
    items: list[NodeSpan] = [
        {
            "attribute": interval.attribute,
            "value": interval.value,
            "from": interval.start,
            "to": interval.stop or None,
            "resources": interval.resources,
        }
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
