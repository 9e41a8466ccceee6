"""One act on several jobs, in one transaction."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from oar.api.jobs.acts import Acted, JobOrders
from oar.api.jobs_ import JobListing
from oar.api.parameters import LARGEST_ID, STRICT, Text
from oar.api.responses import Answer, answer
from oar.api.routing import FairRoute
from oar.api.service import Asking, asking, service_of
from oar.lib.access.scopes import JobAct
from oar.lib.db.foreign_code.user_sql import Subject, evaluate
from oar.lib.facts.errors import BadRequest
from oar.lib.facts.job_query import JobPlace
from oar.lib.submission.checks import parse_signal

if TYPE_CHECKING:
    from oar.lib.facts.records import User

router = APIRouter(tags=["jobs"], route_class=FairRoute)

#: Jobs of one request, at most.
MOST = 10_000
JobId = Annotated[int, Field(ge=1, le=LARGEST_ID)]


class BulkAction(StrEnum):
    """Action on several jobs."""

    DELETE = "delete"
    FORCE_END = "force-end"
    HOLD = "hold"
    HOLD_RUNNING = "hold-running"
    RESUME = "resume"
    CHECKPOINT = "checkpoint"
    SIGNAL = "signal"
    BESTEFFORT = "besteffort"
    NOT_BESTEFFORT = "not-besteffort"


#: What a token must allow; of the others, only an administrator.
_ALLOWED_BY = {
    BulkAction.DELETE: JobAct.DELETE,
    BulkAction.FORCE_END: JobAct.DELETE,
    BulkAction.HOLD: JobAct.HOLD,
    BulkAction.HOLD_RUNNING: JobAct.HOLD,
    BulkAction.RESUME: JobAct.RESUME,
    BulkAction.CHECKPOINT: JobAct.CHECKPOINT,
    BulkAction.SIGNAL: JobAct.SIGNAL,
}


class BulkRequest(BaseModel):
    """An action and the selected jobs: by ids, by a condition, or by the other fields."""

    model_config = STRICT

    act: BulkAction = Field(strict=False)
    signal: Annotated[int, Field(ge=1, le=64)] | Text | None = Field(None, description="Signal number or name.")
    ids: list[JobId] | None = Field(None, min_length=1, max_length=MOST, description="Job ids.")
    condition: Text | None = Field(None, description="Condition on the jobs, as with `--sql`.")
    array: JobId | None = Field(None, description="Array id.")
    user: Text | None = Field(None, description="Owners of the jobs; default: the caller.")
    state: Text | None = Field(None, description="States of the jobs; default: live jobs.")
    queue: Text | None = Field(None, description="Queues of the jobs, as in the list of jobs.")
    project: Text | None = Field(None, description="Projects of the jobs.")
    name: Text | None = Field(None, description="Names of the jobs.")
    type: Text | None = Field(None, description="Types of the jobs.")
    dry_run: bool = Field(default=False, description="Only return the selected jobs; change nothing.")

    @property
    def filters(self) -> dict[str, object]:
        """What chooses among jobs, as lists of jobs take it."""
        return self.model_dump(exclude={"act", "signal", "ids", "condition", "dry_run"}, exclude_unset=True)


@router.post("/v1/job-acts", operation_id="jobs_act", summary="Delete, hold, resume or signal several jobs")
def jobs_act(request: Request, body: BulkRequest) -> Answer:
    """Delete, hold, resume or signal jobs in one transaction, and return a result for each.

    The actions are those of `oardel`, `oarhold` and `oarresume`.
    """
    who = asking(request)
    who.caller.identified()
    act = _act_of(body)
    ids = _meant(who, body)
    if body.dry_run:
        return answer({"items": [{"id": job_id} for job_id in ids], "warnings": []})
    user = _allowed(who, body.act, ids)
    with service_of(request).warnings() as warnings, who.database.begin() as tx:
        acted = act(JobOrders(tx, who.config, user, ids))
    return answer({"items": [each.record for each in acted.outcomes], "warnings": [*acted.warnings, *warnings]})


def _act_of(body: BulkRequest) -> Callable[[JobOrders], Acted]:
    """Return what is done.  Raises BadRequest, BadSubmission."""
    if (body.signal is not None) is not (body.act is BulkAction.SIGNAL):
        raise BadRequest("a signal belongs to the act 'signal', and to no other")
    number = None if body.signal is None else parse_signal(str(body.signal))
    acts: dict[BulkAction, Callable[[JobOrders], Acted]] = {
        BulkAction.DELETE: JobOrders.delete,
        BulkAction.FORCE_END: JobOrders.force_end,
        BulkAction.HOLD: lambda orders: orders.hold(running=False),
        BulkAction.HOLD_RUNNING: lambda orders: orders.hold(running=True),
        BulkAction.RESUME: JobOrders.resume,
        BulkAction.CHECKPOINT: lambda orders: orders.signal(None),
        BulkAction.SIGNAL: lambda orders: orders.signal(number),
        BulkAction.BESTEFFORT: lambda orders: orders.toggle_besteffort(wanted=True),
        BulkAction.NOT_BESTEFFORT: lambda orders: orders.toggle_besteffort(wanted=False),
    }
    return acts[body.act]


def _allowed(who: Asking, act: BulkAction, ids: list[int]) -> "User":
    """Return the user who acts.  Raises Unidentified, NotAllowed."""
    allowed_by = _ALLOWED_BY.get(act)
    return who.caller.acting(allowed_by, ids) if allowed_by else who.caller.administering()


def _meant(who: Asking, body: BulkRequest) -> list[int]:
    """Return the ids of the jobs that are meant.  Raises BadRequest, BadCondition."""
    ways = (body.ids is not None, body.condition is not None, bool(body.filters))
    if sum(ways) != 1:
        raise BadRequest("name jobs by ids, by a condition, or by user, state, queue, project, name, type, array")
    if body.ids is not None:
        return list(dict.fromkeys(body.ids))
    if body.condition is not None:
        ids = evaluate(who.database, Subject.JOBS, body.condition, who.sql_asker())
    else:
        listing = JobListing.of({"user": "me", **body.filters})
        with who.database.snapshot() as tx:
            ids = tx.job_pages.page(listing.query(who), JobPlace(MOST))
    if len(ids) > MOST:
        raise BadRequest(f"these are more than {MOST} jobs: name fewer at a time")
    return ids
