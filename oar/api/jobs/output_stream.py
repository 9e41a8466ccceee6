"""The output of a job as it is written, as a stream of events: a program that runs as its owner follows the file."""

import asyncio
import codecs
import errno
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

import orjson

from oar.api.hub import BYE, Message, Subscriber
from oar.api.user_programs import BLOCK, UserProgram
from oar.lib.facts.history import JobStateChange
from oar.lib.facts.states import FINAL
from oar.lib.facts.topics import Topic

#: Bytes from the end with which a stream begins.
TAIL = 1 << 16
_LONGEST_LINE = 1 << 12
#: Seconds without a message after which a comment shows that the connection lives.
QUIET_SECONDS = 15.0
#: Seconds for which nothing has come after the end of a job, so that all is written.
LAST_SECONDS = 10.0


class Found(NamedTuple):
    """Something that the program has found in a file."""

    record: dict[str, int]
    data: bytes = b""

    @property
    def error(self) -> OSError | None:
        """Why there is nothing to be read; None if there is something."""
        number = self.record.get("error")
        if number is None:
            return None
        return OSError(number or errno.EISDIR, os.strerror(number or errno.EISDIR))


class Follower(UserProgram):
    """The program that follows a file as a user."""

    async def next(self, seconds: float | None = None) -> Found | None:
        """Return what it finds next, None when it has ended; ``seconds``: for how long it may be silent.

        Raises SilentProgram.
        """
        line = await self.line(_LONGEST_LINE, seconds)
        try:
            record = json.loads(line)
            length = record.get("length", 0)
            data = await self.exactly(min(length, BLOCK), seconds)
        except (ValueError, AttributeError, TypeError):  # it has ended, or is what its user has made of it
            return None
        return Found(record, data) if len(data) == length else None


class OutputMessages:
    """Makes messages of what is found; their ids are offsets at which a character begins."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, found: Found) -> bytes:
        """Return the message of something that was found, b'' if there is none yet."""
        if "truncated" in found.record or "skipped" in found.record:
            self._decoder.reset()
            (name,) = found.record
            return written(name, {"offset": found.record[name]}, found.record[name])
        if not found.data:
            return b""
        text = self._decoder.decode(found.data)
        kept, _ = self._decoder.getstate()
        behind = found.record["offset"] + len(found.data) - len(kept)
        return written("data", {"text": text, "offset": behind}, behind)


async def messages(
    first: Found | None,
    follower: Follower,
    listener: Subscriber,
    *,
    has_ended: bool,
    may_read: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    """Give the messages of a stream: until the job has ended and nothing comes any more, or the reader must go."""
    made, loop = OutputMessages(), asyncio.get_running_loop()
    found = asyncio.ensure_future(follower.next())
    news = asyncio.ensure_future(listener.next(QUIET_SECONDS))
    last = loop.time()
    try:
        yield b"retry: 3000\n\n" + (made.of(first) if first else b"")
        while True:
            patience = max(0.0, last + LAST_SECONDS - loop.time()) if has_ended else None
            done, _ = await asyncio.wait({found, news}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                yield written("end", {})
                return
            if found in done:
                piece, last = found.result(), loop.time()
                if piece is None:
                    yield written(BYE, {})
                    return
                if message := made.of(piece):
                    yield message
                found = asyncio.ensure_future(follower.next())
            if news in done:
                told = news.result()
                has_ended = has_ended or any(map(_is_end, told))
                if await _must_go(told, may_read):
                    yield written(BYE, {})
                    return
                if not told:
                    yield b": nothing new\n\n"
                news = asyncio.ensure_future(listener.next(QUIET_SECONDS))
    finally:
        found.cancel()
        news.cancel()


def written(name: str, record: dict[str, object], offset: int | None = None) -> bytes:
    """Return a message; ``offset``: from where who comes back goes on."""
    place = b"" if offset is None else b"id: %d\n" % offset
    return b"%sevent: %s\ndata: %s\n\n" % (place, name.encode(), orjson.dumps(record))


async def _must_go(told: list[Message], may_read: Callable[[], Awaitable[bool]]) -> bool:
    names = {message.name for message in told}
    return BYE in names or (not names.isdisjoint((Topic.TOKENS, "reset")) and not await may_read())


def _is_end(message: Message) -> bool:
    return isinstance(message.data, JobStateChange) and message.data.state in FINAL
