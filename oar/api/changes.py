"""Changes of jobs: new ones, and requests about those that exist.  The same functions as those of the commands."""

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from oar.api.acts import Acted, JobOrders
from oar.api.answers import Answer, answer
from oar.api.job_request import JobRequest, Text
from oar.api.jobs import Id
from oar.api.problems import answer_of, told
from oar.api.service import Asking, asking, service_of
from oar.api.submission import SubmitJobs
from oar.lib.access.scopes import JobAct
from oar.lib.submission.checks import parse_signal
from oar.lib.submission.once import Once

if TYPE_CHECKING:
    from oar.api.tasks import WorkerTask
    from oar.lib.facts.records import User

router = APIRouter(prefix="/jobs", tags=["jobs"])
_STRICT = ConfigDict(extra="forbid", strict=True)
#: What makes a request the same one when it is repeated.
RequestKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=255, pattern=r"^[\x20-\x7e]+$"),
]


class HoldWish(BaseModel):
    """How a job is held."""

    model_config = _STRICT

    running: bool = Field(default=False, description="Suspend it if it runs, as `oarhold -r`.")


class SignalWish(BaseModel):
    """Which signal a job gets."""

    model_config = _STRICT

    signal: Annotated[int, Field(ge=1, le=64)] | Text = Field(description="Number or name of the signal.")


class BesteffortWish(BaseModel):
    """Whether a running job is besteffort."""

    model_config = _STRICT

    on: bool


@router.post("", operation_id="job_submit", summary="Submit a job, or an array of jobs", status_code=HTTPStatus.CREATED)
def job_submit(request: Request, wanted: JobRequest, key: RequestKey = None) -> Answer:
    """Submit what is asked for, as oarsub does; the jobs belong to who asks."""
    caller = asking(request).caller
    user = caller.submitting()
    once = Once.of(user.name, key, f"{request.url.path} {wanted.model_dump_json()}") if key else None
    return _by_worker(request, SubmitJobs(user, wanted.asked, caller.remembering, once))


@router.delete("/{job_id}", operation_id="job_delete", summary="End a job", status_code=HTTPStatus.ACCEPTED)
def job_delete(
    request: Request,
    job_id: Id,
    force: Annotated[bool, Query(description="End it though it is stuck in Finishing (administrators).")] = False,
) -> Answer:
    """Ask for the end of a job, as oardel does; one that has ended already is no error."""
    act = JobOrders.force_end if force else JobOrders.delete
    return _on_one(request, JobAct.DELETE, job_id, act)


@router.post("/{job_id}/hold", operation_id="job_hold", summary="Hold a job", status_code=HTTPStatus.ACCEPTED)
def job_hold(request: Request, job_id: Id, wish: HoldWish | None = None) -> Answer:
    """Let a job not start before it is resumed, as oarhold does."""
    running = bool(wish and wish.running)
    return _on_one(request, JobAct.HOLD, job_id, lambda orders: orders.hold(running=running))


@router.post("/{job_id}/resume", operation_id="job_resume", summary="Resume a job", status_code=HTTPStatus.ACCEPTED)
def job_resume(request: Request, job_id: Id) -> Answer:
    """Let a job that is held or suspended go on, as oarresume does."""
    return _on_one(request, JobAct.RESUME, job_id, JobOrders.resume)


@router.post(
    "/{job_id}/checkpoint", operation_id="job_checkpoint", summary="Checkpoint a job", status_code=HTTPStatus.ACCEPTED
)
def job_checkpoint(request: Request, job_id: Id) -> Answer:
    """Send a job its checkpoint signal, as `oardel -c` does."""
    return _on_one(request, JobAct.CHECKPOINT, job_id, lambda orders: orders.signal(None))


@router.post("/{job_id}/signal", operation_id="job_signal", summary="Signal a job", status_code=HTTPStatus.ACCEPTED)
def job_signal(request: Request, job_id: Id, wish: SignalWish) -> Answer:
    """Send a job a signal, as `oardel -s` does."""
    number = parse_signal(str(wish.signal))
    return _on_one(request, JobAct.SIGNAL, job_id, lambda orders: orders.signal(number))


@router.put("/{job_id}/besteffort", operation_id="job_besteffort", summary="Let a running job be besteffort, or not")
def job_besteffort(request: Request, job_id: Id, wish: BesteffortWish) -> Answer:
    """Let a running job be besteffort, or no longer, as `oardel -b` does (administrators)."""
    who = asking(request)
    return _done(request, who, who.caller.administering(), job_id, lambda each: each.toggle_besteffort(wanted=wish.on))


def _on_one(request: Request, act: JobAct, job_id: int, do: Callable[[JobOrders], Acted]) -> Answer:
    who = asking(request)
    return _done(request, who, who.caller.acting(act, [job_id]), job_id, do)


def _done(request: Request, who: Asking, user: "User", job_id: int, do: Callable[[JobOrders], Acted]) -> Answer:
    """Do something with one job; tell what came of it."""
    with service_of(request).warnings() as warnings, who.database.begin() as tx:
        acted = do(JobOrders(tx, who.config, user, [job_id]))
    (outcome,) = acted.outcomes
    if outcome.refusal:
        return told(request, outcome.status, outcome.refusal)
    return answer({**outcome.record, "warnings": [*acted.warnings, *warnings]}, status=outcome.status)


def _by_worker(request: Request, task: "WorkerTask") -> Answer:
    service = service_of(request)
    seconds = float(service.runtime.config.admission_rules_timeout)
    return answer_of(request, service.workers.run(task, seconds))
