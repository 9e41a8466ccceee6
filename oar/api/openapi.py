"""The OpenAPI document, made of the routes and of what holds for all of them; the page /docs that shows it.

``docs/openapi.json`` is this document; a test compares them, so that a change of the interface is seen.
"""

import base64
import hashlib
import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from http import HTTPStatus
from typing import Any, Literal

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from oar.api.legacy.routes import ROUTES
from oar.api.legacy.routes import Operation as LegacyOperation
from oar.api.responses import LINES, Answer, answer
from oar.api.routing import Operation, Router
from oar.lib.base.version import VERSION

router = Router()

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
    "DefaultProject": {"project": "physics"},
    "BudgetUpdate": {"period_end": 1861920000, "resource_hours": 100000, "on_exhaustion": "wait"},
    "MemberUpdate": {"role": "manager"},
    "NewProject": {"name": "physics", "description": "Particle physics"},
    "ProjectUpdate": {"shares": 3},
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
_OF_HEADERS = {"If-Match": 412}
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
_OF_RATE_LIMITS = [name for name in _HEADERS if name != "Retry-After"]
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
_OF_OUTPUT = ("X-OAR-Size", "X-OAR-Offset", "X-OAR-Complete")
#: Statuses after which the same request can be repeated.
_FOR_A_WHILE = frozenset({"429", "503"})
#: Where parameters are, in the order in which they are described.
_PLACES = ("path", "query", "header")


def document_of(app: Starlette) -> Schema:
    """Return the OpenAPI document of an application, made once."""
    if not hasattr(app.state, "document"):
        app.state.document = document(app.state.routes.all)
    result: Schema = app.state.document
    return result


def document(operations: Sequence[Operation]) -> Schema:
    """Return the OpenAPI document of operations."""
    described = [operation for operation in operations if operation.id]
    requests, components = _schemas(
        (((operation.id, part), kind) for operation in described for part, kind in _request_types(operation)),
        keeps_titles=True,
    )
    answers, answer_components = _schemas(
        ((operation.id, operation.answer) for operation in described), keeps_titles=False
    )
    paths: dict[str, Schema] = {}
    for operation in described:
        item = _described(operation, requests, components)
        item["responses"] = _responses(operation, answers[operation.id])
        paths.setdefault(operation.path, {})[operation.method.lower()] = item
    for operation in described:  # their fields are described as parameters
        for part in ("fields", "query"):
            components.pop(_name_of(requests.get((operation.id, part), {})), None)
    for name, example in EXAMPLES.items():
        components[name]["examples"] = [example]
    info = {"title": "OAR", "version": VERSION, "summary": "Jobs, nodes and reservations of a cluster."}
    return {
        "openapi": "3.1.0",
        "info": {**info, "description": _TEXT},
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "security": [{}, *({name: []} for name in _SECURITY)],
        "paths": paths,
        "components": {
            "schemas": {**answer_components, **components, "Problem": _PROBLEM},
            "securitySchemes": _SECURITY,
            "headers": {**_HEADERS, **_OTHER_HEADERS},
        },
    }


def _request_types(operation: Operation) -> Iterator[tuple[str, Any]]:
    """Yield the types of the parts of a request: single fields, a whole query, a body."""
    parameters = operation.parameters
    yield "fields", parameters.model
    if parameters.query:
        yield "query", parameters.query[1]
    if parameters.body:
        yield "body", parameters.body.model | None if parameters.body.is_optional else parameters.body.model


def _schemas(types: Iterable[tuple[Any, Any]], *, keeps_titles: bool) -> tuple[dict[Any, Schema], Schema]:
    """Return the schemas of types by their keys, and those of the named types that they use."""
    mode: Literal["validation"] = "validation"
    inputs = [(key, mode, TypeAdapter(kind)) for key, kind in types]
    schemas, definitions = TypeAdapter.json_schemas(inputs, ref_template="#/components/schemas/{model}")
    cleaned: Schema = _cleaned(
        {"schemas": {key: schema for (key, _), schema in schemas.items()}, **definitions}, keeps_titles=keeps_titles
    )
    return cleaned["schemas"], cleaned.get("$defs", {})


