"""Exports: all that a list has, one JSON text a line, made page by page as fast as the client reads them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from oar.api.responses import encoded

#: The type of an answer that has a JSON text in each line, and the one that means the same list by pages.
LINES, _JSON = "application/x-ndjson", "application/json"
#: Items that are read at once.
PAGE = 1000

#: Makes the page behind an id (None: the first one): ``items``, and ``next``, which is None for the last page.
Pages = Callable[[int | None], Mapping[str, Any]]


def wants_lines(request: Request) -> bool:
    """Whether a client accepts lines and no page."""
    types = {part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")}
    return LINES in types and _JSON not in types


class Export(StreamingResponse):
    """All items of a list.  Each page is read by itself: a slow client holds no transaction.

    An answer that breaks off, since the database is gone, lacks its last chunk: clients of HTTP tell that.
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
