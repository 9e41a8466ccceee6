"""What an error becomes: a status, a word for programs, one line for people.  See docs/api.rst, "Errors"."""

import inspect
import logging
import re
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any, get_type_hints

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from oar.api.answers.faults import sentence_of
from oar.api.errors import WORDS, TooOften, field_of, problem_record, record_of, status_of
from oar.api.parameters import query_parameters
from oar.api.preconditions import OtherVersion, tag_of
from oar.api.responses import Answer, answer
from oar.api.routing.json_shape import UnfitBody
from oar.api.workers.tasks import Outcome
from oar.lib.facts.did_you_mean import nearest
from oar.lib.facts.errors import OarError

_log = logging.getLogger(__name__)

#: What is said of a whole body that is none, or is no record.
_SHAPELESS = {
    "missing": "there is no body: this request needs one",
    **dict.fromkeys(("model_attributes_type", "model_type"), "the body must be a JSON object: {...}"),
}
_SHAPE_HINT = "docs/api.rst and /openapi.json show what a request looks like"
#: Way out of what is told by a status alone.
_WAYS_OUT = {HTTPStatus.NOT_FOUND: "GET /v1 names the addresses that can be read, /docs describes all"}
#: Seconds after which a client may ask again.
RETRY_AFTER = 2


def problem(request: Request, status: int, word: str, message: str, **more: Any) -> Answer:
    """Return the answer that tells what is wrong; ``more``: keys such as ``field`` and ``hint``."""
    return told(request, status, problem_record(status, word, message, **more))


def told(request: Request, status: int, record: Mapping[str, Any]) -> Answer:
    """Return the answer that the record of a problem is."""
    response = answer({**record, "request_id": request.state.request_id}, status=status)
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"  # Basic lets browsers ask in a window of their own
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        response.headers["Retry-After"] = str(RETRY_AFTER)
    return response


def answer_of(request: Request, outcome: Outcome) -> Answer:
    """Return the answer that the outcome of a task is."""
    if outcome.status < HTTPStatus.BAD_REQUEST:
        return answer(outcome.record, status=outcome.status, headers=outcome.headers)
    if not outcome.record:
        return _our_fault(request)
    response = told(request, outcome.status, outcome.record)
    response.headers.update(outcome.headers)
    return response


def install(app: FastAPI) -> None:
    """Let every error of an application become a problem."""
    app.add_exception_handler(OarError, _of_ours)
    app.add_exception_handler(RequestValidationError, _of_a_field)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(ClientDisconnect, _of_nobody)
    app.add_exception_handler(Exception, _unexpected)


def _of_ours(request: Request, error: Exception) -> Answer:
    assert isinstance(error, OarError)
    status = status_of(error)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return _unexpected(request, error)
    response = told(request, status, record_of(error, status))
    if isinstance(error, OtherVersion):
        response.headers["ETag"] = tag_of(error)
    if isinstance(error, TooOften):
        response.headers["Retry-After"] = str(error.retry_after)
        response.headers.update(error.allowance.headers if error.allowance else {})
    return response


def _of_a_field(request: Request, error: Exception) -> Answer:
    """Tell the first field that is wrong, without FastAPI's own words for its place."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        text = f"the body is not JSON from character {first['loc'][-1]} on"
        return problem(request, HTTPStatus.BAD_REQUEST, "bad-request", text)
    field = field_of(first["loc"][1:])
    if first["type"] == "extra_forbidden":
        near = nearest(field, _fields_of(request))
        more = {"hint": f"did you mean {near!r}?"} if near else {}
        return problem(request, HTTPStatus.BAD_REQUEST, "bad-request", f"there is no {field!r}", field=field, **more)
    if not field and "json" not in request.headers.get("content-type", ""):
        text = "the body must be JSON"
        return problem(request, HTTPStatus.BAD_REQUEST, "bad-request", text, hint="send Content-Type: application/json")
    if first["loc"] == ("body",) and (text := _SHAPELESS.get(first["type"], "")):
        return problem(request, HTTPStatus.BAD_REQUEST, "bad-request", text, hint=_SHAPE_HINT)
    return problem(
        request, HTTPStatus.BAD_REQUEST, "bad-request", f"{field or 'body'}: {sentence_of(first)}", field=field
    )


def _fields_of(request: Request) -> Collection[str]:
    """Return the fields that the route of a request knows, in its body and in its query."""
    route = request.scope["route"]
    kinds = get_type_hints(route.endpoint).values()
    models = [kind for kind in kinds if inspect.isclass(kind) and issubclass(kind, BaseModel)]
    fields = {field.alias or name for model in models for name, field in model.model_fields.items()}
    return sorted(fields | query_parameters(route))


def _of_http(request: Request, error: Exception) -> Answer:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    word = WORDS.get(status) or re.sub(r"[^a-z]+", "-", status.phrase.lower())
    if isinstance(error, UnfitBody):
        response = problem(request, status, word, error.detail, hint=error.hint)
    else:
        allowed = (error.headers or {}).get("Allow", "")
        hint = f"it takes {allowed}" if allowed else _WAYS_OUT.get(status, "")
        text = f"{request.method} {request.url.path}: {status.phrase.lower()}"
        response = problem(request, status, word, text, hint=hint)
    response.headers.update(error.headers or {})
    return response


def _of_nobody(request: Request, error: Exception) -> Answer:
    """Answer a client that has gone in the middle of its request; it is no fault of ours."""
    assert isinstance(error, ClientDisconnect)
    return problem(request, HTTPStatus.BAD_REQUEST, "bad-request", "the request did not come to its end")


def _unexpected(request: Request, error: Exception) -> Answer:
    """Tell nothing of what happened here; the log has the trace under the same id."""
    _log.error("request %s: %s %s", request.state.request_id, request.method, request.url.path, exc_info=error)
    return _our_fault(request)


def _our_fault(request: Request) -> Answer:
    text = f"something went wrong here; tell your administrator: request {request.state.request_id}"
    return problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, "bug", text)
