"""``Remote``: the only access to the nodes. All threads of a process share one open session per node.

Sessions are opened at first use, by a limited number of threads. They are closed when they are idle for too long or too
many. One thread reads all sessions. A node that hangs delays only the requests to it, until their deadlines.
"""

import contextlib
import os
import queue
import selectors
import threading
import time
from collections.abc import Callable, Mapping
from typing import Self

from oar.lib.base.errors import NodeUnavailable
from oar.lib.remote import bootstrap
from oar.lib.remote.requests import CommandRan, NodeCommand, NodeRequest, Outcome, RemoteSettings, TimedOut, Unreachable
from oar.lib.remote.session import (
    ACCEPT_SECONDS,
    Accepted,
    Dialogue,
    Event,
    Lost,
    NodeSession,
    OutputLine,
    ProgramEnded,
)
from oar.lib.remote.transports import CannotReach, ChannelLost, LocalTransport, Transport, choose

CONNECTING_THREADS = 64
IDLE_SECONDS = 2.0  #: a connecting thread with nothing to do ends
LOOK_SECONDS = 5.0
#: Limit for the characters of all lines of one request; each line counts so many more.
MAX_OUTPUT, LINE_OVERHEAD = 16 << 20, 100

#: The result of opening a session: the session, or how that failed.
Opened = NodeSession | Outcome
#: A message of a node to a fan-out.
Message = Event | NodeSession | Outcome


