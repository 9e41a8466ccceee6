"""Requests about jobs that exist: delete, hold, resume, checkpoint, signal, walltime, one job or several."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

from pydantic import BaseModel, Field
from starlette.requests import Request

from oar.api.errors import problem, problem_record, problem_response
from oar.api.jobs import JobListing
from oar.api.parameters import LARGEST_ID, STRICT, Count, IfMatch, JobId, Text
from oar.api.records import BulkResult, BulkResults, ItemProblem, JobResult
from oar.api.responses import Answer, answer
from oar.api.routing import Router
from oar.api.service import Asking, Expected, asking, service_of
from oar.lib.access.scopes import JobAct
from oar.lib.accounts.projects import controlled_by
from oar.lib.base.errors import BadRequest
from oar.lib.base.times import format_duration
from oar.lib.bus.messages import Ask, JobAction
from oar.lib.db.user_sql import Subject, evaluate
from oar.lib.jobs import control, walltime
from oar.lib.jobs.control import ControlOutcome, ControlRefusal, HoldRules, SignalRequest
from oar.lib.jobs.records import JobPlace
from oar.lib.jobs.states import JobTypeName
from oar.lib.jobs.walltime import ChangeRefused, WalltimeOutcome, WalltimeRequest
from oar.lib.reservations import job_deletion
from oar.lib.submission.checks import parse_signal

if TYPE_CHECKING:
    from oar.lib.access.records import User
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction

#: Status and code of refusals; all others are wrong-state.
_REFUSALS: Mapping[ControlRefusal, tuple[HTTPStatus, str]] = {
    ControlRefusal.UNKNOWN_JOB: (HTTPStatus.NOT_FOUND, "no-such-job"),
    ControlRefusal.NOT_YOURS: (HTTPStatus.FORBIDDEN, "not-allowed"),
    ControlRefusal.NOT_ADMIN: (HTTPStatus.FORBIDDEN, "not-allowed"),
    ControlRefusal.ADMIN_HOLD: (HTTPStatus.FORBIDDEN, "not-allowed"),
    ControlRefusal.ADMIN_RESUME: (HTTPStatus.FORBIDDEN, "not-allowed"),
    ControlRefusal.ALREADY_KILLED: (HTTPStatus.CONFLICT, "already-killed"),
}
_WRONG_STATE = HTTPStatus.CONFLICT, "wrong-state"


class ActOutcome(NamedTuple):
    """The result of an action on one job: what was done, or why not."""

    job_id: int
    done: str = ""
    refusal: Mapping[str, Any] | None = None  #: the record of the problem

    @property
    def status(self) -> int:
        """The status of a response about this job alone."""
        return self.refusal["status"] if self.refusal else HTTPStatus.ACCEPTED

    @property
    def record(self) -> BulkResult:
        """The item of this job in a response."""
        return (
            {"id": self.job_id, "problem": cast("ItemProblem", self.refusal)}
            if self.refusal
            else {"id": self.job_id, "done": self.done}
        )


class Acted(NamedTuple):
    """The results of an action on several jobs, in their order."""

    outcomes: Sequence[ActOutcome]
    warnings: Sequence[str] = ()


class JobOrders(NamedTuple):
    """A user's actions on some jobs, in one transaction."""

    tx: "Transaction"
    config: "Config"
    user: "User"
    ids: Sequence[int]

    def delete(self) -> Acted:
        """Delete the jobs."""
        with_inner = self.config.kill_inner_jobs_with_container
        response = job_deletion.delete_jobs(
            self.tx, self.user, self.ids, with_inner=with_inner, managed=self._managed()
        )
        outcomes = [
            _result(answer, "had ended" if answer.has_ended else "deletion registered", control.why_not_ended)
            for answer in response.answers
        ]
        return Acted(outcomes, response.warnings)

    def force_end(self) -> Acted:
        """Force the end of jobs that are stuck in Finishing."""
        config = self.config
        least = 4 * config.oar_ssh_connection_timeout + config.server_prologue_epilogue_timeout
        answers = control.force_end(self.tx, self.user, self.ids, least=least)
        return _all(answers, "end forced", partial(control.why_not_forced, least=least))

    def hold(self, *, running: bool) -> Acted:
        """Hold the jobs; ``running``: suspend running jobs."""
        rules = HoldRules.of(self.config)
        answers = control.hold(self.tx, self.user, self.ids, rules, running=running, managed=self._managed())
        return _all(answers, "hold registered", control.why_not_held)

    def resume(self) -> Acted:
        """Resume the jobs."""
        rules = HoldRules.of(self.config)
        answers = control.resume(self.tx, self.user, self.ids, rules, managed=self._managed())
        return _all(answers, "resumption registered", control.why_not_resumed)

    def signal(self, number: int | None) -> Acted:
        """Send a signal to the jobs; None: the checkpoint signal."""
        done, verb = ("checkpoint registered", "checkpoint") if number is None else ("signal registered", "signal")
        outcomes = []
        for result in control.request_signals(self.tx, self.user, self.ids, number):
            if isinstance(result, SignalRequest):
                self.tx.outbox.append(Ask(JobAction.SIGNAL, result.job_id))
                outcomes.append(ActOutcome(result.job_id, done))
            else:
                outcomes.append(_result(result, done, partial(control.why_not_ended, verb=verb)))
        return Acted(outcomes)

    def toggle_besteffort(self, *, besteffort: bool) -> Acted:
        """Make running jobs besteffort, or no longer besteffort."""
        types = self.tx.jobs.types(self.ids, current=True)
        same = [job_id for job_id in self.ids if (JobTypeName.BESTEFFORT in types.get(job_id, ())) is besteffort]
        others = [job_id for job_id in self.ids if job_id not in same]
        toggled = {answer.job_id: answer for answer in control.toggle_besteffort(self.tx, self.user, others)}
        done = "besteffort" if besteffort else "not besteffort"
        answers = [toggled.get(job_id, ControlOutcome(job_id)) for job_id in self.ids]
        return _all(answers, done, control.why_not_toggled)

    def _managed(self) -> frozenset[str]:
        return controlled_by(self.tx, self.config, self.user)


