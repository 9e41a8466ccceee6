"""What an error becomes: a status, a word for programs, one line for people.  See docs/api.rst, "Errors"."""

import logging
import re
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from oar.api.answers import Answer, answer
from oar.lib.facts.errors import (
    BadCondition,
    BadRequest,
    NoSuchJob,
    NoSuchQueue,
    NoSuchResource,
    NotAllowed,
    OarError,
    Refused,
    Unavailable,
    UserError,
    WrongState,
)

_log = logging.getLogger(__name__)

#: From an error, or its nearest ancestor here, to the status.
STATUSES: dict[type[OarError], HTTPStatus] = {
    UserError: HTTPStatus.BAD_REQUEST,
    BadRequest: HTTPStatus.BAD_REQUEST,
    BadCondition: HTTPStatus.BAD_REQUEST,
    NotAllowed: HTTPStatus.FORBIDDEN,
    Refused: HTTPStatus.FORBIDDEN,
    NoSuchJob: HTTPStatus.NOT_FOUND,
    NoSuchQueue: HTTPStatus.NOT_FOUND,
    NoSuchResource: HTTPStatus.NOT_FOUND,
    WrongState: HTTPStatus.CONFLICT,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}
#: Seconds after which a client may ask again.
RETRY_AFTER = 2


class Unidentified(UserError):
    """Only somebody who is known may do this."""


STATUSES[Unidentified] = HTTPStatus.UNAUTHORIZED


class TooMany(Unavailable):
    """There are more clients than the service bears; asking again may help."""


def status_of(error: OarError) -> HTTPStatus:
    """Return the status of an error."""
    found = (STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    return next(found, HTTPStatus.INTERNAL_SERVER_ERROR)


def word_of(kind: type[BaseException]) -> str:
    """Return the class of an error in words, as programs compare it.

    >>> word_of(NoSuchJob)
    'no-such-job'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


def problem(request: Request, status: int, word: str, message: str, **more: Any) -> Answer:
    """Return the answer that tells what is wrong; ``more``: keys such as ``field`` and ``hint``."""
    body = {
        "status": int(status),
        "type": word,
        "title": HTTPStatus(status).phrase,
        "detail": message,
        "request_id": request.state.request_id,
        **{key: value for key, value in more.items() if value},
    }
    response = answer(body, status=status)
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        response.headers["Retry-After"] = str(RETRY_AFTER)
    return response


def install(app: FastAPI) -> None:
    """Let every error of an application become a problem."""
    app.add_exception_handler(OarError, _of_ours)
    app.add_exception_handler(RequestValidationError, _of_a_field)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(Exception, _unexpected)


def _of_ours(request: Request, error: Exception) -> Answer:
    assert isinstance(error, OarError)
    status = status_of(error)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return _unexpected(request, error)
    return problem(request, status, word_of(type(error)), str(error))


def _of_a_field(request: Request, error: Exception) -> Answer:
    """Tell the first field that is wrong, without FastAPI's own words for its place."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    return problem(request, HTTPStatus.BAD_REQUEST, "bad-request", f"{field or 'body'}: {first['msg']}", field=field)


def _of_http(request: Request, error: Exception) -> Answer:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    word = re.sub(r"[^a-z]+", "-", status.phrase.lower())
    response = problem(request, status, word, f"{request.method} {request.url.path}: {status.phrase.lower()}")
    response.headers.update(error.headers or {})
    return response


def _unexpected(request: Request, error: Exception) -> Answer:
    """Tell nothing of what happened here; the log has the trace under the same id."""
    _log.error("request %s: %s %s", request.state.request_id, request.method, request.url.path, exc_info=error)
    text = f"something went wrong here; tell your administrator: request {request.state.request_id}"
    return problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, "bug", text)
