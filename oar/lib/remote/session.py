"""The server's end of one node session: send requests, distribute the answers (``oar/tools/node_session.py``).

The sender of a request supplies a *sink*, a function that receives the events of that request. The reading thread calls
it, so it must not block: sinks put the event into a queue.
"""

import itertools
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from oar.lib.remote import bootstrap
from oar.lib.remote.channels import ChannelLost, SessionChannel
from oar.lib.remote.protocol import SessionOrder
from oar.lib.remote.requests import NodeCommand, NodeRequest

WRITE_SECONDS = 10.0
LONGEST_LINE = 4 << 20  #: a node that sends more without a newline does not speak our language
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
        sink = self._sinks.get(number)
        if sink is not None:
            sink(event)

    def _closing_error(self) -> str:
        """Return the reason why the node has closed the session."""
        status, stderr = self.channel.closing_report()
        if stderr:
            said = stderr.splitlines()[-1][:400]
            return f"{said} (the rule of oar in /etc/sudoers.d/oar-node there)" if said.startswith("sudo: ") else said
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
