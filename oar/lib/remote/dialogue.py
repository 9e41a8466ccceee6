"""A dialogue with a running request, line by line: the launch of a job."""

import queue
import time
from typing import Protocol, Self

from oar.lib.base.errors import NodeUnavailable
from oar.lib.remote.channels import ChannelLost
from oar.lib.remote.fanout import ACCEPT_SECONDS
from oar.lib.remote.protocol import SessionOrder
from oar.lib.remote.requests import CommandRan, NodeRequest
from oar.lib.remote.session import Accepted, Event, Lost, NodeSession, OutputLine, ProgramEnded


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
