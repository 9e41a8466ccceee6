"""The program that a user starts where commands are answered by a warm server: it asks, and stands for the answer.

The wrapper of a command runs this file by its path, with ``python -I -S``: it loads nothing but modules that are part
of the interpreter, since loading ``os`` and ``socket`` would take longer than all the rest.  What it says to the
server, and what keeps a request from being done twice: docs/design/commands.rst.

    client.py SOCKET VERSION WRAPPER COMMAND [ARGUMENT...]
"""

import posix
import sys
from _signal import (  # type: ignore[import-not-found]  # which signal wraps
    SIG_DFL,
    SIG_IGN,
    SIGHUP,
    SIGINT,
    SIGPIPE,
    SIGXFSZ,
    getsignal,
    signal,
)
from _socket import AF_UNIX, MSG_CMSG_CLOEXEC, SCM_RIGHTS, SO_SNDBUF, SOCK_SEQPACKET, SOL_SOCKET, socket
from resource import RLIMIT_AS, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE, getrlimit

PROTOCOL = b"OAR-COMMANDS 1"
#: Seconds in which the server must have said that it is ready; after them the command goes the other way.
PATIENCE = 0.1
#: Bytes of a request; the kernel doubles it, and gives less where it has less.
LARGEST = 1 << 18
#: Bytes of an answer: at most the words of a program that the user is to run, and two descriptors.
LARGEST_ANSWER, TWO_DESCRIPTORS = 1 << 16, 32
STREAMS = (0, 1, 2)
LIMITS = (RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_AS)
#: What the server may know of the environment of the user; it takes less of it.
NAMES = frozenset(b"LANG LANGUAGE LINGUAS TZ TERM COLORTERM NO_COLOR DISPLAY XAUTHORITY".split())
PREFIXES = (b"OAR", b"LC_")
#: With this variable the wrapper of a command does not ask the server.
BY_SUDO = b"OAR_BY_SUDO"
#: Where the user's part of the work finds its programs.
PATH = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EXIT_UNKNOWN = 3
UNKNOWN = b"# Error: the command server has ended in the middle: look whether the request was carried out.\n"


class OtherWayError(Exception):
    """The server does not answer, and has done nothing."""


class UnknownError(Exception):
    """The server was told to begin, and is gone without an answer."""


def main(socket_path: str, version: str, wrapper: str, command: str, *words: str) -> int:
    """Return the exit code of a command; where the server does not answer, become its wrapper, which uses sudo."""
    arguments = [_bytes(word) for word in words]
    try:
        request = _request(version, command, arguments)
        return Conversation(_called(socket_path, version)).code(request)
    except UnknownError:
        posix.write(2, UNKNOWN)
        return EXIT_UNKNOWN
    except (OtherWayError, OSError):
        _take_signals_back()
        posix.execve(wrapper, [wrapper, *words], {**posix.environ, BY_SUDO: b"yes"})


def _request(version: str, command: str, arguments: list[bytes]) -> bytes:
    """Return who asks what, from where.  Raises OtherWayError where the server would not know it as sudo does."""
    environment = posix.environ
    if posix.getuid() != posix.geteuid() or posix.getgid() != posix.getegid() or b"OARCONFFILE" in environment:
        raise OtherWayError
    variables = [b"%s=%s" % pair for pair in environment.items() if pair[0] in NAMES or pair[0].startswith(PREFIXES)]
    umask = posix.umask(0o077)
    posix.umask(umask)
    numbers = [umask, len(arguments), *(getrlimit(limit)[0] for limit in LIMITS)]
    head = [PROTOCOL, _bytes(version), _bytes(command), posix.getcwdb(), b" ".join(b"%d" % each for each in numbers)]
    return b"\0".join([*head, *arguments, *variables])


