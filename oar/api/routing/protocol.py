"""HTTP connections that know the process at their other end, and wait for nobody for ever."""

import asyncio
import socket
import struct
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oar.api.identity.callers import Peer

_CREDENTIALS = struct.Struct("3i")
#: Bytes of the head of a request, and seconds in which it must have come.
LONGEST_HEAD = 32 << 10
HEAD_SECONDS = 20.0
#: Seconds in which a client must take some of what waits for it; what is kept for one that does not is let go.
UNREAD_SECONDS = 60.0
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PeerProtocol(HttpToolsProtocol):
    """The protocol of uvicorn; each request's ``state`` holds the ``peer``."""

    _head = 0  # bytes that came since the last head was whole
    _patience: asyncio.TimerHandle | None = None
    _until_read: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ask the kernel who has connected."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": peer_of(transport.get_extra_info("socket"), self.client)}
        self._patience = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._wait_no_more()
        self._stop_until_read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """More waits for the client than is kept for long."""
        super().pause_writing()
        if self._until_read is None:
            self._until_read = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        """Nothing more is asked: close it, when the client has taken what waits for it, or will not."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has taken it."""
        self._stop_until_read()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Take what has come, unless it is more than a head may have."""
        if self._is_in_head:
            self._head += len(data)
        super().data_received(data)
        if self._is_in_head and self._head > LONGEST_HEAD and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """Begin to read a head."""
        super().on_message_begin()
        self._is_in_head = True
        if self._patience is None:
            self._patience = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._is_in_head, self._head = False, 0
        self._wait_no_more()
        super().on_headers_complete()

    _is_in_head = True

    def _unsupported_upgrade_warning(self) -> None:
        """Answer by HTTP/1.1 whoever asks for another protocol, without the lines that uvicorn writes of each."""

    def _wait_no_more(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _stop_until_read(self) -> None:
        if self._until_read is not None:
            self._until_read.cancel()
            self._until_read = None

    def _give_up(self) -> None:
        self.transport.close()


def peer_of(connection: Any, client: tuple[str, int] | None) -> Peer:
    """Return the other end of a connection."""
    if connection is not None and connection.family == socket.AF_UNIX:
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return Peer(uid=_CREDENTIALS.unpack(data)[1])
    return Peer(address=client[0] if client else "")
