"""Estimates of where and when jobs would start, computed in a worker; nothing is submitted."""

import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, Field
from starlette.requests import Request

from oar.api.authentication import Caller
from oar.api.errors import problem_record
from oar.api.job_request import AskedJobs, JobRequest
from oar.api.parameters import STRICT
from oar.api.records import Estimates
from oar.api.responses import Answer
from oar.api.routing import Router
from oar.api.service import asking, service_of
from oar.api.submission import files_of, proposal_of, scanned
from oar.api.workers import Desk, Outcome, answer_of, problem_of, text_of
from oar.lib.access.records import User
from oar.lib.base.errors import UserError
from oar.lib.submission import admission
from oar.lib.user_files.files import UserFiles

if TYPE_CHECKING:
    from oar.kao.rounds.hypothetical.estimates import ComparedSubmissions
    from oar.kao.rounds.reading.situation import HypotheticalJob
    from oar.lib.submission.admission import Admission

router = Router("jobs")


class EstimateRequest(BaseModel):
    """Alternative job requests to compare."""

    model_config = STRICT

    alternatives: list[JobRequest] = Field(min_length=1, max_length=8)


@router.post("/v1/estimates", "estimates", "Estimate start times", record=Estimates)
def estimate(request: Request, body: EstimateRequest) -> Answer:
    """Return where and when each alternative would start, as `oarsub --estimate` does. Nothing is stored."""
    return answer_of(
        request, estimated(request, asking(request).caller, [alternative.asked for alternative in body.alternatives])
    )


def estimated(request: Request, caller: Caller, alternatives: Sequence[AskedJobs]) -> "Outcome":
    """Return the estimates of alternatives.  Raises Unidentified, TooOften, Unavailable."""
    task = EstimateJobs(caller.identified(), alternatives)
    service = service_of(request)
    config = service.runtime.config
    # The last may begin at the end of its time.
    seconds = config.admission_rules_timeout + config.api_timeout + 2 * config.estimate_timeout
    with service.estimating(request, caller):
        return service.workers.run_long(task, seconds)


#: Numbers that are left to the jobs of each alternative.
MAX_JOBS = 1_000_000
_TOO_LATE = "the others took all the time (ESTIMATE_TIMEOUT): ask for this one alone"


class EstimateJobs(NamedTuple):
    """The task to estimate the start of each alternative."""

    user: User
    alternatives: Sequence[AskedJobs]

    def run(self, desk: Desk) -> Outcome:
        """Estimate all alternatives in one situation; those that are refused or not reached in time become problems.

        Raises Unavailable.
        """
        from oar.kao.rounds.hypothetical.estimates import ComparedSubmissions

        deadline = time.monotonic() + desk.config.estimate_timeout
        files = files_of(desk, self.user)
        tried = [self._tried(desk, files, alternative, number) for number, alternative in enumerate(self.alternatives)]
        jobs = [result.jobs for result in tried if isinstance(result, _Tried)]
        situation = ComparedSubmissions(desk.database, desk.config, jobs) if jobs else None
        items = [
            _estimated(situation, result, deadline) if situation and isinstance(result, _Tried) else result
            for result in tried
        ]
        return Outcome(HTTPStatus.OK, {"items": items})

    def _tried(self, desk: Desk, files: UserFiles, alternative: AskedJobs, number: int) -> "_Tried | dict[str, Any]":
        """Return an alternative as the rules leave it, or the record of why it is refused."""
        from oar.kao.rounds.hypothetical import estimates

        try:
            admitted = admission.rehearse(
                desk.database, desk.config, proposal_of(desk, self.user, scanned(desk, self.user, files, alternative))
            )
            jobs = estimates.supposed(desk.database, admitted.proposal, number * MAX_JOBS)
        except UserError as error:
            return {"problem": problem_of(error).record}
        return _Tried(admitted, jobs)


class FindSmallestChange(NamedTuple):
    """The task to find with which change of its request a job that waits would start now."""

    job: int

    def run(self, desk: Desk) -> Outcome:
        """Find it, in the words of ``oarstat --explain``.  Raises Unavailable."""
        from oar.kao.rounds.hypothetical import estimates

        change = estimates.smallest_changes(desk.database, desk.config, [self.job])[self.job]
        return Outcome(HTTPStatus.OK, {"smallest_change": change or None, "smallest_change_known": change is not None})


class _Tried(NamedTuple):
    """An alternative that the rules have passed."""

    admitted: "Admission"
    jobs: "Sequence[HypotheticalJob]"


def _estimated(situation: "ComparedSubmissions", tried: _Tried, deadline: float) -> dict[str, Any]:
    if time.monotonic() > deadline:
        return {"problem": problem_record(HTTPStatus.SERVICE_UNAVAILABLE, "too-late", _TOO_LATE)}
    proposal = tried.admitted.proposal
    estimate = situation.estimates(proposal, tried.jobs)
    jobs = [job.record for job in estimate.jobs]
    return {
        **jobs[0],
        "jobs": jobs if len(jobs) > 1 else [],
        "warnings": [*proposal.warnings, *estimate.warnings],
        "output": text_of(tried.admitted.output),
        "initial_request": proposal.spec.initial_request,
    }
