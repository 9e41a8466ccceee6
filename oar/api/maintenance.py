"""Preview of a maintenance: jobs and advance reservations that a withdrawal of nodes would affect."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, model_validator

from oar.api.node_changes import MOST, Host
from oar.api.parameters import LARGEST_ID, STRICT
from oar.api.responses import Answer, answer
from oar.api.routing import ApiRoute
from oar.api.service import asking
from oar.lib.base.errors import NoSuchResource
from oar.lib.jobs.states import NOT_STARTED

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.history.sql_gantt_days import DrawnJob

router = APIRouter(tags=["administration"], route_class=ApiRoute)

#: Jobs of a response, at most: running ones, and planned ones.
MAX_JOBS = 1000
#: The end of a maintenance without a planned end.
_FOR_EVER = 2**40
Date = Annotated[int, Field(ge=0, le=LARGEST_ID)]


class JobFate(StrEnum):
    """How the withdrawal of its nodes affects a job."""

    ENDS = "ends"  #: the job ends before the maintenance begins
    CUT = "cut"  #: the job would still be running and would be killed
    DELAYED = "delayed"  #: the job is planned to start later and must be planned again


class MaintenanceWindow(BaseModel):
    """Nodes to withdraw, and for how long."""

    model_config = STRICT

    nodes: list[Host] = Field(min_length=1, max_length=MOST, description="Nodes to withdraw.")
    begin: Date | None = Field(None, alias="from", description="Start of the maintenance; default: now.")
    to: Date | None = Field(None, description="End of the maintenance; default: open end.")

    @model_validator(mode="after")
    def _in_order(self) -> "MaintenanceWindow":
        if self.begin is not None and self.to is not None and self.begin >= self.to:
            raise ValueError("a period goes from a date to a later one")
        return self


@router.post("/v1/resources/outlook", operation_id="resources_outlook", summary="Preview the impact of a maintenance")
def resources_outlook(request: Request, body: MaintenanceWindow) -> Answer:
    """Return how jobs would be affected (`ends` before it, `cut`, `delayed`), and when each node is idle.

    `empty` is the date at which the last running job of a node has ended at the latest; null if a job has no walltime.
    Administrators only.
    """
    who = asking(request)
    who.caller.administering()
    with who.database.snapshot() as tx:
        return answer(_outlook(tx, body))


def _outlook(tx: "Transaction", body: MaintenanceWindow) -> dict[str, Any]:
    """Return the preview.  Raises NoSuchResource."""
    by_node = tx.resources.ids_of_nodes(body.nodes)
    if missing := [name for name in body.nodes if name not in by_node]:
        raise NoSuchResource(f"there is no node {missing[0]!r}")
    begin, end = body.begin or tx.now, body.to or _FOR_EVER
    resources = sorted({number for ids in by_node.values() for number in ids})
    jobs = [job for job in tx.gantt_days.on(resources, tx.now, end, MAX_JOBS) if not job.stop]
    return {
        "from": begin,
        "to": body.to,
        "nodes": [{"name": name, "empty": _empty(jobs, set(ids), tx.now)} for name, ids in sorted(by_node.items())],
        "jobs": [_item(job, begin) for job in sorted(jobs, key=lambda job: (job.start, job.id))],
        "reservations": _reservations(tx, set(resources), begin, end),
    }


def _item(job: "DrawnJob", begin: int) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.name or None,
        "user": job.user,
        "state": job.state,
        "start": job.start,
        "end": job.latest_end,
        "fate": fate(job, begin),
    }


def fate(job: "DrawnJob", begin: int) -> JobFate:
    """Return how the withdrawal of its resources affects a job."""
    if job.state in NOT_STARTED and job.start >= begin:
        return JobFate.DELAYED
    end = job.latest_end
    return JobFate.ENDS if end is not None and end <= begin else JobFate.CUT


def _empty(jobs: "Sequence[DrawnJob]", resources: set[int], now: int) -> int | None:
    """Return when the last running job of a node ends; `now` without jobs, None if a job has no walltime."""
    ends = [job.latest_end for job in jobs if job.state not in NOT_STARTED and resources.intersection(job.resources)]
    known_ends = [end for end in ends if end is not None]
    return None if len(known_ends) < len(ends) else max([now, *known_ends])


def _reservations(tx: "Transaction", resources: set[int], begin: int, end: int) -> list[dict[str, Any]]:
    """Return the advance reservations of some resources in the period."""
    return [
        {
            "id": reservation.number,
            "ar_name": reservation.name or None,
            "owner": reservation.owner,
            "start": reservation.start,
            "end": reservation.end,
        }
        for reservation in tx.reservations.planned()
        if reservation.start < end and reservation.end > begin and resources.intersection(reservation.resources)
    ]
