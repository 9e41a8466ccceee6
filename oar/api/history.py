"""Logged events, newest first, and the last scheduling passes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from oar.api.openapi_schemas import EVENT
from oar.api.parameters import LARGEST_ID, PRINTABLE, Fields
from oar.api.responses import EXPORT_PAGE, Answer, Export, accepts_lines, answer_unless_known, select_fields
from oar.api.routing import ApiRoute
from oar.api.service import MAX_EXPORTS, Asking, asking, counted_client, service_of
from oar.lib.base.errors import ServerUnavailable
from oar.lib.bus import control_client, frames
from oar.lib.history.views import event_item

if TYPE_CHECKING:
    from oar.lib.config.files import Config

router = APIRouter(tags=["history"], route_class=ApiRoute)

#: Scheduling passes of a response, at most.
MAX_PASSES = 500
#: Seconds given to the server, and for which its response, or that there was none, is returned again.
PATIENCE, KEPT_SECONDS = 0.5, 1.0


class EventListing(BaseModel):
    """Which events a page holds: all conditions hold together."""

    model_config = ConfigDict(extra="forbid")

    job: int | None = Field(None, ge=1, le=LARGEST_ID, description="Job id.")
    node: str | None = Field(None, max_length=255, pattern=PRINTABLE, description="Node name (network address).")
    type: str | None = Field(None, max_length=100, pattern=PRINTABLE, description="Event type.")
    before: int | None = Field(None, ge=1, le=LARGEST_ID, description="`next` of the previous page.")
    limit: int = Field(default=100, ge=1, le=1000, description="Page size.")
    fields: Fields = None


@router.get("/v1/event-log", operation_id="event_log", summary="List logged events, newest first")
def event_log(request: Request, listing: Annotated[EventListing, Query()]) -> Answer:
    """Return events. `next` is the `before` parameter of the next page, null on the last page.

    With the `Accept` header `application/x-ndjson` all events are returned, one JSON object per line.
    """
    who = asking(request)
    if accepts_lines(request):
        exports = service_of(request).exports

        def pages(before: int | None) -> dict[str, object]:
            return event_page(
                who, listing.model_copy(update={"limit": EXPORT_PAGE, "before": before or listing.before})
            )

        return Export(pages, exports.one_more(counted_client(request, who.caller), MAX_EXPORTS))
    return answer_unless_known(request, event_page(who, listing))


def event_page(who: Asking, listing: EventListing) -> dict[str, object]:
    """Return a page of events; their texts only to who is known."""
    with who.database.snapshot() as tx:
        events = tx.events.latest(
            listing.limit + 1, job=listing.job, type_=listing.type, node=listing.node, before=listing.before
        )
    shown = who.privacy.events(events[: listing.limit])
    items = select_fields([event_item(event) for event in shown], listing.fields, EVENT["properties"])
    return {"items": items, "next": shown[-1].id if len(events) > len(shown) else None}


@router.get("/v1/rounds", operation_id="rounds", summary="List recent scheduling passes")
def rounds(
    request: Request, last: Annotated[int, Query(ge=1, le=MAX_PASSES, description="Maximum number of passes.")] = 20
) -> Answer:
    """Return the scheduling passes since the start of the server, newest first.

    `kind` is `urgent` for a pass that only considered jobs that can start now, and left `undecided` jobs to the next
    full plan; otherwise `full`. `waiting` and `started` are numbers of jobs, `phases` are durations in seconds. Values
    are null for failed passes and for external schedulers.
    """
    config = asking(request).config
    passes = service_of(request).cache.recent("passes", lambda: _last_passes(config), KEPT_SECONDS)
    if passes is None:
        raise ServerUnavailable(f"the OAR server ({control_client.place(config)}) does not answer: ask again later")
    return answer_unless_known(request, {"items": [_pass_record(record) for record in passes[:last]]})


def _last_passes(config: "Config") -> Sequence[Mapping[str, Any]] | None:
    """Return the last passes, newest first; None if the server does not answer."""
    response = control_client.ask(config, frames.RoundsQuestion(MAX_PASSES), frames.RoundsAnswer, PATIENCE)
    return response.state["rounds"] if isinstance(response, frames.RoundsAnswer) else None


def _pass_record(record: Mapping[str, Any]) -> dict[str, object]:
    undecided = record.get("undecided")
    return {
        **{name: record[name] for name in ("date", "duration", "result", "started")},
        "kind": None if undecided is None else "urgent" if undecided else "full",
        "waiting": record.get("jobs"),
        "undecided": undecided,
        "phases": record.get("phases"),
    }
