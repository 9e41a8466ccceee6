"""Routes whose parameters are read at once, where that is all that a request needs.

FastAPI goes through the parameters of a route one by one for each request, which takes as long as our answer to it.
Here a route that only reads is called with what its path and its query say, checked by the very same types.  What is
not so simple, and what is wrong, goes FastAPI's own way: it alone makes errors.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.params import Path, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from oar.api.identity.seats import in_thread
from oar.api.routing.known_answers import TOPICS, unless_known

_NOTHING = inspect.Parameter.empty


class FairRoute(APIRoute):
    """A route of FastAPI whose handler waits for its thread in turn."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        super().__init__(path, _in_turn(endpoint), **more)
        self.handler = endpoint


class LeanRoute(FairRoute):
    """A route that takes the short way where there is one."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        super().__init__(path, endpoint, **more)
        parameters = _Parameters.of(self.handler) if self.methods == {"GET"} else None
        if parameters:
            self.app = _short_way(self, parameters, self.app)


def _in_turn(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return what FastAPI calls for a handler: it would run it in the next free thread, whosever the request is."""
    if inspect.iscoroutinefunction(handler):
        return handler

    async def answer(**values: Any) -> Any:
        return await in_thread(handler, **values)

    update_wrapper(answer, handler)
    del answer.__wrapped__  # type: ignore[attr-defined]  # FastAPI would look there for the types, and call it itself
    answer.__signature__ = inspect.signature(handler, eval_str=True)  # type: ignore[attr-defined]
    return answer


def _short_way(route: FairRoute, parameters: "_Parameters", whole: ASGIApp) -> ASGIApp:
    """Return what answers a request; ``whole``: FastAPI's own way."""
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
    """A request that has to be read in the long way."""


class _One(NamedTuple):
    """A parameter: its name in Python, and what checks it."""

    name: str
    adapter: TypeAdapter[Any]


class _Parameters(NamedTuple):
    """What a route takes: the request, words of its path, and a query by single parameters or as a model."""

    request: str
    path: Sequence[tuple[str, _One]]
    query: Mapping[str, _One]
    model: tuple[str, type[BaseModel]] | None
    defaults: Mapping[str, Any]
    many: frozenset[str] = (
        frozenset()
    )  #: names that may stand in a query more than once: who names one goes the long way

    @classmethod
    def of(cls, call: Callable[..., Any]) -> "_Parameters | None":
        """Return what a route takes; None if that is anything else, such as a header or a body."""
        hints = get_type_hints(call, include_extras=True)
        found = cls("", [], {}, None, {})
        for parameter in inspect.signature(call).parameters.values():
            extended = found._with(parameter, hints.get(parameter.name))
            if extended is None:
                return None
            found = extended
        return found if found.request and not (found.model and (found.query or found.many)) else None

    def _with(self, parameter: inspect.Parameter, hint: Any) -> "_Parameters | None":
        name = parameter.name
        if hint is Request:
            return self._replace(request=name)
        kind, *more = get_args(hint) if get_origin(hint) is Annotated else (None,)
        field = next((each for each in more if isinstance(each, Path | Query)), None)
        if isinstance(field, Path):
            return self._replace(path=[*self.path, (name, _One(name, TypeAdapter(hint)))])
        if _is_model(kind):
            return self._replace(model=(name, kind)) if field else None
        if field is None or parameter.default is _NOTHING:
            return None
        alias, defaults = str(field.alias or name), {**self.defaults, name: parameter.default}
        if get_origin(kind) in (list, set, tuple):
            return self._replace(many=self.many | {alias}, defaults=defaults)
        return self._replace(query={**self.query, alias: _One(name, TypeAdapter(hint))}, defaults=defaults)

    def values(self, request: Request) -> dict[str, Any]:
        """Return the values of a request.  Raises ValidationError, _NotSimpleError."""
        words = request.scope["path_params"]
        values = {name: one.adapter.validate_python(words[name]) for name, one in self.path}
        values[self.request] = request
        given = _given(request.scope["query_string"])
        if not self.many.isdisjoint(given):
            raise _NotSimpleError
        if self.model:
            name, model = self.model
            values[name] = model.model_validate(given)
            return values
        values |= self.defaults
        for alias, text in given.items():
            if alias in self.query:
                one = self.query[alias]
                values[one.name] = one.adapter.validate_python(text)
        return values


def _is_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, BaseModel)


def _given(query: bytes) -> dict[str, str]:
    """Return a query whose names stand there once.  Raises _NotSimpleError for another."""
    if not query:
        return {}
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    given = dict(pairs)
    if len(given) != len(pairs):
        raise _NotSimpleError
    return given
