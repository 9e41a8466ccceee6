"""Errors: their statuses and codes, and the responses that report them.  See docs/api.rst, "Errors"."""

import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from oar.api.parameters import PRINTABLE
from oar.api.responses import Answer, answer
from oar.lib.access.userset_changes import NoUserset, UsersetInUse
from oar.lib.accounts.project_changes import NoSuchProject
from oar.lib.base.errors import (
    BadCondition,
    BadRequest,
    DatabaseUnavailable,
    NoSuchJob,
    NoSuchQueue,
    NoSuchResource,
    NotAllowed,
    OarError,
    Refused,
    Unavailable,
    UserConnectionsUsed,
    UserError,
    WrongState,
)
from oar.lib.base.texts import nearest
from oar.lib.jobs.accounting import AccountingIsRunning, OtherWindowWidth
from oar.lib.jobs.queues import HasJobs, NoQueue
from oar.lib.nodes.machines import NoSuchMachine
from oar.lib.nodes.properties import ExistsWithOtherType, InUse, NoProperty
from oar.lib.nodes.reserved import WouldBreak
from oar.lib.reservations.errors import ChangeDenied, Denied, TooManyReservations
from oar.lib.submission.once import KeyReused
from oar.lib.submission.rule_changes import NoSuchRule

_log = logging.getLogger(__name__)


class Unidentified(UserError):
    """The request needs a known user."""


class TooMany(Unavailable):
    """There are more clients than the service can serve; a retry may succeed."""


class Allowance(NamedTuple):
    """What is left of the rate limit of a client."""

    burst: int  #: requests that may come at once
    left: int
    seconds: int  #: until the whole burst is allowed again

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each response to the client."""
        numbers = {"Limit": self.burst, "Remaining": self.left, "Reset": self.seconds}
        return {f"RateLimit-{name}": str(number) for name, number in numbers.items()}


class TooOften(Unavailable):
    """A client has exceeded a rate limit."""

    def __init__(self, message: str, seconds: float, allowance: Allowance | None = None) -> None:
        super().__init__(message)
        self.retry_after = max(1, round(seconds + 0.5))
        self.allowance = allowance


class OtherVersion(UserError):
    """The version to change, which the client names with If-Match, is not the current one."""

    def __init__(self, what: str, version: str) -> None:
        super().__init__(f"{what} was changed meanwhile: read it again\nits version is {version}")
        self.version = version

    @property
    def tag(self) -> str:
        """The ETag of the current version."""
        return f'W/"{self.version}"'


class InvalidRequest(Exception):
    """Parameters or the body of a request do not have their types."""

    def __init__(self, place: str, faults: Sequence[Mapping[str, Any]]) -> None:
        """``place``: ``query`` or ``body``; ``faults``: as pydantic reports them."""
        super().__init__(place)
        self.place = place
        self.faults = faults


class UnfitBody(HTTPException):
    """A request body is not read, because of its shape or of the limits on bodies in progress."""

    def __init__(self, status: HTTPStatus, text: str, hint: str) -> None:
        super().__init__(status, text)
        self.hint = hint


_NOT_FOUND: tuple[type[OarError], ...] = (
    *(NoSuchJob, NoSuchQueue, NoSuchResource, NoQueue, NoUserset, NoSuchMachine, NoProperty, NoSuchRule),
    NoSuchProject,
)
_CONFLICTS: tuple[type[OarError], ...] = (
    *(WrongState, HasJobs, UsersetInUse, ExistsWithOtherType, InUse, WouldBreak, KeyReused),
    *(AccountingIsRunning, OtherWindowWidth, ChangeDenied, TooManyReservations),
)
#: Status of each class of errors, and of its subclasses that are not listed.  Other modules add their own.
STATUSES: dict[type[OarError], HTTPStatus] = {
    **dict.fromkeys((UserError, BadRequest, BadCondition), HTTPStatus.BAD_REQUEST),
    **dict.fromkeys((NotAllowed, Refused, Denied), HTTPStatus.FORBIDDEN),
    **dict.fromkeys(_NOT_FOUND, HTTPStatus.NOT_FOUND),
    **dict.fromkeys(_CONFLICTS, HTTPStatus.CONFLICT),
    Unidentified: HTTPStatus.UNAUTHORIZED,
    OtherVersion: HTTPStatus.PRECONDITION_FAILED,
    TooOften: HTTPStatus.TOO_MANY_REQUESTS,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}
#: Codes of statuses that are returned before a request is handled.
CODES = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too-large",
    HTTPStatus.REQUEST_TIMEOUT: "too-slow",
    HTTPStatus.SERVICE_UNAVAILABLE: "too-many",
}
#: Seconds after which a client may repeat a request.
RETRY_AFTER = 2


def status_of(error: OarError) -> HTTPStatus:
    """Return the status of an error."""
    statuses = (STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    return next(statuses, HTTPStatus.INTERNAL_SERVER_ERROR)


def error_code(kind: type[BaseException]) -> str:
    """Return the code of a class of errors, which programs compare.

    >>> error_code(NoSuchJob)
    'no-such-job'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


