"""Bodies of type ``multipart/form-data``: the fields of a small one, the file of one that may be large."""

import email
import email.policy
import re
from collections.abc import AsyncIterable, AsyncIterator
from email.message import Message

from oar.lib.facts.errors import BadRequest

MULTIPART = "multipart/form-data"
#: Parts of a form, and bytes of the head of one, at most.
MOST_PARTS = 1000
_LONGEST_HEAD = 8 << 10
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))')
_FILE = re.compile(rb"^content-disposition:.*\bfilename=", re.IGNORECASE | re.MULTILINE)
_INCOMPLETE = "the form does not come to its end"


def fields_of(kind: str, data: bytes) -> dict[str, str]:
    """Return the fields of a form; ``kind``: its whole Content-Type.  Raises BadRequest."""
    boundary_of(kind)
    head = f"Content-Type: {kind}\r\n\r\n".encode("latin-1", "replace")
    parts = email.message_from_bytes(head + data, policy=email.policy.compat32).get_payload()
    if not isinstance(parts, list) or len(parts) > MOST_PARTS:
        raise BadRequest(_INCOMPLETE)
    return dict(_field(part) for part in parts if isinstance(part, Message))


def _field(part: Message) -> tuple[str, str]:
    name = part.get_param("name", header="content-disposition")
    value = part.get_payload(decode=True)
    if not isinstance(name, str) or not isinstance(value, bytes):
        raise BadRequest("a part of the form has no name")
    try:
        return name, value.decode()
    except UnicodeDecodeError:
        raise BadRequest(f"{name}: this is no text") from None


def boundary_of(kind: str) -> bytes:
    """Return what stands between the parts of a form.  Raises BadRequest."""
    found = _BOUNDARY.search(kind)
    if not found:
        raise BadRequest("the Content-Type of the form has no boundary")
    return (found[1] or found[2]).encode("latin-1", "replace")


async def file_of(kind: str, pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Give the bytes of the first file of a form, as they come.  Raises BadRequest."""
    between = b"\r\n--" + boundary_of(kind)
    reader = _Reader(pieces)
    await reader.skip(between)
    while not _FILE.search(await reader.head()):
        await reader.skip(between)
    async for piece in reader.until(between):
        yield piece


class _Reader:
    """What comes in pieces, as if it were one."""

    def __init__(self, pieces: AsyncIterable[bytes]) -> None:
        self._pieces = aiter(pieces)
        self._held = b"\r\n"  # the first boundary has no line before it

    async def _more(self) -> None:
        try:
            self._held += await anext(self._pieces)
        except StopAsyncIteration:
            raise BadRequest(_INCOMPLETE) from None

    async def skip(self, mark: bytes) -> None:
        """Go behind a mark.  Raises BadRequest."""
        async for _ in self.until(mark):
            pass

    async def until(self, mark: bytes) -> AsyncIterator[bytes]:
        """Give what stands before a mark, and go behind it.  Raises BadRequest."""
        while (place := self._held.find(mark)) < 0:
            certain = len(self._held) - len(mark) + 1
            if certain > 0:
                yield self._held[:certain]
                self._held = self._held[certain:]
            await self._more()
        yield self._held[:place]
        self._held = self._held[place + len(mark) :]

    async def head(self) -> bytes:
        """Return the head of a part, and go behind it.  Raises BadRequest."""
        while (place := self._held.find(b"\r\n\r\n")) < 0:
            if len(self._held) > _LONGEST_HEAD or self._held.startswith(b"--\r\n"):
                raise BadRequest("the form holds no file")
            await self._more()
        head, self._held = self._held[:place], self._held[place + 4 :]
        if head.startswith(b"--"):
            raise BadRequest("the form holds no file")
        return head
