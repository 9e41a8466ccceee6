"""One resource, what was set of it, and its version."""

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query, Request

from oar.api.nodes_ import resource_items
from oar.api.parameters import LARGEST_ID
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import asking
from oar.lib.facts.errors import NoSuchResource
from oar.lib.views.nodes import ResourceView, resource_views

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

router = APIRouter(tags=["nodes"], route_class=ApiRoute)

#: Ids that the column can hold.
_LARGEST = 2**31 - 1
ResourceNumber = Annotated[int, Path(ge=1, le=LARGEST_ID, description="Resource id.")]


@router.get("/v1/resources/{resource_id}", operation_id="resource", summary="Get a resource")
def resource_one(request: Request, resource_id: ResourceNumber) -> Answer:
    """Return a resource with its properties and jobs. Its `version` changes with each change of a value."""
    with asking(request).database.snapshot() as tx:
        (item,) = resource_items([_found(tx, resource_id)])
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
        _found(tx, resource_id)
        values = tx.listings.resource_log(resource_id, after, limit + 1)
    items = [
        {"id": each.id, "attribute": each.attribute, "value": each.value, "from": each.start, "to": each.stop or None}
        for each in values[:limit]
    ]
    return answer_unless_known(request, {"items": items, "next": values[limit - 1].id if len(values) > limit else None})


def version_of_resource(tx: "Transaction", resource_id: int) -> str:
    """Return the version of a resource: the last row of its log, 0 if it has none.  Raises NoSuchResource.

    Resources of old databases, and those that somebody has inserted by hand, have no log until something is set.
    """
    last = tx.listings.resource_log(resource_id, None, 1)
    if not last and not tx.resources.existing([resource_id]):
        raise _no_such(resource_id)
    return str(last[0].id) if last else "0"


def _found(tx: "Transaction", resource_id: int) -> ResourceView:
    views = resource_views(tx, ids=[resource_id]) if resource_id <= _LARGEST else []
    if not views:
        raise _no_such(resource_id)
    return views[0]


def _no_such(resource_id: int) -> NoSuchResource:
    return NoSuchResource(f"there is no resource {resource_id}")
