"""The status of each error, and its word for programs.  See docs/api.rst, "Errors"."""

import re
from http import HTTPStatus
from typing import Any

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
from oar.lib.submission.once import KeyReused

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
#: Words of statuses that come before any error of ours.
WORDS = {HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too-large", HTTPStatus.REQUEST_TIMEOUT: "too-slow"}


class Unidentified(UserError):
    """Only somebody who is known may do this."""


STATUSES[Unidentified] = HTTPStatus.UNAUTHORIZED
STATUSES[KeyReused] = HTTPStatus.UNPROCESSABLE_ENTITY


class TooMany(Unavailable):
    """There are more clients than the service bears; asking again may help."""


class TooOften(Unavailable):
    """A client asks more often than it may."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.retry_after = max(1, round(seconds + 0.5))


STATUSES[TooOften] = HTTPStatus.TOO_MANY_REQUESTS


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


def problem_record(status: int, word: str, message: str, **more: Any) -> dict[str, Any]:
    """Return the record that tells what is wrong; ``more``: keys such as ``field`` and ``hint``, left out if empty."""
    return {
        "status": int(status),
        "type": word,
        "title": HTTPStatus(status).phrase,
        "detail": message,
        **{key: value for key, value in more.items() if value},
    }
