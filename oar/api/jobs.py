"""Jobs: lists, one job, why it waits."""

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from oar.api.answers import Answer, answer_unless_known
from oar.api.records import job_details, job_item
from oar.api.service import LARGEST_ID, Asking, asking
from oar.api.waiting import wait_while
from oar.lib.db.job_pages import MOST_COUNTED
from oar.lib.facts.errors import BadRequest
from oar.lib.facts.job_query import LIVE_STATES, JobPlace, JobQuery
from oar.lib.facts.states import JobState
from oar.lib.views.jobs import job_views
from oar.lib.views.wait_explanations import explain, outlooks

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

Id = Annotated[int, Path(ge=1, le=LARGEST_ID, description="Id of a job.")]
#: No character that is none: PostgreSQL takes no NUL, terminals should get none of the others.
PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
Everything = Annotated[bool, Query(description="With `explanation` and `states`, in the same answer.")]
Wait = Annotated[int, Query(ge=0, le=LARGEST_ID, description="Seconds to wait for another state, 30 at most.")]
Stays = Annotated[
    str | None,
    Query(
        alias="while",
        max_length=200,
        pattern=PRINTABLE,
        description="States in which it waits, `live` for all before the end; by default the one that the job has.",
    ),
]
Words = Annotated[str | None, Field(max_length=2000, pattern=PRINTABLE)]


class JobListing(BaseModel):
    """Which jobs a list holds: all conditions hold together; words with commas between them are alternatives."""

    model_config = ConfigDict(extra="forbid")

    state: Words = Field(None, description="States; `live` (default), `all`.")
    user: Words = Field(None, description="Users; `me` is who asks.")
    queue: Words = None
    project: Words = None
    name: Words = None
    type: Words = None
    node: Words = Field(None, description="Nodes that a job has or had.")
    array: int | None = Field(None, ge=1, le=LARGEST_ID, description="Id of an array.")
    q: str | None = Field(None, max_length=200, pattern=PRINTABLE, description="An id, or a part of a name or user.")
    ended_since: int | None = Field(None, ge=0, le=LARGEST_ID, description="Jobs that ended since, too.")
    details: bool = Field(default=False, description="All of each job.")
    outlook: bool = Field(default=False, description="Why each job waits that has not started, and its planned start.")
    total: bool = Field(default=False, description="Count the jobs, too.")
    newest_first: bool = Field(default=False, description="By id, descending.")
    after: int | None = Field(None, ge=0, le=LARGEST_ID, description="`next` of the page before.")
    limit: int | None = Field(None, ge=1, le=10000, description="Jobs of a page.")

    def query(self, who: Asking) -> JobQuery:
        """Return what is asked for.  Raises BadRequest, Unidentified."""
        return JobQuery(
            states=_states(self.state, ended=self.ended_since is not None),
            arrays=() if self.array is None else (self.array,),
            users=tuple(_me(who) if each == "me" else each for each in words_of(self.user)),
            queues=words_of(self.queue),
            projects=words_of(self.project),
            names=words_of(self.name),
            types=words_of(self.type),
            nodes=words_of(self.node),
            text=self.q,
            ended_since=self.ended_since,
        )

    def place(self, config: "Config") -> JobPlace:
        """Return where the page begins, and its length."""
        size = min(self.limit or config.api_default_max_items_number, config.api_max_limit)
        return JobPlace(size, self.after, self.newest_first)


@router.get("", operation_id="jobs_list", summary="Jobs, by pages")
def jobs_list(request: Request, listing: Annotated[JobListing, Query()]) -> Answer:
    """Return the jobs that satisfy all that is given, by id; `next` is where the next page begins, null at the end."""
    who = asking(request)
    return answer_unless_known(request, job_page(who, listing))


