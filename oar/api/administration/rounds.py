"""The last rounds of the scheduler, one by one."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from oar.api.response_cache import MOST
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import asking, service_of

router = APIRouter(tags=["history"], route_class=ApiRoute)


@router.get("/v1/rounds", operation_id="rounds", summary="List recent scheduling passes")
def rounds(
    request: Request, last: Annotated[int, Query(ge=1, le=MOST, description="Maximum number of passes.")] = 20
) -> Answer:
    """Return the scheduling passes since the start of the server, newest first.

    `kind` is `urgent` for a pass that only considered jobs that can start now, and left `undecided` jobs to the next
    full plan; otherwise `full`. `waiting` and `started` are numbers of jobs, `phases` are durations in seconds. Values
    are null for failed passes and for external schedulers.
    """
    found = service_of(request).last_rounds.find(asking(request).config, last)
    return answer_unless_known(request, {"items": [_record(each) for each in found]})


def _record(told: Mapping[str, Any]) -> dict[str, object]:
    undecided = told.get("undecided")
    return {
        **{name: told[name] for name in ("date", "duration", "result", "started")},
        "kind": None if undecided is None else "urgent" if undecided else "full",
        "waiting": told.get("jobs"),
        "undecided": undecided,
        "phases": told.get("phases"),
    }
