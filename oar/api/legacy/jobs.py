"""Operations on jobs: lists, one job, submissions, deletions, signals and other actions."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from oar.api.errors import problem_record
from oar.api.estimates import estimated
from oar.api.job_actions import Acted, JobOrders
from oar.api.legacy.requests import LegacyRequest, is_on, parse_number, titled
from oar.api.legacy.responses import (
    Page,
    Reply,
    detailed_job,
    full_job,
    held_resources,
    link,
    list_reply,
    short_job,
    table_row,
    timed,
    walltime_change,
)
from oar.api.legacy.submissions import Submission, parse_submission
from oar.api.long_polling import check_wait, with_answer
from oar.api.responses import EXPORT_PAGE, Export
from oar.api.service import MAX_EXPORTS, counted_client
from oar.api.submission import SubmitJobs, at_home, resubmitted
from oar.api.workers import Outcome
from oar.lib.access.scopes import JobAct
from oar.lib.base.errors import BadRequest, NoSuchJob
from oar.lib.base.texts import nearest
from oar.lib.base.times import format_duration
from oar.lib.db.user_sql import Subject, evaluate
from oar.lib.history.views import event_record
from oar.lib.jobs import walltime
from oar.lib.jobs.records import JobPlace, JobQuery
from oar.lib.jobs.sql_listings import MOST_COUNTED
from oar.lib.jobs.states import JobState
from oar.lib.jobs.views import JobView, job_view, job_views
from oar.lib.jobs.walltime import ChangeRefused, WalltimeOutcome, WalltimeRequest
from oar.lib.nodes.views import resource_views
from oar.lib.submission.checks import parse_signal
from oar.lib.submission.once import Once
from oar.lib.user_files.files import UserFiles

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Parameters that select jobs and so disable API_JOBS_URI_DEFAULT_PARAMS: these even if they are empty (no states are
#: all states, no ids are no jobs), the others only with a value.
_SELECTING_IF_EMPTY = ("state", "states", "ids", "job_ids")
_SELECTING = ("from", "to", "start_time", "stop_time", "array", "since")
#: Later than the dates of all jobs.
_NO_END = 2**40
#: Values of ``order``, and whether the newest jobs come first.
_ORDERS: Mapping[str | None, bool] = {None: False, "": False, "id": False, "-id": True}


class JobAction(NamedTuple):
    """An action on jobs that is requested by its name."""

    permission: JobAct
    run: Callable[[JobOrders], Acted]
    title: str  #: first word of ``status``


ACTIONS: Mapping[str, JobAction] = {
    "delete": JobAction(JobAct.DELETE, JobOrders.delete, "Delete"),
    "checkpoint": JobAction(JobAct.CHECKPOINT, lambda orders: orders.signal(None), "Checkpoint"),
    "hold": JobAction(JobAct.HOLD, lambda orders: orders.hold(running=False), "Hold"),
    "rhold": JobAction(JobAct.HOLD, lambda orders: orders.hold(running=True), "Hold"),
    "resume": JobAction(JobAct.RESUME, JobOrders.resume, "Resume"),
}


# -- lists ------------------------------------------------------------------------------------------------------------


def list_jobs(request: LegacyRequest, *, view: str = "short") -> Reply | Export:
    """Return a page of jobs: short, with details, or as rows of the table. The format ``ndjson`` returns all jobs."""
    request = _with_site_defaults(request)
    page, query = JobPage.of(request), _query_of(request)
    if view == "short" and _wants_details(request):
        view = "details"
    if request.wants_lines:
        return _export(request, query, page, view)
    with request.database.snapshot() as tx:
        ids = page.ids(tx, query)
        total = tx.listings.total(query)
        items = _items(request, tx, ids[: page.page.limit], view)
    if page.newest_first:
        items.reverse()
    if (by_id := keyed_by_id(request, items)) is not None:
        return Reply(by_id)
    return Reply(page.collection(request, with_fields(request, items), ids, total))


def _wants_details(request: LegacyRequest) -> bool:
    return request.flag("details") or request.flag("detailed")


def _with_site_defaults(request: LegacyRequest) -> LegacyRequest:
    if any(name in request.parameters for name in _SELECTING_IF_EMPTY) or any(map(request.text, _SELECTING)):
        return request
    defaults = parse_qs(request.config.api_jobs_uri_default_params, keep_blank_values=True)
    return request._replace(parameters={**defaults, **request.parameters})


def _query_of(request: LegacyRequest) -> JobQuery:
    """Return the filter of a request.  Raises BadRequest, Unidentified, BadCondition."""
    array, begin, end = request.text("array"), request.date("from"), request.date("to")
    return JobQuery(
        states=_states_of(request),
        ids=_ids_of(request),
        arrays=(parse_number(array, "array"),) if array else (),
        users=tuple(request.caller.identified().name if name == "me" else name for name in request.words("user")),
        queues=request.words("queue"),
        projects=request.words("project"),
        names=request.words("name"),
        types=request.words("type"),
        nodes=request.words("node"),
        text=request.text("q"),
        between=None if begin is None and end is None else (begin or 0, _NO_END if end is None else end),
        ended_since=request.number("since", 0) or None,
    )


def _ids_of(request: LegacyRequest) -> tuple[int, ...] | None:
    """Return the ids that are listed and satisfy the condition; None without both. An empty list selects no jobs."""
    name, condition = request.name_of("ids"), request.text("sql")
    listed = None if request.text("ids") is None else [parse_number(word, name) for word in request.words("ids")]
    if not condition:
        return None if listed is None else tuple(listed)
    matching = evaluate(request.database, Subject.JOBS, condition, request.session.sql_asker())
    return tuple(matching if listed is None else sorted({*listed}.intersection(matching)))


def _states_of(request: LegacyRequest) -> frozenset[JobState] | None:
    """Return the states of the parameter ``state``; None: all.  Raises BadRequest."""
    name, by_name = request.name_of("state"), {state.lower(): state for state in JobState}
    words = [word.strip().lower() for word in (request.text("state") or "").split(",") if word.strip()]
    if not words or "all" in words:
        return None
    if unknown := [word for word in words if word not in by_name]:
        raise BadRequest(f"{name}: {unknown[0]!r} must be one of {', '.join(JobState)}").of(name)
    return frozenset(by_name[word] for word in words)


class JobPage(NamedTuple):
    """A page of jobs, which begins at an offset or, at the same cost for every page, after a job id."""

    page: Page
    after: int | None
    newest_first: bool

    @classmethod
    def of(cls, request: LegacyRequest) -> "JobPage":
        """Return the requested page.  Raises BadRequest."""
        page, order = Page.of(request), request.text("order")
        if order not in _ORDERS:
            raise BadRequest(f"order: {order!r} must be id or -id").of("order")
        for name, newest_first in (("before_id", True), ("after_id", False)):
            if text := request.text(name):
                return cls(page._replace(offset=0), parse_number(text, name), newest_first)
        return cls(page, None, _ORDERS[order])

    def ids(self, tx: "Transaction", query: JobQuery) -> list[int]:
        """Return the ids of the page, and the first id of the next page."""
        place = JobPlace(self.page.offset + self.page.limit, self.after, self.newest_first)
        return tx.listings.page(query, place)[self.page.offset :]

    def collection(
        self, request: LegacyRequest, items: Sequence[Any], ids: Sequence[int], total: int
    ) -> dict[str, Any]:
        """Return the items with links to other pages; ``ids``: as from the method ``ids``."""
        record = self.page.collection(request, items, total)
        if total > MOST_COUNTED:
            record["total_is_estimate"] = True
        if self.after is not None:
            name = "before_id" if self.newest_first else "after_id"
            record["links"] = [self.page.link(request, "self", **{name: self.after})]
            if len(ids) > self.page.limit:
                record["links"].append(self.page.link(request, "next", **{name: ids[self.page.limit - 1]}))
        return record


def _export(request: LegacyRequest, query: JobQuery, page: JobPage, view: str) -> Export:
    def read(after: int | None) -> Mapping[str, Any]:
        place = JobPlace(EXPORT_PAGE, page.after if after is None else after, page.newest_first)
        with request.database.snapshot() as tx:
            ids = tx.listings.page(query, place)
            items = _items(request, tx, ids[:EXPORT_PAGE], view)
        ordered = items[::-1] if page.newest_first else items
        return {
            "items": with_fields(request, ordered),
            "next": ids[EXPORT_PAGE - 1] if len(ids) > EXPORT_PAGE else None,
        }

    return Export(read, request.service.exports.one_more(counted_client(request.http, request.caller), MAX_EXPORTS))


def _items(request: LegacyRequest, tx: "Transaction", ids: Sequence[int], view: str) -> list[dict[str, Any]]:
    jobs, privacy = sorted(tx.jobs.select(ids), key=lambda job: job.id), request.session.job_privacy(tx)
    if view == "table":
        return [table_row(job, privacy) for job in jobs]
    if view == "short":
        return [short_job(job, request.prefix) for job in jobs]
    return _detailed(request, tx, job_views(tx, jobs, privacy), all_columns=request.flag("full"))


def _detailed(
    request: LegacyRequest, tx: "Transaction", views: Sequence[JobView], *, all_columns: bool
) -> list[dict[str, Any]]:
    """Return jobs with their nodes and resources: with all columns of these, or only the node."""
    ids = {resource for view in views for resource in held_resources(view)[0]}
    wanted = ("*",) if all_columns else ("resource_id", "network_address", "state")
    resources = resource_views(tx, ids=ids, columns=wanted) if ids else []
    shown = {
        resource.id: resource.columns if all_columns else {"network_address": resource.columns["network_address"]}
        for resource in resources
    }
    return [detailed_job(view, shown, request.prefix) for view in views]


def with_fields(request: LegacyRequest, items: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the items with only the keys of the parameter ``fields``.  Raises BadRequest if no item has a key."""
    fields = request.words("fields")
    if not fields or not items:
        return items
    known = sorted({name for item in items for name in item})
    if unknown := [name for name in fields if name not in known]:
        near = nearest(unknown[0], known)
        hint = f"did you mean {near!r}?" if near else f"the fields are {', '.join(known)}"
        raise BadRequest(f"fields: unknown field {unknown[0]!r}\n{hint}").of("fields")
    return [{name: item.get(name) for name in fields} for item in items]


