"""The route that answers a request is the first that matches, and few are tried to find it."""

import re
from functools import cache

import pytest
from starlette.routing import Match, Route
from starlette.types import Scope

from oar.api.application import all_routes

ROUTES = all_routes()
#: Routes that are tried at most for one address.
MOST_TRIED = 12
METHODS = "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE"
#: What stands in the place of a parameter.
WORDS = "7", "a%b", "jobs", "", " ", "{job_id}", "..", "é"
#: Addresses of no route, or of one by accident.
STRANGE = "", "/", "//", "/v1", "/v1/", "//v1/jobs", "/v1/jobs/", "/v1//jobs", "/v2/jobs", "/V1/jobs", "/jobs/7", "/ui/"


def _scope(method: str, path: str) -> Scope:
    return {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}


def _addresses() -> list[str]:
    """Addresses of every route, with each word in the place of its parameters, and others close to them."""
    paths = {word.join(re.split(r"\{[^}]*\}", route.path)) for route in ROUTES.all for word in WORDS}
    near = {path + more for path in paths for more in ("/", "/x", "/x/y")}
    return sorted({*paths, *near, *STRANGE})


@cache
def _matching(path: str) -> list[Route]:
    """Return the routes that match a path, for any method."""
    return [route for route in ROUTES.all if route.matches(_scope("GET", path))[0] is not Match.NONE]


def _expected(method: str, path: str) -> tuple[Match, Route | None, set[str] | None]:
    """Return the route that takes a request if all are tried, else the methods of those that take others."""
    scope = _scope("GET" if method == "HEAD" else method, path)
    found = [(route.matches(scope)[0], route) for route in _matching(path)]
    if full := [route for match, route in found if match is Match.FULL]:
        return Match.FULL, full[0], None
    if partial := [route for match, route in found if match is Match.PARTIAL]:
        return Match.PARTIAL, None, {each for route in partial for each in route.methods or ()}
    if path.endswith("/") and path != "/":
        return _expected(method, path.rstrip("/"))
    return Match.NONE, None, None


@pytest.mark.parametrize("method", METHODS)
def test_the_route_is_the_one_that_is_found_if_all_are_tried(method: str) -> None:
    for path in _addresses():
        match, found = ROUTES.matches(_scope(method, path))
        assert (match, found.get("route"), found.get("allowed")) == _expected(method, path), path


def test_few_routes_are_tried_for_an_address() -> None:
    assert len(ROUTES.all) > 10 * MOST_TRIED / 2
    tried = {path: len(ROUTES.candidates(path)) for path in _addresses()}
    assert max(tried.values()) <= MOST_TRIED, max(tried, key=lambda path: tried[path])


def test_other_protocols_than_http_have_no_route() -> None:
    assert ROUTES.matches({"type": "websocket", "path": "/v1/stream"}) == (Match.NONE, {})
