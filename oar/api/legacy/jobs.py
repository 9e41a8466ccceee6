"""Jobs as clients of OAR 2.5 and OAR 3 ask for them: lists, one job, submissions, what is done with jobs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.api.errors import problem_record
from oar.api.estimates import estimated
from oar.api.job_actions import Acted, JobOrders
from oar.api.legacy.queries import JobPiece, by_id, chosen_fields, query_of, with_defaults
from oar.api.legacy.records import (
    full_job,
    held_by,
    job_nodes,
    job_resources,
    short_job,
    table_row,
    walltime_change,
)
from oar.api.legacy.requests import LegacyCall, PageOf, Reply, is_on, link, number_of, timed
from oar.api.legacy.submissions import LegacyJob, read_job
from oar.api.legacy.titles import refusing, title_of
from oar.api.long_polling import check_wait, with_answer
from oar.api.responses import EXPORT_PAGE, Export
from oar.api.service import MAX_EXPORTS, counted_client, service_of
from oar.api.submission import SubmitJobs, at_home, resubmitted
from oar.api.workers import Outcome
from oar.lib.access.scopes import JobAct
from oar.lib.base.errors import BadRequest, NoSuchJob
from oar.lib.base.times import format_duration
from oar.lib.history.views_events import event_record
from oar.lib.jobs import walltime
from oar.lib.jobs.query import JobPlace, JobQuery
from oar.lib.jobs.views import JobView, job_view, job_views
from oar.lib.jobs.walltime import ChangeRefused, WalltimeOutcome, WalltimeRequest
from oar.lib.nodes.views import resource_views
from oar.lib.submission.checks import parse_signal
from oar.lib.submission.once import Once
from oar.lib.user_files.files import UserFiles

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class LegacyAct(NamedTuple):
    """Something that is done with jobs."""

    allowed_by: JobAct
    do: Callable[[JobOrders], Acted]
    title: str  #: that answers begin with


#: What is done with a job by the word of an address.
_ACTS: Mapping[str, LegacyAct] = {
    "deletions": LegacyAct(JobAct.DELETE, JobOrders.delete, "Delete"),
    "checkpoints": LegacyAct(JobAct.CHECKPOINT, lambda orders: orders.signal(None), "Checkpoint"),
    "holds": LegacyAct(JobAct.HOLD, lambda orders: orders.hold(running=False), "Hold"),
    "rholds": LegacyAct(JobAct.HOLD, lambda orders: orders.hold(running=True), "Hold"),
    "resumptions": LegacyAct(JobAct.RESUME, JobOrders.resume, "Resume"),
}
_METHODS = {
    "delete": "deletions",
    "checkpoint": "checkpoints",
    "hold": "holds",
    "rhold": "rholds",
    "resume": "resumptions",
}
#: Statuses of changes of the walltime that are refused.
_WALLTIMES = {
    WalltimeOutcome.FORBIDDEN: HTTPStatus.FORBIDDEN,
    WalltimeOutcome.NOT_FOUND: HTTPStatus.NOT_FOUND,
}
_WALLTIME_FORMS = {
    WalltimeOutcome.BAD_REQUEST: "walltime: +h:m:s or -h:m:s changes it, h:m:s or a number of seconds is the new one"
}
#: What makes the items of some jobs.
_ItemsOf = Callable[[LegacyCall, "Transaction", Sequence[int]], list[dict[str, Any]]]
#: Parameters that ask for details.
_WITH_DETAILS = ("details", "detailed")


def jobs_list(call: LegacyCall, *, details: bool = False, table: bool = False) -> Reply | Export:
    """Return a page of jobs: short, with details, or as rows of the table; all of them to who wants lines."""
    call = with_defaults(call)
    piece, query = JobPiece.of(call), query_of(call)
    details = details or any(call.flag(name) for name in _WITH_DETAILS)
    if call.wants_lines:
        return _export(call, query, piece, partial(_items, details=details, table=table))
    with call.who.database.snapshot() as tx:
        ids = piece.ids(tx, query)
        total = tx.job_pages.total(query)
        items = _items(call, tx, ids[: piece.page.limit], details=details, table=table)
    if piece.newest_first:
        items.reverse()
    if (named := by_id(call, items)) is not None:
        return Reply(named)
    return Reply(piece.collection(call, chosen_fields(call, items), ids, total))


def _export(call: LegacyCall, query: JobQuery, piece: JobPiece, items_of: _ItemsOf) -> Export:
    def page(after: int | None) -> Mapping[str, Any]:
        place = JobPlace(EXPORT_PAGE, piece.behind if after is None else after, piece.newest_first)
        with call.who.database.snapshot() as tx:
            ids = tx.job_pages.page(query, place)
            items = items_of(call, tx, ids[:EXPORT_PAGE])
        ordered = items[::-1] if piece.newest_first else items
        return {"items": chosen_fields(call, ordered), "next": ids[EXPORT_PAGE - 1] if len(ids) > EXPORT_PAGE else None}

    exports = service_of(call.request).exports
    return Export(page, exports.one_more(counted_client(call.request, call.who.caller), MAX_EXPORTS))


def _items(
    call: LegacyCall, tx: "Transaction", ids: Sequence[int], *, details: bool, table: bool
) -> list[dict[str, Any]]:
    jobs = sorted(tx.jobs.select(ids), key=lambda job: job.id)
    if table:
        return [table_row(job, call.who.privacy) for job in jobs]
    if not details:
        return [short_job(job, call.prefix) for job in jobs]
    return _detailed(call, tx, job_views(tx, jobs, call.who.privacy), all_columns=call.flag("full"))


def _detailed(
    call: LegacyCall, tx: "Transaction", views: Sequence[JobView], *, all_columns: bool
) -> list[dict[str, Any]]:
    """Return jobs with their resources and nodes; ``all_columns``: with all properties of the resources."""
    ids = {each for view in views for each in held_by(view)}
    wanted = ("*",) if all_columns else ("resource_id", "network_address", "state")
    found = resource_views(tx, ids=ids, columns=wanted) if ids else []
    columns = {each.id: each.columns for each in found}
    shown = columns if all_columns else {each: _place(row) for each, row in columns.items()}
    return [
        {
            **full_job(view, call.prefix),
            "resources": job_resources(view, shown, call.prefix),
            "nodes": job_nodes(view, columns, call.prefix),
        }
        for view in views
    ]


def _place(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"network_address": row["network_address"]}


def job_one(call: LegacyCall, job_id: int, *, details: bool = False) -> Reply:
    """Return a job.  Raises NoSuchJob."""
    config = call.who.config
    with call.who.database.snapshot() as tx:
        view = job_view(tx, job_id, call.who.privacy)
        if details or any(call.flag(name) for name in _WITH_DETAILS):
            (record,) = _detailed(call, tx, [view], all_columns=True)
        else:
            record = full_job(view, call.prefix)
        if config.walltime_change_enabled:
            record["walltime-change"] = walltime_change(walltime.walltime_status(tx, config, job_id))
    return Reply(record)


def job_part(call: LegacyCall, job_id: int, part: str) -> Reply:
    """Return the resources, the nodes, the events or the states of a job.  Raises NoSuchJob."""
    page = PageOf.of(call)
    with call.who.database.snapshot() as tx:
        view = job_view(tx, job_id, call.who.privacy)
        if part == "events":
            items = [event_record(each) for each in view.events]
        elif part == "state_log":
            changes = tx.jobs.state_changes([job_id])[job_id]
            items = [{"state": each.state, "date_start": each.start, "date_stop": each.stop} for each in changes]
        else:
            (record,) = _detailed(call, tx, [view], all_columns=True)
            items = record[part]
    return Reply(page.collection(call, page.cut(items), len(items)))


# -- submission -------------------------------------------------------------------------------------------------------


def submit(call: LegacyCall) -> Reply:
    """Submit what the body describes."""
    user = call.who.caller.submitting()
    config, service = call.who.config, service_of(call.request)
    files = UserFiles(user, config.oar_privilege_cmd, seconds=config.api_timeout)

    def read(path: str) -> bytes:
        with service.reading(user.name):
            return files.read(at_home(user, path)).data

    job = read_job(call.fields, read, unescapes=config.api_oar2_unescape)
    if job.resubmits:
        return resubmit(call, job.resubmits)
    if job.is_estimate:
        return _estimated(call, job)
    wait = call.number("wait", 0)
    check_wait(wait, job.wanted.reservation)
    once = Once.of(user.name, call.key, f"jobs {job.wanted.model_dump_json()}") if call.key else None
    task = SubmitJobs(user, job.wanted.asked, call.who.caller.remembering, once)
    workers, seconds = service.workers, config.admission_rules_timeout
    is_long = task.asked.uses_files
    outcome = workers.run_long(task, config.api_timeout + seconds) if is_long else workers.run(task, seconds)
    service.warn_of_unreadable_jobs(call.request, call.who.caller)
    if not wait:
        return _outcome_told(call, job, outcome)

    async def answered() -> Reply:
        return _outcome_told(call, job, await with_answer(call.request, outcome, wait))

    return Reply({}, later=answered)


def _estimated(call: LegacyCall, job: LegacyJob) -> Reply:
    """Tell when the jobs would start; nothing is submitted."""
    outcome = estimated(call.request, call.who.caller, [job.wanted.asked])
    if outcome.status >= HTTPStatus.BAD_REQUEST:
        return _outcome_told(call, job, outcome)
    (item,) = outcome.record["items"]
    if refused := item.get("problem"):
        return _outcome_told(call, job, Outcome(refused["status"], refused))
    return Reply(timed({**item, "cmd_output": item["output"]}))


def _outcome_told(call: LegacyCall, job: LegacyJob, outcome: Outcome) -> Reply:
    record = dict(outcome.record)
    if outcome.status >= HTTPStatus.BAD_REQUEST:
        is_old = job.is_old or call.place.extension is not None
        status = HTTPStatus.BAD_REQUEST if is_old and outcome.status == HTTPStatus.FORBIDDEN else outcome.status
        return Reply({**record, "status": status, "cmd_output": record.get("output", "")}, status)
    return _submitted(call, record, {name: value for name, value in outcome.headers.items() if name != "Location"})


def _submitted(call: LegacyCall, record: Mapping[str, Any], headers: Mapping[str, str]) -> Reply:
    job_id, ids = record["id"], record.get("ids", [record["id"]])
    warnings = [f"# Warning: {each}" for each in record.get("warnings", ())]
    lines = [*warnings, *(f"OAR_JOB_ID={each}" for each in ids)]
    here = f"{call.prefix}/jobs/{job_id}"
    told = {
        "id": job_id,
        "array_id": job_id,
        "ids": ids,
        "cmd_output": record.get("output", "") + "".join(f"{line}\n" for line in lines),
        "warnings": record.get("warnings", []),
        **({"reservation": record["reservation"]} if "reservation" in record else {}),
    }
    return Reply(timed(told, [link("self", here)]), HTTPStatus.CREATED, {**headers, "Location": here})


def resubmit(call: LegacyCall, job_id: int) -> Reply:
    """Submit a copy of a job that has ended."""
    with refusing("Resubmit"):
        record, headers = resubmitted(call.request, call.who, job_id, call.key, f"resubmission {job_id}")
    reply = _submitted(call, record, headers)
    return reply._replace(record={**reply.record, "status": "submitted"})


# -- what is done with jobs -------------------------------------------------------------------------------------------


def act(call: LegacyCall, job_id: int, word: str) -> Reply:
    """Do with a job what a word of an address says."""
    return _done(call, job_id, _ACTS[word])


def act_on_array(call: LegacyCall, array_id: int, word: str) -> Reply:
    """Do with all jobs of an array what a word of an address says.  Raises NoSuchJob."""
    with call.who.database.snapshot() as tx:
        ids = tx.job_pages.page(JobQuery(arrays=(array_id,)), JobPlace(call.who.config.api_max_limit))
    if not ids:
        raise NoSuchJob(array_id)
    return _done(call, array_id, _ACTS[word], ids)


def signal(call: LegacyCall, job_id: int, text: str) -> Reply:
    """Send a job a signal."""
    with refusing("Signal"):
        number = parse_signal(text)
    return _done(call, job_id, LegacyAct(JobAct.SIGNAL, lambda orders: orders.signal(number), "Signal sending"))


def method(call: LegacyCall, job_id: int) -> Reply:
    """Do with a job what the field ``method`` says.  Raises BadRequest."""
    fields = call.fields
    word = str(fields.get("method", ""))
    if word in _METHODS:
        return act(call, job_id, _METHODS[word])
    if word == "signal":
        if not (text := str(fields.get("signal") or "")):
            raise BadRequest("signal: the number or the name of the signal is missing").of("signal")
        return signal(call, job_id, text)
    if word == "walltime-change":
        return _change_walltime(call, job_id, fields)
    raise BadRequest(f"method: {word!r} is none of {', '.join([*_METHODS, 'signal', 'walltime-change'])}").of("method")


def delete(call: LegacyCall, job_id: int) -> Reply:
    """Ask for the end of a job, or with ``array`` of all jobs of its array."""
    if call.flag("array"):
        return act_on_array(call, job_id, "deletions")
    return act(call, job_id, "deletions")


def _done(call: LegacyCall, job_id: int, act: LegacyAct, ids: Sequence[int] = ()) -> Reply:
    """Do something with a job, or some; tell what came of it in the words of the command."""
    who, ids = call.who, ids or [job_id]
    user = who.caller.acting(act.allowed_by, ids)
    with service_of(call.request).warnings() as warnings, who.database.begin() as tx:
        acted = act.do(JobOrders(tx, who.config, user, ids))
    refused = [each.refusal for each in acted.outcomes if each.refusal]
    lines = [*acted.warnings, *warnings]
    if len(refused) == len(acted.outcomes):
        record = dict(refused[0])
        if record["status"] == HTTPStatus.CONFLICT:
            record["status"] = int(HTTPStatus.BAD_REQUEST)
        title = title_of(act.title.split()[0])
        return Reply({**record, "title": title, "cmd_output": record["detail"]}, record["status"])
    lines += [f"[{each.job_id}] {each.done}" for each in acted.outcomes if not each.refusal]
    lines += [str(each["detail"]) for each in refused]
    text = "".join(f"{line}\n" for line in lines)
    told = {"id": job_id, "status": f"{act.title} request registered", "cmd_output": text, "exit_status": 0}
    if act.allowed_by is JobAct.DELETE:
        told["oardel_output"] = text
    return Reply(timed(told), HTTPStatus.ACCEPTED)


def _change_walltime(call: LegacyCall, job_id: int, fields: Mapping[str, Any]) -> Reply:
    asked = fields.get("walltime", "")
    text = format_duration(asked) if isinstance(asked, int) and 0 <= asked < 2**31 else str(asked)
    timeout = fields.get("timeout")
    wish = WalltimeRequest(
        text,
        is_on(fields.get("force")),
        is_on(fields.get("delay_next_jobs")),
        is_on(fields.get("whole")),
        None if timeout in (None, "") else number_of(str(timeout), "timeout", largest=2**31),
    )
    who = call.who
    user = who.caller.acting(JobAct.WALLTIME, [job_id])
    try:
        with service_of(call.request).warnings() as warnings, who.database.begin() as tx:
            done = walltime.request(tx, who.config, user, job_id, wish)
    except ChangeRefused as refused:
        status = _WALLTIMES.get(refused.outcome, HTTPStatus.BAD_REQUEST)
        message = f"{refused.outcome.value}: {refused}."
        record = problem_record(status, "change-refused", message, hint=_WALLTIME_FORMS.get(refused.outcome, ""))
        return Reply({**record, "title": title_of("Walltime")}, status)
    accepted = WalltimeOutcome.ACCEPTED.value
    told = {"id": job_id, "status": accepted, "cmd_output": f"{accepted}: {done}.", "warnings": warnings}
    return Reply(timed(told), HTTPStatus.ACCEPTED)
