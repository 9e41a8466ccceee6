"""Middleware: ids, headers and counts of requests, CORS, the external path, compression, limits.

Each client, by its address or uid, has only a part of what all share; a request counts when its body is complete.
"""

import asyncio
import re
import secrets
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

import orjson
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oar.api.authentication import SAFE_METHODS, outer_path
from oar.api.clients import Client, find_client
from oar.api.concurrency import SEAT, Places, Seat, in_thread
from oar.api.errors import CODES, TooMany, UnfitBody, early_problem
from oar.api.legacy.requests import media_path
from oar.api.request_bodies import check_shape, is_json
from oar.api.request_metrics import SPENT, RequestCounts, Spent
from oar.api.responses import REVALIDATED

if TYPE_CHECKING:
    from oar.lib.config.files import Config


#: Headers as ASGI has them; the names are in lower case.
Pairs = list[tuple[bytes, bytes]]


def request_headers(scope: Scope) -> Mapping[bytes, bytes]:
    """Return the headers of a request; the first of several with the same name."""
    return dict(reversed(scope["headers"]))


def with_headers(message: Message, more: Mapping[bytes, bytes], unless_there: Mapping[bytes, bytes]) -> Message:
    """Return the start of a response with some headers replaced, and others added unless present."""
    kept: Pairs = [pair for pair in message.get("headers", ()) if pair[0] not in more]
    names = {name for name, _ in kept}
    missing = [pair for pair in unless_there.items() if pair[0] not in names]
    return {**message, "headers": [*kept, *more.items(), *missing]}


_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_SENT = "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, X-Request-ID"
_SEEN = (
    "ETag, Location, Retry-After, Idempotency-Replayed, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset,"
    " X-Request-ID, X-OAR-Size, X-OAR-Complete"
)
#: Seconds for which a browser may cache the permission.
_KEPT = "600"


class OtherOrigins:
    """CORS: lets pages of the origins in ``API_CORS_ORIGINS`` use the API, with tokens and never with cookies."""

    def __init__(self, app: ASGIApp, config: "Callable[[], Config]") -> None:
        self._app = app
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a preflight request, or add the origin to the response."""
        asked = request_headers(scope) if scope["type"] == "http" else {}
        origin = asked.get(b"origin", b"").decode("latin-1")
        config = self._config()
        if not origin or origin not in config.api_cors_origins:
            await self._app(scope, receive, send)
            return
        named = {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": _SEEN}
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in asked:
            allowed = {"Access-Control-Allow-Methods": _METHODS, "Access-Control-Allow-Headers": _SENT}
            headers = {**named, **allowed, "Access-Control-Max-Age": _KEPT, "Vary": "Origin"}
            await Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)(scope, receive, send)
            return
        more = {name.lower().encode(): value.encode() for name, value in named.items()}

        async def send_named(message: Message) -> None:
            is_begin = message["type"] == "http.response.start"
            await send(with_headers(message, more, {}) if is_begin else message)

        await self._app(scope, receive, send_named)


class Mount:
    """Removes the external path from the beginning of addresses: proxies pass it on or not.

    Only API_ROOT_PATH counts.  A path that a proxy sends may come from its client, which could evade the rules
    that a web server has for paths; it goes into links and nowhere else.
    """

    def __init__(self, app: ASGIApp, config: "Callable[[], Config]", own_words: Collection[str]) -> None:
        """``own_words``: first words of addresses of ours, which are never taken away."""
        self._app = app
        self._config = config
        self._own_words = own_words

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (before := self._config().api_root_path.rstrip("/")):
            scope = self._inside(scope, before)
        await self._app(scope, receive, send)

    def _inside(self, scope: Scope, before: str) -> Scope:
        raw: bytes = scope["raw_path"]
        rest = raw.removeprefix(before.encode())
        if rest == raw or rest[:1] not in (b"", b"/") or before.split("/")[1] in self._own_words:
            return scope
        return {**scope, "path": scope["path"].removeprefix(before) or "/", "raw_path": rest or b"/"}


_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


#: Headers of every response; and defaults.
_ALWAYS = {b"x-content-type-options": b"nosniff", b"vary": b"Accept, Authorization, Cookie, Accept-Encoding, Origin"}


_BY_DEFAULT = {b"cache-control": REVALIDATED.encode()}


class Frame:
    """Gives each request its id, its client and the headers of its response, and counts it."""

    def __init__(
        self, app: ASGIApp, counts: RequestCounts, changed: Callable[[], None], config: "Callable[[], Config]"
    ) -> None:
        """``changed``: called before the response to a request that may have changed something."""
        self._app = app
        self._counts = counts
        self._changed = changed
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        header = request_headers(scope).get(b"x-request-id", b"")
        request_id = header if _REQUEST_ID.fullmatch(header) else secrets.token_hex(8).encode()
        state = scope.setdefault("state", {})
        state["request_id"] = request_id.decode()
        state["client"] = find_client(scope, self._config())
        spent = Spent()
        SPENT.set(spent)

        async def send_framed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._counts.count(scope, message["status"], spent)
                if scope["method"] not in SAFE_METHODS:
                    self._changed()
                more = {**_ALWAYS, b"x-request-id": request_id, b"server-timing": spent.header.encode()}
                if allowance := state.get("allowance"):
                    more |= {name.lower().encode(): value.encode() for name, value in allowance.headers.items()}
                message = with_headers(message, more | self._place(scope, message), _BY_DEFAULT)
            await send(message)

        await self._app(scope, receive, send_framed)

    def _place(self, scope: Scope, message: Message) -> dict[bytes, bytes]:
        """Return the external address of a created object; handlers know only the part after the prefix."""
        location = b"" if scope["method"] in SAFE_METHODS else dict(message["headers"]).get(b"location", b"")
        if not location.startswith(b"/v1/"):
            return {}
        return {b"location": outer_path(Request(scope), self._config()).encode() + location}


class Packing(GZipMiddleware):
    """Compresses the responses to clients that accept gzip; other requests bypass it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and b"gzip" in request_headers(scope).get(b"accept-encoding", b""):
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, send)


