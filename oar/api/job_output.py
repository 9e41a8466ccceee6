"""The output files of jobs, read by programs that run as their owner: the kernel decides what these may read.

A user may stop such a program at any time, and no thread waits for it.
"""

import asyncio
import codecs
import errno
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, suppress
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, NamedTuple, Self
from urllib.parse import quote

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from oar.api.concurrency import in_thread
from oar.api.errors import STATUSES
from oar.api.hub import BYE, Message, Subscriber
from oar.api.long_polling import changes_of
from oar.api.parameters import LARGEST_ID, Header, JobId
from oar.api.responses import EVENT_STREAM, Answer, EventStream
from oar.api.routing import Router
from oar.api.service import Asking, asking, service_of
from oar.lib.access.scopes import JobAct
from oar.lib.base.errors import NotAllowed, OarError, UserError
from oar.lib.bus.messages import Topic
from oar.lib.history.records import JobStateChange
from oar.lib.jobs.privacy import check_reads_output
from oar.lib.jobs.states import FINAL, JobType
from oar.lib.jobs.views import JobView, job_view
from oar.lib.user_files import files as user_files
from oar.lib.user_files.files import FilePart, SilentProgram, UserFiles

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


#: Bytes from the end with which a stream begins.
TAIL = 1 << 16
_MAX_LINE = 1 << 12
#: Seconds without a message after which a comment shows that the connection lives.
QUIET_SECONDS = 15.0
#: Seconds without output after the end of a job after which its output counts as complete.
LAST_SECONDS = 10.0


class Found(NamedTuple):
    """Output that the program has read from a file."""

    record: dict[str, int]
    data: bytes = b""

    @property
    def error(self) -> OSError | None:
        """The reason why the file cannot be read; None if it can."""
        number = self.record.get("error")
        if number is None:
            return None
        return OSError(number or errno.EISDIR, os.strerror(number or errno.EISDIR))


class Follower(UserProgram):
    """The program that follows a file as a user."""

    async def next(self, seconds: float | None = None) -> Found | None:
        """Return the next output, None after the end of the program; ``seconds``: limit on the wait.

        Raises SilentProgram.
        """
        line = await self.line(_MAX_LINE, seconds)
        try:
            record = json.loads(line)
            length = record.get("length", 0)
            data = await self.exactly(min(length, BLOCK), seconds)
        except (ValueError, AttributeError, TypeError):  # it has ended, or is what its user has made of it
            return None
        return Found(record, data) if len(data) == length else None


