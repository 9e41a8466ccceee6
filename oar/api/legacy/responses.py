"""Responses to clients of OAR 2.5 and OAR 3: formats, errors, links and pages of lists."""

import html
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from oar.api.errors import CODES, Unidentified, error_record, problem_record, status_of
from oar.api.legacy.errors import NoSuchMethod, Titled
from oar.api.legacy.requests import LegacyRequest, ResponseFormat
from oar.api.parameters import LARGEST_ID
from oar.api.responses import LINES, encoded
from oar.lib.base.errors import BadRequest, NoSuchJob, NotAllowed, OarError, Unavailable
from oar.lib.base.formats import Format, dump
from oar.lib.submission.once import KeyReused

#: Largest offset of a page.
MAX_OFFSET = 100_000
_CONTENT_TYPES = {
    ResponseFormat.JSON: "application/json; charset=utf-8",
    ResponseFormat.LINES: LINES,
    ResponseFormat.YAML: "text/yaml; charset=utf-8",
    ResponseFormat.HTML: "text/html; charset=utf-8",
}


Item = TypeVar("Item")


class Reply(NamedTuple):
    """A response that is not rendered yet."""

    record: Any
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = {}
    later: "Callable[[], Awaitable[Reply]] | None" = None  #: waits, without a thread, for the reply to send instead


def rendered(reply: Reply, form: ResponseFormat) -> Response:
    """Return a reply in a format."""
    data, headers = encoded(reply.record), {**reply.headers, "Content-Type": _CONTENT_TYPES[form]}
    if form is ResponseFormat.LINES:
        data = b"".join(encoded(item) + b"\n" for item in reply.record.get("items", [reply.record]))
    elif form is ResponseFormat.YAML:
        data = dump(json.loads(data), Format.YAML).encode()
    elif form is ResponseFormat.HTML:
        data = _html_page(json.loads(data)).encode()
        headers["Content-Security-Policy"] = "default-src 'none'"
    return Response(data, reply.status, headers)


def _html_page(record: Any) -> str:
    """Return a page that shows a record with clickable links."""
    text = html.escape(json.dumps(record, indent=2, ensure_ascii=False))
    linked = re.sub(
        r"(&quot;href&quot;: &quot;)([./][^&\s]*(?:&amp;[^&\s]*)*)(&quot;)",
        lambda found: f'{found[1]}<a href="{found[2]}">{found[2]}</a>{found[3]}',
        text,
    )
    return f"<!DOCTYPE html>\n<html><head><title>OAR</title></head><body><pre>{linked}</pre></body></html>\n"


def problem_reply(request: Request, error: OarError | HTTPException) -> Reply:
    """Return an error as a response; raise it if it is a fault of the service."""
    if isinstance(error, HTTPException):
        word, hint = CODES.get(HTTPStatus(error.status_code), "bad-request"), getattr(error, "hint", "")
        return Reply(problem_record(error.status_code, word, error.detail, hint=hint), error.status_code)
    if isinstance(error, Titled):
        problem = problem_reply(request, error.error)
        return problem._replace(record={**problem.record, "title": error.title})
    status = status_of(error)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        raise error
    if status == HTTPStatus.CONFLICT and not isinstance(error, KeyReused):
        status = HTTPStatus.BAD_REQUEST
    headers = {}
    if isinstance(error, Unidentified):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, NoSuchMethod):
        headers["Allow"] = ", ".join(error.methods)
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(getattr(error, "retry_after", 2))
    record = error_record(error, status)
    if isinstance(error, NoSuchJob):
        record |= {"title": "Job not found", "detail": "Job not found"}
    if isinstance(error, NotAllowed) and request.method != "GET":
        record["title"] = "Permission denied"
    return Reply(record, status, headers)


def with_legacy_keys(record: Mapping[str, Any], status: int, request_id: str) -> dict[str, Any]:
    """Return the record of an error with the keys that clients of both versions read."""
    whole = {"status": int(status), "title": HTTPStatus(status).phrase, **record}
    if "detail" not in whole:
        whole |= {"type": "bug", "detail": "something went wrong here"}
    return {**whole, "code": int(status), "message": whole["detail"], "request_id": request_id}


def link(rel: str, href: str, title: str = "") -> dict[str, str]:
    return {"rel": rel, "href": href, **({"title": title} if title else {})}


def now() -> int:
    return int(time.time())


def timed(record: Mapping[str, Any], links: Sequence[Mapping[str, str]] = ()) -> dict[str, Any]:
    """Return a record with its links and ``api_timestamp``."""
    return {**record, **({"links": list(links)} if links else {}), "api_timestamp": now()}


def plain_list(items: Sequence[Any]) -> dict[str, Any]:
    """Return a list that has no pages."""
    return timed({"items": items, "total": len(items), "offset": 0, "links": []})


class Page(NamedTuple):
    """The requested part of a list."""

    offset: int
    limit: int

    @classmethod
    def of(cls, request: LegacyRequest) -> "Page":
        """Return the requested page; with lines as the format always the whole list.  Raises BadRequest."""
        if request.wants_lines:
            return cls(0, LARGEST_ID)
        config = request.config
        offset, limit = request.number("offset", 0), request.number("limit", config.api_default_max_items_number)
        if offset > MAX_OFFSET:
            hint = "page through jobs with after_id or before_id"
            raise BadRequest(f"offset: {offset} is above {MAX_OFFSET}\n{hint}").of("offset")
        return cls(offset, min(limit or config.api_max_limit, config.api_max_limit))

    def of_items(self, items: Sequence[Any]) -> Sequence[Any]:
        return items[self.offset : self.offset + self.limit]

    def link(self, request: LegacyRequest, rel: str, **position: int | None) -> dict[str, str]:
        """Return the link to another page of the same list."""
        replaced = ("offset", "limit", *(() if "offset" in position else ("before_id", "after_id")))
        kept = [(name, text) for name, values in request.parameters.items() for text in values if name not in replaced]
        return link(rel, f"{request.own_link}?{urlencode([*kept, ('limit', self.limit), *position.items()])}")

    def collection(self, request: LegacyRequest, items: Sequence[Any], total: int) -> dict[str, Any]:
        """Return the items of this page with links to the next and the previous page."""
        links = [self.link(request, "self", offset=self.offset)]
        if self.offset + len(items) < total and items:
            links.append(self.link(request, "next", offset=self.offset + self.limit))
        if self.offset:
            links.append(self.link(request, "previous", offset=max(0, self.offset - self.limit)))
        return {"items": items, "total": total, "offset": self.offset, "links": links, "api_timestamp": now()}


def list_reply(
    request: LegacyRequest, items: Sequence[Item], record_of: Callable[[Item], object] = lambda item: item
) -> Reply:
    """Return the requested page of a list; ``record_of`` is called for its items only."""
    page = Page.of(request)
    shown = [record_of(item) for item in items[page.offset : page.offset + page.limit]]
    return Reply(page.collection(request, shown, len(items)))
