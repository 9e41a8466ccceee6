"""What happens to advance reservations, for programs that follow them: each change once, in order, none lost."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from oar.api.concurrency import in_thread
from oar.api.hub import Subscriber
from oar.api.long_polling import wait_until_seen
from oar.api.parameters import LARGEST_ID
from oar.api.reservations_ import HIDDEN, reader_for
from oar.api.responses import Answer, answer
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking, service_of
from oar.lib.db.listening.reservation_feed import ReservationFeed
from oar.lib.facts.advance_reservations import ReservationLog
from oar.lib.facts.errors import BadRequest, Unavailable
from oar.lib.facts.reservation_states import ReservationEvent
from oar.lib.facts.topics import Topic
from oar.lib.views.reservations import log_record, reservation_record, shown

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

router = APIRouter(tags=["reservations"], route_class=ApiRoute)

#: What a line tells of a reservation, to who keeps a list of them; each other event is a MOD.
KINDS: Mapping[str, str] = {ReservationEvent.CREATED: "ADD", ReservationEvent.TERMINATED: "DEL"}

Line = tuple[int, ReservationLog]


class ReservationEvents(BaseModel):
    """Which lines of the log of reservations a page holds."""

    model_config = ConfigDict(extra="forbid")

    since_id: int | None = Field(
        None, ge=0, le=LARGEST_ID, description="`next` of the previous page; 0: from the oldest stored event."
    )
    limit: int = Field(default=100, ge=1, le=1000, description="Page size.")
    wait: int = Field(default=0, ge=0, le=LARGEST_ID, description="Seconds to wait for an event, at most 30.")


@router.get("/v1/reservations/events", operation_id="reservation_events", summary="List events of advance reservations")
async def reservation_events(request: Request, listing: Annotated[ReservationEvents, Query()]) -> Answer:
    """Return the events after `since_id`, each with the current reservation.

    `next` is the `since_id` of the next request. Without it the list is empty and `next` is the current position.
    """
    feed, since = service_of(request).reservation_feed, listing.since_id
    if listing.wait:
        if since is None:
            raise BadRequest("'wait' belongs to 'since_id': the `next` of an answer")

        def is_seen(who: Asking) -> bool:
            until = feed.settled() or 0
            return bool(who.database.look(lambda tx: tx.reservation_logs.shown_lines(since, until, 1)))

        listener = Subscriber(lambda _: False, frozenset((Topic.RESERVATIONS,)))
        await wait_until_seen(request, listener, is_seen, listing.wait, lambda: feed.pause)
    return await in_thread(lambda: answer(event_page(asking(request), feed, since, listing.limit)))


def event_page(who: Asking, feed: ReservationFeed, since: int | None, limit: int) -> dict[str, Any]:
    """Return a page of lines.  Raises Unavailable if nobody can say yet from where on to follow."""
    until = feed.settled()
    if since is None:
        if until is None:
            raise Unavailable("the log of the reservations is being written: ask again")
        return {"items": [], "next": until}
    with who.database.snapshot() as tx:
        lines = tx.reservation_logs.shown_lines(since, until or 0, limit)
        items = _items(tx, who, lines)
    return {"items": items, "next": lines[-1][0] if len(lines) == limit else max(since, until or 0)}


def _items(tx: "Transaction", who: Asking, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return lines with their reservations; null for one that was archived meanwhile."""
    found = tx.advance_reservations.select({row.reservation_id for _, row in lines})
    granted = [each for each in found if each.state not in HIDDEN]
    records = {item.reservation.id: reservation_record(item) for item in shown(tx, granted, reader_for(tx, who))}
    return [_item(number, row, records.get(row.reservation_id)) for number, row in lines]


def _item(number: int, row: ReservationLog, record: dict[str, Any] | None) -> dict[str, Any]:
    kind = KINDS.get(row.event, "MOD")
    place = {"number": record["id"] if record else None, "reservation": record}
    return {"id": number, "kind": kind, **log_record(row), **place}
