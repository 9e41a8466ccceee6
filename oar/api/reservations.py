"""Advance reservations, as everybody sees them: lists, one of them, what has happened to them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from oar.api.concurrency import in_thread
from oar.api.hub import Subscriber
from oar.api.jobs import page_of
from oar.api.long_polling import wait_until_seen
from oar.api.parameters import LARGEST_ID, PRINTABLE, CommaList, Fields, split_list
from oar.api.records import (
    JobPage,
    Reservation,
    ReservationChanges,
    ReservationItem,
    ReservationLog,
    ReservationPage,
    ReservationResources,
    ReservationRevisions,
    ReservationUsages,
)
from oar.api.responses import Answer, answer, answer_unless_known, list_answer, select_fields
from oar.api.routing import Router
from oar.api.service import Asking, asking, service_of, version_of
from oar.lib.base.errors import BadRequest, NoSuchResource, Unavailable
from oar.lib.base.name_patterns import matching
from oar.lib.bus.messages import Topic
from oar.lib.history.sql_feed import ReservationFeed
from oar.lib.jobs.records import JobPlace, JobQuery
from oar.lib.reservations import permissions, records
from oar.lib.reservations.permissions import ReservationReader, Visitor
from oar.lib.reservations.records import is_number
from oar.lib.reservations.states import HIDDEN, ReservationEvent, ReservationState
from oar.lib.reservations.views import log_record, reservation_record, revision_record, shown

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.reservations.records import AdvanceReservation

router = Router("reservations")

#: Kinds of changes for programs that keep a list of reservations; all other events are MOD.
KINDS: Mapping[str, str] = {ReservationEvent.CREATED: "ADD", ReservationEvent.TERMINATED: "DEL"}

Line = tuple[int, records.ReservationLog]


class ReservationEvents(BaseModel):
    """The page of the log of reservations."""

    model_config = ConfigDict(extra="forbid")

    since_id: int | None = Field(
        None, ge=0, le=LARGEST_ID, description="`next` of the previous page; 0: from the oldest stored event."
    )
    limit: int = Field(default=100, ge=1, le=1000, description="Page size.")
    wait: int = Field(default=0, ge=0, le=LARGEST_ID, description="Seconds to wait for an event, at most 30.")


@router.get(
    "/v1/reservations/events", "reservation_events", "List events of advance reservations", record=ReservationChanges
)
async def reservation_events(request: Request, listing: ReservationEvents) -> Answer:
    """Return the events after `since_id`, each with the current reservation.

    `next` is the `since_id` of the next request. Without it the list is empty and `next` is the current position.
    """
    feed, since = service_of(request).reservation_feed, listing.since_id
    if listing.wait:
        if since is None:
            raise BadRequest("`wait` must be used with `since_id`, the `next` of a response")

        def is_seen(who: Asking) -> bool:
            until = feed.settled() or 0
            return bool(who.database.look(lambda tx: tx.reservation_logs.shown_lines(since, until, 1)))

        listener = Subscriber(lambda _: False, frozenset((Topic.RESERVATIONS,)))
        await wait_until_seen(request, listener, is_seen, listing.wait, lambda: feed.pause)
    return await in_thread(lambda: answer(event_page(asking(request), feed, since, listing.limit)))


def event_page(who: Asking, feed: ReservationFeed, since: int | None, limit: int) -> dict[str, Any]:
    """Return a page of lines.  Raises Unavailable if the current position is not known yet."""
    until = feed.settled()
    if since is None:
        if until is None:
            raise Unavailable("the log of the reservations is being written. Try again.")
        return {"items": [], "next": until}
    with who.database.snapshot() as tx:
        lines = tx.reservation_logs.shown_lines(since, until or 0, limit)
        items = _items(tx, who, lines)
    return {"items": items, "next": lines[-1][0] if len(lines) == limit else max(since, until or 0)}


def _items(tx: "Transaction", who: Asking, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return lines with their reservations; null if the reservation has been archived meanwhile."""
    stored = tx.reservations.select({row.reservation_id for _, row in lines})
    granted = [reservation for reservation in stored if reservation.state not in HIDDEN]
    records = {item.reservation.id: reservation_record(item) for item in shown(tx, granted, reader_for(tx, who))}
    items = []
    for number, row in lines:
        record = records.get(row.reservation_id)
        current = {"number": record["id"] if record else None, "reservation": record}
        items.append({"id": number, "kind": KINDS.get(row.event, "MOD"), **log_record(row), **current})
    return items


