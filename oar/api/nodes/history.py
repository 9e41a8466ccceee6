"""What a node was: the times for which its resources were in a state, drained, or in maintenance."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from oar.api.nodes_ import NodeName
from oar.api.parameters import LARGEST_ID
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking
from oar.lib.db.jobs.listings import NodeInterval
from oar.lib.facts.errors import BadRequest, NoSuchResource

router = APIRouter(tags=["nodes"], route_class=ApiRoute)

DAY = 86400
#: Days that are told if no period is named, and at most.
DAYS, MOST_DAYS = 30, 366


class NodePast(BaseModel):
    """The period of which a node tells what it was."""

    model_config = ConfigDict(extra="forbid")

    begin: int | None = Field(
        None, alias="from", ge=0, le=LARGEST_ID, description="Start of the period; default: 30 days before its end."
    )
    to: int | None = Field(None, ge=0, le=LARGEST_ID, description="End of the period; default: now.")

    def dates(self, now: int) -> tuple[int, int]:
        """Return its first and last date.  Raises BadRequest."""
        end = now if self.to is None else self.to
        begin = max(0, end - DAYS * DAY) if self.begin is None else self.begin
        if not begin < end <= begin + MOST_DAYS * DAY:
            raise BadRequest(f"a period goes from a date to a later one, over {MOST_DAYS} days at most")
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
        {"attribute": each.attribute, "value": each.value, "from": each.start, "to": each.stop or None}
        | {"resources": each.resources}
        for each in intervals
    ]
    return {"from": begin, "to": end, "items": items, "seconds": seconds_by_state(intervals, begin, end)}


def seconds_by_state(intervals: Iterable[NodeInterval], begin: int, end: int) -> dict[str, int]:
    """Return how long resources were in each state within a period, all of them together."""
    seconds: Counter[str] = Counter()
    for each in intervals:
        if each.attribute == "state":
            lasted = min(each.stop or end, end) - max(each.start, begin)
            seconds[each.value] += lasted * len(each.resources)
    return dict(sorted(seconds.items()))
