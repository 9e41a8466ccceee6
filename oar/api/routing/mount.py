"""The path under which the service stands outside: proxies pass addresses with it or without, as they like."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING:
    from oar.lib.config.files import Config


class Mount:
    """Takes the outer path away from the beginning of addresses, so that links with it lead here by any way.

    Only API_ROOT_PATH counts.  What a proxy tells of its path may come from its client, who could get round the rules
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
        """Return a request with its address behind the outer path, if it has that."""
        raw: bytes = scope["raw_path"]
        rest = raw.removeprefix(before.encode())
        if rest == raw or rest[:1] not in (b"", b"/") or before.split("/")[1] in self._own_words:
            return scope
        return {**scope, "path": scope["path"].removeprefix(before) or "/", "raw_path": rest or b"/"}
