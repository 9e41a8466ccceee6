"""Jobs: lists, one job, why it waits."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from oar.api.concurrency import in_thread
from oar.api.errors import bad_request_of
from oar.api.job_details import EVERYTHING, PARTS, parse_parts
from oar.api.long_polling import wait_while
from oar.api.openapi_schemas import JOB_DETAILS, JOB_ITEM
from oar.api.parameters import LARGEST_ID, PRINTABLE, CommaList, Fields, JobId, split_list
from oar.api.responses import EXPORT_PAGE, Answer, Export, accepts_lines, answer_unless_known, select_fields
from oar.api.routing import ApiRoute
from oar.api.service import MAX_EXPORTS, Asking, asking, counted_client, service_of
from oar.lib.base.errors import BadRequest
from oar.lib.jobs.explanations import outlooks
from oar.lib.jobs.formats import job_details, job_item, jobs_details, members_record
from oar.lib.jobs.records import LIVE_STATES, JobPlace, JobQuery
from oar.lib.jobs.sql_listings import MOST_COUNTED, ListedJob
from oar.lib.jobs.states import JobState
from oar.lib.jobs.views import job_columns, job_view

if TYPE_CHECKING:
    from oar.lib.config.files import Config

router = APIRouter(tags=["jobs"], route_class=ApiRoute)

Everything = Annotated[bool, Query(description="Include `explanation` and `states`.")]
Include = Annotated[
    str | None,
    Query(max_length=200, pattern=PRINTABLE, description=f"Parts to include: {', '.join(PARTS)}."),
]
Wait = Annotated[int, Query(ge=0, le=LARGEST_ID, description="Seconds to wait for a state change, at most 30.")]
Stays = Annotated[
    str | None,
    Query(
        alias="while",
        max_length=200,
        pattern=PRINTABLE,
        description="States to wait in; `live`: all states before the end. Default: the current state.",
    ),
]
#: Epoch seconds, of years that browsers can show.
Date = Annotated[int | None, Field(ge=0, le=2**40)]
_STATES = "Job states; `live` (default) or `all` (default with `from`, `to` or `ended_since`)."
_FOLD = (
    "Return one item for the jobs of an array that have the same state and exit code: the job with the lowest id, and "
    "`members`. All items of an array are on one page, which exceeds `limit` if the array alone has more items. A page "
    "of ended jobs can have fewer items than `limit`, even none, although `next` is not null. An array whose jobs "
    "change their states between two pages can come again."
)


class JobListing(BaseModel):
    """Filters of a list of jobs, all of which must match; comma-separated values are alternatives."""

    model_config = ConfigDict(extra="forbid")

    state: CommaList = Field(None, description=_STATES)
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
        return JobQuery(
            states=_states(self.state, ended=any(date is not None for date in (self.begin, self.to, self.ended_since))),
            arrays=() if self.array is None else (self.array,),
            users=tuple(_me(who) if user == "me" else user for user in split_list(self.user)),
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


@router.get("/v1/jobs", operation_id="jobs_list", summary="List jobs")
def jobs_list(request: Request, listing: Annotated[JobListing, Query()]) -> Answer:
    """Return the jobs that match all filters, by id.

    `next` is the `after` parameter of the next page, null on the last page.

    With the `Accept` header `application/x-ndjson` all jobs are returned, one JSON object per line.
    """
    who = asking(request)
    if accepts_lines(request):
        return _export(request, who, listing)
    return answer_unless_known(request, job_page(who, listing))


def _export(request: Request, who: Asking, listing: JobListing) -> Answer:
    """Return all jobs of a list as lines.  Raises BadRequest, Unidentified, TooMany."""
    if listing.limit is not None or listing.total:
        raise BadRequest("limit and total belong to pages: an export has all jobs, one a line")

    def pages(after: int | None) -> dict[str, object]:
        page = JobPlace(EXPORT_PAGE, listing.after if after is None else after, listing.newest_first)
        return job_page(who, listing, page)

    exports = service_of(request).exports
    return Export(pages, exports.one_more(counted_client(request, who.caller), MAX_EXPORTS))


@router.get("/v1/jobs/{job_id}", operation_id="job", summary="Get a job")
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
        raise BadRequest("'while' belongs to 'wait': the seconds to wait for another state")
    if wait:
        awaited = None if stays is None else _states(stays, ended=False) or frozenset(JobState)
        await wait_while(request, job_id, awaited, wait)

    def found() -> Answer:
        return answer_unless_known(request, job_record(asking(request), job_id, parts))

    return await in_thread(found)


def job_record(who: Asking, job_id: int, parts: Sequence[str] = ()) -> dict[str, object]:
    """Return a job with some of the ``PARTS``.  Raises NoSuchJob."""
    if not parts:
        return job_details(who.database.look(lambda tx: job_view(tx, job_id, who.privacy)))
    with who.database.snapshot() as tx:
        view = job_view(tx, job_id, who.privacy)
        return {**job_details(view), **{name: PARTS[name](tx, view.job, who.config) for name in parts}}


def job_page(who: Asking, listing: JobListing, page: JobPlace | None = None) -> dict[str, Any]:
    """Return a page of a list, by default where the list says.  Raises BadRequest, Unidentified."""
    record = _whole_page(who, listing, page)
    return {**record, "items": select_fields(record["items"], listing.fields, listing.known)}


def _whole_page(who: Asking, listing: JobListing, page: JobPlace | None) -> dict[str, Any]:
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
            items = list(jobs_details(job_columns(tx, jobs, who.privacy)))
        else:
            items = [job_item(ListedJob.of(job)) for job in jobs]
        if listing.outlook:
            records = {outlook.job.id: outlook.record for outlook in outlooks(tx, jobs)}
            items = [{**item, "outlook": records.get(job.id)} for item, job in zip(items, jobs, strict=True)]
        if listing.fold:
            items = [{**item, "members": members_record(row)} for item, row in zip(items, rows, strict=True)]
        record: dict[str, Any] = {"items": items, "next": following}
        if listing.total:
            number = tx.listings.count(query)
            record |= {"total": min(number, MOST_COUNTED), "more_than_total": number > MOST_COUNTED}
    return record


def page_of(who: Asking, query: JobQuery, page: JobPlace) -> dict[str, Any]:
    """Return a page of jobs with the fields of their rows: one statement."""
    jobs = who.database.look(lambda tx: tx.listings.listed(query, page))
    shown = jobs[: page.limit]
    return {"items": [job_item(job) for job in shown], "next": shown[-1].id if len(jobs) > page.limit else None}


def _me(who: Asking) -> str:
    return who.caller.identified().name


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
            raise BadRequest(f"{name!r} is no state: live, all, {', '.join(JobState)}")
        states |= named or LIVE_STATES
    return states
