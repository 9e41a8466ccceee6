"""The bus: ZeroMQ sockets of the server and of its children. Commands use ``oar.lib.bus.doorbell`` instead.

The sockets transport bytes; ``oar.lib.bus.frames`` defines their meaning. A message is a doorbell: no function here
waits without limit. A message that cannot be sent within a second is reported as lost, since its content is in the
database.

See docs/design/bus.rst, "Endpoints".
"""

import os
import socket as sockets
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol, TypeAlias

import zmq

from oar.lib.base.errors import AlreadyRunning, ConfigError
from oar.lib.config.files import Config

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"

#: Milliseconds to send a message, and to linger at the end.  Never without limit: a command would hang.
_PATIENCE = 1000
#: Number of messages that are read from one socket at a time.
DRAIN = 100
_LARGEST_MESSAGE = 1 << 20


# -- sockets of daemons -----------------------------------------------------------------------------------------------


class Pollable(Protocol):
    """An object that a ``Poll`` can wait for."""

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable."""


class _Socket:
    """A socket with its limits. It never lingers, and never blocks on sending."""

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
    """A PULL socket: it receives messages of one frame from commands."""

    def __init__(self, context: Context, host: str, port: int) -> None:
        addresses = _addresses(host)
        super().__init__(context, zmq.PULL)
        for address in addresses:
            host_part = f"[{address}]" if ":" in address else address
            _bind(self, f"tcp://{host_part}:{port}")

    def receive(self) -> list[bytes]:
        """Return at most ``DRAIN`` messages. Messages of several frames are dropped."""
        return [frames[0] for frames in self._drain() if len(frames) == 1]


class Router(_Socket):
    """The parent's side of the control endpoint."""

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
        """Send to a child. Return False if it has ended or does not read."""
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
        """Send to the parent. Return False if it no longer reads."""
        try:
            self.socket.send(data, zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True


@contextmanager
def opened() -> Iterator[Context]:
    """Open the ZeroMQ context of a process. Its sockets must be closed before the block ends."""
    context: Context = zmq.Context()
    try:
        yield context
    finally:
        context.term()


@contextmanager
def connected(endpoint: str) -> Iterator[Dealer]:
    """Connect a child to the control endpoint during the block."""
    with opened() as context, closing(Dealer(context, endpoint)) as dealer:
        yield dealer


class Poll:
    """Wait for sockets of the bus and for other objects with a file descriptor."""

    def __init__(self, *sources: "_Socket | Pollable") -> None:
        self._poller = zmq.Poller()
        self._sources: dict[object, _Socket | Pollable] = {}
        for source in sources:
            self.add(source)

    def add(self, source: "_Socket | Pollable") -> None:
        """Add a source to wait for."""
        key = source.socket if isinstance(source, _Socket) else source.fileno()
        self._sources[key] = source
        self._poller.register(key, zmq.POLLIN)

    def remove(self, source: "_Socket | Pollable") -> None:
        """Remove a source."""
        key = source.socket if isinstance(source, _Socket) else source.fileno()
        del self._sources[key]
        self._poller.unregister(key)

    def wait(self, seconds: float | None) -> "list[_Socket | Pollable]":
        """Return the readable sources, at the latest after ``seconds`` seconds (None: wait without limit)."""
        timeout = None if seconds is None else max(0, int(seconds * 1000) + (seconds > 0))
        return [self._sources[key] for key, _ in self._poller.poll(timeout)]


# -- addresses --------------------------------------------------------------------------------------------------------


def control_endpoint(config: Config) -> str:
    """Return the address of Almighty's control endpoint."""
    return f"ipc://{config.oar_run_dir}/ipc/almighty.ipc"


def _addresses(host: str) -> Iterable[str]:
    """Return the addresses to bind so that ``host`` is reachable.

    A name may resolve to loopback addresses here and to another address on other machines: Debian adds ``127.0.1.1``
    with the host name to ``/etc/hosts``. For such a name, bind all addresses.
    """
    if host in ("*", "0.0.0.0", "::"):
        return ["*"]
    try:
        entries = sockets.getaddrinfo(host, None, type=sockets.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"the address {host} is not known on this machine: {error}") from None
    addresses = dict.fromkeys(str(entry[4][0]) for entry in entries)
    is_private = host == "localhost" or host in addresses
    is_loopback = all(ip_address(address).is_loopback for address in addresses)
    return addresses if is_private or not is_loopback else ["*"]


def _make_private(directory: Path) -> None:
    """Create the directory of sockets that only the server's account may use."""
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
