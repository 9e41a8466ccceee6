"""The application: its routes, what stands round each of them, what begins and ends with it."""

import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from fastapi import FastAPI, Request
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oar.api import accounting as usage
from oar.api import administration_ as administration
from oar.api import (
    admission_rules,
    dashboard,
    desktop,
    errors,
    fair_share,
    general,
    history_,
    job_actions,
    job_arrays,
    job_output,
    maintenance,
    metrics,
    node_changes,
    old_pages,
    pages,
    properties,
    queues,
    reference,
    reservation_changes,
    resource_states,
    sessions,
    site,
    usersets,
)
from oar.api import gantt_ as gantt
from oar.api import job_details as job_parts
from oar.api import jobs_ as jobs
from oar.api import nodes_ as nodes
from oar.api import reservations_ as reservations
from oar.api import stream as history
from oar.api.administration import accounting, rounds, server_control
from oar.api.authentication import SAFE_METHODS, outer_path
from oar.api.clients import find_client
from oar.api.gantt import curve as gantt_curve
from oar.api.gantt import layers as gantt_layers
from oar.api.gantt import strip as gantt_strip
from oar.api.jobs import bulk, walltimes
from oar.api.legacy.routes import FIRST_WORDS, LegacyRoute
from oar.api.middleware import OtherOrigins
from oar.api.nodes import chosen_properties, groups, resources
from oar.api.nodes import history as node_history
from oar.api.openapi import description
from oar.api.request_limits import Gate
from oar.api.request_metrics import RequestCounts
from oar.api.reservations import events as reservation_events
from oar.api.responses import REVALIDATED
from oar.api.routing.head import asked_in, with_headers
from oar.api.routing.mount import Mount
from oar.api.routing.routes import Routes
from oar.api.service import Service
from oar.api.serving.timings import SPENT, Spent
from oar.lib.facts.version import VERSION

if TYPE_CHECKING:
    from oar.lib.config.files import Config

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
#: Headers of every answer, and those that an answer may have of its own.
_ALWAYS = {b"x-content-type-options": b"nosniff", b"vary": b"Accept, Authorization, Cookie, Accept-Encoding, Origin"}
_BY_DEFAULT = {b"cache-control": REVALIDATED.encode()}
#: Newer versions of FastAPI measure each request for OpenTelemetry: ours are counted in ``metrics``.
_TOLD_TO_NOBODY: Any = {"tracing": False, "metrics": False, "logs": False, "operation_spans": False}
#: Smaller answers are not worth packing.
_PACKED_FROM = 1024


def application(service: Service) -> FastAPI:
    """Return the application that a service is told through."""
    app = FastAPI(
        title="OAR",
        version=VERSION,
        summary="Jobs, nodes and reservations of a cluster.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_life,
        telemetry=_TOLD_TO_NOBODY,
    )
    app.state.service = service
    app.state.metrics = metrics.Metrics(service)
    routes = all_routes()
    app.router.routes += [routes, LegacyRoute()]
    app.openapi = partial(description, app, routes.all)  # type: ignore[method-assign]
    errors.install(app)
    app.add_middleware(Packing, minimum_size=_PACKED_FROM, compresslevel=1)
    app.add_middleware(Gate, config=lambda: service.runtime.config, places=service.places)
    app.add_middleware(OtherOrigins, config=lambda: service.runtime.config)
    app.add_middleware(
        Frame,
        counts=service.requests,
        changed=service.state_tags.count_change,
        config=lambda: service.runtime.config,
    )
    own_words = FIRST_WORDS | {route.path.split("/")[1] for route in routes.all}
    app.add_middleware(Mount, config=lambda: service.runtime.config, own_words=own_words)
    return app


def all_routes() -> Routes:
    """Return the routes, in the order in which they are asked and described."""
    # A word such as ``events`` stands before the number in the same place.
    of_reservations = (reservation_events, reservations, reservation_changes)
    state = (
        general,
        site,
        dashboard,
        nodes,
        resources,
        node_history,
        resource_states,
        chosen_properties,
        groups,
        *of_reservations,
        gantt,
        gantt_curve,
        gantt_strip,
        gantt_layers,
        usage,
        fair_share,
        history,
        history_,
        rounds,
    )
    beside_jobs = (job_actions.arrays, job_actions.batches, job_actions.estimates, bulk.router)
    of_jobs = (
        jobs.router,
        job_parts.router,
        walltimes.router,
        job_arrays.router,
        job_actions.router,
        *beside_jobs,
        job_output.router,
        desktop.router,
    )
    of_administrators = (
        queues,
        properties,
        node_changes,
        maintenance,
        admission_rules,
        usersets,
        accounting,
        server_control,
        administration,
    )
    routers = (*(each.router for each in (*state, *of_administrators)), *of_jobs, sessions.router)
    others = (general.health, metrics.router, reference.router, old_pages.router, pages.router)
    return Routes([each for router in (*routers, *others) for each in router.routes if isinstance(each, Route)])


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    limiter = anyio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = service.runtime.config.api_threads
    service.hub.start()
    service.chunks_ahead.start()
    yield
    await anyio.to_thread.run_sync(service.chunks_ahead.stop)


class Frame:
    """What stands round each request: its id, the headers of its answer, what is counted of it."""

    def __init__(
        self, app: ASGIApp, counts: RequestCounts, changed: Callable[[], None], config: "Callable[[], Config]"
    ) -> None:
        """``changed``: called before the answer to a request that may have changed something."""
        self._app = app
        self._counts = counts
        self._changed = changed
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = asked_in(scope).get(b"x-request-id", b"")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8).encode()
        state = scope.setdefault("state", {})
        state["request_id"] = request_id.decode()
        state["client"] = find_client(scope, self._config())
        spent = Spent()
        SPENT.set(spent)

        async def send_framed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._counts.count(scope, message["status"], spent)
                if scope["method"] not in SAFE_METHODS:
                    self._changed()
                more = {**_ALWAYS, b"x-request-id": request_id, b"server-timing": spent.header.encode()}
                if allowance := state.get("allowance"):
                    more |= {name.lower().encode(): value.encode() for name, value in allowance.headers.items()}
                message = with_headers(message, more | self._place(scope, message), _BY_DEFAULT)
            await send(message)

        await self._app(scope, receive, send_framed)

    def _place(self, scope: Scope, message: Message) -> dict[bytes, bytes]:
        """Return the address of what was made as it is outside; handlers know only what stands behind the prefix."""
        place = b"" if scope["method"] in SAFE_METHODS else dict(message["headers"]).get(b"location", b"")
        if not place.startswith(b"/v1/"):
            return {}
        return {b"location": outer_path(Request(scope), self._config()).encode() + place}


class Packing(GZipMiddleware):
    """Packs the answers to who takes them packed; the others do not pass through it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and b"gzip" in asked_in(scope).get(b"accept-encoding", b""):
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, send)