def keyed_by_id(request: LegacyRequest, items: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]] | None:
    """Return the items by id for ``structure=oar``, None for ``structure=simple``.  Raises BadRequest."""
    default = request.config.api_default_data_structure
    structure = "simple" if request.wants_lines else request.text("structure") or default
    if structure not in ("simple", "oar"):
        raise BadRequest(f"structure: {structure!r} must be simple or oar").of("structure")
    if structure == "simple":
        return None
    return {str(item["id"]): shown for item, shown in zip(items, with_fields(request, items), strict=True)}


# -- one job ----------------------------------------------------------------------------------------------------------


def show_job(request: LegacyRequest, job_id: int, *, details: bool = False) -> Reply:
    """Return a job."""
    with request.database.snapshot() as tx:
        view = job_view(tx, job_id, request.session.job_privacy(tx))
        if details or _wants_details(request):
            (record,) = _detailed(request, tx, [view], all_columns=True)
        else:
            record = full_job(view, request.prefix)
        if request.config.walltime_change_enabled:
            record["walltime-change"] = walltime_change(walltime.walltime_status(tx, request.config, job_id))
    return Reply(record)


def show_part(request: LegacyRequest, job_id: int, part: str) -> Reply:
    """Return the resources, the nodes, the events or the states of a job."""
    with request.database.snapshot() as tx:
        view = job_view(tx, job_id, request.session.job_privacy(tx))
        if part == "events":
            items = [event_record(event) for event in view.events]
        elif part == "state_log":
            changes = tx.jobs.state_changes([job_id])[job_id]
            items = [
                {"state": change.state, "date_start": change.start, "date_stop": change.stop} for change in changes
            ]
        else:
            (record,) = _detailed(request, tx, [view], all_columns=True)
            items = record[part]
    return list_reply(request, items)


