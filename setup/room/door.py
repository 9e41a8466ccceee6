"""A port of this computer that leads to a port of a room's server: a browser here can open the pages there.

The process listens in the network in which it was started, and connects in that of the server. To the server everybody
comes from its own loopback address: nobody is known there by where he comes from.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket

from . import kernel, layout, machine

#: Where the door listens: on this computer only.
HOST = "127.0.0.1"
_PIECE = 65536


def begin(server: int, wanted: int, inner: int) -> tuple[int, int]:
    """Open a door to port `inner` of the server, whose first process is `server`; the door's pid and its port.

    `wanted` is the port here, 0 for any that is free.  Raises RoomError if it is taken.
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
    """Hand over what comes, and then its end."""
    with contextlib.suppress(OSError):
        while piece := await source.read(_PIECE):
            sink.write(piece)
            await sink.drain()
        sink.write_eof()
