"""Operations: the routes of the API, with the types of their parameters, bodies and answers.

A handler declares what it reads by its parameters: the request, fields of the path, of the query and of headers, and
a model, which is the query of a GET and the body of other requests.  One pydantic model for each handler reads the
fields.  A handler returns a record, which is its answer, or a response.  ``openapi`` describes the same declarations.

FastAPI is not used: it takes several times as long to read the parameters, longer than most answers
(docs/design/decisions.rst, "Starlette and pydantic for the API, without FastAPI").
"""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from types import UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError, create_model
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from oar.api.concurrency import in_thread
from oar.api.errors import InvalidRequest
from oar.api.parameters import Header
from oar.api.responses import MARK, accepts_lines, answer, answer_unless_known, list_answer, validators
from oar.api.service import asking, service_of
from oar.lib.bus.messages import Topic

Handler = TypeVar("Handler", bound=Callable[..., Any])
#: The content of a request without a body.
NOTHING = object()

#: Topics on which answers about resources, and about queues, depend.
OF_RESOURCES = frozenset({Topic.RESOURCES, Topic.JOBS, Topic.GANTT, Topic.RESERVATIONS})
OF_QUEUES = frozenset({Topic.QUEUES, Topic.JOBS})


class Body(NamedTuple):
    """The parameter of a handler that is the body of the request."""

    name: str
    model: type[BaseModel]
    is_optional: bool


class Parameters:
    """The parameters of a handler, and how they are read from a request."""

    def __init__(self, handler: Callable[..., Any], path: str, *, is_get: bool) -> None:
        self.request = ""  #: name of the parameter that is the request itself
        self.query: tuple[str, type[BaseModel]] | None = None  #: the parameter that has the whole query
        self.body: Body | None = None
        fields: dict[str, Any] = {}
        hints = get_type_hints(handler, include_extras=True)
        for name, parameter in inspect.signature(handler).parameters.items():
            is_optional = parameter.default is not inspect.Parameter.empty
            models = [kind for kind in (hints[name], *get_args(hints[name])) if _is_model(kind)]
            if hints[name] is Request:
                self.request = name
            elif models and is_get:
                self.query = name, models[0]
            elif models:
                self.body = Body(name, models[0], is_optional)
            else:
                fields[name] = hints[name], parameter.default if is_optional else ...
        self.model = create_model(handler.__name__, **fields)
        #: Where each field comes from: ``path``, ``query`` or ``header``, by its name in the request.
        self.places: dict[str, str] = {}
        self._lists: set[str] = set()
        for name, info in self.model.model_fields.items():
            is_header = any(isinstance(part, Header) for part in info.metadata)
            is_in_path = f"{{{name}}}" in path or f"{{{name}:path}}" in path
            alias = info.alias or name
            self.places[alias] = "path" if is_in_path else "header" if is_header else "query"
            if get_origin(info.annotation) is list:
                self._lists.add(alias)
        self._headers = [name for name, place in self.places.items() if place == "header"]
        listed = names_of(self.query[1]) if self.query else []
        self.query_names = frozenset([*listed, *(name for name, place in self.places.items() if place == "query")])

    @property
    def names(self) -> list[str]:
        """The names of all fields of the query and the body, for suggestions."""
        return sorted({*self.query_names, *(names_of(self.body.model) if self.body else ())})

    def check_names(self, scope: Scope) -> None:
        """Check that a query has no other parameters.  Raises InvalidRequest.

        A client that sends ``?dry_run=true`` to a route without this parameter would change what it only wanted to
        test.  Older clients, of the addresses outside /v1, send any parameters.
        """
        if not scope["query_string"] or scope["path"].split("/", 2)[1] != "v1":
            return
        for name, _ in _query_of(scope):
            if name not in self.query_names:
                raise InvalidRequest("query", [{"type": "extra_forbidden", "loc": (name,)}])

    def read(self, request: Request, content: Any) -> dict[str, Any]:
        """Return the arguments of the handler; ``content``: of the body, if there is one.  Raises InvalidRequest."""
        arguments: dict[str, Any] = {self.request: request} if self.request else {}
        pairs = _query_of(request.scope)
        given = dict(pairs)
        try:
            if self.places:
                lists = {
                    name: [text for other, text in pairs if other == name] for name in self._lists.intersection(given)
                }
                headers = {name: request.headers[name] for name in self._headers if name in request.headers}
                values = {**given, **lists, **request.scope["path_params"], **headers}
                arguments |= self.model.model_validate(values).__dict__
            if self.query:
                arguments[self.query[0]] = self.query[1].model_validate(given)
        except ValidationError as error:
            raise InvalidRequest("query", error.errors(include_url=False)) from None
        if self.body and not (content is NOTHING or (content is None and self.body.is_optional)):
            try:
                arguments[self.body.name] = self.body.model.model_validate(content)
            except ValidationError as error:
                raise InvalidRequest("body", error.errors(include_url=False)) from None
        elif self.body and not self.body.is_optional:
            raise InvalidRequest("body", [{"type": "missing", "loc": ()}])
        return arguments


