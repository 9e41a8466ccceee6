"""How it stands with the walltime of a job: what it may become, what was asked and granted."""

from typing import Any

from fastapi import APIRouter, Request

from oar.api.parameters import JobId
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import LeanRoute
from oar.api.service import Asking, asking
from oar.lib.jobs import walltime

router = APIRouter(tags=["jobs"], route_class=LeanRoute)


@router.get(
    "/v1/jobs/{job_id}/walltime", operation_id="job_walltime_changes", summary="Walltime changes allowed for a job"
)
def job_walltime_changes(request: Request, job_id: JobId) -> Answer:
    """Return what `oarwalltime` shows, in seconds. `possible_increase` is null if there is no limit.

    `may` lists the options that the site allows the caller. Administrators have no limits.
    """
    return answer_unless_known(request, _record(asking(request), job_id))


def _record(who: Asking, job_id: int) -> dict[str, Any]:
    """Return the record.  Raises NoSuchJob."""
    with who.database.snapshot() as tx:
        standing = walltime.walltime_status(tx, who.config, job_id)
    change = standing.change
    return {
        "id": job_id,
        "is_enabled": who.config.walltime_change_enabled,
        "walltime": standing.walltime,
        "possible_increase": standing.possible,
        "granted": change.granted,
        "pending": change.pending,
        "timeout": change.timeout or None,
        "may": walltime.ways(who.config, standing.job.queue, who.caller.user)._asdict(),
    }
