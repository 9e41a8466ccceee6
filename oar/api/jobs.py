"""Jobs: lists, one job and its parts, arrays."""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.concurrency import in_thread
from oar.api.errors import bad_request_of
from oar.api.estimates import FindSmallestChange
from oar.api.long_polling import wait_while
from oar.api.parameters import LARGEST_ID, PRINTABLE, CommaList, Fields, JobId, split_list
from oar.api.records import (
    JOB_DETAILS,
    JOB_ITEM,
    Explanation,
    Job,
    JobCurves,
    JobDependencies,
    JobPage,
    JobUsage,
    Pair,
    PredictionRecord,
    StateSpan,
)
from oar.api.responses import EXPORT_PAGE, Answer, Export, accepts_lines, answer_unless_known, select_fields
from oar.api.routing import OF_RESOURCES, Router
from oar.api.service import MAX_EXPORTS, Asking, asking, counted_client, service_of
from oar.api.workers import answer_of
from oar.lib.base.errors import BadRequest, NoSuchJob
from oar.lib.bus.messages import Topic
from oar.lib.history.gantt import ranges
from oar.lib.jobs import records, walltime
from oar.lib.jobs.curves import record as curve_record
from oar.lib.jobs.explanations import explain, outlooks
from oar.lib.jobs.formats import job_details, job_item, jobs_details, members_record
from oar.lib.jobs.records import LIVE_STATES, JobPlace, JobQuery
from oar.lib.jobs.sql_jobs import ArrayMember
from oar.lib.jobs.sql_listings import MOST_COUNTED, ListedJob
from oar.lib.jobs.states import JobState, Outcome
from oar.lib.jobs.usage import job_usages
from oar.lib.jobs.views import job_columns, job_view, jobs_around

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction


router = Router("jobs")


class JobExplanation(Explanation):
    smallest_change: NotRequired[str | None]
    smallest_change_known: NotRequired[bool]


JobStates = TypedDict("JobStates", {"items": list[StateSpan]})
JobPredictions = TypedDict("JobPredictions", {"items": list[PredictionRecord]})


class WalltimeOptions(TypedDict):
    id: int
    is_enabled: bool
    walltime: int
    possible_increase: int | None
    granted: int
    pending: int
    timeout: int | None
    may: dict[str, bool]


#: Returns a part of a job.
Part = Callable[["Transaction", records.Job, "Config"], object]


def parse_parts(text: str | None) -> tuple[str, ...]:
    """Return the names of a list with commas.  Raises BadRequest."""
    names = tuple(dict.fromkeys(word for word in (text or "").split(",") if word))
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise BadRequest(f"include: {unknown[0]!r} must be one of {', '.join(PARTS)}")
    return names


@router.get("/v1/jobs/{job_id}/explanation", "job_explanation", "Explain why a job waits", record=JobExplanation)
def job_explanation(
    request: Request,
    job_id: JobId,
    change: Annotated[
        bool,
        Field(description="Add the smallest change of one number of the request that would let the job start now."),
    ] = False,
) -> Mapping[str, Any] | Answer:
    """Return the explanation of `oarstat --explain`; with `change`, also that of `oarstat --explain --change`."""
    if not change:
        return _part_response(request, job_id, "explanation")
    who, service = asking(request), service_of(request)
    with who.database.snapshot() as tx:
        job = tx.jobs.get(job_id)
        record = _explanation(tx, job, who.config)
    if record["code"] is None:
        return record
    with service.estimating(request, who.caller):
        outcome = service.workers.run_long(FindSmallestChange(job_id), 2 * who.config.estimate_timeout)
    if outcome.status != HTTPStatus.OK:
        return answer_of(request, outcome)
    return {**record, **outcome.record}


@router.get("/v1/jobs/{job_id}/states", "job_states", "State history of a job", record=JobStates)
def job_states(request: Request, job_id: JobId) -> Answer:
    """Return the states of a job with their start and end dates."""
    return _part_response(request, job_id, "states")


@router.get("/v1/jobs/{job_id}/usage", "job_usage", "Resource usage of a job", record=JobUsage)
def job_usage(request: Request, job_id: JobId) -> Answer:
    """Return CPU time and memory by node, as `oarstat --usage` does. For a running job: the usage so far."""
    return _part_response(request, job_id, "usage")


