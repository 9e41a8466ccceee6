"""One request per node, all at once, each node with its own outcome."""

import queue
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from oar.lib.remote.channels import ChannelLost
from oar.lib.remote.requests import Command, Outcome, Ran, Request, TimedOut, Unreachable
from oar.lib.remote.session import Accepted, Ended, Event, Line, Lost, NodeSession

#: Characters of all lines of one request, and what a line takes besides: who says more is not listened to any longer.
MOST_SAID, LINE = 16 << 20, 100
ACCEPT_SECONDS = 10.0  #: a warm session that takes no request for so long is dead

News = Event | NodeSession | Outcome


class Sessions(Protocol):
    """What gives a node's session to a function."""

    def session(self, node: str, use: Callable[[NodeSession | Outcome], None]) -> None:
        """Call ``use`` with the session or with the outcome of a failed connection."""


class _Attempt:
    """How far the request of one node has come."""

    def __init__(self) -> None:
        self.session: NodeSession | None = None
        self.number = 0
        self.tries = 0
        self.sent = 0.0
        self.accepted = False
        self.lines: list[str] = []
        self.said = 0


class Fanout:
    """The state of one ``Remote.run``: a queue of news, and what is known of each node."""

    def __init__(self, sessions: Sessions, requests: Mapping[str, Request | Command], seconds: float) -> None:
        self._sessions = sessions
        self._requests = requests
        self._seconds = seconds
        self._limit = time.monotonic() + seconds
        self._news: queue.SimpleQueue[tuple[str, int, News]] = queue.SimpleQueue()
        self._attempts = {node: _Attempt() for node in requests}
        self._outcomes: dict[str, Outcome] = {}

    def outcomes(self) -> dict[str, Outcome]:
        """Send everything, wait for every end or the deadline."""
        for node in self._requests:
            self._ask(node)
        while len(self._outcomes) < len(self._requests):
            left = self._limit - time.monotonic()
            if left <= 0:
                break
            try:
                node, attempt, news = self._news.get(timeout=min(left, 1.0))
            except queue.Empty:
                self._give_up_silent_sessions()
                continue
            if node not in self._outcomes and attempt == self._attempts[node].tries:
                self._take(node, news)
        self._expire()
        return {node: self._outcomes[node] for node in self._requests}

    def _ask(self, node: str) -> None:
        attempt = self._attempts[node]
        attempt.tries += 1
        attempt.session = None
        mark = attempt.tries
        self._sessions.session(node, lambda opened: self._news.put((node, mark, opened)))

    def _take(self, node: str, news: News) -> None:
        attempt = self._attempts[node]
        match news:
            case NodeSession():
                self._send(node, news)
            case Accepted():
                attempt.accepted = True
            case Line(text):
                attempt.lines.append(text)
                attempt.said += len(text) + LINE
                if attempt.said > MOST_SAID and attempt.session is not None:
                    attempt.session.forget(attempt.number)
                    self._outcomes[node] = Unreachable("it says more than anybody would read", began=True)
            case Ended(code, said):
                self._outcomes[node] = Ran(code, tuple(attempt.lines), said)
            case Lost(reason):
                self._lost(node, reason)
            case Ran() | Unreachable() | TimedOut():
                self._outcomes[node] = news

    def _send(self, node: str, session: NodeSession) -> None:
        attempt = self._attempts[node]
        mark = attempt.tries
        attempt.session, attempt.sent = session, time.monotonic()
        left = max(0.1, self._limit - time.monotonic())
        try:
            attempt.number = session.send(self._requests[node], left, lambda event: self._news.put((node, mark, event)))
        except ChannelLost as error:
            self._lost(node, str(error))

    def _lost(self, node: str, reason: str) -> None:
        """A warm session that was dead already gets one fresh one; a request that had begun is not repeated."""
        attempt = self._attempts[node]
        if attempt.accepted or attempt.tries > 1:
            self._outcomes[node] = Unreachable(reason, began=attempt.accepted)
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
