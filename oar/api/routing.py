"""Routing: the route of a request, and a fast way to read its parameters.

FastAPI goes through the parameters of a route one by one for each request, which takes as long as our answer to it.
Here a route that only reads is called with the parameters of its path and query, validated by the same types.  Other
requests, and invalid ones, go FastAPI's own way, which alone reports errors.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, update_wrapper
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.params import Path, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from oar.api.concurrency import in_thread
from oar.api.parameters import reject_unknown_parameters
from oar.api.responses import MARK, accepts_lines, validators
from oar.api.service import asking, service_of
from oar.lib.bus.messages import Topic

_OF_RESOURCES = frozenset({Topic.RESOURCES, Topic.JOBS, Topic.GANTT, Topic.RESERVATIONS})
_OF_QUEUES = frozenset({Topic.QUEUES, Topic.JOBS})
#: The topics on which the responses of operations depend.
TOPICS: Mapping[str, frozenset[Topic]] = {
    "jobs_list": _OF_RESOURCES | _OF_QUEUES | {Topic.EVENTS},
    "nodes_list": _OF_RESOURCES | {Topic.EVENTS},
    "resources_list": _OF_RESOURCES,
    "grid": _OF_RESOURCES | {Topic.EVENTS},
    "property_values": frozenset({Topic.RESOURCES}),
    "queues_list": _OF_QUEUES,
    "queue": _OF_QUEUES,
    "site": frozenset({Topic.QUEUES, Topic.RESOURCES}),
    "event_log": frozenset({Topic.EVENTS, Topic.JOBS}),
}


def unless_known(call: Callable[..., Response], request_name: str, topics: frozenset[Topic]) -> Callable[..., Response]:
    """Return a handler that returns 304 without reading anything if the client has the current response."""

    def answer(**values: Any) -> Response:
        request: Request = values[request_name]
        if accepts_lines(request):
            return call(**values)
        who = asking(request)
        caller, url = who.caller, request.url
        question = (url.path, url.query, caller.user, str(caller.scopes), who.privacy, id(who.config))
        tag = service_of(request).state_tags.of(topics, *question)
        request.scope["state"] |= {"asked": who, "state_tag": tag}
        header = request.headers.get("if-none-match", "")
        matching = [tag_ for tag_ in map(str.strip, header.split(",")) if tag and tag_.endswith(f'{MARK}{tag}"')]
        if matching:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=validators(matching[0]))
        return call(**values)

    return answer


_NOTHING = inspect.Parameter.empty


class ApiRoute(APIRoute):
    """A route whose handler waits for its thread in turn; its parameters are read the short way where possible."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        super().__init__(path, _in_turn(endpoint), **more)
        self.handler = endpoint
        parameters = _Parameters.of(endpoint) if self.methods == {"GET"} else None
        if parameters:
            self.app = _short_way(self, parameters, self.app)


def _in_turn(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine for a handler, which waits for its thread fairly; FastAPI would take the next free thread."""
    if inspect.iscoroutinefunction(handler):
        return handler

    async def answer(**values: Any) -> Any:
        return await in_thread(handler, **values)

    update_wrapper(answer, handler)
    del answer.__wrapped__  # type: ignore[attr-defined]  # FastAPI would look there for the types, and call it itself
    answer.__signature__ = inspect.signature(handler, eval_str=True)  # type: ignore[attr-defined]
    return answer


def _short_way(route: ApiRoute, parameters: "_Parameters", whole: ASGIApp) -> ASGIApp:
    """Return the application of a route; ``whole``: FastAPI's own way."""
    call = route.handler
    if topics := TOPICS.get(route.operation_id or ""):
        call = unless_known(call, parameters.request, topics)
    asynchronous = call if inspect.iscoroutinefunction(call) else partial(in_thread, call)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            values = parameters.values(Request(scope, receive, send))
        except (ValidationError, _NotSimpleError):
            await whole(scope, receive, send)
            return
        response: Response = await asynchronous(**values)
        await response(scope, receive, send)

    return answer


class _NotSimpleError(Exception):
    """A request that FastAPI must read."""


class _Parameter(NamedTuple):
    """A parameter: its name in Python, and its validator."""

    name: str
    adapter: TypeAdapter[Any]


class _Parameters(NamedTuple):
    """The parameters of a route: the request, path segments, and a query as single parameters or as a model."""

    request: str
    path: Sequence[tuple[str, _Parameter]]
    query: Mapping[str, _Parameter]
    model: tuple[str, type[BaseModel]] | None
    defaults: Mapping[str, Any]
    many: frozenset[str] = (
        frozenset()
    )  #: names that may stand in a query more than once: who names one goes the long way

    @classmethod
    def of(cls, call: Callable[..., Any]) -> "_Parameters | None":
        """Return the parameters of a handler; None if there are others, such as a header or a body."""
        hints = get_type_hints(call, include_extras=True)
        parameters = cls("", [], {}, None, {})
        for parameter in inspect.signature(call).parameters.values():
            extended = parameters._with(parameter, hints.get(parameter.name))
            if extended is None:
                return None
            parameters = extended
        return (
            parameters
            if parameters.request and not (parameters.model and (parameters.query or parameters.many))
            else None
        )

    def _with(self, parameter: inspect.Parameter, hint: Any) -> "_Parameters | None":
        name = parameter.name
        if hint is Request:
            return self._replace(request=name)
        kind, *more = get_args(hint) if get_origin(hint) is Annotated else (None,)
        field = next((annotation for annotation in more if isinstance(annotation, Path | Query)), None)
        if isinstance(field, Path):
            return self._replace(path=[*self.path, (name, _Parameter(name, TypeAdapter(hint)))])
        if _is_model(kind):
            return self._replace(model=(name, kind)) if field else None
        if field is None or parameter.default is _NOTHING:
            return None
        alias, defaults = str(field.alias or name), {**self.defaults, name: parameter.default}
        if get_origin(kind) in (list, set, tuple):
            return self._replace(many=self.many | {alias}, defaults=defaults)
        return self._replace(query={**self.query, alias: _Parameter(name, TypeAdapter(hint))}, defaults=defaults)

    def values(self, request: Request) -> dict[str, Any]:
        """Return the values of a request.  Raises ValidationError, _NotSimpleError."""
        segments = request.scope["path_params"]
        values = {name: parameter.adapter.validate_python(segments[name]) for name, parameter in self.path}
        values[self.request] = request
        query = _query_values(request.scope["query_string"])
        if not self.many.isdisjoint(query):
            raise _NotSimpleError
        if self.model:
            name, model = self.model
            values[name] = model.model_validate(query)
            return values
        values |= self.defaults
        for alias, text in query.items():
            if alias in self.query:
                parameter = self.query[alias]
                values[parameter.name] = parameter.adapter.validate_python(text)
        return values


def _is_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, BaseModel)


