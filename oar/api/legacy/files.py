"""The files of users on the addresses of OAR 2.5 and OAR 3, where a site serves them (API_MEDIA).

What is done is done by a program that runs as the user (``user_file_keeper``), beneath the directories of
API_MEDIA_ROOTS.  See docs/api.rst, "Older clients".
"""

import errno
import os
import pwd
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from oar.api.concurrency import in_thread
from oar.api.errors import STATUSES
from oar.api.legacy.requests import LegacyCall, PageOf, Reply, body_of, file_in, is_on, link, timed
from oar.api.request_bodies import MULTIPART, file_of
from oar.api.service import Asking, Service, service_of
from oar.api.user_programs import BLOCK, UserCommand, UserProgram
from oar.lib.access.records import User
from oar.lib.base.errors import BadRequest, NotAllowed, UserError
from oar.lib.user_files.files import UserFiles

MOST_LINES = 100_000
#: Files that are read and written at a time, by all.
MOST_AT_ONCE = 50
#: Bytes of what the program tells in a line, at most: names of a whole directory.
LONGEST_LINE = 1 << 26
_BINARY = "application/octet-stream"
_MODE = re.compile(r"[0-7]{3,4}")
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST)


class MediaOff(UserError):
    """No files are served here."""


class NoSuchFile(UserError):
    """There is no such file, or this machine cannot see it."""


class CannotBeDone(UserError):
    """The system refuses for another reason."""


STATUSES[MediaOff] = HTTPStatus.NOT_IMPLEMENTED
STATUSES[NoSuchFile] = HTTPStatus.NOT_FOUND
STATUSES[CannotBeDone] = HTTPStatus.BAD_REQUEST


class Deed(NamedTuple):
    """What is to be done with which file."""

    name: str  #: of what the program does; '' for an address that means nothing
    path: str


def deed_of(method: str, path: str, named: str | None) -> Deed:
    """Return what a request asks for; ``named``: the parameter ``path_filename`` of version 3.

    >>> deed_of("GET", "/oarapi/media/ls/~/a", None)
    Deed(name='list', path='~/a')
    >>> deed_of("POST", "/media/home/alice/x", None)
    Deed(name='write', path='/home/alice/x')
    """
    rest = file_in(path) or ""
    word, _, behind = rest[1:].partition("/")
    names = {"GET": "read", "POST": "write", "PUT": "write", "DELETE": "delete"}
    deed = names.get(method, "")
    if word == "ls" and method == "GET":
        deed, rest = "list", f"/{behind}"
    elif word in ("chmod", "force") and method in ("POST", "PUT"):
        deed, rest = "chmod" if word == "chmod" else "force", f"/{behind}"
    target = (named if named is not None else rest) or "/"
    return Deed(deed, target[1:] if target.startswith("/~") else target)


async def answer_to_media(call: LegacyCall) -> Response | Reply:
    """Do what a request asks for.  Raises BadRequest, Unidentified, NotAllowed, NoSuchFile, MediaOff, TooMany."""
    who, service = call.who, service_of(call.request)
    if not who.config.api_media:
        raise MediaOff("this site does not serve files of users (API_MEDIA); /v1/jobs/ID/output is what jobs wrote")
    deed = deed_of(call.method, call.request.scope["path"], call.text("path_filename"))
    if not deed.name:
        raise BadRequest(f"{call.method} does nothing with files")
    place = await in_thread(_Place.of, who, deed, service)
    if deed.name == "read":
        lines = call.number("tail", 0)
        if lines > MOST_LINES:
            raise BadRequest(f"tail: {lines} is more than {MOST_LINES} lines")
        keeper = await FileKeeper.start(place, "read", str(lines))
        call.request.state.seat.give_back()
        return await _FileAnswer.of(keeper, place.path)
    return await _DONE[deed.name](call, place)


async def _list(call: LegacyCall, place: "_Place") -> Reply:
    page = PageOf.of(call)
    items = (await _done(place, "list"))["items"]
    base = f"{call.prefix}/media"
    directory = quote(place.path.rstrip("/"))
    shown = [
        {
            **item,
            "links": [link("self", f"{base}{'/ls' if item['type'] == 'd' else ''}{directory}/{quote(item['name'])}")],
        }
        for item in page.cut(items)
    ]
    return Reply(page.collection(call, shown, len(items)))


async def _write(call: LegacyCall, place: "_Place", *, replace: bool = False) -> Reply:
    replaces = replace or call.flag("force")
    keeper = await FileKeeper.start(place, "write", "1" if replaces else "0")
    call.request.state.seat.give_back()
    try:
        async for piece in _blocks(_content(call.request)):
            await keeper.give(piece)
        await keeper.done()
    finally:
        await keeper.close()
    links = [link("self", f"{call.prefix}/media{quote(place.path)}")]
    return Reply(timed({"status": "created", "success": "true"}, links), HTTPStatus.CREATED)


async def _chmod(call: LegacyCall, place: "_Place") -> Response:
    text = call.text("mode")
    if text is None:
        text = str((await _small_body(call)).get("mode", ""))
    if not _MODE.fullmatch(text) or int(text, 8) > 0o777:
        raise BadRequest(f"Bad mode value: {text!r} is none such as 640 or 755")
    await _done(place, "chmod", text)
    return Response(status_code=HTTPStatus.ACCEPTED, media_type=_BINARY)


async def _small_body(call: LegacyCall) -> Mapping[str, Any]:
    """Return the fields of a body that is no file.  Raises HTTPException, BadRequest, BadType."""
    data = b""
    async for piece in call.request.stream():
        data += piece
        if len(data) > call.who.config.api_max_body:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return call._replace(body=body_of(call.request, data)).fields


