"""Changes of jobs: new ones, and requests about those that exist.  The same functions as those of the commands."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from oar.api.authentication import Caller
from oar.api.concurrency import in_thread
from oar.api.errors import problem, problem_response
from oar.api.estimates import EstimateJobs
from oar.api.job_alteration import AlterArray, AlterJob
from oar.api.job_request import JobRequest, JobUpdate
from oar.api.jobs.acts import Acted, JobOrders
from oar.api.jobs.asked_jobs import AskedJobs
from oar.api.long_polling import check_wait, with_answer
from oar.api.parameters import LARGEST_ID, Count, IdempotencyKey, IfMatch, JobId, Text
from oar.api.preconditions import Expected
from oar.api.responses import Answer, answer
from oar.api.routing import FairRoute
from oar.api.service import Asking, asking, service_of
from oar.api.submission import SubmitBatch, SubmitJobs
from oar.api.workers import answer_of
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
    from oar.api.workers import Outcome, WorkerTask
    from oar.lib.facts.records import User

router = APIRouter(tags=["jobs"], route_class=FairRoute)
arrays = APIRouter(tags=["jobs"], route_class=FairRoute)
batches = APIRouter(tags=["jobs"], route_class=FairRoute)
estimates = APIRouter(tags=["jobs"], route_class=FairRoute)
_CHANGES_REFUSED = {
    WalltimeOutcome.BAD_REQUEST: HTTPStatus.BAD_REQUEST,
    WalltimeOutcome.FORBIDDEN: HTTPStatus.FORBIDDEN,
    WalltimeOutcome.NOT_FOUND: HTTPStatus.NOT_FOUND,
    WalltimeOutcome.NOT_AVAILABLE: HTTPStatus.CONFLICT,
}
_STRICT = ConfigDict(extra="forbid", strict=True)


class HoldRequest(BaseModel):
    """How to hold a job."""

    model_config = _STRICT

    running: bool = Field(default=False, description="Suspend the job if it is running, as `oarhold -r` does.")


class JobSignal(BaseModel):
    """Signal to send to a job."""

    model_config = _STRICT

    signal: Annotated[int, Field(ge=1, le=64)] | Text = Field(description="Signal number or name.")


class WalltimeChange(BaseModel):
    """Walltime change of a running job, as with `oarwalltime`."""

    model_config = _STRICT

    change: Annotated[int, Field(ge=-(2**31), le=2**31)] | Text = Field(
        description="Change in seconds, or `[+|-]h[:m[:s]]`; without sign: the new walltime."
    )
    force: bool = Field(default=False, description="Apply the change immediately instead of shortly before the end.")
    whole: bool = Field(default=False, description="Grant the whole change or nothing.")
    delay_next_jobs: bool = Field(default=False, description="Allow the change even if it delays waiting jobs.")
    timeout: Count | None = Field(None, description="Seconds after which the request expires.")

    @property
    def request(self) -> WalltimeRequest:
        """The request, in the words of oarwalltime."""
        change = self.change
        text = change if isinstance(change, str) else f"{'+' * (change >= 0)}{format_duration(change)}"
        return WalltimeRequest(text, self.force, self.delay_next_jobs, self.whole, self.timeout)


class EstimateRequest(BaseModel):
    """Alternative job requests to compare."""

    model_config = _STRICT

    alternatives: list[JobRequest] = Field(min_length=1, max_length=8)


class JobBatch(BaseModel):
    """Several job requests. Submit similar jobs as an array."""

    model_config = _STRICT

    jobs: list[JobRequest] = Field(min_length=1, max_length=1000)


class BesteffortSetting(BaseModel):
    """Whether a running job is besteffort."""

    model_config = _STRICT

    on: bool = Field(description="Whether the job is besteffort.")


@router.post(
    "/v1/jobs", operation_id="job_submit", summary="Submit a job or a job array", status_code=HTTPStatus.CREATED
)
async def job_submit(
    request: Request,
    wanted: JobRequest,
    key: IdempotencyKey = None,
    wait: Annotated[int, Query(ge=0, le=LARGEST_ID, description="Seconds to wait for the decision, at most 30.")] = 0,
) -> Answer:
    """Submit a job or a job array for the caller, as `oarsub` does.

    With `wait`, a `reservation` waits for the decision of the scheduler: `reservation` is `Scheduled`, or `toSchedule`
    if it is still undecided. A rejected reservation is 409 (`reservation-refused`).
    """
    check_wait(wait, wanted.reservation)
    outcome = await in_thread(_submitted, request, wanted, key)
    return answer_of(request, await with_answer(request, outcome, wait) if wait else outcome)


def _submitted(request: Request, wanted: JobRequest, key: str | None) -> "Outcome":
    caller = asking(request).caller
    user = caller.submitting()
    once = Once.of(user.name, key, f"{request.url.path} {wanted.model_dump_json()}") if key else None
    return _outcome(request, SubmitJobs(user, wanted.asked, caller.remembering, once), long=wanted.asked.uses_files)


@batches.post(
    "/v1/job-batches", operation_id="jobs_submit", summary="Submit several jobs", status_code=HTTPStatus.MULTI_STATUS
)
def jobs_submit(request: Request, wanted: JobBatch, key: IdempotencyKey = None) -> Answer:
    """Submit the jobs one after another, each in its own transaction. Return a result for each job.

    A request that is repeated with the same key submits only what was not submitted before.
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