@router.get("/v1/jobs/{job_id}/curves", "job_curves", "Resource usage of a job over time", record=JobCurves)
def job_curves(
    request: Request,
    job_id: JobId,
    by_node: Annotated[bool, Field(description="Include the curves of each node; else `nodes` is empty.")] = True,
) -> Answer:
    """Return what a job used over time, by node and on all nodes together: processors, bytes, fractions of its GPUs.

    Each list has a value for each `step` seconds since `begin`; null: it was not measured. `total` has values for the
    times at which all nodes were measured. A node reports every 30 seconds; long jobs have longer steps, so that a list
    has at most 240 values.
    """
    with asking(request).database.snapshot() as tx:
        job = tx.jobs.get(job_id)
        part = curve_record(tx.job_curves.of_jobs([job.id])[job.id], by_node=by_node)
    return answer_unless_known(request, part)


@router.get("/v1/jobs/{job_id}/predictions", "job_predictions", "Predicted start times of a job", record=JobPredictions)
def job_predictions(request: Request, job_id: JobId) -> Answer:
    """Return the predicted start times of a job, and their differences to the actual start."""
    return _part_response(request, job_id, "predictions")


@router.get("/v1/jobs/{job_id}/dependencies", "job_dependencies", "Dependencies of a job", record=JobDependencies)
def job_dependencies(request: Request, job_id: JobId) -> Answer:
    """Return the jobs that a job depends on, and those that depend on it, over at most three steps."""
    return _part_response(request, job_id, "jobs_around")


def _part_response(request: Request, job_id: int, name: str) -> Answer:
    who = asking(request)
    with who.database.snapshot() as tx:
        part = PARTS[name](tx, tx.jobs.get(job_id), who.config)
    return answer_unless_known(request, part if isinstance(part, dict) else {"items": part})


def _explanation(tx: "Transaction", job: records.Job, config: "Config") -> dict[str, object]:
    (explanation,) = explain(tx, [job], config)
    return explanation.record


def _state_spans(tx: "Transaction", job: records.Job, _: "Config") -> list[dict[str, object]]:
    changes = tx.jobs.state_changes([job.id])[job.id]
    return [{"state": change.state, "from": change.start, "to": change.stop or None} for change in changes]


def _usage(tx: "Transaction", job: records.Job, config: "Config") -> dict[str, object]:
    (usage,) = job_usages(tx, [job], config.job_resource_manager_property_db_field)
    return usage.record


def _curves(tx: "Transaction", job: records.Job, _: "Config") -> dict[str, object]:
    return curve_record(tx.job_curves.of_jobs([job.id])[job.id])


def _predictions(tx: "Transaction", job: records.Job, _: "Config") -> list[dict[str, object]]:
    """Return the predictions of a job in their order: at most two."""
    predictions = tx.job_waits.predicted_starts(job.id)
    if not predictions:
        return []
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


def _jobs_around(tx: "Transaction", job: records.Job, _: "Config") -> dict[str, object]:
    return jobs_around(tx, job.id).record


#: The parts by their names.
PARTS: Mapping[str, Part] = {
    "explanation": _explanation,
    "states": _state_spans,
    "usage": _usage,
    "curves": _curves,
    "predictions": _predictions,
    "jobs_around": _jobs_around,
}
#: The parts of ``everything=true``.
EVERYTHING = ("explanation", "states")


@router.get("/v1/jobs/{job_id}/walltime", "job_walltime_changes", "Walltime changes allowed for a job")
def job_walltime_changes(request: Request, job_id: JobId) -> WalltimeOptions:
    """Return what `oarwalltime` shows, in seconds. `possible_increase` is null if there is no limit.

    `may` lists the options that the site allows the caller. Administrators have no limits.
    """
    who = asking(request)
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


class JobArray(TypedDict):
    id: int
    name: str | None
    user: str
    project: str
    queue: str
    submitted: int
    limit: int | None
    total: int
    counts: dict[str, int]
    letters: dict[str, str]
    jobs: list[Pair]
    marks: str
    started: int | None
    ended: int | None
    shortest: int | None
    median: int | None
    longest: int | None


class MemberCondition(StrEnum):
    """The condition of a job of an array: its state, or the result of an ended job."""

    WAITING = "waiting"
    HOLD = "hold"
    LAUNCHING = "launching"
    RUNNING = "running"
    SUSPENDED = "suspended"
    GOOD = "good"  #: it ended with exit code 0
    BAD = "bad"  #: it ended with another one
    ERROR = "error"


