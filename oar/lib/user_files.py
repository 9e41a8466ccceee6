"""Files that a user names are opened with the user's rights, never with those of oar."""

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple

from oar.lib.facts.records import User

#: More than this of a file is not read: scripts and lists are small.
LARGEST_FILE = 16 << 20
#: Seconds that a service waits for a program of a user, who may have stopped it.
ANSWER_SECONDS = 20.0

#: Only plain files are opened: a pipe would make the reader wait for a writer.
_READ = 'test -f "$1" && head -c "$2" -- "$1" || exit 2; test -x "$1" || exit 3'
#: The file may exist with looser rights: they are taken away before anything is written.
_WRITE = 'umask 077; : > "$1" && chmod 600 -- "$1" && cat > "$1"'
_NOT_EXECUTABLE = 3
_SUM = 'test -f "$1" && exec md5sum < "$1"'
_BLOCK = 1 << 20
_POUR = 'test -f "$1" && exec head -c "$2" < "$1"'


#: Waits for the end of a program; returns its exit code.
Wait = Callable[[], int]
#: Starts a program with two descriptors as its input and output.
Start = Callable[[Sequence[str], int, int], Wait]


class UserFile(NamedTuple):
    """What was read of a file."""

    data: bytes
    is_executable: bool


class FilePart(NamedTuple):
    """A piece of a plain file, and what is known of the file."""

    size: int
    modified: int  #: date of its last change
    offset: int  #: where the piece begins
    data: bytes


