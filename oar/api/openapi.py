"""The OpenAPI document: what FastAPI knows of the routes, and what is true of all of them.

``docs/openapi.json`` is this document; a test compares them, so that a change of the interface is seen.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from oar.api.answers.examples import EXAMPLES
from oar.api.openapi_operations import ANSWERS
from oar.api.openapi_schemas import NAME
from oar.api.responses import LINES

Schema = dict[str, Any]

#: What holds for all operations.
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
#: What may be wrong with every request, and with those that change something, name something, or have a body.
_ALWAYS = (400, 401, 403, 405, 408, 413, 414, 429, 431, 500, 503)
_OF_CHANGES = (404, 409)
_OF_PATHS = (404,)
#: Another version than the one that was seen.
_OF_HEADERS = {"if-match": 412}
#: Told with answers to clients whose requests are counted.
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
#: Told with the answers to some operations.
_TOLD: Mapping[str, Schema] = {
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
#: Operations whose answer names the address of what they have made; those whose answers have no tag.
_WITH_PLACE = frozenset(
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
#: Statuses that an operation has beside those of all, and what they mean.
_OTHER_STATUSES: Mapping[str, Mapping[str, str]] = {
    "job_output_bytes": {"206": "The bytes of `Range`.", "416": "The file has no bytes in this `Range`."}
}
#: Statuses after which the same request may be sent again.
_FOR_A_WHILE = frozenset({"429", "503"})
_METHODS = frozenset({"get", "put", "post", "delete", "patch"})
#: Answers that are no JSON, and what they are instead.
_OTHER_TYPES = {
    "stream": ("text/event-stream",),
    "gantt_chunk": ("application/octet-stream",),
    "job_output_bytes": ("text/plain", "text/event-stream"),
    "metrics": ("text/plain", "application/openmetrics-text"),
    "job_stageout": ("application/gzip",),
}
#: Lists that are answered as lines, too, to who accepts them.
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
    known = parts.setdefault("schemas", {})
    known["Problem"] = _PROBLEM
    parts["securitySchemes"] = _SECURITY
    parts["headers"] = {**_HEADERS, **_TOLD}
    document["security"] = [{}, *({name: []} for name in _SECURITY)]
    for path, method, operation in _operations(document):
        _complete(path, method, operation)
    document["paths"] = _referring(document["paths"], known)
    for name, example in EXAMPLES.items():
        known[name]["examples"] = [example]
    app.openapi_schema = document
    return document


def _referring(schema: Any, known: Schema) -> Any:
    """Return a schema that refers to those with a name; these stand among the known ones."""
    if isinstance(schema, list):
        return [_referring(each, known) for each in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {key: _referring(value, known) for key, value in schema.items() if key != NAME}
    if NAME not in schema:
        return whole
    if known.setdefault(schema[NAME], whole) != whole:
        raise ValueError(f"two schemas have the name {schema[NAME]}")
    return {"$ref": f"#/components/schemas/{schema[NAME]}"}


def _operations(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method in _METHODS:
                yield path, method, operation


def _complete(path: str, method: str, operation: Schema) -> None:
    """Tell every status that an operation may answer with."""
    answers = operation["responses"]
    answers.pop("422", None)
    for status, found in answers.items():
        found["description"] = HTTPStatus(int(status)).phrase
        if status == str(HTTPStatus.NO_CONTENT):
            found.pop("content", None)
        elif status.startswith("2"):
            found["content"] = _content(operation["operationId"])
    for status, text in _OTHER_STATUSES.get(operation["operationId"], {}).items():
        content = {"content": _content(operation["operationId"])} if status.startswith("2") else {}
        answers[status] = {"description": text, **content}
    statuses = [*_ALWAYS, *(_OF_PATHS if "{" in path else ()), *(_OF_CHANGES if method != "get" else ())]
    headers = {each["name"].lower() for each in operation.get("parameters", ())}
    statuses += [status for name, status in _OF_HEADERS.items() if name in headers]
    for status in sorted({*statuses}):
        answers.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": _problem()})
    if method == "get" and operation["operationId"] not in ("stream", "metrics"):
        answers.setdefault("304", {"description": "Not modified: the client has the current version."})
    for status, found in answers.items():
        names = [*_limits(path, status), *_told_beside(method, operation["operationId"], status, headers)]
        found["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _limits(path: str, status: str) -> list[str]:
    """Return the headers that tell a client how often it may ask, of the answers that have them."""
    told = [name for name in _HEADERS if name != "Retry-After"] if path.startswith("/v1/") else []
    return told + (["Retry-After"] if status in _FOR_A_WHILE else [])


def _told_beside(method: str, operation_id: str, status: str, asked: Collection[str]) -> list[str]:
    """Return the other headers of an answer; ``asked``: those that the request may have."""
    if operation_id == "job_output_bytes":
        return {"200": [*_OF_OUTPUT], "206": [*_OF_OUTPUT, "Content-Range"], "416": ["Content-Range"]}.get(status, [])
    if status == str(HTTPStatus.CREATED) and operation_id in _WITH_PLACE:
        return ["Location", *(["Idempotency-Replayed"] if "idempotency-key" in asked else [])]
    has_tag = method == "get" and status in ("200", "304") and operation_id not in _WITHOUT_TAG
    return ["ETag"] if has_tag or status == str(HTTPStatus.PRECONDITION_FAILED) else []


def _content(operation_id: str) -> Schema:
    """Return what an operation answers with when it is done."""
    if operation_id in _OTHER_TYPES:
        return {kind: {"schema": _text_or_bytes(kind)} for kind in _OTHER_TYPES[operation_id]}
    whole: Schema = {"application/json": {"schema": ANSWERS[operation_id]}}
    return whole | {LINES: {"schema": {"type": "string"}}} if operation_id in _EXPORTS else whole


def _text_or_bytes(kind: str) -> Schema:
    """Return what there is of a type; a text that is said to be bytes makes generated clients fail at it."""
    is_text = kind.startswith("text/") or kind == "application/openmetrics-text"
    return {"type": "string"} if is_text else {"type": "string", "format": "binary"}


def _problem() -> Schema:
    return {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