# -- submission -------------------------------------------------------------------------------------------------------


def submit(request: LegacyRequest) -> Reply:
    """Submit the job of the body."""
    user = request.caller.submitting()
    config, service = request.config, request.service
    files = UserFiles(user, config.oar_privilege_cmd, seconds=config.api_timeout)

    def read(path: str) -> bytes:
        with service.reading(user.name):
            return files.read(at_home(user, path)).data

    job = parse_submission(request.fields, request.aliases, read, unescape=config.api_oar2_unescape)
    if job.resubmitted_id:
        return resubmit(request, job.resubmitted_id)
    if job.is_estimate:
        return _estimate(request, job)
    wait = request.number("wait", 0)
    check_wait(wait, job.wanted.reservation)
    key = request.idempotency_key
    once = Once.of(user.name, key, "jobs", job.wanted.model_dump(exclude_unset=True)) if key else None
    task = SubmitJobs(user, job.wanted.asked, request.caller.remembering, once)
    workers, seconds = service.workers, config.admission_rules_timeout
    is_long = task.asked.uses_files
    outcome = workers.run_long(task, config.api_timeout + seconds) if is_long else workers.run(task, seconds)
    service.warn_of_unreadable_jobs(request.http, request.caller)
    if not wait:
        return _submission_reply(request, job, outcome)

    async def wait_for_decision() -> Reply:
        return _submission_reply(request, job, await with_answer(request.http, outcome, wait))

    return Reply({}, later=wait_for_decision)


