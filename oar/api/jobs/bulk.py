"""One act on several jobs, in one transaction."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from oar.api.answers.bodies import Answer, answer
from oar.api.jobs.acts import Acted, JobOrders
from oar.api.jobs.reading import JobListing
from oar.api.jobs.request import Text
from oar.api.routing.administrators import STRICT
from oar.api.serving.service import LARGEST_ID, Asking, asking, service_of
from oar.lib.access.scopes import JobAct
from oar.lib.db.foreign_code.user_sql import Subject, evaluate
from oar.lib.facts.errors import BadRequest
from oar.lib.facts.job_query import JobPlace
from oar.lib.submission.checks import parse_signal

if TYPE_CHECKING:
    from oar.lib.facts.records import User

router = APIRouter(prefix="/v1/job-acts", tags=["jobs"])

#: Jobs of one request, at most.
MOST = 10_000
JobId = Annotated[int, Field(ge=1, le=LARGEST_ID)]


class BulkAct(StrEnum):
    """What can be done with several jobs at once."""

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
    BulkAct.DELETE: JobAct.DELETE,
    BulkAct.FORCE_END: JobAct.DELETE,
    BulkAct.HOLD: JobAct.HOLD,
    BulkAct.HOLD_RUNNING: JobAct.HOLD,
    BulkAct.RESUME: JobAct.RESUME,
    BulkAct.CHECKPOINT: JobAct.CHECKPOINT,
    BulkAct.SIGNAL: JobAct.SIGNAL,
}


class ManyJobs(BaseModel):
    """An act, and the jobs that are meant: by their ids, by a condition, or by all that else is given."""

    model_config = STRICT

    act: BulkAct = Field(strict=False)
    signal: Annotated[int, Field(ge=1, le=64)] | Text | None = Field(None, description="Number or name of a signal.")
    ids: list[JobId] | None = Field(None, min_length=1, max_length=MOST, description="Ids of jobs.")
    condition: Text | None = Field(None, description="Jobs that satisfy a condition, as `--sql`.")
    array: JobId | None = Field(None, description="Id of an array.")
    user: Text | None = Field(None, description="Whose; else those of who asks.")
    state: Text | None = Field(None, description="In these states; else live ones.")
    queue: Text | None = Field(None, description="In these queues, as lists of jobs take it.")
    project: Text | None = Field(None, description="Of these projects.")
    name: Text | None = Field(None, description="With these names.")
    type: Text | None = Field(None, description="Of these types.")
    dry_run: bool = Field(default=False, description="Only tell which jobs are meant.")

    @property
    def filters(self) -> dict[str, object]:
        """What chooses among jobs, as lists of jobs take it."""
        return self.model_dump(exclude={"act", "signal", "ids", "condition", "dry_run"}, exclude_unset=True)


@router.post("", operation_id="jobs_act", summary="Do the same with several jobs")
def jobs_act(request: Request, wish: ManyJobs) -> Answer:
    """Do with several jobs what `oardel`, `oarhold` and `oarresume` do, in one transaction; tell what came of each."""
    who = asking(request)
    who.caller.identified()
    act = _act_of(wish)
    ids = _meant(who, wish)
    if wish.dry_run:
        return answer({"items": [{"id": job_id} for job_id in ids], "warnings": []})
    user = _allowed(who, wish.act, ids)
    with service_of(request).warnings() as warnings, who.database.begin() as tx:
        acted = act(JobOrders(tx, who.config, user, ids))
    return answer({"items": [each.record for each in acted.outcomes], "warnings": [*acted.warnings, *warnings]})


def _act_of(wish: ManyJobs) -> Callable[[JobOrders], Acted]:
    """Return what is done.  Raises BadRequest, BadSubmission."""
    if (wish.signal is not None) is not (wish.act is BulkAct.SIGNAL):
        raise BadRequest("a signal belongs to the act 'signal', and to no other")
    number = None if wish.signal is None else parse_signal(str(wish.signal))
    acts: dict[BulkAct, Callable[[JobOrders], Acted]] = {
        BulkAct.DELETE: JobOrders.delete,
        BulkAct.FORCE_END: JobOrders.force_end,
        BulkAct.HOLD: lambda orders: orders.hold(running=False),
        BulkAct.HOLD_RUNNING: lambda orders: orders.hold(running=True),
        BulkAct.RESUME: JobOrders.resume,
        BulkAct.CHECKPOINT: lambda orders: orders.signal(None),
        BulkAct.SIGNAL: lambda orders: orders.signal(number),
        BulkAct.BESTEFFORT: lambda orders: orders.toggle_besteffort(wanted=True),
        BulkAct.NOT_BESTEFFORT: lambda orders: orders.toggle_besteffort(wanted=False),
    }
    return acts[wish.act]


def _allowed(who: Asking, act: BulkAct, ids: list[int]) -> "User":
    """Return the user who acts.  Raises Unidentified, NotAllowed."""
    allowed_by = _ALLOWED_BY.get(act)
    return who.caller.acting(allowed_by, ids) if allowed_by else who.caller.administering()


def _meant(who: Asking, wish: ManyJobs) -> list[int]:
    """Return the ids of the jobs that are meant.  Raises BadRequest, BadCondition."""
    ways = (wish.ids is not None, wish.condition is not None, bool(wish.filters))
    if sum(ways) != 1:
        raise BadRequest("name jobs by ids, by a condition, or by user, state, queue, project, name, type, array")
    if wish.ids is not None:
        return list(dict.fromkeys(wish.ids))
    if wish.condition is not None:
        ids = evaluate(who.database, Subject.JOBS, wish.condition, who.sql_asker())
    else:
        listing = JobListing.of({"user": "me", **wish.filters})
        with who.database.snapshot() as tx:
            ids = tx.job_pages.page(listing.query(who), JobPlace(MOST))
    if len(ids) > MOST:
        raise BadRequest(f"these are more than {MOST} jobs: name fewer at a time")
    return ids