def _query_values(query: bytes) -> dict[str, str]:
    """Return the parameters of a query.  Raises _NotSimpleError if a name occurs twice."""
    if not query:
        return {}
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    given = dict(pairs)
    if len(given) != len(pairs):
        raise _NotSimpleError
    return given


#: Start of a path parameter.
_PARAMETER = "{"
#: Leading path segments in the key of a route: ``/v1/jobs``.
_LEADING_SEGMENTS = 2

#: The number of segments, and the leading ones.
Key = tuple[int, tuple[str, ...]]


class Routes(BaseRoute):
    """Routes that are matched in their order; only candidates for the path are tried.

    A trailing slash is ignored, without a redirect: clients lose bodies on redirects.
    ``HEAD`` returns the head of the response to ``GET``.

    A candidate has as many segments as the path, the same leading ones, and the same last one if that is
    fixed; routes that match several segments at once or begin with a parameter are always candidates.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self.all = tuple(routes)
        keys = [_key_of(route) for route in self.all]
        self._always = self._chosen(keys, None)
        fixed = [key for key in keys if key]
        # Of the requests whose last word no route has, only routes that end with a parameter can answer.
        self._by_key = {(key, last): self._chosen(keys, key, last) for key, end in fixed for last in (end, None)}

    def candidates(self, path: str) -> Sequence[Route]:
        """Return the candidates for a path, in their order."""
        segments = path.split("/")
        key = _key(segments)
        return self._by_key.get((key, segments[-1])) or self._by_key.get((key, None), self._always)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return the first route that matches, else the allowed methods of those that match with another method."""
        if scope["type"] != "http":
            return Match.NONE, {}
        wanted_scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        match, child_scope = self._match(wanted_scope)
        path = scope["path"]
        if match is Match.NONE and path.endswith("/") and path != "/":
            shorter = path.rstrip("/")
            match, child_scope = self._match({**wanted_scope, "path": shorter})
            child_scope = {**child_scope, "path": shorter} if child_scope else child_scope
        return match, child_scope

    def _match(self, scope: Scope) -> tuple[Match, Scope]:
        methods: set[str] = set()
        for route in self.candidates(scope["path"]):
            match, child_scope = route.matches(scope)
            if match is Match.FULL:
                return match, {**child_scope, "route": route}
            if match is Match.PARTIAL:
                methods |= route.methods or set()
        return (Match.PARTIAL, {"allowed": methods}) if methods else (Match.NONE, {})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request by its route.

        Raises HTTPException if there are only other methods, RequestValidationError for a query of other names.
        """
        if "allowed" in scope:
            allowed = ", ".join(sorted(_with_head(scope["allowed"])))
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": allowed})
        reject_unknown_parameters(scope)
        if scope["method"] == "HEAD":  # the server looks at its own record of the request, and sends no body
            scope = {**scope, "method": "GET", "is_head": True}
        await scope["route"].handle(scope, receive, send)

    def _chosen(
        self, keys: Sequence[tuple[Key, str | None] | None], key: Key | None, last: str | None = None
    ) -> tuple[Route, ...]:
        return tuple(
            route
            for route, own in zip(self.all, keys, strict=True)
            if own is None or (own[0] == key and own[1] in (None, last))
        )


def _with_head(methods: set[str]) -> Iterator[str]:
    yield from methods
    if "GET" in methods:
        yield "HEAD"


def _key_of(route: Route) -> tuple[Key, str | None] | None:
    """Return the key of a route and its last segment if that is fixed; None for routes with several keys."""
    segments = route.path.split("/")
    takes_several = any(segment.startswith(_PARAMETER) and segment.endswith(":path}") for segment in segments)
    begins_with_one = any(_PARAMETER in segment for segment in segments[1 : 1 + _LEADING_SEGMENTS])
    if takes_several or begins_with_one:
        return None
    return _key(segments), None if _PARAMETER in segments[-1] else segments[-1]


def _key(segments: Sequence[str]) -> Key:
    return len(segments), tuple(segments[1 : 1 + _LEADING_SEGMENTS])