def _query_of(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


async def _content_of(request: Request) -> Any:
    """Return what is in the body, ``NOTHING`` if there is none.  Raises InvalidRequest.

    A body of another type than JSON stays as it is: it fits no model.
    """
    body = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not (kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))):
        return body or NOTHING
    try:
        return json.loads(body) if body else NOTHING
    except json.JSONDecodeError as error:
        raise InvalidRequest("body", [{"type": "json_invalid", "loc": (error.pos,)}]) from None
    except (ValueError, RecursionError):
        raise HTTPException(HTTPStatus.BAD_REQUEST) from None


def _is_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, BaseModel)


def names_of(model: type[BaseModel]) -> list[str]:
    """Return the names of the fields of a model in requests."""
    return [info.alias or name for name, info in model.model_fields.items()]


@dataclass(frozen=True)
class Operation:
    """A method of a path: its handler, and what the OpenAPI document says of it."""

    method: str
    path: str
    handler: Callable[..., Any]
    tag: str = ""  #: '' for operations that are not described
    id: str = ""
    summary: str = ""
    status: int = HTTPStatus.OK
    or_status: int | None = None  #: another one of success
    other_statuses: Mapping[int, str] = field(default_factory=dict)  #: further ones of its own, and their meanings
    record: Any = None  #: the type of the answer, if the handler does not return it
    topics: frozenset[Topic] = frozenset()  #: of which the answer depends; empty: of others, too
    exports: bool = False  #: whether the list can also be had as lines
    media_types: Sequence[str] = ()  #: of answers that are not JSON
    has_location: bool = False  #: whether the answer has the address of the created object
    has_tag: bool = True  #: whether the answer to a GET has an ETag

    @property
    def statuses(self) -> Sequence[int]:
        """The statuses of success."""
        return (self.status,) if self.or_status is None else (self.status, self.or_status)

    @property
    def answer(self) -> Any:
        """The type of the answer."""
        if self.record is not None:
            return self.record
        returned = get_type_hints(self.handler, include_extras=True)["return"]
        kinds = get_args(returned) if get_origin(returned) is UnionType else (returned,)
        records = [kind for kind in kinds if not (inspect.isclass(kind) and issubclass(kind, Response))]
        return records[0] if records else Any

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters of the handler."""
        return Parameters(self.handler, self.path, is_get=self.method == "GET")

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request.  Raises InvalidRequest, and the errors of the handler."""
        request = Request(scope, receive, send)
        self.parameters.check_names(scope)
        content = await _content_of(request) if self.parameters.body else NOTHING
        arguments = self.parameters.read(request, content)
        if inspect.iscoroutinefunction(self.handler):
            response: Response = await self.handler(**arguments)
        else:
            response = await in_thread(self._answer, request, arguments)
        await response(scope, receive, send)

    def _answer(self, request: Request, arguments: Mapping[str, Any]) -> Response:
        if self.topics and (known := _answer_if_known(request, self.topics)):
            return known
        record = self.handler(**arguments)
        if isinstance(record, Response):
            return record
        if self.method != "GET":
            return answer(record, status=self.status)
        return list_answer(request, record) if self.exports else answer_unless_known(request, record)


def _answer_if_known(request: Request, topics: frozenset[Topic]) -> Response | None:
    """Return 304, without having read anything, if the client has the answer of the current state.

    Note the tag of the state for the answer.
    """
    if accepts_lines(request):
        return None
    who = asking(request)
    question = (request.url.path, request.url.query, who.caller.user, str(who.caller.scopes), who.privacy)
    managed = who.managed() if "details" in request.query_params else None  # what a manager sees of jobs of others
    tag = service_of(request).state_tags.of(topics, *question, managed, id(who.config))
    request.scope["state"] |= {"asked": who, "state_tag": tag}
    known = map(str.strip, request.headers.get("if-none-match", "").split(","))
    matching = next((text for text in known if tag and text.endswith(f'{MARK}{tag}"')), None)
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=validators(matching)) if matching else None


