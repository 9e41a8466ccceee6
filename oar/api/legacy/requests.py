"""Requests and answers of clients that were written for OAR 2.5 and OAR 3: addresses, forms of bodies, formats.

See docs/api.rst, "Older clients".
"""

import html
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

from fastapi import Request, Response

from oar.api.authentication import outer_path
from oar.api.concurrency import FairPlaces, present_holder
from oar.api.parameters import LARGEST_ID
from oar.api.request_bodies import MULTIPART, fields_of
from oar.api.responses import LINES, encoded
from oar.api.service import Asking
from oar.lib.base.errors import BadRequest, UserError
from oar.lib.base.formats import Format, dump, read_yaml
from oar.lib.base.times import parse_date

if TYPE_CHECKING:
    from oar.lib.config.files import Config

#: First words of addresses under which sites have served the older interfaces.
PREFIXES = frozenset(
    (
        *("oarapi", "oarapi-priv", "oarapi-public", "oarapi-secured", "oarapi-unsecure", "oarapi-cigri"),
        *("newoarapi", "newoarapi-priv"),
    )
)
#: Media types of YAML.
YAML = frozenset({"text/yaml", "application/yaml", "application/x-yaml"})
#: Bytes of YAML, a million of which take ten seconds of processor time; those of bodies that take next to none.
MOST_YAML, _SHORT_YAML = 1 << 17, 1 << 12
#: Seconds that a long body waits until it is read, one after the other.
_YAML_PATIENCE = 5.0
_YAML_BODIES = FairPlaces(
    1, "too many long bodies of YAML at the same time: the limit is 1. Try again.", _YAML_PATIENCE
)
#: Items before a page, at most.
MOST_SKIPPED = 100_000
_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EXTENSION = re.compile(r"\.(json|ndjson|yaml|html)\Z", re.IGNORECASE)
#: How much a client likes what it accepts.
_LIKING = re.compile(r"q\s*=\s*([01](?:\.[0-9]{0,3})?)")
_FORM = "application/x-www-form-urlencoded"
_OFF = frozenset({"0", "no", "false", "off", "none", "null"})


class LegacyFormat(StrEnum):
    """How an answer is written."""

    JSON = "json"
    LINES = "ndjson"  #: a JSON text for each item
    YAML = "yaml"
    HTML = "html"


_TYPES = {
    LegacyFormat.JSON: "application/json; charset=utf-8",
    LegacyFormat.LINES: LINES,
    LegacyFormat.YAML: "text/yaml; charset=utf-8",
    LegacyFormat.HTML: "text/html; charset=utf-8",
}
_BY_NAME = {"application/json": LegacyFormat.JSON, "text/yaml": LegacyFormat.YAML, "text/html": LegacyFormat.HTML}
_BY_NAME |= {LINES: LegacyFormat.LINES}
_BY_NAME |= {"application/yaml": LegacyFormat.YAML, "application/x-yaml": LegacyFormat.YAML, "*/*": LegacyFormat.JSON}
_BY_NAME |= {"application/*": LegacyFormat.JSON, "text/*": LegacyFormat.YAML}


class BadType(UserError):
    """A form of answers or bodies that is not known here."""


class Place(NamedTuple):
    """What an address means, without its prefix and its extension."""

    prefix: str  #: that stands before links, without a slash at its end
    words: tuple[str, ...]
    extension: LegacyFormat | None


def place_of(path: str) -> Place:
    """Return what an address means.

    >>> place_of("/oarapi/jobs/42.json").words
    ('jobs', '42')
    """
    words = [word for word in path.split("/") if word]
    prefix, extension = "", None
    if len(words) == 1 and (found := _EXTENSION.search(words[0])) and words[0].removesuffix(found[0]) in PREFIXES:
        return Place(f"/{words[0].removesuffix(found[0])}", (), LegacyFormat(found[1].lower()))
    if words and words[0] in PREFIXES:
        prefix = f"/{words.pop(0)}"
    if words and words[0] != "media" and (found := _EXTENSION.search(words[-1])):
        extension = LegacyFormat(found[1].lower())
        words[-1] = words[-1].removesuffix(found[0])
    return Place(prefix, tuple(word for word in words if word not in ("", "index")), extension)


def file_in(path: str) -> str | None:
    """Return what stands behind ``/media`` in an address of files of users; None for other addresses.

    >>> file_in("/oarapi/media/ls/~"), file_in("/media"), file_in("/v1/media/x")
    ('/ls/~', '', None)
    """
    words = path.split("/")
    if words[1:2] and words[1] in PREFIXES:
        del words[1]
    return "".join(f"/{word}" for word in words[2:]) if words[1:2] == ["media"] else None


