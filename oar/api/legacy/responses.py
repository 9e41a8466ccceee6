"""Responses to clients of OAR 2.5 and OAR 3: formats, errors, pages of lists, records with the keys of both."""

import html
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from oar.api.errors import CODES, Unidentified, error_record, problem_record, status_of
from oar.api.legacy.requests import LegacyRequest, NoSuchMethod, ResponseFormat, Titled, segment
from oar.api.parameters import LARGEST_ID
from oar.api.responses import LINES, encoded
from oar.lib.base.errors import BadRequest, NoSuchJob, NotAllowed, OarError, Unavailable
from oar.lib.base.formats import Format, dump
from oar.lib.base.times import format_duration, format_signed_duration
from oar.lib.jobs.fields import FIELDS
from oar.lib.jobs.formats import legacy_details
from oar.lib.submission.once import KeyReused

if TYPE_CHECKING:
    from oar.lib.jobs.privacy import Privacy
    from oar.lib.jobs.records import Job
    from oar.lib.jobs.views import JobView
    from oar.lib.jobs.walltime import WalltimeStatus
    from oar.lib.nodes.views import ResourceView


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
            raise BadRequest(f"offset: {offset} must be at most {MAX_OFFSET}\n{hint}").of("offset")
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


_FIELD_OF = {key: field.name for field in FIELDS for key in field.legacy}
#: Keys of jobs in lists.
_SHORT_KEYS = (
    *("id", "job_id", "name", "state", "owner", "user", "queue", "queue_name", "project", "type", "array_id"),
    *("submission", "submission_time", "start_time", "stop_time", "exit_code"),
)


def short_job(job: "Job", prefix: str) -> dict[str, Any]:
    """Return a job of ``/jobs``."""
    return {**{key: getattr(job, _FIELD_OF[key]) for key in _SHORT_KEYS}, **_job_links(job, prefix)}


def _job_links(job: "Job", prefix: str) -> dict[str, Any]:
    own = f"{prefix}/jobs/{job.id}"
    parts = [link("collection", f"{own}/{name}", name) for name in ("resources", "nodes")]
    return {"api_timestamp": now(), "links": [link("self", own), *parts]}


def table_row(job: "Job", privacy: "Privacy") -> dict[str, Any]:
    """Return a job of ``/jobs/table``: the columns of the table ``jobs``, empty where the caller may not read them."""
    hidden = {
        "env": None,
        "notify": privacy.notify(job),
        "command": privacy.command(job),
        "initial_request": privacy.initial_request(job),
    }
    return {**job._asdict(), **hidden, "job_id": job.id, "job_user": job.user, "queue_name": job.queue}


def full_job(view: "JobView", prefix: str) -> dict[str, Any]:
    """Return a job of ``/jobs/ID``."""
    code = view.job.exit_code
    chosen = [each for each in view.moldables if each.id == view.job.assigned_moldable] or view.moldables[:1]
    return {
        **legacy_details(view),
        **_job_links(view.job, prefix),
        "properties": view.job.properties or "",
        "actual_resources": [
            [group.filter, [list(level) for level in group.levels]] for moldable in chosen for group in moldable.groups
        ],
        "exit_status_code": None if code is None else code >> 8 & 255,
    }


def detailed_job(view: "JobView", columns: Mapping[int, Mapping[str, Any]], prefix: str) -> dict[str, Any]:
    """Return a job of ``/jobs/ID/details``; ``columns``: the columns to show of its resources."""
    ids, status = held_resources(view)
    resources = [
        {
            **{name: value for name, value in columns.get(resource, {}).items() if name != "resource_id"},
            "id": resource,
            "resource_id": resource,
            "status": status,
            "links": [link("self", f"{prefix}/resources/{resource}")],
        }
        for resource in ids
    ]
    assigned = status == "assigned"
    names = view.assigned.nodes if assigned else [str(columns[resource]["network_address"]) for resource in ids]
    nodes = [
        {"network_address": name, "status": status, "links": [node_link("self", name, prefix)]}
        for name in dict.fromkeys(filter(None, names))
    ]
    return {**full_job(view, prefix), "resources": resources, "nodes": nodes}


def held_resources(view: "JobView") -> tuple[Sequence[int], str]:
    """Return the ids of the resources of a job, and whether they are ``assigned`` or ``reserved``."""
    if view.reserved_resources is not None:
        return [resource.id for resource in view.reserved_resources], "reserved"
    return view.assigned.resources, "assigned"


def walltime_change(status: "WalltimeStatus") -> dict[str, Any]:
    """Return the key ``walltime-change`` of a job."""
    change, possible = status.change, status.possible
    return {
        "walltime": format_duration(status.walltime),
        "possible": "UNLIMITED" if possible is None else format_signed_duration(possible),
        "pending": format_signed_duration(change.pending),
        "force": "YES" if change.force else "NO",
        "delay_next_jobs": "YES" if change.delay_next_jobs else "NO",
        "whole": "YES" if change.whole else "NO",
        "granted": format_signed_duration(change.granted),
        "granted_with_force": format_signed_duration(change.granted_with_force),
        "granted_with_delay_next_jobs": format_signed_duration(change.granted_with_delay_next_jobs),
        "granted_with_whole": format_signed_duration(change.granted_with_whole),
        "timeout": change.timeout,
    }


def short_resource(view: "ResourceView", prefix: str) -> dict[str, Any]:
    """Return a resource of ``/resources``."""
    return {
        "id": view.id,
        "state": view.state,
        "available_upto": view.columns["available_upto"],
        "network_address": view.node,
        **_resource_links(view, prefix),
    }


def full_resource(view: "ResourceView", prefix: str, *, with_jobs: bool = False) -> dict[str, Any]:
    """Return a resource with all its columns; ``cpuset`` is a number if it has only digits."""
    columns = {name: value for name, value in view.columns.items() if name != "resource_id"}
    cpuset = str(columns.get("cpuset", ""))
    if cpuset.isascii() and cpuset.isdigit():
        columns["cpuset"] = int(cpuset)
    jobs = {"jobs": jobs_with_links(view.jobs, prefix)} if with_jobs else {}
    return {**columns, "id": view.id, **jobs, **_resource_links(view, prefix)}


def jobs_with_links(ids: Iterable[int], prefix: str) -> list[dict[str, Any]]:
    return [{"id": job_id, "links": [link("self", f"{prefix}/jobs/{job_id}")]} for job_id in ids]


def node_link(rel: str, name: str, prefix: str, title: str = "") -> dict[str, str]:
    return link(rel, f"{prefix}/resources/nodes/{segment(name)}", title)


def _resource_links(view: "ResourceView", prefix: str) -> dict[str, Any]:
    own = f"{prefix}/resources/{view.id}"
    node = [node_link("member", view.node, prefix, "node")] if view.node else []
    return {"api_timestamp": now(), "links": [*node, link("self", own), link("collection", f"{own}/jobs", "jobs")]}