#: Seconds for which what a client still sends is read after a refusal, in all and between two pieces: closed earlier,
#: the connection would be reset, and the answer lost.  A client that sends more bytes than these loses its answer.
DRAIN_SECONDS, SILENT_SECONDS, DRAIN_BYTES = 30.0, 5.0, 48 << 20
#: Routes that take files, and the media type of the bodies in which these come.
_UPLOADS, _FORM = frozenset({"/oar-cgi"}), b"multipart/form-data"
#: Bytes of a form besides its file; bytes a second below which a client that sends a file is too slow.
_BESIDE_FILE, _SLOWEST = 1 << 16, 1 << 14
#: Bytes of a body that are looked at without a thread of their own.
_AT_ONCE = 1 << 16
#: Seconds after which who was one too many may ask again.
_AGAIN_AFTER = b"1"
#: Routes that hold no thread.
_UNCOUNTED = frozenset({"/health/live", "/v1/stream"})


class Gate:
    """Stands before the application; each request's ``state`` holds its ``seat``."""

    def __init__(self, app: ASGIApp, config: "Callable[[], Config]", places: Places) -> None:
        self._app = app
        self._config = config
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        config, state = self._config(), scope.setdefault("state", {})
        client: Client = state.get("client", Client())
        seat = Seat(self._places, client.key, config.api_threads, is_one_of_many=client.is_one_of_many)
        state["seat"] = seat
        SEAT.set(seat)
        try:
            await self._let_in(scope, receive, send, config, seat)
        except TooMany as error:
            await _refuse(scope, receive, send, UnfitBody(HTTPStatus.SERVICE_UNAVAILABLE, str(error), ""))
        finally:
            seat.leave()

    async def _let_in(self, scope: Scope, receive: Receive, send: Send, config: "Config", seat: Seat) -> None:
        """Let a request in.  Raises TooMany."""
        headers = request_headers(scope)
        declared = headers.get(b"content-length", b"0")
        if declared == b"0" and b"transfer-encoding" not in headers:
            seat.give_back() if scope["path"] in _UNCOUNTED else seat.take()
            await self._app(scope, receive, send)
            return
        seat.wait_for_body()
        is_file = media_path(scope["path"]) is not None
        is_upload = is_file or (scope["path"] in _UPLOADS and headers.get(b"content-type", b"").startswith(_FORM))
        most = config.api_max_upload + (0 if is_file else _BESIDE_FILE) if is_upload else config.api_max_body
        if not declared.isdigit() or int(declared[:20]) > most:
            key = "API_MAX_UPLOAD" if is_upload else "API_MAX_BODY"
            text = f"the body of a request has at most {most} bytes ({key})"
            await _refuse(scope, receive, send, UnfitBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text, ""))
            return
        slowest, counted = (_SLOWEST, None) if is_upload else (0, seat)
        body = _Body(receive, most, config.api_timeout, slowest=slowest, seat=counted)
        if not is_upload and is_json(headers.get(b"content-type", b"")):
            body.pieces = []
        await self._app(scope, body.receive, _closing(receive, send, body, seat))