def _name_of(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _cleaned(schema: Any, *, keeps_titles: bool) -> Any:
    """Return a schema without the default null and, in answers, without the titles that pydantic makes of names."""
    if isinstance(schema, list):
        return [_cleaned(element, keeps_titles=keeps_titles) for element in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _cleaned(value, keeps_titles=keeps_titles)
        for key, value in schema.items()
        if not (key == "default" and value is None) and (keeps_titles or key != "title" or not isinstance(value, str))
    }


def _described(operation: Operation, requests: Mapping[Any, Schema], components: Schema) -> Schema:
    """Return what the document says of an operation, without its responses."""
    parameters: list[Schema] = []
    for part in ("fields", "query"):
        model = components.get(_name_of(requests.get((operation.id, part), {})), {})
        for name, schema in model.get("properties", {}).items():
            place = operation.parameters.places.get(name, "query")
            parameter = {"name": name, "in": place, "required": name in model.get("required", ()), "schema": schema}
            parameters.append(parameter | {"description": schema["description"]})
    item: Schema = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": inspect.getdoc(operation.handler),
        "operationId": operation.id,
    }
    if parameters:
        item["parameters"] = sorted(parameters, key=lambda parameter: _PLACES.index(parameter["in"]))
    if body := operation.parameters.body:
        schema = requests[operation.id, "body"]
        schema = {**schema, "title": body.name.title()} if body.is_optional else schema
        more: Schema = {} if body.is_optional else {"required": True}
        item["requestBody"] = {"content": {"application/json": {"schema": schema}}, **more}
    return item


def _responses(operation: Operation, answer_schema: Schema) -> Schema:
    """Return every status that an operation may return, with its content and its headers."""
    content = _content(operation, answer_schema)
    responses: Schema = {
        str(int(status)): {"description": HTTPStatus(status).phrase, "content": content}
        for status in operation.statuses
    }
    if operation.statuses == (HTTPStatus.NO_CONTENT,):
        del responses["204"]["content"]
    for status, text in operation.other_statuses.items():
        is_success = status < HTTPStatus.MULTIPLE_CHOICES
        responses[str(status)] = {"description": text, **({"content": content} if is_success else {})}
    request_headers = {name for name, place in operation.parameters.places.items() if place == "header"}
    statuses = {*_ALWAYS, *(_OF_PATHS if "{" in operation.path else ())}
    statuses |= {*(_OF_CHANGES if operation.method != "GET" else ())}
    statuses |= {status for name, status in _OF_HEADERS.items() if name in request_headers}
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for status in sorted(statuses):
        responses.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": problem})
    if operation.method == "GET" and operation.id not in ("stream", "metrics"):
        responses.setdefault("304", {"description": "Not modified: the client has the current version."})
    for status_text, response in responses.items():
        names = _OF_RATE_LIMITS if operation.path.startswith("/v1/") else []
        names = [*names, *(["Retry-After"] if status_text in _FOR_A_WHILE else [])]
        names += _other_headers(operation, status_text, request_headers)
        response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    return responses


def _other_headers(operation: Operation, status: str, request_headers: Collection[str]) -> list[str]:
    """Return the other headers of a response; ``request_headers``: those that the request may have."""
    if operation.id == "job_output_bytes":
        return {"200": [*_OF_OUTPUT], "206": [*_OF_OUTPUT, "Content-Range"], "416": ["Content-Range"]}.get(status, [])
    if status == "201" and operation.has_location:
        return ["Location", *(["Idempotency-Replayed"] if "Idempotency-Key" in request_headers else [])]
    has_tag = operation.method == "GET" and status in ("200", "304") and operation.has_tag
    return ["ETag"] if has_tag or status == "412" else []


def _content(operation: Operation, answer_schema: Schema) -> Schema:
    if operation.media_types:
        return {kind: {"schema": _text_or_bytes(kind)} for kind in operation.media_types}
    lines: Schema = {LINES: {"schema": {"type": "string"}}} if operation.exports else {}
    return {"application/json": {"schema": answer_schema}, **lines}


def _text_or_bytes(kind: str) -> Schema:
    """Return the schema of a media type; generated clients fail at a text that is declared as bytes."""
    is_text = kind.startswith("text/") or kind == "application/openmetrics-text"
    return {"type": "string"} if is_text else {"type": "string", "format": "binary"}


_STYLE = (
    "body{font:1rem/1.5 sans-serif;max-width:60rem;margin:auto;padding:1rem}"
    "h3{margin-bottom:0}code{font-family:monospace}td,th{text-align:left;vertical-align:top;padding-right:1rem}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}a{color:#9cf}}"
)
_SUM = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_SUM}'; base-uri 'none'; frame-ancestors 'none'"
_SHOWN_METHODS = ("get", "post", "put", "patch", "delete")


@router.get("/openapi.json")
def described(request: Request) -> Answer:
    """Return the OpenAPI document."""
    return answer(document_of(request.app))


@router.get("/docs")
def reference(request: Request) -> Answer:
    """Return every operation with its parameters and statuses."""
    page = "".join(_docs_page(document_of(request.app)))
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


def _summary(handler: LegacyOperation) -> str:
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