#: The letter of each condition.
LETTERS = {
    MemberCondition.WAITING: "w",
    MemberCondition.HOLD: "h",
    MemberCondition.LAUNCHING: "l",
    MemberCondition.RUNNING: "r",
    MemberCondition.SUSPENDED: "s",
    MemberCondition.GOOD: "g",
    MemberCondition.BAD: "b",
    MemberCondition.ERROR: "e",
}
_CONDITIONS = {
    JobState.WAITING: MemberCondition.WAITING,
    JobState.TO_ACK_RESERVATION: MemberCondition.WAITING,
    JobState.HOLD: MemberCondition.HOLD,
    JobState.TO_LAUNCH: MemberCondition.LAUNCHING,
    JobState.LAUNCHING: MemberCondition.LAUNCHING,
    JobState.RUNNING: MemberCondition.RUNNING,
    JobState.FINISHING: MemberCondition.RUNNING,
    JobState.SUSPENDED: MemberCondition.SUSPENDED,
    JobState.RESUMING: MemberCondition.SUSPENDED,
    JobState.TO_ERROR: MemberCondition.ERROR,
    JobState.ERROR: MemberCondition.ERROR,
}


def condition_of(state: JobState, exit_code: int) -> MemberCondition:
    """Return the condition of a job.

    >>> condition_of(JobState.TERMINATED, 256)
    <MemberCondition.BAD: 'bad'>
    """
    if state is JobState.TERMINATED:
        return MemberCondition.BAD if exit_code else MemberCondition.GOOD
    return _CONDITIONS[state]


@router.get("/v1/arrays/{array_id}", "array", "Get a job array")
def get_array(request: Request, array_id: JobId) -> JobArray:
    """Return the state of each job of an array, the number of jobs in each state, and statistics of their run times."""
    return array_record(asking(request), array_id)


