"""The pages: their files, and each page as a document that is complete without scripts.  See docs/web.rst."""

import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from oar.api.accounting import usage_record
from oar.api.administration import administration_record, rules_record
from oar.api.apps import apps_record
from oar.api.authentication import Caller
from oar.api.errors import log_outage, public_text, status_of
from oar.api.events import EventListing, event_page
from oar.api.gantt import LAST_DAY
from oar.api.jobs import EVERYTHING, JobListing, array_record, job_page, job_record
from oar.api.me import overview_record
from oar.api.nodes import NodeListing, node_record, nodes_record
from oar.api.parameters import check_period
from oar.api.queues import queue_items
from oar.api.reservations import ReservationListing, reservation_page, reservation_with_log
from oar.api.resource_states import grid_record, groups_record, totals
from oar.api.responses import Answer
from oar.api.routing import Router
from oar.api.service import Asking, asking, service_of
from oar.api.site import dashboard_record
from oar.lib.base.errors import BadRequest, OarError
from oar.lib.history.gantt import DAY
from oar.lib.history.occupancy import occupancy_curve
from oar.lib.jobs.states import NOT_STARTED
from oar.lib.reservations.recurrence import local_zone
from oar.web.documents import LANGUAGES, POLICY, Documents, Visit, preferred

if TYPE_CHECKING:
    from oar.lib.history.sql_gantt_days import DrawnJob

router = Router()

#: Makes zlib write the frame of gzip.
_GZIP = 16 + zlib.MAX_WBITS
_FAST = 1


def in_parts(request: Request, parts: Iterable[str], headers: Mapping[str, str]) -> StreamingResponse:
    """Return a document whose parts are sent as soon as they are made."""
    drawn = request.state.seat.drawn
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return StreamingResponse(drawn(part.encode() for part in parts), headers=headers, media_type="text/html")
    more = {**headers, "Content-Encoding": "gzip"}
    return StreamingResponse(drawn(_packed(parts)), headers=more, media_type="text/html")


def _packed(parts: Iterable[str]) -> Iterator[bytes]:
    packer = zlib.compressobj(_FAST, wbits=_GZIP)
    for part in parts:
        yield packer.compress(part.encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()


#: Jobs that are listed; nodes that are named of each.
MAX_JOBS = 100
MAX_NODES = 6
#: Days of the table of days.
MAX_DAYS = 92
#: Seconds before and after now that are shown by default: those of the diagram.
BEFORE, AFTER = DAY * 6 // 10, DAY * 4 // 10


class Period(NamedTuple):
    """From a date to a later one."""

    begin: int
    end: int


def period_of(query: Mapping[str, str]) -> Period:
    """Return the period in the query of an address.  Raises BadRequest."""
    now = int(time.time())
    if not query.get("from"):
        return Period(now - BEFORE, now + AFTER)
    begin, end = _gantt_date(query["from"]), _gantt_date(query.get("to") or str(int(time.time())))
    check_period(begin, end)
    return Period(begin, end)


def gantt_table(who: Asking, period: Period) -> dict[str, Any]:
    """Return past, running and planned jobs of a period by start; if there are too many, those that end first."""
    with who.database.snapshot() as tx:
        jobs = tx.gantt_days.first_ended(period.begin, period.end, MAX_JOBS + 1)
        jobs += tx.gantt_days.first_live(period.begin, period.end, MAX_JOBS + 1 - len(jobs))
        shown = sorted(jobs[:MAX_JOBS], key=lambda job: (job.start, job.id))
        rows = tx.resources.select({number for job in shown for number in job.resources})
    names = {row.id: row.network_address for row in rows}
    return {
        "jobs": [_gantt_job(job, names) for job in shown],
        "is_cut": len(jobs) > MAX_JOBS,
    }


def days_table(who: Asking, period: Period) -> list[dict[str, Any]]:
    """Return the days (UTC) of a period, the last ones of a long one, each with shares of the resources in percents."""
    end = -(-period.end // DAY)
    begin = max(period.begin // DAY, end - MAX_DAYS)
    with who.database.snapshot() as tx:
        curve = occupancy_curve(tx, begin * DAY, DAY, end - begin)
    whole = curve["resources"] or 1
    return [
        {
            "date": (begin + index) * DAY,
            **{name: round(100 * curve[name][index] / whole) for name in ("used", "planned", "unusable")},
        }
        for index in range(end - begin)
    ]


def plan_table(who: Asking, date: int) -> dict[str, Any]:
    """Return the plan of the last pass before a date, and what happened then; `date` is 0 if no plan is stored."""
    with who.database.snapshot() as tx:
        made = tx.plan.last_former_plan(date)
        jobs = tx.plan.former_jobs(made, MAX_JOBS + 1) if made else []
    return {"date": made, "jobs": jobs[:MAX_JOBS], "is_cut": len(jobs) > MAX_JOBS}


def _gantt_date(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and int(text) <= LAST_DAY * DAY):
        raise BadRequest(f"{text!r} must be a date in epoch seconds")
    return int(text)


def _gantt_job(job: "DrawnJob", names: Mapping[int, str]) -> dict[str, Any]:
    nodes = [name for name in dict.fromkeys(names.get(number, "") for number in job.resources) if name]
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "queue": job.queue,
        "state": job.state,
        "start": job.start,
        "end": job.stop or (job.start + job.walltime if job.walltime else 0),
        "is_planned": job.state in NOT_STARTED,
        "nodes": nodes[:MAX_NODES],
        "more": max(0, len(nodes) - MAX_NODES),
    }


#: Rows of lists in a document; scripts load the others on scrolling.
FIRST_JOBS = 50
FIRST_EVENTS = 100
FIRST_NODES = 200
#: Days of the first view of consumption.
USAGE_DAYS = 30
_LANGUAGE_COOKIE = "oar_language"
_YEAR = 365 * 86400
_HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}

Record = Mapping[str, Any]


@router.get("/ui/static/{version}/{name:path}")
async def static(request: Request, version: str, name: str) -> Answer:
    """Return a file that pages load; of another version there is none, so that no page mixes two.

    It is in memory: no thread is needed for it.
    """
    assets = _documents(request).assets
    asset = assets.find(name) if version == assets.version else None
    if asset is None:
        return Response(status_code=HTTPStatus.NOT_FOUND, headers=_HEADERS)
    headers = {**_HEADERS, "Cache-Control": f"public, max-age={_YEAR}, immutable", "ETag": f'"{version}"'}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=asset.media_type)
    return Response(asset.content, headers=headers, media_type=asset.media_type)


