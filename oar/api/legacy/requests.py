"""Requests of clients of OAR 2.5 and OAR 3: addresses, parameters, bodies, the format of the response, errors.

See docs/api.rst, "Older clients".
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, quote

from starlette.requests import Request

from oar.api.authentication import Caller, outer_path
from oar.api.concurrency import FairPlaces, present_holder
from oar.api.errors import STATUSES
from oar.api.parameters import LARGEST_ID
from oar.api.request_bodies import MULTIPART, fields_of
from oar.api.responses import LINES
from oar.api.service import Asking, service_of
from oar.lib.base.errors import BadRequest, OarError, UserError
from oar.lib.base.formats import read_yaml
from oar.lib.base.times import parse_date

if TYPE_CHECKING:
    from oar.api.service import Service
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database


class BadType(UserError):
    """The media type of a body or of a response is not supported."""


class NoSuchAddress(OarError):
    """No operation has this address."""


class NoSuchMethod(OarError):
    """The address exists, but not with this method."""

    def __init__(self, methods: Sequence[str]) -> None:
        super().__init__(f"the methods of this address are {', '.join(methods)}")
        self.methods = methods


class NotServed(OarError):
    """An operation of an older version that was removed on purpose."""


class NoSuchKey(UserError):
    """The key of oar.conf does not exist or is secret."""


class MediaOff(UserError):
    """The site does not serve files of users."""


class NoSuchFile(UserError):
    """The file does not exist, or not on this machine."""


class CannotBeDone(UserError):
    """A system call on a file of a user failed."""


class Titled(UserError):
    """An error with a title of its own."""

    def __init__(self, error: OarError, title: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.title = title


STATUSES.update(
    {
        BadType: HTTPStatus.NOT_ACCEPTABLE,
        NoSuchAddress: HTTPStatus.NOT_FOUND,
        NoSuchMethod: HTTPStatus.METHOD_NOT_ALLOWED,
        NotServed: HTTPStatus.GONE,
        NoSuchKey: HTTPStatus.NOT_FOUND,
        MediaOff: HTTPStatus.NOT_IMPLEMENTED,
        NoSuchFile: HTTPStatus.NOT_FOUND,
        CannotBeDone: HTTPStatus.BAD_REQUEST,
    }
)


@contextmanager
def titled(title: str) -> Iterator[None]:
    """Give the errors of a block a title, such as ``Delete error``.  Raises Titled."""
    try:
        yield
    except UserError as error:
        raise Titled(error, title) from error


#: First words of addresses under which sites have served the older interfaces.
PREFIXES = frozenset(
    (
        *("oarapi", "oarapi-priv", "oarapi-public", "oarapi-secured", "oarapi-unsecure", "oarapi-cigri"),
        *("newoarapi", "newoarapi-priv"),
    )
)
YAML = frozenset({"text/yaml", "application/yaml", "application/x-yaml"})
#: Largest YAML body in bytes (1 MB takes 10 s of processor time), and the size up to which bodies are parsed at once.
MAX_YAML, _SHORT_YAML = 1 << 17, 1 << 12
#: Longer YAML bodies are parsed one after another; a request waits this number of seconds for its turn.
_YAML_WAIT = 5.0
_YAML_BODIES = FairPlaces(1, "too many long bodies of YAML at the same time: the limit is 1. Try again.", _YAML_WAIT)
_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EXTENSION = re.compile(r"\.(json|ndjson|yaml|html)\Z", re.IGNORECASE)
_QUALITY = re.compile(r"q\s*=\s*([01](?:\.[0-9]{0,3})?)")
_FORM = "application/x-www-form-urlencoded"
_OFF = frozenset({"0", "no", "false", "off", "none", "null"})


class ResponseFormat(StrEnum):
    """Format of a response, named like the extension of the address."""

    JSON = "json"
    LINES = "ndjson"  #: one JSON object per line
    YAML = "yaml"
    HTML = "html"


_FORMATS = {
    **dict.fromkeys(("application/json", "application/*", "*/*"), ResponseFormat.JSON),
    **dict.fromkeys((*YAML, "text/*"), ResponseFormat.YAML),
    LINES: ResponseFormat.LINES,
    "text/html": ResponseFormat.HTML,
}


class Address(NamedTuple):
    """The path of a request, split."""

    prefix: str  #: such as ``/oarapi``; '' without a prefix
    words: tuple[str, ...]
    extension: ResponseFormat | None


def parse_address(path: str) -> Address:
    """Split the path of a request.

    >>> parse_address("/oarapi/jobs/42.json").words
    ('jobs', '42')
    """
    words = [word for word in path.split("/") if word]
    prefix, extension = "", None
    if len(words) == 1 and (found := _EXTENSION.search(words[0])) and words[0].removesuffix(found[0]) in PREFIXES:
        return Address(f"/{words[0].removesuffix(found[0])}", (), ResponseFormat(found[1].lower()))
    if words and words[0] in PREFIXES:
        prefix = f"/{words.pop(0)}"
    if words and words[0] != "media" and (found := _EXTENSION.search(words[-1])):
        extension = ResponseFormat(found[1].lower())
        words[-1] = words[-1].removesuffix(found[0])
    return Address(prefix, tuple(word for word in words if word not in ("", "index")), extension)


def media_path(path: str) -> str | None:
    """Return the part of a path after ``/media``; None if it is not the address of a file.

    >>> media_path("/oarapi/media/ls/~"), media_path("/media"), media_path("/v1/media/x")
    ('/ls/~', '', None)
    """
    words = path.split("/")
    if words[1:2] and words[1] in PREFIXES:
        del words[1]
    return "".join(f"/{word}" for word in words[2:]) if words[1:2] == ["media"] else None


class LegacyRequest(NamedTuple):
    """A parsed request."""

    http: Request
    session: Asking
    method: str
    address: Address
    parameters: Mapping[str, Sequence[str]]
    body: Any  #: parsed; {} without a body
    aliases: Mapping[str, Sequence[str]] = {}  #: other names of parameters or fields, by the name used here

    @property
    def caller(self) -> Caller:
        return self.session.caller

    @property
    def config(self) -> "Config":
        return self.session.config

    @property
    def database(self) -> "Database":
        return self.session.database

    @property
    def service(self) -> "Service":
        return service_of(self.http)

    @property
    def prefix(self) -> str:
        """The prefix of links: what a trusted proxy sends, and the prefix of the address.

        Without API_ABSOLUTE_URIS links are relative to the address of the request.
        """
        if not self.config.api_absolute_uris:
            depth = self.http.url.path.removeprefix(self.address.prefix).count("/")
            return "/".join([".."] * (depth - 1)) or f".{'' if depth else self.address.prefix}"
        return outer_path(self.http, self.config) + self.address.prefix

    @property
    def own_link(self) -> str:
        """The address of the request without parameters, as a link."""
        extension = f".{self.address.extension}" if self.address.extension else ""
        return f"{self.prefix}/{'/'.join(map(segment, self.address.words))}{extension}"

    @property
    def wants_lines(self) -> bool:
        return requested_format(self.http, self.address) is ResponseFormat.LINES

    def name_of(self, parameter: str) -> str:
        """Return the name under which the client sent a parameter; the name used here if it did not send it."""
        names = (parameter, *self.aliases.get(parameter, ()))
        return next((name for name in names if name in self.parameters), parameter)

    def text(self, parameter: str) -> str | None:
        """Return a parameter; None if it is missing."""
        values = self.parameters.get(self.name_of(parameter))
        return ",".join(values) if values else None

    def words(self, parameter: str) -> tuple[str, ...]:
        """Return the different words of a parameter: repeated, or separated by commas, colons or blanks."""
        return tuple(dict.fromkeys(word for word in re.split(r"[,:\s]+", self.text(parameter) or "") if word))

    def number(self, parameter: str, default: int) -> int:
        """Return a number.  Raises BadRequest."""
        text = self.text(parameter)
        return parse_number(text, self.name_of(parameter)) if text else default

    def date(self, parameter: str) -> int | None:
        """Return a date, given in epoch seconds or as text; None if it is missing or empty.  Raises BadRequest."""
        text, name = self.text(parameter), self.name_of(parameter)
        if not text:
            return None
        try:
            return parse_number(text, name) if text.isdecimal() else parse_date(text)
        except BadRequest as error:
            raise error.of(name) from None

    def flag(self, parameter: str) -> bool:
        return is_on(self.text(parameter))

    @property
    def idempotency_key(self) -> str | None:
        """The header ``Idempotency-Key``.  Raises BadRequest."""
        text = self.http.headers.get("idempotency-key")
        if text is not None and not _KEY.fullmatch(text):
            raise BadRequest("Idempotency-Key: the key must have 1 to 255 printable characters").of("Idempotency-Key")
        return text

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the body.  Raises BadRequest if the body is not an object."""
        if not isinstance(self.body, dict):
            raise BadRequest("the body must be an object with fields")
        return {str(name): value for name, value in self.body.items()}


