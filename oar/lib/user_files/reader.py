"""The program that reads a piece of a file with the rights of who it runs as; it needs the standard library alone.

It prints a line of JSON and then the bytes.  Whatever a name turns out to be, it is opened without waiting and without
becoming a terminal's process, and nothing but a plain file is read.

    reader.py PATH OFFSET MOST LINES
"""

import json
import os
import stat
import sys

_BLOCK = 1 << 16


def main(path: str, offset: int, most: int, lines: int) -> None:
    """Print a piece of a file; ``lines``: instead of an offset so many lines from its end, 0 for none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        _tell({"error": error.errno})
        return
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        _tell({"error": 0})
        return
    if lines:
        offset = _start_of_lines(descriptor, status.st_size, lines, most)
    _tell({"size": status.st_size, "modified": int(status.st_mtime), "offset": offset})
    while most > 0:
        block = os.pread(descriptor, min(most, _BLOCK), offset)
        if not block:
            break
        sys.stdout.buffer.write(block)
        offset, most = offset + len(block), most - len(block)


def _start_of_lines(descriptor: int, size: int, lines: int, most: int) -> int:
    """Return where the last lines begin, at most so many bytes before the end."""
    first = max(0, size - most)
    data = os.pread(descriptor, most, first)
    start = len(data.removesuffix(b"\n"))
    for _ in range(lines):
        start = data.rfind(b"\n", 0, start)
        if start < 0:
            return first
    return first + start + 1


def _tell(record: "dict[str, int | None]") -> None:
    sys.stdout.buffer.write(json.dumps(record).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], *(int(text) for text in sys.argv[2:5]))
