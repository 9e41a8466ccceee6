"""The Gantt diagram: days that are over (as chunks that never change), what goes on, curves, density, plans."""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.parameters import PRINTABLE, check_period, split_list
from oar.api.records import Pair
from oar.api.response_cache import Record, packed
from oar.api.responses import REVALIDATED, Answer
from oar.api.routing import Router
from oar.api.service import Asking, asking, service_of
from oar.kao.rounds.reading.planner_settings import settings_of
from oar.kao.rounds.reading.policy_files import PolicyFiles
from oar.lib.base.errors import BadRequest, NoSuchResource
from oar.lib.history.gantt import DAY, chunk_version, day_chunk, density_record, ranges
from oar.lib.history.occupancy import occupancy_curve
from oar.lib.jobs.states import NOT_STARTED
from oar.lib.nodes.records import SYSTEM_PROPERTIES

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.history import sql_gantt_days
    from oar.lib.planning.sql_plan import FormerlyPlanned

router = Router("gantt")

GanttDay = TypedDict("GanttDay", {"day": str, "version": str, "jobs": int, "states": int, "from": int})
GanttIndex = TypedDict("GanttIndex", {"items": list[GanttDay]})


class DrawnJob(TypedDict):
    id: int
    name: str | None
    user: str
    project: str
    queue: str
    types: list[str]
    state: str
    kind: str
    submitted: int
    start: int
    walltime: int
    is_planned: bool
    resources: list[Pair]


class PlannedJob(DrawnJob):
    reason: str | None


SuspendedSpan = TypedDict("SuspendedSpan", {"job": int, "from": int, "to": int | None})
DrawnState = TypedDict("DrawnState", {"state": str, "from": int, "resources": list[Pair]})
DrawnReservation = TypedDict(
    "DrawnReservation",
    {
        "id": int,
        "name": str | None,
        "user": str,
        "from": int,
        "to": int,
        "resources": list[Pair],
        "missing": list[Pair],
    },
)


class GanttLive(TypedDict):
    running: list[DrawnJob]
    planned: list[PlannedJob]
    suspended: list[SuspendedSpan] | None
    states: list[DrawnState] | None
    reservations: list[DrawnReservation] | None
    gone: list[int]
    since: str | None
    cursor: str


GanttOccupancy = TypedDict(
    "GanttOccupancy",
    {
        "from": int,
        "bucket": int,
        "now": int,
        "resources": int,
        "used": list[float],
        "planned": list[float],
        "unusable": list[float],
    },
)


DrawnNode = TypedDict("DrawnNode", {"name": str, "resources": list[Pair]})


class NodeJob(TypedDict):
    id: int
    name: str | None
    user: str
    state: str
    outcome: str | None
    start: int
    end: int | None
    is_over: bool
    is_planned: bool
    resources: list[Pair]


NodeState = TypedDict("NodeState", {"state": str, "from": int, "to": int | None, "resources": list[Pair]})
GanttNodes = TypedDict(
    "GanttNodes", {"from": int, "to": int, "nodes": list[DrawnNode], "jobs": list[NodeJob], "states": list[NodeState]}
)
GanttDensity = TypedDict(
    "GanttDensity",
    {
        "from": int,
        "bucket": int,
        "parts": int,
        "groups": list[list[Pair]],
        "used": str,
        "besteffort": str,
        "unusable": str,
    },
)


GanttPlans = TypedDict("GanttPlans", {"items": list[int]})


class PlanItem(TypedDict):
    id: int
    name: str | None
    user: str
    start: int
    end: int
    started: int | None
    ended: int | None
    resources: list[Pair]


GanttPlan = TypedDict("GanttPlan", {"date": int, "items": list[PlanItem], "is_cut": bool})
QuotaSpan = TypedDict("QuotaSpan", {"name": str, "from": int, "to": int, "rules": int})
GanttQuotas = TypedDict("GanttQuotas", {"items": list[QuotaSpan]})
GanttRow = TypedDict("GanttRow", {"type": str, "labels": Sequence[str], "number": int, "resources": list[Pair]})
GanttRows = TypedDict("GanttRows", {"levels": Sequence[str], "items": list[GanttRow], "properties": list[str]})


