"""The application: its routes, its middleware, and the threads that it starts and stops."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, FastAPI
from starlette.routing import Route

from oar.api import (
    accounting,
    administration,
    admission_rules,
    dashboard,
    desktop,
    errors,
    estimates,
    fair_share,
    gantt,
    health,
    history,
    job_actions,
    job_alteration,
    job_arrays,
    job_details,
    job_output,
    jobs,
    maintenance,
    metrics,
    node_changes,
    nodes,
    old_pages,
    openapi,
    pages,
    properties,
    queues,
    reservation_changes,
    reservation_requests,
    reservations,
    resource_states,
    sessions,
    site,
    stream,
    submission,
    usersets,
)
from oar.api.legacy.routes import FIRST_WORDS, LegacyRoute
from oar.api.middleware import Frame, Mount, OtherOrigins, Packing
from oar.api.openapi import description
from oar.api.request_limits import Gate
from oar.api.routing import Routes
from oar.api.service import Service
from oar.lib.base.version import VERSION
from oar.web.documents import Documents
from oar.web.site_file import SiteFile

#: The modules with routes.  Where two routes match a request, the first one answers it.
MODULES = (
    site,
    health,
    dashboard,
    nodes,
    resource_states,
    queues,
    properties,
    node_changes,
    maintenance,
    reservations,
    reservation_changes,
    reservation_requests,
    gantt,
    accounting,
    fair_share,
    stream,
    history,
    admission_rules,
    usersets,
    administration,
    jobs,
    job_details,
    job_arrays,
    submission,
    job_actions,
    job_alteration,
    estimates,
    job_output,
    desktop,
    sessions,
    metrics,
    openapi,
    old_pages,
    pages,
)

#: Newer versions of FastAPI measure each request for OpenTelemetry: ours are counted in ``metrics``.
_NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False, "operation_spans": False}
#: Smaller answers are not worth packing.
_MIN_COMPRESSED_SIZE = 1024


def application(service: Service) -> FastAPI:
    """Return the application of a service."""
    app = FastAPI(
        title="OAR",
        version=VERSION,
        summary="Jobs, nodes and reservations of a cluster.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_life,
        telemetry=_NO_TELEMETRY,
    )
    app.state.service = service
    app.state.documents = Documents()
    app.state.site_file = SiteFile()
    app.state.metrics = metrics.metrics_registry(service)
    routes = all_routes()
    app.router.routes += [routes, LegacyRoute()]
    app.openapi = partial(description, app, routes.all)  # type: ignore[method-assign]
    errors.install(app)
    app.add_middleware(Packing, minimum_size=_MIN_COMPRESSED_SIZE, compresslevel=1)
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
    """Return the routes in the order in which they are matched and documented."""
    routers = (value for module in MODULES for value in vars(module).values() if isinstance(value, APIRouter))
    return Routes([route for router in routers for route in router.routes if isinstance(route, Route)])


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    limiter = anyio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = service.runtime.config.api_threads
    service.hub.start()
    service.chunks_ahead.start()
    yield
    await anyio.to_thread.run_sync(service.chunks_ahead.stop)