@router.get("/ui")
def beginning() -> Answer:
    """Lead to the first page, whose address ends with a slash."""
    return Response(status_code=HTTPStatus.PERMANENT_REDIRECT, headers={"Location": "ui/"})


@router.get("/ui/")
def first_page(request: Request) -> Answer:
    """Show the dashboard."""
    by = request.query_params.get("by", "")
    service = service_of(request)
    usual = request.app.state.site_file.choices(service.runtime.config.web_conf_file).group_by
    return _page(request, "dashboard", lambda who: {**dashboard_record(who), "groups": groups_record(who, by, usual)})


@router.get("/ui/jobs")
def jobs(request: Request) -> Answer:
    """Show jobs."""
    names = {field.alias or name for name, field in JobListing.model_fields.items()}
    query = {name: value for name, value in request.query_params.items() if name in names and value}
    filters = {name: value for name, value in query.items() if name != "after"}
    page = {"limit": FIRST_JOBS, "details": True, "fold": "array" not in query, **query}
    return _page(request, "jobs", lambda who: {"jobs": job_page(who, JobListing.of(page)), "asked": filters})


@router.get("/ui/jobs/{job_id}")
def job(request: Request, job_id: str) -> Answer:
    """Show a job."""
    return _page(request, "job", lambda who: {"job": job_record(who, _number(job_id), EVERYTHING)})


@router.get("/ui/arrays/{array_id}")
def array(request: Request, array_id: str) -> Answer:
    """Show an array of jobs."""
    return _page(request, "array", lambda who: {"array": array_record(who, _number(array_id, "array"))})


@router.get("/ui/nodes")
def nodes(request: Request) -> Answer:
    """Show the nodes."""
    behind, props = request.query_params.get("after", ""), request.query_params.getlist("props")

    def load(who: Asking) -> Record:
        if props:
            grid = grid_record(who, props=props)
            all_names = [item["name"] for item in grid["items"]]
            numbers: dict[str, Any] = dict(grid["total"])
            resources = {"total": sum(numbers.values()), **numbers}
        else:
            with who.database.snapshot() as tx:
                all_names = tx.resources.nodes()
            resources = totals(who)
        names = [name for name in all_names if name > behind]
        shown = names[:FIRST_NODES]
        listing = NodeListing(node=",".join(shown), state=None)
        items = nodes_record(who, listing)["items"] if shown else []
        rest = {"after": shown[-1], "props": props} if len(names) > len(shown) else None
        return {"resources": resources, "nodes": items, "next": rest and urlencode(rest, doseq=True)}

    return _page(request, "nodes", load)


@router.get("/ui/nodes/{name}")
def node(request: Request, name: str) -> Answer:
    """Show a node."""
    return _page(request, "node", lambda who: {"node": node_record(who, name)})


@router.get("/ui/gantt")
def gantt(request: Request) -> Answer:
    """Show the Gantt diagram; the table for readers without scripts is at the end."""
    query, caller = request.query_params, Caller()
    try:
        who = asking(request)
        caller = who.caller
        period = period_of(query)
    except OarError as error:
        return _problem(request, error, caller)
    record = {"begin": period.begin, "end": period.end, "table": lambda: _over_time(who, period, query.get("show", ""))}
    visit = _visit(request, caller)
    parts = _documents(request).in_two("gantt", visit, record)
    return _choosing(request, visit, in_parts(request, parts, _HEADERS))


