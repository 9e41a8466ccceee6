"""Records in answers that several modules use.  The others are declared beside their handlers.

A record is a dictionary with types: it costs nothing when a request is answered.  The OpenAPI document is made of these
types, and the tests compare every response with it.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypeVar, cast

from pydantic import ConfigDict, Field, WithJsonSchema
from typing_extensions import TypeAliasType, TypedDict

from oar.lib.jobs.fields import JobField, Kind
from oar.lib.jobs.formats import V1, V1_LISTED
from oar.lib.reservations.fields import RECORD as RESERVATION_FIELDS

Record = TypeVar("Record")


def _numbers(**more: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "array", "items": {"type": "integer"}, **more})


#: A first number and how many adjacent ones there are; a run of a job on the resources of a node.
Pair = Annotated[tuple[int, int], _numbers(minItems=2, maxItems=2)]
Triple = Annotated[tuple[int, int, int], _numbers()]
#: The fields that an item of a list has unless its client selects others; a key of its schema.
WHOLE = "x-whole"


def records_of(rows: Iterable[Any], record: type[Record]) -> list[Record]:
    """Return named tuples as records with the same names."""
    return [cast("Record", row._asdict()) for row in rows]


def selectable(record: type[Record]) -> type[Record]:
    """Let the schema of a record say that clients select its fields."""

    def select(schema: dict[str, Any]) -> None:
        schema[WHOLE] = schema["required"]
        schema["required"] = []

    record.__pydantic_config__ = ConfigDict(json_schema_extra=select)  # type: ignore[attr-defined]
    return record


class Queue(TypedDict):
    name: str
    priority: int
    policy: str
    state: str
    jobs: dict[str, int]
    version: str
    oldest_waiting: int | None


class Conditions(TypedDict):
    free: int
    used: int
    reserved: int
    draining: int
    absent: int
    suspected: int
    dead: int


class ConditionsAndStandby(Conditions):
    standby: int


class WaitingInfo(TypedDict):
    scheduled_start: int | None
    foreseen_at: int | None
    why: str
    code: str | None
    reason: str | None
    data: dict[str, Any]


JobMembers = TypedDict("JobMembers", {"total": int, "jobs": list[Pair], "started": int | None})


class Event(TypedDict):
    id: int
    type: str
    job: int | None
    date: int
    text: str
    nodes: list[str]
    sentence: str


class JobEnd(TypedDict):
    cause: str
    data: dict[str, Any]
    sentence: str
    advice: str
    resubmitted_as: int | None


class PredictedStart(TypedDict):
    date: int
    hosts: list[str]
    resources: int
    firmness: str
    because: str | None
    jobs_before: int
    foreseen_at: int | None
    half_off_by: int | None
    most_off_by: int | None


BlockingJob = TypedDict("BlockingJob", {"job_id": int, "owner": str, "state": str, "end": int | None})
StateSpan = TypedDict("StateSpan", {"state": str, "from": int, "to": int | None})


class _Used(TypedDict):
    cores: int
    cpu_seconds: float | None
    cpu_efficiency: float | None
    max_rss: int | None
    memory_limit: int | None
    oom_kills: int | None


class NodeUsage(_Used):
    forks_denied: int | None


class JobUsage(_Used):
    job_id: int
    owner: str
    state: str
    elapsed: int
    core_seconds: int
    complete: bool
    nodes: dict[str, NodeUsage]


class NodeCurve(TypedDict):
    gpus: int
    cpu: list[float | None]
    memory: list[int | None]
    gpu: list[float | None]
    gpu_memory: list[int | None]


class JobCurves(TypedDict):
    begin: int | None
    step: int | None
    total: NodeCurve | None
    nodes: dict[str, NodeCurve]


PredictionRecord = TypedDict("PredictionRecord", {"when": str, "date": int, "start": int, "late_by": int | None})


class Dependency(TypedDict):
    job: int
    requires: int
    condition: str | None
    min_shift: str | None
    max_shift: str | None


RelatedJob = TypedDict("RelatedJob", {"id": int, "user": str, "name": str | None, "state": str})


class JobDependencies(TypedDict):
    dependencies: list[Dependency]
    jobs: list[RelatedJob]
    complete: bool


class Submission(TypedDict):
    id: int
    ids: list[int]
    warnings: list[str]
    output: str
    reservation: NotRequired[str]


class ItemProblem(TypedDict):
    status: int
    type: str
    title: str
    detail: str
    hint: NotRequired[str]
    field: NotRequired[str]
    output: NotRequired[str]
    reason: NotRequired[str]


class SubmittedJob(TypedDict):
    status: int
    problem: NotRequired[ItemProblem]
    id: NotRequired[int]
    ids: NotRequired[list[int]]
    warnings: NotRequired[list[str]]
    output: NotRequired[str]


SubmittedJobs = TypedDict("SubmittedJobs", {"items": list[SubmittedJob]})
JobResult = TypedDict("JobResult", {"id": int, "done": str, "warnings": list[str]})
ResubmittedJob = TypedDict("ResubmittedJob", {"id": int, "warnings": list[str]})
BulkResult = TypedDict("BulkResult", {"id": int, "done": NotRequired[str], "problem": NotRequired[ItemProblem]})
BulkResults = TypedDict("BulkResults", {"items": list[BulkResult], "warnings": list[str]})
Reason = TypedDict("Reason", {"code": str, "text": str, "data": dict[str, Any]})


class EstimatedJob(TypedDict):
    feasible: bool | None
    start: int | None
    not_before: int | None
    walltime: int
    resources: list[int]
    hosts: list[str]
    reasons: list[Reason]
    sentence: str


class Estimate(TypedDict):
    problem: NotRequired[ItemProblem]
    feasible: NotRequired[bool | None]
    start: NotRequired[int | None]
    not_before: NotRequired[int | None]
    walltime: NotRequired[int]
    resources: NotRequired[list[int]]
    hosts: NotRequired[list[str]]
    reasons: NotRequired[list[Reason]]
    sentence: NotRequired[str]
    jobs: NotRequired[list[EstimatedJob]]
    warnings: NotRequired[list[str]]
    output: NotRequired[str]
    initial_request: NotRequired[str]


Estimates = TypedDict("Estimates", {"items": list[Estimate]})
NamedResult = TypedDict("NamedResult", {"name": str, "done": str, "warnings": list[str]})
Result = TypedDict("Result", {"done": str, "warnings": list[str]})


class Explanation(TypedDict):
    job_id: int
    state: str
    queue: str
    submission_time: int
    start_time: int
    code: str | None
    since: int | None
    reason: str | None
    sentence: str
    data: dict[str, Any]
    trouble: str | None
    advice: str | None
    lost_nodes: list[dict[str, Any]]
    start: PredictedStart | None
    in_front: list[BlockingJob]
    waited: int
    waited_for: dict[str, int]


_KINDS: Mapping[Kind, Any] = {
    Kind.TEXT: str,
    **dict.fromkeys((Kind.NUMBER, Kind.DATE, Kind.DURATION, Kind.WAIT_STATUS, Kind.SIZE), int),
    **dict.fromkeys((Kind.FLOAT, Kind.RATIO), float),
    Kind.FLAG: bool,
    Kind.TEXTS: list[str],
    Kind.NUMBERS: list[int],
    Kind.RECORD: JobEnd,
    Kind.RECORDS: list[Event],
}


def _type_of(field: JobField) -> Any:
    kind = _KINDS[field.kind]
    described = kind if kind is JobEnd else Annotated[kind, Field(description=field.meaning.replace("``", "`"))]
    return described | None if field.is_null else described


#: The fields of jobs in lists, and of a job; ``oar.lib.jobs.fields`` declares them.
JOB_ITEM = {key: _type_of(field) for key, field in V1_LISTED.items()}
JOB_DETAILS = {key: _type_of(field) for key, field in V1.items()}
if TYPE_CHECKING:
    Job = dict[str, Any]
    JobItem = dict[str, Any]
else:
    _OF_DETAILS = {key: NotRequired[kind] for key, kind in JOB_DETAILS.items() if key not in JOB_ITEM}
    _OF_LISTS = {"outlook": NotRequired[WaitingInfo | None], "members": NotRequired[JobMembers]}
    JobItem = selectable(TypedDict("JobItem", {**JOB_ITEM, **_OF_LISTS, **_OF_DETAILS}))
    _PARTS = {"explanation": Explanation, "states": list[StateSpan], "usage": JobUsage}
    _PARTS |= {"curves": JobCurves, "predictions": list[PredictionRecord], "jobs_around": JobDependencies}
    Job = TypedDict("Job", {**JOB_DETAILS, **{name: NotRequired[kind] for name, kind in _PARTS.items()}})


class JobPage(TypedDict):
    items: list[JobItem]
    next: int | None
    total: NotRequired[int]
    more_than_total: NotRequired[bool]


Slots = TypedDict("Slots", {"queue": str, "host": str, "slots": int})
ResourceRequest = TypedDict("ResourceRequest", {"name": str, "value": Any})
Environment = TypedDict("Environment", {"name": str, "slots": NotRequired[int], "range": NotRequired[str]})
ReservationJobs = TypedDict("ReservationJobs", {"running": list[int], "waiting": list[int]})
PendingChange = TypeAliasType("PendingChange", dict[str, Any])


class ReservationUsage(TypedDict):
    queue: str
    host: str
    slots: int
    reserved: int
    used: int
    unusable: int


_RESERVATION_RECORDS: Mapping[str, Any] = {
    "granted": list[Slots],
    "requested": list[ResourceRequest],
    "granted_environment": Environment | None,
    "environment": Environment | None,
    "jobs": ReservationJobs,
    "change": PendingChange | None,
    "usage": list[ReservationUsage],
}
#: The fields of advance reservations; ``oar.lib.reservations.fields`` declares them.
RESERVATION = {
    key: _RESERVATION_RECORDS[field.name]
    if field.name in _RESERVATION_RECORDS
    else Annotated[_KINDS[field.kind], Field(description=field.meaning)]
    for key, field in RESERVATION_FIELDS.items()
}
if TYPE_CHECKING:
    ReservationFields = TypedDict("ReservationFields", {})
else:
    ReservationFields = TypedDict("ReservationFields", RESERVATION)


@selectable
class ReservationItem(ReservationFields):
    pass


ReservationPage = TypedDict("ReservationPage", {"items": list[ReservationItem], "next": int | None})


class ReservationLogEntry(TypedDict):
    date: int
    event: str
    state: str
    host: str
    message: str
    author: str


class Reservation(ReservationFields):
    version: NotRequired[str]
    log: NotRequired[list[ReservationLogEntry]]


ReservationLog = TypedDict("ReservationLog", {"items": list[ReservationLogEntry]})


class ReservationResources(TypedDict):
    resources: list[int]
    granted_slots: list[Slots]
    missing: list[int]
    reasons: list[str]


ReservationUsages = TypedDict("ReservationUsages", {"items": list[ReservationUsage]})


class ReservationRevision(TypedDict):
    revision: int
    date: int
    author: str
    ar_name: str
    account: str
    start_time: int
    end_time: int
    granted_parallel_environment: str
    granted_resources: str


ReservationRevisions = TypedDict("ReservationRevisions", {"items": list[ReservationRevision]})


class ReservationChange(ReservationLogEntry):
    id: int
    kind: Literal["ADD", "MOD", "DEL"]
    number: int | None
    reservation: Reservation | None


ReservationChanges = TypedDict("ReservationChanges", {"items": list[ReservationChange], "next": int})
SkippedReservation = TypedDict("SkippedReservation", {"index": int, "start": int, "reason": str})


class CreatedReservations(TypedDict):
    items: list[Reservation]
    series: int | None
    skipped: list[SkippedReservation]
    output: str
    warnings: list[str]


class UpdatedReservation(ReservationFields):
    message: str | None
    lost_jobs: list[int]
    warnings: list[str]


class SeriesItem(TypedDict):
    id: int
    done: str
    message: str | None
    lost_jobs: list[int]
    proposal: int | None


UpdatedSeries = TypedDict("UpdatedSeries", {"items": list[SeriesItem], "series": int, "warnings": list[str]})


class ReservationUpdateTest(TypedDict):
    granted: bool
    start_time: int | None
    end_time: int | None
    resources: list[int]
    ended_jobs: list[int]
    lost_jobs: list[int]
    reason: str | None
    proposal: int | None


DeletedSeriesItem = TypedDict("DeletedSeriesItem", {"id": int, "done": str})
DeletedSeries = TypedDict("DeletedSeries", {"items": list[DeletedSeriesItem], "series": int, "warnings": list[str]})


class ReservationTestItem(TypedDict):
    start_time: int
    end_time: int
    state: str
    reasons: list[str]
    granted_slots: list[Slots]
    resources: list[int]


class ReservationTest(TypedDict):
    granted: bool
    items: list[ReservationTestItem]
    reason: str | None
    proposal: int | None
    output: str
