"""The doorbell: commands notify the server that the database has changed.

The endpoint is a ZeroMQ socket. The protocol is short and fixed (ZMTP 3.0, RFC 23): a greeting and a READY command in
each direction, then one frame per message. Loading the ZeroMQ library instead would delay a command by 10 ms.

See docs/design/bus.rst, "Principles".
"""

import socket
from collections.abc import Sequence
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

    def __init__(self, host: str, port: int) -> None:
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._host = host
        self._port = port
        self._socket: socket.socket | None = None

    def ring(self, *effects: Wake | Ask) -> None:
        """Send messages.  Raises ServerUnavailable."""
        try:
            if self._socket is None:
                host = self._host.encode("ascii")  # for a str, Python loads a codec whose tables take 3 ms
                self._socket = socket.create_connection((host, self._port), _PATIENCE)  # type: ignore[arg-type]
                self._shake_hands(self._socket)
            self._socket.sendall(b"".join(_frame(encode_request(effect)) for effect in effects))
        except TimeoutError:
            raise self._unavailable("no answer") from None
        except (OSError, UnicodeError) as error:
            raise self._unavailable(getattr(error, "strerror", None) or str(error)) from None

    def close(self) -> None:
        """Close the connection. Messages that were sent still arrive."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

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
    """Send each effect once, without duplicates. Raises ServerUnavailable."""
    if effects:
        with Doorbell(config.server_hostname, config.appendice_server_port) as bell:
            bell.ring(*dict.fromkeys(effects))


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