def _estimate(request: LegacyRequest, job: Submission) -> Reply:
    outcome = estimated(request.http, request.caller, [job.wanted.asked])
    if outcome.status >= HTTPStatus.BAD_REQUEST:
        return _submission_reply(request, job, outcome)
    (item,) = outcome.record["items"]
    if problem := item.get("problem"):
        return _submission_reply(request, job, Outcome(problem["status"], problem))
    return Reply(timed({**item, "cmd_output": item["output"]}))


def _submission_reply(request: LegacyRequest, job: Submission, outcome: Outcome) -> Reply:
    record = dict(outcome.record)
    if outcome.status < HTTPStatus.BAD_REQUEST:
        headers = {name: value for name, value in outcome.headers.items() if name != "Location"}
        return _created_reply(request, record, headers)
    expects_400 = job.is_oar2 or request.address.extension is not None
    status = HTTPStatus.BAD_REQUEST if expects_400 and outcome.status == HTTPStatus.FORBIDDEN else outcome.status
    return Reply({**record, "status": status, "cmd_output": record.get("output", "")}, status)


def _created_reply(request: LegacyRequest, record: Mapping[str, Any], headers: Mapping[str, str]) -> Reply:
    job_id, ids = record["id"], record.get("ids", [record["id"]])
    lines = [
        *(f"# Warning: {text}" for text in record.get("warnings", ())),
        *(f"OAR_JOB_ID={number}" for number in ids),
    ]
    own = f"{request.prefix}/jobs/{job_id}"
    created = {
        "id": job_id,
        "array_id": job_id,
        "ids": ids,
        "cmd_output": record.get("output", "") + "".join(f"{line}\n" for line in lines),
        "warnings": record.get("warnings", []),
        **({"reservation": record["reservation"]} if "reservation" in record else {}),
    }
    return Reply(timed(created, [link("self", own)]), HTTPStatus.CREATED, {**headers, "Location": own})


def resubmit(request: LegacyRequest, job_id: int) -> Reply:
    """Submit a copy of an ended job."""
    with titled("Resubmit error"):
        key, origin = request.idempotency_key, f"resubmission {job_id}"
        record, headers = resubmitted(request.http, request.session, job_id, key, origin)
    reply = _created_reply(request, record, headers)
    return reply._replace(record={**reply.record, "status": "submitted"})


# -- actions ----------------------------------------------------------------------------------------------------------


def act(request: LegacyRequest, job_id: int, action: str) -> Reply:
    """Delete, checkpoint, hold or resume a job."""
    return _run(request, ACTIONS[action], job_id)


def act_on_array(request: LegacyRequest, array_id: int, action: str) -> Reply:
    """Delete, checkpoint, hold or resume all jobs of an array."""
    with request.database.snapshot() as tx:
        ids = tx.listings.page(JobQuery(arrays=(array_id,)), JobPlace(request.config.api_max_limit))
    if not ids:
        raise NoSuchJob(array_id)
    return _run(request, ACTIONS[action], array_id, ids)


