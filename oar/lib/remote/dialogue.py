"""A request that is talked with: the launch of a job, line by line."""

import queue
import time
from typing import Protocol, Self

from oar.lib.errors import NodeUnavailable
from oar.lib.remote.channels import ChannelLost
from oar.lib.remote.fanout import ACCEPT_SECONDS
from oar.lib.remote.requests import Ran, Request
from oar.lib.remote.session import Accepted, Ended, Event, Line, Lost, NodeSession


class OpensSessions(Protocol):
    """What opens a node's session and waits for it."""

    def open_session(self, node: str, seconds: float) -> NodeSession | Ran:
        """Return the session, or how its program ended at once.  Raises NodeUnavailable."""


class Dialogue:
    """The server's side of a talk with one program on one node.

    ``receive`` returns its lines, then, once, how it ended.  A connection that breaks raises NodeUnavailable: the
    program may or may not go on.
    """

    def __init__(self, session: NodeSession | None, number: int, events: "queue.SimpleQueue[Event]") -> None:
        self._session = session
        self._node = session.node if session else ""
        self._number = number
        self._events = events
        self._over = False

    @classmethod
    def begin(cls, remote: OpensSessions, node: str, request: Request, seconds: float) -> Self:
        """Start the request on a warm session; once again on a fresh one if the first was dead."""
        limit = time.monotonic() + seconds
        for last in (False, True):
            events: queue.SimpleQueue[Event] = queue.SimpleQueue()
            session = remote.open_session(node, max(0.1, limit - time.monotonic()))
            if isinstance(session, Ran):
                events.put(Ended(session.exit, session.stderr))
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
            case Lost(reason):
                raise ChannelLost(reason)
            case Ended():
                events.put(event)
        assert isinstance(event, Accepted | Ended)
        return cls(session, number, events)

    @property
    def boot_id(self) -> str:
        """Which life of the node this is."""
        return self._session.boot_id if self._session else ""

    def send(self, line: str) -> None:
        """Say one line to the program.  Raises NodeUnavailable."""
        if self._session is None:
            raise NodeUnavailable("there is no program to talk with")
        try:
            self._session.say(self._number, op="line", text=line)
        except ChannelLost as error:
            raise NodeUnavailable(f"{self._session.node}: {error}") from None

    def receive(self, seconds: float) -> str | Ran | None:
        """Return the program's next line, or its end, or None if it says nothing in time.

        Raises NodeUnavailable when the connection is lost.
        """
        try:
            event = self._events.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        match event:
            case Line(text):
                return text
            case Ended(code, said):
                self._over = True
                return Ran(code, (), said)
            case Lost(reason):
                self._over = True
                raise NodeUnavailable(f"{self._node}: {reason}")
            case Accepted():
                return self.receive(seconds)

    def close(self) -> None:
        """End the talk: a program that still runs sees the end of its input, then is ended."""
        if not self._over and self._session is not None:
            self._over = True
            self._session.forget(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