class Remote:
    """Run requests on nodes; see ``run``, ``dialogue``, ``command``."""

    def __init__(
        self,
        settings: RemoteSettings,
        transport: Transport | None = None,
        alarm: Callable[[str], None] = lambda node: None,
    ) -> None:
        """``alarm`` is called with a node that may have failed, or on which a detached program may have failed."""
        self._alarm = alarm
        self.settings = settings
        self.transport = transport or choose(settings)
        privilege = () if isinstance(self.transport, LocalTransport) else settings.privilege_cmd
        self._command = bootstrap.command(privilege)
        self._lock = threading.Lock()
        self._sessions: dict[str, NodeSession] = {}
        self._waiting: dict[str, list[Callable[[Opened], None]]] = {}
        self._to_open: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._connectors = 0
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._new: queue.SimpleQueue[NodeSession] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._reader = threading.Thread(target=self._read_all, name="nodes", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- public methods ------------------------------------------------------------------------------------------

    def run(self, requests: Mapping[str, NodeRequest | NodeCommand], seconds: float) -> dict[str, Outcome]:
        """Run one request on each node in parallel. Return the outcomes by node, after at most ``seconds`` seconds."""
        return Fanout(self, requests, seconds).outcomes()

    def command(
        self, node: str, argv: tuple[str, ...], stdin: str, seconds: float, account: str | None = "oar"
    ) -> Outcome:
        """Run an argument list on one node. Its output is discarded."""
        return self.run({node: NodeCommand(argv, stdin, account, is_quiet=True)}, seconds)[node]

    def dialogue(self, node: str, request: NodeRequest, seconds: float) -> Dialogue:
        """Start a request and return the dialogue with it. ``seconds``: time limit of the request on the node.

        Raises NodeUnavailable.
        """
        return Dialogue.begin(self, node, request, seconds)

    # -- sessions ------------------------------------------------------------------------------------------------

    def session(self, node: str, use: Callable[[Opened], None]) -> None:
        """Call ``use`` with the node's session: at once if it is open, else from a connecting thread.

        ``use`` must not block. Callers that need the same unconnected node share one connection.
        """
        opened: Opened | None
        with self._lock:
            opened = self._sessions.get(node)
            if self._closed:
                opened = Unreachable("the way to the nodes is closed")
            elif opened is not None and opened.lost is None:
                self._sessions[node] = self._sessions.pop(node)  # the last item is the most recently used
            else:
                opened = None
                first = node not in self._waiting
                self._waiting.setdefault(node, []).append(use)
                if first:
                    self._to_open.put(node)
                    if self._connectors < CONNECTING_THREADS:
                        self._connectors += 1
                        threading.Thread(target=self._open_all, name="connect", daemon=True).start()
        if opened is not None:
            use(opened)

    def open_session(self, node: str, seconds: float) -> NodeSession | CommandRan:
        """Return the node's session, or the end of its program if it ended at once. Raises NodeUnavailable."""
        answers: queue.SimpleQueue[Opened] = queue.SimpleQueue()
        self.session(node, answers.put)
        try:
            opened = answers.get(timeout=seconds)
        except queue.Empty:
            raise NodeUnavailable(f"{node}: no connection within {seconds:.0f} s") from None
        match opened:
            case NodeSession() | CommandRan():
                return opened
            case Unreachable(error):
                raise NodeUnavailable(f"{node}: {error}")
            case TimedOut():
                raise NodeUnavailable(f"{node}: no connection in time")

    def warm_nodes(self) -> list[str]:
        """Return the nodes that have an open session, the least recently used first."""
        with self._lock:
            return [node for node, session in self._sessions.items() if session.lost is None]

    def _open_all(self) -> None:
        """Open the requested sessions, until there are no requests for IDLE_SECONDS."""
        while not self._closed:
            try:
                node = self._to_open.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._to_open.empty():
                        self._connectors -= 1
                        return
            else:
                self._open(node)
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for use in (use for users in waiting.values() for use in users):
            use(Unreachable("the way to the nodes is closed"))

    def _open(self, node: str) -> None:
        opened = self._connect(node)
        with self._lock:
            if isinstance(opened, NodeSession):
                self._sessions[node] = opened
            users = self._waiting.pop(node, [])
            idle = [session for session in self._sessions.values() if not session.busy]  # the least recently used first
            surplus = idle[: max(0, len(self._sessions) - self.settings.pool_max)]
        for use in users:
            use(opened)
        for session in surplus:
            self._drop(session)

    def _connect(self, node: str) -> Opened:
        limit = time.monotonic() + self.settings.connect_seconds
        try:
            channel = self.transport.open(node, self._command, self.settings.connect_seconds)
        except CannotReach as error:
            return Unreachable(str(error))
        session = NodeSession(node, channel)
        with contextlib.suppress(ChannelLost):
            session.begin()
        self._new.put(session)
        self._wake()
        ready = session.wait_ready(max(0.1, limit - time.monotonic()))
        if self._closed:
            session.end("closed")
            channel.close()
        elif ready:
            return session
        session.end("no answer from the node's session program")
        self._wake()
        status, stderr = channel.closing_report()
        if status == bootstrap.NO_INTERPRETER:
            return CommandRan(status, (), stderr)
        return Unreachable(session.lost or "lost")

    def _drop(self, session: NodeSession) -> None:
        with self._lock:
            if session.busy:
                return
            if self._sessions.get(session.node) is session:
                del self._sessions[session.node]
        session.end("closed")
        self._wake()

    # -- the reading thread --------------------------------------------------------------------------------------

    def _wake(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            os.write(self._wake_write, b"w")

    def _read_all(self) -> None:
        next_look = time.monotonic() + LOOK_SECONDS
        while not self._closed:
            for key, _ in self._selector.select(max(0.0, next_look - time.monotonic())):
                if key.fd == self._wake_read:
                    self._update_registrations()
                elif not key.data.feed():
                    self._release(key.data)
                    self._alarm(key.data.node)
                elif key.data.take_trouble():
                    self._alarm(key.data.node)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + LOOK_SECONDS
                self._look()
        self._update_registrations()
        for session in self._registered():
            session.end("closed")
            self._release(session)

    def _registered(self) -> list[NodeSession]:
        return [key.data for key in self._selector.get_map().values() if isinstance(key.data, NodeSession)]

    def _update_registrations(self) -> None:
        """Start reading new sessions, and release lost ones."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_read, 4096):
                pass
        with contextlib.suppress(queue.Empty):
            while True:
                session = self._new.get_nowait()
                self._selector.register(session.channel.fileno(), selectors.EVENT_READ, session)
        for session in self._registered():
            if session.lost is not None:
                self._release(session)

    def _release(self, session: NodeSession) -> None:
        self._selector.unregister(session.channel.fileno())
        with self._lock:
            if self._sessions.get(session.node) is session:
                del self._sessions[session.node]
        session.channel.close()

    def _look(self) -> None:
        """Call the alarm for nodes that do not respond any more. Close idle sessions."""
        oldest = time.monotonic() - self.settings.pool_idle
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            if session.take_trouble():
                self._alarm(session.node)
        for session in [session for session in sessions if not session.busy and session.used < oldest]:
            self._drop(session)

    def close(self) -> None:
        """Close all sessions. Running requests are lost."""
        if self._closed:
            return
        with self._lock:
            self._closed = True
        self._wake()
        self._reader.join(10)
        self._refuse_waiting()
        self._selector.close()
        with self._lock:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_write = -1


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

    def __init__(self, sessions: Remote, requests: Mapping[str, NodeRequest | NodeCommand], seconds: float) -> None:
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
