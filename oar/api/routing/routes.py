"""Which route answers a request: found by the words of its address, without a try of every route."""

from collections.abc import Iterator, Sequence
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from oar.api.parameters import reject_unknown_parameters

#: What a fixed word of an address never begins with.
_PARAMETER = "{"
#: First words by which routes are told apart: ``/v1/jobs``.
_TOLD_APART = 2

#: How many words an address has, and the first ones.
Key = tuple[int, tuple[str, ...]]


class Routes(BaseRoute):
    """Routes that are asked as if one after the other, the first one first; only those are that can match.

    A slash at the end of an address changes nothing, and nobody is sent elsewhere: clients lose bodies on the way.
    ``HEAD`` is answered as ``GET``, by the head of that answer.

    An address of a route has as many words as the request has, the same first ones, and the same last one if that is
    fixed, but for routes that take several words at once or begin with a parameter: these are always asked.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self.all = tuple(routes)
        keys = [_key_of(route) for route in self.all]
        self._always = self._chosen(keys, None)
        known = [key for key in keys if key]
        # Of the requests whose last word no route has, only routes that end with a parameter can answer.
        self._by_key = {(key, last): self._chosen(keys, key, last) for key, end in known for last in (end, None)}

    def candidates(self, path: str) -> Sequence[Route]:
        """Return the routes that can match the path of a request, in their order."""
        words = path.split("/")
        key = _key(words)
        return self._by_key.get((key, words[-1])) or self._by_key.get((key, None), self._always)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return the first route that takes a request, else the first one that takes only other methods."""
        if scope["type"] != "http":
            return Match.NONE, {}
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        match, found = self._match(asked)
        path = scope["path"]
        if match is Match.NONE and path.endswith("/") and path != "/":
            shorter = path.rstrip("/")
            match, found = self._match({**asked, "path": shorter})
            found = {**found, "path": shorter} if found else found
        return match, found

    def _match(self, scope: Scope) -> tuple[Match, Scope]:
        methods: set[str] = set()
        for route in self.candidates(scope["path"]):
            match, found = route.matches(scope)
            if match is Match.FULL:
                return match, {**found, "route": route}
            if match is Match.PARTIAL:
                methods |= route.methods or set()
        return (Match.PARTIAL, {"allowed": methods}) if methods else (Match.NONE, {})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by the route that was found.

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
    """Return the key of all addresses of a route, and their last word if it is fixed; None if they have several."""
    words = route.path.split("/")
    takes_several = any(word.startswith(_PARAMETER) and word.endswith(":path}") for word in words)
    begins_with_one = any(_PARAMETER in word for word in words[1 : 1 + _TOLD_APART])
    if takes_several or begins_with_one:
        return None
    return _key(words), None if _PARAMETER in words[-1] else words[-1]


def _key(words: Sequence[str]) -> Key:
    return len(words), tuple(words[1 : 1 + _TOLD_APART])