class Router:
    """The operations of a module, in their order."""

    def __init__(self, tag: str = "") -> None:
        """``tag``: the chapter of the document; '' for operations that are not described."""
        self.operations: list[Operation] = []
        self._tag = tag

    def get(self, path: str, *described: str, **more: Any) -> Callable[[Handler], Handler]:
        """Add a handler; ``described``: operation id and summary; ``more``: fields of ``Operation``."""
        return self._add("GET", path, *described, **more)

    def post(self, path: str, *described: str, **more: Any) -> Callable[[Handler], Handler]:
        return self._add("POST", path, *described, **more)

    def put(self, path: str, *described: str, **more: Any) -> Callable[[Handler], Handler]:
        return self._add("PUT", path, *described, **more)

    def patch(self, path: str, *described: str, **more: Any) -> Callable[[Handler], Handler]:
        return self._add("PATCH", path, *described, **more)

    def delete(self, path: str, *described: str, **more: Any) -> Callable[[Handler], Handler]:
        return self._add("DELETE", path, *described, **more)

    def _add(
        self, method: str, path: str, operation_id: str = "", summary: str = "", **more: Any
    ) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            self.operations.append(Operation(method, path, handler, self._tag, operation_id, summary, **more))
            return handler

        return add


class _Node:
    """A place in the tree of paths: the next segments, and the operations of the path that ends here."""

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.operations: list[Operation] = []
        self.operations_of_rest: list[Operation] = []  #: of paths that end with ``{name:path}``

    def add(self, operation: Operation, segments: Sequence[str]) -> None:
        """Add an operation below this place."""
        if not segments:
            self.operations.append(operation)
        elif segments[0].endswith(":path}"):
            self.operations_of_rest.append(operation)
        elif segments[0].startswith("{"):
            self.parameter = self.parameter or _Node()
            self.parameter.add(operation, segments[1:])
        else:
            self.fixed.setdefault(segments[0], _Node()).add(operation, segments[1:])

    def matching(
        self, segments: Sequence[str], values: tuple[str, ...] = ()
    ) -> Iterator[tuple[Operation, Sequence[str]]]:
        """Yield the operations of a path, with the values of its parameters; fixed segments come first."""
        if not segments:
            yield from ((operation, values) for operation in self.operations)
            return
        if node := self.fixed.get(segments[0]):
            yield from node.matching(segments[1:], values)
        if self.parameter and segments[0]:
            yield from self.parameter.matching(segments[1:], (*values, segments[0]))
        yield from ((operation, (*values, "/".join(segments))) for operation in self.operations_of_rest)


_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


class Routes(BaseRoute):
    """The routes of the application to operations.

    A trailing slash is ignored, without a redirect: clients lose bodies on redirects.
    ``HEAD`` returns the head of the response to ``GET``.
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.all = tuple(operations)
        self._root = _Node()
        for operation in self.all:
            self._root.add(operation, operation.path.split("/"))

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return the operation of a request, else the methods that its path has."""
        if scope["type"] != "http":
            return Match.NONE, {}
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        paths = (scope["path"], scope["path"].rstrip("/"))
        for path in paths if paths[1] else paths[:1]:
            matching = list(self._root.matching(path.split("/")))
            for operation, values in matching:
                if operation.method == method:
                    names = _PARAMETER.findall(operation.path)
                    child_scope = {"operation": operation, "path_params": dict(zip(names, values, strict=True))}
                    return Match.FULL, {**child_scope, "path": path}
            if matching:
                return Match.PARTIAL, {"allowed": {operation.method for operation, _ in matching}}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request.  Raises HTTPException if its path has only other methods, InvalidRequest."""
        if "allowed" in scope:
            methods = scope["allowed"] | ({"HEAD"} if "GET" in scope["allowed"] else set())
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": ", ".join(sorted(methods))})
        if scope["method"] == "HEAD":  # the server looks at its own record of the request, and sends no body
            scope = {**scope, "method": "GET", "is_head": True}
        await scope["operation"].respond(scope, receive, send)