# -- records ----------------------------------------------------------------------------------------------------------


def problem_record(status: int, code: str, message: str, **more: Any) -> dict[str, Any]:
    """Return the record of a problem; ``more``: keys such as ``field`` and ``hint``, left out if empty."""
    return {
        "status": int(status),
        "type": code,
        "title": HTTPStatus(status).phrase,
        "detail": message,
        **{key: value for key, value in more.items() if value},
    }


def early_problem(path: str, status: int, code: str, message: str, **more: Any) -> dict[str, Any]:
    """Return the record of a request that is refused before it is handled.

    On older addresses it also has the keys that their clients read.
    """
    record = problem_record(status, code, message, **more)
    is_current = path.partition("?")[0].split("/")[1:2] == ["v1"]
    return record if is_current else {**record, "code": record["status"], "message": record["detail"]}


def public_text(error: OarError) -> str:
    """Return the message of an error for clients: that of libpq contains the address of the database."""
    if isinstance(error, DatabaseUnavailable) and not isinstance(error, UserConnectionsUsed):
        return "the database does not answer. Try again later."
    return str(error)


def error_record(error: OarError, status: int) -> dict[str, Any]:
    """Return the record of an error; the lines after the first one of its message are the ``hint``."""
    message, *hints = public_text(error).splitlines() or [""]
    hint = " ".join(line.strip().removeprefix("# ") for line in hints)
    field = error.field if isinstance(error, BadRequest) else ""
    return problem_record(status, error_code(type(error)), message, field=field, hint=hint)


# -- values that do not have the form of their field ------------------------------------------------------------------

#: What pydantic writes into the location of a fault besides names and numbers.
_TYPE_IN_LOCATION = re.compile(r".*[\[(].*|(?:constrained-)?(?:str|int|float|bool)")
_NOT_ACCEPTED = "the value is not accepted; /openapi.json describes the field"
_NOT_UNICODE = "a text must not hold half a character (a lone surrogate)"
#: Sentences by pydantic's type of a fault; names in braces are in its context.
_SENTENCES = {
    "missing": "a value is required",
    "extra_forbidden": "there is no such field",
    "json_invalid": "must be JSON",
    "value_error": "{error}",
    **dict.fromkeys(("string_type", "string_sub_type"), "must be a text"),
    "string_unicode": _NOT_UNICODE,
    "string_too_short": "the text must have at least {min_length} characters",
    "string_too_long": "the text must have at most {max_length} characters",
    "string_pattern_mismatch": "the text must match the regular expression {pattern}",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    "int_parsing_size": "the number has too many digits",
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    "finite_number": "must be a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "dict_type": "must be an object: {{...}}",
    **dict.fromkeys(("model_type", "model_attributes_type"), "must be an object: {{...}}"),
    "too_short": "must have at least {min_length} elements",
    "too_long": "must have at most {max_length} elements",
    **dict.fromkeys(("literal_error", "enum"), "must be {expected}"),
}


def field_of(location: Sequence[str | int]) -> str:
    """Return the name of a field from the location of a fault, without the types that pydantic tried there.

    >>> field_of(("resources", "function-after[storable(), constrained-str]")), field_of(("env", "1a", "[key]"))
    ('resources', 'env.1a')
    """
    return ".".join(str(part) for part in location if not _TYPE_IN_LOCATION.fullmatch(str(part)))