class UserFiles:
    """The way to the files of one user; ``privilege`` is the command by which oar becomes another (``sudo -n``)."""

    def __init__(self, user: User, privilege: str, start: Start | None = None) -> None:
        """``start``: how a program is started that runs as the user; by default with ``privilege``."""
        self._user = user
        self._privilege = privilege
        self._is_own = start is None and user.uid == os.geteuid()
        self._start = start or self._start_as_user

    def read(self, path: str) -> UserFile:
        """Return what is in a plain file.  Raises OSError."""
        if self._is_own:
            if os.path.exists(path) and not os.path.isfile(path):
                raise PermissionError(f"cannot read {path}")
            with open(path, "rb") as file:
                return UserFile(file.read(LARGEST_FILE), os.access(path, os.X_OK))
        code, data = self._run(_READ, path, b"")
        if code not in (0, _NOT_EXECUTABLE):
            raise PermissionError(f"cannot read {path}")
        return UserFile(data, code == 0)

    def read_part(self, path: str, offset: int, most: int, *, lines: int = 0) -> FilePart:
        """Return a piece of a plain file; ``lines``: so many from its end, whatever ``offset``.

        Raises OSError with its number; IsADirectoryError for what is no plain file.
        """
        import json

        code, printed = self._answer(_program("user_file_reader", path, offset, most, lines))
        head, _, data = printed.partition(b"\n")
        if code or not head:
            raise PermissionError(f"nothing can be read as {self._user.name}")
        told = json.loads(head)
        if "error" in told:
            number = told["error"] or errno.EISDIR
            raise OSError(number, os.strerror(number), path)
        return FilePart(**told, data=data)

    def following(self, path: str, offset: int) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Return the words and the identity of a process that follows a file as the user (``user_file_follower``)."""
        return self._as_user(_program("user_file_follower", path, offset))

    def running(self, command: Sequence[str]) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Return the words and the identity of a process by which a program runs as the user."""
        return self._as_user(command)

    def keeping(
        self, deed: str, path: str, roots: Sequence[str], argument: str
    ) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Return the words and the identity of a process that does something with a file (``user_file_keeper``)."""
        import json

        return self._as_user([*_program("user_file_keeper", deed, path), json.dumps(roots), argument])

    def write_secret(self, path: str, text: str) -> None:
        """Write a file that nobody else may read, in the place of one that is there.  Raises OSError."""
        code, _ = self._run(_WRITE, path, text.encode())
        if code:
            raise PermissionError(f"cannot write {path}")

    def md5sum(self, path: str) -> str:
        """Return the MD5 sum of a plain file.  Raises OSError."""
        code, output = self._run(_SUM, path, b"")
        if code or not output:
            raise PermissionError(f"cannot read {path}")
        return output.decode("ascii", "replace").split()[0]

    def pour(self, path: str, target: IO[bytes], most: int) -> None:
        """Write at most so many bytes of a plain file to an open one.  Raises OSError.

        The program that reads as the user gets a pipe: whatever he does to it, he never holds the file of oar.
        """
        with self._started(["/bin/sh", "-c", _POUR, "sh", path, str(most)], b"") as (source, wait):
            while most and (block := source.read(min(most, _BLOCK))):
                target.write(block)
                most -= len(block)
        if wait():
            raise PermissionError(f"cannot read {path}")

    def output(self, command: Sequence[str]) -> bytes:
        """Return what a program prints that runs as the user.  Raises OSError if it fails."""
        code, data = self._execute(command, b"")
        if code:
            raise OSError(f"{command[0]} ended with {code}")
        return data

    def _run(self, script: str, path: str, data: bytes) -> tuple[int, bytes]:
        """Run a piece of shell as the user; its file is an argument, never a part of the text."""
        return self._execute(["/bin/sh", "-c", script, "sh", path, str(LARGEST_FILE)], data)

    def _execute(self, command: Sequence[str], data: bytes) -> tuple[int, bytes]:
        """Run a program as the user; its exit code, and what it prints."""
        with self._started(command, data) as (source, wait):
            printed = source.read(LARGEST_FILE)
        return wait(), printed

    def _answer(self, command: Sequence[str]) -> tuple[int, bytes]:
        """Run a program as the user, for ANSWER_SECONDS; its exit code, and what it prints.  Raises OSError."""
        import subprocess
        import time

        command, identity = self._as_user(command)
        until, null = time.monotonic() + ANSWER_SECONDS, subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=null, stdout=subprocess.PIPE, stderr=null, **identity)
        assert process.stdout
        with process.stdout as source:
            printed = _read_until(source, until)
        try:
            return process.wait(max(0.0, until - time.monotonic())), printed
        except subprocess.TimeoutExpired:
            with suppress(PermissionError, subprocess.TimeoutExpired):  # that of sudo belongs to root
                process.kill()
                process.wait(1.0)
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None

    @contextmanager
    def _started(self, command: Sequence[str], data: bytes) -> Iterator[tuple[IO[bytes], Wait]]:
        """Start a program as the user that reads some data, no more than a pipe holds; yield its output."""
        stdin, given = os.pipe()
        printed, stdout = os.pipe()
        with open(printed, "rb") as source:
            try:
                wait = self._start(command, stdin, stdout)
            finally:
                os.close(stdin)
                os.close(stdout)
                with open(given, "wb", buffering=0) as sink, suppress(BrokenPipeError):
                    sink.write(data)
            yield source, wait

    def _start_as_user(self, command: Sequence[str], stdin: int, stdout: int) -> Wait:
        import subprocess

        command, identity = self._as_user(command)
        process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, **identity)
        return process.wait

    def _as_user(self, command: Sequence[str]) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Return the words and the identity of a process by which a program runs as the user."""
        import pwd
        import shlex

        uid = self._user.uid
        if os.geteuid() == uid:
            return command, {}
        if os.geteuid() == 0 or os.getuid() == uid:
            account = pwd.getpwuid(uid)
            groups = os.getgrouplist(account.pw_name, account.pw_gid) if os.geteuid() == 0 else None
            group = account.pw_gid if os.geteuid() == 0 else None
            return command, {"user": uid, "group": group, "extra_groups": groups}
        return [*shlex.split(self._privilege), "-u", f"#{uid}", "--", *command], {}


def _read_until(source: IO[bytes], until: float) -> bytes:
    """Return what comes through a pipe until it ends, or a moment has come."""
    import select
    import time

    poll, read = select.poll(), bytearray()
    poll.register(source, select.POLLIN)
    while len(read) < LARGEST_FILE and poll.poll(1000 * max(0.0, until - time.monotonic())):
        piece = os.read(source.fileno(), _BLOCK)
        if not piece:
            break
        read += piece
    return bytes(read)


def _program(name: str, *arguments: str | int) -> list[str]:
    """Return the words that run one of our programs, whose text goes with them: the user may not read our files."""
    import sys
    from importlib.util import find_spec

    spec = find_spec(f"oar.lib.{name}")
    with open(spec.origin if spec and spec.origin else "", encoding="utf-8") as program:
        return [sys.executable, "-I", "-S", "-c", program.read(), *map(str, arguments)]