class LegacyCall(NamedTuple):
    """A request, read."""

    request: Request
    who: Asking
    method: str
    place: Place
    parameters: Mapping[str, Sequence[str]]
    body: Any  #: what the body holds; {} for none

    @property
    def prefix(self) -> str:
        """What stands before links."""
        return link_prefix(self.request, self.place, self.who.config)

    @property
    def address(self) -> str:
        """The address of the request without its parameters, for links."""
        extension = f".{self.place.extension}" if self.place.extension else ""
        return f"{self.prefix}/{'/'.join(map(segment, self.place.words))}{extension}"

    @property
    def wants_lines(self) -> bool:
        """Whether the client wants all items of a list, one a line."""
        return format_of(self.request, self.place) is LegacyFormat.LINES

    def given(self, *names: str) -> str:
        """Return the first of the names of a parameter that is given; the first of all if there is none."""
        return next((name for name in names if self.parameters.get(name)), names[0])

    def text(self, *names: str) -> str | None:
        """Return a parameter of the address by the first of its names that is given; None if there is none."""
        values = self.parameters.get(self.given(*names))
        return ",".join(values) if values else None

    def words(self, *names: str) -> tuple[str, ...]:
        """Return the words of a parameter: repeated, or with commas or colons between them."""
        text = self.text(*names) or ""
        return tuple(dict.fromkeys(word for word in re.split(r"[,:\s]+", text) if word))

    def number(self, name: str, default: int) -> int:
        """Return a number of a parameter.  Raises BadRequest."""
        text = self.text(name)
        return default if text in (None, "") else number_of(text or "", name)

    def date(self, *names: str) -> int | None:
        """Return the date of a parameter, epoch seconds or as people write it; None if it is not given.

        Raises BadRequest.
        """
        name = self.given(*names)
        text = self.text(name)
        if not text:
            return None
        try:
            return number_of(text, name) if text.isdecimal() else parse_date(text)
        except BadRequest as error:
            raise error.of(name) from None

    def flag(self, name: str) -> bool:
        """Whether a parameter is given and says no no."""
        return is_on(self.text(name))

    @property
    def key(self) -> str | None:
        """The key with which the request is carried out once.  Raises BadRequest."""
        text = self.request.headers.get("idempotency-key")
        if text is not None and not _KEY.fullmatch(text):
            raise BadRequest("Idempotency-Key: it has 1 to 255 printable characters").of("Idempotency-Key")
        return text

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the body.  Raises BadRequest if it is something else."""
        if not isinstance(self.body, dict):
            raise BadRequest("the body must be an object with fields")
        return {str(name): value for name, value in self.body.items()}


def number_of(text: str, name: str, *, largest: int = LARGEST_ID) -> int:
    """Return the number that a text is.  Raises BadRequest."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= largest):
        raise BadRequest(f"{name}: {text!r} is no number that can be").of(name)
    return int(text)


def is_on(value: object) -> bool:
    """Whether a switch is on: given, with no value that says no; '' is on, as a key without a value was."""
    return value is not None and str(value).lower() not in _OFF


def link_prefix(request: Request, place: Place, config: "Config") -> str:
    """Return what stands before links: what a trusted proxy says, and the prefix of the address.

    Where API_ABSOLUTE_URIS is off, links are relative to the address of the request, whatever stands before it.
    """
    if not config.api_absolute_uris:
        below = request.url.path.removeprefix(place.prefix).count("/")
        return "/".join([".."] * (below - 1)) or f".{'' if below else place.prefix}"
    return outer_path(request, config) + place.prefix


def parameters_of(request: Request) -> Mapping[str, Sequence[str]]:
    """Return the parameters of an address, each with all its values.  Raises BadRequest."""
    found = parse_qs(request.url.query, keep_blank_values=True)
    if any(_CONTROL.search(text) for values in found.values() for text in values) or _CONTROL.search(
        request.scope["path"]
    ):
        raise BadRequest("an address must not hold control characters")
    return found


def kind_of(request: Request) -> str:
    """Return the media type of a body."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def body_of(request: Request, data: bytes) -> Any:
    """Return what a body holds: JSON, YAML or a form.  Raises BadRequest, BadType, TooMany."""
    kind = kind_of(request)
    if not data.strip():
        return {}
    try:
        text = data.decode()
        if kind in ("", "application/json", "text/json"):
            return _storable(json.loads(text))
        if kind in YAML:
            if len(data) > MOST_YAML or text.count("*") + text.count("&") > 100:
                raise BadRequest("this is too much YAML: write JSON")
            with _YAML_BODIES.place(present_holder()) if len(data) > _SHORT_YAML else nullcontext():
                return _storable(read_yaml(text))
        if kind == _FORM:
            if data.lstrip()[:1] in (b"{", b"["):
                raise BadRequest("the body is JSON, and said to be a form\nsend Content-Type: application/json")
            return _storable(dict(parse_qsl(text, keep_blank_values=True)))
        if kind == MULTIPART:
            return _storable(fields_of(request.headers["content-type"], data))
    except json.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON from character {error.pos} on") from None
    except (ValueError, RecursionError):
        raise BadRequest("the body cannot be read: it is not what its Content-Type says") from None
    raise BadType(f"Bad type: {kind or 'none'}; send application/json, text/yaml, {_FORM} or {MULTIPART}")


def _storable(value: Any) -> Any:
    """Return a value.  Raises ValueError if the database cannot hold its texts."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    text.encode()  # half a character is none
    if "\\u0000" in text:
        raise ValueError("the character NUL")
    return value


