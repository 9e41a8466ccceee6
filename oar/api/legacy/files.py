"""Operations on files of users at ``/media``, if a site serves them (API_MEDIA).

A program that runs as the user (``oar.lib.user_files.keeper``) reads and changes the files, in the directories of
API_MEDIA_ROOTS.  See docs/api.rst, "Older clients".
"""

import errno
import os
import pwd
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from oar.api.concurrency import in_thread
from oar.api.job_output import BLOCK, UserCommand, UserProgram
from oar.api.legacy.requests import CannotBeDone, LegacyRequest, MediaOff, NoSuchFile, is_on, media_path, parse_body
from oar.api.legacy.responses import Reply, link, list_reply, timed
from oar.api.request_bodies import MULTIPART, file_of
from oar.lib.access.records import User
from oar.lib.base.errors import BadRequest, NotAllowed
from oar.lib.user_files.files import UserFiles

MAX_TAIL = 100_000
#: Files that all users read and write at the same time, at most.
MAX_TRANSFERS = 50
#: Bytes of a line from the program, at most; a directory is one line.
MAX_LINE = 1 << 26
_BINARY = "application/octet-stream"
_MODE = re.compile(r"[0-7]{3,4}")
_NOT_FOUND = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def parse_action(method: str, path: str, path_filename: str | None) -> tuple[str, str]:
    """Return the action of a request, '' for an unsupported method, and the file.

    ``path_filename``: the parameter of OAR 3, which replaces the path.

    >>> parse_action("GET", "/oarapi/media/ls/~/a", None)
    ('list', '~/a')
    >>> parse_action("POST", "/media/home/alice/x", None)
    ('write', '/home/alice/x')
    """
    rest = media_path(path) or ""
    word, _, after = rest[1:].partition("/")
    action = {"GET": "read", "POST": "write", "PUT": "write", "DELETE": "delete"}.get(method, "")
    if word == "ls" and method == "GET":
        action, rest = "list", f"/{after}"
    elif word in ("chmod", "force") and method in ("POST", "PUT"):
        action, rest = word, f"/{after}"
    file = (rest if path_filename is None else path_filename) or "/"
    return action, file.removeprefix("/") if file.startswith("/~") else file


async def respond(request: LegacyRequest) -> Response | Reply:
    """Run the action of a request.  Raises BadRequest, Unidentified, NotAllowed, NoSuchFile, MediaOff, Unavailable."""
    if not request.config.api_media:
        raise MediaOff(
            "this site does not serve files of users (API_MEDIA). Use /v1/jobs/ID/output for the output of jobs."
        )
    action, path = parse_action(request.method, request.http.scope["path"], request.text("path_filename"))
    if not action:
        raise BadRequest(f"{request.method} is not supported for files")
    target = await in_thread(_Target.of, request, path, reads=action in ("read", "list"))
    if action == "read":
        return await _read(request, target)
    if action == "list":
        items = (await _result(target, "list"))["items"]
        return list_reply(request, items, lambda item: _list_item(request, target, item))
    if action == "chmod":
        return await _change_mode(request, target)
    if action == "delete":
        await _result(target, "delete", "1" if is_on(request.text("recursive")) else "0")
        return Response(status_code=HTTPStatus.NO_CONTENT)
    return await _write(request, target, replace=action == "force" or request.flag("force"))


class _Target(NamedTuple):
    """A file of a user, which may not exist."""

    user: User
    files: UserFiles
    path: str
    roots: tuple[str, ...]
    counter: AbstractContextManager[None]  #: counts the program
    seconds: int  #: time limit for each response of the program

    @classmethod
    def of(cls, request: LegacyRequest, path: str, *, reads: bool) -> "_Target":
        """Return the file that the caller may request.  Raises Unidentified, NotAllowed."""
        caller, config = request.caller, request.config
        user = caller.identified() if reads else caller.changing()
        if not caller.scopes.reads_all:
            hint = "Create a token with the scope ro: oar-token create --scope ro"
            raise NotAllowed(f"cannot read files: the token has the scope {caller.scopes}. {hint}")
        if user.uid == 0 or user.uid == os.geteuid():
            raise NotAllowed("files of root and of the service itself are not served")
        home = pwd.getpwuid(user.uid).pw_dir
        path, *roots = (
            home + name[1:] if name == "~" or name.startswith("~/") else name
            for name in (path, *config.api_media_roots)
        )
        if "\0" in path:
            raise BadRequest("the name of a file must not contain NUL")
        counter = request.service.media.one_more(user.name, MAX_TRANSFERS)
        return cls(user, UserFiles(user, config.oar_privilege_cmd), path, tuple(roots), counter, config.api_timeout)


