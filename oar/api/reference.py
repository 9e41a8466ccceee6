"""The OpenAPI document as a page, and the older addresses as a document: for people, without any script."""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

from fastapi import APIRouter, Request, Response

from oar.api.legacy.routes import ADDRESSES, Handler
from oar.api.responses import Answer, answer
from oar.api.routing import ApiRoute
from oar.lib.facts.version import VERSION

router = APIRouter(include_in_schema=False, route_class=ApiRoute)

_STYLE = (
    "body{font:1rem/1.5 sans-serif;max-width:60rem;margin:auto;padding:1rem}"
    "h3{margin-bottom:0}code{font-family:monospace}td,th{text-align:left;vertical-align:top;padding-right:1rem}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}a{color:#9cf}}"
)
_SUM = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_SUM}'; base-uri 'none'; frame-ancestors 'none'"
_METHODS = ("get", "post", "put", "patch", "delete")


@router.get("/docs")
def reference(request: Request) -> Answer:
    """Return every operation with its parameters and statuses."""
    page = "".join(_page(request.app.openapi()))
    return Response(page, headers={"Content-Security-Policy": _POLICY}, media_type="text/html; charset=utf-8")


@router.get("/openapi-legacy.json")
def older_addresses() -> Answer:
    """Return the addresses of older clients, without models."""
    paths: dict[str, dict[str, Any]] = {}
    for method, words, handler in ADDRESSES:
        names = [f"{{word{place}}}" if word.startswith("<") else word for place, word in enumerate(words)]
        parameters = [
            {"name": f"word{place}", "in": "path", "required": True, "schema": {"type": "string"}}
            for place, word in enumerate(words)
            if word.startswith("<")
        ]
        operation = {
            "summary": _summary(handler),
            "parameters": parameters,
            "responses": {"default": {"description": "An answer."}},
        }
        paths.setdefault("/" + "/".join(names), {}).setdefault(method.lower(), operation)
    info = {"title": "OAR, addresses of older clients", "version": VERSION}
    return answer({"openapi": "3.1.0", "info": info, "paths": paths})


def _summary(handler: Handler) -> str:
    """Return the first line of what a handler says of itself, whatever was given to it beforehand."""
    while isinstance(handler, partial):
        handler = handler.func
    return (handler.__doc__ or "").strip().partition("\n")[0]


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    yield '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>OAR: REST API</title>'
    yield f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
    yield f"<h1>OAR {escape(document['info']['version'])}: REST API</h1>"
    yield '<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>'
    by_tag: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method in _METHODS:
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
    rows = [*_parameters(operation.get("parameters", ())), *_fields(operation)]
    if rows:
        yield f"<table><caption>Parameters and fields</caption>{''.join(rows)}</table>"
    yield f"<p>Statuses: {', '.join(map(escape, operation['responses']))}</p></section>"


def _parameters(parameters: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in parameters:
        told = each.get("description") or each.get("schema", {}).get("description") or ""
        yield _row(each["name"], each["in"], told)


def _fields(operation: Mapping[str, Any]) -> Iterator[str]:
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        model = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
        yield _row("body", kind, model)


def _row(name: str, where: str, told: str) -> str:
    return f'<tr><th scope="row"><code>{escape(name)}</code></th><td>{escape(where)}</td><td>{escape(told)}</td></tr>'
