"""Logged events, the last scheduling passes, and what happens now: as a stream, and for clients that poll."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import StreamingResponse
from typing_extensions import TypeAliasType, TypedDict

from oar.api.concurrency import in_thread
from oar.api.hub import BYE, Hub, Message, Row, Subscriber, Takes, row_messages
from oar.api.long_polling import wait_until_seen
from oar.api.parameters import LARGEST_ID, PRINTABLE, Fields, split_list
from oar.api.records import Event, selectable
from oar.api.responses import EXPORT_PAGE, Answer, EventStream, Export, accepts_lines, answer, select_fields
from oar.api.routing import Router
from oar.api.service import MAX_EXPORTS, Asking, asking, counted_client, service_of
from oar.lib.base.errors import BadRequest, OarError, ServerUnavailable
from oar.lib.bus import control_client, frames
from oar.lib.bus.messages import Topic
from oar.lib.history.event_texts import JOB_ENDS
from oar.lib.history.records import JobStateChange, Position
from oar.lib.history.sql_feed import PIECE, News, news_between
from oar.lib.history.views import change_item, event_item
from oar.lib.jobs.privacy import Privacy

if TYPE_CHECKING:
    from oar.lib.config.files import Config


router = Router("history")


@selectable
class EventItem(Event):
    pass


EventLog = TypedDict("EventLog", {"items": list[EventItem], "next": int | None})


PhaseSeconds = TypeAliasType("PhaseSeconds", dict[str, float])


class SchedulingPass(TypedDict):
    date: int
    duration: float
    result: str
    kind: str | None
    waiting: int | None
    undecided: int | None
    started: int
    phases: PhaseSeconds | None


SchedulingPasses = TypedDict("SchedulingPasses", {"items": list[SchedulingPass]})


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


@router.get(
    "/v1/event-log",
    "event_log",
    "List logged events, newest first",
    exports=True,
    topics=frozenset({Topic.EVENTS, Topic.JOBS}),
)
def event_log(request: Request, listing: EventListing) -> EventLog | Answer:
    """Return events. `next` is the `before` parameter of the next page, null on the last page.

    With the `Accept` header `application/x-ndjson` all events are returned, one JSON object per line.
    """
    who = asking(request)
    if accepts_lines(request):
        exports = service_of(request).exports

        def pages(before: int | None) -> EventLog:
            return event_page(
                who, listing.model_copy(update={"limit": EXPORT_PAGE, "before": before or listing.before})
            )

        return Export(pages, exports.one_more(counted_client(request, who.caller), MAX_EXPORTS))
    return event_page(who, listing)


def event_page(who: Asking, listing: EventListing) -> EventLog:
    """Return a page of events; their texts only to who is known."""
    with who.database.snapshot() as tx:
        events = tx.events.latest(
            listing.limit + 1,
            job=listing.job,
            type_=listing.type,
            node=listing.node,
            before=listing.before,
            reader=who.privacy.events_reader,
        )
        ends = tx.listings.ends([event.job_id for event in events if event.type in JOB_ENDS])
    shown = who.privacy.events(events[: listing.limit])
    statuses = {job_id: status for job_id, (_, status) in ends.items()}
    items = [cast("EventItem", event_item(event, statuses.get(event.job_id))) for event in shown]
    items = select_fields(items, listing.fields, EventItem.__annotations__)
    return {"items": items, "next": shown[-1].id if len(events) > len(shown) else None}


@router.get("/v1/rounds", "rounds", "List recent scheduling passes")
def rounds(
    request: Request, last: Annotated[int, Field(ge=1, le=MAX_PASSES, description="Maximum number of passes.")] = 20
) -> SchedulingPasses:
    """Return the scheduling passes since the start of the server, newest first.

    `kind` is `urgent` for a pass that only considered jobs that can start now, and left `undecided` jobs to the next
    full plan; otherwise `full`. `waiting` and `started` are numbers of jobs, `phases` are durations in seconds. Values
    are null for failed passes and for external schedulers.
    """
    config = asking(request).config
    passes = service_of(request).cache.recent("passes", lambda: _last_passes(config), KEPT_SECONDS)
    if passes is None:
        raise ServerUnavailable(f"the OAR server ({config.server_places}) does not answer. Try again later.")
    return {"items": [_pass_record(record) for record in passes[:last]]}


def _last_passes(config: "Config") -> Sequence[Mapping[str, Any]] | None:
    """Return the last passes, newest first; None if the server does not answer."""
    response = control_client.ask(config, frames.RoundsQuestion(MAX_PASSES), frames.RoundsAnswer, PATIENCE)
    return response.state["rounds"] if isinstance(response, frames.RoundsAnswer) else None


def _pass_record(record: Mapping[str, Any]) -> SchedulingPass:
    undecided = record.get("undecided")
    return {
        "date": record["date"],
        "duration": record["duration"],
        "result": record["result"],
        "kind": None if undecided is None else "urgent" if undecided else "full",
        "waiting": record.get("jobs"),
        "undecided": undecided,
        "started": record["started"],
        "phases": record.get("phases"),
    }


StateEvent = TypedDict(
    "StateEvent",
    {
        "event": Literal["state"],
        "id": int,
        "job": int,
        "state": str,
        "from": str | None,
        "date": int,
        "user": str,
        "name": str | None,
        "queue": str,
        "array": int,
    },
)


class LoggedEvent(Event):
    event: Literal["event"]


EventPage = TypedDict("EventPage", {"items": list[StateEvent | LoggedEvent], "position": str, "more": bool})


#: Seconds without a message after which a comment keeps the connection alive.
QUIET_SECONDS = 15.0
#: Milliseconds after which a browser connects again.
RETRY_MILLISECONDS = 3000
#: Seconds after which a stream ends and its client reconnects: its permissions may have changed.
STREAM_SECONDS = 3600.0
#: Names of messages that clients can choose; messages of topics only report that something has changed.
STATE, EVENT = "state", "event"
_MESSAGES = (STATE, EVENT, *Topic)
#: Items of a page: a piece of each log.
MAX_ITEMS = 2 * PIECE


class HistoryListing(BaseModel):
    """Filters of events, all of which must match."""

    model_config = ConfigDict(extra="forbid")

    since: str | None = Field(None, max_length=50, description="Position returned by an earlier response.")
    user: str | None = Field(
        None, max_length=200, pattern=PRINTABLE, description="Only changes of this user's jobs; `me` is the caller."
    )
    job: int | None = Field(None, ge=1, le=LARGEST_ID, description="Only events of this job.")
    queue: str | None = Field(
        None, max_length=200, pattern=PRINTABLE, description="Only changes of jobs in this queue."
    )


class StreamListing(HistoryListing):
    """Parameters of a stream."""

    topics: str | None = Field(
        None, max_length=200, pattern=PRINTABLE, description=f"Topics to receive: {', '.join(_MESSAGES)}."
    )


class EventsListing(HistoryListing):
    """Parameters of a page of events."""

    limit: int = Field(default=MAX_ITEMS, ge=1, le=MAX_ITEMS, description="Page size.")
    wait: int = Field(default=0, ge=0, le=LARGEST_ID, description="Seconds to wait for a change, at most 30.")


class _Selection(NamedTuple):
    """The messages that a client has chosen."""

    names: frozenset[str]  #: of messages
    user: str | None
    job: int | None
    queue: str | None

    @classmethod
    def of(cls, who: Asking, listing: HistoryListing, topics: str | None = None) -> "_Selection":
        """Return the choice of a client; ``topics``: comma-separated.  Raises BadRequest, Unidentified."""
        names = split_list(topics) or _MESSAGES
        for name in names:
            if name not in _MESSAGES:
                raise BadRequest(f"topics: {name!r} must be one of {', '.join(_MESSAGES)}")
        user = who.caller.identified().name if listing.user == "me" else listing.user
        return cls(frozenset(names), user, listing.job, listing.queue)

    @property
    def topics(self) -> frozenset[Topic]:
        """The topics among the messages."""
        return frozenset(topic for topic in Topic if topic in self.names)

    def takes(self, row: Row) -> bool:
        """Return whether a row matches; events have no user and no queue."""
        if self.job is not None and row.job_id != self.job:
            return False
        if not isinstance(row, JobStateChange):
            return EVENT in self.names and self.user is None and self.queue is None
        is_named = self.user in (None, row.owner) and self.queue in (None, row.queue)
        return STATE in self.names and is_named

    def is_for(self, message: Message) -> bool:
        """Return whether a message is sent: changes of tokens are always received, but sent only if chosen."""
        return message.name != Topic.TOKENS or Topic.TOKENS in self.names


@router.get(
    "/v1/stream", "stream", "Stream state changes and events", has_tag=False, media_types=("text/event-stream",)
)
async def stream(request: Request, listing: StreamListing) -> StreamingResponse:
    """Send each state change and each event once, in order, as server-sent events. `since` includes past ones."""
    who = await in_thread(asking, request)
    chosen = _Selection.of(who, listing, listing.topics)
    begin = request.headers.get("last-event-id") or listing.since
    position = Position.parse(begin) if begin else None
    service = service_of(request)
    listener = Subscriber(chosen.takes, chosen.topics | {Topic.TOKENS}, folds=True)
    held = AsyncExitStack()
    await service.hub.begun()
    position_ = held.enter_context(service.listening(request, who.caller, listener, streams=True))

    def past(after: Position) -> News:
        with who.database.snapshot() as tx:
            return news_between(tx, after, position_)

    async def is_known() -> bool:
        """Return whether the caller is still authenticated: a revoked token ends its streams."""
        try:
            return (await in_thread(asking, request)).caller.user == who.caller.user
        except OarError:
            return False

    missed = _MissedEvents(position, position_, past, who.config.api_stream_depth)
    teller = _EventWriter(service.hub, listener, chosen, who.privacy, is_known)
    return EventStream(teller.told(missed), held)


@router.get("/v1/events", "events", "List state changes and events", record=EventPage, has_tag=False)
async def events(request: Request, listing: EventsListing) -> Answer:
    """Return the state changes and events after a position, and the position for the next request."""
    hub, who = service_of(request).hub, await in_thread(asking, request)
    takes = _Selection.of(who, listing).takes
    begun = await hub.begun()
    after = Position.parse(listing.since) if listing.since else begun

    def page(who: Asking) -> dict[str, Any]:
        return _page(who, after, hub.position or after, takes, listing.limit)

    if not listing.wait:
        return await in_thread(lambda: answer(page(who)))
    request.scope["state"]["asked"] = who  # a moment ago
    await wait_until_seen(request, Subscriber(takes, frozenset()), lambda who: _has_any(page(who)), listing.wait)
    return await in_thread(lambda: answer(page(asking(request))))


def _has_any(page: Mapping[str, Any]) -> bool:
    return bool(page["items"] or page["more"])


def _page(who: Asking, after: Position, until: Position, takes: Takes, limit: int) -> dict[str, Any]:
    with who.database.snapshot() as tx:
        news = news_between(tx, after, until)
    chosen = [
        message_ for message_ in row_messages(news) if not isinstance(message_.data, dict) and takes(message_.data)
    ]
    items = [{"event": message.name, **_data(message, who.privacy)} for message in chosen[:limit]]
    position = chosen[limit - 1].position if len(chosen) > limit else news.position
    return {"items": items, "position": str(position), "more": position != until}


class _MissedEvents:
    """The rows that a client has missed: from its last position to the start of the subscription."""

    def __init__(self, begin: Position | None, end: Position, read: Callable[[Position], News], depth: int) -> None:
        """``depth``: rows that are sent again, at most; a client that missed more gets ``reset``."""
        self.begin = begin
        self.end = end
        self._read = read
        self._depth = depth

    @property
    def is_too_long(self) -> bool:
        """Whether the client missed too much, or has a position of another database, and must reload everything."""
        if self.begin is None:
            return False
        missed = (self.end.state_log - self.begin.state_log, self.end.event - self.begin.event)
        return max(missed) > self._depth or min(missed) < 0

    async def pieces(self) -> AsyncIterator[list[Message]]:
        """Yield the missed messages, piece by piece."""
        position = self.begin
        while position is not None and position != self.end:
            news = await in_thread(self._read, position)
            position = news.position
            yield row_messages(news)


class _EventWriter:
    """Sends the chosen messages to a client, until it disconnects, loses access, or reaches STREAM_SECONDS."""

    def __init__(
        self,
        hub: Hub,
        listener: Subscriber,
        chosen: _Selection,
        privacy: Privacy,
        is_known: Callable[[], Awaitable[bool]],
    ) -> None:
        self._hub = hub
        self._listener = listener
        self._chosen = chosen
        self._privacy = privacy
        self._is_known = is_known
        self._until = asyncio.get_running_loop().time() + STREAM_SECONDS

    async def told(self, past: _MissedEvents) -> AsyncIterator[bytes]:
        """Yield the bytes of the stream."""
        yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
        if past.is_too_long:
            yield self._encode([Message("reset", {}, past.end)])
        else:
            async for piece in past.pieces():
                yield self._encode([message for message in piece if self._listener.wants(message)])
        if past.begin is None:
            yield f"id: {past.end}\n: from here\n\n".encode()
        is_over = False
        while not is_over:
            messages, is_over = await self._next()
            yield self._encode(messages) or b": nothing new\n\n"

    async def _next(self) -> tuple[list[Message], bool]:
        """Return the next messages, and whether they are the last."""
        now = asyncio.get_running_loop().time()
        messages = await self._listener.next(max(0.0, min(QUIET_SECONDS, self._until - now)))
        if any(message.name == Topic.TOKENS for message in messages) and not await self._is_known():
            return [Message(BYE, {}, messages[-1].position)], True
        chosen = [message for message in messages if self._chosen.is_for(message)]
        if any(message.name == BYE for message in chosen):
            return chosen, True
        if asyncio.get_running_loop().time() < self._until:
            return chosen, False
        rest = await self._listener.next(0.0)  # behind what it is told the client comes back
        return [
            *chosen,
            *filter(self._chosen.is_for, rest),
            Message(BYE, {}, self._hub.position or Position(0, 0)),
        ], True

    def _encode(self, messages: Iterable[Message]) -> bytes:
        return b"".join(_encode(message, self._privacy) for message in messages)


def _encode(message: Message, privacy: Privacy) -> bytes:
    data = orjson.dumps(_data(message, privacy))
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (str(message.position).encode(), message.name.encode(), data)


def _data(message: Message, privacy: Privacy) -> dict[str, object]:
    if isinstance(message.data, dict):
        return dict(message.data)
    if isinstance(message.data, JobStateChange):
        return change_item(message.data)
    (event,) = privacy.events((message.data,))
    return event_item(event)