class FileProgram:
    """The program that runs as the user, for one action on one file."""

    def __init__(self, program: UserProgram, target: _Target) -> None:
        self._program, self._path, self._seconds = program, target.path, target.seconds
        self.close = program.close

    @classmethod
    async def start(cls, target: _Target, action: str, argument: str) -> "FileProgram":
        """Start the program.  Raises TooMany."""
        command = target.files.keeping(action, target.path, target.roots, argument)
        return cls(
            await UserProgram.start(UserCommand(target.files, target.user.name, command, target.counter)), target
        )

    async def result(self) -> Mapping[str, Any]:
        """Return the record that the program prints.

        Raises NoSuchFile, NotAllowed, BadRequest, CannotBeDone, SilentProgram.
        """
        line = await self._program.line(MAX_LINE, self._seconds)
        if not line:
            raise NotAllowed("the program that serves files cannot run as this user")
        record: dict[str, Any] = await in_thread(orjson.loads, line)
        if "error" in record:
            _raise_error(record["error"], self._path)
        return record

    async def write(self, block: bytes) -> None:
        """Send a block of the file; b'' ends it. A program that has failed ignores it.  Raises SilentProgram."""
        await self._program.write(len(block).to_bytes(4, "big") + block, self._seconds)

    async def content(self) -> AsyncIterator[bytes]:
        """Yield the content of the file.  Raises SilentProgram."""
        while block := await self._program.some(self._seconds):
            yield block


@asynccontextmanager
async def _running(target: _Target, action: str, argument: str = "") -> AsyncIterator[FileProgram]:
    program = await FileProgram.start(target, action, argument)
    try:
        yield program
    finally:
        await program.close()


async def _result(target: _Target, action: str, argument: str = "") -> Mapping[str, Any]:
    async with _running(target, action, argument) as program:
        return await program.result()


def _list_item(request: LegacyRequest, target: _Target, item: Mapping[str, Any]) -> dict[str, Any]:
    base = f"{request.prefix}/media{'/ls' if item['type'] == 'd' else ''}{quote(target.path.rstrip('/'))}"
    return {**item, "links": [link("self", f"{base}/{quote(item['name'])}")]}


async def _read(request: LegacyRequest, target: _Target) -> Response:
    lines = request.number("tail", 0)
    if lines > MAX_TAIL:
        raise BadRequest(f"tail: {lines} must be at most {MAX_TAIL} lines")
    program = await FileProgram.start(target, "read", str(lines))
    request.http.state.seat.give_back()
    try:
        return _FileResponse(program, target.path, (await program.result())["size"])
    except BaseException:
        await program.close()
        raise


class _FileResponse(StreamingResponse):
    """The content of a file. The program ends with the response, also if the client disconnects."""

    def __init__(self, program: FileProgram, path: str, size: int) -> None:
        self._program = program
        headers = {
            "Content-Length": str(size),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(os.path.basename(path), safe='')}",
            "Cache-Control": "no-store",
        }
        super().__init__(program.content(), headers=headers, media_type=_BINARY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._program.close()


async def _write(request: LegacyRequest, target: _Target, *, replace: bool) -> Reply:
    async with _running(target, "write", "1" if replace else "0") as program:
        request.http.state.seat.give_back()
        held = b""
        async for piece in _uploaded(request.http):
            held += piece
            while len(held) >= BLOCK:
                await program.write(held[:BLOCK])
                held = held[BLOCK:]
        if held:
            await program.write(held)
        await program.write(b"")
        await program.result()
    links = [link("self", f"{request.prefix}/media{quote(target.path)}")]
    return Reply(timed({"status": "created", "success": "true"}, links), HTTPStatus.CREATED)


async def _uploaded(request: Request) -> AsyncIterator[bytes]:
    """Yield the content of the uploaded file: the body, or the file in a form."""
    kind, stream = request.headers.get("content-type", ""), request.stream()
    async for piece in file_of(kind, stream) if kind.lower().startswith(MULTIPART) else stream:
        yield piece
    async for _ in stream:  # the rest of a form, after the file
        pass


async def _change_mode(request: LegacyRequest, target: _Target) -> Response:
    mode = request.text("mode")
    if mode is None:
        data = b""
        async for piece in request.http.stream():
            data += piece
            if len(data) > request.config.api_max_body:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        mode = str(request._replace(body=parse_body(request.http, data)).fields.get("mode", ""))
    if not _MODE.fullmatch(mode) or int(mode, 8) > 0o777:
        raise BadRequest(f"Bad mode value: {mode!r} must be a mode such as 640 or 755")
    await _result(target, "chmod", mode)
    return Response(status_code=HTTPStatus.ACCEPTED, media_type=_BINARY)


def _raise_error(number: int, path: str) -> None:
    """Raise the exception for an ``errno``; 0: neither a plain file nor a directory."""
    if number in _NOT_FOUND:
        raise NoSuchFile(f"File not found: {path}")
    if number == errno.ENAMETOOLONG:
        raise BadRequest(f"The name of the file is too long: {path}")
    if number == errno.EEXIST:
        raise NotAllowed(f"The file already exists: {path}")
    if number in _FORBIDDEN:
        raise NotAllowed(f"File could not be read or written: {path}")
    if number == 0:
        raise BadRequest(f"Neither a regular file nor a directory that supports this: {path}")
    raise CannotBeDone(f"{path}: {os.strerror(number)}")
