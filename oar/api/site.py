"""The root of the API, versions, the caller, and what clients need to know about the site."""

import time
from collections.abc import Iterable, Iterator

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from oar.api.authentication import outer_path
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute, Routes
from oar.api.service import asking
from oar.lib.base.version import VERSION
from oar.lib.jobs.states import QueueState

router = APIRouter(tags=["general"], route_class=ApiRoute)

#: Counts the additions to the interface within /v1.
API_VERSION = "1.1"
#: Descriptions of the API: relation (RFC 8631), address, title.
_DOCUMENTS = (
    ("service-desc", "/openapi.json", "Every operation, for programs"),
    ("service-doc", "/docs", "The same as a page"),
)


@router.get("/v1", operation_id="entry", summary="API root")
def entry(request: Request) -> Answer:
    """Return the addresses of all lists and documents that need no identifier."""
    who = asking(request)
    before = outer_path(request, who.config)
    described = [("self", "/v1", "What there is"), *_DOCUMENTS, *_lists(request.app.router.routes)]
    links = [{"rel": rel, "href": before + href, "title": title} for rel, href, title in described]
    return answer_unless_known(request, {"oar": VERSION, "api": API_VERSION, "links": links})


def _lists(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, address and title of each operation that reads and needs no parameter."""
    api_routes = [
        route for group in routes if isinstance(group, Routes) for route in group.all if isinstance(route, APIRoute)
    ]
    for route in api_routes:
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


@router.get("/v1/site", operation_id="site", summary="Site configuration for clients")
def site(request: Request) -> Answer:
    """Return queues, resource properties, the time zone, submission templates and enabled features."""
    who = asking(request)
    config = who.config
    templates = request.app.state.site_file.choices(config.web_conf_file).templates
    with who.database.snapshot() as tx:
        record = {
            "queues": [queue.name for queue in tx.queues.all() if queue.state is not QueueState.ORPHANED],
            "properties": dict(sorted(tx.resources.columns().items())),
            "resources": dict(tx.resources.count_by_type()),
            "time_zone": time.tzname[0],
            "templates": templates,
            "features": {
                "passwords": config.api_basic_auth != "no",
                "anonymous_read": config.api_anonymous_read,
                "private_accounting": config.api_accounting_private,
                "walltime_changes": config.walltime_change_enabled,
            },
        }
    return answer_unless_known(request, record)
