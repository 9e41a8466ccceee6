"""Client of the keeper of a running room, over its socket."""

from __future__ import annotations

import contextlib
import io
import json
import os
import selectors
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .layout import Room, RoomError

#: Timeout in seconds: the keeper serves one request at a time and may be starting a machine.
_ANSWER_DEADLINE = 240.0
_PIECE = 65536


@dataclass(frozen=True)
class Done:
    """Exit code of a command in the convention of shells, and its output."""

    code: int
    out: bytes
    err: bytes


def ask(room: Room, request: Mapping[str, object]) -> dict[str, object]:
    """Send one request to a room's keeper and return its response."""
    with _connection(room) as connection:
        connection.sendall(_line(request))
        return _answer(connection.makefile().readline())


@contextlib.contextmanager
def _connection(room: Room) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_DEADLINE)
        try:
            connection.connect(str(room.control))
        except OSError:
            raise RoomError(f"no room {room.name!r} is running") from None
        yield connection


def _line(request: Mapping[str, object]) -> bytes:
    return json.dumps(request).encode() + b"\n"


def _answer(text: str) -> dict[str, object]:
    answer: dict[str, object] = json.loads(text or '{"error": "the room has ended"}')
    if "error" in answer:
        raise RoomError(str(answer["error"]))
    return answer


def run(
    room: Room,
    machine: str,
    user: str,
    command: Sequence[str],
    *,
    extra: Mapping[str, str] | None = None,
    given: bytes = b"",
    deadline: float = _ANSWER_DEADLINE,
) -> Done:
    """Run a command through the keeper, with an input.

    Equivalent to `setup/cluster run`, without starting a Python process.
    """
    request = {"action": "run", "machine": machine, "user": user, "command": list(command), "env": dict(extra or {})}
    with _connection(room) as connection, _pipe() as stdin, _pipe() as out, _pipe() as err:
        socket.send_fds(connection, [_line(request)], [stdin.reads.fileno(), out.writes.fileno(), err.writes.fileno()])
        for end in (stdin.reads, out.writes, err.writes):
            end.close()
        answer, *printed = _converse(stdin.writes, given, (connection, out.reads, err.reads), deadline)
    code = _answer(answer.decode())["code"]
    assert isinstance(code, int)
    return Done(code, *printed)


@dataclass(frozen=True)
class _Pipe:
    reads: io.FileIO
    writes: io.FileIO


@contextlib.contextmanager
def _pipe() -> Iterator[_Pipe]:
    reads, writes = os.pipe()
    with io.FileIO(reads, "r") as reader, io.FileIO(writes, "w") as writer:
        yield _Pipe(reader, writer)


def _converse(
    stdin: io.FileIO, given: bytes, sources: Sequence[io.FileIO | socket.socket], deadline: float
) -> list[bytes]:
    """Write the input and read each source to its end."""
    heard = {source.fileno(): b"" for source in sources}
    until = time.monotonic() + deadline
    with selectors.DefaultSelector() as watched:
        for number in heard:
            watched.register(number, selectors.EVENT_READ)
        os.set_blocking(stdin.fileno(), False)
        watched.register(stdin, selectors.EVENT_WRITE)
        while watched.get_map():
            ready = watched.select(max(until - time.monotonic(), 0))
            if not ready:
                printed = [text for text in heard.values() if text]
                raise TimeoutError(f"the command has not ended within {deadline:.0f} s; it printed {printed}")
            for key, _ in ready:
                if key.fileobj is stdin:
                    given = _write(stdin, given)
                    if not given:
                        watched.unregister(stdin)
                        stdin.close()
                elif piece := os.read(key.fd, _PIECE):
                    heard[key.fd] += piece
                else:
                    watched.unregister(key.fileobj)
    return list(heard.values())


def _write(stdin: io.FileIO, given: bytes) -> bytes:
    """Write as much as possible; return the rest, which is empty if the reader has closed."""
    try:
        return given[stdin.write(given) :]
    except BrokenPipeError:
        return b""
