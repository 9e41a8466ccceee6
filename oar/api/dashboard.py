"""The dashboard: the state of the cluster and the caller's jobs in one response."""

import os
import tempfile
from typing import Any

from fastapi import APIRouter, Request

from oar.api.history import EventListing, event_page
from oar.api.jobs import JobListing, job_page
from oar.api.queues import queues_record
from oar.api.resource_states import totals
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking
from oar.lib.base.disks import FullDisk, nearly_full
from oar.lib.jobs.records import LIVE_STATES
from oar.lib.jobs.states import JobState
from oar.lib.nodes.states import ResourceState

router = APIRouter(tags=["general"], route_class=ApiRoute)

#: Events that a first look shows.
EVENTS = 8
#: Rows of one's jobs that it shows: of those that have begun so many at most, the newest, and so many of all.
RUNNING, JOBS = 8, 16
#: Suspected nodes that it names, and as many dead ones: those that are so since the shortest time.
LOST_NODES = 20
_LOST = (ResourceState.SUSPECTED, ResourceState.DEAD)
_BEGUN = sorted(LIVE_STATES - {JobState.WAITING, JobState.HOLD, JobState.TO_ACK_RESERVATION, JobState.TO_ERROR})
_MINE = {"user": "me", "details": True, "outlook": True, "newest_first": True, "fold": True}


@router.get("/v1/dashboard", operation_id="dashboard", summary="Cluster status and the caller's jobs")
def dashboard(request: Request) -> Answer:
    """Return resource counts by state, the queues, the caller's newest jobs and the last events.

    `lost_nodes` lists nodes that are suspected or dead, with the date of the change. `jobs` is not paginated: its
    `next` is null.
    """
    return answer_unless_known(request, dashboard_record(asking(request)))


def dashboard_record(who: Asking) -> dict[str, object]:
    """Return the dashboard; ``jobs`` is null for anonymous callers, ``last_round`` before the first pass.

    ``lost_nodes``: those that are suspected or dead, and since when, ``LOST_NODES`` of each state at most.
    ``full_disks`` is for administrators: the disks of the log and of what the service keeps.
    """
    with who.database.snapshot() as tx:
        last_round = tx.usage.last_round()
        lost = [node for state in _LOST for node in tx.listings.out_of_use([state])[:LOST_NODES]]
    return {
        "resources": totals(who),
        "queues": queues_record(who)["items"],
        "jobs": _mine(who) if who.caller.user else None,
        "events": event_page(who, EventListing.model_validate({"limit": EVENTS}))["items"],
        "last_round": last_round or None,
        "lost_nodes": [{"node": node, "state": state, "since": since or None} for node, state, since in lost],
        "full_disks": [disk._asdict() for disk in _full_disks(who)],
    }


def _mine(who: Asking) -> dict[str, Any]:
    """Return the newest jobs of the caller: first those that have started, so that waiting jobs do not hide them.

    There is no next page: two lists are merged.
    """
    begun = job_page(who, JobListing.of({**_MINE, "state": ",".join(_BEGUN), "limit": RUNNING}))["items"]
    page = job_page(who, JobListing.of({**_MINE, "total": True, "limit": JOBS}))
    shown = {job["id"] for job in begun}
    items = [*begun, *(job for job in page["items"] if job["id"] not in shown)][:JOBS]
    return {**page, "items": items, "next": None}


def _full_disks(who: Asking) -> list[FullDisk]:
    if not (who.caller.user and who.caller.user.is_admin):
        return []
    kept = os.environ.get("CACHE_DIRECTORY", "").split(":")[0]
    return nearly_full(filter(None, [os.path.dirname(who.config.log_file), kept, tempfile.gettempdir()]))
