"""What has happened and what happens: the stream of events, and its pages for who asks now and then."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from oar.api.answers.bodies import Answer, answer
from oar.api.answers.records import change_item, event_item
from oar.api.jobs.reading import PRINTABLE
from oar.api.jobs.waiting import wait_until_seen
from oar.api.serving.event_streams import EventStream
from oar.api.serving.hub import BYE, Message, Row, Subscriber, Takes, row_messages
from oar.api.serving.service import LARGEST_ID, Asking, asking, service_of
from oar.lib.db.feed import News, news_between
from oar.lib.facts.errors import BadRequest, OarError
from oar.lib.facts.history import JobStateChange, Position
from oar.lib.facts.topics import Topic

router = APIRouter(prefix="/v1", tags=["history"])

#: Seconds without a message after which a comment shows that the connection lives.
QUIET_SECONDS = 15.0
#: Milliseconds after which a browser connects again.
RETRY_MILLISECONDS = 3000
#: Rows that are told again to who comes back; who was away longer has to load everything anew.
DEPTH = 10_000

Since = Annotated[str | None, Query(max_length=50, description="A position that an answer has named.")]
Users = Annotated[
    str | None, Query(max_length=200, pattern=PRINTABLE, description="Changes of the jobs of this user only.")
]
Jobs = Annotated[int | None, Query(ge=1, description="What concerns this job only.")]


@router.get("/stream", operation_id="stream", summary="What happens, as it happens", response_class=StreamingResponse)
async def stream(request: Request, since: Since = None, user: Users = None, job: Jobs = None) -> StreamingResponse:
    """Send each change of a state and each event once, in order, as server-sent events; with `since` the past, too."""
    who = await run_in_threadpool(asking, request)
    begin = request.headers.get("last-event-id") or since
    position = Position.parse(begin) if begin else None
    hub = service_of(request).hub
    listener = Subscriber(_chosen(user, job), frozenset(Topic))
    told = hub.add(listener)
    shows = who.caller.user is not None

    def past(after: Position) -> News:
        with who.database.snapshot() as tx:
            return news_between(tx, after, told)

    async def is_known() -> bool:
        """Whether the caller is who he was: a token that has been revoked ends its streams."""
        try:
            return (await run_in_threadpool(asking, request)).caller.user == who.caller.user
        except OarError:
            return False

    held = AsyncExitStack()
    held.callback(hub.remove, listener)
    return EventStream(_told(listener, _Past(position, told, past), shows=shows, is_known=is_known), held)


@router.get("/events", operation_id="events", summary="What has happened, by pages")
async def events(
    request: Request,
    since: Since = None,
    user: Users = None,
    job: Jobs = None,
    wait: Annotated[int, Query(ge=0, le=LARGEST_ID, description="Seconds to wait for something, 30 at most.")] = 0,
) -> Answer:
    """Return the changes of states and the events behind a position, and the position for the next request."""
    hub, takes = service_of(request).hub, _chosen(user, job)
    if hub.position is None:
        raise BadRequest("the history is not being followed yet: ask again")
    after = Position.parse(since) if since else hub.position

    def page(who: Asking) -> dict[str, Any]:
        return _page(who, after, hub.position or after, takes)

    if wait:
        await wait_until_seen(request, Subscriber(takes, frozenset()), lambda who: _has_any(page(who)), wait)
    return await run_in_threadpool(lambda: answer(page(asking(request))))


def _has_any(page: Mapping[str, Any]) -> bool:
    return bool(page["items"] or page["more"])


def _page(who: Asking, after: Position, until: Position, takes: Takes) -> dict[str, Any]:
    with who.database.snapshot() as tx:
        news = news_between(tx, after, until)
    shows = who.caller.user is not None
    items = [
        {"event": message.name, **_data(message, shows=shows)}
        for message in row_messages(news)
        if not isinstance(message.data, dict) and takes(message.data)
    ]
    return {"items": items, "position": str(news.position), "more": news.position != until}


class _Past:
    """What a listener has missed: rows from where he was up to where he is told again."""

    def __init__(self, begin: Position | None, end: Position, read: Callable[[Position], News]) -> None:
        self.begin = begin
        self.end = end
        self._read = read

    @property
    def is_too_long(self) -> bool:
        """Whether he was away for so long, or comes from another database, that he has to load everything anew."""
        if self.begin is None:
            return False
        missed = (self.end.state_log - self.begin.state_log, self.end.event - self.begin.event)
        return max(missed) > DEPTH or min(missed) < 0

    async def pieces(self) -> AsyncIterator[list[Message]]:
        """Give what he has missed, piece by piece."""
        position = self.begin
        while position is not None and position != self.end:
            news = await run_in_threadpool(self._read, position)
            position = news.position
            yield row_messages(news)


async def _told(
    listener: Subscriber, past: _Past, *, shows: bool, is_known: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Give the bytes of a stream until the client goes."""
    yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
    if past.is_too_long:
        yield _written(Message("reset", {}, past.end), shows=shows)
    else:
        async for piece in past.pieces():
            yield b"".join(_written(message, shows=shows) for message in piece if listener.wants(message))
    if past.begin is None:
        yield f"id: {past.end}\n: from here\n\n".encode()
    while True:
        messages = await listener.next(QUIET_SECONDS)
        if any(message.name == Topic.TOKENS for message in messages) and not await is_known():
            yield _written(Message(BYE, {}, messages[-1].position), shows=False)
            return
        yield b"".join(_written(message, shows=shows) for message in messages) or b": nothing new\n\n"
        if any(message.name == BYE for message in messages):
            return


def _written(message: Message, *, shows: bool) -> bytes:
    data = orjson.dumps(_data(message, shows=shows))
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (str(message.position).encode(), message.name.encode(), data)


def _data(message: Message, *, shows: bool) -> dict[str, object]:
    if isinstance(message.data, dict):
        return dict(message.data)
    if isinstance(message.data, JobStateChange):
        return change_item(message.data)
    return event_item(message.data if shows else message.data._replace(description=""))


def _chosen(user: str | None, job: int | None) -> Takes:
    """Return what of the history a client asks for."""

    def takes(row: Row) -> bool:
        of_job = job is None or row.job_id == job
        return of_job and (user is None or (isinstance(row, JobStateChange) and row.owner == user))

    return takes
