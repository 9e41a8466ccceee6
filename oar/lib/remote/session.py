"""The server's end of one node session: send requests, distribute the answers (``oar/tools/node_session.py``).

The sender of a request supplies a *sink*, a function that receives the events of that request. The reading thread calls
it, so it must not block: sinks put the event into a queue. ``Dialogue`` is such a sender, for the launch of a job.
"""

import itertools
import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

from oar.lib.base.errors import NodeUnavailable
from oar.lib.remote import bootstrap
from oar.lib.remote.protocol import SessionOrder
from oar.lib.remote.requests import CommandRan, NodeCommand, NodeRequest
from oar.lib.remote.transports import ChannelLost, SessionChannel

WRITE_SECONDS = 10.0
LONGEST_LINE = 4 << 20  #: a node that sends more without a newline does not speak our language
ACCEPT_SECONDS = 10.0  #: an open session that accepts no request within this time is dead
SILENT_SECONDS = 30.0  #: a node that gives no sign of life for so long may have died (it gives one every 10 s)
UNEXPECTED_EXIT = 70  #: the exit code of a program that an error of its own has ended
SIGNAL_EXIT_BASE = 128  #: a program that ended by signal n has the exit code of this + n
#: Limits for what a node reports of the end of a program; a longer message ends the session.
LARGEST_EXIT, LONGEST_STDERR, LONGEST_BOOT_ID = 255, 4096, 64


@dataclass(frozen=True, slots=True)
class Accepted:
    """The node has accepted the request."""


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One line of the program's output."""

    text: str


@dataclass(frozen=True, slots=True)
class ProgramEnded:
    """The program has ended."""

    exit: int
    stderr: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The session broke. It is unknown whether the request was carried out."""

    error: str


Event = Accepted | OutputLine | ProgramEnded | Lost
Sink = Callable[[Event], None]


class NodeSession:
    """The open session of a node. Thread-safe, except ``feed``, which only the reading thread calls."""

    def __init__(self, node: str, channel: SessionChannel) -> None:
        self.node = node
        self.channel = channel
        self.boot_id = ""
        self.lost: str | None = None
        self.used = time.monotonic()
        self._heard = self.used
        self._trouble = False
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._sinks: dict[int, Sink] = {}
        self._numbers = itertools.count(1)
        self._buffer = bytearray()

    @property
    def busy(self) -> bool:
        """Return whether the session has requests that have not ended."""
        return bool(self._sinks)

    def begin(self) -> None:
        """Send the session program and all node programs.  Raises ChannelLost."""
        blocks = [bootstrap.session_program(), *(program.load for program in bootstrap.programs().values())]
        self.channel.write(b"".join(blocks), WRITE_SECONDS)

    def wait_ready(self, seconds: float) -> bool:
        """Wait until the session program has started or the session is lost. Return whether it has started."""
        self._ready.wait(seconds)
        return self._ready.is_set() and self.lost is None

    def send(self, request: NodeRequest | NodeCommand, seconds: float, sink: Sink) -> int:
        """Send a request and return its number. If ChannelLost is raised, the sink gets no events."""
        number = next(self._numbers)
        text = _encoded(number, self.node, request, seconds)
        with self._lock:
            if self.lost is not None:
                raise ChannelLost(self.lost)
            self._sinks[number] = sink
            self.used = time.monotonic()
        self._write(text)
        return number

    def send_message(self, number: int, **message: str) -> None:
        """Send a message (``op`` and its data) to a running request.  Raises ChannelLost."""
        self._write(json.dumps({"id": number, **message}).encode("ascii") + b"\n")

    def forget(self, number: int) -> None:
        """Cancel a request and ignore its further events."""
        with self._lock:
            if self._sinks.pop(number, None) is None or self.lost is not None:
                return
        try:
            self.send_message(number, op=SessionOrder.CANCEL)
        except ChannelLost:
            return

    def _write(self, data: bytes) -> None:
        try:
            with self._lock:
                self.channel.write(data, WRITE_SECONDS)
        except ChannelLost as error:
            self.end(str(error))
            raise

    def feed(self) -> bool:
        """Read the available messages and pass them to the sinks. Return False if the session has ended."""
        block = self.channel.read()
        if block is None:
            return True
        self._heard = time.monotonic()
        if not block or len(self._buffer) > LONGEST_LINE:
            self.end(self._closing_error())
            return False
        self._buffer += block
        *lines, partial_line = self._buffer.split(b"\n")
        self._buffer = partial_line
        for line in lines:
            if not self._take(bytes(line)):
                self.end(f"unexpected answer: {line[:200]!a}")
                return False
        return True

    def _take(self, line: bytes) -> bool:
        """Pass one message to its sink. Return False if the message violates the protocol."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return False
        match message:
            case {"hello": int(), "boot_id": str(boot_id)}:
                self.boot_id = _clean(boot_id)[:LONGEST_BOOT_ID]
                self._ready.set()
            case {"beat": _}:
                pass
            case {"left": _, "exit": int(code)}:
                self._trouble |= code > SIGNAL_EXIT_BASE or code == UNEXPECTED_EXIT
            case {"id": int(number), "accepted": _}:
                self._tell(number, Accepted())
            case {"id": int(number), "line": str(text)}:
                self._tell(number, OutputLine(_clean(text)))
            case {"id": int(number), "exit": int(code), "stderr": str(stderr)} if 0 <= code <= LARGEST_EXIT:
                self._tell(number, ProgramEnded(code, _clean(stderr[-LONGEST_STDERR:])))
                with self._lock:
                    self._sinks.pop(number, None)
                    self.used = time.monotonic()
            case _:
                return False
        return True

    def take_trouble(self) -> bool:
        """Return whether, since the last call, a detached program failed or the node stopped responding."""
        trouble, self._trouble = self._trouble, False
        if time.monotonic() - self._heard > SILENT_SECONDS:
            self._heard = float("inf")  # reported once, until the node responds again
            return True
        return trouble

    def _tell(self, number: int, event: Event) -> None:
        if sink := self._sinks.get(number):
            sink(event)

    def _closing_error(self) -> str:
        """Return the reason why the node has closed the session."""
        status, stderr = self.channel.closing_report()
        if stderr:
            error = stderr.splitlines()[-1][:400]
            return (
                f"{error} (the rule of oar in /etc/sudoers.d/oar-node there)" if error.startswith("sudo: ") else error
            )
        return "connection lost" if status is None else f"the session ended with exit code {status}"

    def end(self, error: str) -> None:
        """End the session: the sinks of all open requests get ``Lost``."""
        with self._lock:
            if self.lost is not None:
                return
            self.lost = error
            sinks, self._sinks = list(self._sinks.values()), {}
        self._ready.set()
        for sink in sinks:
            sink(Lost(error))


