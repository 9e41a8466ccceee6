"""Commands that the keeper runs for a waiting client: cheaper than one process of setup/cluster per command.

The client (client.py) sends the three standard streams of the command with its request; the response is the exit
status. If the client disconnects, the command is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
from collections.abc import Mapping, Sequence

from . import enter, kernel, layout, machine

_PIECE = 65536
_STREAMS = 3


def receive(connection: socket.socket) -> tuple[dict[str, object], list[int]]:
    """Read one request, a line of JSON, and the streams sent with it."""
    line, streams = b"", []
    while not line.endswith(b"\n"):
        piece, descriptors, _, _ = socket.recv_fds(connection, _PIECE, _STREAMS)
        streams += descriptors
        if not piece:
            break
        line += piece
    request: dict[str, object] = json.loads(line)
    return request, streams


def begin(
    status: Mapping[str, object], request: Mapping[str, object], connection: socket.socket, streams: list[int]
) -> int:
    """Run a command in a child, which sends the response to the client; return the child's pid."""
    if len(streams) != _STREAMS:
        raise layout.RoomError("a command needs its three standard streams")
    where = enter.place(status, str(request["machine"]))
    command, extra = request["command"], request["env"]
    assert isinstance(command, list)
    assert isinstance(extra, dict)

    def be_the_command() -> None:
        kernel.die_with_parent()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        machine.close_all_but(0, 1, 2, connection.fileno())
        code = _run(where, str(request["user"]), command, extra, connection)
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps({"code": code}).encode() + b"\n")

    return machine.fork(be_the_command)


def _run(
    where: enter.Place, user: str, command: Sequence[str], extra: Mapping[str, str], connection: socket.socket
) -> int:
    """Run the command until it ends or the client disconnects."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    child = enter.begin(where, user, command, extra)
    with selectors.DefaultSelector() as watched:
        watched.register(connection, selectors.EVENT_READ)
        watched.register(os.pidfd_open(child), selectors.EVENT_READ)
        if any(key.fileobj is connection for key, _ in watched.select()):
            os.kill(child, signal.SIGKILL)
    return enter.end(child)