#: The states that clients may select.
LETTERS = tuple(str(state) for state in ReservationState if state not in HIDDEN)
#: A number, or a name that one live reservation has.
Named = Annotated[
    str, Field(max_length=100, pattern=PRINTABLE, description="Number or name of an advance reservation.")
]
After = Annotated[int | None, Field(ge=0, le=LARGEST_ID, description="`next` of the previous page.")]
Limit = Annotated[int, Field(ge=1, le=10000, description="Page size.")]


class AmbiguousName(BadRequest):
    """Several live reservations have a name."""


class ReservationListing(BaseModel):
    """Filters of a list of reservations, all of which must match."""

    model_config = ConfigDict(extra="forbid")

    owner: CommaList = Field(None, description="Owners or patterns; `me` is the caller.")
    state: CommaList = Field(None, description="States as letters of `qrstat`, such as `w,r`.")
    name: CommaList = Field(None, description="Names or patterns.")
    ended: bool = Field(default=False, description="Include ended reservations.")
    begin: int | None = Field(
        None, alias="from", ge=0, le=LARGEST_ID, description="Reservations that end after this date."
    )
    to: int | None = Field(None, ge=0, le=LARGEST_ID, description="Reservations that start before this date.")
    fields: Fields = None
    before_id: int | None = Field(
        None, ge=1, le=LARGEST_ID, description="`next` of the previous page; sorts newest first."
    )
    limit: int | None = Field(None, ge=1, le=10000, description="Page size; sorts newest first.")

    @property
    def has_pages(self) -> bool:
        """Whether the list is paginated, newest first."""
        return self.before_id is not None or self.limit is not None


@router.get("/v1/reservations", "reservations_list", "List advance reservations", record=ReservationPage, exports=True)
def reservations_list(request: Request, listing: ReservationListing) -> Answer:
    """Return the advance reservations by number. With `from` and `to`: those of a period.

    With `limit` or `before_id` the list is paginated, newest first; `next` is the `before_id` of the next page.
    """
    record = reservation_page(asking(request), listing)
    return list_answer(
        request, {**record, "items": select_fields(record["items"], listing.fields, ReservationItem.__annotations__)}
    )


def reservation_page(who: Asking, listing: ReservationListing) -> dict[str, Any]:
    """Return the advance reservations of a list, all or a page.  Raises BadRequest, Unidentified."""
    with who.database.snapshot() as tx:
        rows = tx.reservations.ever_granted() if listing.ended else tx.reservations.planned()
        chosen = sorted(_chosen(who, listing, rows), key=lambda reservation: (reservation.number, reservation.id))
        following = None
        if listing.has_pages:
            size = min(listing.limit or who.config.api_default_max_items_number, who.config.api_max_limit)
            before = listing.before_id or LARGEST_ID + 1
            older = sorted((row for row in chosen if row.id < before), key=lambda row: -row.id)
            chosen = older[:size]
            following = chosen[-1].id if len(older) > size else None
        items = shown(tx, chosen, reader_for(tx, who))
    return {"items": [reservation_record(item) for item in items], "next": following}


def _chosen(
    who: Asking, listing: ReservationListing, rows: "Sequence[AdvanceReservation]"
) -> "list[AdvanceReservation]":
    """Return the reservations that match all filters.  Raises BadRequest, Unidentified."""
    owners = [who.caller.identified().name if owner == "me" else owner for owner in split_list(listing.owner)]
    states, names = split_list(listing.state), split_list(listing.name)
    for state in states:
        if state not in LETTERS:
            raise BadRequest(f"state: {state!r} must be one of {', '.join(LETTERS)}")
    return [
        reservation
        for reservation in rows
        if reservation.state not in HIDDEN
        and (not states or str(reservation.state) in states)
        and (not owners or matching(owners, [reservation.owner]))
        and (not names or matching(names, [reservation.name]))
        and (listing.begin is None or reservation.end > listing.begin)
        and (listing.to is None or reservation.start < listing.to)
    ]


# -- one of them ------------------------------------------------------------------------------------------------------


@router.get("/v1/reservations/{reservation}", "reservation", "Get an advance reservation", record=Reservation)
def get_reservation(request: Request, reservation: Named) -> Answer:
    """Return a reservation, by number or name, and its log."""
    return answer_unless_known(request, reservation_with_log(asking(request), reservation))


@router.get(
    "/v1/reservations/{reservation}/log", "reservation_log", "Log of an advance reservation", record=ReservationLog
)
def reservation_log(request: Request, reservation: Named) -> Answer:
    """Return the lines of `qrstat -log`, oldest first."""
    with asking(request).database.snapshot() as tx:
        rows = tx.reservation_logs.logs([find(tx, reservation).id])
    return answer_unless_known(request, {"items": [log_record(row) for row in rows]})


