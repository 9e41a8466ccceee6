"""Advance reservations, as everybody sees them: lists, a calendar, one of them with what happened to it."""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from oar.api.answers import Answer, answer_unless_known
from oar.api.jobs import Words, words_of
from oar.api.service import LARGEST_ID, Asking, asking
from oar.lib.facts.errors import NoSuchResource
from oar.lib.facts.reservation_states import ReservationState
from oar.lib.reservations import rights
from oar.lib.rules.access_lists import Visitor
from oar.lib.views.reservations import ReservationReader, log_record, reservation_record, shown

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

router = APIRouter(prefix="/v1/reservations", tags=["reservations"])

#: States that are never shown: nothing was granted.
HIDDEN = frozenset({ReservationState.ASKED, ReservationState.REFUSED})


class ReservationListing(BaseModel):
    """Which reservations a list holds; all conditions hold together."""

    model_config = ConfigDict(extra="forbid")

    owner: Words = None
    ended: bool = Field(default=False, description="Ended ones too.")
    begin: int | None = Field(None, alias="from", ge=0, le=LARGEST_ID, description="Those that end after this date.")
    to: int | None = Field(None, ge=0, le=LARGEST_ID, description="Those that begin before this date.")


@router.get("", operation_id="reservations_list", summary="Advance reservations")
def reservations_list(request: Request, listing: Annotated[ReservationListing, Query()]) -> Answer:
    """Return the advance reservations by their numbers; with `from` and `to`, a page of a calendar."""
    return answer_unless_known(request, {"items": reservation_items(asking(request), listing)})


def reservation_items(who: Asking, listing: ReservationListing) -> list[dict[str, Any]]:
    """Return the advance reservations that are asked for."""
    owners = words_of(listing.owner)
    with who.database.snapshot() as tx:
        rows = tx.advance_reservations.ever_granted() if listing.ended else tx.advance_reservations.live()
        chosen = [
            each
            for each in rows
            if each.state not in HIDDEN
            and (not owners or each.owner in owners)
            and (listing.begin is None or each.end > listing.begin)
            and (listing.to is None or each.start < listing.to)
        ]
        items = shown(tx, sorted(chosen, key=lambda each: (each.number, each.id)), reader_for(tx, who))
    return [reservation_record(item) for item in items]


@router.get("/{number}", operation_id="reservation", summary="One advance reservation")
def reservation_one(request: Request, number: Annotated[int, Path(ge=1, le=9_999_999)]) -> Answer:
    """Return a reservation by its number, and what happened to it."""
    return answer_unless_known(request, reservation_with_log(asking(request), number))


def reservation_with_log(who: Asking, number: int) -> dict[str, Any]:
    """Return a reservation and what happened to it.  Raises NoSuchResource."""
    with who.database.snapshot() as tx:
        found = tx.advance_reservations.by_numbers([number]).get(number)
        if found is None or found.state in HIDDEN:
            raise NoSuchResource(f"there is no advance reservation {number}")
        (item,) = shown(tx, [found], reader_for(tx, who))
        log = [log_record(row) for row in tx.advance_reservations.logs([found.id])]
    return {**reservation_record(item), "log": log}


def reader_for(tx: "Transaction", who: Asking) -> ReservationReader:
    """Return who asks, as one who looks at reservations."""
    user = who.caller.user
    if user is None or not who.caller.scopes.reads_all:
        return ReservationReader(Visitor(""), is_private=who.config.oarstat_private)
    return rights.reader(tx, user, is_private=who.config.oarstat_private)