def _over_time(who: Asking, period: Period, show: str) -> Record:
    """Return the table of a period, or the error: the response has started already."""
    try:
        if show == "days":
            return {"days": days_table(who, period)}
        if show == "plan":
            return {"plan": plan_table(who, period.begin)}
        return gantt_table(who, period)
    except OarError as error:
        return {"trouble": public_text(error)}


@router.get("/ui/usage")
@router.get("/ui/fairshare")
def usage(request: Request) -> Answer:
    """Show the consumption."""
    to = int(time.time())

    def load(who: Asking) -> Record:
        return {"usage": usage_record(who, to - USAGE_DAYS * DAY, to), "begin": to - USAGE_DAYS * DAY, "end": to}

    return _page(request, "usage", load)


@router.get("/ui/reservations/{number}")
def reservation(request: Request, number: str) -> Answer:
    """Show an advance reservation."""
    return _page(
        request, "reservation", lambda who: {"reservation": reservation_with_log(who, _number(number, "reservation"))}
    )


@router.get("/ui/me")
def me(request: Request) -> Answer:
    """Show the caller what is his."""
    return _page(request, "me", lambda who: {"me": overview_record(request, who)})


_FIRST_EVENTS = EventListing.model_validate({"limit": FIRST_EVENTS})


def _add_page(path: str, name: str, load: Callable[[Asking], Record] = lambda _: {}) -> None:
    """Add a page whose record depends on the caller only."""

    @router.get(path)
    def show(request: Request) -> Answer:
        return _page(request, name, load)


_add_page("/ui/submit", "submit")
_add_page("/ui/help", "help")
_add_page("/ui/apps", "apps", lambda who: {"apps": apps_record(who)["items"]})
_add_page("/ui/reservations", "reservations", lambda who: reservation_page(who, ReservationListing.model_validate({})))
_add_page("/ui/reservations/new", "new_reservation")
_add_page("/ui/queues", "queues", lambda who: {"queues": {"items": queue_items(who)}})
_add_page("/ui/rules", "rules", lambda who: {"rules": rules_record(who)["items"]})
_add_page("/ui/admin", "admin", administration_record)
_add_page("/ui/events", "events", lambda who: {"events": event_page(who, _FIRST_EVENTS)})
_add_page("/ui/tokens", "tokens", lambda who: {"user": who.caller.identified().name})


@router.get("/ui/login")
def login(request: Request) -> Answer:
    """Show the login form, also where anonymous users may not read."""
    config = service_of(request).runtime.config
    return _document(request, "login", {"takes_passwords": config.api_basic_auth != "no"}, Caller())


@router.get("/ui/{path:path}")
def nothing(request: Request) -> Answer:
    """Show that there is no such page."""
    try:
        caller = asking(request).caller
    except OarError:
        caller = Caller()
    return _document(request, "problem", {"status": 404, "text": ""}, caller, HTTPStatus.NOT_FOUND)


def _documents(request: Request) -> Documents:
    documents: Documents = request.app.state.documents
    return documents


def _page(request: Request, name: str, load: Callable[[Asking], Record]) -> Answer:
    caller = Caller()
    try:
        who = asking(request)
        caller = who.caller
        record = load(who)
    except OarError as error:
        return _problem(request, error, caller)
    return _document(request, name, record, caller)


def _problem(request: Request, error: OarError, caller: Caller) -> Answer:
    log_outage(error)
    status = status_of(error)
    return _document(request, "problem", {"status": int(status), "text": public_text(error)}, caller, status)


def _document(
    request: Request, name: str, record: Record, caller: Caller, status: HTTPStatus = HTTPStatus.OK
) -> Answer:
    visit = _visit(request, caller)
    text = _documents(request).page(name, visit, record)
    return _choosing(request, visit, Response(text, status, _HEADERS, "text/html"))


def _choosing(request: Request, visit: Visit, response: Response) -> Response:
    if request.query_params.get("lang") in LANGUAGES:
        response.set_cookie(_LANGUAGE_COOKIE, visit.language, max_age=_YEAR, samesite="lax")
    return response


def _visit(request: Request, caller: Caller) -> Visit:
    config = service_of(request).runtime.config
    body = request.query_params.get("lang") or request.cookies.get(_LANGUAGE_COOKIE)
    return Visit(
        config.instance_name or config.server_hostname,
        "../" * (request.scope["raw_path"].count(b"/") - 1),
        preferred(body, request.headers.get("accept-language", "")),
        local_zone(),
        caller.user.name if caller.user else "",
        way=caller.way,
        administers=bool(caller.user and caller.user.is_admin),
        creates_tokens=caller.can_create_tokens,
        now=int(time.time()),
        announcements=_announcements(request),
    )


def _announcements(request: Request) -> Sequence[str]:
    """Return the announcements of administrators; none if the database does not answer."""
    try:
        with service_of(request).runtime.database.snapshot() as tx:
            return tx.announcements.texts()
    except OarError:
        return ()


def _number(text: str, of: str = "job") -> int:
    """Return the id of a job, or of something else.  Raises BadRequest."""
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise BadRequest(f"{text!r} must be the id of a {of}")
    return int(text)