def signal(request: LegacyRequest, job_id: int, text: str) -> Reply:
    """Send a signal to a job."""
    with titled("Signal error"):
        number = parse_signal(text)
    return _run(request, JobAction(JobAct.SIGNAL, lambda orders: orders.signal(number), "Signal sending"), job_id)


def act_by_method(request: LegacyRequest, job_id: int) -> Reply:
    """Run the action that the field ``method`` names."""
    fields = request.fields
    method = str(fields.get("method", ""))
    if method in ACTIONS:
        return act(request, job_id, method)
    if method == "signal":
        if not (text := str(fields.get("signal") or "")):
            raise BadRequest("signal: the number or the name of the signal is required").of("signal")
        return signal(request, job_id, text)
    if method == "walltime-change":
        return _change_walltime(request, job_id)
    raise BadRequest(f"method: {method!r} must be one of {', '.join([*ACTIONS, 'signal', 'walltime-change'])}").of(
        "method"
    )


def delete(request: LegacyRequest, job_id: int) -> Reply:
    """Delete a job; with ``array=true`` all jobs of its array."""
    return (act_on_array if request.flag("array") else act)(request, job_id, "delete")


def _run(request: LegacyRequest, action: JobAction, job_id: int, ids: Sequence[int] = ()) -> Reply:
    """Run an action on a job, or on ``ids``. The reply has the lines that the command prints."""
    ids = ids or [job_id]
    user = request.caller.acting(action.permission, ids)
    with request.service.warnings() as warnings, request.database.begin() as tx:
        acted = action.run(JobOrders(tx, request.config, user, ids))
    refusals = [outcome.refusal for outcome in acted.outcomes if outcome.refusal]
    if len(refusals) == len(acted.outcomes):
        record = dict(refusals[0])
        if record["status"] == HTTPStatus.CONFLICT:
            record["status"] = int(HTTPStatus.BAD_REQUEST)
        title = f"{action.title.split()[0]} error"
        return Reply({**record, "title": title, "cmd_output": record["detail"]}, record["status"])
    lines = [*acted.warnings, *warnings]
    lines += [f"[{outcome.job_id}] {outcome.done}" for outcome in acted.outcomes if not outcome.refusal]
    lines += [str(refusal["detail"]) for refusal in refusals]
    text = "".join(f"{line}\n" for line in lines)
    done = {"id": job_id, "status": f"{action.title} request registered", "cmd_output": text, "exit_status": 0}
    if action.permission is JobAct.DELETE:
        done["oardel_output"] = text
    return Reply(timed(done), HTTPStatus.ACCEPTED)


def _change_walltime(request: LegacyRequest, job_id: int) -> Reply:
    fields = request.fields
    change, timeout = fields.get("walltime", ""), fields.get("timeout")
    wish = WalltimeRequest(
        format_duration(change) if isinstance(change, int) and 0 <= change < 2**31 else str(change),
        is_on(fields.get("force")),
        is_on(fields.get("delay_next_jobs")),
        is_on(fields.get("whole")),
        None if timeout in (None, "") else parse_number(str(timeout), "timeout", largest=2**31),
    )
    user = request.caller.acting(JobAct.WALLTIME, [job_id])
    try:
        with request.service.warnings() as warnings, request.database.begin() as tx:
            done = walltime.request(tx, request.config, user, job_id, wish)
    except ChangeRefused as refused:
        statuses = {WalltimeOutcome.FORBIDDEN: HTTPStatus.FORBIDDEN, WalltimeOutcome.NOT_FOUND: HTTPStatus.NOT_FOUND}
        status = statuses.get(refused.outcome, HTTPStatus.BAD_REQUEST)
        is_malformed = refused.outcome is WalltimeOutcome.BAD_REQUEST
        hint = "walltime: +h:m:s or -h:m:s changes it; h:m:s or a number of seconds is the new walltime"
        message = f"{refused.outcome.value}: {refused}."
        record = problem_record(status, "change-refused", message, hint=hint if is_malformed else "")
        return Reply({**record, "title": "Walltime error"}, status)
    accepted = WalltimeOutcome.ACCEPTED.value
    record = {"id": job_id, "status": accepted, "cmd_output": f"{accepted}: {done}.", "warnings": warnings}
    return Reply(timed(record), HTTPStatus.ACCEPTED)
