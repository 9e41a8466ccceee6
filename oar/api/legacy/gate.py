"""What is refused before anything is looked at: bodies that are too large, more requests than can be answered."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oar.api.answers.statuses import early_problem
from oar.api.legacy.calls import file_in
from oar.api.routing.head import asked_in
from oar.api.routing.json_shape import check_shape, is_json

if TYPE_CHECKING:
    from oar.lib.config.files import Config

#: Requests that wait for each thread, at most.
WAITING_FOR_A_THREAD = 8
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


class Seat:
    """A seat among the requests under way; who waits without a thread gives it back before the end."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave: Callable[[], None] | None = leave

    def give_back(self) -> None:
        """Count no more; the second time nothing happens."""
        leave, self._leave = self._leave, None
        if leave:
            leave()


class Gate:
    """Stands before the application; each request's ``state`` holds its ``seat``."""

    def __init__(self, app: ASGIApp, config: "Callable[[], Config]") -> None:
        self._app = app
        self._config = config
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        config = self._config()
        if scope["path"] in _UNCOUNTED:
            await self._app(scope, receive, send)
        elif self._under_way >= config.api_threads * WAITING_FOR_A_THREAD:
            await _refuse(
                scope, send, HTTPStatus.SERVICE_UNAVAILABLE, "too-many", "too many requests at once: ask again"
            )
        else:
            self._under_way += 1
            seat = scope.setdefault("state", {})["seat"] = Seat(self._leave)
            try:
                await self._let_in(scope, receive, send, config)
            finally:
                seat.give_back()

    def _leave(self) -> None:
        self._under_way -= 1

    async def _let_in(self, scope: Scope, receive: Receive, send: Send, config: "Config") -> None:
        headers = asked_in(scope)
        declared = headers.get(b"content-length", b"0")
        if declared == b"0" and b"transfer-encoding" not in headers:
            await self._app(scope, receive, send)
            return
        is_file = file_in(scope["path"]) is not None
        is_upload = is_file or (scope["path"] in _UPLOADS and headers.get(b"content-type", b"").startswith(_FORM))
        most = config.api_max_upload + (0 if is_file else _BESIDE_FILE) if is_upload else config.api_max_body
        if not declared.isdigit() or int(declared[:20]) > most:
            await _refuse_body(scope, send, most, "API_MAX_UPLOAD" if is_upload else "API_MAX_BODY")
            return
        body = _Body(receive, most, config.api_timeout, slowest=_SLOWEST if is_upload else None)
        if not is_upload and is_json(headers.get(b"content-type", b"")):
            body.pieces = []
        await self._app(scope, body.receive, _closing(send, body))


class _Body:
    """The body of a request, of which only so many bytes are taken, and only for so long.

    Those of files may take their time, while bytes come no slower than they may.
    """

    def __init__(self, receive: Receive, most: int, seconds: float, *, slowest: int | None) -> None:
        """``seconds``: for the whole, or between two pieces of a file.

        ``slowest``: bytes a second of a file below which these seconds become fewer; None: it is no file.
        """
        self._receive = receive
        self._left = most
        self._slowest = slowest
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
        if self._left < 0:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if self.is_whole and self.pieces is not None:
            whole, self.pieces = b"".join(self.pieces), None
            await run_in_threadpool(check_shape, whole) if len(whole) > _AT_ONCE else check_shape(whole)
        return message

    def _count(self, piece: bytes) -> None:
        self._left -= len(piece)
        if self.pieces is not None:
            self.pieces.append(piece)
        if self._slowest:
            now = asyncio.get_running_loop().time()
            self._until = min(now + self._seconds, self._until + len(piece) / self._slowest)


def _closing(send: Send, body: _Body) -> Send:
    """Let the connection end with a refusal that comes before the body is whole: what is still sent is not read."""

    async def send_on(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= HTTPStatus.BAD_REQUEST:
            headers = [] if body.is_whole else [(b"connection", b"close")]
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return send_on


async def _refuse_body(scope: Scope, send: Send, most: int, key: str) -> None:
    text = f"the body of a request has at most {most} bytes ({key})"
    await _refuse(scope, send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", text)


async def _refuse(scope: Scope, send: Send, status: HTTPStatus, word: str, text: str) -> None:
    """Answer, and close the connection: what the client still sends is not read."""
    request_id = scope.get("state", {}).get("request_id", "")
    record = {**early_problem(scope["path"], status, word, text), "request_id": request_id}
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"retry-after", _AGAIN_AFTER))
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": orjson.dumps(record)})
