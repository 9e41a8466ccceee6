"""Bodies of type ``multipart/form-data``: the fields of a small one, the file of one that may be large."""

import re
from collections.abc import AsyncIterable, AsyncIterator

from oar.lib.facts.errors import BadRequest

MULTIPART = "multipart/form-data"
#: Parts of a form, and bytes of the head of one, at most.
MOST_PARTS = 1000
_LONGEST_HEAD = 8 << 10
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))')
_FILE = re.compile(rb"^content-disposition:.*\bfilename=", re.IGNORECASE | re.MULTILINE)
_NAME = re.compile(
    rb'^content-disposition:[^\r\n]*[;\s]name=(?:"([^"\r\n]+)"|([^\s;"]+))', re.IGNORECASE | re.MULTILINE
)
_END = re.compile(rb"--[ \t]*(\r\n|\Z)")
_INCOMPLETE = "the form does not come to its end"


def fields_of(kind: str, data: bytes) -> dict[str, str]:
    """Return the fields of a form; ``kind``: its whole Content-Type.  Raises BadRequest.

    Parts are counted before they are looked at, and none of them is a form itself.
    """
    between, whole = b"\r\n--" + boundary_of(kind), b"\r\n" + data
    if whole.count(between) > MOST_PARTS + 1:
        raise BadRequest(f"the form has more than {MOST_PARTS} parts")
    _, *parts = whole.split(between)
    if not parts or not _END.match(parts.pop()):
        raise BadRequest(_INCOMPLETE)
    return dict(map(_field, parts))


def _field(part: bytes) -> tuple[str, str]:
    head, is_whole, value = part.partition(b"\r\n\r\n")
    found = _NAME.search(head[:_LONGEST_HEAD])
    if not (found and is_whole):
        raise BadRequest("a part of the form has no name")
    name = (found[1] or found[2]).decode(errors="replace")
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
