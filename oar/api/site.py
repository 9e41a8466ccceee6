"""The root of the API, versions, the caller, what clients need to know about the site, and the dashboard."""

import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import cast

from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.authentication import outer_path
from oar.api.events import EventListing, event_page
from oar.api.jobs import JobListing, job_page
from oar.api.queues import queue_items
from oar.api.records import ConditionsAndStandby, Event, JobPage, Queue, records_of
from oar.api.resource_states import totals
from oar.api.routing import Operation, Router
from oar.api.service import Asking, asking
from oar.lib.base import disks
from oar.lib.base.version import VERSION
from oar.lib.bus.messages import Topic
from oar.lib.jobs.records import LIVE_STATES
from oar.lib.jobs.states import JobState, QueueState
from oar.lib.nodes.states import ResourceState

router = Router("general")


Link = TypedDict("Link", {"rel": str, "href": str, "title": str})
ApiRoot = TypedDict("ApiRoot", {"oar": str, "api": str, "links": list[Link]})
Version = TypedDict("Version", {"oar": str, "api": str, "time_zone": str, "now": int})
Whoami = TypedDict("Whoami", {"user": str | None, "way": str, "scope": str | None, "is_administrator": bool})


class Site(TypedDict):
    queues: list[str]
    properties: dict[str, str]
    resources: dict[str, int]
    time_zone: str
    templates: list[dict[str, str]]
    queue_notes: dict[str, str]
    default_walltime: int
    features: dict[str, bool]


#: Counts the additions to the interface within /v1.
API_VERSION = "1.1"
#: Descriptions of the API: relation (RFC 8631), address, title.
_DOCUMENTS = (
    ("service-desc", "/openapi.json", "Every operation, for programs"),
    ("service-doc", "/docs", "The same as a page"),
)


@router.get("/v1", "entry", "API root")
def entry(request: Request) -> ApiRoot:
    """Return the addresses of all lists and documents that need no identifier."""
    who = asking(request)
    before = outer_path(request, who.config)
    described = [("self", "/v1", "What there is"), *_DOCUMENTS, *_lists(request.app.state.routes.all)]
    links: list[Link] = [{"rel": rel, "href": before + href, "title": title} for rel, href, title in described]
    return {"oar": VERSION, "api": API_VERSION, "links": links}


