"""Files that a user names are opened with the user's rights, never with those of oar."""

import errno
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from oar.lib.access.records import User
from oar.lib.base.errors import Unavailable

if TYPE_CHECKING:
    import subprocess

#: More than this of a file is not read: scripts and lists are small.
LARGEST_FILE = 16 << 20
#: Seconds for which a program of a user, who may have stopped it, may be silent before a service gives it up.
ANSWER_SECONDS = 20.0
#: Seconds that a program has to kill another one, and that has to be gone.
KILL_SECONDS = 2.0

#: Only plain files are opened: a pipe would make the reader wait for a writer.
_READ = 'test -f "$1" && head -c "$2" -- "$1" || exit 2; test -x "$1" || exit 3'
#: The file may exist with looser rights: they are taken away before anything is written.
_WRITE = 'umask 077; : > "$1" && chmod 600 -- "$1" && cat > "$1"'
_NOT_EXECUTABLE = 3
_SUM = 'test -f "$1" && exec md5sum < "$1"'
_BLOCK = 1 << 20
_POUR = 'test -f "$1" && exec head -c "$2" < "$1"'
_KILL = 'kill -KILL "-$1"'

#: Returns so many bytes of what a program prints, fewer at its end.
Read = Callable[[int], bytes]

#: Waits for the end of a program; returns its exit code.
Wait = Callable[[], int]
#: Starts a program with two descriptors as its input and output.
Start = Callable[[Sequence[str], int, int], Wait]


class SilentProgram(Unavailable):
    """A program that runs as a user says nothing."""

    def __init__(self, user: str) -> None:
        way_out = "a process of this user is stopped (kill -CONT), or a file system does not answer: try again then"
        super().__init__(f"a program that runs as {user} does not answer\n{way_out}")


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

    def __init__(self, user: User, privilege: str, start: Start | None = None, *, seconds: float | None = None) -> None:
        """``start``: how a program is started that runs as the user; by default with ``privilege``.

        ``seconds``: how long a service waits for all its programs together, and no longer than ANSWER_SECONDS for one
        that says nothing; None for who waits for his own.  What takes longer raises SilentProgram.
        """
        self._user = user
        self._privilege = privilege
        self._is_own = start is None and seconds is None and user.uid == os.geteuid()
        self._start = start or self._start_as_user
        self._left = seconds

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

        Raises OSError with its number; IsADirectoryError for what is no plain file; SilentProgram.
        """
        import json

        code, printed = self._execute(_program("reader", path, offset, most, lines), b"")
        head, _, data = printed.partition(b"\n")
        if code or not head:
            raise PermissionError(f"nothing can be read as {self._user.name}")
        try:
            told = json.loads(head)
            number = told.get("error")
            if number is None:
                return FilePart(**told, data=data)
        except (ValueError, TypeError, AttributeError):  # what its user has made of the program
            raise PermissionError(f"nothing can be read as {self._user.name}") from None
        raise OSError(number or errno.EISDIR, os.strerror(number or errno.EISDIR), path)

    def following(self, path: str, offset: int) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Return the words and the identity of a process that follows a file as the user (``follower``)."""
        return self._as_user(_program("follower", path, offset))

    def running(self, command: Sequence[str]) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Return the words and the identity of a process by which a program runs as the user."""
        return self._as_user(command)

    def keeping(
        self, deed: str, path: str, roots: Sequence[str], argument: str
    ) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Return the words and the identity of a process that does something with a file (``keeper``)."""
        import json

        return self._as_user([*_program("keeper", deed, path), json.dumps(roots), argument])

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
        with self._started(["/bin/sh", "-c", _POUR, "sh", path, str(most)], b"") as (read, wait):
            while most and (block := read(min(most, _BLOCK))):
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

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill a program that runs as the user in a session of its own; one whose user hinders that is left."""
        import subprocess

        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except PermissionError:  # only he may, and root
            words, identity = self._as_user(["/bin/sh", "-c", _KILL, "sh", str(process.pid)])
            null = subprocess.DEVNULL
            killer = subprocess.Popen(words, stdin=null, stdout=null, stderr=null, **identity)
            with suppress(subprocess.TimeoutExpired):
                killer.wait(KILL_SECONDS)
        with suppress(subprocess.TimeoutExpired):
            process.wait(KILL_SECONDS)

    def _execute(self, command: Sequence[str], data: bytes) -> tuple[int, bytes]:
        """Run a program as the user; its exit code, and what it prints."""
        with self._started(command, data) as (read, wait):
            printed = read(LARGEST_FILE)
        return wait(), printed

    @contextmanager
    def _started(self, command: Sequence[str], data: bytes) -> Iterator[tuple[Read, Wait]]:
        """Start a program as the user that reads some data, no more than a pipe holds; yield its output and its end.

        Its end is to be asked for behind the block.
        """
        if self._left is not None:
            with self._limited(command, data, self._left) as limited:
                yield limited
            return
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
            yield source.read, wait

    @contextmanager
    def _limited(self, command: Sequence[str], data: bytes, seconds: float) -> Iterator[tuple[Read, Wait]]:
        """The same, of a service: nothing is waited for longer than it may be.  Raises SilentProgram."""
        import subprocess
        import time

        if seconds <= 0:
            raise SilentProgram(self._user.name)
        words, identity = self._as_user(command)
        until, pipe = time.monotonic() + seconds, subprocess.PIPE
        process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0, start_new_session=True, **identity
        )
        assert process.stdin
        assert process.stdout
        source = process.stdout

        def wait() -> int:
            try:
                return process.wait(_patience(until))
            except subprocess.TimeoutExpired:
                self.kill(process)
                raise SilentProgram(self._user.name) from None

        try:
            with process.stdin as sink, suppress(BrokenPipeError):
                sink.write(data)
            with source:
                yield lambda most: _read_until(source, most, until), wait
        except TimeoutError:
            self.kill(process)
            raise SilentProgram(self._user.name) from None
        except BaseException:
            self.kill(process)
            raise
        finally:
            self._left = max(0.0, until - time.monotonic())

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


def _patience(until: float) -> float:
    """Return for how many seconds something is waited for that must have come at a moment."""
    import time

    return max(0.0, min(ANSWER_SECONDS, until - time.monotonic()))


def _read_until(source: IO[bytes], most: int, until: float) -> bytes:
    """Return so many bytes of what comes through a pipe, fewer at its end.  Raises TimeoutError."""
    import select

    poll, read = select.poll(), bytearray()
    poll.register(source, select.POLLIN)
    while len(read) < most:
        if not poll.poll(1000 * _patience(until)):
            raise TimeoutError
        piece = os.read(source.fileno(), min(most - len(read), _BLOCK))
        if not piece:
            break
        read += piece
    return bytes(read)


def _program(name: str, *arguments: str | int) -> list[str]:
    """Return the words that run one of our programs, whose text goes with them: the user may not read our files."""
    import sys
    from importlib.util import find_spec

    spec = find_spec(f"oar.lib.user_files.{name}")
    with open(spec.origin if spec and spec.origin else "", encoding="utf-8") as program:
        return [sys.executable, "-I", "-S", "-c", program.read(), *map(str, arguments)]