async def _delete(call: LegacyCall, place: "_Place") -> Response:
    await _done(place, "delete", "1" if is_on(call.text("recursive")) else "0")
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _force(call: LegacyCall, place: "_Place") -> Reply:
    return await _write(call, place, replace=True)


_DONE: Mapping[str, Callable[[LegacyCall, "_Place"], Awaitable[Response | Reply]]] = {
    "list": _list,
    "write": _write,
    "force": _force,
    "chmod": _chmod,
    "delete": _delete,
}


async def _done(place: "_Place", deed: str, argument: str = "") -> Mapping[str, Any]:
    keeper = await FileKeeper.start(place, deed, argument)
    try:
        return await keeper.told()
    finally:
        await keeper.close()


async def _content(request: Request) -> AsyncIterator[bytes]:
    kind = request.headers.get("content-type", "")
    stream = request.stream()
    is_form = kind.lower().startswith(MULTIPART)
    async for piece in file_of(kind, stream) if is_form else stream:
        yield piece
    async for _ in stream:  # what stands in the form behind the file
        pass


async def _blocks(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Give what comes in pieces as few as may be."""
    held = b""
    async for piece in pieces:
        held += piece
        while len(held) >= BLOCK:
            yield held[:BLOCK]
            held = held[BLOCK:]
    if held:
        yield held


class _Place(NamedTuple):
    """A file of a user, and where it may be."""

    user: User
    files: UserFiles
    path: str
    roots: tuple[str, ...]
    one_more: AbstractContextManager[None]  #: counts the program
    seconds: int  #: after which a program that does not answer is given up

    @classmethod
    def of(cls, who: Asking, deed: Deed, service: Service) -> "_Place":
        """Return the file that is meant.  Raises Unidentified, NotAllowed."""
        caller = who.caller
        user = caller.identified() if deed.name in ("read", "list") else caller.changing()
        if not caller.scopes.reads_all:
            way_out = "Create a token with the scope ro: oar-token create --scope ro"
            raise NotAllowed(f"cannot read files: the token has the scope {caller.scopes}. {way_out}")
        if user.uid == 0 or user.uid == os.geteuid():
            raise NotAllowed("files of root and of the service itself are not served")
        home = pwd.getpwuid(user.uid).pw_dir
        roots = tuple(_in(home, each) for each in who.config.api_media_roots)
        files, one_more = UserFiles(user, who.config.oar_privilege_cmd), service.media.one_more(user.name, MOST_AT_ONCE)
        return cls(user, files, _in(home, deed.path), roots, one_more, who.config.api_timeout)


def _in(home: str, path: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


class FileKeeper:
    """The program that does something with a file, as the user."""

    def __init__(self, program: UserProgram, place: _Place) -> None:
        self._program, self._path, self._seconds = program, place.path, place.seconds
        self.close = program.close

    @classmethod
    async def start(cls, place: _Place, deed: str, argument: str) -> "FileKeeper":
        """Start it.  Raises BadRequest, TooMany."""
        if "\0" in place.path:
            raise BadRequest("a name of a file has no character NUL")
        words = place.files.keeping(deed, place.path, place.roots, argument)
        command = UserCommand(place.files, place.user.name, words, place.one_more)
        return cls(await UserProgram.start(command), place)

    async def told(self) -> Mapping[str, Any]:
        """Return what it has found or done.  Raises NoSuchFile, NotAllowed, BadRequest, CannotBeDone, SilentProgram."""
        line = await self._program.line(LONGEST_LINE, self._seconds)
        if not line:
            raise NotAllowed("nothing can be done with the rights of this user here")
        record: dict[str, Any] = await in_thread(orjson.loads, line)
        if "error" in record:
            _refuse(record["error"], self._path)
        return record

    async def give(self, piece: bytes) -> None:
        """Give it a piece of what it writes; one that has refused takes no more.  Raises SilentProgram."""
        await self._program.write(len(piece).to_bytes(4, "big") + piece, self._seconds)

    async def done(self) -> None:
        """Tell it that this was all, and look whether it has written it.  Raises as ``told``."""
        await self.give(b"")
        await self.told()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Give what it reads.  Raises SilentProgram."""
        while piece := await self._program.some(self._seconds):
            yield piece


class _FileAnswer(StreamingResponse):
    """A file; its program ends with the answer, or when the client has gone."""

    @classmethod
    async def of(cls, keeper: FileKeeper, path: str) -> "_FileAnswer":
        """Return the answer when the file is found.  Raises as ``told``."""
        try:
            size = (await keeper.told())["size"]
        except BaseException:
            await keeper.close()
            raise
        return cls(keeper, path, size)

    def __init__(self, keeper: FileKeeper, path: str, size: int) -> None:
        self._keeper = keeper
        headers = {
            "Content-Length": str(size),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(os.path.basename(path), safe='')}",
            "Cache-Control": "no-store",
        }
        super().__init__(keeper.pieces(), headers=headers, media_type=_BINARY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._keeper.close()


def _refuse(number: int, path: str) -> None:
    """Raise what the number of an error means: NoSuchFile, NotAllowed, BadRequest, CannotBeDone."""
    if number in _NO_FILE:
        raise NoSuchFile(f"File not found: {path}")
    if number == errno.ENAMETOOLONG:
        raise BadRequest(f"The name of the file is too long: {path}")
    if number == errno.EEXIST:
        raise NotAllowed(f"The file already exists: {path}")
    if number in _FORBIDDEN:
        raise NotAllowed(f"File could not be read or written: {path}")
    if number == 0:
        raise BadRequest(f"neither a plain file nor a directory that this can be done with: {path}")
    raise CannotBeDone(f"{path}: {os.strerror(number)}")