def _lists(operations: Iterable[Operation]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, address and title of each operation that reads and needs no parameter."""
    for operation in operations:
        if operation.path.startswith("/v1/") and "{" not in operation.path and operation.method == "GET":
            yield operation.id, operation.path, operation.summary


@router.get("/v1/version", "version", "Versions, time and time zone")
def version(request: Request) -> Version:
    """Return the versions of OAR and of the API."""
    asking(request)
    return {"oar": VERSION, "api": API_VERSION, "time_zone": time.tzname[0], "now": int(time.time())}


@router.get("/v1/whoami", "whoami", "Identity of the caller")
def whoami(request: Request) -> Whoami:
    """Return the authenticated user (null if anonymous) and the authentication method."""
    caller = asking(request).caller
    user = caller.user
    return {
        "user": user.name if user else None,
        "way": caller.way,
        "scope": str(caller.scopes) if user else None,
        "is_administrator": bool(user and user.is_admin),
    }


@router.get("/v1/site", "site", "Site configuration for clients", topics=frozenset({Topic.QUEUES, Topic.RESOURCES}))
def site(request: Request) -> Site:
    """Return queues, resource properties, the time zone, submission templates and enabled features.

    `queue_notes` are the texts of the site file about who may use a queue. `default_walltime` (seconds) is that of jobs
    for which neither the user nor an admission rule sets one.
    """
    who = asking(request)
    config = who.config
    choices = request.app.state.site_file.choices(config.web_conf_file)
    with who.database.snapshot() as tx:
        return {
            "queues": [queue.name for queue in tx.queues.all() if queue.state is not QueueState.ORPHANED],
            "properties": dict(sorted(tx.resources.columns().items())),
            "resources": dict(tx.resources.count_by_type()),
            "time_zone": time.tzname[0],
            "templates": choices.templates,
            "queue_notes": dict(choices.queues),
            "default_walltime": config.default_job_walltime,
            "features": {
                "passwords": config.api_basic_auth != "no",
                "anonymous_read": config.api_anonymous_read,
                "private_accounting": config.api_accounting_private,
                "walltime_changes": config.walltime_change_enabled,
            },
        }


class ResourceTotals(ConditionsAndStandby):
    total: int


UnavailableNode = TypedDict("UnavailableNode", {"node": str, "state": str, "since": int | None})
FullDisk = TypedDict("FullDisk", {"path": str, "free": int, "total": int})


class Capacity(TypedDict):
    total: int
    up: int
    free: int


class Dashboard(TypedDict):
    resources: ResourceTotals
    capacity: dict[str, Capacity]
    queues: list[Queue]
    jobs: JobPage | None
    events: list[Event]
    last_round: int | None
    lost_nodes: list[UnavailableNode]
    full_disks: list[FullDisk]


#: Events that a first look shows.
EVENTS = 8
#: Rows of one's jobs that it shows: of those that have begun so many at most, the newest, and so many of all.
RUNNING, JOBS = 8, 16
#: Suspected nodes that it names, and as many dead ones: those that are so since the shortest time.
LOST_NODES = 20
_LOST = (ResourceState.SUSPECTED, ResourceState.DEAD)
_BEGUN = sorted(LIVE_STATES - {JobState.WAITING, JobState.HOLD, JobState.TO_ACK_RESERVATION, JobState.TO_ERROR})
_MINE = {"user": "me", "details": True, "outlook": True, "newest_first": True, "fold": True}


@router.get("/v1/dashboard", "dashboard", "Cluster status and the caller's jobs")
def dashboard(request: Request) -> Dashboard:
    """Return resource counts by state, the queues, the caller's newest jobs and the last events.

    `capacity` counts `nodes`, and `cores` and `gpus` if resources have these properties; a node is free if all of it
    is. `lost_nodes` lists nodes that are suspected or dead, with the date of the change. `jobs` is not paginated: its
    `next` is null.
    """
    return dashboard_record(asking(request))


def dashboard_record(who: Asking) -> Dashboard:
    """Return the dashboard; ``jobs`` is null for anonymous callers, ``last_round`` before the first pass.

    ``lost_nodes``: those that are suspected or dead, and since when, ``LOST_NODES`` of each state at most.
    ``full_disks`` is for administrators: the disks of the log and of what the service keeps.
    """
    with who.database.snapshot() as tx:
        capacity = tx.listings.capacity(tx.resources.columns())
        last_round = tx.usage.last_round()
        lost = [node for state in _LOST for node in tx.listings.out_of_use([state])[:LOST_NODES]]
    return {
        "resources": cast("ResourceTotals", totals(who)),
        "capacity": {kind: cast("Capacity", numbers._asdict()) for kind, numbers in capacity.items()},
        "queues": queue_items(who),
        "jobs": _mine(who) if who.caller.user else None,
        "events": event_page(who, EventListing.model_validate({"limit": EVENTS}))["items"],
        "last_round": last_round or None,
        "lost_nodes": [{"node": node, "state": state, "since": since or None} for node, state, since in lost],
        "full_disks": records_of(_full_disks(who), FullDisk),
    }


def _mine(who: Asking) -> JobPage:
    """Return the newest jobs of the caller: first those that have started, so that waiting jobs do not hide them.

    There is no next page: two lists are merged.
    """
    begun = job_page(who, JobListing.of({**_MINE, "state": ",".join(_BEGUN), "limit": RUNNING}))["items"]
    page = job_page(who, JobListing.of({**_MINE, "total": True, "limit": JOBS}))
    shown = {job["id"] for job in begun}
    items = [*begun, *(job for job in page["items"] if job["id"] not in shown)][:JOBS]
    return {**page, "items": items, "next": None}


def _full_disks(who: Asking) -> list[disks.FullDisk]:
    if not (who.caller.user and who.caller.user.is_admin):
        return []
    kept = os.environ.get("CACHE_DIRECTORY", "").split(":")[0]
    return disks.nearly_full(filter(None, [os.path.dirname(who.config.log_file), kept, tempfile.gettempdir()]))
