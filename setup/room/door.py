"""Port forwarding from the host to a room's server, so that a browser of the host can open its pages.

The process listens in the network of its start, and connects in that of the server. For the server all connections come
from its own loopback address.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket

from . import kernel, layout, machine

#: Listening address: only this host.
HOST = "127.0.0.1"
_PIECE = 65536


def begin(server: int, wanted: int, inner: int) -> tuple[int, int]:
    """Forward a port to port `inner` of the server with first process `server`; return the forwarder's pid and port.

    `wanted`: port of the host, 0 for any free one.  Raises RoomError if it is in use.
    """
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with listening:
        try:
            listening.bind((HOST, wanted))
        except (OSError, OverflowError) as error:
            raise layout.RoomError(f"cannot listen on {HOST}:{wanted}: {error}") from None
        listening.listen(128)

        def be_the_door() -> None:
            kernel.die_with_parent()
            kernel.set_process_name("room-door")
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            machine.close_all_but(0, 1, 2, listening.fileno())
            kernel.enter_namespaces(server, ("net",))
            asyncio.run(_serve(listening, inner))

        return machine.fork(be_the_door), listening.getsockname()[1]


async def _serve(listening: socket.socket, inner: int) -> None:
    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection(HOST, inner)
            await asyncio.gather(_pass_on(reader, there_writer), _pass_on(there_reader, writer))
            there_writer.close()
        writer.close()

    async with await asyncio.start_server(join, sock=listening) as server:
        await server.serve_forever()


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy data from one socket to the other, and then the end of the stream."""
    with contextlib.suppress(OSError):
        while piece := await source.read(_PIECE):
            sink.write(piece)
            await sink.drain()
        sink.write_eof()
