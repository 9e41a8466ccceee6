"""The line port: nodes and old clients send one line over TCP, and may receive one line.

It has one non-blocking listener and one epoll, so that thousands of silent clients use few resources and block no other
client.

See docs/design/bus.rst, "Line port".
"""

import select
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from oar.lib.base.allowed_networks import THIS_MACHINE, Networks, holder_of
from oar.lib.bus.frames import LONGEST_TAG

#: Seconds for a client to send its line, before its connection is closed.
SILENCE = 5.0
#: Seconds for the answer, before the connection is closed; a node sends its line again.
ANSWER_TIME = 60.0
#: Connections of all clients, and the part of them of one address; any user of this machine has all of its loopback.
MOST_OPEN, PART_OF_AN_ADDRESS = 8192, 4
_BACKLOG = 1024
_ACCEPTS_PER_TURN = 256


@dataclass(frozen=True, slots=True)
class ReceivedLine:
    """The line of a client. ``peer`` identifies the client for ``answer``."""

    peer: int
    text: str


@dataclass(slots=True)
class _Client:
    connection: socket.socket
    holder: str
    deadline: float
    received: bytearray = field(default_factory=bytearray)
    has_written: bool = False


class LinePort:
    """The listener and its clients. ``fileno`` is readable when ``receive`` has work."""

    def __init__(self, port: int, networks: Sequence[str], *, most_open: int = MOST_OPEN) -> None:
        self._networks = Networks(networks)
        self._most_open = most_open
        self._most_of_an_address = max(1, most_open // PART_OF_AN_ADDRESS)
        self._clients: dict[int, _Client] = {}
        self._by_address: Counter[str] = Counter()
        self._peers: dict[int, int] = {}  # file descriptor -> peer
        self._last_peer = 0
        self._epoll = select.epoll()
        try:
            self._listener = _listen(port)
        except OSError:
            self._epoll.close()
            raise
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)

    @property
    def port(self) -> int:
        """Return the port that is bound."""
        port: int = self._listener.getsockname()[1]
        return port

    def fileno(self) -> int:
        """Return the descriptor for a poll."""
        return self._epoll.fileno()

    def receive(self, now: float) -> list[ReceivedLine]:
        """Accept, read and close connections without waiting. Return the complete lines."""
        lines: list[ReceivedLine] = []
        for number, _ in self._epoll.poll(0, 512):
            if number == self._listener.fileno():
                self._accept(now)
            elif number in self._peers:
                line = self._read(self._peers[number], now)
                if line is not None:
                    lines.append(line)
        return lines

    def expire(self, now: float) -> float | None:
        """Close the connections past their deadline. Return the next deadline, None if there is no connection."""
        for peer in [peer for peer, client in self._clients.items() if client.deadline <= now]:
            self._close(peer)
        return min((client.deadline for client in self._clients.values()), default=None)

    def answer(self, peer: int, text: str) -> None:
        """Send a line to a client, if it is still connected, and close the connection."""
        client = self._clients.get(peer)
        if client is None:
            return
        with suppress(OSError):  # the client has gone: it retries if it needs the answer
            client.connection.send(text.encode() + b"\n")
        self._close(peer)

    def drop(self, peer: int) -> None:
        """Close a client's connection without an answer."""
        if peer in self._clients:
            self._close(peer)

    def drop_unanswered(self) -> None:
        """Close the connections of the clients that wait for an answer which will not come. They will retry."""
        for peer in [peer for peer, client in self._clients.items() if client.has_written]:
            self._close(peer)

    def close(self) -> None:
        """Close the listener and all connections."""
        for peer in list(self._clients):
            self._close(peer)
        self._listener.close()
        self._epoll.close()

    def _accept(self, now: float) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                connection, address = self._listener.accept()
            except OSError:
                return  # no more clients, or no free descriptor: other clients reach their deadline soon
            holder = _holder(address[0])
            is_full = len(self._clients) >= self._most_open or self._by_address[holder] >= self._most_of_an_address
            if is_full or not self._networks.has(address[0]):
                connection.close()
                continue
            self._by_address[holder] += 1
            connection.setblocking(False)
            self._last_peer += 1
            self._clients[self._last_peer] = _Client(connection, holder, now + SILENCE)
            self._peers[connection.fileno()] = self._last_peer
            self._epoll.register(connection.fileno(), select.EPOLLIN)

    def _read(self, peer: int, now: float) -> ReceivedLine | None:
        client = self._clients[peer]
        try:
            data = client.connection.recv(4096)
        except BlockingIOError:
            return None
        except OSError:
            self._close(peer)
            return None
        if client.has_written:
            if not data:
                self._close(peer)
            return None
        client.received += data
        line, newline, _ = client.received.partition(b"\n")
        if len(line) > LONGEST_TAG or (not data and not line):
            self._close(peer)
            return None
        if data and not newline:
            return None
        client.has_written = True
        client.deadline = now + ANSWER_TIME
        if not data:  # a line without newline is valid too; its client may not listen any more
            self._epoll.unregister(client.connection.fileno())
        return ReceivedLine(peer, line.rstrip(b"\r").decode("utf-8", "backslashreplace"))

    def _close(self, peer: int) -> None:
        client = self._clients.pop(peer)
        self._by_address[client.holder] -= 1
        if not self._by_address[client.holder]:
            del self._by_address[client.holder]
        del self._peers[client.connection.fileno()]
        client.connection.close()


def _holder(address: str) -> str:
    """Return the group of an address for the limit. The nodes of a cluster may share a /64 of IPv6."""
    return THIS_MACHINE if holder_of(address) == THIS_MACHINE else address


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    else:
        listener = socket.create_server(("", port), backlog=_BACKLOG)
    listener.setblocking(False)
    return listener