def _called(socket_path: str, version: str) -> socket:
    """Return a connection at whose other end somebody is ready.  Raises OSError, OtherWayError.

    No descriptor is sent before: the kernel would keep the streams of the user open until somebody takes it.
    """
    for stream in STREAMS:
        posix.fstat(stream)  # one that is closed would be taken by the connection
    connection = socket(AF_UNIX, SOCK_SEQPACKET)
    connection.settimeout(PATIENCE)
    connection.connect(socket_path)
    connection.send(b"%s\0%s" % (PROTOCOL, _bytes(version)))
    if connection.recv(LARGEST_ANSWER) != b"ready":
        raise OtherWayError
    connection.setsockopt(SOL_SOCKET, SO_SNDBUF, LARGEST)
    connection.settimeout(None)
    return connection


class Conversation:
    """What is said once the server is ready."""

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self._has_only_asked = True  #: nothing was sent behind the request

    def code(self, request: bytes) -> int:
        """Let the server carry out a request, and do what it says until it tells the exit code.

        Raises OSError or OtherWayError if it has not begun, UnknownError if it may have.
        """
        for number in (SIGINT, SIGHUP):
            if number == SIGHUP or getsignal(number) != SIG_IGN:
                signal(number, self._pass_on)
        streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in STREAMS)
        self._connection.sendmsg([request], [(SOL_SOCKET, SCM_RIGHTS, streams)])
        try:
            return self._answer()
        except ConnectionResetError:
            # The kernel says so where something was not read: if it can only be the request, nothing has begun.
            raise OtherWayError if self._has_only_asked else UnknownError from None
        except OSError:
            raise UnknownError from None

    def _answer(self) -> int:
        while True:
            data, control, _, _ = self._connection.recvmsg(LARGEST_ANSWER, TWO_DESCRIPTORS, MSG_CMSG_CLOEXEC)
            word, _, rest = data.partition(b"\0")
            if word == b"end":
                return int(rest)
            if word == b"refused":
                raise OtherWayError
            if word != b"run":
                raise UnknownError
            code = _run(rest.split(b"\0"), _descriptors(control))
            self._say(b"done\0%d" % code)

    def _pass_on(self, number: int, frame: object) -> None:
        """Hand a signal over; if nobody is there any more, the end of the connection says so."""
        try:
            self._say(b"signal\0%d" % number)
        except OSError:
            return

    def _say(self, words: bytes) -> None:
        self._has_only_asked = False
        self._connection.send(words)


def _run(words: list[bytes], streams: list[int]) -> int:
    """Run a program as the user who this is, with these descriptors as input and output; return its exit code."""
    pid = posix.fork()
    if not pid:
        _become(words, streams)
    for stream in streams:
        posix.close(stream)
    return posix.waitstatus_to_exitcode(posix.waitpid(pid, 0)[1])


def _become(words: list[bytes], streams: list[int]) -> None:
    """Become a program; never returns."""
    try:
        _take_signals_back()
        for number in (SIGINT, SIGHUP):
            if getsignal(number) != SIG_IGN:
                signal(number, SIG_DFL)
        for target, stream in enumerate([*streams, posix.open("/dev/null", posix.O_WRONLY)]):
            posix.dup2(stream, target)
        posix.execve(words[0], words, {b"PATH": PATH, b"HOME": posix.environ.get(b"HOME", b"/")})
    finally:
        posix._exit(127)


def _take_signals_back() -> None:
    """Let the signals that Python ignores be what they were: what it starts would ignore them too."""
    for number in (SIGPIPE, SIGXFSZ):
        signal(number, SIG_DFL)


def _descriptors(control: list[tuple[int, int, bytes]]) -> list[int]:
    data = b"".join(each for _, _, each in control)
    return [int.from_bytes(data[start : start + 4], sys.byteorder) for start in range(0, len(data), 4)]


def _bytes(word: str) -> bytes:
    """Return an argument as it was given."""
    return word.encode(sys.getfilesystemencoding(), "surrogateescape")


if __name__ == "__main__":
    posix._exit(main(*sys.argv[1:]))
