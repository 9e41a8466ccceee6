"""The port on which an oarsub that waits is called by the server.

See docs/design/bus.rst, "Lines to oarsub".
"""

import errno
import select
import socket
import time

from oar.lib.base.errors import ConfigError

#: Seconds of waiting for lines after which the connection to the database is given back: connections are few, and a job
#: that is held may wait for days.
CONNECTED_SECONDS = 5.0
#: Seconds that a caller has to send its line.
_CALL_SECONDS = 2.0
_LONGEST_LINE = 4096


class Listener:
    """A socket on which the server may call; lines from other addresses are not read."""

    def __init__(self, server: str, ports: tuple[int, int] | None = None) -> None:
        """``ports``: the first and the last one that may be used; None: any.  Raises ConfigError if none is free."""
        self._addresses = _addresses(server)
        self._socket = _listening_socket() if ports is None else _socket_among(*ports)
        self.port: int = self._socket.getsockname()[1]

    def next_line(self, seconds: float) -> str | None:
        """Return the next line of the server, None if none comes for so long; '' for a call without a whole line.

        A call from another address does not end the waiting.
        """
        limit = time.monotonic() + seconds
        while select.select([self._socket], [], [], max(0.0, limit - time.monotonic()))[0]:
            connection, address = self._socket.accept()
            with connection:
                if address[0].removeprefix("::ffff:") in self._addresses:
                    connection.settimeout(_CALL_SECONDS)
                    return _line(connection)
            if time.monotonic() >= limit:
                break
        return None

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def _line(connection: socket.socket) -> str:
    data = b""
    try:
        while b"\n" not in data and len(data) < _LONGEST_LINE and (part := connection.recv(_LONGEST_LINE)):
            data += part
    except OSError:
        return ""
    return data.partition(b"\n")[0].decode("utf-8", "replace").strip()


def _addresses(server: str) -> frozenset[str]:
    try:
        addresses = socket.getaddrinfo(server, None, type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    return frozenset(str(address[0]) for *_, address in addresses)


def _socket_among(first: int, last: int) -> socket.socket:
    for port in range(first, last + 1):
        try:
            return _listening_socket(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise ConfigError(f"OARSUB_CALLBACK_PORTS: {first}-{last}: all ports are in use. Try again, or add ports.")


def _listening_socket(port: int = 0) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
