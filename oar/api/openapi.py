"""The OpenAPI document, made of the routes and of what holds for all of them; the page /docs that shows it.

``docs/openapi.json`` is this document; a test compares them, so that a change of the interface is seen.
"""

import base64
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from oar.api.legacy.routes import ROUTES, Operation
from oar.api.openapi_operations import ANSWERS
from oar.api.openapi_schemas import NAME
from oar.api.responses import LINES, Answer, answer
from oar.api.routing import ApiRoute
from oar.lib.base.version import VERSION

router = APIRouter(include_in_schema=False, route_class=ApiRoute)

_JOB = {"command": "./run.sh", "resources": "nodes=2/core=4", "walltime": 7200, "name": "sim"}
_PERIOD = {"name": "course", "start": "2030-01-07 08:00", "duration": "4:00"}
#: An example of each request body, by the name of its schema.
EXAMPLES: Mapping[str, Mapping[str, object]] = {
    "JobRequest": _JOB,
    "JobBatch": {"jobs": [_JOB, {"command": "./next.sh", "types": ["besteffort"]}]},
    "EstimateRequest": {"alternatives": [_JOB, {**_JOB, "walltime": 3600}]},
    "JobUpdate": {"name": "sim-2", "properties": "gpu = 'YES'"},
    "BulkRequest": {"act": "delete", "user": "me", "state": "Waiting", "dry_run": True},
    "HoldRequest": {"running": False},
    "JobSignal": {"signal": "USR1"},
    "WalltimeChange": {"change": "+1:00:00", "delay_next_jobs": True},
    "BesteffortSetting": {"on": True},
    "ReservationRequest": {**_PERIOD, "resources": ["nodes=4"], "users": ["alice", "@teachers"]},
    "ReservationUpdate": {"duration": "6:00"},
    "SeriesUpdate": {"users": ["alice", "bob"]},
    "UsersetEntries": {"entries": ["alice", "@teachers"]},
    "NewResources": {"nodes": ["node-7", "node-7"], "properties": {"cluster": "hot"}},
    "NewMachines": {"hosts": 2, "prefix": "node-", "cpus": 2, "cores": 16, "dry_run": True},
    "ResourceUpdate": {"nodes": ["node-7"], "drain": True},
    "MaintenanceWindow": {"nodes": ["node-7"], "from": 1893999600, "to": 1894014000},
    "NewProperty": {"name": "gpu_model", "type": "varchar"},
    "PropertyUpdate": {"name": "gpu_kind"},
    "NewQueue": {"name": "night", "priority": 3},
    "QueueUpdate": {"enabled": False},
    "QueueSwitch": {"enabled": True},
    "NewRule": {"priority": 10, "text": "if user == 'guest': reject('guests submit no jobs')"},
    "RuleUpdate": {"enabled": False},
    "RuleTest": {"job": _JOB, "user": "alice"},
    "AccountingUpdate": {"anew": False},
    "ServerNotification": {"tag": "Term"},
    "TokenRequest": {"scope": "submit", "days": 30, "comment": "the portal"},
    "Login": {"user": "alice", "password": "correct horse"},
}


Schema = dict[str, Any]

#: Description of the API.
_TEXT = """\
All responses are JSON. Dates are epoch seconds. `null` means unknown or not happened yet.

Authenticate with a token (`Authorization: Bearer oar_...`, created with `oar-token create`) or use the local socket.
Lists are paginated: pass `next` of a response as `after` of the next request; `null` marks the last page.
Errors are a `Problem`: `detail` is one line for people, `type` a code for programs, `hint` says how to resolve it. A
malformed request returns `400`, one whose address or header is too long `414` or `431`.
After `429` and `503` repeat the same request when `Retry-After` has passed. A request that creates something is
executed only once, however often it is sent, if it has an `Idempotency-Key`.
Within `/v1` operations and fields are only added: clients must ignore fields that they do not know.
"""
_TAGS: Mapping[str, str] = {
    "jobs": "Submit, list, change and delete jobs; read their output.",
    "history": "Events, state changes and scheduling passes.",
    "nodes": "Nodes, resources and queues.",
    "reservations": "Request, list, change and delete advance reservations.",
    "gantt": "Jobs and resources over time, for diagrams.",
    "usage": "Resource consumption, waiting times and fair share.",
    "access": "Browser sessions and tokens.",
    "administration": "Administration of the installation.",
    "general": "The site and the caller.",
    "health": "Health checks for monitoring.",
}

