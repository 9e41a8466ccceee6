"""Pages of other origins that may use the API: those of ``API_CORS_ORIGINS``, with tokens and never with cookies.

A browser gives an answer to a page of another origin only if the answer names that origin.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oar.api.routing.head import asked_in, with_headers

if TYPE_CHECKING:
    from oar.lib.config.files import Config

_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_SENT = "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, X-Request-ID"
_SEEN = (
    "ETag, Location, Retry-After, Idempotency-Replayed, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset,"
    " X-Request-ID, X-OAR-Size, X-OAR-Complete"
)
#: Seconds for which a browser need not ask again.
_KEPT = "600"


class OtherOrigins:
    """Stands before the application."""

    def __init__(self, app: ASGIApp, config: "Callable[[], Config]") -> None:
        self._app = app
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the question of a browser, or let the answer to a request name the origin of its page."""
        asked = asked_in(scope) if scope["type"] == "http" else {}
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
