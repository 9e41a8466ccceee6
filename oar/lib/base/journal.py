"""Write to the journal of systemd by its native protocol: lines with fields, by which ``journalctl`` filters.

See systemd's documentation, "Native Journal Protocol".
"""

import os
import socket
from collections.abc import Iterable

#: Where the journal listens.
SOCKET = "/run/systemd/journal/socket"

#: Seconds that a journal may need to take a line.
PATIENCE = 5.0


def datagram(fields: Iterable[tuple[str, str]]) -> bytes:
    r"""Return fields in the format of the journal. A name may be repeated.

    >>> datagram([("MESSAGE", "job ended"), ("JOB", "12")])
    b'MESSAGE=job ended\nJOB=12\n'
    """
    return b"".join(_field(name.encode(), value.encode("utf-8", "backslashreplace")) for name, value in fields)


def _field(name: bytes, value: bytes) -> bytes:
    """Return one field. A value of several lines follows its length."""
    if b"\n" not in value:
        return name + b"=" + value + b"\n"
    return name + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"


class Journal:
    """A connection to the journal, opened at the first line, and opened again in a forked process."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._opener = 0

    def send(self, fields: Iterable[tuple[str, str]]) -> None:
        """Write a line.  Raises OSError."""
        self._opened().sendto(datagram(fields), self._path)

    def _opened(self) -> socket.socket:
        if self._socket is None or self._opener != os.getpid():
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.settimeout(PATIENCE)
            self._opener = os.getpid()
        return self._socket

    def close(self) -> None:
        """Close the connection. The next line opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
