"""How the cluster is, and how one's jobs are: what a first look needs, in one answer."""

import os
import tempfile

from fastapi import APIRouter, Request

from oar.api.answers.bodies import Answer, answer_unless_known
from oar.api.history.event_log import EventListing, event_page
from oar.api.jobs.reading import JobListing, job_page
from oar.api.nodes.grid import totals
from oar.api.nodes.reading import queues_record
from oar.api.routing.lean_routes import LeanRoute
from oar.api.serving.service import Asking, asking
from oar.lib.io.disks import FullDisk, nearly_full

router = APIRouter(prefix="/v1", tags=["general"], route_class=LeanRoute)

#: Events that a first look shows.
EVENTS = 8
#: One's jobs that it shows, the newest.
JOBS = 12
_MINE = {"user": "me", "details": True, "outlook": True, "newest_first": True, "total": True, "limit": JOBS}


@router.get("/dashboard", operation_id="dashboard", summary="The cluster and one's jobs at a look")
def dashboard(request: Request) -> Answer:
    """Return how many resources are in each condition, the queues, the newest jobs of who asks, the last events."""
    return answer_unless_known(request, dashboard_record(asking(request)))


def dashboard_record(who: Asking) -> dict[str, object]:
    """Return what a first look shows; ``jobs`` is null for nobody, ``last_round`` if there was none.

    ``full_disks`` is for administrators: the disks of the log and of what the service keeps.
    """
    with who.database.snapshot() as tx:
        last_round = tx.usage.last_round()
    return {
        "resources": totals(who),
        "queues": queues_record(who)["items"],
        "jobs": job_page(who, JobListing.of(_MINE)) if who.caller.user else None,
        "events": event_page(who, EventListing.model_validate({"limit": EVENTS}))["items"],
        "last_round": last_round or None,
        "full_disks": [disk._asdict() for disk in _full_disks(who)],
    }


def _full_disks(who: Asking) -> list[FullDisk]:
    if not (who.caller.user and who.caller.user.is_admin):
        return []
    kept = os.environ.get("CACHE_DIRECTORY", "").split(":")[0]
    return nearly_full(filter(None, [os.path.dirname(who.config.log_file), kept, tempfile.gettempdir()]))
