"""What the service is, who is asking, and whether it is well."""

import time
from collections.abc import Iterable, Iterator

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from oar.api.authentication import outer_path
from oar.api.responses import Answer, answer, answer_unless_known
from oar.api.routing import ApiRoute, Routes
from oar.api.service import asking, service_of
from oar.lib.db.sql.lock_keys import SERVER_LOCK
from oar.lib.facts.errors import DatabaseUnavailable
from oar.lib.facts.version import VERSION, explain_schema_mismatch

router = APIRouter(tags=["general"], route_class=ApiRoute)
health = APIRouter(tags=["health"], route_class=ApiRoute)

#: Counts the additions to the interface within /v1.
API_VERSION = "1.1"
#: What describes the interface: relation (RFC 8631), address, title.
_DOCUMENTS = (
    ("service-desc", "/openapi.json", "Every operation, for programs"),
    ("service-doc", "/docs", "The same as a page"),
)
#: Seconds without a look at the database after which the feed counts as stuck.
LONGEST_LOOK = 30.0


@router.get("/v1", operation_id="entry", summary="API root")
def entry(request: Request) -> Answer:
    """Return the addresses of all lists and documents that need no identifier."""
    who = asking(request)
    before = outer_path(request, who.config)
    described = [("self", "/v1", "What there is"), *_DOCUMENTS, *_lists(request.app.router.routes)]
    links = [{"rel": rel, "href": before + href, "title": title} for rel, href, title in described]
    return answer_unless_known(request, {"oar": VERSION, "api": API_VERSION, "links": links})


def _lists(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str, str]]:
    """Give the name, the address and a title of each operation that reads and needs no parameter."""
    known = [route for each in routes if isinstance(each, Routes) for route in each.all if isinstance(route, APIRoute)]
    for route in known:
        if route.path.startswith("/v1/") and "{" not in route.path and "GET" in (route.methods or ()):
            yield route.operation_id or route.name, route.path, route.summary or ""


@router.get("/v1/version", operation_id="version", summary="Versions, time and time zone")
def version(request: Request) -> Answer:
    """Return the versions of OAR and of the API."""
    asking(request)
    record = {"oar": VERSION, "api": API_VERSION, "time_zone": time.tzname[0], "now": int(time.time())}
    return answer_unless_known(request, record)


@router.get("/v1/whoami", operation_id="whoami", summary="Identity of the caller")
def whoami(request: Request) -> Answer:
    """Return the authenticated user (null if anonymous) and the authentication method."""
    caller = asking(request).caller
    user = caller.user
    record = {
        "user": user.name if user else None,
        "way": caller.way,
        "scope": str(caller.scopes) if user else None,
        "is_administrator": bool(user and user.is_admin),
    }
    return answer_unless_known(request, record)


@health.get("/health/live", operation_id="health_live", summary="Liveness check")
async def live() -> Answer:
    """Return 200 while the process runs; no other component is checked."""
    return answer({"status": "ok"})


@health.get("/health/ready", operation_id="health_ready", summary="Readiness check")
def ready(request: Request) -> Answer:
    """Return the state of the database, the event feed, the workers and the threads; 503 if not ready.

    `server` is the state of the OAR server. Jobs can be submitted while it is down.
    """
    service = service_of(request)
    hub = service.hub
    try:
        with service.runtime.database.snapshot() as tx:
            mismatch, last_round = explain_schema_mismatch(tx.schema_version.find()), tx.usage.last_round()
            server: dict[str, bool | int | None] = {
                "running": bool(tx.advisory_locks.holder(SERVER_LOCK)),
                "round_age": tx.now - last_round if last_round else None,
            }
        database = "ok"
    except DatabaseUnavailable:
        mismatch, database, server = "unknown", "unreachable", {"running": None, "round_age": None}
    age = time.monotonic() - hub.told_at
    feed = {"mode": "notify" if hub.is_told else "poll", "lag": round(age, 1), "is_well": age < LONGEST_LOOK}
    is_ready = database == "ok" and not mismatch
    config = service.runtime.config
    record = {
        "database": database,
        "schema": "another version" if mismatch else "ok",
        "feed": feed,
        "workers": {"idle": service.workers.idle, "all": config.api_submission_workers},
        "threads": {"busy": service.requests.threads_busy, "all": config.api_threads},
        "server": server,
    }
    return answer(record, status=200 if is_ready else 503)