def _all(answers: Sequence[ControlOutcome], done: str, why_not: Callable[[ControlOutcome], str]) -> Acted:
    return Acted([_result(answer, done, why_not) for answer in answers])


def _result(answer: ControlOutcome, done: str, why_not: Callable[[ControlOutcome], str]) -> ActOutcome:
    """Return the result for a response of the service; ``why_not``: returns the text of a refusal."""
    if answer.refusal is None:
        return ActOutcome(answer.job_id, done)
    status, code = _REFUSALS.get(answer.refusal, _WRONG_STATE)
    return ActOutcome(answer.job_id, refusal=problem_record(status, code, why_not(answer).removeprefix("/!\\ ")))


router = Router("jobs")
_CHANGES_REFUSED = {
    WalltimeOutcome.BAD_REQUEST: HTTPStatus.BAD_REQUEST,
    WalltimeOutcome.FORBIDDEN: HTTPStatus.FORBIDDEN,
    WalltimeOutcome.NOT_FOUND: HTTPStatus.NOT_FOUND,
    WalltimeOutcome.NOT_AVAILABLE: HTTPStatus.CONFLICT,
}


class HoldRequest(BaseModel):
    """How to hold a job."""

    model_config = STRICT

    running: bool = Field(default=False, description="Suspend the job if it is running, as `oarhold -r` does.")


class JobSignal(BaseModel):
    """Signal to send to a job."""

    model_config = STRICT

    signal: Annotated[int, Field(ge=1, le=64)] | Text = Field(description="Signal number or name.")


class WalltimeChange(BaseModel):
    """Walltime change of a running job, as with `oarwalltime`."""

    model_config = STRICT

    change: Annotated[int, Field(ge=-(2**31), le=2**31)] | Text = Field(
        description="Change in seconds, or `[+|-]h[:m[:s]]`; without sign: the new walltime."
    )
    force: bool = Field(default=False, description="Apply the change immediately instead of shortly before the end.")
    whole: bool = Field(default=False, description="Grant the whole change or nothing.")
    delay_next_jobs: bool = Field(default=False, description="Allow the change even if it delays waiting jobs.")
    timeout: Count | None = Field(None, description="Seconds after which the request expires.")

    @property
    def request(self) -> WalltimeRequest:
        """The request of oarwalltime."""
        change = self.change
        text = change if isinstance(change, str) else f"{'+' * (change >= 0)}{format_duration(change)}"
        return WalltimeRequest(text, self.force, self.delay_next_jobs, self.whole, self.timeout)


class BesteffortSetting(BaseModel):
    """Whether a running job is besteffort."""

    model_config = STRICT

    on: bool = Field(description="Whether the job is besteffort.")


