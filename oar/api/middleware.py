"""Middleware: ids, headers and counts of requests, CORS, the external path, compression."""

import re
import secrets
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi import Request
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oar.api.authentication import SAFE_METHODS, outer_path
from oar.api.clients import find_client
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
        """Answer one request."""
        if scope["type"] == "http" and (before := self._config().api_root_path.rstrip("/")):
            scope = self._inside(scope, before)
        await self._app(scope, receive, send)

    def _inside(self, scope: Scope, before: str) -> Scope:
        """Return a request without the external path, if its address has it."""
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
        """Answer one request."""
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
        """Answer one request."""
        if scope["type"] == "http" and b"gzip" in request_headers(scope).get(b"accept-encoding", b""):
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, send)
