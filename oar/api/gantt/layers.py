"""What lies over and below the jobs of the Gantt diagram: density, plans of former rounds, periods of quotas."""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from oar.api.gantt_ import LAST_DAY, Begin, End, rows_record
from oar.api.parameters import PRINTABLE, split_list
from oar.api.response_cache import Record
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import asking, service_of
from oar.kao.rounds.reading.planner_settings import settings_of
from oar.kao.rounds.reading.policy_files import PolicyFiles
from oar.lib.facts.errors import BadRequest, NoSuchResource
from oar.lib.views.gantt_chunks import DAY, ranges
from oar.lib.views.gantt_density import density_record

if TYPE_CHECKING:
    from oar.lib.db.planning.former_plans import FormerlyPlanned

router = APIRouter(tags=["gantt"], route_class=ApiRoute)

#: Pieces and days of one answer about density.
MOST_PARTS, MOST_DAYS = 800, 93
#: Dates of plans of an answer; jobs of a plan.
MOST_DATES, MOST_PLANNED = 200, 2000
#: Days of which the periods of quotas are told.
MOST_QUOTA_DAYS = 92


@router.get("/v1/gantt/density", operation_id="gantt_density", summary="Resource usage as a density map")
def gantt_density(
    request: Request,
    begin: Begin,
    to: End,
    bucket: Annotated[int, Query(ge=60, le=30 * DAY, description="Bucket length in seconds.")] = 3600,
    rows: Annotated[
        str, Query(max_length=500, pattern=PRINTABLE, description="Grouping properties, outermost first.")
    ] = "",
) -> Answer:
    """Return which share of the rows was used by ended jobs in a period, and which share was unavailable.

    Adjacent rows are merged into at most 200 groups. Each group has one byte per time bucket (255: fully used). `used`,
    `besteffort` (included in `used`) and `unusable` are these bytes, group after group, in base64.
    """
    who, levels = asking(request), split_list(rows) or ("network_address",)
    parts = -(-(to - begin) // bucket)
    if not begin < to <= begin + MOST_DAYS * DAY or parts > MOST_PARTS:
        raise BadRequest(f"a period has {MOST_PARTS} pieces at most, and {MOST_DAYS} days")

    def make() -> Record:
        with who.database.snapshot() as tx:
            found = rows_record(tx, levels)["items"]
            ids = [[n for first, many in row["resources"] for n in range(first, first + many)] for row in found]
            record: Record = density_record(tx, ids, begin, bucket, parts)
            return record

    key = ("density", begin, to, bucket, *levels)
    return answer_unless_known(request, service_of(request).curves.curve(key, make, bucket))


@router.get("/v1/gantt/plans", operation_id="gantt_plans", summary="List stored plans")
def gantt_plans(request: Request, begin: Begin, to: End) -> Answer:
    """Return the dates of stored plans in a period, at most 200. Empty if `SCHEDULER_LOG_DECISIONS` is off."""
    if begin >= to:
        raise BadRequest("a period goes from a date to a later one")
    with asking(request).database.snapshot() as tx:
        dates = tx.former_plans.dates(begin, to, MOST_DATES)
    return answer_unless_known(request, {"items": dates})


@router.get(
    "/v1/gantt/plans/{date}", operation_id="gantt_plan", summary="Compare a stored plan with the actual schedule"
)
def gantt_plan(
    request: Request, date: Annotated[int, Path(ge=0, le=LAST_DAY * DAY, description="Epoch seconds.")]
) -> Answer:
    """Return the plan of the last scheduling pass before a date, with the actual start and end of each job.

    `is_cut` is true if jobs with later planned starts were left out.
    """
    with asking(request).database.snapshot() as tx:
        made = tx.former_plans.last(date)
        found = tx.former_plans.jobs(made, MOST_PLANNED + 1) if made else []
    if not made:
        raise NoSuchResource("no plan of that time is kept (SCHEDULER_LOG_DECISIONS, RETENTION_GANTT_LOG)")
    items = [_planned(job) for job in found[:MOST_PLANNED]]
    return answer_unless_known(request, {"date": made, "items": items, "is_cut": len(found) > MOST_PLANNED})


def _planned(job: "FormerlyPlanned") -> dict[str, Any]:
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


@router.get("/v1/gantt/quotas", operation_id="gantt_quotas", summary="List quota periods")
def gantt_quotas(request: Request, begin: Begin, to: End) -> Answer:
    """Return the quota periods between two dates. Empty if the quotas have no calendar."""
    if not begin < to <= begin + MOST_QUOTA_DAYS * DAY:
        raise BadRequest(f"a period goes from a date to a later one, over {MOST_QUOTA_DAYS} days at most")
    who = asking(request)
    with who.database.snapshot() as tx:
        policies = [queue.policy for queue in tx.queues.all()]
    file = PolicyFiles(who.config).quota_file(policies, settings_of(who.config), [])
    changes = file.calendar.expand(begin, to) if file and file.calendar else []
    rules = file.rules if file else {}
    items = [
        {"name": name, "from": date, "to": end, "rules": len(rules.get(name, ()))}
        for (date, name), (end, _) in zip(changes, [*changes[1:], (to, "")], strict=False)
    ]
    return answer_unless_known(request, {"items": items})
