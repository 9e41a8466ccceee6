"""Addresses of the REST APIs of OAR 2.5 and OAR 3: the operation behind each, and other names of its parameters.

See docs/api.rst, "Older clients".
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from oar.api.authentication import Caller
from oar.api.concurrency import in_thread
from oar.api.legacy import files, jobs, resources, site
from oar.api.legacy.requests import (
    PREFIXES,
    YAML,
    Address,
    LegacyRequest,
    NoSuchAddress,
    NoSuchMethod,
    NotServed,
    ResponseFormat,
    content_type,
    is_on,
    media_path,
    parse_address,
    parse_body,
    parse_number,
    parse_parameters,
    requested_format,
)
from oar.api.legacy.responses import Reply, problem_reply, rendered, with_legacy_keys
from oar.api.service import asking
from oar.lib.base.errors import OarError
from oar.lib.base.texts import nearest

#: Gets the request, and the words of the address in the places of ``<id>`` and ``<any>``.
Operation = Callable[..., Reply | Response]


class Route(NamedTuple):
    """An address and its operation."""

    method: str
    path: str
    operation: Operation
    aliases: Mapping[str, Sequence[str]] = {}  #: other names of parameters or fields, by the name used here

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(filter(None, self.path.split("/")))


_PERIOD = {"from": ("start_time",), "to": ("stop_time",)}
_JOB_FILTERS = {**_PERIOD, "state": ("states",), "ids": ("job_ids",), "user": ("users", "owner")}
_SUBMISSION_FIELDS = {
    "resources": ("resource",),
    "command": ("script_path",),
    "properties": ("property",),
    "types": ("type",),
    "dependencies": ("anterior", "after", "dependency"),
    "parameters": ("param_file",),
    "ssh_private_key": ("import_job_key_inline", "import_job_key_inline_priv"),
    "ssh_public_key": ("import_job_key_inline_pub",),
    "cpuset_name": ("force_cpuset_name",),
    "advance_reservation": ("ar",),
}
#: Actions on jobs, by the word in addresses.
_ACTIONS = {
    "deletions": "delete",
    "checkpoints": "checkpoint",
    "holds": "hold",
    "rholds": "rhold",
    "resumptions": "resume",
}

ROUTES: Sequence[Route] = [
    Route("GET", "/", site.index),
    Route("GET", "/version", site.version),
    Route("GET", "/whoami", site.whoami),
    Route("GET", "/timezone", site.timezone),
    Route("GET", "/check_token", site.check_token),
    Route("POST", "/get_new_token", site.get_new_token),
    Route("GET", "/queues", site.queues),
    Route("GET", "/stress_factor", site.stress_factor),
    Route("GET", "/select_all", site.select_all),
    Route("GET", "/config", site.list_config),
    Route("GET", "/config/<any>", site.show_config),
    Route("GET", "/admission_rules", site.list_rules),
    Route("POST", "/admission_rules", site.add_rule),
    Route("GET", "/admission_rules/<id>", site.show_rule),
    Route("POST", "/admission_rules/<id>", site.change_rule),
    Route("DELETE", "/admission_rules/<id>", site.remove_rule),
    Route("GET", "/jobs", jobs.list_jobs, _JOB_FILTERS),
    Route("GET", "/jobs/details", partial(jobs.list_jobs, view="details"), _JOB_FILTERS),
    Route("GET", "/jobs/table", partial(jobs.list_jobs, view="table"), _JOB_FILTERS),
    Route("GET", "/jobs/<id>", jobs.show_job),
    Route("GET", "/jobs/<id>/details", partial(jobs.show_job, details=True)),
    Route("GET", "/jobs/<id>/resources", partial(jobs.show_part, part="resources")),
    Route("GET", "/jobs/<id>/nodes", partial(jobs.show_part, part="nodes")),
    Route("GET", "/jobs/<id>/events", partial(jobs.show_part, part="events")),
    Route("GET", "/jobs/<id>/state_log", partial(jobs.show_part, part="state_log")),
    Route("POST", "/jobs", jobs.submit, _SUBMISSION_FIELDS),
    Route("POST", "/jobs/<id>", jobs.act_by_method),
    Route("PUT", "/jobs/<id>", jobs.act_by_method),
    Route("DELETE", "/jobs/<id>", jobs.delete),
    *(
        Route("POST", f"/jobs/<id>/{ending}", partial(jobs.act, action=action))
        for word, action in _ACTIONS.items()
        for ending in (f"{word}/new", word, word.removesuffix("s"))
    ),
    *(
        Route("POST", f"/jobs/array/<id>/{word}/new", partial(jobs.act_on_array, action=action))
        for word, action in _ACTIONS.items()
    ),
    Route("DELETE", "/jobs/<id>/deletions/new", partial(jobs.act, action="delete")),
    Route("DELETE", "/jobs/array/<id>/deletions/new", partial(jobs.act_on_array, action="delete")),
    Route("DELETE", "/jobs/array/<id>", partial(jobs.act_on_array, action="delete")),
    Route("POST", "/jobs/<id>/resubmissions/new", jobs.resubmit),
    Route("POST", "/jobs/<id>/signals/<any>", jobs.signal),
    Route("POST", "/jobs/<id>/signal/<any>", jobs.signal),
    Route("GET", "/resources", resources.list_resources),
    Route("GET", "/resources/full", partial(resources.list_resources, full=True)),
    Route("GET", "/resources/details", partial(resources.list_resources, with_jobs=True)),
    Route("GET", "/resources/busy", resources.count_busy),
    Route("GET", "/resources/nodes", resources.list_nodes),
    Route("GET", "/resources/nodes/<any>", resources.list_resources_of_node),
    Route("GET", "/resources/nodes/<any>/jobs", resources.list_jobs_of_node, _JOB_FILTERS),
    Route(
        "GET", "/resources/nodes/<any>/jobs/details", partial(resources.list_jobs_of_node, view="details"), _JOB_FILTERS
    ),
    Route("GET", "/resources/<id>", resources.show_resource),
    Route("GET", "/resources/<id>/jobs", resources.list_jobs_of_resource),
    Route("GET", "/resources/<any>/jobs", resources.list_jobs_by_property),
    Route("POST", "/resources", resources.add_resources),
    Route("POST", "/resources/generate", resources.generate_resources),
    Route("POST", "/resources/<id>/state", resources.set_state_of_resource),
    Route("POST", "/resources/nodes/<any>/state", resources.set_state_of_node),
    Route("DELETE", "/resources/<id>", resources.remove),
    Route("DELETE", "/resources/<any>/<any>", resources.remove_by_cpuset),
    Route("GET", "/accounting", resources.show_accounting, _PERIOD),
    Route("GET", "/accounting/<any>", resources.show_accounting, _PERIOD),
]
#: First words of addresses that were removed on purpose, and what replaces them.
REMOVED = {
    "authentication": "removed: addresses must not contain passwords. Use GET /whoami with Basic authentication.",
    "proxy": "removed. Connect to servers in jobs through a tunnel, such as ssh -L 8080:NODE:8080 FRONTEND.",
    "colmet": "removed. Use GET /v1/jobs/ID/usage.",
}
FIRST_WORDS = frozenset({"media", *REMOVED, *(route.words[0] for route in ROUTES if route.words)})

#: The user whose requests may have ``debug=1``: errors are responses with status 200, which browsers show.
DEBUGGER = "oar"
#: Larger bodies, and all YAML, are parsed only for known users, because that takes seconds.
MAX_ANONYMOUS_BODY = 1 << 16


def find_route(method: str, address: Address) -> tuple[Route, Sequence[Any]]:
    """Return the route of a request, and the words in its variable places.

    Raises NoSuchAddress, NoSuchMethod, NotServed, BadRequest.
    """
    if address.words and address.words[0] in REMOVED:
        raise NotServed(REMOVED[address.words[0]])
    found: dict[str, tuple[Route, list[Any]]] = {}
    for route in ROUTES:
        arguments = _match(route.words, address.words)
        if arguments is not None:
            found.setdefault(route.method, (route, arguments))
    if not found:
        raise NoSuchAddress(f"there is no address /{'/'.join(address.words)}\n{_suggestion(address.words)}")
    if method not in found:
        raise NoSuchMethod(sorted(found))
    return found[method]


def _match(pattern: Sequence[str], words: Sequence[str]) -> list[Any] | None:
    if len(pattern) != len(words):
        return None
    arguments: list[Any] = []
    for expected, word in zip(pattern, words, strict=True):
        if expected == "<id>":
            if not (word.isascii() and word.isdigit()):
                return None
            arguments.append(parse_number(word, "id"))
        elif expected == "<any>":
            arguments.append(word)
        elif expected != word:
            return None
    return arguments


def _suggestion(words: Sequence[str]) -> str:
    known = sorted({word for route in ROUTES for word in route.words if not word.startswith("<")} | {"authentication"})
    near = (nearest(word, known) for word in words if word not in known and not word.isdecimal())
    suggested = next(filter(None, near), None)
    return f"did you mean {suggested!r}?" if suggested else "/openapi-legacy.json lists the addresses"


class LegacyRoute(BaseRoute):
    """The route of the application for all older addresses."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        first = scope["path"].strip("/").partition("/")[0].partition(".")[0]
        return (Match.FULL if not first or first in PREFIXES or first in FIRST_WORDS else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await respond(Request(scope, receive))
        await response(scope, receive, send)


async def respond(http: Request) -> Response:
    """Return the response to a request of an older client."""
    path, form = http.scope["path"], ResponseFormat.JSON
    address, method = parse_address(path), "GET" if http.method == "HEAD" else http.method
    try:
        form = requested_format(http, address)
        if media_path(path) is not None:
            session = await in_thread(asking, http)
            reply = await files.respond(LegacyRequest(http, session, method, address, parse_parameters(http), {}))
        else:
            found = find_route(method, address)
            data = await http.body() if method in ("POST", "PUT") else b""
            reply = await in_thread(_run, http, method, address, found, data)
        if isinstance(reply, Response):
            return reply
        if reply.later:
            reply = await reply.later()
    except (OarError, HTTPException) as error:
        reply = problem_reply(http, error)
    except ClientDisconnect:
        reply = Reply({"type": "bad-request", "detail": "the request is incomplete"}, HTTPStatus.BAD_REQUEST)
    if reply.status >= HTTPStatus.BAD_REQUEST:
        reply = _complete(http, address, reply)
    return rendered(reply, form)


def _run(
    http: Request, method: str, address: Address, found: tuple[Route, Sequence[Any]], data: bytes
) -> Reply | Response:
    route, arguments = found
    session = asking(http)
    if len(data) > MAX_ANONYMOUS_BODY or (data and content_type(http) in YAML):
        session.caller.identified()
    parameters, body = parse_parameters(http), parse_body(http, data)
    return route.operation(LegacyRequest(http, session, method, address, parameters, body, route.aliases), *arguments)


def _complete(http: Request, address: Address, reply: Reply) -> Reply:
    """Return an error with the keys of both versions; with ``debug=1`` as a response that browsers show."""
    is_token_check = reply.status == HTTPStatus.UNAUTHORIZED and address.words == ("check_token",)
    auth = {"auth": "Token invalid or revoked"} if is_token_check else {}
    record = with_legacy_keys({**reply.record, **auth}, reply.status, http.state.request_id)
    user = getattr(http.state, "caller", Caller()).user
    if user is not None and user.name == DEBUGGER and is_on(http.query_params.get("debug")):
        title = f"ERROR {int(reply.status)} - {record['title']}"
        return Reply({**record, "title": title}, HTTPStatus.OK, reply.headers)
    return reply._replace(record=record)
