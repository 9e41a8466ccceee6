"""The program that follows a file with the rights of its user. It needs only the standard library.

It prints a line of JSON for each change:

- ``{"size": N}`` when the file is opened
- ``{"offset": N, "length": L}``, followed by L bytes
- ``{"truncated": 0}`` when the file was truncated or replaced
- ``{"skipped": N}`` when the file grows faster than the reading limit
- ``{"error": E}`` with an error number (0: not a plain file) when it cannot be read

It polls the file, with longer pauses while nothing changes, since network file systems do not send notifications. It
ends when its standard input does.

    follower.py PATH OFFSET

A negative offset counts from the end of the file.
"""

import json
import os
import select
import stat
import sys

#: Seconds between two looks, at least and at most.
_SHORTEST, _LONGEST = 0.25, 5.0
#: Bytes of one piece, and of one look: with the shortest pause a MiB each second.
_PIECE, _LOOK = 1 << 16, 1 << 18
#: Who is so many bytes behind is told the end only.
_BEHIND = 1 << 23
_TAIL = 1 << 16


class _File:
    """The file that currently has a name. Another file may get the name, for example when logs are rotated."""

    def __init__(self, path: str, offset: int) -> None:
        self._path = path
        self._offset = offset
        self._descriptor = -1
        self._error: int | None = None

    def look(self) -> bool:
        """Print what is new. Return whether there is anything new."""
        try:
            size = self._opened()
        except OSError as error:
            return self._fail(error.errno or 0)
        if size is None:
            return self._fail(0)
        self._error = None
        if self._offset < 0:
            self._offset = max(0, size + self._offset)
        if size < self._offset:
            _tell({"truncated": 0})
            self._offset = 0
        if size - self._offset > _BEHIND:
            self._offset = size - _TAIL
            _tell({"skipped": self._offset})
        return self._pour()

    def _opened(self) -> "int | None":
        """Return the size of the file, None if it is not a plain file. Raises OSError."""
        if self._descriptor >= 0:
            mine, named = os.fstat(self._descriptor), os.stat(self._path)
            if (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino):
                return mine.st_size
            while self._pour():  # data written before the name was given to another file
                pass
            os.close(self._descriptor)
            self._descriptor = -1
            _tell({"truncated": 0})
            self._offset = 0
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._descriptor)
            self._descriptor = -1
            return None
        _tell({"size": status.st_size})
        return status.st_size

    def _pour(self) -> bool:
        most = _LOOK
        while most > 0:
            block = os.pread(self._descriptor, min(most, _PIECE), self._offset)
            if not block:
                break
            _tell({"offset": self._offset, "length": len(block)}, block)
            self._offset, most = self._offset + len(block), most - len(block)
        return most < _LOOK

    def _fail(self, number: int) -> bool:
        is_new, self._error = number != self._error, number
        if is_new:
            _tell({"error": number})
        return is_new


def main(path: str, offset: int) -> None:
    """Print the content and the changes of a file, until standard input ends."""
    file, pause = _File(path, offset), _SHORTEST
    while True:
        pause = _SHORTEST if file.look() else min(_LONGEST, pause * 1.5)
        readable, _, _ = select.select([sys.stdin], [], [], pause)
        if readable and not os.read(sys.stdin.fileno(), 1):
            return


def _tell(record: "dict[str, int]", data: bytes = b"") -> None:
    sys.stdout.buffer.write(json.dumps(record).encode() + b"\n" + data)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