def _clean(text: str) -> str:
    """Return text of a node without the characters that a database rejects."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\\x00").encode("utf-8", "replace").decode()


def _encoded(number: int, node: str, request: NodeRequest | NodeCommand, seconds: float) -> bytes:
    head: dict[str, object] = {"id": number, "node": node, "deadline": round(seconds, 3)}
    if isinstance(request, NodeCommand):
        head |= {"op": SessionOrder.COMMAND, "argv": request.argv, "stdin": request.stdin, "account": request.account}
        head |= {"quiet": True} if request.is_quiet else {}
        return json.dumps(head).encode("ascii") + b"\n"
    digest = bootstrap.programs()[request.program].hash
    head |= {"op": SessionOrder.RUN, "program": request.program, "hash": digest, "action": request.action}
    return f'{json.dumps(head)[:-1]}, "data": {request.encoded_data}}}\n'.encode("ascii")


class OpensSessions(Protocol):
    """The part of ``Remote`` that a dialogue needs."""

    def open_session(self, node: str, seconds: float) -> NodeSession | CommandRan:
        """Return the session, or the end of its program if it ended at once. Raises NodeUnavailable."""


class Dialogue:
    """The server's side of a dialogue with one program on one node.

    ``receive`` returns the lines of the program, then once its end. It raises NodeUnavailable if the connection breaks:
    the program may still be running.
    """

    def __init__(self, session: NodeSession | None, number: int, events: "queue.SimpleQueue[Event]") -> None:
        self._session = session
        self._node = session.node if session else ""
        self._number = number
        self._events = events
        self._over = False

    @classmethod
    def begin(cls, remote: OpensSessions, node: str, request: NodeRequest, seconds: float) -> Self:
        """Start the request on an open session. If that session is dead, retry once on a new one."""
        limit = time.monotonic() + seconds
        for last in (False, True):
            events: queue.SimpleQueue[Event] = queue.SimpleQueue()
            session = remote.open_session(node, max(0.1, limit - time.monotonic()))
            if isinstance(session, CommandRan):
                events.put(ProgramEnded(session.exit, session.stderr))
                return cls(None, 0, events)
            try:
                number = session.send(request, max(0.1, limit - time.monotonic()), events.put)
                return cls._accepted(session, number, events)
            except (ChannelLost, NodeUnavailable) as error:
                if last or time.monotonic() > limit:
                    raise NodeUnavailable(f"{node}: {error}") from None
        raise NodeUnavailable(node)

    @classmethod
    def _accepted(cls, session: NodeSession, number: int, events: "queue.SimpleQueue[Event]") -> Self:
        try:
            event = events.get(timeout=ACCEPT_SECONDS)
        except queue.Empty:
            session.end("the node does not answer")
            event = Lost("the node does not answer")
        match event:
            case Lost(error):
                raise ChannelLost(error)
            case ProgramEnded():
                events.put(event)
        assert isinstance(event, Accepted | ProgramEnded)
        return cls(session, number, events)

    @property
    def boot_id(self) -> str:
        """Return the boot id of the node, which changes at each reboot."""
        return self._session.boot_id if self._session else ""

    def send(self, line: str) -> None:
        """Send one line to the program.  Raises NodeUnavailable."""
        if self._session is None:
            raise NodeUnavailable("there is no program to send lines to")
        try:
            self._session.send_message(self._number, op=SessionOrder.LINE, text=line)
        except ChannelLost as error:
            raise NodeUnavailable(f"{self._session.node}: {error}") from None

    def receive(self, seconds: float) -> str | CommandRan | None:
        """Return the program's next line, its end, or None if nothing arrives in time.

        Raises NodeUnavailable if the connection is lost.
        """
        try:
            event = self._events.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        match event:
            case OutputLine(text):
                return text
            case ProgramEnded(code, stderr):
                self._over = True
                return CommandRan(code, (), stderr)
            case Lost(error):
                self._over = True
                raise NodeUnavailable(f"{self._node}: {error}")
            case Accepted():
                return self.receive(seconds)

    def close(self) -> None:
        """End the dialogue. A program that still runs gets end of file on its input, and is then killed."""
        if not self._over and self._session is not None:
            self._over = True
            self._session.forget(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