class OutputEvents:
    """Makes messages of output; their ids are offsets at which a character begins."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, output: Found) -> bytes:
        """Return the message of something that was found, b'' if there is none yet."""
        if "truncated" in output.record or "skipped" in output.record:
            self._decoder.reset()
            (name,) = output.record
            return encode_event(name, {"offset": output.record[name]}, output.record[name])
        if not output.data:
            return b""
        text = self._decoder.decode(output.data)
        kept, _ = self._decoder.getstate()
        behind = output.record["offset"] + len(output.data) - len(kept)
        return encode_event("data", {"text": text, "offset": behind}, behind)


async def output_events(
    first: Found | None,
    follower: Follower,
    listener: Subscriber,
    *,
    has_ended: bool,
    may_read: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    """Yield the messages of a stream, until the output of an ended job is complete, or the reader loses access."""
    made, loop = OutputEvents(), asyncio.get_running_loop()
    output = asyncio.ensure_future(follower.next())
    news = asyncio.ensure_future(listener.next(QUIET_SECONDS))
    last = loop.time()
    try:
        yield b"retry: 3000\n\n" + (made.of(first) if first else b"")
        while True:
            patience = max(0.0, last + LAST_SECONDS - loop.time()) if has_ended else None
            done, _ = await asyncio.wait({output, news}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                yield encode_event("end", {})
                return
            if output in done:
                piece, last = output.result(), loop.time()
                if piece is None:
                    yield encode_event(BYE, {})
                    return
                if message := made.of(piece):
                    yield message
                output = asyncio.ensure_future(follower.next())
            if news in done:
                received = news.result()
                has_ended = has_ended or any(
                    isinstance(message.data, JobStateChange) and message.data.state in FINAL for message in received
                )
                if await _must_end(received, may_read):
                    yield encode_event(BYE, {})
                    return
                if not received:
                    yield b": nothing new\n\n"
                news = asyncio.ensure_future(listener.next(QUIET_SECONDS))
    finally:
        output.cancel()
        news.cancel()


def encode_event(name: str, record: dict[str, object], offset: int | None = None) -> bytes:
    """Return a message; ``offset``: where the client resumes after a reconnection."""
    event_id = b"" if offset is None else b"id: %d\n" % offset
    return b"%sevent: %s\ndata: %s\n\n" % (event_id, name.encode(), orjson.dumps(record))


async def _must_end(received: list[Message], may_read: Callable[[], Awaitable[bool]]) -> bool:
    names = {message.name for message in received}
    return BYE in names or (not names.isdisjoint((Topic.TOKENS, "reset")) and not await may_read())


router = Router("jobs")


OutputFile = TypedDict("OutputFile", {"path": str, "size": int | None, "modified": int | None, "problem": str | None})
JobOutput = TypedDict("JobOutput", {"stdout": OutputFile, "stderr": OutputFile, "complete": bool})


#: Bytes of one answer, at most.
MOST = 1 << 20
MAX_LINES = 100_000
_RANGE = re.compile(r"bytes=(?:(?P<first>\d{1,18})-(?P<last>\d{1,18})?|-(?P<suffix>\d{1,18}))")


class OutputNotHere(UserError):
    """The file does not exist, or this machine cannot see it."""


STATUSES[OutputNotHere] = HTTPStatus.NOT_FOUND


class OutputStream(StrEnum):
    """Output file of a job."""

    STDOUT = "stdout"
    STDERR = "stderr"


class OutputPiece(BaseModel):
    """Which piece of a file is meant."""

    model_config = ConfigDict(extra="forbid")

    offset: int = Field(0, ge=0, le=LARGEST_ID, description="Position of the first byte.")
    limit: int = Field(MOST, ge=1, le=MOST, description="Bytes.")
    tail: int | None = Field(
        None, ge=1, le=MAX_LINES, description="Number of lines from the end, instead of an offset."
    )
    follow: bool = Field(
        default=False,
        description="Follow the file as server-sent events, as the `Accept` header `text/event-stream` does.",
    )


class _JobOutput(NamedTuple):
    """The output files of a job."""

    view: JobView
    files: UserFiles

    @property
    def is_complete(self) -> bool:
        """Whether the output is complete."""
        return self.view.job.is_final

    def path(self, stream: OutputStream) -> str:
        """Return the absolute name of a file."""
        name = self.view.stdout_file if stream is OutputStream.STDOUT else self.view.stderr_file
        return os.path.join(self.view.job.launching_directory, name)

    def read(self, stream: OutputStream, offset: int, limit: int, lines: int = 0) -> FilePart:
        """Return a piece of a file.  Raises OutputNotHere, NotAllowed."""
        try:
            return self.files.read_part(self.path(stream), offset, limit, lines=lines)
        except OSError as error:
            raise self._refusal(stream, error) from None

    def check(self, stream: OutputStream, first: Found | None) -> None:
        """Check the first output of a file that is followed; the file of a live job may be created later.

        Raises OutputNotHere, NotAllowed.
        """
        error = first.error if first else PermissionError()
        if error and (self.is_complete or not isinstance(error, FileNotFoundError)):
            raise self._refusal(stream, error)

    def _refusal(self, stream: OutputStream, error: OSError) -> UserError:
        path = self.path(stream)
        if isinstance(error, PermissionError):
            return NotAllowed(f"{self.view.job.user} may not read {path}")
        return OutputNotHere(f"{path} cannot be read on {os.uname().nodename}: {error.strerror}")


@router.get("/v1/jobs/{job_id}/output", "job_output", "List the output files of a job")
def job_output(request: Request, job_id: JobId) -> JobOutput:
    """Return the paths and sizes of the output files of a job."""
    output = _output(asking(request), job_id)
    with service_of(request).reading(output.view.job.user):
        stdout, stderr = (_file(output, stream) for stream in (OutputStream.STDOUT, OutputStream.STDERR))
    return {"stdout": stdout, "stderr": stderr, "complete": output.is_complete}


@router.get(
    "/v1/jobs/{job_id}/output/{stream}",
    "job_output_bytes",
    "Read the output of a job",
    has_tag=False,
    media_types=("text/plain", "text/event-stream"),
    other_statuses={206: "The bytes of `Range`.", 416: "The file has no bytes in this `Range`."},
)
async def job_output_bytes(
    request: Request,
    job_id: JobId,
    stream: Annotated[OutputStream, Field(description="Standard output or standard error.")],
    piece: OutputPiece,
    *,
    range_: Annotated[
        str | None, Header(), Field(alias="Range", description="Byte range, such as `bytes=0-999` or `bytes=-999`.")
    ] = None,
    last: Annotated[
        str | None,
        Header(),
        Field(alias="Last-Event-ID", pattern=r"^[0-9]{1,18}$", description="Id of the last received event."),
    ] = None,
) -> Answer:
    """Return at most 1 MiB of an output file; request the next part with the next `offset`.

    With `follow`, or with the `Accept` header `text/event-stream`, the response is a stream of server-sent events:
    `data` with `text` and the `offset` after it (also the event id), `truncated` when the file was truncated, `skipped`
    when the file grows faster than the stream, `end`. It starts 64 KiB before the end of the file, after
    `Last-Event-ID`, or at `offset`.
    """
    if piece.follow or request.headers.get("accept", "").startswith(EVENT_STREAM):
        begin = piece.offset if "offset" in piece.model_fields_set else -TAIL
        return await _follow(request, job_id, stream, begin if last is None else int(last))

    def read() -> Answer:
        output = _output(asking(request), job_id)
        with service_of(request).reading(output.view.job.user):
            return _piece(output, stream, piece, range_)

    return await in_thread(read)


async def _follow(request: Request, job_id: int, stream: OutputStream, offset: int) -> Answer:
    """Stream the output of a job.  Raises NoSuchJob, NotAllowed, OutputNotHere, TooMany."""
    service = service_of(request)
    # It listens before it looks at the job, so that its end is not between them.
    listener = Subscriber(changes_of(job_id), frozenset((Topic.TOKENS,)))

    async def may_read() -> bool:
        with suppress(OarError):
            await in_thread(lambda: _output(asking(request), job_id))
            return True
        return False

    who = await in_thread(asking, request)
    request.scope["state"]["asked"] = who  # a moment ago
    async with AsyncExitStack() as stack:
        stack.enter_context(service.listening(request, who.caller, listener))
        request.state.seat.give_back()
        output = await in_thread(lambda: _output(asking(request), job_id))
        user = output.view.job.user
        one_more = service.follows.one_more(user, service.runtime.config.api_max_follows)
        command = output.files.following(output.path(stream), offset)
        follower = await Follower.start(UserCommand(output.files, user, command, one_more))
        stack.push_async_callback(follower.close)
        first = await follower.next(user_files.ANSWER_SECONDS)
        output.check(stream, first)
        events = output_events(first, follower, listener, has_ended=output.is_complete, may_read=may_read)
        return EventStream(events, stack.pop_all())


def _piece(output: _JobOutput, stream: OutputStream, piece: OutputPiece, range_: str | None) -> Answer:
    offset, limit = piece.offset, piece.limit
    byte_range = _RANGE.fullmatch(range_ or "")
    if byte_range and byte_range["suffix"]:
        size = output.read(stream, 0, 0).size
        offset, limit = max(0, size - int(byte_range["suffix"])), MOST
    elif byte_range:
        offset = int(byte_range["first"])
        limit = min(MOST, max(1, int(byte_range["last"]) - offset + 1)) if byte_range["last"] else MOST
    part = output.read(stream, offset, limit, piece.tail or 0)
    headers = {
        "X-OAR-Size": str(part.size),
        "X-OAR-Offset": str(part.offset),
        "X-OAR-Complete": "yes" if output.is_complete else "no",
        "Accept-Ranges": "bytes",
        "Content-Disposition": f"inline; filename*=UTF-8''{quote(os.path.basename(output.path(stream)), safe='')}",
    }
    if byte_range and not part.data:
        headers["Content-Range"] = f"bytes */{part.size}"
        return Response(status_code=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, headers=headers)
    if byte_range:
        headers["Content-Range"] = f"bytes {part.offset}-{part.offset + len(part.data) - 1}/{part.size}"
    status = HTTPStatus.PARTIAL_CONTENT if byte_range else HTTPStatus.OK
    return Response(part.data, status, headers, "text/plain; charset=utf-8")


def _file(output: _JobOutput, stream: OutputStream) -> OutputFile:
    try:
        part = output.read(stream, 0, 0)
    except (OutputNotHere, NotAllowed) as error:
        return {"path": output.path(stream), "size": None, "modified": None, "problem": str(error)}
    return {"path": output.path(stream), "size": part.size, "modified": part.modified, "problem": None}


def _output(who: Asking, job_id: int) -> _JobOutput:
    """Return the output of a job, if the caller may read it.  Raises NoSuchJob, NotAllowed, OutputNotHere."""
    user = who.caller.acting(JobAct.READ_OUTPUT, [job_id])
    if not who.config.api_output:
        raise OutputNotHere("this site does not serve the output of jobs (API_OUTPUT)")
    view = who.database.look(lambda tx: job_view(tx, job_id, who.job_privacy(tx)))
    check_reads_output(user, view.job)
    if view.job.job_type is JobType.INTERACTIVE:
        raise OutputNotHere(f"job {job_id} is interactive: its output is on the terminal of its user")
    return _JobOutput(view, UserFiles(user, who.config.oar_privilege_cmd, seconds=who.config.api_timeout))