def parse_number(text: str, name: str, *, largest: int = LARGEST_ID) -> int:
    """Return a number from 0 to ``largest``.  Raises BadRequest."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= largest):
        raise BadRequest(f"{name}: {text!r} must be a whole number from 0 to {largest}").of(name)
    return int(text)


def is_on(value: object) -> bool:
    """Return whether a switch is on: it is given, also with an empty value, and does not mean "no"."""
    return value is not None and str(value).lower() not in _OFF


def segment(text: str) -> str:
    """Return a text quoted as one word of an address."""
    return quote(text, safe="")


def parse_parameters(request: Request) -> Mapping[str, Sequence[str]]:
    """Return the parameters of an address, each with all its values.  Raises BadRequest."""
    parameters = parse_qs(request.url.query, keep_blank_values=True)
    texts = (request.scope["path"], *(text for values in parameters.values() for text in values))
    if any(_CONTROL.search(text) for text in texts):
        raise BadRequest("an address must not hold control characters")
    return parameters


def content_type(request: Request) -> str:
    """Return the media type of a body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse_body(request: Request, data: bytes) -> Any:
    """Parse a body: JSON, YAML or a form.  Raises BadRequest, BadType, TooMany."""
    kind = content_type(request)
    if not data.strip():
        return {}
    try:
        text = data.decode()
        if kind in ("", "application/json", "text/json"):
            return _storable(json.loads(text))
        if kind in YAML:
            if len(data) > MAX_YAML or text.count("*") + text.count("&") > 100:
                raise BadRequest("too much YAML: send JSON")
            with _YAML_BODIES.place(present_holder()) if len(data) > _SHORT_YAML else nullcontext():
                return _storable(read_yaml(text))
        if kind == _FORM:
            if data.lstrip()[:1] in (b"{", b"["):
                raise BadRequest(
                    "the body is JSON, but its Content-Type is a form\nsend Content-Type: application/json"
                )
            return _storable(dict(parse_qsl(text, keep_blank_values=True)))
        if kind == MULTIPART:
            return _storable(fields_of(request.headers["content-type"], data))
    except json.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON from character {error.pos} on") from None
    except (ValueError, RecursionError):
        raise BadRequest("the body does not match its Content-Type") from None
    raise BadType(f"Bad type: {kind or 'none'}; send application/json, text/yaml, {_FORM} or {MULTIPART}")


def _storable(value: Any) -> Any:
    """Return a value.  Raises ValueError if the database cannot store one of its texts."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    text.encode()  # fails for a lone surrogate
    if "\\u0000" in text:
        raise ValueError("the character NUL")
    return value


def requested_format(request: Request, address: Address) -> ResponseFormat:
    """Return the format of the response: the extension of the address, or the Accept header.  Raises BadType."""
    if address.extension:
        return address.extension
    accept = request.headers.get("accept", "")
    for name in _accepted_types(accept or "*/*"):
        if name in _FORMATS:
            return _FORMATS[name]
    raise BadType(f"Bad type: {accept}; ask for application/json, {LINES}, text/yaml or text/html")


def _accepted_types(header: str) -> list[str]:
    """Return the accepted media types, best first.

    >>> _accepted_types("text/html;q=0.5, application/json, image/png;q=0")
    ['application/json', 'text/html']
    """
    types: list[tuple[float, str]] = []
    for part in header.lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        quality = next((float(match[1]) for word in parameters if (match := _QUALITY.fullmatch(word))), 1.0)
        types.append((quality, name))
    return [name for quality, name in sorted(types, key=lambda pair: -pair[0]) if quality]
