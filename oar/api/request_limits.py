"""What is refused before anything is looked at: bodies that are too large, more requests than can be answered.

Each client, by its address or uid, has only a part of what all share; a request counts when its body is complete.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

import orjson
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oar.api.clients import Client
from oar.api.concurrency import SEAT, Places, Seat, in_thread
from oar.api.errors import CODES, TooMany, UnfitBody, early_problem
from oar.api.legacy.requests import media_path
from oar.api.middleware import request_headers
from oar.api.request_bodies import check_shape, is_json

if TYPE_CHECKING:
    from oar.lib.config.files import Config

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
