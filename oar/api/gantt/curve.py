"""How busy the cluster was, is, and will be: a curve, for a first look."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from oar.api.gantt_ import MOST_DAYS, Begin, End
from oar.api.response_cache import Record
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import asking, service_of
from oar.lib.facts.errors import BadRequest
from oar.lib.views.gantt_chunks import DAY
from oar.lib.views.occupancy_curve import occupancy_curve

router = APIRouter(tags=["gantt"], route_class=ApiRoute)

#: Parts of a period at most.
MOST_PARTS = 1500


@router.get("/v1/gantt/occupancy", operation_id="gantt_occupancy", summary="Cluster utilization over time")
def gantt_occupancy(
    request: Request,
    begin: Begin,
    to: End,
    bucket: Annotated[int, Query(ge=60, le=30 * DAY, description="Bucket length in seconds.")] = 3600,
) -> Answer:
    """Return the mean number of used, planned and unavailable resources in each bucket of a period.

    A running job counts as used until now, and as planned for the rest of its walltime.
    """
    who = asking(request)
    number = -(-(to - begin) // bucket)
    if not begin < to < begin + MOST_DAYS * DAY or number > MOST_PARTS:
        raise BadRequest(f"a period has {MOST_PARTS} parts at most, and {MOST_DAYS} days")

    def make() -> Record:
        with who.database.snapshot() as tx:
            return occupancy_curve(tx, begin, bucket, number)

    key = ("occupancy", begin, bucket, number)
    return answer_unless_known(request, service_of(request).curves.curve(key, make, bucket))
