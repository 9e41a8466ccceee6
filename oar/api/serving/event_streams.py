"""Streams of events: what they hold is let go at their end, however that comes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

#: The type of a stream of server-sent events.
EVENTS = "text/event-stream"


class EventStream(StreamingResponse):
    """A stream, with what has to be let go at its end.

    A client may go before the first message is made: what makes the messages has not begun then, and cannot end.
    """

    def __init__(self, messages: AsyncIterator[bytes], held: AsyncExitStack) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(messages, media_type=EVENTS, headers=headers)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it until it ends or the client goes."""
        async with self._held:
            if scope.get("is_head"):
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await send({"type": "http.response.body"})
                return
            await super().__call__(scope, receive, send)
