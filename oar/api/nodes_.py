"""Nodes, their resources, and queues."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from oar.api.openapi_schemas import NODE, QUEUE, RESOURCE
from oar.api.parameters import PRINTABLE, CommaList, Fields, FieldsQuery, split_list
from oar.api.preconditions import version_of_values
from oar.api.responses import Answer, answer_unless_known, list_answer, select_fields
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking
from oar.lib.facts.errors import BadRequest, NoSuchResource
from oar.lib.facts.records import Queue
from oar.lib.facts.states import JobState, ResourceState
from oar.lib.jobs.queues import NoQueue
from oar.lib.views import node_reasons
from oar.lib.views.history import event_item
from oar.lib.views.nodes import ResourceView, resource_views
from oar.lib.views.occupancy import NodeOccupancy, by_node, total

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

router = APIRouter(tags=["nodes"], route_class=ApiRoute)

#: Events that a node shows, at most.
LAST_EVENTS = 50
#: Columns of the system that are shown beside the properties of a resource.
SHOWN_COLUMNS = ("state", "available_upto", "drain", "maintenance", "next_state")
NodeName = Annotated[str, Path(max_length=255, pattern=PRINTABLE, description="Node name (network address).")]


class NodeListing(BaseModel):
    """Which nodes a list holds; words with commas between them are alternatives."""

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
def node_one(request: Request, name: NodeName) -> Answer:
    """Return a node with its resources, their jobs, and the last events of the node."""
    return answer_unless_known(request, node_record(asking(request), name))


def nodes_record(who: Asking, listing: NodeListing | None = None) -> dict[str, Any]:
    """Return nodes with their numbers, and the sums.  Raises BadRequest."""
    with who.database.snapshot() as tx:
        views = (listing or NodeListing(node=None, state=None)).views(tx)
        reasons = node_reasons.reasons(tx, views)
    jobs = _jobs(views)
    nodes = by_node(views)
    items = [{**_node_item(node, reasons), "jobs": jobs[node.node]} for node in nodes]
    return {"items": items, "total": total(nodes).record}


def node_record(who: Asking, name: str) -> dict[str, object]:
    """Return a node.  Raises NoSuchResource."""
    with who.database.snapshot() as tx:
        views = resource_views(tx, nodes=[name])
        reasons = node_reasons.reasons(tx, views)
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


@router.get("/v1/queues", operation_id="queues_list", summary="List queues")
def queues_list(request: Request, fields: FieldsQuery = None) -> Answer:
    """Return the queues by descending priority, with the number of jobs in each state."""
    items = queues_record(asking(request))["items"]
    return list_answer(request, {"items": select_fields(items, fields, QUEUE["properties"])})


@router.get("/v1/queues/{name}", operation_id="queue", summary="Get a queue")
def queue_one(
    request: Request, name: Annotated[str, Path(max_length=100, pattern=PRINTABLE, description="Queue name.")]
) -> Answer:
    """Return a queue with the number of jobs in each state."""
    items = queues_record(asking(request))["items"]
    found = next((item for item in items if item["name"] == name), None)
    if found is None:
        raise NoQueue(f"there is no queue {name!r}: {', '.join(str(item['name']) for item in items)}")
    return answer_unless_known(request, found)


def queues_record(who: Asking) -> dict[str, list[dict[str, object]]]:
    """Return the queues with the numbers of their jobs."""
    with who.database.snapshot() as tx:
        queues = tx.queues.all()
        numbers = tx.job_pages.live_by_queue()
        oldest = {wait.queue: wait.oldest for wait in tx.usage.waits()}
    in_order = sorted(queues, key=lambda queue: (-queue.priority, queue.name))
    return {"items": [_queue_item(queue, numbers, oldest.get(queue.name)) for queue in in_order]}


def _queue_item(
    queue: Queue, numbers: Mapping[tuple[str, JobState], int], oldest: int | None = None
) -> dict[str, object]:
    return {
        "name": queue.name,
        "priority": queue.priority,
        "policy": queue.policy,
        "state": queue.state,
        "jobs": {state: number for (name, state), number in numbers.items() if name == queue.name},
        "oldest_waiting": oldest,
        "version": version_of_values(*queue),
    }


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
    """Return the states that a list of names means, all for None.  Raises BadRequest."""
    if text is None:
        return frozenset(ResourceState)
    by_name = {state.lower(): state for state in ResourceState}
    unknown = [word for word in split_list(text) if word.lower() not in by_name]
    if unknown:
        raise BadRequest(f"{unknown[0]!r} is no state of resources: {', '.join(ResourceState)}")
    return frozenset(by_name[word.lower()] for word in split_list(text))