_PROBLEM: Schema = {
    "type": "object",
    "description": "An error: one line for people, one code for programs.",
    "required": ["status", "type", "title", "detail", "request_id"],
    "properties": {
        "status": {"type": "integer", "description": "HTTP status code."},
        "type": {"type": "string", "description": "Error code.", "examples": ["no-such-job"]},
        "title": {"type": "string", "description": "HTTP status phrase."},
        "detail": {"type": "string", "description": "Error message, one line."},
        "request_id": {"type": "string", "description": "Request id in the log of the API."},
        "field": {"type": "string", "description": "Invalid field or parameter."},
        "hint": {"type": "string", "description": "How to resolve the error."},
    },
    "examples": [
        {
            "status": 400,
            "type": "bad-request",
            "title": "Bad Request",
            "detail": "there is no 'wallltime'",
            "field": "wallltime",
            "hint": "did you mean 'walltime'?",
            "request_id": "4f2a9c0d1e8b7765",
        }
    ],
}
_SECURITY: Schema = {
    "token": {"type": "http", "scheme": "bearer", "description": "Token, created with oar-token create."},
    "password": {"type": "http", "scheme": "basic"},
    "session": {"type": "apiKey", "in": "cookie", "name": "oar_session"},
}
#: Statuses of errors: of every operation, of changes, of paths with a name, of requests with a precondition.
_ALWAYS = (400, 401, 403, 405, 408, 413, 414, 429, 431, 500, 503)
_OF_CHANGES = (404, 409)
_OF_PATHS = (404,)
#: Status of a failed precondition, by header.
_OF_HEADERS = {"if-match": 412}
#: Headers of responses to clients with a rate limit.
_HEADERS: Mapping[str, Schema] = {
    name: {"description": text, "schema": {"type": "integer", "minimum": 0}}
    for name, text in (
        (
            "RateLimit-Limit",
            "Size of a burst of requests. The RateLimit headers are left out if there is no limit.",
        ),
        ("RateLimit-Remaining", "Remaining requests of the burst."),
        ("RateLimit-Reset", "Seconds until a full burst is allowed again."),
        ("Retry-After", "Seconds after which to repeat the request."),
    )
}
#: Headers of the responses of some operations.
_OTHER_HEADERS: Mapping[str, Schema] = {
    name: {"description": text, "schema": {"type": "string"}}
    for name, text in (
        ("Location", "Address of the created object."),
        ("Idempotency-Replayed", "`true`: the request was executed before; this is its response."),
        ("ETag", "Version of the response, for `If-None-Match` and for `If-Match` of an update."),
        ("X-OAR-Size", "Size of the whole file in bytes."),
        ("X-OAR-Offset", "Position of the first byte of this part."),
        ("X-OAR-Complete", "`yes`: the file is complete."),
        ("Content-Range", "Byte range and size of the file."),
    )
}
#: Operations whose response has a Location; operations whose responses have no ETag.
_WITH_LOCATION = frozenset(
    (
        *("job_submit", "job_resubmit", "reservation_request"),
        *("rule_add", "queue_add", "property_add"),
    )
)
_WITHOUT_TAG = frozenset(
    (
        *("health_live", "health_ready", "metrics", "stream", "events"),
        *("job_output_bytes", "job_stageout"),
    )
)
_OF_OUTPUT = ("X-OAR-Size", "X-OAR-Offset", "X-OAR-Complete")
#: Further statuses of an operation, and their meanings.
_OTHER_STATUSES: Mapping[str, Mapping[str, str]] = {
    "job_output_bytes": {"206": "The bytes of `Range`.", "416": "The file has no bytes in this `Range`."}
}
#: Statuses after which the same request can be repeated.
_FOR_A_WHILE = frozenset({"429", "503"})
_METHODS = frozenset({"get", "put", "post", "delete", "patch"})
#: Media types of responses that are not JSON.
_OTHER_TYPES = {
    "stream": ("text/event-stream",),
    "gantt_chunk": ("application/octet-stream",),
    "job_output_bytes": ("text/plain", "text/event-stream"),
    "metrics": ("text/plain", "application/openmetrics-text"),
    "job_stageout": ("application/gzip",),
}
#: Lists that can also be exported as lines.
_EXPORTS = frozenset(
    (
        *("jobs_list", "event_log", "nodes_list", "resources_list", "queues_list", "reservations_list"),
        *("usersets_list", "properties_list"),
    )
)


