"""The program that reads a part of a file with the rights of its user. It needs only the standard library.

It prints a line of JSON and then the bytes. It opens any kind of file without waiting and without acquiring a
controlling terminal, and reads only plain files.

    reader.py PATH OFFSET MOST LINES
"""

import json
import os
import stat
import sys

_BLOCK = 1 << 16


def main(path: str, offset: int, most: int, lines: int) -> None:
    """Print a part of a file. ``lines``: number of lines from the end instead of an offset, 0 for none."""
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
    """Return the offset of the last lines, at most ``most`` bytes before the end."""
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
