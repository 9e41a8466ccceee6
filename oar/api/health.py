"""Health checks: is the process alive, can it serve."""

import time

from fastapi import APIRouter, Request

from oar.api.responses import Answer, answer
from oar.api.routing import ApiRoute
from oar.api.service import service_of
from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.base.version import explain_schema_mismatch
from oar.lib.db.lock_keys import SERVER_LOCK

router = APIRouter(tags=["health"], route_class=ApiRoute)


#: Seconds without a look at the database after which the feed counts as stuck.
MAX_FEED_AGE = 30.0


@router.get("/health/live", operation_id="health_live", summary="Liveness check")
async def live() -> Answer:
    """Return 200 while the process runs; no other component is checked."""
    return answer({"status": "ok"})


@router.get("/health/ready", operation_id="health_ready", summary="Readiness check")
def ready(request: Request) -> Answer:
    """Return the state of the database, the event feed, the workers and the threads; 503 if not ready.

    `server` is the state of the OAR server. Jobs can be submitted while it is down.
    """
    service = service_of(request)
    hub = service.hub
    try:
        with service.runtime.database.snapshot() as tx:
            mismatch, last_round = explain_schema_mismatch(tx.system.schema_version()), tx.usage.last_round()
            server: dict[str, bool | int | None] = {
                "running": bool(tx.system.lock_holder(SERVER_LOCK)),
                "round_age": tx.now - last_round if last_round else None,
            }
        database = "ok"
    except DatabaseUnavailable:
        mismatch, database, server = "unknown", "unreachable", {"running": None, "round_age": None}
    age = time.monotonic() - hub.checked_at
    feed = {"mode": "notify" if hub.reports_changes else "poll", "lag": round(age, 1), "is_well": age < MAX_FEED_AGE}
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