@router.delete("/v1/jobs/{job_id}", "job_delete", "Delete a job", status=HTTPStatus.ACCEPTED, record=JobResult)
def job_delete(
    request: Request,
    job_id: JobId,
    force: Annotated[
        bool, Field(description="Also end a job that is stuck in Finishing (administrators only).")
    ] = False,
    match: IfMatch = None,
) -> Answer:
    """Delete a job, as `oardel` does. Deleting an ended job is not an error."""
    act = JobOrders.force_end if force else JobOrders.delete
    return _on_one(request, JobAct.DELETE, job_id, act, match)


@router.post("/v1/jobs/{job_id}/hold", "job_hold", "Hold a job", status=HTTPStatus.ACCEPTED, record=JobResult)
def job_hold(request: Request, job_id: JobId, body: HoldRequest | None = None) -> Answer:
    """Hold a waiting job until it is resumed, as `oarhold` does."""
    running = bool(body and body.running)
    return _on_one(request, JobAct.HOLD, job_id, lambda orders: orders.hold(running=running))


@router.post("/v1/jobs/{job_id}/resume", "job_resume", "Resume a job", status=HTTPStatus.ACCEPTED, record=JobResult)
def job_resume(request: Request, job_id: JobId) -> Answer:
    """Resume a held or suspended job, as `oarresume` does."""
    return _on_one(request, JobAct.RESUME, job_id, JobOrders.resume)


@router.post(
    "/v1/jobs/{job_id}/checkpoint", "job_checkpoint", "Checkpoint a job", status=HTTPStatus.ACCEPTED, record=JobResult
)
def job_checkpoint(request: Request, job_id: JobId) -> Answer:
    """Send the checkpoint signal to a job, as `oardel -c` does."""
    return _on_one(request, JobAct.CHECKPOINT, job_id, lambda orders: orders.signal(None))


@router.post(
    "/v1/jobs/{job_id}/signal", "job_signal", "Send a signal to a job", status=HTTPStatus.ACCEPTED, record=JobResult
)
def job_signal(request: Request, job_id: JobId, body: JobSignal) -> Answer:
    """Send a signal to a job, as `oardel -s` does."""
    number = parse_signal(str(body.signal))
    return _on_one(request, JobAct.SIGNAL, job_id, lambda orders: orders.signal(number))


@router.post(
    "/v1/jobs/{job_id}/walltime",
    "job_walltime",
    "Request a walltime change",
    status=HTTPStatus.ACCEPTED,
)
def job_walltime(request: Request, job_id: JobId, body: WalltimeChange) -> JobResult | Answer:
    """Request a walltime change of a running job, as `oarwalltime` does. The next scheduling pass decides."""
    who = asking(request)
    user = who.caller.acting(JobAct.WALLTIME, [job_id])
    try:
        with service_of(request).warnings() as warnings, who.database.begin() as tx:
            text = walltime.request(tx, who.config, user, job_id, body.request)
    except ChangeRefused as refused:
        status = _CHANGES_REFUSED[refused.outcome]
        return problem(request, status, "change-refused", f"{refused.outcome.value}: {refused}")
    return {"id": job_id, "done": text, "warnings": warnings}


@router.put(
    "/v1/jobs/{job_id}/besteffort",
    "job_besteffort",
    "Make a running job besteffort or not besteffort",
    status=HTTPStatus.ACCEPTED,
    record=JobResult,
)
def job_besteffort(request: Request, job_id: JobId, body: BesteffortSetting, match: IfMatch = None) -> Answer:
    """Make a running job besteffort, or no longer besteffort, as `oardel -b` does. Administrators only."""
    who = asking(request)
    user = who.caller.administering()
    return _done(request, user, job_id, lambda orders: orders.toggle_besteffort(besteffort=body.on), match)


def _on_one(
    request: Request, act: JobAct, job_id: int, do: Callable[[JobOrders], Acted], match: str | None = None
) -> Answer:
    return _done(request, asking(request).caller.acting(act, [job_id]), job_id, do, match)


def _done(request: Request, user: "User", job_id: int, do: Callable[[JobOrders], Acted], match: str | None) -> Answer:
    """Execute an action on one job and return the response.  Raises OtherVersion."""
    runtime, expected = service_of(request).runtime, Expected.of(match)
    with service_of(request).warnings() as warnings, runtime.database.begin() as tx:
        if expected:
            expected.check_job(tx, job_id)
        acted = do(JobOrders(tx, runtime.config, user, [job_id]))
    (outcome,) = acted.outcomes
    if outcome.refusal:
        return problem_response(request, outcome.status, outcome.refusal)
    return answer({**outcome.record, "warnings": [*acted.warnings, *warnings]}, status=outcome.status)