@router.delete("/v1/jobs/{job_id}", operation_id="job_delete", summary="Delete a job", status_code=HTTPStatus.ACCEPTED)
def job_delete(
    request: Request,
    job_id: JobId,
    force: Annotated[
        bool, Query(description="Also end a job that is stuck in Finishing (administrators only).")
    ] = False,
    match: IfMatch = None,
) -> Answer:
    """Delete a job, as `oardel` does. Deleting an ended job is not an error."""
    act = JobOrders.force_end if force else JobOrders.delete
    return _on_one(request, JobAct.DELETE, job_id, act, match)


@router.post("/v1/jobs/{job_id}/hold", operation_id="job_hold", summary="Hold a job", status_code=HTTPStatus.ACCEPTED)
def job_hold(request: Request, job_id: JobId, body: HoldRequest | None = None) -> Answer:
    """Hold a waiting job until it is resumed, as `oarhold` does."""
    running = bool(body and body.running)
    return _on_one(request, JobAct.HOLD, job_id, lambda orders: orders.hold(running=running))


@router.post(
    "/v1/jobs/{job_id}/resume", operation_id="job_resume", summary="Resume a job", status_code=HTTPStatus.ACCEPTED
)
def job_resume(request: Request, job_id: JobId) -> Answer:
    """Resume a held or suspended job, as `oarresume` does."""
    return _on_one(request, JobAct.RESUME, job_id, JobOrders.resume)


@router.post(
    "/v1/jobs/{job_id}/checkpoint",
    operation_id="job_checkpoint",
    summary="Checkpoint a job",
    status_code=HTTPStatus.ACCEPTED,
)
def job_checkpoint(request: Request, job_id: JobId) -> Answer:
    """Send the checkpoint signal to a job, as `oardel -c` does."""
    return _on_one(request, JobAct.CHECKPOINT, job_id, lambda orders: orders.signal(None))


@router.post(
    "/v1/jobs/{job_id}/signal",
    operation_id="job_signal",
    summary="Send a signal to a job",
    status_code=HTTPStatus.ACCEPTED,
)
def job_signal(request: Request, job_id: JobId, body: JobSignal) -> Answer:
    """Send a signal to a job, as `oardel -s` does."""
    number = parse_signal(str(body.signal))
    return _on_one(request, JobAct.SIGNAL, job_id, lambda orders: orders.signal(number))


@router.post(
    "/v1/jobs/{job_id}/walltime",
    operation_id="job_walltime",
    summary="Request a walltime change",
    status_code=HTTPStatus.ACCEPTED,
)
def job_walltime(request: Request, job_id: JobId, body: WalltimeChange) -> Answer:
    """Request a walltime change of a running job, as `oarwalltime` does. The next scheduling pass decides."""
    who = asking(request)
    user = who.caller.acting(JobAct.WALLTIME, [job_id])
    try:
        with service_of(request).warnings() as warnings, who.database.begin() as tx:
            text = walltime.request(tx, who.config, user, job_id, body.request)
    except ChangeRefused as refused:
        status = _CHANGES_REFUSED[refused.outcome]
        return problem(request, status, "change-refused", f"{refused.outcome.value}: {refused}")
    return answer({"id": job_id, "done": text, "warnings": warnings}, status=HTTPStatus.ACCEPTED)


@router.post(
    "/v1/jobs/{job_id}/resubmission",
    operation_id="job_resubmit",
    summary="Resubmit a job",
    status_code=HTTPStatus.CREATED,
)
def job_resubmit(request: Request, job_id: JobId, key: IdempotencyKey = None) -> Answer:
    """Submit a copy of an ended job, as `oarsub --resubmit` does."""
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


@router.patch("/v1/jobs/{job_id}", operation_id="job_alter", summary="Update a waiting job")
def job_alter(request: Request, job_id: JobId, wanted: JobUpdate, match: IfMatch = None) -> Answer:
    """Update a waiting job, as `oaralter` does, with the checks and admission rules of a new job."""
    user = asking(request).caller.acting(JobAct.ALTER, [job_id])
    return _by_worker(request, AlterJob(user, job_id, wanted.changes, Expected.of(match)))


@arrays.patch("/v1/arrays/{array_id}", operation_id="array_alter", summary="Update the waiting jobs of an array")
def array_alter(request: Request, array_id: JobId, wanted: JobUpdate) -> Answer:
    """Update each waiting job of an array, as `oaralter --array` does. Return a result for each job."""
    who = asking(request)
    jobs = who.database.look(lambda tx: tx.jobs.of_arrays([array_id]))
    if not jobs:
        raise NoSuchJob(array_id)
    ids = [job.id for job in jobs if job.state in NOT_STARTED]
    user = who.caller.acting(JobAct.ALTER, ids)
    return _by_worker(request, AlterArray(user, ids, wanted.changes), long=True)


@estimates.post("/v1/estimates", operation_id="estimates", summary="Estimate start times")
def estimate(request: Request, wanted: EstimateRequest) -> Answer:
    """Return where and when each alternative would start, as `oarsub --estimate` does. Nothing is stored."""
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
    "/v1/jobs/{job_id}/besteffort",
    operation_id="job_besteffort",
    summary="Make a running job besteffort or not besteffort",
    status_code=HTTPStatus.ACCEPTED,
)
def job_besteffort(request: Request, job_id: JobId, body: BesteffortSetting, match: IfMatch = None) -> Answer:
    """Make a running job besteffort, or no longer besteffort, as `oardel -b` does. Administrators only."""
    who = asking(request)
    user = who.caller.administering()
    return _done(request, user, job_id, lambda each: each.toggle_besteffort(wanted=body.on), match)


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
        return problem_response(request, outcome.status, outcome.refusal)
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