class _Body:
    """The body of a request, of which only so many bytes are taken, and only for so long.

    Those of files may take their time, while bytes come no slower than they may.
    """

    def __init__(
        self,
        receive: Receive,
        most: int,
        seconds: float,
        *,
        slowest: int = 0,
        seat: Seat | None = None,
    ) -> None:
        """``seconds``: for the whole, or between two pieces of a file.

        ``slowest``: bytes a second of a file below which these seconds become fewer; 0: it is no file.
        ``seat``: of the request, but of files; it counts bytes as they come, and the request when the whole has come.
        """
        self._receive = receive
        self._left = self._most = most
        self._slowest = slowest
        self._seat = seat
        self._seconds = seconds
        self._until = asyncio.get_running_loop().time() + seconds
        self.is_whole = False
        #: What has come, if its shape is looked at as soon as it is whole.
        self.pieces: list[bytes] | None = None

    async def receive(self) -> Message:
        """Return the next piece.  Raises HTTPException, UnfitBody."""
        if self.is_whole:  # what comes now tells that the client has gone
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT) from None
        if message["type"] == "http.request":
            self._count(message.get("body", b""))
            self.is_whole = not message.get("more_body", False)
            self._take_seat(len(message.get("body", b"")))
        if self.is_whole and self.pieces is not None:
            whole, self.pieces = b"".join(self.pieces), None
            await in_thread(check_shape, whole) if len(whole) > _AT_ONCE else check_shape(whole)
        return message

    def _take_seat(self, number: int) -> None:
        """Count the request, or the bytes.  Raises UnfitBody: what reads bodies passes on exceptions of HTTP only."""
        if self._seat is None:
            return
        try:
            self._seat.keep_bytes(number, self._most)
            if self.is_whole:
                self._seat.take()
        except TooMany as error:
            raise UnfitBody(HTTPStatus.SERVICE_UNAVAILABLE, str(error), "") from None

    def _count(self, piece: bytes) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if self.pieces is not None:
            self.pieces.append(piece)
        if self._slowest:
            now = asyncio.get_running_loop().time()
            self._until = min(now + self._seconds, self._until + len(piece) / self._slowest)


def _closing(receive: Receive, send: Send, body: _Body, seat: Seat) -> Send:
    """End the connection with a refusal that comes before the body is whole, when its client has got it."""
    is_over = False

    async def send_on(message: Message) -> None:
        nonlocal is_over
        if message["type"] == "http.response.start" and message["status"] >= HTTPStatus.BAD_REQUEST:
            is_over = not body.is_whole
            if is_over:
                seat.give_back()
            headers = [(b"connection", b"close")] if is_over else []
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        if is_over and message["type"] == "http.response.body" and not message.get("more_body", False):
            await _send_last(message.get("body", b""), receive, send)
        else:
            await send(message)

    return send_on


async def _send_last(body: bytes, receive: Receive, send: Send) -> None:
    """Send the rest of an answer, and end it when the client sends no more: it may read only then.

    The request has given its seat back: only its connection, of which each client has a part, is kept busy.
    """
    await send({"type": "http.response.body", "body": body, "more_body": True})
    left = DRAIN_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            more = True
            while more:
                async with asyncio.timeout(SILENT_SECONDS):
                    message = await receive()
                left -= len(message.get("body", b""))
                more = left > 0 and message["type"] == "http.request" and message.get("more_body", False)
    await send({"type": "http.response.body", "body": b""})


async def _refuse(scope: Scope, receive: Receive, send: Send, why: UnfitBody) -> None:
    """Answer, and close the connection: what the client still sends is not looked at."""
    scope["state"]["seat"].give_back()
    record = early_problem(scope["path"], why.status_code, CODES[HTTPStatus(why.status_code)], why.detail)
    body = orjson.dumps({**record, "request_id": scope["state"].get("request_id", "")})
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers.append((b"content-length", str(len(body)).encode()))
    if why.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"retry-after", _AGAIN_AFTER))
    await send({"type": "http.response.start", "status": why.status_code, "headers": headers})
    await _send_last(body, receive, send)
