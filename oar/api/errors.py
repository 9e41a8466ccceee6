"""The status of each error, and its word for programs.  See docs/api.rst, "Errors"."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

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
from oar.lib.jobs.accounting import AccountingIsRunning, OtherWindowWidth
from oar.lib.jobs.queues import HasJobs, NoQueue
from oar.lib.reservations.alteration import ChangeDenied
from oar.lib.reservations.asking import TooManyReservations
from oar.lib.reservations.rights import Denied
from oar.lib.reservations.userset_changes import NoUserset, UsersetInUse
from oar.lib.resources.machines import NoSuchMachine
from oar.lib.resources.properties import ExistsWithOtherType, InUse, NoProperty
from oar.lib.resources.reserved import WouldBreak
from oar.lib.submission.once import KeyReused
from oar.lib.submission.rule_changes import NoSuchRule

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
_NOT_FOUND: tuple[type[OarError], ...] = (NoQueue, NoUserset, NoSuchMachine, NoProperty, NoSuchRule)
_IN_THE_WAY: tuple[type[OarError], ...] = (
    *(HasJobs, UsersetInUse, ExistsWithOtherType, InUse, WouldBreak),
    *(AccountingIsRunning, OtherWindowWidth, ChangeDenied, TooManyReservations),
)
STATUSES.update(dict.fromkeys(_NOT_FOUND, HTTPStatus.NOT_FOUND))
STATUSES.update(dict.fromkeys(_IN_THE_WAY, HTTPStatus.CONFLICT))
STATUSES[Denied] = HTTPStatus.FORBIDDEN
#: What pydantic writes into the place of a fault besides names and numbers.
_TRIED = re.compile(r".*[\[(].*|(?:constrained-)?(?:str|int|float|bool)")
#: Words of statuses that come before any error of ours.
WORDS = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too-large",
    HTTPStatus.REQUEST_TIMEOUT: "too-slow",
    HTTPStatus.SERVICE_UNAVAILABLE: "too-many",
}


class Unidentified(UserError):
    """Only somebody who is known may do this."""


STATUSES[Unidentified] = HTTPStatus.UNAUTHORIZED
STATUSES[KeyReused] = HTTPStatus.CONFLICT


class TooMany(Unavailable):
    """There are more clients than the service bears; asking again may help."""


class Allowance(NamedTuple):
    """What a client may still ask for."""

    burst: int  #: requests that may come at once
    left: int
    seconds: int  #: after which all of them may come again

    @property
    def headers(self) -> dict[str, str]:
        """What is told with each answer."""
        numbers = {"Limit": self.burst, "Remaining": self.left, "Reset": self.seconds}
        return {f"RateLimit-{name}": str(number) for name, number in numbers.items()}


class TooOften(Unavailable):
    """A client asks more often than it may."""

    def __init__(self, message: str, seconds: float, allowance: Allowance | None = None) -> None:
        super().__init__(message)
        self.retry_after = max(1, round(seconds + 0.5))
        self.allowance = allowance


STATUSES[TooOften] = HTTPStatus.TOO_MANY_REQUESTS


def status_of(error: OarError) -> HTTPStatus:
    """Return the status of an error."""
    found = (STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    return next(found, HTTPStatus.INTERNAL_SERVER_ERROR)


def field_of(path: Sequence[str | int]) -> str:
    """Return the name of a field by where pydantic finds a fault, without the types that it tried there.

    >>> field_of(("resources", "function-after[storable(), constrained-str]")), field_of(("env", "1a", "[key]"))
    ('resources', 'env.1a')
    """
    return ".".join(str(part) for part in path if not _TRIED.fullmatch(str(part)))


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


def early_problem(path: str, status: int, word: str, message: str, **more: Any) -> dict[str, Any]:
    """Return the record of what is refused before anybody has looked at the request.

    On older addresses it has the keys, too, that their clients look for.
    """
    record = problem_record(status, word, message, **more)
    is_ours = path.partition("?")[0].split("/")[1:2] == ["v1"]
    return record if is_ours else {**record, "code": record["status"], "message": record["detail"]}


def record_of(error: OarError, status: int) -> dict[str, Any]:
    """Return the record that tells an error; a second line of it, which names the way out, is the ``hint``."""
    message, *way_out = str(error).splitlines() or [""]
    hint = " ".join(line.strip().removeprefix("# ") for line in way_out)
    field = error.field if isinstance(error, BadRequest) else ""
    return problem_record(status, word_of(type(error)), message, field=field, hint=hint)