@router.get("/{job_id}", operation_id="job", summary="One job")
async def job_one(
    request: Request, job_id: Id, everything: Everything = False, wait: Wait = 0, stays: Stays = None
) -> Answer:
    """Return everything of a job that the caller may see; with `wait` as soon as its state is another."""
    if stays is not None and not wait:
        raise BadRequest("'while' belongs to 'wait': the seconds to wait for another state")
    if wait:
        awaited = None if stays is None else _states(stays, ended=False) or frozenset(JobState)
        await wait_while(request, job_id, awaited, wait)

    def found() -> Answer:
        return answer_unless_known(request, job_record(asking(request), job_id, everything=everything))

    return await run_in_threadpool(found)


@router.get("/{job_id}/explanation", operation_id="job_explanation", summary="Why a job waits, and until when")
def job_explanation(request: Request, job_id: Id) -> Answer:
    """Return what `oarstat --explain` tells."""
    who = asking(request)
    with who.database.snapshot() as tx:
        (explanation,) = explain(tx, [tx.jobs.get(job_id)], who.config)
    return answer_unless_known(request, explanation.record)


@router.get("/{job_id}/states", operation_id="job_states", summary="The states that a job was in")
def job_states(request: Request, job_id: Id) -> Answer:
    """Return the states with the dates from which and until which the job was in them."""
    who = asking(request)
    with who.database.snapshot() as tx:
        tx.jobs.get(job_id)
        return answer_unless_known(request, {"items": _states_of(tx, job_id)})


def job_record(who: Asking, job_id: int, *, everything: bool = False) -> dict[str, object]:
    """Return a job; ``everything``: with its explanation and its states.  Raises NoSuchJob."""
    with who.database.snapshot() as tx:
        job = tx.jobs.get(job_id)
        (view,) = job_views(tx, [job], who.privacy)
        if not everything:
            return job_details(view)
        (explanation,) = explain(tx, [job], who.config)
        return {**job_details(view), "explanation": explanation.record, "states": _states_of(tx, job_id)}


def _states_of(tx: "Transaction", job_id: int) -> list[dict[str, object]]:
    changes = tx.jobs.state_changes([job_id])[job_id]
    return [{"state": change.state, "from": change.start, "to": change.stop or None} for change in changes]


def job_page(who: Asking, listing: JobListing) -> dict[str, object]:
    """Return a page of a list.  Raises BadRequest, Unidentified."""
    query, place = listing.query(who), listing.place(who.config)
    with who.database.snapshot() as tx:
        ids = tx.job_pages.page(query, place)
        jobs = sorted(tx.jobs.select(ids[: place.limit]), key=lambda job: job.id, reverse=place.newest_first)
        if listing.details:
            items = [job_details(view) for view in job_views(tx, jobs, who.privacy)]
        else:
            items = [job_item(job) for job in jobs]
        if listing.outlook:
            records = {outlook.job.id: outlook.record for outlook in outlooks(tx, jobs)}
            items = [{**item, "outlook": records.get(job.id)} for item, job in zip(items, jobs, strict=True)]
        record: dict[str, object] = {"items": items, "next": ids[-2] if len(ids) > place.limit else None}
        if listing.total:
            number = tx.job_pages.count(query)
            record |= {"total": min(number, MOST_COUNTED), "more_than_total": number > MOST_COUNTED}
    return record


def words_of(text: str | None) -> tuple[str, ...]:
    """Return the words of a list with commas, each once."""
    return tuple(dict.fromkeys(word for word in (text or "").split(",") if word))


def _me(who: Asking) -> str:
    return who.caller.identified().name


def _states(text: str | None, *, ended: bool) -> frozenset[JobState] | None:
    """Return the states that a list of names means, None for all.  Raises BadRequest."""
    if text is None:
        return None if ended else LIVE_STATES
    states: frozenset[JobState] = frozenset()
    for word in words_of(text):
        if word == "all":
            return None
        named = frozenset(state for state in JobState if state.lower() == word.lower())
        if not named and word != "live":
            raise BadRequest(f"{word!r} is no state: live, all, {', '.join(JobState)}")
        states |= named or LIVE_STATES
    return states