@router.get(
    "/v1/reservations/{reservation}/jobs", "reservation_jobs", "List the jobs of an advance reservation", record=JobPage
)
def reservation_jobs(request: Request, reservation: Named, after: After = None, limit: Limit = 1000) -> Answer:
    """Return the current and past jobs of a reservation by id. `next` is the `after` parameter of the next page."""
    who = asking(request)
    with who.database.snapshot() as tx:
        inside = frozenset([find(tx, reservation).id])
    page = JobPlace(min(limit, who.config.api_max_limit), after)
    return answer_unless_known(request, page_of(who, JobQuery(states=None, reservations=inside), page))


@router.get(
    "/v1/reservations/{reservation}/resources",
    "reservation_resources",
    "Resources of an advance reservation",
    record=ReservationResources,
)
def reservation_resources(request: Request, reservation: Named) -> Answer:
    """Return the resources of a reservation, the missing ones, and the reasons."""
    record = _find_record(asking(request), reservation)
    names = ("resources", "granted_slots", "missing", "reasons")
    return answer_unless_known(request, {name: record[name] for name in names})


@router.get(
    "/v1/reservations/{reservation}/usage",
    "reservation_usage",
    "Usage of an advance reservation",
    record=ReservationUsages,
)
def reservation_usage(request: Request, reservation: Named) -> Answer:
    """Return slot seconds by node: reserved, used, unavailable. Empty until the reservation has ended."""
    return answer_unless_known(request, {"items": _find_record(asking(request), reservation)["usage"]})


@router.get(
    "/v1/reservations/{reservation}/revisions",
    "reservation_revisions",
    "Revisions of an advance reservation",
    record=ReservationRevisions,
)
def reservation_revisions(request: Request, reservation: Named) -> Answer:
    """Return the values of a reservation after each update, oldest first."""
    who = asking(request)
    with who.database.snapshot() as tx:
        stored = find(tx, reservation)
        may_see = _record(tx, who, stored)["account"] == stored.account
        rows = tx.reservation_logs.revisions(stored.id)
    return answer_unless_known(request, {"items": [revision_record(row, shows_account=may_see) for row in rows]})


def find(tx: "Transaction", name: int | str) -> "AdvanceReservation":
    """Return the reservation of a number, or the live one of a name.  Raises NoSuchResource, AmbiguousName."""
    if isinstance(name, int) or is_number(name):
        stored = list(tx.reservations.by_numbers([int(name)]).values())
    else:
        stored = tx.reservations.live_by_name(name)
    seen = [row for row in stored if row.state not in HIDDEN]
    if not seen:
        raise NoSuchResource(f"there is no advance reservation {name}")
    if len(seen) > 1:
        numbers = ", ".join(str(row.number) for row in sorted(seen, key=lambda row: row.number))
        raise AmbiguousName(f"several advance reservations have the name {name}: {numbers}. Use a number.")
    return seen[0]


def number_of(who: Asking, name: str) -> int:
    """Return the number of a reservation by its number, whether there is one or not, or by its name.

    Raises NoSuchResource, AmbiguousName.
    """
    if is_number(name):
        return int(name)
    with who.database.snapshot() as tx:
        return find(tx, name).number


def reservation_with_log(who: Asking, name: int | str) -> dict[str, Any]:
    """Return a reservation and what happened to it.  Raises NoSuchResource, AmbiguousName."""
    with who.database.snapshot() as tx:
        stored = find(tx, name)
        record = _record(tx, who, stored)
        log = [log_record(row) for row in tx.reservation_logs.logs([stored.id])]
    return {**record, "version": version_of(stored), "log": log}


def _find_record(who: Asking, name: str) -> dict[str, Any]:
    with who.database.snapshot() as tx:
        return _record(tx, who, find(tx, name))


def _record(tx: "Transaction", who: Asking, reservation: "AdvanceReservation") -> dict[str, Any]:
    (item,) = shown(tx, [reservation], reader_for(tx, who))
    return reservation_record(item)


def reader_for(tx: "Transaction", who: Asking) -> ReservationReader:
    """Return the caller as a reader of reservations."""
    user = who.caller.user
    if user is None or not who.caller.scopes.reads_all:
        return ReservationReader(Visitor(""), is_private=who.config.oarstat_private)
    return permissions.reader(tx, user, is_private=who.config.oarstat_private)