def description(app: FastAPI, routes: Sequence[BaseRoute]) -> Schema:
    """Return the OpenAPI document of an application and its routes."""
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=_TEXT,
        tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
        routes=routes,
    )
    parts = document.setdefault("components", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        parts.get("schemas", {}).pop(unused, None)
    schemas = parts.setdefault("schemas", {})
    schemas["Problem"] = _PROBLEM
    parts["securitySchemes"] = _SECURITY
    parts["headers"] = {**_HEADERS, **_OTHER_HEADERS}
    document["security"] = [{}, *({name: []} for name in _SECURITY)]
    for path, method, operation in _operations(document):
        _add_responses(path, method, operation)
    document["paths"] = _with_references(document["paths"], schemas)
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    app.openapi_schema = document
    return document


def _with_references(schema: Any, schemas: Schema) -> Any:
    """Replace named schemas by references, and add them to the schemas of the document."""
    if isinstance(schema, list):
        return [_with_references(element, schemas) for element in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {key: _with_references(value, schemas) for key, value in schema.items() if key != NAME}
    if NAME not in schema:
        return whole
    if schemas.setdefault(schema[NAME], whole) != whole:
        raise ValueError(f"two schemas have the name {schema[NAME]}")
    return {"$ref": f"#/components/schemas/{schema[NAME]}"}


def _operations(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method in _METHODS:
                yield path, method, operation


def _add_responses(path: str, method: str, operation: Schema) -> None:
    """Add every status that an operation may return."""
    answers = operation["responses"]
    answers.pop("422", None)
    for status, response in answers.items():
        response["description"] = HTTPStatus(int(status)).phrase
        if status == str(HTTPStatus.NO_CONTENT):
            response.pop("content", None)
        elif status.startswith("2"):
            response["content"] = _content(operation["operationId"])
    for status, text in _OTHER_STATUSES.get(operation["operationId"], {}).items():
        content = {"content": _content(operation["operationId"])} if status.startswith("2") else {}
        answers[status] = {"description": text, **content}
    statuses = [*_ALWAYS, *(_OF_PATHS if "{" in path else ()), *(_OF_CHANGES if method != "get" else ())]
    headers = {parameter["name"].lower() for parameter in operation.get("parameters", ())}
    statuses += [status for name, status in _OF_HEADERS.items() if name in headers]
    for status in sorted({*statuses}):
        answers.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": _problem()})
    if method == "get" and operation["operationId"] not in ("stream", "metrics"):
        answers.setdefault("304", {"description": "Not modified: the client has the current version."})
    for status, response in answers.items():
        names = [*_rate_limit_headers(path, status), *_other_headers(method, operation["operationId"], status, headers)]
        response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _rate_limit_headers(path: str, status: str) -> list[str]:
    """Return the rate limit headers of a response."""
    names = [name for name in _HEADERS if name != "Retry-After"] if path.startswith("/v1/") else []
    return names + (["Retry-After"] if status in _FOR_A_WHILE else [])


def _other_headers(method: str, operation_id: str, status: str, request_headers: Collection[str]) -> list[str]:
    """Return the other headers of a response; ``request_headers``: those that the request may have."""
    if operation_id == "job_output_bytes":
        return {"200": [*_OF_OUTPUT], "206": [*_OF_OUTPUT, "Content-Range"], "416": ["Content-Range"]}.get(status, [])
    if status == str(HTTPStatus.CREATED) and operation_id in _WITH_LOCATION:
        return ["Location", *(["Idempotency-Replayed"] if "idempotency-key" in request_headers else [])]
    has_tag = method == "get" and status in ("200", "304") and operation_id not in _WITHOUT_TAG
    return ["ETag"] if has_tag or status == str(HTTPStatus.PRECONDITION_FAILED) else []


def _content(operation_id: str) -> Schema:
    """Return the content of a successful response."""
    if operation_id in _OTHER_TYPES:
        return {kind: {"schema": _text_or_bytes(kind)} for kind in _OTHER_TYPES[operation_id]}
    whole: Schema = {"application/json": {"schema": ANSWERS[operation_id]}}
    return whole | {LINES: {"schema": {"type": "string"}}} if operation_id in _EXPORTS else whole


def _text_or_bytes(kind: str) -> Schema:
    """Return the schema of a media type; generated clients fail at a text that is declared as bytes."""
    is_text = kind.startswith("text/") or kind == "application/openmetrics-text"
    return {"type": "string"} if is_text else {"type": "string", "format": "binary"}


def _problem() -> Schema:
    return {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


_STYLE = (
    "body{font:1rem/1.5 sans-serif;max-width:60rem;margin:auto;padding:1rem}"
    "h3{margin-bottom:0}code{font-family:monospace}td,th{text-align:left;vertical-align:top;padding-right:1rem}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}a{color:#9cf}}"
)
_SUM = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_SUM}'; base-uri 'none'; frame-ancestors 'none'"
_SHOWN_METHODS = ("get", "post", "put", "patch", "delete")


@router.get("/docs")
def reference(request: Request) -> Answer:
    """Return every operation with its parameters and statuses."""
    page = "".join(_docs_page(request.app.openapi()))
    return Response(page, headers={"Content-Security-Policy": _POLICY}, media_type="text/html; charset=utf-8")


@router.get("/openapi-legacy.json")
def older_addresses() -> Answer:
    """Return the addresses of older clients, without models."""
    paths: dict[str, dict[str, Any]] = {}
    for method, segments, handler in ((route.method, route.words, route.operation) for route in ROUTES):
        names = [f"{{word{index}}}" if segment.startswith("<") else segment for index, segment in enumerate(segments)]
        parameters = [
            {"name": f"word{index}", "in": "path", "required": True, "schema": {"type": "string"}}
            for index, segment in enumerate(segments)
            if segment.startswith("<")
        ]
        operation = {
            "summary": _summary(handler),
            "parameters": parameters,
            "responses": {"default": {"description": "An answer."}},
        }
        paths.setdefault("/" + "/".join(names), {}).setdefault(method.lower(), operation)
    info = {"title": "OAR, addresses of older clients", "version": VERSION}
    return answer({"openapi": "3.1.0", "info": info, "paths": paths})


def _summary(handler: Operation) -> str:
    """Return the first line of what a handler says of itself, whatever was given to it beforehand."""
    while isinstance(handler, partial):
        handler = handler.func
    return (handler.__doc__ or "").strip().partition("\n")[0]


def _docs_page(document: Mapping[str, Any]) -> Iterator[str]:
    yield '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>OAR: REST API</title>'
    yield f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
    yield f"<h1>OAR {escape(document['info']['version'])}: REST API</h1>"
    yield '<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>'
    by_tag: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method in _SHOWN_METHODS:
            if method in operations:
                by_tag.setdefault(operations[method]["tags"][0], []).append((method, path, operations[method]))
    yield "<nav><ul>"
    yield from (f'<li><a href="#{escape(tag)}">{escape(tag)}</a></li>' for tag in sorted(by_tag))
    yield "</ul></nav><main>"
    for tag in sorted(by_tag):
        yield f'<h2 id="{escape(tag)}">{escape(tag)}</h2>'
        for method, path, operation in by_tag[tag]:
            yield from _operation(method, path, operation)
    yield "</main></body></html>"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    name = escape(operation["operationId"])
    yield f'<section id="{name}"><h3><code>{method.upper()} {escape(path)}</code></h3>'
    yield f"<p><strong>{escape(operation['summary'])}.</strong> {escape(operation.get('description', ''))}</p>"
    rows = [*_parameter_rows(operation.get("parameters", ())), *_body_rows(operation)]
    if rows:
        yield f"<table><caption>Parameters and fields</caption>{''.join(rows)}</table>"
    yield f"<p>Statuses: {', '.join(map(escape, operation['responses']))}</p></section>"


def _parameter_rows(parameters: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for parameter in parameters:
        text = parameter.get("description") or parameter.get("schema", {}).get("description") or ""
        yield _row(parameter["name"], parameter["in"], text)


def _body_rows(operation: Mapping[str, Any]) -> Iterator[str]:
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        model = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
        yield _row("body", kind, model)


def _row(name: str, where: str, text: str) -> str:
    return f'<tr><th scope="row"><code>{escape(name)}</code></th><td>{escape(where)}</td><td>{escape(text)}</td></tr>'
