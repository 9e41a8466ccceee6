"""Programs that run as a user during a response: the user may stop them at any time, and no thread waits for them."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any, ClassVar, NamedTuple, Self

from oar.api.concurrency import in_thread
from oar.lib.user_files.files import SilentProgram, UserFiles

#: Bytes that are read and written at a time.
BLOCK = 1 << 18
#: Seconds given to a program after its pipes are closed; then it is killed.
CLEANING_SECONDS = 10.0


class UserCommand(NamedTuple):
    """A program that is to run as a user."""

    files: UserFiles  #: of that user
    user: str
    words: tuple[Sequence[str], Mapping[str, Any]]  #: its words, and the identity of the process
    one_more: AbstractContextManager[None]  #: counts it


class UserProgram:
    """A program that runs as a user, and its pipes."""

    #: Programs that are ending; they count until they have.
    _ending: ClassVar[set[asyncio.Task[None]]] = set()

    def __init__(self, command: UserCommand, process: "subprocess.Popen[bytes]", counted: ExitStack) -> None:
        self._command, self._process, self._counted = command, process, counted
        assert process.stdin
        assert process.stdout
        self._sink, self._source = process.stdin.fileno(), process.stdout.fileno()
        self._held = bytearray()  # what was read behind a line
        for descriptor in (self._sink, self._source):
            os.set_blocking(descriptor, False)

    @classmethod
    async def start(cls, command: UserCommand) -> Self:
        """Start it.  Raises TooMany."""
        with ExitStack() as stack:
            stack.enter_context(command.one_more)
            process = await in_thread(_started, command)
            return cls(command, process, stack.pop_all())

    async def line(self, longest: int, seconds: float | None) -> bytes:
        """Return the next line without its end, b'' if there is none.  Raises SilentProgram."""
        seen = 0
        while (end := self._held.find(b"\n", seen)) < 0:
            seen = len(self._held)
            piece = await self._read(seconds)
            if not piece or len(self._held) > longest:
                return b""
            self._held += piece
        line = bytes(self._held[:end])
        del self._held[: end + 1]
        return line

    async def exactly(self, length: int, seconds: float | None) -> bytes:
        """Return the next bytes, fewer if no more come.  Raises SilentProgram."""
        while len(self._held) < length and (piece := await self._read(seconds)):
            self._held += piece
        data = bytes(self._held[:length])
        del self._held[:length]
        return data

    async def some(self, seconds: float | None) -> bytes:
        """Return the next data, b'' at the end.  Raises SilentProgram."""
        held = bytes(self._held)
        self._held.clear()
        return held or await self._read(seconds)

    async def write(self, data: bytes, seconds: float) -> None:
        """Write to the program; ignored if it has ended.  Raises SilentProgram."""
        left = memoryview(data)
        loop = asyncio.get_running_loop()
        with suppress(BrokenPipeError):
            while left:
                try:
                    left = left[os.write(self._sink, left) :]
                except BlockingIOError:
                    await self._ready(self._sink, loop.add_writer, loop.remove_writer, seconds)

    async def _read(self, seconds: float | None) -> bytes:
        loop = asyncio.get_running_loop()
        while True:
            try:
                return os.read(self._source, BLOCK)
            except BlockingIOError:
                await self._ready(self._source, loop.add_reader, loop.remove_reader, seconds)

    async def _ready(
        self, pipe: int, begin: Callable[..., object], end: Callable[[int], object], seconds: float | None
    ) -> None:
        """Wait until a pipe can be used.  Raises SilentProgram."""
        is_ready = asyncio.Event()
        begin(pipe, is_ready.set)
        try:
            async with asyncio.timeout(seconds):
                await is_ready.wait()
        except TimeoutError:
            raise SilentProgram(self._command.user) from None
        finally:
            end(pipe)

    async def close(self) -> None:
        """Close the pipes, so that the program ends."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with suppress(OSError):
                    pipe.close()
        task = asyncio.create_task(self._end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.wait({task}, timeout=CLEANING_SECONDS)

    async def _end(self) -> None:
        """Wait for the end of the program without a limit: it is counted (``one_more``) until then."""
        pause, waited = 0.005, 0.0
        while self._process.poll() is None:
            if waited > CLEANING_SECONDS:
                await in_thread(self._command.files.kill, self._process)
            await asyncio.sleep(pause)
            pause, waited = min(2 * pause, 1.0), waited + pause
        self._counted.close()


def _started(command: UserCommand) -> "subprocess.Popen[bytes]":
    command_line, identity = command.words
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(
        command_line, stdin=pipe, stdout=pipe, stderr=nothing, bufsize=0, start_new_session=True, **identity
    )
