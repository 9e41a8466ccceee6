"""The interfaces of OAR 2.5 and OAR 3 on their own addresses, for clients that were written for them.

Addresses, fields and records are translated here and in the files beside; what is done is done by the same functions
as for ``/v1``.  See docs/api.rst, "Older clients".
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from oar.api import signed_tokens
from oar.api.authentication import Caller, Way, outer_path
from oar.api.concurrency import in_thread
from oar.api.errors import CODES, STATUSES, TooMany, Unidentified, error_record, problem_record, status_of
from oar.api.legacy import files as media
from oar.api.legacy import jobs as legacy_jobs
from oar.api.legacy import resources as legacy_resources
from oar.api.legacy import site as legacy_administration
from oar.api.legacy.requests import (
    PREFIXES,
    YAML,
    BadType,
    LegacyCall,
    LegacyFormat,
    Place,
    Reply,
    body_of,
    file_in,
    format_of,
    is_on,
    kind_of,
    link,
    number_of,
    parameters_of,
    place_of,
    timed,
    written,
)
from oar.api.legacy.titles import Titled
from oar.api.service import asking
from oar.lib.access import tokens
from oar.lib.base.did_you_mean import nearest
from oar.lib.base.errors import NoSuchJob, NotAllowed, OarError, Unavailable
from oar.lib.base.version import VERSION
from oar.lib.submission.once import KeyReused

STATUSES[BadType] = HTTPStatus.NOT_ACCEPTABLE
#: Version of the interface of which clients of 2.5 ask.
API_VERSION = "1.0.3"
#: Seconds that the script of the site has, and for which its answer is given again.
STRESS_SECONDS = 10.0
#: Who may have problems as answers that browsers show, as with OAR 2.5.
DEBUGGER = "oar"
#: Bytes of a body that are read of somebody who is unknown.
MOST_OF_NOBODY = 1 << 16
#: Where clients of OAR 3 ask whether their token is valid.
_TOKEN_CHECK = ("check_token",)
_COLLECTIONS = (
    *("resources", "jobs", "config", "admission_rules", "accounting", "queues"),
    *("version", "whoami", "timezone"),
)
#: First words of addresses that are answered here.
FIRST_WORDS = frozenset(
    (
        *_COLLECTIONS,
        *("stress_factor", "check_token", "get_new_token", "media", "authentication", "select_all", "colmet", "proxy"),
    )
)


class NoSuchAddress(OarError):
    """Nothing is at an address."""


class NoSuchMethod(OarError):
    """Something is at an address, but not for this method."""

    def __init__(self, methods: Sequence[str]) -> None:
        super().__init__(f"this address takes {', '.join(methods)}")
        self.methods = methods


class NotServed(OarError):
    """What older versions had, and this one has not, on purpose."""


STATUSES[NoSuchAddress] = HTTPStatus.NOT_FOUND
STATUSES[NoSuchMethod] = HTTPStatus.METHOD_NOT_ALLOWED
STATUSES[NotServed] = HTTPStatus.GONE

Handler = Callable[..., Reply | Response]
#: A word of an address that is a number, or any word.
_ID, _ANY = "<id>", "<any>"


# -- general ----------------------------------------------------------------------------------------------------------


def index(call: LegacyCall) -> Reply:
    """Return what there is; a browser at the first address of the site is sent to its pages."""
    if not call.place.prefix and format_of(call.request, call.place) is LegacyFormat.HTML:
        before = outer_path(call.request, call.who.config)
        return Reply({}, HTTPStatus.FOUND, {"Location": f"{before}/ui/" if before else "ui/"})
    links = [link("self", f"{call.prefix}/")]
    links += [link("collection", f"{call.prefix}/{name}", name) for name in _COLLECTIONS]
    return Reply(timed({**_versions(call), "api_timezone": time.tzname[0]}, links))


def version(call: LegacyCall) -> Reply:
    """Return the versions of everything."""
    return Reply(timed({**_versions(call), "api_timezone": time.tzname[0]}))


def _versions(_: LegacyCall) -> dict[str, str]:
    names = ("oar_version", "oar_server_version", "oar_lib_version")
    return {**dict.fromkeys(names, VERSION), "api_version": API_VERSION, "apilib_version": API_VERSION}


def whoami(call: LegacyCall) -> Reply:
    """Return as whom a request counts, '' for nobody."""
    user = call.who.caller.user
    return Reply(timed({"authenticated_user": user.name if user else ""}))


def timezone(_: LegacyCall) -> Reply:
    """Return the time zone of the site."""
    return Reply(timed({"timezone": time.tzname[0], "api_timezone": time.tzname[0]}))


def check_token(call: LegacyCall) -> Reply:
    """Return whose token was shown.  Raises Unidentified."""
    user = call.who.caller.identified()
    is_token = call.who.caller.way is Way.TOKEN
    return Reply(timed({"user": user.name, "auth": "Token valid" if is_token else "No token"}))


def get_new_token(call: LegacyCall) -> Reply:
    """Create a token of the caller: a signed one where the site has a key for them.  Raises NotAllowed."""
    config, user = call.who.config, call.who.caller.creating_tokens()
    token = signed_tokens.make(user.name, config, datetime.now())
    if token is None:
        with call.who.database.begin() as tx:
            _, token = tokens.create(tx, user, days=tokens.days_of(None, config), comment="get_new_token")
    return Reply(timed({"OAR_API_TOKEN": token}), headers={"Cache-Control": "no-store"})


def queues(call: LegacyCall) -> Reply:
    """Return the queues."""
    with call.who.database.snapshot() as tx:
        found = tx.queues.all()
    items = [
        {
            "name": each.name,
            "priority": each.priority,
            "scheduler_policy": each.policy,
            "state": each.state,
        }
        for each in found
    ]
    return Reply(timed({"items": items, "total": len(items), "offset": 0, "links": []}))


class Stress:
    """What the script of the site said last; it runs once at a time, and others are told what it said before."""

    def __init__(self) -> None:
        self._told: dict[str, str] | None = None
        self._until = 0.0
        self._asking = threading.Lock()

    def factors(self, path: str) -> dict[str, str]:
        """Return the lines ``KEY=VALUE`` of the script, at most some seconds old.  Raises TooMany."""
        if (self._told is None or time.monotonic() > self._until) and self._asking.acquire(blocking=False):
            try:
                self._told = self._ask(path)
                self._until = time.monotonic() + STRESS_SECONDS
            finally:
                self._asking.release()
        if self._told is None:
            raise TooMany("API_STRESS_FACTOR_SCRIPT has said nothing yet: ask again in a moment")
        return self._told

    def _ask(self, path: str) -> dict[str, str]:
        nothing = subprocess.DEVNULL
        try:
            process = subprocess.Popen(
                [path], stdin=nothing, stdout=subprocess.PIPE, stderr=nothing, start_new_session=True
            )
        except OSError:
            return {}
        with process:
            try:
                printed, _ = process.communicate(timeout=STRESS_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
                return {}
        lines = (line.partition("=") for line in printed.decode(errors="replace").splitlines())
        return {name.strip(): value.strip() for name, equals, value in lines if equals}


_stress = Stress()


def stress_factor(call: LegacyCall) -> Reply:
    """Return how busy the site is, as its own script tells it."""
    factors = _stress.factors(call.who.config.api_stress_factor_script)
    if "GLOBAL_STRESS" not in factors:
        raise NoSuchAddress("Unable to retrieve STRESS_FACTOR: API_STRESS_FACTOR_SCRIPT says nothing")
    return Reply(timed(factors))


def _gone(call: LegacyCall) -> Reply:
    """Tell where what is no longer served went.  Raises NotServed."""
    texts = {
        "authentication": "passwords do not belong into addresses: GET /whoami with Basic authentication",
        "proxy": "what a job serves is reached by a tunnel to its node, such as: ssh -L 8080:NODE:8080 FRONTEND",
        "colmet": "what jobs use is in the database: GET /v1/jobs/ID/usage",
    }
    raise NotServed(texts[call.place.words[0]])


# -- addresses --------------------------------------------------------------------------------------------------------

_JOB = ("jobs", _ID)
_ARRAY = ("jobs", "array", _ID)
_RESOURCE = ("resources", _ID)
_NODE = ("resources", "nodes", _ANY)


def _acts() -> list[tuple[str, tuple[str, ...], Handler]]:
    """Return the addresses of what is done with a job or an array, in the forms of both versions."""
    found: list[tuple[str, tuple[str, ...], Handler]] = []
    for word in ("deletions", "checkpoints", "holds", "rholds", "resumptions"):
        do, with_all = partial(legacy_jobs.act, word=word), partial(legacy_jobs.act_on_array, word=word)
        found += [("POST", (*_JOB, *words), do) for words in ((word, "new"), (word,), (word.removesuffix("s"),))]
        found.append(("POST", (*_ARRAY, word, "new"), with_all))
    ends, ends_all = (partial(each, word="deletions") for each in (legacy_jobs.act, legacy_jobs.act_on_array))
    found.append(("DELETE", (*_JOB, "deletions", "new"), ends))
    return [*found, *(("DELETE", (*_ARRAY, *words), ends_all) for words in (("deletions", "new"), ()))]


#: Method, words of the address, handler: it gets the call, and the words that stand for others.
ADDRESSES: list[tuple[str, tuple[str, ...], Handler]] = [
    ("GET", (), index),
    ("GET", ("version",), version),
    ("GET", ("whoami",), whoami),
    ("GET", ("timezone",), timezone),
    ("GET", _TOKEN_CHECK, check_token),
    ("GET", ("queues",), queues),
    ("GET", ("stress_factor",), stress_factor),
    ("GET", ("authentication",), _gone),
    ("POST", ("get_new_token",), get_new_token),
    ("GET", ("select_all",), legacy_administration.select_all),
    ("GET", ("config",), legacy_administration.config_list),
    ("GET", ("config", _ANY), legacy_administration.config_one),
    ("GET", ("admission_rules",), legacy_administration.rules_list),
    ("POST", ("admission_rules",), legacy_administration.rule_add),
    ("GET", ("admission_rules", _ID), legacy_administration.rule_one),
    ("POST", ("admission_rules", _ID), legacy_administration.rule_change),
    ("DELETE", ("admission_rules", _ID), legacy_administration.rule_remove),
    ("GET", ("jobs",), legacy_jobs.jobs_list),
    ("GET", ("jobs", "details"), partial(legacy_jobs.jobs_list, details=True)),
    ("GET", ("jobs", "table"), partial(legacy_jobs.jobs_list, table=True)),
    ("GET", _JOB, legacy_jobs.job_one),
    ("GET", (*_JOB, "details"), partial(legacy_jobs.job_one, details=True)),
    ("GET", (*_JOB, "resources"), partial(legacy_jobs.job_part, part="resources")),
    ("GET", (*_JOB, "nodes"), partial(legacy_jobs.job_part, part="nodes")),
    ("GET", (*_JOB, "events"), partial(legacy_jobs.job_part, part="events")),
    ("GET", (*_JOB, "state_log"), partial(legacy_jobs.job_part, part="state_log")),
    ("POST", ("jobs",), legacy_jobs.submit),
    ("POST", _JOB, legacy_jobs.method),
    ("PUT", _JOB, legacy_jobs.method),
    ("DELETE", _JOB, legacy_jobs.delete),
    *_acts(),
    ("POST", (*_JOB, "resubmissions", "new"), legacy_jobs.resubmit),
    ("POST", (*_JOB, "signals", _ANY), legacy_jobs.signal),
    ("POST", (*_JOB, "signal", _ANY), legacy_jobs.signal),
    ("GET", ("resources",), legacy_resources.resources_list),
    ("GET", ("resources", "full"), partial(legacy_resources.resources_list, detail="full")),
    ("GET", ("resources", "details"), partial(legacy_resources.resources_list, detail="details")),
    ("GET", ("resources", "busy"), legacy_resources.busy),
    ("GET", ("resources", "nodes"), legacy_resources.nodes_list),
    ("GET", _NODE, legacy_resources.node_resources),
    ("GET", (*_NODE, "jobs"), legacy_resources.node_jobs),
    ("GET", (*_NODE, "jobs", "details"), partial(legacy_resources.node_jobs, details=True)),
    ("GET", _RESOURCE, legacy_resources.resource_one),
    ("GET", (*_RESOURCE, "jobs"), legacy_resources.resource_jobs),
    ("GET", ("resources", _ANY, "jobs"), legacy_resources.jobs_by_value),
    ("POST", ("resources",), legacy_resources.add),
    ("POST", ("resources", "generate"), legacy_administration.generate),
    ("POST", (*_RESOURCE, "state"), legacy_resources.set_state_of_resource),
    ("POST", (*_NODE, "state"), legacy_resources.set_state_of_node),
    ("DELETE", _RESOURCE, legacy_resources.remove),
    ("DELETE", ("resources", _ANY, _ANY), legacy_resources.remove_by_cpuset),
    ("GET", ("accounting",), legacy_resources.accounting),
    ("GET", ("accounting", _ANY), legacy_resources.accounting),
]


def handler_of(method: str, place: Place) -> tuple[Handler, list[Any]]:
    """Return who answers a request, and what the address names.  Raises NoSuchAddress, NoSuchMethod."""
    if place.words[:1] in (("colmet",), ("proxy",)):
        return _gone, []
    here: dict[str, tuple[Handler, list[Any]]] = {}
    for each, words, handler in ADDRESSES:
        named = _named(words, place.words)
        if named is not None:
            here.setdefault(each, (handler, named))
    if not here:
        raise NoSuchAddress(f"there is nothing at /{'/'.join(place.words)}\n{_meant(place.words)}")
    if method not in here:
        raise NoSuchMethod(sorted(here))
    return here[method]


def _meant(words: Sequence[str]) -> str:
    """Return the way out of an address at which nothing is."""
    known = sorted({word for _, address, _ in ADDRESSES for word in address} - {_ID, _ANY})
    near = (nearest(word, known) for word in words if word not in known and not word.isdecimal())
    meant = next(filter(None, near), None)
    return f"did you mean {meant!r}?" if meant else "/openapi-legacy.json lists the addresses"


def _named(pattern: Sequence[str], words: Sequence[str]) -> list[Any] | None:
    """Return what the words of an address name where a pattern is open; None if it is another address."""
    if len(pattern) != len(words):
        return None
    named: list[Any] = []
    for wanted, word in zip(pattern, words, strict=True):
        if wanted == _ID:
            if not (word.isascii() and word.isdigit()):
                return None
            named.append(number_of(word, "id"))
        elif wanted == _ANY:
            named.append(word)
        elif wanted != word:
            return None
    return named


# -- answering --------------------------------------------------------------------------------------------------------


class LegacyRoute(BaseRoute):
    """The route of all older addresses: those whose first word is one of theirs."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for it."""
        if scope["type"] != "http":
            return Match.NONE, {}
        first = scope["path"].strip("/").partition("/")[0].partition(".")[0]
        return (Match.FULL if not first or first in PREFIXES or first in FIRST_WORDS else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        response = await answer_to(Request(scope, receive))
        await response(scope, receive, send)


async def answer_to(request: Request) -> Response:
    """Return the answer to a request of an older client."""
    place, form = place_of(request.scope["path"]), LegacyFormat.JSON
    try:
        form = format_of(request, place)
        method = "GET" if request.method == "HEAD" else request.method
        if file_in(request.scope["path"]) is not None:
            done = await _answer_to_media(request, method, place)
            return done if isinstance(done, Response) else written(done, form)
        handler, named = handler_of(method, place)
        data = await request.body() if method in ("POST", "PUT") else b""
        made = await in_thread(_reply, request, place, data, handler, named)
        if isinstance(made, Response):
            return made
        reply = await made.later() if made.later else made
    except OarError as error:
        reply = _problem(request, error)
    except ClientDisconnect:
        reply = Reply({"type": "bad-request", "detail": "the request did not come to its end"}, HTTPStatus.BAD_REQUEST)
    except HTTPException as error:
        word, hint = CODES.get(HTTPStatus(error.status_code), "bad-request"), getattr(error, "hint", "")
        reply = Reply(problem_record(error.status_code, word, error.detail, hint=hint), error.status_code)
    if reply.status >= HTTPStatus.BAD_REQUEST:
        reply = reply._replace(record=_old_words(request, reply))
        if _is_debugged(request):
            reply = reply._replace(
                record={**reply.record, "title": f"ERROR {int(reply.status)} - {reply.record['title']}"},
                status=HTTPStatus.OK,
            )
    return written(reply, form)


async def _answer_to_media(request: Request, method: str, place: Place) -> Response | Reply:
    who = await in_thread(asking, request)
    return await media.answer_to_media(LegacyCall(request, who, method, place, parameters_of(request), {}))


def _reply(request: Request, place: Place, data: bytes, handler: Handler, named: list[Any]) -> Reply | Response:
    who = asking(request)
    if len(data) > MOST_OF_NOBODY or (data and kind_of(request) in YAML):
        who.caller.identified()  # to read a large form, and any YAML, takes seconds
    call = LegacyCall(request, who, request.method, place, parameters_of(request), body_of(request, data))
    return handler(call, *named)


def _problem(request: Request, error: OarError) -> Reply:
    if isinstance(error, Titled):
        reply = _problem(request, error.why)
        return reply._replace(record={**reply.record, "title": error.title})
    status = status_of(error)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        raise error
    if status == HTTPStatus.CONFLICT and not isinstance(error, KeyReused):
        status = HTTPStatus.BAD_REQUEST
    headers = {}
    if isinstance(error, Unidentified):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, NoSuchMethod):
        headers["Allow"] = ", ".join(error.methods)
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(getattr(error, "retry_after", 2))
    record = error_record(error, status)
    if isinstance(error, NoSuchJob):
        record |= {"title": "Job not found", "detail": "Job not found"}
    if isinstance(error, NotAllowed) and request.method != "GET":
        record["title"] = "Permission denied"
    return Reply(record, status, headers)


def _is_debugged(request: Request) -> bool:
    """Whether oar asks for problems as answers that browsers show."""
    user = getattr(request.state, "caller", Caller()).user
    return user is not None and user.name == DEBUGGER and is_on(request.query_params.get("debug"))


def _old_words(request: Request, reply: Reply) -> dict[str, Any]:
    """Return the record of a problem with the keys that clients of both versions look for."""
    record = {"status": int(reply.status), "title": HTTPStatus(reply.status).phrase, **reply.record}
    if reply.status == HTTPStatus.UNAUTHORIZED and place_of(request.scope["path"]).words == _TOKEN_CHECK:
        record["auth"] = "Token invalid or revoked"
    if "detail" not in record:
        record |= {"type": "bug", "detail": "something went wrong here"}
    message = record["detail"]
    return {**record, "code": int(reply.status), "message": message, "request_id": request.state.request_id}
