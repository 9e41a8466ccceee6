"""Limits on the shape of JSON bodies, and readers of ``multipart/form-data``."""

import re
from collections.abc import AsyncIterable, AsyncIterator
from http import HTTPStatus
from typing import NamedTuple

from oar.api.errors import UnfitBody
from oar.lib.base.errors import BadRequest

DEEPEST = 64
MAX_KEYS = 100_000
#: A string, up to the end of the body if it is not terminated, so that each byte is scanned once.
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_OTHERS = bytes(set(range(256)) - set(b"[]{}:"))
_ALIKE = bytes.maketrans(b"{}", b"[]")


def is_json(content_type: bytes) -> bool:
    """Whether a body of this type is read as JSON, as one without a type is.

    >>> is_json(b"application/merge-patch+json"), is_json(b"text/yaml")
    (True, False)
    """
    return not content_type.strip() or b"json" in content_type.lower()


def check_shape(data: bytes) -> None:
    """Check how deep a body is and how many keys it has; whether it is JSON is not looked at.  Raises UnfitBody."""
    plain = data.replace(b"\0", b"")  # of UTF-16, which is read as well, every other byte
    marks = _TEXT.sub(b"", plain).translate(_ALIKE, _OTHERS)
    if marks.count(b":") > MAX_KEYS:
        text = f"the body has more than {MAX_KEYS} keys"
        raise UnfitBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text, "send it in several requests")
    if _is_deep(marks.replace(b":", b"")):
        text = f"the body has lists and records in one another, more than {DEEPEST} deep"
        raise UnfitBody(HTTPStatus.BAD_REQUEST, text, "docs/api.rst and /openapi.json show what a request looks like")


def _is_deep(marks: bytes) -> bool:
    """Return whether brackets are nested too deep; unclosed ones count, too."""
    for _ in range(DEEPEST):
        inner = marks.replace(b"[]", b"")  # takes away the innermost pairs
        if inner == marks:
            break
        marks = inner
    return b"[]" in marks or marks.count(b"[") > DEEPEST


MULTIPART = "multipart/form-data"
#: Parts of a form, and bytes of the head of one, at most.
MAX_PARTS = 1000
_MAX_HEAD = 8 << 10
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
    if whole.count(between) > MAX_PARTS + 1:
        raise BadRequest(f"the form must have at most {MAX_PARTS} parts")
    _, *parts = whole.split(between)
    if not parts or not _END.match(parts.pop()):
        raise BadRequest(_INCOMPLETE)
    return dict(map(_field, parts))


def _field(part: bytes) -> tuple[str, str]:
    head, is_whole, value = part.partition(b"\r\n\r\n")
    match = _NAME.search(head[:_MAX_HEAD])
    if not (match and is_whole):
        raise BadRequest("each part of the form must have a name")
    name = (match[1] or match[2]).decode(errors="replace")
    try:
        return name, value.decode()
    except UnicodeDecodeError:
        raise BadRequest(f"{name}: must be a text") from None


def boundary_of(kind: str) -> bytes:
    """Return the boundary of a form.  Raises BadRequest."""
    match = _BOUNDARY.search(kind)
    if not match:
        raise BadRequest("the Content-Type of the form must have a boundary")
    return (match[1] or match[2]).encode("latin-1", "replace")


async def file_of(kind: str, pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the bytes of the first file of a form, as they arrive.  Raises BadRequest."""
    between = b"\r\n--" + boundary_of(kind)
    reader = _Reader(pieces)
    await reader.skip(between)
    while not _FILE.search(await reader.head()):
        await reader.skip(between)
    async for piece in reader.until(between):
        yield piece


class _Reader:
    """Reads a body that arrives in pieces."""

    def __init__(self, pieces: AsyncIterable[bytes]) -> None:
        self._pieces = aiter(pieces)
        self._held = b"\r\n"  # the first boundary has no line before it

    async def _more(self) -> None:
        try:
            self._held += await anext(self._pieces)
        except StopAsyncIteration:
            raise BadRequest(_INCOMPLETE) from None

    async def exactly(self, length: int) -> bytes:
        """Return the next bytes, and skip them.  Raises BadRequest."""
        while len(self._held) < length:
            await self._more()
        data, self._held = self._held[:length], self._held[length:]
        return data

    async def skip(self, mark: bytes) -> None:
        """Skip to the end of a mark.  Raises BadRequest."""
        async for _ in self.until(mark):
            pass

    async def until(self, mark: bytes) -> AsyncIterator[bytes]:
        """Yield the bytes before a mark, and skip the mark.  Raises BadRequest."""
        while (index := self._held.find(mark)) < 0:
            certain = len(self._held) - len(mark) + 1
            if certain > 0:
                yield self._held[:certain]
                self._held = self._held[certain:]
            await self._more()
        yield self._held[:index]
        self._held = self._held[index + len(mark) :]

    async def head(self) -> bytes:
        """Return the head of a part, and skip it.  Raises BadRequest."""
        while (index := self._held.find(b"\r\n\r\n")) < 0:
            if len(self._held) > _MAX_HEAD or self._held.startswith(b"--\r\n"):
                raise BadRequest("the form must have a file")
            await self._more()
        head, self._held = self._held[:index], self._held[index + 4 :]
        if head.startswith(b"--"):
            raise BadRequest("the form must have a file")
        return head


_AGENT_BOUNDARY = re.compile(r'multipart/form-data\s*;\s*boundary=("?)([A-Za-z0-9\'()+_,./:=? -]{1,70})\1\s*')
_AGENT_NAME = re.compile(rb'content-disposition:[ \t]*form-data;[ \t]*name="([a-z_]{1,32})"', re.IGNORECASE)
_AGENT_FILE = "file"
#: Bytes of a field, and how many fields there are, at most.
_MAX_AGENT_FIELD, _MAX_AGENT_FIELDS = 1024, 8
_TOO_MUCH = "the form has too many fields, or too long ones"


class FormField(NamedTuple):
    """A field of a form."""

    name: str
    value: str


class FileBegins(NamedTuple):
    """The file of a form begins; all fields have come."""


class FileData(NamedTuple):
    """A piece of the file of a form."""

    data: bytes


FormEvent = FormField | FileBegins | FileData


def agent_boundary_of(content_type: str) -> str | None:
    """Return the boundary of a form, None for a body of another type."""
    match = _AGENT_BOUNDARY.fullmatch(content_type)
    return match[2] if match else None


async def form_events(boundary: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[FormEvent]:
    """Yield the fields of an agent's form, and then its file, as they arrive.  Raises BadRequest."""
    border = b"\r\n--" + boundary.encode("ascii")
    reader = _Reader(pieces)
    async for piece in reader.until(border):
        if piece:
            raise BadRequest("the parts of the form must be separated by its boundary")
    for _ in range(_MAX_AGENT_FIELDS + 1):
        match = _AGENT_NAME.search(await reader.head())
        if match is None:
            raise BadRequest("each part of the form must have a name")
        name = match[1].decode("ascii")
        if name == _AGENT_FILE:
            break
        value = b""
        async for piece in reader.until(border):
            value += piece
            if len(value) > _MAX_AGENT_FIELD:
                raise BadRequest(_TOO_MUCH)
        try:
            yield FormField(name, value.decode())
        except UnicodeDecodeError:
            raise BadRequest(f"{name}: must be a text") from None
    else:
        raise BadRequest(_TOO_MUCH)
    yield FileBegins()
    async for piece in reader.until(border):
        yield FileData(piece)
    if await reader.exactly(2) != b"--":
        raise BadRequest("the file must be the last part of the form")
    async for _ in pieces:  # what follows the form is ignored
        pass
