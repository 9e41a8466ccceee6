"""Open files that a user names, with the user's rights, never with those of oar."""

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
_READ = 'test -e "$1" || exit 4; test -f "$1" && head -c "$2" -- "$1" || exit 2; test -x "$1" || exit 3'
#: The file may exist with looser rights: they are taken away before anything is written.
_WRITE = 'umask 077; : > "$1" && chmod 600 -- "$1" && cat > "$1"'
_NOT_EXECUTABLE, _MISSING = 3, 4
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
    """A program that runs as a user does not respond."""

    def __init__(self, user: str) -> None:
        way_out = "a process of this user is stopped (kill -CONT), or a file system does not answer: try again then"
        super().__init__(f"a program that runs as {user} does not answer\n{way_out}")


class UserFile(NamedTuple):
    """The content of a file."""

    data: bytes
    is_executable: bool


class FilePart(NamedTuple):
    """A part of a plain file, with the size and date of the file."""

    size: int
    modified: int  #: date of its last change
    offset: int  #: where the piece begins
    data: bytes


class UserFiles:
    """The access to the files of one user.

    ``privilege``: the command by which oar runs as another user (``sudo -n``).
    """

    def __init__(self, user: User, privilege: str, start: Start | None = None, *, seconds: float | None = None) -> None:
        """``start``: starts a program that runs as the user; by default with ``privilege``.

        ``seconds``: time for which a service waits for all its programs together, and at most ANSWER_SECONDS for one
        that is silent. After that, SilentProgram is raised. None: no limit, for a command of the user himself.
        """
        self._user = user
        self._privilege = privilege
        self._is_own = start is None and seconds is None and user.uid == os.geteuid()
        self._start = start or self._start_as_user
        self._left = seconds

    def read(self, path: str) -> UserFile:
        """Return the content of a plain file. Raises OSError."""
        if self._is_own:
            if os.path.exists(path) and not os.path.isfile(path):
                raise PermissionError(f"cannot read {path}")
            with open(path, "rb") as file:
                return UserFile(file.read(LARGEST_FILE), os.access(path, os.X_OK))
        code, data = self._run(_READ, path, b"")
        if code == _MISSING:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if code not in (0, _NOT_EXECUTABLE):
            raise PermissionError(f"cannot read {path}")
        return UserFile(data, code == 0)

    def is_directory(self, path: str) -> bool:
        """Return whether the user sees a directory."""
        if self._is_own:
            return os.path.isdir(path)
        return self._run('test -d "$1"', path, b"")[0] == 0

    def read_part(self, path: str, offset: int, most: int, *, lines: int = 0) -> FilePart:
        """Return a part of a plain file. With ``lines``, return this many lines from its end, and ignore ``offset``.

        Raises OSError with its number, IsADirectoryError if the file is not a plain file, SilentProgram.
        """
        import json

        code, printed = self._execute(_program("reader", path, offset, most, lines), b"")
        head, _, data = printed.partition(b"\n")
        if code or not head:
            raise PermissionError(f"nothing can be read as {self._user.name}")
        try:
            answer = json.loads(head)
            number = answer.get("error")
            if number is None:
                return FilePart(**answer, data=data)
        except (ValueError, TypeError, AttributeError):  # the user may have modified the program's output
            raise PermissionError(f"nothing can be read as {self._user.name}") from None
        raise OSError(number or errno.EISDIR, os.strerror(number or errno.EISDIR), path)

    def following(self, path: str, offset: int) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Return the command and the identity of a process that follows a file as the user (``follower``)."""
        return self.running(_program("follower", path, offset))

    def keeping(
        self, deed: str, path: str, roots: Sequence[str], argument: str
    ) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Return the command and the identity of a process that carries out an action on a file (``keeper``)."""
        import json

        return self.running([*_program("keeper", deed, path), json.dumps(roots), argument])

    def write_secret(self, path: str, text: str) -> None:
        """Write a file that no other user may read, and replace an existing one. Raises OSError."""
        code, _ = self._run(_WRITE, path, text.encode())
        if code:
            raise PermissionError(f"cannot write {path}")

    def md5sum(self, path: str) -> str:
        """Return the MD5 sum of a plain file. Raises OSError."""
        code, output = self._run(_SUM, path, b"")
        if code or not output:
            raise PermissionError(f"cannot read {path}")
        return output.decode("ascii", "replace").split()[0]

    def pour(self, path: str, target: IO[bytes], most: int) -> None:
        """Write at most ``most`` bytes of a plain file to an open file. Raises OSError.

        The program that reads as the user gets a pipe, so the user never has access to the open file of oar.
        """
        with self._started(["/bin/sh", "-c", _POUR, "sh", path, str(most)], b"") as (read, wait):
            while most and (block := read(min(most, _BLOCK))):
                target.write(block)
                most -= len(block)
        if wait():
            raise PermissionError(f"cannot read {path}")

    def output(self, command: Sequence[str]) -> bytes:
        """Return the output of a program that runs as the user. Raises OSError if it fails."""
        code, data = self._execute(command, b"")
        if code:
            raise OSError(f"{command[0]} ended with {code}")
        return data

    def _run(self, script: str, path: str, data: bytes) -> tuple[int, bytes]:
        """Run a shell script as the user. The file is an argument, never a part of the script text."""
        return self._execute(["/bin/sh", "-c", script, "sh", path, str(LARGEST_FILE)], data)

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill a program that runs as the user in its own session. Abandon it if the user prevents the kill."""
        import subprocess

        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except PermissionError:  # only this user and root may kill it
            words, identity = self.running(["/bin/sh", "-c", _KILL, "sh", str(process.pid)])
            null = subprocess.DEVNULL
            killer = subprocess.Popen(words, stdin=null, stdout=null, stderr=null, **identity)
            with suppress(subprocess.TimeoutExpired):
                killer.wait(KILL_SECONDS)
        with suppress(subprocess.TimeoutExpired):
            process.wait(KILL_SECONDS)

    def _execute(self, command: Sequence[str], data: bytes) -> tuple[int, bytes]:
        with self._started(command, data) as (read, wait):
            printed = read(LARGEST_FILE)
        return wait(), printed

    @contextmanager
    def _started(self, command: Sequence[str], data: bytes) -> Iterator[tuple[Read, Wait]]:
        """Start a program as the user. Yield its output and its end, to be requested after the block.

        ``data``: input of the program, at most the capacity of a pipe.
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
        """Do the same as ``_started`` for a service, with time limits. Raises SilentProgram."""
        import subprocess
        import time

        if seconds <= 0:
            raise SilentProgram(self._user.name)
        words, identity = self.running(command)
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

        command, identity = self.running(command)
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, **identity).wait

    def running(self, command: Sequence[str]) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Return the command and the identity of a process that runs a program as the user."""
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
    """Return for how many seconds to wait for data that must arrive before a deadline."""
    import time

    return max(0.0, min(ANSWER_SECONDS, until - time.monotonic()))


def _read_until(source: IO[bytes], most: int, until: float) -> bytes:
    """Return ``most`` bytes from a pipe, fewer at its end. Raises TimeoutError."""
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
    """Return the command of one of our programs.

    It includes the program text, since the user may not read our files.
    """
    import sys
    from importlib.util import find_spec

    spec = find_spec(f"oar.lib.user_files.{name}")
    with open(spec.origin if spec and spec.origin else "", encoding="utf-8") as program:
        return [sys.executable, "-I", "-S", "-c", program.read(), *map(str, arguments)]