def describe_fault(fault: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, from a fault that pydantic reports."""
    context = fault.get("ctx", {})
    if context.get("pattern") == PRINTABLE:
        return "the text must not hold control characters"
    return _SENTENCES.get(fault["type"], _NOT_ACCEPTED).format(**context)


def bad_request_of(faults: Sequence[Mapping[str, Any]]) -> BadRequest:
    """Return the error that reports the first of pydantic's faults."""
    field = field_of(faults[0]["loc"])
    return BadRequest(f"{field or 'body'}: {describe_fault(faults[0])}").of(field)


# -- responses --------------------------------------------------------------------------------------------------------


def problem(request: Request, status: int, code: str, message: str, **more: Any) -> Answer:
    """Return the response for a problem; ``more``: keys such as ``field`` and ``hint``."""
    return problem_response(request, status, problem_record(status, code, message, **more))


def problem_response(request: Request, status: int, record: Mapping[str, Any]) -> Answer:
    """Return the response with the record of a problem."""
    response = answer({**record, "request_id": request.state.request_id}, status=status)
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"  # for Basic, browsers would open their own password dialog
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        response.headers["Retry-After"] = str(RETRY_AFTER)
    return response


def internal_error(request: Request) -> Answer:
    """Return the response for a fault of the service, which reveals nothing; the log has the trace."""
    text = f"something went wrong here; tell your administrator: request {request.state.request_id}"
    return problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, "bug", text)


def install(app: Starlette) -> None:
    """Let an application report every error as a problem."""
    app.add_exception_handler(OarError, _report_error)
    app.add_exception_handler(InvalidRequest, _report_fault)
    app.add_exception_handler(HTTPException, _report_status)
    app.add_exception_handler(ClientDisconnect, _report_disconnect)
    app.add_exception_handler(Exception, _report_bug)


def _report_error(request: Request, error: Exception) -> Answer:
    assert isinstance(error, OarError)
    status = status_of(error)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return _report_bug(request, error)
    log_outage(error)
    response = problem_response(request, status, error_record(error, status))
    if isinstance(error, OtherVersion):
        response.headers["ETag"] = error.tag
    if isinstance(error, TooOften):
        response.headers["Retry-After"] = str(error.retry_after)
        response.headers.update(error.allowance.headers if error.allowance else {})
    return response


def log_outage(error: OarError) -> None:
    """Log the message of an unreachable database, which clients do not get."""
    if isinstance(error, DatabaseUnavailable):
        _log.warning("the database does not answer: %s", error)


def _report_fault(request: Request, error: Exception) -> Answer:
    """Report the first field that is wrong."""
    assert isinstance(error, InvalidRequest)
    first = error.faults[0]
    field = field_of(first["loc"])
    more: dict[str, str] = {}
    if first["type"] == "json_invalid":
        text = f"the body is not JSON from character {first['loc'][-1]} on"
    elif first["type"] == "extra_forbidden":
        near = nearest(field, request.scope["operation"].parameters.names)
        text, more = f"there is no {field!r}", {"field": field, "hint": f"did you mean {near!r}?" if near else ""}
    elif not field and "json" not in request.headers.get("content-type", ""):
        text, more = "the body must be JSON", {"hint": "send Content-Type: application/json"}
    elif error.place == "body" and not first["loc"] and first["type"] in _NO_OBJECT:
        hint = "docs/api.rst and /openapi.json show what a request looks like"
        text, more = _NO_OBJECT[first["type"]], {"hint": hint}
    else:
        text, more = f"{field or 'body'}: {describe_fault(first)}", {"field": field}
    return problem(request, HTTPStatus.BAD_REQUEST, "bad-request", text, **more)


#: Texts for a whole body that is missing, or is no object, by pydantic's type of the fault.
_NO_OBJECT = {
    "missing": "there is no body: this request needs one",
    **dict.fromkeys(("model_attributes_type", "model_type"), "the body must be a JSON object: {...}"),
}


def _report_status(request: Request, error: Exception) -> Answer:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    code = CODES.get(status) or re.sub(r"[^a-z]+", "-", status.phrase.lower())
    if isinstance(error, UnfitBody):
        text, hint = error.detail, error.hint
    else:
        text = f"{request.method} {request.url.path}: {status.phrase.lower()}"
        allowed = (error.headers or {}).get("Allow", "")
        hint = f"it takes {allowed}" if allowed else ""
        if status == HTTPStatus.NOT_FOUND and not hint:
            hint = "GET /v1 names the addresses that can be read, /docs describes all"
    response = problem(request, status, code, text, hint=hint)
    response.headers.update(error.headers or {})
    return response


def _report_disconnect(request: Request, _: Exception) -> Answer:
    """Report a client that has disconnected in the middle of its request: it is no fault of the service."""
    return problem(request, HTTPStatus.BAD_REQUEST, "bad-request", "the request is incomplete")


def _report_bug(request: Request, error: Exception) -> Answer:
    _log.error("request %s: %s %s", request.state.request_id, request.method, request.url.path, exc_info=error)
    return internal_error(request)