def format_of(request: Request, place: Place) -> LegacyFormat:
    """Return how an answer is written: the extension says it, or what the client accepts.  Raises BadType."""
    if place.extension:
        return place.extension
    asked = request.headers.get("accept", "")
    for name in _accepted(asked or "*/*"):
        if name in _BY_NAME:
            return _BY_NAME[name]
    raise BadType(f"Bad type: {asked}; ask for application/json, {LINES}, text/yaml or text/html")


def _accepted(header: str) -> list[str]:
    """Return the media types that a client accepts, those that it likes best first.

    >>> _accepted("text/html;q=0.5, application/json, image/png;q=0")
    ['application/json', 'text/html']
    """
    liked: list[tuple[float, str]] = []
    for each in header.lower().split(","):
        name, *parameters = (word.strip() for word in each.split(";"))
        found = next((match for word in parameters if (match := _LIKING.fullmatch(word))), None)
        liked.append((float(found[1]) if found else 1.0, name))
    return [name for liking, name in sorted(liked, key=lambda pair: -pair[0]) if liking]


class Reply(NamedTuple):
    """An answer, not written yet."""

    record: Any
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = {}
    later: "Callable[[], Awaitable[Reply]] | None" = None  #: waits for the answer in its place, without a thread


def written(reply: Reply, form: LegacyFormat) -> Response:
    """Return an answer in a format."""
    kind = _TYPES[form]
    data = encoded(reply.record)
    if form is LegacyFormat.LINES:
        data = b"".join(encoded(item) + b"\n" for item in reply.record.get("items", [reply.record]))
    elif form is not LegacyFormat.JSON:
        plain = json.loads(data)
        data = (dump(plain, Format.YAML) if form is LegacyFormat.YAML else _page(plain)).encode()
    more = {"Content-Security-Policy": "default-src 'none'"} if form is LegacyFormat.HTML else {}
    return Response(data, reply.status, {**reply.headers, **more, "Content-Type": kind})


def _page(record: Any) -> str:
    """Return a page on which a record can be read, and its links followed."""
    text = html.escape(json.dumps(record, indent=2, ensure_ascii=False))
    linked = re.sub(
        r"(&quot;href&quot;: &quot;)([./][^&\s]*(?:&amp;[^&\s]*)*)(&quot;)",
        lambda found: f'{found[1]}<a href="{found[2]}">{found[2]}</a>{found[3]}',
        text,
    )
    return f"<!DOCTYPE html>\n<html><head><title>OAR</title></head><body><pre>{linked}</pre></body></html>\n"


def link(rel: str, href: str, title: str = "") -> dict[str, str]:
    """Return a link."""
    return {"rel": rel, "href": href, **({"title": title} if title else {})}


def segment(text: str) -> str:
    """Return a text as a word of an address."""
    return quote(text, safe="")


class PageOf(NamedTuple):
    """Which piece of a list is asked for."""

    offset: int
    limit: int  #: 0 = all that may be

    @classmethod
    def of(cls, call: LegacyCall) -> "PageOf":
        """Return what a request asks for, of lines always all.  Raises BadRequest."""
        if call.wants_lines:
            return cls(0, LARGEST_ID)
        config = call.who.config
        offset, limit = call.number("offset", 0), call.number("limit", config.api_default_max_items_number)
        if offset > MOST_SKIPPED:
            way_out = "page through jobs by after_id or before_id: each page costs the same"
            raise BadRequest(f"offset: {offset} is more than {MOST_SKIPPED}\n{way_out}").of("offset")
        return cls(offset, min(limit or config.api_max_limit, config.api_max_limit))

    def collection(self, call: LegacyCall, items: Sequence[Any], total: int) -> dict[str, Any]:
        """Return a piece of a list, with links to those beside it."""
        kept = [(name, each) for name, values in call.parameters.items() for each in values]
        kept = [pair for pair in kept if pair[0] not in ("offset", "limit")]

        def at(offset: int) -> str:
            return f"{call.address}?{urlencode([*kept, ('limit', self.limit), ('offset', offset)])}"

        links = [link("self", at(self.offset))]
        if self.offset + len(items) < total and items:
            links.append(link("next", at(self.offset + self.limit)))
        if self.offset:
            links.append(link("previous", at(max(0, self.offset - self.limit))))
        return {"items": items, "total": total, "offset": self.offset, "links": links, "api_timestamp": now()}

    def cut(self, items: Sequence[Any]) -> Sequence[Any]:
        """Return the piece of a list that is all there."""
        return items[self.offset : self.offset + self.limit]


def now() -> int:
    """Return the date, as each answer tells it."""
    return int(time.time())


def timed(record: Mapping[str, Any], links: Sequence[Mapping[str, str]] = ()) -> dict[str, Any]:
    """Return an object with its links and the date."""
    return {**record, **({"links": list(links)} if links else {}), "api_timestamp": now()}