#: The last day that the columns of a chunk can express.
LAST_DAY = 2**32 // DAY - 1
MAX_DAYS = 366
_UNTOUCHED = "private, max-age=31536000, immutable"
Day = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="Day in UTC, YYYY-MM-DD.")]
Since = Annotated[str | None, Field(max_length=60, pattern=PRINTABLE, description="`cursor` of an earlier response.")]
Version = Annotated[
    str | None,
    Field(
        max_length=60,
        pattern=PRINTABLE,
        description="`version` of the day; with it the response can be cached forever.",
    ),
]
EndedSince = Annotated[
    int,
    Field(
        ge=0, le=LAST_DAY * DAY, description="Only jobs and states that ended at this date (epoch seconds) or later."
    ),
]
Begin = Annotated[int, Field(alias="from", ge=0, le=LAST_DAY * DAY, description="Start of the period, epoch seconds.")]
End = Annotated[int, Field(ge=0, le=LAST_DAY * DAY, description="End of the period, epoch seconds.")]


@router.get("/v1/gantt/index", "gantt_index", "Days with archived chunks", record=GanttIndex)
def gantt_index(request: Request, begin: Begin, to: End) -> Answer:
    """Return the days of a period that have a chunk, with the version to request it with.

    `from` of a day is the earliest start of all jobs and states that ended on it. A date is covered by its own day and
    by each later day whose `from` is not after the date.
    """
    who = asking(request)
    check_period(begin, to + 1, MAX_DAYS)

    def compute(tx: "Transaction") -> GanttIndex:
        return {
            "items": [
                {
                    "day": datetime.fromtimestamp(version.day * DAY, UTC).strftime("%Y-%m-%d"),
                    "version": chunk_version(version),
                    "jobs": version.jobs,
                    "states": version.states,
                    "from": version.first,
                }
                for version in tx.gantt_days.versions(begin - begin % DAY, to - to % DAY + DAY)
            ]
        }

    return service_of(request).periods.current(request, who.database, ("days", begin // DAY, to // DAY), compute)


@router.get(
    "/v1/gantt/chunks/{day}",
    "gantt_chunk",
    "Jobs and node states that ended on a day",
    media_types=("application/octet-stream",),
)
def gantt_chunk(
    request: Request,
    day: Day,
    v: Version = None,
    since: EndedSince = 0,
) -> Answer:
    """Return the jobs and resource states that ended on a day (UTC), as columns of integers compressed with gzip."""
    who = asking(request)
    number, chunks = _day(day), service_of(request).chunks
    if since > number * DAY:
        with who.database.snapshot() as tx:
            return _packed(packed(day_chunk(tx, number, since)), {"Cache-Control": "private, no-store"})
    kept = chunks.kept(number, v) if v else None
    if kept is not None and (number + 1) * DAY <= time.time():
        return _packed(kept, {"ETag": f'W/"{v}"', "Cache-Control": _UNTOUCHED})
    with who.database.snapshot() as tx:
        versions = tx.gantt_days.versions(number * DAY, (number + 1) * DAY)
        version = chunk_version(versions[0]) if versions else "0"
        tag = f'W/"{version}"'
        is_over = (number + 1) * DAY <= tx.now
        headers = {"ETag": tag, "Cache-Control": _UNTOUCHED if is_over and v == version else REVALIDATED}
        if tag in request.headers.get("if-none-match", ""):
            return Answer(status_code=304, headers=headers)
        body = chunks.packed(tx, number, version, is_over=is_over)
    return _packed(body, headers)


def _packed(body: bytes, headers: dict[str, str]) -> Answer:
    return Answer(body, 200, {**headers, "Content-Encoding": "gzip"}, "application/octet-stream")


@router.get("/v1/gantt/live", "gantt_live", "Running and planned jobs", record=GanttLive)
def gantt_live(request: Request, since: Since = None) -> Record | Answer:
    """Return the jobs that occupy resources, the planned jobs, and the current states of resources.

    With the `cursor` of an earlier response as `since`: only new and changed jobs, the ids of jobs that are `gone`, and
    null for unchanged parts. `since` of the response is null if the response is complete.
    """
    who, service = asking(request), service_of(request)

    def whole(tx: "Transaction") -> dict[str, Any]:
        return service.moments.answer(live_record(tx), None)

    if since is None:
        return service.cache.current(request, who.database, "live", whole)
    with who.database.snapshot() as tx:
        record = live_record(tx)
    return service.moments.answer(record, since)


@router.get("/v1/gantt/rows", "gantt_rows", "Rows of the Gantt diagram", record=GanttRows)
def gantt_rows(
    request: Request,
    rows: Annotated[
        str, Field(max_length=500, pattern=PRINTABLE, description="Grouping properties, outermost first.")
    ] = "",
) -> Answer:
    """Return the resources grouped by the values of some properties, in natural order, as ranges of ids."""
    who, levels = asking(request), split_list(rows) or ("network_address",)
    return service_of(request).periods.current(
        request, who.database, ("rows", *levels), lambda tx: rows_record(tx, levels)
    )


def rows_record(tx: "Transaction", levels: tuple[str, ...]) -> GanttRows:
    """Return the rows.  Raises BadRequest."""
    properties = tx.resources.columns()
    unknown = [level for level in levels if level not in properties]
    if unknown:
        raise BadRequest(f"there is no resource property {unknown[0]!r}")
    groups = tx.listings.grouped(("type", *levels))
    items: list[GanttRow] = [
        {"type": kind, "labels": labels, "number": len(ids), "resources": list(ranges(ids))}
        for kind, labels, ids in sorted(_labelled(groups), key=_natural)
    ]
    named = sorted(name for name in properties if name not in SYSTEM_PROPERTIES)
    return {"levels": levels, "items": items, "properties": named}


def _labelled(groups: Iterable[tuple[Sequence[Any], list[int]]]) -> Iterator[tuple[str, tuple[str, ...], list[int]]]:
    """Return resources by their type and by the values of properties as texts; no value is an empty one."""
    rows: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for (kind, *values), ids in groups:
        key = kind, tuple([str(value or "") for value in values])
        rows[key] = sorted([*rows[key], *ids]) if key in rows else ids
    return ((*key, ids) for key, ids in rows.items())


def _natural(row: tuple[str, tuple[str, ...], list[int]]) -> tuple[object, ...]:
    """Return the key for natural sorting: the default type first, n2 before n10."""
    kind, labels, _ = row
    return kind != "default", kind, *map(_ranks, labels)


@lru_cache(maxsize=100_000)
def _ranks(label: str) -> tuple[tuple[bool, int, str], ...]:
    parts = [(part, part.isdecimal()) for part in re.findall(r"[0-9]{1,18}|[^0-9]+", label)]
    return tuple([(not is_number, int(part) if is_number else 0, part) for part, is_number in parts])


def _day(text: str) -> int:
    try:
        day = (date.fromisoformat(text) - date(1970, 1, 1)).days
    except ValueError:
        day = -1
    if not 0 <= day <= LAST_DAY:
        raise NoSuchResource(f"there is no day {text}")
    return day


#: Parts of a period at most.
MAX_BUCKETS = 1500


def max_age(bucket: int = 0) -> float:
    """Return how old a curve may be, in seconds; ``bucket``: seconds of its buckets.

    Nobody sees that a bucket has grown by a 60th.  A curve of a year takes seconds to compute; its buckets are days.
    """
    return min(max(30.0, bucket / 60), 3600.0)


@router.get("/v1/gantt/occupancy", "gantt_occupancy", "Cluster utilization over time", record=GanttOccupancy)
def gantt_occupancy(
    request: Request,
    begin: Begin,
    to: End,
    bucket: Annotated[int, Field(ge=60, le=30 * DAY, description="Bucket length in seconds.")] = 3600,
) -> Record:
    """Return the mean number of used, planned and unavailable resources in each bucket of a period.

    A running job counts as used until now, and as planned for the rest of its walltime.
    """
    who = asking(request)
    number = -(-(to - begin) // bucket)
    check_period(begin, to, MAX_DAYS)
    if number > MAX_BUCKETS:
        raise BadRequest(f"bucket: the period must have at most {MAX_BUCKETS} buckets")

    def make() -> Record:
        with who.database.snapshot() as tx:
            return occupancy_curve(tx, begin, bucket, number)

    key = ("occupancy", begin, bucket, number)
    return service_of(request).periods.recent(key, make, max_age(bucket))


#: Nodes, days, and jobs of each kind (ended, running, planned) of an answer, at most.
MAX_NODES, MAX_NODE_DAYS, MAX_JOBS = 16, 31, 500
Names = Annotated[
    str, Field(min_length=1, max_length=5000, pattern=PRINTABLE, description=f"Nodes, {MAX_NODES} at most.")
]


@router.get("/v1/gantt/nodes", "gantt_nodes", "Jobs on some nodes over time")
def gantt_nodes(request: Request, node: Names, begin: Begin, to: End) -> GanttNodes:
    """Return the past, running and planned jobs on some nodes, and the periods in which the nodes were unavailable.

    Resources of a job on other nodes are left out. `end` is null for a running job without walltime.
    """
    names = split_list(node)
    check_period(begin, to, MAX_NODE_DAYS)
    if len(names) > MAX_NODES:
        raise BadRequest(f"node: must name at most {MAX_NODES} nodes, not {len(names)}")
    return strip_record(asking(request), names, begin, to)


def strip_record(who: Asking, names: tuple[str, ...], begin: int, end: int) -> GanttNodes:
    """Return what some nodes do in a period.  Raises BadRequest."""
    with who.database.snapshot() as tx:
        by_node = tx.resources.ids_of_nodes(names)
        unknown = [name for name in names if name not in by_node]
        if unknown:
            raise BadRequest(f"there is no node {unknown[0]!r}")
        resources = {number for name in names for number in by_node[name]}
        jobs = tx.gantt_days.on(sorted(resources), begin, end, MAX_JOBS)
        states = tx.gantt_days.states_on(sorted(resources), begin, end)
    return {
        "from": begin,
        "to": end,
        "nodes": [{"name": name, "resources": list(ranges(sorted(by_node[name])))} for name in names],
        "jobs": [_item(job, resources) for job in sorted(jobs, key=lambda job: (job.start, job.id))],
        "states": [
            {
                "state": state.state,
                "from": state.start,
                "to": state.stop or None,
                "resources": list(ranges(state.resources)),
            }
            for state in states
        ],
    }


def _item(job: "sql_gantt_days.DrawnJob", resources: set[int]) -> NodeJob:
    return {
        "id": job.id,
        "name": job.name or None,
        "user": job.user,
        "state": job.state,
        "outcome": job.outcome,
        "start": job.start,
        "end": job.stop or job.latest_end,
        "is_over": bool(job.stop),
        "is_planned": job.state in NOT_STARTED,
        "resources": list(ranges(sorted(resources.intersection(job.resources)))),
    }


#: Pieces and days of one answer about density.
MAX_DENSITY_BUCKETS, MAX_DENSITY_DAYS = 800, 93
#: Dates of plans of an answer; jobs of a plan.
MAX_DATES, MAX_PLANNED = 200, 2000
#: Days of a request for the periods of quotas, at most.
MAX_QUOTA_DAYS = 92


@router.get("/v1/gantt/density", "gantt_density", "Resource usage as a density map", record=GanttDensity)
def gantt_density(
    request: Request,
    begin: Begin,
    to: End,
    bucket: Annotated[int, Field(ge=60, le=30 * DAY, description="Bucket length in seconds.")] = 3600,
    rows: Annotated[
        str, Field(max_length=500, pattern=PRINTABLE, description="Grouping properties, outermost first.")
    ] = "",
) -> Record:
    """Return which share of the rows was used by ended jobs in a period, and which share was unavailable.

    Adjacent rows are merged into at most 200 groups. Each group has one byte per time bucket (255: fully used). `used`,
    `besteffort` (included in `used`) and `unusable` are these bytes, group after group, in base64.
    """
    who, levels = asking(request), split_list(rows) or ("network_address",)
    parts = -(-(to - begin) // bucket)
    check_period(begin, to, MAX_DENSITY_DAYS)
    if parts > MAX_DENSITY_BUCKETS:
        raise BadRequest(f"bucket: the period must have at most {MAX_DENSITY_BUCKETS} buckets")

    def make() -> Record:
        with who.database.snapshot() as tx:
            rows = rows_record(tx, levels)["items"]
            ids = [[n for first, many in row["resources"] for n in range(first, first + many)] for row in rows]
            record: Record = density_record(tx, ids, begin, bucket, parts)
            return record

    key = ("density", begin, to, bucket, *levels)
    return service_of(request).periods.recent(key, make, max_age(bucket))


@router.get("/v1/gantt/plans", "gantt_plans", "List stored plans")
def gantt_plans(request: Request, begin: Begin, to: End) -> GanttPlans:
    """Return the dates of stored plans in a period, at most 200. Empty if `SCHEDULER_LOG_DECISIONS` is off."""
    check_period(begin, to)
    with asking(request).database.snapshot() as tx:
        dates = tx.plan.former_dates(begin, to, MAX_DATES)
    return {"items": dates}


@router.get("/v1/gantt/plans/{date}", "gantt_plan", "Compare a stored plan with the actual schedule")
def gantt_plan(
    request: Request, date: Annotated[int, Field(ge=0, le=LAST_DAY * DAY, description="Epoch seconds.")]
) -> GanttPlan:
    """Return the plan of the last scheduling pass before a date, with the actual start and end of each job.

    `is_cut` is true if jobs with later planned starts were left out.
    """
    with asking(request).database.snapshot() as tx:
        made = tx.plan.last_former_plan(date)
        jobs = tx.plan.former_jobs(made, MAX_PLANNED + 1) if made else []
    if not made:
        raise NoSuchResource("no plan of this date is stored (SCHEDULER_LOG_DECISIONS, RETENTION_GANTT_LOG)")
    items = [_planned(job) for job in jobs[:MAX_PLANNED]]
    return {"date": made, "items": items, "is_cut": len(jobs) > MAX_PLANNED}


def _planned(job: "FormerlyPlanned") -> PlanItem:
    return {
        "id": job.id,
        "name": job.name or None,
        "user": job.user,
        "start": job.start,
        "end": job.start + job.walltime,
        "started": job.real_start or None,
        "ended": job.real_stop or None,
        "resources": list(ranges(job.resources)),
    }


@router.get("/v1/gantt/quotas", "gantt_quotas", "List quota periods")
def gantt_quotas(request: Request, begin: Begin, to: End) -> GanttQuotas:
    """Return the quota periods between two dates. Empty if the quotas have no calendar."""
    check_period(begin, to, MAX_QUOTA_DAYS)
    who = asking(request)
    with who.database.snapshot() as tx:
        policies = [queue.policy for queue in tx.queues.all()]
    file = PolicyFiles(who.config).quota_file(policies, settings_of(who.config), [])
    changes = file.calendar.expand(begin, to) if file and file.calendar else []
    rules = file.rules if file else {}
    items: list[QuotaSpan] = [
        {"name": name, "from": date, "to": end, "rules": len(rules.get(name, ()))}
        for (date, name), (end, _) in zip(changes, [*changes[1:], (to, "")], strict=False)
    ]
    return {"items": items}


def live_record(tx: "Transaction") -> Record:
    """Return the jobs on resources, those whose start is planned, and the states of resources that last."""
    running, planned = tx.gantt_days.running(), tx.gantt_days.planned()
    reasons = tx.job_waits.reasons([job.id for job in planned])
    return {
        "running": [_live_job_item(job) for job in running],
        "planned": [
            {**_live_job_item(job), "reason": reasons[job.id].code if job.id in reasons else None} for job in planned
        ],
        "suspended": [
            {"job": job, "from": begin, "to": end or None}
            for job, begin, end in tx.gantt_days.pauses([job.id for job in running])
        ],
        "states": [
            {"state": state.state, "from": state.start, "resources": list(ranges(state.resources))}
            for state in tx.gantt_days.open_states()
        ],
        "reservations": [
            {
                "id": reservation.number,
                "name": reservation.name or None,
                "user": reservation.owner,
                "from": reservation.start,
                "to": reservation.end,
                "resources": list(ranges(sorted(reservation.resources))),
                "missing": list(ranges(sorted(reservation.missing))),
            }
            for reservation in tx.reservations.planned()
            if reservation.resources
        ],
    }


def _live_job_item(job: "sql_gantt_days.DrawnJob") -> DrawnJob:
    return {
        "id": job.id,
        "name": job.name or None,
        "user": job.user,
        "project": job.project,
        "queue": job.queue,
        "types": job.types.split(),
        "state": job.state,
        "kind": job.kind,
        "submitted": job.submitted,
        "start": job.start,
        "walltime": job.walltime,
        "is_planned": job.state in NOT_STARTED,
        "resources": list(ranges(job.resources)),
    }
