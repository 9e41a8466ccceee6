"""Responses: records, lists, exports and event streams."""

import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from http import HTTPStatus
from typing import Any, TypeVar, cast
from urllib.parse import quote

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from oar.lib.base.errors import BadRequest
from oar.lib.base.texts import nearest

Answer = Response
Item = TypeVar("Item", bound=Mapping[str, Any])
#: ``Cache-Control`` of responses that clients revalidate each time.
REVALIDATED = "private, no-cache"
#: Separates the digest of the body from the tag of the state in an ETag.
MARK = "~"


def answer(record: object, *, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a response with a record."""
    return Response(encoded(record), status, headers, JSON)


def created(record: object, *path: object) -> Answer:
    """Return the response for a created object; ``path``: the segments of its address after ``/v1``."""
    address = "/".join(("/v1", *(quote(str(segment), safe="") for segment in path)))
    return answer(record, status=HTTPStatus.CREATED, headers={"Location": address})


def encoded(record: object) -> bytes:
    """Return a record as JSON."""
    return orjson.dumps(record, default=_plain, option=orjson.OPT_NON_STR_KEYS)


def answer_unless_known(request: Request, record: Mapping[str, object]) -> Answer:
    """Return a record, or 304 if the client names its tag and so has it already.

    The tag of a record with a version begins with it: ``If-Match`` checks nothing else.  After the mark is the tag of
    the state from which the record was made (``state_tags``).
    """
    body = encoded(record)
    version = f"{record['version']}-" if "version" in record else ""
    state = request.scope["state"].get("state_tag")
    mark = f"{MARK}{state}" if state else ""
    tag = tag_of(body, version, mark)
    headers = validators(tag)
    if is_known(request, tag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(body, HTTPStatus.OK, headers, JSON)


def tag_of(body: bytes, before: str = "", behind: str = "") -> str:
    """Return the ETag of a body, with a prefix and a suffix."""
    return f'W/"{before}{hashlib.blake2b(body, digest_size=12).hexdigest()}{behind}"'


def validators(tag: str) -> dict[str, str]:
    """Return the headers of a response that clients revalidate by its ETag."""
    return {"ETag": tag, "Cache-Control": REVALIDATED}


def is_known(request: Request, tag: str) -> bool:
    """Return whether a client has the body of a tag, from whichever state it was made.

    ``*`` stands for every tag.
    """
    header = request.headers.get("if-none-match", "")
    if header.strip() == "*":
        return True
    return _body_digest(tag) in {_body_digest(tag_.strip()) for tag_ in header.split(",")}


def _body_digest(tag: str) -> str:
    return tag.removesuffix('"').partition(MARK)[0]


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no part of a record")


#: Media types of exports (one JSON text in each line) and of pages.
LINES, JSON = "application/x-ndjson", "application/json"
#: Items that are read at once.
EXPORT_PAGE = 1000

#: Returns the page after an id (None: the first one): ``items``, and ``next``, which is None for the last page.
Pages = Callable[[int | None], Mapping[str, Any]]


def accepts_lines(request: Request) -> bool:
    """Return whether a client accepts lines and no pages."""
    types = {part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")}
    return LINES in types and JSON not in types


class Export(StreamingResponse):
    """All items of a list.  Each page is read by itself: a slow client holds no transaction.

    A response that is interrupted, because the database is unavailable, lacks its last chunk: HTTP clients detect that.
    """

    def __init__(self, pages: Pages, one_more: AbstractContextManager[None]) -> None:
        """Read the first page, whose errors are answers.  ``one_more``: counts the export while it lasts."""
        self._lines = _lines(pages(None), pages)
        super().__init__((), media_type=LINES, headers={"Cache-Control": "no-store"})
        self._one_more = one_more

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it until it ends or the client goes.  Raises TooMany before it begins."""
        with self._one_more:
            seat = scope["state"]["seat"]
            seat.give_back()
            self.body_iterator = seat.drawn(self._lines)
            await super().__call__(scope, receive, send)


def _lines(page: Mapping[str, Any], pages: Pages) -> Iterator[bytes]:
    while True:
        yield b"".join(encoded(item) + b"\n" for item in page["items"])
        if page["next"] is None:
            return
        page = pages(page["next"])


def list_answer(request: Request, record: Mapping[str, Any]) -> Answer:
    """Return a complete list; as lines if the client accepts only these."""
    if accepts_lines(request):
        body = b"".join(encoded(item) + b"\n" for item in record["items"])
        return Response(body, media_type=LINES, headers={"Cache-Control": "no-store"})
    return answer_unless_known(request, record)


def select_fields(items: Sequence[Item], fields: str | None, known_fields: Collection[str]) -> list[Item]:
    """Return the selected fields of each item, all for None.  Raises BadRequest."""
    if fields is None:
        return list(items)
    names = [name for name in dict.fromkeys(fields.split(",")) if name]
    for name in names:
        if name not in known_fields:
            near = nearest(name, known_fields)
            raise BadRequest(f"fields: there is no field {name!r}" + (f"\ndid you mean {near!r}?" if near else ""))
    return [cast("Item", {name: item[name] for name in names if name in item}) for item in items]


#: The type of a stream of server-sent events.
EVENT_STREAM = "text/event-stream"


class EventStream(StreamingResponse):
    """A stream, with what has to be let go at its end.

    A client may disconnect before the first message: the generator has not started then, and cannot clean up.
    """

    def __init__(self, messages: AsyncIterator[bytes], held: AsyncExitStack) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(messages, media_type=EVENT_STREAM, headers=headers)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it until it ends or the client goes."""
        async with self._held:
            if scope.get("is_head"):
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await send({"type": "http.response.body"})
                return
            await super().__call__(scope, receive, send)
