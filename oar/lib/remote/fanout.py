"""One request for each node, in parallel: the fan-out of ``Remote.run``."""

import queue
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from oar.lib.remote.channels import ChannelLost
from oar.lib.remote.requests import CommandRan, NodeCommand, NodeRequest, Outcome, TimedOut, Unreachable
from oar.lib.remote.session import Accepted, Event, Lost, NodeSession, OutputLine, ProgramEnded

#: Limit for the characters of all lines of one request; each line counts so many more.
MAX_OUTPUT, LINE_OVERHEAD = 16 << 20, 100
ACCEPT_SECONDS = 10.0  #: a warm session that takes no request for so long is dead

Message = Event | NodeSession | Outcome


class Sessions(Protocol):
    """The part of ``Remote`` that a fan-out needs."""

    def session(self, node: str, use: Callable[[NodeSession | Outcome], None]) -> None:
        """Call ``use`` with the session or with the outcome of a failed connection."""


class _Attempt:
    """The progress of the request on one node."""

    def __init__(self) -> None:
        self.session: NodeSession | None = None
        self.number = 0
        self.tries = 0
        self.sent = 0.0
        self.accepted = False
        self.lines: list[str] = []
        self.output_size = 0


class Fanout:
    """The state of one ``Remote.run``: a queue with the messages of all nodes, and the progress on each node."""

    def __init__(self, sessions: Sessions, requests: Mapping[str, NodeRequest | NodeCommand], seconds: float) -> None:
        self._sessions = sessions
        self._requests = requests
        self._seconds = seconds
        self._limit = time.monotonic() + seconds
        self._messages: queue.SimpleQueue[tuple[str, int, Message]] = queue.SimpleQueue()
        self._attempts = {node: _Attempt() for node in requests}
        self._outcomes: dict[str, Outcome] = {}

    def outcomes(self) -> dict[str, Outcome]:
        """Send all requests, and wait until all have ended or the deadline has passed. Return the outcomes by node."""
        for node in self._requests:
            self._ask(node)
        while len(self._outcomes) < len(self._requests):
            remaining = self._limit - time.monotonic()
            if remaining <= 0:
                break
            try:
                node, attempt, message = self._messages.get(timeout=min(remaining, 1.0))
            except queue.Empty:
                self._give_up_silent_sessions()
                continue
            if node not in self._outcomes and attempt == self._attempts[node].tries:
                self._take(node, message)
        self._expire()
        return {node: self._outcomes[node] for node in self._requests}

    def _ask(self, node: str) -> None:
        attempt = self._attempts[node]
        attempt.tries += 1
        attempt.session = None
        mark = attempt.tries
        self._sessions.session(node, lambda opened: self._messages.put((node, mark, opened)))

    def _take(self, node: str, message: Message) -> None:
        attempt = self._attempts[node]
        match message:
            case NodeSession():
                self._send(node, message)
            case Accepted():
                attempt.accepted = True
            case OutputLine(text):
                attempt.lines.append(text)
                attempt.output_size += len(text) + LINE_OVERHEAD
                if attempt.output_size > MAX_OUTPUT and attempt.session is not None:
                    attempt.session.forget(attempt.number)
                    self._outcomes[node] = Unreachable("its output is too long", began=True)
            case ProgramEnded(code, stderr):
                self._outcomes[node] = CommandRan(code, tuple(attempt.lines), stderr)
            case Lost(error):
                self._lost(node, error)
            case CommandRan() | Unreachable() | TimedOut():
                self._outcomes[node] = message

    def _send(self, node: str, session: NodeSession) -> None:
        attempt = self._attempts[node]
        mark = attempt.tries
        attempt.session, attempt.sent = session, time.monotonic()
        remaining = max(0.1, self._limit - time.monotonic())
        try:
            attempt.number = session.send(
                self._requests[node], remaining, lambda event: self._messages.put((node, mark, event))
            )
        except ChannelLost as error:
            self._lost(node, str(error))

    def _lost(self, node: str, error: str) -> None:
        """Retry once on a new session if the open one was dead. A request that had begun is not repeated."""
        attempt = self._attempts[node]
        if attempt.accepted or attempt.tries > 1:
            self._outcomes[node] = Unreachable(error, began=attempt.accepted)
        else:
            self._ask(node)

    def _give_up_silent_sessions(self) -> None:
        oldest = time.monotonic() - ACCEPT_SECONDS
        for node, attempt in self._attempts.items():
            if node not in self._outcomes and attempt.session and not attempt.accepted and attempt.sent < oldest:
                attempt.session.end("the node does not answer")

    def _expire(self) -> None:
        for node, attempt in self._attempts.items():
            if node in self._outcomes:
                continue
            self._outcomes[node] = TimedOut(self._seconds, attempt.accepted, tuple(attempt.lines))
            if attempt.session is not None:
                attempt.session.forget(attempt.number)
