"""The application: its routes, its middleware, and the threads that it starts and stops."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
from starlette.applications import Starlette

from oar.api import (
    accounting,
    administration,
    apps,
    audit,
    desktop,
    errors,
    estimates,
    events,
    gantt,
    job_actions,
    job_alteration,
    job_output,
    jobs,
    limits,
    me,
    metrics,
    node_changes,
    nodes,
    openapi,
    pages,
    projects,
    properties,
    queues,
    reservation_changes,
    reservation_requests,
    reservations,
    resource_states,
    sessions,
    site,
    submission,
)
from oar.api.legacy import old_pages
from oar.api.legacy.routes import FIRST_WORDS, LegacyRoute
from oar.api.middleware import Frame, Gate, Mount, OtherOrigins, Packing
from oar.api.routing import Router, Routes
from oar.api.service import Service
from oar.web.documents import Documents
from oar.web.site_file import SiteFile

#: The modules with routes.  Where two routes match a request, the first one answers it.
MODULES = (
    site,
    nodes,
    resource_states,
    queues,
    properties,
    node_changes,
    reservations,
    reservation_changes,
    reservation_requests,
    gantt,
    accounting,
    limits,
    me,
    events,
    administration,
    audit,
    projects,
    jobs,
    submission,
    job_actions,
    job_alteration,
    estimates,
    job_output,
    apps,
    desktop,
    sessions,
    metrics,
    openapi,
    old_pages,
    pages,
)

#: Smaller answers are not worth packing.
_MIN_COMPRESSED_SIZE = 1024


def application(service: Service) -> Starlette:
    """Return the application of a service."""
    routes = all_routes()
    app = Starlette(routes=[routes, LegacyRoute()], lifespan=_life)
    app.state.service = service
    app.state.documents = Documents()
    app.state.site_file = SiteFile()
    app.state.metrics = metrics.metrics_registry(service)
    app.state.routes = routes
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
    own_words = FIRST_WORDS | {operation.path.split("/")[1] for operation in routes.all}
    app.add_middleware(Mount, config=lambda: service.runtime.config, own_words=own_words)
    return app


def all_routes() -> Routes:
    """Return the routes in the order in which they are matched and documented."""
    routers = (value for module in MODULES for value in vars(module).values() if isinstance(value, Router))
    return Routes(operation for router in routers for operation in router.operations)


@asynccontextmanager
async def _life(app: Starlette) -> AsyncIterator[None]:
    service: Service = app.state.service
    limiter = anyio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = service.runtime.config.api_threads
    service.hub.start()
    service.chunks_ahead.start()
    yield
    await anyio.to_thread.run_sync(service.chunks_ahead.stop)
