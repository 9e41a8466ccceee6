"""The bus: ZeroMQ sockets of the server and of its children (server.md 4.1); commands ring by ``oar.lib.doorbell``.

It knows bytes and addresses only; what they mean is in ``oar.lib.frames``.  A message is a doorbell: nothing here waits
for ever, and what cannot be handed over in a second is reported, since the database has it anyway.
"""

import os
import socket as sockets
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeAlias

import zmq

from oar.lib.config import Config
from oar.lib.errors import AlreadyRunning, ConfigError

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"

#: Milliseconds to hand a message over, and to linger at the end.  Never without limit: a command would hang.
_PATIENCE = 1000
#: Messages taken from one socket at a turn.
DRAIN = 100
_LARGEST_MESSAGE = 1 << 20


# -- sockets of daemons -----------------------------------------------------------------------------------------------


class Pollable(Protocol):
    """What a ``Poll`` can wait for."""

    def fileno(self) -> int:
        """A file descriptor that becomes readable."""


class _Socket:
    """A socket with its limits; never lingers, never blocks on sending."""

    def __init__(self, context: Context, kind: int) -> None:
        self.socket = context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.IPV6, 1)
        self.socket.setsockopt(zmq.MAXMSGSIZE, _LARGEST_MESSAGE)

    def close(self) -> None:
        """Close at once."""
        self.socket.close()

    def _drain(self) -> Iterator[list[bytes]]:
        for _ in range(DRAIN):
            try:
                yield self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return


class Pull(_Socket):
    """Takes single messages from anybody."""

    def __init__(self, context: Context, host: str, port: int) -> None:
        addresses = _addresses(host)
        super().__init__(context, zmq.PULL)
        for address in addresses:
            _bind(self, f"tcp://{_bracketed(address)}:{port}")

    def receive(self) -> list[bytes]:
        """Return at most ``DRAIN`` messages; others than of one frame are dropped."""
        return [frames[0] for frames in self._drain() if len(frames) == 1]


class Router(_Socket):
    """The side of the control endpoint that has many children."""

    def __init__(self, context: Context, endpoint: str) -> None:
        self._path = Path(endpoint.removeprefix("ipc://"))
        _make_private(self._path.parent)
        super().__init__(context, zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        _bind(self, endpoint)

    def receive(self) -> list[tuple[bytes, bytes]]:
        """Return at most ``DRAIN`` messages with their senders."""
        return [(frames[0], frames[1]) for frames in self._drain() if len(frames) == 2]

    def send(self, receiver: bytes, data: bytes) -> bool:
        """Write to a child; False if it is gone or does not read."""
        try:
            self.socket.send_multipart([receiver, data], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def close(self) -> None:
        """Close at once, and remove the socket's file."""
        super().close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


class Dealer(_Socket):
    """A child's side of the control endpoint."""

    def __init__(self, context: Context, endpoint: str) -> None:
        super().__init__(context, zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, _PATIENCE)
        self.socket.connect(endpoint)

    def receive(self) -> list[bytes]:
        """Return at most ``DRAIN`` messages."""
        return [frames[0] for frames in self._drain() if len(frames) == 1]

    def send(self, data: bytes) -> bool:
        """Write to the parent; False if it does not read any more."""
        try:
            self.socket.send(data, zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True


@contextmanager
def opened() -> Iterator[Context]:
    """Give what all sockets of a process hang on; they are to be closed before the block ends."""
    context: Context = zmq.Context()
    try:
        yield context
    finally:
        context.term()


@contextmanager
def connected(endpoint: str) -> Iterator[Dealer]:
    """Give a child its side of the control endpoint, for as long as the block lasts."""
    with opened() as context, closing(Dealer(context, endpoint)) as dealer:
        yield dealer


class Poll:
    """Waits for sockets of the bus and for whatever has a file descriptor."""

    def __init__(self, *sources: "_Socket | Pollable") -> None:
        self._poller = zmq.Poller()
        self._sources: dict[object, _Socket | Pollable] = {}
        for source in sources:
            self.add(source)

    def add(self, source: "_Socket | Pollable") -> None:
        """Wait for it too."""
        key = source.socket if isinstance(source, _Socket) else source.fileno()
        self._sources[key] = source
        self._poller.register(key, zmq.POLLIN)

    def remove(self, source: "_Socket | Pollable") -> None:
        """Wait for it no more."""
        key = source.socket if isinstance(source, _Socket) else source.fileno()
        del self._sources[key]
        self._poller.unregister(key)

    def wait(self, seconds: float | None) -> "list[_Socket | Pollable]":
        """Return what has something to read, at the latest after ``seconds`` (None: wait for ever)."""
        timeout = None if seconds is None else max(0, int(seconds * 1000) + (seconds > 0))
        return [self._sources[key] for key, _ in self._poller.poll(timeout)]


# -- addresses --------------------------------------------------------------------------------------------------------


def control_endpoint(config: Config) -> str:
    """Return the address of Almighty's control endpoint."""
    return f"ipc://{config.oar_run_dir}/ipc/almighty.ipc"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _addresses(host: str) -> Iterable[str]:
    """Return what is to be bound so that ``host`` is reached."""
    if host in ("*", "0.0.0.0", "::"):
        return ["*"]
    try:
        found = sockets.getaddrinfo(host, None, type=sockets.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"the address {host} is not known on this machine: {error}") from None
    return dict.fromkeys(str(entry[4][0]) for entry in found)


def _make_private(directory: Path) -> None:
    """Make the directory of sockets that only the server's account may use."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the directory {directory}: {error.strerror}") from None


def _bind(holder: _Socket, endpoint: str) -> None:
    try:
        holder.socket.bind(endpoint)
    except zmq.ZMQError as error:
        holder.close()
        if error.errno == zmq.EADDRINUSE:
            raise AlreadyRunning(f"{endpoint} is in use: an Almighty process must be already started") from None
        raise ConfigError(f"cannot listen on {endpoint}: {os.strerror(error.errno or 0)}") from None
