"""The short way to a handler gives what FastAPI's own way gives."""

import asyncio
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Header, Path, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from oar.api.application import all_routes
from oar.api.responses import answer
from oar.api.routing import ApiRoute, _Parameters

Id = Annotated[int, Path(ge=1, le=2**63 - 1)]


class Listing(BaseModel):
    """A query with several parameters."""

    model_config = ConfigDict(extra="forbid")

    state: Annotated[str | None, Field(max_length=5)] = None
    limit: int | None = Field(None, ge=1)
    details: bool = False


def _app(kind: type[APIRoute]) -> FastAPI:
    router = APIRouter(route_class=kind)

    @router.get("/one/{number}")
    async def one(
        request: Request,
        number: Id,
        *,
        everything: Annotated[bool, Query()] = False,
        wait: Annotated[int, Query(ge=0, le=30)] = 0,
        stays: Annotated[str | None, Query(alias="while", pattern="^[a-z]*$")] = None,
    ) -> Response:
        return answer([request.url.path, number, everything, wait, stays])

    @router.get("/list")
    def listed(_: Request, listing: Annotated[Listing, Query()]) -> Response:
        return answer(listing.model_dump())

    app = FastAPI()
    app.include_router(router)
    return app


@pytest.mark.parametrize(
    "address",
    [
        *("/one/1", "/one/0", "/one/x", "/one/1.0", "/one/%201", "/one/9223372036854775808", "/one/1?everything"),
        *("/one/1?everything=yes", "/one/1?everything=2", "/one/1?wait=3&while=live", "/one/1?wait=31"),
        *("/one/1?wait=", "/one/1?wait=1&wait=2", "/one/1?while=", "/one/1?while=L", "/one/1?odd=1", "/one/1?stays=x"),
        *("/one/1?wait=%2b3", "/one/1?while=%C3%A9", "/one/1?&&", "/one/1?wait=1;while=x"),
        *("/list", "/list?limit=2", "/list?limit=0", "/list?limit=x", "/list?state=abcdef", "/list?state=a+b"),
        *("/list?state=", "/list?odd=1", "/list?details=on&limit=7", "/list?limit=1&limit=2", "/list?details="),
    ],
)
def test_both_ways_give_the_same(address: str) -> None:
    assert asyncio.run(_given(APIRoute, address)) == asyncio.run(_given(ApiRoute, address))


async def _given(kind: type[APIRoute], address: str) -> tuple[int, Any]:
    transport = httpx.ASGITransport(_app(kind))
    async with httpx.AsyncClient(transport=transport, base_url="http://oar") as client:
        found = await client.get(address)
        return found.status_code, found.json()


def test_headers_and_bodies_are_read_in_the_long_way() -> None:
    def with_header(request: Request, match: Annotated[str | None, Header()] = None) -> Any:
        return request, match

    def with_body(request: Request, body: Listing) -> Any:
        return request, body

    assert _Parameters.of(with_header) is None
    assert _Parameters.of(with_body) is None


def test_what_is_asked_most_takes_the_short_way() -> None:
    lean = {
        route.path
        for route in all_routes().all
        if isinstance(route, ApiRoute) and route.methods == {"GET"} and _Parameters.of(route.endpoint)
    }
    assert lean >= {"/v1/jobs", "/v1/jobs/{job_id}", "/v1/jobs/{job_id}/explanation", "/v1/resources", "/v1/nodes"}
