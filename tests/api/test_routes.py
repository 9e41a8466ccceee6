"""Operations: which one answers a request, and how its parameters and its body are read."""

import asyncio
import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from starlette.routing import Match

from oar.api.errors import InvalidRequest
from oar.api.parameters import Header
from oar.api.responses import answer
from oar.api.routing import Router, Routes

Id = Annotated[int, Field(ge=1, le=2**63 - 1)]
router = Router()


class Listing(BaseModel):
    """A query with several parameters."""

    model_config = ConfigDict(extra="forbid")

    state: Annotated[str | None, Field(max_length=5)] = None
    limit: int | None = Field(None, ge=1)


class Change(BaseModel):
    """A body."""

    model_config = ConfigDict(extra="forbid", strict=True)

    number: int


@router.get("/v1/things")
async def listed(listing: Listing) -> Response:
    return answer(listing.model_dump())


@router.get("/v1/things/{thing}")
async def one(
    thing: Id,
    everything: bool = False,
    stays: Annotated[str | None, Field(alias="while", max_length=3)] = None,
    props: Annotated[list[str], Field(max_length=2)] = [],  # noqa: B006
    match: Annotated[str | None, Header(), Field(alias="If-Match")] = None,
) -> Response:
    return answer([thing, everything, stays, props, match])


@router.patch("/v1/things/{thing}")
async def changed(thing: Id, body: Change) -> Response:
    return answer([thing, body.number])


@router.post("/v1/things/{thing}")
async def maybe_changed(thing: Id, body: Change | None = None) -> Response:
    return answer([thing, body and body.number])


@router.post("/v1/things/trial")
async def tried() -> Response:
    return answer("trial")


@router.get("/older/{name}")
async def older(name: str) -> Response:
    return answer(name)


@router.get("/files/{version}/{name:path}")
async def file(version: str, name: str) -> Response:
    return answer([version, name])


ROUTES = Routes(router.operations)


def _answer(method: str, path: str, body: bytes = b"", *headers: tuple[str, str]) -> Any:
    """Return what a handler answers, the first fault of a request, or the methods of the path; None for no path."""
    path, _, query = path.partition("?")
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode()}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in headers]
    match, more = ROUTES.matches(scope)
    if match is not Match.FULL:
        return more.get("allowed")
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    try:
        asyncio.run(ROUTES.handle({**scope, **more}, receive, send))
    except InvalidRequest as error:
        return error.place, error.faults[0]["type"], error.faults[0]["loc"]
    return json.loads(sent[1]["body"])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/things/1", [1, False, None, [], None]),
        ("/v1/things/1/", [1, False, None, [], None]),
        ("/v1/things/%201", ("query", "int_parsing", ("thing",))),
        ("/v1/things/0", ("query", "greater_than_equal", ("thing",))),
        ("/v1/things/9223372036854775808", ("query", "less_than_equal", ("thing",))),
        ("/v1/things/1?everything=yes&while=%2b3", [1, True, "+3", [], None]),
        ("/v1/things/1?everything", ("query", "bool_parsing", ("everything",))),
        ("/v1/things/1?while=", [1, False, "", [], None]),
        ("/v1/things/1?while=a&while=b", [1, False, "b", [], None]),
        ("/v1/things/1?stays=x", ("query", "extra_forbidden", ("stays",))),
        ("/v1/things/1?If-Match=x", ("query", "extra_forbidden", ("If-Match",))),
        ("/v1/things/1?thing=2", ("query", "extra_forbidden", ("thing",))),
        ("/v1/things/1?props=a&props=b", [1, False, None, ["a", "b"], None]),
        ("/v1/things/1?props=a&props=b&props=c", ("query", "too_long", ("props",))),
        ("/v1/things?limit=2&state=a+b", {"state": "a b", "limit": 2}),
        ("/v1/things?limit=0", ("query", "greater_than_equal", ("limit",))),
        ("/v1/things?odd=1&limit=0", ("query", "extra_forbidden", ("odd",))),
        ("/older/a?odd=1", "a"),
        ("/files/1/a/b", ["1", "a/b"]),
        ("/older/", None),
        ("//", None),
        ("", None),
    ],
)
def test_parameters_are_read_by_their_types(path: str, expected: Any) -> None:
    assert _answer("GET", path) == expected


def test_a_header_is_read_by_its_name() -> None:
    assert _answer("GET", "/v1/things/1", b"", ("if-match", '"7"'))[-1] == '"7"'


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b'{"number": 3}', "application/json; charset=utf-8", [1, 3]),
        (b'{"number": 3}', "application/merge-patch+json", [1, 3]),
        (b'{"number": 3}', "text/plain", ("body", "model_type", ())),
        (b'{"number": 3}', "", ("body", "model_type", ())),
        (b'{"number": "3"}', "application/json", ("body", "int_type", ("number",))),
        (b'{"number": 3, "odd": 1}', "application/json", ("body", "extra_forbidden", ("odd",))),
        (b'{"number": ', "application/json", ("body", "json_invalid", (11,))),
        (b"null", "application/json", ("body", "model_type", ())),
        (b"", "application/json", ("body", "missing", ())),
    ],
)
def test_a_body_is_read_by_its_model(body: bytes, kind: str, expected: Any) -> None:
    assert _answer("PATCH", "/v1/things/1", body, *([("content-type", kind)] if kind else [])) == expected


def test_a_body_may_be_left_out_where_the_handler_has_a_default() -> None:
    assert _answer("POST", "/v1/things/1") == [1, None]
    assert _answer("POST", "/v1/things/1", b"null", ("content-type", "application/json")) == [1, None]


def test_fixed_words_come_before_parameters_and_each_method_counts_for_itself() -> None:
    assert _answer("POST", "/v1/things/trial") == "trial"
    assert _answer("GET", "/v1/things/trial") == ("query", "int_parsing", ("thing",))
    assert _answer("DELETE", "/v1/things/trial") == {"GET", "PATCH", "POST"}
    assert _answer("HEAD", "/v1/things")["limit"] is None


def test_other_protocols_than_http_have_no_route() -> None:
    assert ROUTES.matches({"type": "websocket", "path": "/v1/things"}) == (Match.NONE, {})
