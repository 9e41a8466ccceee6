"""Bodies of the kind ``multipart/form-data``, read as they come: short fields, then one file.

Only the form that agents of desktop computers send is read; whatever else it is is refused.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from oar.lib.facts.errors import BadRequest

_BOUNDARY = re.compile(r'multipart/form-data\s*;\s*boundary=("?)([A-Za-z0-9\'()+_,./:=? -]{1,70})\1\s*')
_NAME = re.compile(rb'content-disposition:[ \t]*form-data;[ \t]*name="([a-z_]{1,32})"', re.IGNORECASE)
_FILE = "file"
#: Bytes of the head of a part and of a field, and how many fields there are, at most.
_LONGEST_HEAD, _LONGEST_FIELD, _MOST_FIELDS = 4096, 1024, 8


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


def boundary_of(content_type: str) -> str | None:
    """Return what stands between the parts of a form, None for a body of another kind."""
    found = _BOUNDARY.fullmatch(content_type)
    return found[2] if found else None


class FormReader:
    """Reads a form from pieces of any size.  Raises BadRequest."""

    def __init__(self, boundary: str) -> None:
        self._border = b"\r\n--" + boundary.encode("ascii")
        self._left = b"\r\n"  # the first border needs none before it
        self._name = ""  # of the part that is being read, '' in a head
        self._fields = 0
        self._is_over = False

    def feed(self, data: bytes) -> Iterator[FormEvent]:
        """Give what is whole now; what stands behind the end means nothing, and is not kept."""
        if self._is_over:
            return
        self._left += data
        while not self._is_over:
            length = len(self._left)
            if self._name == "":
                yield from self._read_head()
            elif self._name == _FILE:
                yield from self._read_file()
            else:
                yield from self._read_field()
            if len(self._left) == length:
                return

    def check_whole(self) -> None:
        """Refuse a form that has not come to its end.  Raises BadRequest."""
        if not self._is_over:
            raise BadRequest("the form has no end")

    def _read_head(self) -> Iterator[FormEvent]:
        begin = len(self._border)
        if len(self._left) < begin + 4:
            if not (self._border + b"--\r\n").startswith(self._left[: begin + 2]) and len(self._left) >= begin:
                self._check_border()
            return
        self._check_border()
        end = self._left.find(b"\r\n\r\n", begin)
        if end < 0:
            if len(self._left) > _LONGEST_HEAD:
                raise BadRequest("a part of the form has too long a head")
            return
        found = _NAME.search(self._left, begin, end)
        if found is None or self._left[begin : begin + 2] != b"\r\n":
            raise BadRequest("a part of the form has no name")
        self._name = found[1].decode("ascii")
        self._left = self._left[end + 4 :]
        if self._name == _FILE:
            yield FileBegins()

    def _check_border(self) -> None:
        if not self._left.startswith(self._border):
            raise BadRequest("the parts of the form are not told apart")

    def _read_field(self) -> Iterator[FormEvent]:
        end = self._left.find(self._border)
        length = end if end >= 0 else len(self._left) - len(self._border)
        if length > _LONGEST_FIELD or self._fields >= _MOST_FIELDS:
            raise BadRequest("the form has too many fields, or too long ones")
        if end < 0:
            return
        self._fields += 1
        try:
            yield FormField(self._name, self._left[:end].decode())
        except UnicodeDecodeError:
            raise BadRequest(f"the field {self._name} is no text") from None
        self._name, self._left = "", self._left[end:]

    def _read_file(self) -> Iterator[FormEvent]:
        end = self._left.find(self._border)
        if end < 0:
            ready = max(0, len(self._left) - len(self._border) + 1)
            if ready:
                data, self._left = self._left[:ready], self._left[ready:]
                yield FileData(data)
            return
        if end:
            data, self._left = self._left[:end], self._left[end:]
            yield FileData(data)
        if len(self._left) >= len(self._border) + 2:
            if self._left[len(self._border) : len(self._border) + 2] != b"--":
                raise BadRequest("the file is not the last part of the form")
            self._is_over, self._left = True, b""