def array_record(who: Asking, array_id: int) -> JobArray:
    """Return an array, with the run times of its ended jobs.  Raises NoSuchJob."""
    with who.database.snapshot() as tx:
        members = tx.jobs.array_members(array_id)
        if not members:
            raise NoSuchJob(array_id)
        first = tx.jobs.get(members[0].id)
        members = _with_copies(members, tx.listings.copies([member.id for member in members]))
    conditions = [condition_of(member.state, member.exit_code) for member in members]
    ran = sorted(member.stop - member.start for member in members if member.start and member.stop)
    return {
        "id": array_id,
        "name": first.name,
        "user": first.user,
        "project": first.project,
        "queue": first.queue,
        "submitted": first.submission_time,
        "limit": first.array_limit or None,
        "total": len(members),
        "counts": {str(condition): conditions.count(condition) for condition in MemberCondition},
        "letters": {letter: str(condition) for condition, letter in LETTERS.items()},
        "jobs": list(ranges([member.id for member in members])),
        "marks": "".join(LETTERS[condition] for condition in conditions),
        "started": min((member.start for member in members if member.start), default=None),
        "ended": max(member.stop for member in members) if all(member.stop for member in members) else None,
        "shortest": ran[0] if ran else None,
        "median": ran[len(ran) // 2] if ran else None,
        "longest": ran[-1] if ran else None,
    }


def _with_copies(members: Sequence[ArrayMember], copies: Mapping[int, int]) -> list[ArrayMember]:
    """Return the jobs of an array; the last copy of a resubmitted job takes its place."""
    by_id, replaced_by = {member.id: member for member in members}, set(copies.values())
    placed = []
    for member in members:
        if member.id in replaced_by:
            continue
        last = member
        while copies.get(last.id) in by_id:
            last = by_id[copies[last.id]]
        placed.append(last)
    return placed


Everything = Annotated[bool, Field(description="Include `explanation` and `states`.")]
Include = Annotated[
    str | None,
    Field(max_length=200, pattern=PRINTABLE, description=f"Parts to include: {', '.join(PARTS)}."),
]
Wait = Annotated[int, Field(ge=0, le=LARGEST_ID, description="Seconds to wait for a state change, at most 30.")]
Stays = Annotated[
    str | None,
    Field(
        alias="while",
        max_length=200,
        pattern=PRINTABLE,
        description="States to wait in; `live`: all states before the end. Default: the current state.",
    ),
]
#: Epoch seconds, of years that browsers can show.
Date = Annotated[int | None, Field(ge=0, le=2**40)]
_STATES = "Job states; `live` (default) or `all` (default with `outcome`, `from`, `to` or `ended_since`)."
_FOLD = (
    "Return one item for the jobs of an array that have the same state, exit code and outcome: the job with the lowest "
    "id, and `members`. All items of an array are on one page, which exceeds `limit` if the array alone has more. "
    "A page of ended jobs can have fewer items than `limit`, even none, although `next` is not null. An array whose "
    "jobs change their states between two pages can come again."
)


class JobListing(BaseModel):
    """Filters of a list of jobs, all of which must match; comma-separated values are alternatives."""

    model_config = ConfigDict(extra="forbid")

    state: CommaList = Field(None, description=_STATES)
    outcome: CommaList = Field(None, description=f"Outcomes of ended jobs: {', '.join(Outcome)}.")
    user: CommaList = Field(None, description="Users; `me` is the caller.")
    queue: CommaList = Field(None, description="Queues.")
    project: CommaList = Field(None, description="Projects.")
    name: CommaList = Field(None, description="Job names.")
    type: CommaList = Field(None, description="Job types.")
    node: CommaList = Field(None, description="Nodes assigned to the job.")
    array: int | None = Field(None, ge=1, le=LARGEST_ID, description="Array id.")
    q: str | None = Field(
        None, max_length=200, pattern=PRINTABLE, description="Job id, or part of a job name or user name."
    )
    ended_since: Date = Field(None, description="Include jobs that ended since this date.")
    begin: Date = Field(None, alias="from", description="Exclude jobs that ended before this date.")
    to: Date = Field(None, description="Exclude jobs that were submitted after this date.")
    details: bool = Field(default=False, description="Return all fields of each job.")
    outlook: bool = Field(
        default=False, description="Add the waiting reason and the planned start of jobs that have not started."
    )
    total: bool = Field(default=False, description="Add the total number of matching jobs.")
    newest_first: bool = Field(default=False, description="Sort by descending id.")
    fold: bool = Field(default=False, description=_FOLD)
    after: int | None = Field(None, ge=0, le=LARGEST_ID, description="`next` of the previous page.")
    limit: int | None = Field(None, ge=1, le=10000, description="Page size.")
    fields: Fields = None

    @classmethod
    def of(cls, values: Mapping[str, object]) -> "JobListing":
        """Return a list for values that do not come from a query.  Raises BadRequest."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise bad_request_of(error.errors()) from None

    @property
    def known(self) -> Collection[str]:
        """The fields that its items have."""
        more = [name for name, is_there in (("outlook", self.outlook), ("members", self.fold)) if is_there]
        return {*(JOB_DETAILS if self.details else JOB_ITEM), *more}

    def query(self, who: Asking) -> JobQuery:
        """Return the query for the database.  Raises BadRequest, Unidentified."""
        asks_for_ended = self.outcome is not None or any(
            date is not None for date in (self.begin, self.to, self.ended_since)
        )
        return JobQuery(
            states=_states(self.state, ended=asks_for_ended),
            outcomes=_outcomes(self.outcome),
            arrays=() if self.array is None else (self.array,),
            users=tuple(who.caller.identified().name if user == "me" else user for user in split_list(self.user)),
            queues=split_list(self.queue),
            projects=split_list(self.project),
            names=split_list(self.name),
            types=split_list(self.type),
            nodes=split_list(self.node),
            text=self.q,
            between=self._period,
            ended_since=self.ended_since,
        )

    @property
    def _period(self) -> tuple[int, int] | None:
        if self.begin is None and self.to is None:
            return None
        return self.begin or 0, LARGEST_ID if self.to is None else self.to

    def place(self, config: "Config") -> JobPlace:
        """Return where the page begins, and its length."""
        size = min(self.limit or config.api_default_max_items_number, config.api_max_limit)
        return JobPlace(size, self.after, self.newest_first)


@router.get(
    "/v1/jobs",
    "jobs_list",
    "List jobs",
    exports=True,
    topics=OF_RESOURCES | {Topic.QUEUES, Topic.EVENTS},
)
def jobs_list(request: Request, listing: JobListing) -> JobPage | Answer:
    """Return the jobs that match all filters, by id.

    `next` is the `after` parameter of the next page, null on the last page.

    With the `Accept` header `application/x-ndjson` all jobs are returned, one JSON object per line.
    """
    who = asking(request)
    if accepts_lines(request):
        return _export(request, who, listing)
    return job_page(who, listing)


def _export(request: Request, who: Asking, listing: JobListing) -> Answer:
    """Return all jobs of a list as lines.  Raises BadRequest, Unidentified, TooMany."""
    if listing.limit is not None or listing.total:
        raise BadRequest("`limit` and `total` are for pages: an export has all jobs, one per line")

    def pages(after: int | None) -> JobPage:
        page = JobPlace(EXPORT_PAGE, listing.after if after is None else after, listing.newest_first)
        return job_page(who, listing, page)

    exports = service_of(request).exports
    return Export(pages, exports.one_more(counted_client(request, who.caller), MAX_EXPORTS))


@router.get("/v1/jobs/{job_id}", "job", "Get a job", record=Job)
async def get_job(
    request: Request,
    job_id: JobId,
    *,
    everything: Everything = False,
    include: Include = None,
    wait: Wait = 0,
    stays: Stays = None,
) -> Answer:
    """Return all fields of a job that the caller may read. With `wait`, return when its state changes."""
    parts = tuple(dict.fromkeys((*(EVERYTHING if everything else ()), *parse_parts(include))))
    if stays is not None and not wait:
        raise BadRequest("`while` must be used with `wait`, the seconds to wait for another state")
    if wait:
        awaited = None if stays is None else _states(stays, ended=False) or frozenset(JobState)
        await wait_while(request, job_id, awaited, wait)

    def found() -> Answer:
        return answer_unless_known(request, job_record(asking(request), job_id, parts))

    return await in_thread(found)


def job_record(who: Asking, job_id: int, parts: Sequence[str] = ()) -> dict[str, object]:
    """Return a job with some of the ``PARTS``.  Raises NoSuchJob."""
    if not parts:
        return job_details(who.database.look(lambda tx: job_view(tx, job_id, who.job_privacy(tx))))
    with who.database.snapshot() as tx:
        view = job_view(tx, job_id, who.job_privacy(tx))
        return {**job_details(view), **{name: PARTS[name](tx, view.job, who.config) for name in parts}}


def job_page(who: Asking, listing: JobListing, page: JobPlace | None = None) -> JobPage:
    """Return a page of a list, by default where the list says.  Raises BadRequest, Unidentified."""
    record = _whole_page(who, listing, page)
    return {**record, "items": select_fields(record["items"], listing.fields, listing.known)}


def _whole_page(who: Asking, listing: JobListing, page: JobPlace | None) -> JobPage:
    query, page = listing.query(who), page or listing.place(who.config)
    if not (listing.details or listing.outlook or listing.total or listing.fold):
        return page_of(who, query, page)
    with who.database.snapshot() as tx:
        if listing.fold:
            rows, following = tx.listings.folded(query, page)
            ids = [row.ids[0] for row in rows]
        else:
            ids = tx.listings.page(query, page)
            following = ids[-2] if len(ids) > page.limit else None
            ids = ids[: page.limit]
        by_id = {job.id: job for job in tx.jobs.select(ids)}
        jobs = [by_id[job_id] for job_id in ids]
        if listing.details:
            items = list(jobs_details(job_columns(tx, jobs, who.job_privacy(tx))))
        else:
            outcomes = tx.job_runs.outcomes(jobs)
            items = [job_item(ListedJob.of(job, outcomes.get(job.id))) for job in jobs]
        if listing.outlook:
            records = {outlook.job.id: outlook.record for outlook in outlooks(tx, jobs)}
            items = [{**item, "outlook": records.get(job.id)} for item, job in zip(items, jobs, strict=True)]
        if listing.fold:
            items = [{**item, "members": members_record(row)} for item, row in zip(items, rows, strict=True)]
        record: JobPage = {"items": items, "next": following}
        if listing.total:
            number = tx.listings.count(query)
            record |= {"total": min(number, MOST_COUNTED), "more_than_total": number > MOST_COUNTED}
    return record


def page_of(who: Asking, query: JobQuery, page: JobPlace) -> JobPage:
    """Return a page of jobs with the fields of their rows: one statement."""
    jobs = who.database.look(lambda tx: tx.listings.listed(query, page))
    shown = jobs[: page.limit]
    return {"items": [job_item(job) for job in shown], "next": shown[-1].id if len(jobs) > page.limit else None}


def _outcomes(text: str | None) -> frozenset[Outcome] | None:
    """Return the outcomes of a comma-separated list, None for all.  Raises BadRequest."""
    if text is None:
        return None
    names = split_list(text)
    if not names:
        raise BadRequest(f"{text!r} is an empty list: outcome must be one of {', '.join(Outcome)}")
    try:
        return frozenset(map(Outcome, names))
    except ValueError as error:
        raise BadRequest(f"{error}: outcome must be one of {', '.join(Outcome)}") from None


def _states(text: str | None, *, ended: bool) -> frozenset[JobState] | None:
    """Return the states of a comma-separated list, None for all.  Raises BadRequest."""
    if text is None:
        return None if ended else LIVE_STATES
    states: frozenset[JobState] = frozenset()
    for name in split_list(text):
        if name == "all":
            return None
        named = frozenset(state for state in JobState if state.lower() == name.lower())
        if not named and name != "live":
            raise BadRequest(f"state: {name!r} must be one of live, all, {', '.join(JobState)}")
        states |= named or LIVE_STATES
    return states
