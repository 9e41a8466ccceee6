"""The OpenAPI document: what FastAPI knows of the routes, and what is true of all of them.

``docs/openapi.json`` is this document; a test compares them, so that a change of the interface is seen.
"""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

Schema = dict[str, Any]

_PROBLEM: Schema = {
    "type": "object",
    "description": "What is wrong: one line for people, one word for programs.",
    "required": ["status", "type", "title", "detail", "request_id"],
    "properties": {
        "status": {"type": "integer"},
        "type": {"type": "string", "examples": ["no-such-job"]},
        "title": {"type": "string"},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
        "field": {"type": "string"},
        "hint": {"type": "string"},
    },
}
_SECURITY: Schema = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token: oar-token create."},
    "password": {"type": "http", "scheme": "basic"},
    "session": {"type": "apiKey", "in": "cookie", "name": "oar_session"},
}
#: What may be wrong with every request, and with those that change something, name something, or have a body.
_ALWAYS = (400, 401, 403, 405, 408, 429, 500, 503)
_OF_CHANGES = (404, 409, 413)
_OF_PATHS = (404,)
_METHODS = frozenset({"get", "put", "post", "delete", "patch"})
#: Answers that are no JSON, and what they are instead.
_OTHER_TYPES = {
    "stream": "text/event-stream",
    "gantt_chunk": "application/octet-stream",
    "metrics": "text/plain",
}


def description(app: FastAPI, routes: Sequence[BaseRoute]) -> Schema:
    """Return the OpenAPI document of an application and its routes."""
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=routes)
    parts = document.setdefault("components", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        parts.get("schemas", {}).pop(unused, None)
    parts.setdefault("schemas", {})["Problem"] = _PROBLEM
    parts["securitySchemes"] = _SECURITY
    document["security"] = [{}, *({name: []} for name in _SECURITY)]
    for path, method, operation in _operations(document):
        _complete(path, method, operation)
    app.openapi_schema = document
    return document


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
        if status == str(HTTPStatus.NO_CONTENT):
            found.pop("content", None)
        elif status.startswith("2"):
            found["content"] = _content(operation["operationId"])
    statuses = [*_ALWAYS, *(_OF_PATHS if "{" in path else ()), *(_OF_CHANGES if method != "get" else ())]
    if any(each["name"].lower() == "idempotency-key" for each in operation.get("parameters", ())):
        statuses.append(HTTPStatus.UNPROCESSABLE_ENTITY)  # the key of another request
    for status in sorted({*statuses}):
        answers.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": _problem()})
    if method == "get" and operation["operationId"] not in ("stream", "metrics"):
        answers.setdefault("304", {"description": "The client has the answer already."})


def _content(operation_id: str) -> Schema:
    if operation_id in _OTHER_TYPES:
        return {_OTHER_TYPES[operation_id]: {"schema": {"type": "string", "format": "binary"}}}
    schema: Schema = {"type": "object"}
    if operation_id.endswith("_list"):
        schema["required"] = ["items"]
        schema["properties"] = {"items": {"type": "array", "items": {"type": "object"}}}
    return {"application/json": {"schema": schema}}


def _problem() -> Schema:
    return {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
