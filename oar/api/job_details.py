"""Parts of a job besides its record: each has its own route, and can be included in the record (``include=``)."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request

from oar.api.estimates import FindSmallestChange
from oar.api.parameters import JobId
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking, service_of
from oar.api.workers import answer_of
from oar.lib.base.errors import BadRequest
from oar.lib.jobs import walltime
from oar.lib.jobs.explanations import explain
from oar.lib.jobs.records import Job
from oar.lib.jobs.usage import job_usages
from oar.lib.jobs.views import jobs_around

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.sql_waits import ToldStarts

router = APIRouter(tags=["jobs"], route_class=ApiRoute)

#: Returns a part of a job.
Part = Callable[["Transaction", Job, "Config"], object]


def parse_parts(text: str | None) -> tuple[str, ...]:
    """Return the names of a list with commas.  Raises BadRequest."""
    names = tuple(dict.fromkeys(word for word in (text or "").split(",") if word))
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise BadRequest(f"include: {unknown[0]!r} is no part of a job: {', '.join(PARTS)}")
    return names


@router.get("/v1/jobs/{job_id}/explanation", operation_id="job_explanation", summary="Explain why a job waits")
def job_explanation(
    request: Request,
    job_id: JobId,
    change: Annotated[
        bool,
        Query(description="Add the smallest change of one number of the request that would let the job start now."),
    ] = False,
) -> Answer:
    """Return the explanation of `oarstat --explain`; with `change`, also that of `oarstat --explain --change`."""
    if not change:
        return _part_response(request, job_id, "explanation")
    who, service = asking(request), service_of(request)
    with who.database.snapshot() as tx:
        job = tx.jobs.get(job_id)
        record = _explanation(tx, job, who.config)
    if record["code"] is None:
        return answer_unless_known(request, record)
    with service.estimating(request, who.caller):
        outcome = service.workers.run_long(FindSmallestChange(job_id), 2 * who.config.estimate_timeout)
    if outcome.status != HTTPStatus.OK:
        return answer_of(request, outcome)
    return answer_unless_known(request, {**record, **outcome.record})


@router.get("/v1/jobs/{job_id}/states", operation_id="job_states", summary="State history of a job")
def job_states(request: Request, job_id: JobId) -> Answer:
    """Return the states of a job with their start and end dates."""
    return _part_response(request, job_id, "states")


@router.get("/v1/jobs/{job_id}/usage", operation_id="job_usage", summary="Resource usage of a job")
def job_usage(request: Request, job_id: JobId) -> Answer:
    """Return CPU time and memory by node, as `oarstat --usage` does. For a running job: the usage so far."""
    return _part_response(request, job_id, "usage")


@router.get("/v1/jobs/{job_id}/predictions", operation_id="job_predictions", summary="Predicted start times of a job")
def job_predictions(request: Request, job_id: JobId) -> Answer:
    """Return the predicted start times of a job, and their differences to the actual start."""
    return _part_response(request, job_id, "predictions")


@router.get("/v1/jobs/{job_id}/dependencies", operation_id="job_dependencies", summary="Dependencies of a job")
def job_dependencies(request: Request, job_id: JobId) -> Answer:
    """Return the jobs that a job depends on, and those that depend on it, over at most three steps."""
    return _part_response(request, job_id, "jobs_around")


def _part_response(request: Request, job_id: int, name: str) -> Answer:
    who = asking(request)
    with who.database.snapshot() as tx:
        part = PARTS[name](tx, tx.jobs.get(job_id), who.config)
    return answer_unless_known(request, part if isinstance(part, dict) else {"items": part})


def _explanation(tx: "Transaction", job: Job, config: "Config") -> dict[str, object]:
    (explanation,) = explain(tx, [job], config)
    return explanation.record


def _states(tx: "Transaction", job: Job, _: "Config") -> list[dict[str, object]]:
    changes = tx.jobs.state_changes([job.id])[job.id]
    return [{"state": change.state, "from": change.start, "to": change.stop or None} for change in changes]


def _usage(tx: "Transaction", job: Job, config: "Config") -> dict[str, object]:
    (usage,) = job_usages(tx, [job], config.job_resource_manager_property_db_field)
    return usage.record


def _predictions(tx: "Transaction", job: Job, _: "Config") -> list[dict[str, object]]:
    predictions = tx.job_waits.predicted_starts(job.id)
    return _prediction_records(predictions) if predictions else []


def _prediction_records(predictions: "ToldStarts") -> list[dict[str, object]]:
    """Return the predictions of a job in their order: at most two."""
    return [
        {
            "when": when,
            "date": date,
            "start": start,
            "late_by": predictions.real_start - start if predictions.real_start else None,
        }
        for when, date, start in (
            ("first", predictions.first_date, predictions.first_start),
            ("near", predictions.near_date, predictions.near_start),
        )
        if date
    ]


def _jobs_around(tx: "Transaction", job: Job, _: "Config") -> dict[str, object]:
    return jobs_around(tx, job.id).record


#: The parts by their names.
PARTS: Mapping[str, Part] = {
    "explanation": _explanation,
    "states": _states,
    "usage": _usage,
    "predictions": _predictions,
    "jobs_around": _jobs_around,
}
#: The parts of ``everything=true``.
EVERYTHING = ("explanation", "states")


@router.get(
    "/v1/jobs/{job_id}/walltime", operation_id="job_walltime_changes", summary="Walltime changes allowed for a job"
)
def job_walltime_changes(request: Request, job_id: JobId) -> Answer:
    """Return what `oarwalltime` shows, in seconds. `possible_increase` is null if there is no limit.

    `may` lists the options that the site allows the caller. Administrators have no limits.
    """
    return answer_unless_known(request, _walltime_record(asking(request), job_id))


def _walltime_record(who: Asking, job_id: int) -> dict[str, Any]:
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
