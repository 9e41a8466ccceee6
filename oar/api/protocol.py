"""HTTP connections that know the process at their other end."""

import asyncio
import socket
import struct
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oar.api.callers import Peer

_CREDENTIALS = struct.Struct("3i")


class PeerProtocol(HttpToolsProtocol):
    """The protocol of uvicorn; each request's ``state`` holds the ``peer``."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ask the kernel who has connected."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": peer_of(transport.get_extra_info("socket"), self.client)}


def peer_of(connection: Any, client: tuple[str, int] | None) -> Peer:
    """Return the other end of a connection."""
    if connection is not None and connection.family == socket.AF_UNIX:
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return Peer(uid=_CREDENTIALS.unpack(data)[1])
    return Peer(address=client[0] if client else "")
