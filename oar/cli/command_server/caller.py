"""The other end of a connection: the client that a user started, which waits for the answer to a request.

Nothing that it sends is trusted.  A thread listens to it while the command runs: its signals become ours, and when it
is gone the command hangs up.  A client that breaks the protocol counts as gone.
"""

import os
import queue
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from oar.cli.command_server.request import LARGEST, BadRequestError, CommandRequest, is_of_this_version, read
from oar.cli.common.command import EXIT_HUNG_UP

#: The number of standard streams.
STREAMS = 3
#: Timeout in seconds for the request of a client after the greeting.
PATIENCE = 1.0
#: Seconds after which a command is ended: its process is one of few, and what may last for hours goes by sudo.
LONGEST = 900.0
#: Seconds that a request for a reservation has beside RESERVATION_ANSWER_TIMEOUT, for which it waits by itself.
BESIDE_ANSWER = 60.0
#: What its user is told then, by the number of minutes.
_TOO_LONG = (
    "# Error: the command ran for {:.0f} minutes, the longest time of the command service, and was ended."
    " Set OAR_BY_SUDO=yes to run it without this limit.\n"
)
#: Seconds that a command gets to end after its client has gone.
GRACE = 30.0
#: The messages of a client while its command runs: a program has ended, a signal is to be raised.
DONE, SIGNAL = b"done", b"signal"
#: The signals that a client may send.
SIGNALS = frozenset({signal.SIGINT, signal.SIGHUP})
_LONGEST_WORD = 64


class CallerGoneError(OSError):
    """The client has ended."""


class ClientMessage(NamedTuple):
    """What a client sends while its command runs."""

    word: bytes
    number: int  #: an exit code, or a signal


_CREDENTIALS = struct.Struct("3i")


class CommandCaller:
    """A program that a user started."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._codes: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._is_over = threading.Event()
        self._longest = LONGEST  #: seconds
        self._until = 0.0  #: when the command is ended, by the monotonic clock
        self._has_started = False  #: a program runs at the client
        self.has_raised = False  #: a signal was raised, so that the command may have been interrupted anywhere

    def request(self) -> tuple[CommandRequest, list[int]]:
        """Greet the client; return its request and its standard streams. Raises BadRequestError, OSError."""
        self._connection.settimeout(PATIENCE)
        if not is_of_this_version(self._connection.recv(_LONGEST_WORD)):
            raise BadRequestError
        self._connection.send(b"ready")
        data, descriptors, flags, _ = socket.recv_fds(self._connection, LARGEST, STREAMS, socket.MSG_CMSG_CLOEXEC)
        try:
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or len(descriptors) != STREAMS:
                raise BadRequestError
            return read(data), descriptors
        except BadRequestError:
            close_all(descriptors)
            raise

    def process(self) -> int:
        """Return the id of the client, as the kernel says."""
        credentials = self._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process: int = _CREDENTIALS.unpack(credentials)[0]
        return process

    def refuse(self) -> None:
        """Let it go another way."""
        with suppress(OSError):
            self._connection.send(b"refused")

    @contextmanager
    def listening(self, longest: float) -> Iterator[None]:
        """Raise its signals in the main thread, and SIGHUP when it is gone or has had ``longest`` seconds."""
        self._longest = longest
        self._until = time.monotonic() + longest
        self._connection.settimeout(longest)
        listener = threading.Thread(target=self._listen, daemon=True)
        listener.start()
        try:
            yield
        finally:
            self._is_over.set()
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RD)
            listener.join()

    def end(self, code: int) -> None:
        """Send the exit code; ignore a closed connection."""
        with suppress(OSError):
            self._connection.send(b"end\0%d" % code, socket.MSG_DONTWAIT)

    def start(self, words: Sequence[str], stdin: int, stdout: int) -> Callable[[], int]:
        """Let the client run a program as its user; return a function that waits for the exit code.

        Raises CallerGoneError.
        """
        data = b"\0".join([b"run", *(os.fsencode(word) for word in words)])
        self._has_started = True
        try:
            socket.send_fds(self._connection, [data], [stdin, stdout])
        except OSError as error:
            raise CallerGoneError(str(error)) from None
        return self._code

    def _code(self) -> int:
        code = self._codes.get()
        if code is None:
            raise CallerGoneError("the client has closed the connection")
        return code

    def _listen(self) -> None:
        try:
            while (message := self._receive()) is not None:
                if message.word == DONE:
                    self._has_started = False
                    self._codes.put(message.number)
                else:
                    self._raise(message.number)
        finally:  # whatever it was: nobody would ever notice that the client is gone
            if not self._is_over.is_set():
                if self._left() <= 0:
                    _tell(_TOO_LONG.format(self._longest / 60))
                self._codes.put(None)
                self._raise(signal.SIGHUP)
                if not self._is_over.wait(GRACE):
                    os._exit(EXIT_HUNG_UP)  # whatever it hangs in

    def _left(self) -> float:
        return self._until - time.monotonic()

    def _receive(self) -> ClientMessage | None:
        """Return the next message of the client; None if it is gone, has sent anything else, or has had its time."""
        with suppress(OSError, ValueError):
            self._connection.settimeout(max(0.001, self._left()))
            data, _, flags, _ = self._connection.recvmsg(_LONGEST_WORD)
            word, number = data.split(b"\0")
            message = ClientMessage(word, int(number))
            is_signal = message.word == SIGNAL and message.number in SIGNALS
            if not flags & socket.MSG_TRUNC and (is_signal or (message.word == DONE and self._has_started)):
                return message
        return None

    def _raise(self, number: int) -> None:
        if not self._is_over.is_set():
            self.has_raised = True
            signal.pthread_kill(threading.main_thread().ident or 0, number)


def longest_time(answer_timeout: float) -> float:
    """Return the seconds after which a command is ended.  ``answer_timeout``: RESERVATION_ANSWER_TIMEOUT."""
    return max(LONGEST, answer_timeout + BESIDE_ANSWER)


def _tell(text: str) -> None:
    """Write on the standard error output of the client, if that can be done without waiting."""
    with suppress(OSError):
        poll = select.poll()
        poll.register(2, select.POLLOUT)
        if poll.poll(0):
            os.write(2, text.encode())


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)
