"""Changes of jobs: new ones, and requests about those that exist.  The same functions as those of the commands."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from oar.api.answers.bodies import Answer, answer
from oar.api.answers.preconditions import Expected, IfMatch, RequestKey
from oar.api.identity.callers import Caller
from oar.api.jobs.acts import Acted, JobOrders
from oar.api.jobs.alteration import AlterArray, AlterJob
from oar.api.jobs.asked_jobs import AskedJobs
from oar.api.jobs.estimation import EstimateJobs
from oar.api.jobs.parts import Id
from oar.api.jobs.request import Count, JobAlteration, JobRequest, Text
from oar.api.jobs.submission import SubmitBatch, SubmitJobs
from oar.api.jobs.waiting import check_wait, with_answer
from oar.api.routing.problems import answer_of, problem, told
from oar.api.serving.service import LARGEST_ID, Asking, asking, service_of
from oar.lib.access.scopes import JobAct
from oar.lib.facts.errors import NoSuchJob
from oar.lib.facts.states import NOT_STARTED
from oar.lib.facts.times import format_duration
from oar.lib.jobs import walltime
from oar.lib.jobs.walltime import ChangeRefused, WalltimeOutcome, WalltimeRequest
from oar.lib.submission import resubmission
from oar.lib.submission.checks import parse_signal
from oar.lib.submission.once import REPLAYED, AlreadyDone, Once

if TYPE_CHECKING:
    from oar.api.workers.tasks import Outcome, WorkerTask
    from oar.lib.facts.records import User

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
arrays = APIRouter(prefix="/v1/arrays", tags=["jobs"])
batches = APIRouter(prefix="/v1/job-batches", tags=["jobs"])
estimates = APIRouter(prefix="/v1/estimates", tags=["jobs"])
_CHANGES_REFUSED = {
    WalltimeOutcome.BAD_REQUEST: HTTPStatus.BAD_REQUEST,
    WalltimeOutcome.FORBIDDEN: HTTPStatus.FORBIDDEN,
    WalltimeOutcome.NOT_FOUND: HTTPStatus.NOT_FOUND,
    WalltimeOutcome.NOT_AVAILABLE: HTTPStatus.CONFLICT,
}
_STRICT = ConfigDict(extra="forbid", strict=True)


class HoldWish(BaseModel):
    """How a job is held."""

    model_config = _STRICT

    running: bool = Field(default=False, description="Suspend it if it runs, as `oarhold -r`.")


class SignalWish(BaseModel):
    """Which signal a job gets."""

    model_config = _STRICT

    signal: Annotated[int, Field(ge=1, le=64)] | Text = Field(description="Number or name of the signal.")


class WalltimeWish(BaseModel):
    """Another walltime for a running job, as oarwalltime asks for it."""

    model_config = _STRICT

    change: Annotated[int, Field(ge=-(2**31), le=2**31)] | Text = Field(
        description="Seconds more (or less), or `[+|-]h[:m[:s]]`; without sign: the new walltime."
    )
    force: bool = Field(default=False, description="Apply it at once, not only a while before the end.")
    whole: bool = Field(default=False, description="All of it or nothing.")
    delay_next_jobs: bool = Field(default=False, description="Even if jobs that wait start later then.")
    timeout: Count | None = Field(None, description="Seconds after which the request is dropped.")

    @property
    def request(self) -> WalltimeRequest:
        """The request, in the words of oarwalltime."""
        change = self.change
        text = change if isinstance(change, str) else f"{'+' * (change >= 0)}{format_duration(change)}"
        return WalltimeRequest(text, self.force, self.delay_next_jobs, self.whole, self.timeout)


class EstimatesWish(BaseModel):
    """What is compared before one of it is submitted."""

    model_config = _STRICT

    alternatives: list[JobRequest] = Field(min_length=1, max_length=8)


class JobRequests(BaseModel):
    """Several submissions; jobs that are alike belong in an array."""

    model_config = _STRICT

    jobs: list[JobRequest] = Field(min_length=1, max_length=1000)


class BesteffortWish(BaseModel):
    """Whether a running job is besteffort."""

    model_config = _STRICT

    on: bool = Field(description="Whether it is besteffort.")


@router.post("", operation_id="job_submit", summary="Submit a job, or an array of jobs", status_code=HTTPStatus.CREATED)
async def job_submit(
    request: Request,
    wanted: JobRequest,
    key: RequestKey = None,
    wait: Annotated[int, Query(ge=0, le=LARGEST_ID, description="Seconds to wait for the answer, 30 at most.")] = 0,
) -> Answer:
    """Submit what is asked for, as oarsub does; the jobs belong to who asks.

    With `wait` a `reservation` is answered by the scheduler: `reservation` is `Scheduled` then, or `toSchedule` if it
    has said nothing yet; what is refused is 409 (`reservation-refused`).
    """
    check_wait(wait, wanted.reservation)
    outcome = await run_in_threadpool(_submitted, request, wanted, key)
    return answer_of(request, await with_answer(request, outcome, wait) if wait else outcome)


def _submitted(request: Request, wanted: JobRequest, key: str | None) -> "Outcome":
    caller = asking(request).caller
    user = caller.submitting()
    once = Once.of(user.name, key, f"{request.url.path} {wanted.model_dump_json()}") if key else None
    return _outcome(request, SubmitJobs(user, wanted.asked, caller.remembering, once), long=wanted.asked.uses_files)


@batches.post("", operation_id="jobs_submit", summary="Submit several jobs", status_code=HTTPStatus.MULTI_STATUS)
def jobs_submit(request: Request, wanted: JobRequests, key: RequestKey = None) -> Answer:
    """Submit one after the other, each in a transaction of its own; tell what came of each.

    A request that is repeated with its key submits what was not submitted.
    """
    caller = asking(request).caller
    user = caller.submitting()
    tasks = [
        SubmitJobs(
            user,
            each.asked,
            caller.remembering,
            Once.of(user.name, f"{key} #{place}", f"{request.url.path} {each.model_dump_json()}") if key else None,
        )
        for place, each in enumerate(wanted.jobs)
    ]
    return _by_worker(request, SubmitBatch(tasks), long=True)


@router.delete("/{job_id}", operation_id="job_delete", summary="End a job", status_code=HTTPStatus.ACCEPTED)
def job_delete(
    request: Request,
    job_id: Id,
    force: Annotated[bool, Query(description="End it though it is stuck in Finishing (administrators).")] = False,
    match: IfMatch = None,
) -> Answer:
    """Ask for the end of a job, as oardel does; one that has ended already is no error."""
    act = JobOrders.force_end if force else JobOrders.delete
    return _on_one(request, JobAct.DELETE, job_id, act, match)


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


@router.post(
    "/{job_id}/walltime",
    operation_id="job_walltime",
    summary="Ask for another walltime",
    status_code=HTTPStatus.ACCEPTED,
)
def job_walltime(request: Request, job_id: Id, wish: WalltimeWish) -> Answer:
    """Ask for another walltime of a running job, as oarwalltime does; the next round answers."""
    who = asking(request)
    user = who.caller.acting(JobAct.WALLTIME, [job_id])
    try:
        with service_of(request).warnings() as warnings, who.database.begin() as tx:
            text = walltime.request(tx, who.config, user, job_id, wish.request)
    except ChangeRefused as refused:
        status = _CHANGES_REFUSED[refused.outcome]
        return problem(request, status, "change-refused", f"{refused.outcome.value}: {refused}")
    return answer({"id": job_id, "done": text, "warnings": warnings}, status=HTTPStatus.ACCEPTED)


@router.post(
    "/{job_id}/resubmission", operation_id="job_resubmit", summary="Submit a job again", status_code=HTTPStatus.CREATED
)
def job_resubmit(request: Request, job_id: Id, key: RequestKey = None) -> Answer:
    """Submit a copy of a job that has ended, as `oarsub --resubmit` does."""
    record, headers = resubmitted(request, asking(request), job_id, key, request.url.path)
    headers["Location"] = f"/v1/jobs/{record['id']}"
    return answer(record, status=HTTPStatus.CREATED, headers=headers)


def resubmitted(
    request: Request, who: Asking, job_id: int, key: str | None, what: str
) -> tuple[Mapping[str, Any], dict[str, str]]:
    """Submit a copy of a job once for a key of the client; the record of the new job, and headers of the answer.

    ``what`` tells this request from others with the same key.  Raises Unidentified, NotAllowed, UserError.
    """
    user = who.caller.acting(JobAct.RESUBMIT, [job_id])
    once = Once.of(user.name, key, what) if key else None
    headers: dict[str, str] = {}
    try:
        with service_of(request).warnings() as warnings, who.database.begin() as tx:
            if once:
                once.begin(tx, who.config.api_idempotency_hours)
            record: Mapping[str, Any] = {"id": resubmission.resubmit(tx, who.config, user, job_id)}
            if once:
                once.end(tx, record)
    except AlreadyDone as done:
        record, headers = done.answer, dict(REPLAYED)
    return {**record, "warnings": warnings}, headers


@router.patch("/{job_id}", operation_id="job_alter", summary="Alter a job that waits")
def job_alter(request: Request, job_id: Id, wanted: JobAlteration, match: IfMatch = None) -> Answer:
    """Change a job that waits, as oaralter does: with the checks and the admission of a new one."""
    user = asking(request).caller.acting(JobAct.ALTER, [job_id])
    return _by_worker(request, AlterJob(user, job_id, wanted.changes, Expected.of(match)))


@arrays.patch("/{array_id}", operation_id="array_alter", summary="Alter the jobs of an array that wait")
def array_alter(request: Request, array_id: Id, wanted: JobAlteration) -> Answer:
    """Change each job of an array that waits, as `oaralter --array` does; tell what came of each."""
    who = asking(request)
    jobs = who.database.look(lambda tx: tx.jobs.of_arrays([array_id]))
    if not jobs:
        raise NoSuchJob(array_id)
    ids = [job.id for job in jobs if job.state in NOT_STARTED]
    user = who.caller.acting(JobAct.ALTER, ids)
    return _by_worker(request, AlterArray(user, ids, wanted.changes), long=True)


@estimates.post("", operation_id="estimates", summary="When and where jobs would start")
def estimate(request: Request, wanted: EstimatesWish) -> Answer:
    """Tell for each alternative when and where it would start, as `oarsub --estimate` does; nothing is stored."""
    return answer_of(request, estimated(request, asking(request).caller, [each.asked for each in wanted.alternatives]))


def estimated(request: Request, caller: Caller, alternatives: Sequence[AskedJobs]) -> "Outcome":
    """Tell what the answer is of alternatives.  Raises Unidentified, Unavailable."""
    task = EstimateJobs(caller.identified(), alternatives)
    service = service_of(request)
    config = service.runtime.config
    # The last may begin at the end of its time.
    seconds = config.admission_rules_timeout + config.api_timeout + 2 * config.estimate_timeout
    with service.estimating(request, caller):
        return service.workers.run_long(task, seconds)


@router.put(
    "/{job_id}/besteffort",
    operation_id="job_besteffort",
    summary="Let a running job be besteffort, or not",
    status_code=HTTPStatus.ACCEPTED,
)
def job_besteffort(request: Request, job_id: Id, wish: BesteffortWish, match: IfMatch = None) -> Answer:
    """Let a running job be besteffort, or no longer, as `oardel -b` does (administrators)."""
    who = asking(request)
    user = who.caller.administering()
    return _done(request, user, job_id, lambda each: each.toggle_besteffort(wanted=wish.on), match)


def _on_one(
    request: Request, act: JobAct, job_id: int, do: Callable[[JobOrders], Acted], match: str | None = None
) -> Answer:
    return _done(request, asking(request).caller.acting(act, [job_id]), job_id, do, match)


def _done(request: Request, user: "User", job_id: int, do: Callable[[JobOrders], Acted], match: str | None) -> Answer:
    """Do something with one job; tell what came of it.  Raises OtherVersion."""
    runtime, expected = service_of(request).runtime, Expected.of(match)
    with service_of(request).warnings() as warnings, runtime.database.begin() as tx:
        if expected:
            expected.check_job(tx, job_id)
        acted = do(JobOrders(tx, runtime.config, user, [job_id]))
    (outcome,) = acted.outcomes
    if outcome.refusal:
        return told(request, outcome.status, outcome.refusal)
    return answer({**outcome.record, "warnings": [*acted.warnings, *warnings]}, status=outcome.status)


def _by_worker(request: Request, task: "WorkerTask", *, long: bool = False) -> Answer:
    return answer_of(request, _outcome(request, task, long=long))


def _outcome(request: Request, task: "WorkerTask", *, long: bool = False) -> "Outcome":
    """Let a worker do a task, for as long as admission rules may take, or a request."""
    service = service_of(request)
    workers, config = service.workers, service.runtime.config
    if long:
        # Of a batch the last may begin at the end of its time, and wait then for programs of its user.
        return workers.run_long(task, 2 * config.api_timeout + config.admission_rules_timeout)
    return workers.run(task, config.admission_rules_timeout)
