"""The program that lists, reads, writes and removes files below given directories, with the rights of its user.

It needs only the standard library. It prints a line of JSON: ``{"error": NUMBER}`` (0: wrong kind of file), or the
result. With ``read``, the bytes of the file follow. The real path of a file is checked after it has been opened, so
neither ``..`` nor a link leads out of the directories. Only plain files and directories are opened.

    keeper.py DEED PATH ROOTS ARGUMENT

DEED is one of:

- list
- read (ARGUMENT: number of lines from the end, 0 for all)
- write (from standard input, in pieces preceded by their lengths; ARGUMENT 1 replaces an existing file)
- chmod (ARGUMENT: mode in octal digits)
- delete (ARGUMENT 1: with all files below)

ROOTS is a list in JSON.
"""

import errno
import json
import os
import shutil
import stat
import sys
from contextlib import suppress

_BLOCK = 1 << 18
#: Bytes from the end of a file in which its last lines are looked for.
_MOST_OF_LINES = 1 << 24
#: Names of a directory, at most: more than anybody reads.
_MOST_NAMES = 100_000
#: Bytes of a name that stand in that of the draft of a file: no name has more than 255.
_LONGEST_OF_DRAFT = 200
_KINDS = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l"}


class _Refused(Exception):
    """A file that cannot be used. The argument is the error number."""


def main(deed: str, path: str, roots: "list[str]", argument: str) -> None:
    """Carry out the action, and print the result."""
    try:
        _DEEDS[deed](path, roots, argument)
    except _Refused as refused:
        _tell({"error": refused.args[0]})
    except OSError as error:
        _tell({"error": error.errno})


def _list(path: str, roots: "list[str]", _: str) -> None:
    directory = _opened(path, roots, stat.S_IFDIR)
    found = []
    with os.scandir(f"/proc/self/fd/{directory}") as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # deleted meanwhile
                status = entry.stat(follow_symlinks=False)
                found.append((entry.name, status.st_mode, status.st_size, int(status.st_mtime)))
            if len(found) > _MOST_NAMES:
                raise _Refused(errno.E2BIG)
    found.sort()
    items = [
        {"name": _shown(name), "mode": mode, "size": size, "mtime": date, "type": _KINDS.get(stat.S_IFMT(mode), "o")}
        for name, mode, size, date in found
    ]
    _tell({"items": items})


def _shown(name: str) -> str:
    """Return a name that JSON supports. A name that is not UTF-8 is listed, but cannot be requested."""
    return os.fsencode(name).decode(errors="replace")


def _read(path: str, roots: "list[str]", argument: str) -> None:
    place = _opened(path, roots, stat.S_IFREG)
    file = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    size = os.fstat(file).st_size
    offset = _start_of_lines(file, size, int(argument)) if int(argument) else 0
    _tell({"size": size - offset})
    left = size - offset
    while left > 0:  # no more than the printed size: the file may be growing
        block = os.pread(file, min(left, _BLOCK), offset)
        if not block:
            break
        sys.stdout.buffer.write(block)
        offset, left = offset + len(block), left - len(block)


def _start_of_lines(file: int, size: int, lines: int) -> int:
    first = max(0, size - _MOST_OF_LINES)
    data = os.pread(file, size - first, first)
    start = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        start = data.rfind(b"\n", 0, start)
        if start < 0:
            return first
    return first + start + 1


def _write(path: str, roots: "list[str]", argument: str) -> None:
    directory, name = _place(path, roots)
    if argument != "1" and _exists(directory, name):
        raise _Refused(errno.EEXIST)
    draft = os.fsdecode(b".%b.%d.new" % (os.fsencode(name)[:_LONGEST_OF_DRAFT], os.getpid()))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(draft, flags, 0o644, dir_fd=directory)
    try:
        _pour(file)
        if argument == "1":
            os.replace(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
        else:
            os.link(draft, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=directory)
    _tell({"size": os.fstat(file).st_size})


def _pour(file: int) -> None:
    """Write the pieces of standard input, each preceded by its length. A piece of length 0 is the end."""
    source = sys.stdin.buffer
    with os.fdopen(file, "wb", closefd=False) as target:
        while length := int.from_bytes(source.read(4) or b"\xff\xff\xff\xff", "big"):
            if length > _BLOCK:
                raise _Refused(errno.ECANCELED)  # the input was interrupted
            target.write(source.read(length))
    os.fsync(file)


def _chmod(path: str, roots: "list[str]", argument: str) -> None:
    place = _opened(path, roots, stat.S_IFREG, stat.S_IFDIR)
    os.chmod(f"/proc/self/fd/{place}", int(argument, 8))
    _tell({"mode": argument})


def _delete(path: str, roots: "list[str]", argument: str) -> None:
    directory, name = _place(path, roots)
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=directory)
    elif argument == "1":
        shutil.rmtree(name, dir_fd=directory)
    else:
        os.rmdir(name, dir_fd=directory)
    _tell({"deleted": 1})


def _opened(path: str, roots: "list[str]", *kinds: int) -> int:
    """Return an O_PATH descriptor of the file at a path. Raises _Refused, OSError."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    really = os.readlink(f"/proc/self/fd/{place}")
    if not any(_is_below(really, os.path.realpath(root)) for root in roots):
        raise _Refused(errno.EACCES)
    if stat.S_IFMT(os.fstat(place).st_mode) not in kinds:
        raise _Refused(0)
    return place


def _place(path: str, roots: "list[str]") -> "tuple[int, str]":
    """Return the directory of a path, and the last component of the path. Raises _Refused, OSError."""
    above, name = os.path.split(path.rstrip("/"))
    if name in ("", ".", ".."):
        raise _Refused(0)
    return _opened(above, roots, stat.S_IFDIR), name


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _tell(record: "dict[str, object]") -> None:
    sys.stdout.buffer.write(json.dumps(record).encode() + b"\n")
    sys.stdout.buffer.flush()


_DEEDS = {"list": _list, "read": _read, "write": _write, "chmod": _chmod, "delete": _delete}

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4])
