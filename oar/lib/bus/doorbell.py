"""The doorbell: commands notify the server that the database has changed.

The endpoint is a ZeroMQ socket. The protocol is short and fixed (ZMTP 3.0, RFC 23): a greeting and a READY command in
each direction, then one frame per message. Loading the ZeroMQ library instead would delay a command by 10 ms.

See docs/design/bus.rst, "Principles".
"""

import errno
import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Self

from oar.lib.base.errors import ServerUnavailable
from oar.lib.bus.messages import Ask, Wake, encode_request
from oar.lib.config.files import Config

#: Seconds to connect, and to send: a command never hangs because of the server.
_PATIENCE = 1.0

_SIGNATURE = b"\xff" + 8 * b"\0" + b"\x7f"
_GREETING = (_SIGNATURE + b"\3\0" + b"NULL").ljust(64, b"\0")
_OLDEST_VERSION = 3
_SOCKET_TYPE = b"\x0bSocket-Type\0\0\0\4PUSH"
_READY = b"\5READY"
_LONG, _COMMAND = 2, 4  # flags of a frame
_LONGEST_SHORT = 255
_LARGEST_COMMAND = 4096


class Doorbell:
    """A connection to the server for messages. Use it as a context manager."""

    def __init__(self, host: str, port: int, connection: socket.socket | None = None) -> None:
        """``connection``: an open connection to the server, else one is made for the first message."""
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._host = host
        self._port = port
        self._socket = connection
        self._is_greeted = False

    def ring(self, *effects: Wake | Ask) -> None:
        """Send messages.  Raises ServerUnavailable."""
        try:
            if self._socket is None:
                host = self._host.encode("ascii")  # for a str, Python loads a codec whose tables take 3 ms
                self._socket = socket.create_connection((host, self._port), _PATIENCE)  # type: ignore[arg-type]
            if not self._is_greeted:
                self._shake_hands(self._socket)
                self._is_greeted = True
            self._socket.sendall(b"".join(_frame(encode_request(effect)) for effect in effects))
        except TimeoutError:
            raise self._unavailable("no answer") from None
        except (OSError, UnicodeError) as error:
            raise self._unavailable(getattr(error, "strerror", None) or str(error)) from None

    def close(self) -> None:
        """Close the connection. Messages that were sent still arrive."""
        if self._socket is not None:
            self._socket.close()
            self._socket, self._is_greeted = None, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _shake_hands(self, stream: socket.socket) -> None:
        """Exchange greeting and READY.

        Read the whole response: closing with unread data would discard sent messages.
        """
        stream.sendall(_GREETING + _frame(_READY + _SOCKET_TYPE, _COMMAND))
        greeting = _read(stream, len(_GREETING))
        if greeting[0] != _SIGNATURE[0] or greeting[9] != _SIGNATURE[9] or greeting[10] < _OLDEST_VERSION:
            raise self._unavailable("something else answers there")
        flags, size = _read(stream, 2)
        if flags & _LONG:
            size = int.from_bytes(bytes([size]) + _read(stream, 7), "big")
        if size > _LARGEST_COMMAND or not _read(stream, size).startswith(_READY):
            raise self._unavailable("it does not take messages")

    def _unavailable(self, error: str) -> ServerUnavailable:
        return ServerUnavailable(f"cannot contact the OAR server {self._address}: {error}")


def send_effects(config: Config, effects: Sequence[Wake | Ask]) -> None:
    """Send each effect once, without duplicates, to the active server. Raises ServerUnavailable if there is none."""
    effects, port = list(dict.fromkeys(effects)), config.appendice_server_port
    if not effects:
        return
    if len(config.server_hostnames) > 1:
        _send_to_first(config.server_hostnames, port, effects)
        return
    with Doorbell(config.server_hostname, port) as bell:
        bell.ring(*effects)


def _send_to_first(hosts: Sequence[str], port: int, effects: Sequence[Wake | Ask]) -> None:
    """Send effects to the first server that accepts them; a standby refuses connections. Raises ServerUnavailable."""
    error = ServerUnavailable(f"cannot contact an OAR server: none of {', '.join(hosts)} accepts connections")
    for host, connection in _connections(hosts, port):
        with Doorbell(host, port, connection) as bell:
            try:
                bell.ring(*effects)
            except ServerUnavailable as failure:
                error = failure
            else:
                return
    raise error


def _connections(hosts: Sequence[str], port: int) -> Iterator[tuple[str, socket.socket]]:
    """Connect to all hosts at the same time; yield each connection as soon as it is open.

    A host that does not answer delays no other one.
    """
    pending = {stream.fileno(): (host, stream) for host in hosts for stream in _connecting(host, port)}
    poll, limit = select.poll(), time.monotonic() + _PATIENCE
    for descriptor in pending:
        poll.register(descriptor, select.POLLOUT)
    try:
        # Beyond the limit too: a stopped server, whose kernel accepts connections, may have used up the time.
        while pending and (ready := poll.poll(max(0.0, limit - time.monotonic()) * 1000)):
            for descriptor, _ in ready:
                poll.unregister(descriptor)
                host, stream = pending.pop(descriptor)
                if stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    stream.close()
                    continue
                stream.settimeout(_PATIENCE)
                yield host, stream
    finally:
        for _, stream in pending.values():
            stream.close()


def _connecting(host: str, port: int) -> Iterator[socket.socket]:
    """Begin to connect to each address of a host; yield the sockets."""
    with suppress(OSError, UnicodeError):  # the name may be unknown
        for family, kind, _, _, address in socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM):
            stream = socket.socket(family, kind)
            stream.setblocking(False)
            if stream.connect_ex(address) in (0, errno.EINPROGRESS):
                yield stream
            else:
                stream.close()


def _frame(body: bytes, flags: int = 0) -> bytes:
    if len(body) > _LONGEST_SHORT:
        return bytes([flags | _LONG]) + len(body).to_bytes(8, "big") + body
    return bytes([flags, len(body)]) + body


def _read(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = stream.recv(size - len(data))
        if not part:
            raise ConnectionResetError("it closed the connection")
        data += part
    return data