#: Jobs of one request, at most.
MAX_JOBS = 10_000
BulkJobId = Annotated[int, Field(ge=1, le=LARGEST_ID)]


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


#: The permission that a token needs; the other actions are for administrators.
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
    ids: list[BulkJobId] | None = Field(None, min_length=1, max_length=MAX_JOBS, description="Job ids.")
    condition: Text | None = Field(None, description="Condition on the jobs, as with `--sql`.")
    array: BulkJobId | None = Field(None, description="Array id.")
    user: Text | None = Field(None, description="Owners of the jobs; default: the caller.")
    state: Text | None = Field(None, description="States of the jobs; default: live jobs.")
    queue: Text | None = Field(None, description="Queues of the jobs, as in the list of jobs.")
    project: Text | None = Field(None, description="Projects of the jobs.")
    name: Text | None = Field(None, description="Names of the jobs.")
    type: Text | None = Field(None, description="Types of the jobs.")
    dry_run: bool = Field(default=False, description="Only return the selected jobs; change nothing.")

    @property
    def filters(self) -> dict[str, object]:
        """The filters, as for lists of jobs."""
        return self.model_dump(exclude={"act", "signal", "ids", "condition", "dry_run"}, exclude_unset=True)


@router.post("/v1/job-acts", "jobs_act", "Delete, hold, resume or signal several jobs")
def jobs_act(request: Request, body: BulkRequest) -> BulkResults:
    """Delete, hold, resume or signal jobs in one transaction, and return a result for each.

    The actions are those of `oardel`, `oarhold` and `oarresume`.
    """
    who = asking(request)
    who.caller.identified()
    act = _act_of(body)
    ids = _meant(who, body)
    if body.dry_run:
        return {"items": [{"id": job_id} for job_id in ids], "warnings": []}
    user = _allowed(who, body.act, ids)
    with service_of(request).warnings() as warnings, who.database.begin() as tx:
        acted = act(JobOrders(tx, who.config, user, ids))
    return {"items": [outcome.record for outcome in acted.outcomes], "warnings": [*acted.warnings, *warnings]}


def _act_of(body: BulkRequest) -> Callable[[JobOrders], Acted]:
    """Return the function for an action.  Raises BadRequest, BadSubmission."""
    if (body.signal is not None) is not (body.act is BulkAction.SIGNAL):
        raise BadRequest("`signal` must be used with the act 'signal', and with no other")
    number = None if body.signal is None else parse_signal(str(body.signal))
    acts: dict[BulkAction, Callable[[JobOrders], Acted]] = {
        BulkAction.DELETE: JobOrders.delete,
        BulkAction.FORCE_END: JobOrders.force_end,
        BulkAction.HOLD: lambda orders: orders.hold(running=False),
        BulkAction.HOLD_RUNNING: lambda orders: orders.hold(running=True),
        BulkAction.RESUME: JobOrders.resume,
        BulkAction.CHECKPOINT: lambda orders: orders.signal(None),
        BulkAction.SIGNAL: lambda orders: orders.signal(number),
        BulkAction.BESTEFFORT: lambda orders: orders.toggle_besteffort(besteffort=True),
        BulkAction.NOT_BESTEFFORT: lambda orders: orders.toggle_besteffort(besteffort=False),
    }
    return acts[body.act]


def _allowed(who: Asking, act: BulkAction, ids: list[int]) -> "User":
    """Return the user who acts.  Raises Unidentified, NotAllowed."""
    allowed_by = _ALLOWED_BY.get(act)
    return who.caller.acting(allowed_by, ids) if allowed_by else who.caller.administering()


def _meant(who: Asking, body: BulkRequest) -> list[int]:
    """Return the ids of the selected jobs.  Raises BadRequest, BadCondition."""
    ways = (body.ids is not None, body.condition is not None, bool(body.filters))
    if sum(ways) != 1:
        raise BadRequest("select jobs by ids, by a condition, or by user, state, queue, project, name, type, array")
    if body.ids is not None:
        return list(dict.fromkeys(body.ids))
    if body.condition is not None:
        ids = evaluate(who.database, Subject.JOBS, body.condition, who.sql_asker())
    else:
        listing = JobListing.of({"user": "me", **body.filters})
        with who.database.snapshot() as tx:
            ids = tx.listings.page(listing.query(who), JobPlace(MAX_JOBS))
    if len(ids) > MAX_JOBS:
        raise BadRequest(f"more than {MAX_JOBS} jobs: select fewer jobs in a request")
    return ids
