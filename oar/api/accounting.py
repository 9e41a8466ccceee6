"""Accounting: who used what over time, nodes that were lost, waiting times; what oaraccounting does."""

import time
from http import HTTPStatus
from typing import Annotated, Literal, NamedTuple

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from oar.api.parameters import LARGEST_ID, STRICT
from oar.api.responses import Answer, answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import Asking, administering, asking, note, service_of
from oar.api.workers import Desk, Outcome, answer_of
from oar.lib.base.errors import BadRequest
from oar.lib.history.sql_usage import UsedByGroup
from oar.lib.jobs import accounting
from oar.lib.jobs.sql_waits import BLOCK_HOURS, CLASSES, LastStarted, WaitByPiece
from oar.lib.reservations.recurrence import local_zone

router = APIRouter(tags=["usage"], route_class=ApiRoute)

#: The group that sums up the consumption of other users where it is private.
OTHERS = "others"
_WEEK = 7 * 86400
_YEAR = 366 * 86400
#: Jobs that are looked at for waiting times, at most.
MAX_STARTED = 20_000
#: Seconds for which figures are returned again.
MAX_AGE = 30.0
#: Nodes of a response, at most: those that were suspected most often and unavailable for longest.
MAX_NODES = 20
Begin = Annotated[int, Query(alias="from", ge=0, le=2**40, description="Start of the period, epoch seconds.")]
End = Annotated[int, Query(ge=0, le=2**40, description="End of the period, epoch seconds.")]
Since = Annotated[
    int | None, Query(ge=0, le=LARGEST_ID, description="Only jobs that started after this date, epoch seconds.")
]
Bucket = Annotated[Literal["day", "week", "month"], Query(description="Bucket length.")]


@router.get("/v1/usage", operation_id="usage", summary="Resource consumption over time")
def usage(
    request: Request,
    begin: Begin,
    to: End,
    group: Annotated[Literal["user", "project", "queue"], Query(description="Grouping of the consumption.")] = "user",
    bucket: Bucket = "day",
) -> Answer:
    """Return used and requested resource seconds, by time bucket and group."""
    if begin >= to:
        raise BadRequest("a period goes from a date to a later one")
    return answer_unless_known(request, usage_record(asking(request), begin, to, group, bucket))


def usage_record(who: Asking, begin: int, to: int, group: str = "user", bucket: str = "day") -> dict[str, object]:
    """Return the consumption of a period as far as the caller may see it."""
    with who.database.snapshot() as tx:
        rows = tx.usage.series(begin, to, group=group, bucket=bucket)
        lost = tx.usage.unavailable(begin, to)
        capacity = tx.resources.count_by_type().get("default", 0) * (to - begin)
    items = [
        {"from": row.begin, group: row.group, "used": row.used, "asked": row.asked}
        for row in _shown(rows, who, by_user=group == "user")
    ]
    return {"items": items, "capacity": capacity, "unavailable": lost}


@router.get("/v1/usage/nodes", operation_id="usage_nodes", summary="Unavailability of nodes")
def usage_nodes(request: Request, begin: Begin, to: End) -> Answer:
    """Return the nodes that were unavailable, those with the most changes to Suspected first.

    `seconds` are resource seconds by state; `halted` is the total of resource seconds of nodes halted to save energy.
    """
    if not begin < to <= begin + _YEAR:
        raise BadRequest("a period goes from a date to a later one, over a year at most")
    who, cache = asking(request), service_of(request).periods
    record = cache.recent(("nodes", begin, to), lambda: _lost_nodes(who, begin, to), MAX_AGE)
    return answer_unless_known(request, record)


def _lost_nodes(who: Asking, begin: int, to: int) -> dict[str, object]:
    with who.database.snapshot() as tx:
        lost, halted = tx.usage.lost_nodes(begin, to, MAX_NODES), tx.usage.halted(begin, to)
    return {"items": [node._asdict() for node in lost], "halted": halted}


@router.get("/v1/usage/waits", operation_id="usage_waits", summary="Waiting times of jobs")
def usage_waits(
    request: Request,
    begin: Begin,
    to: End,
    bucket: Bucket = "day",
) -> Answer:
    """Return the waiting times of the jobs that started in a period, by number of resources, queue, hour and day.

    `is_cut` is true if only the last jobs of the period were evaluated. `hours` group by submission time in the time
    zone of the site: `block` 0 starts on Monday at midnight, each block has `block_hours`. `trend` groups by start time
    (UTC). Jobs with a reserved start are left out.
    """
    if not begin < to <= begin + _YEAR:
        raise BadRequest("a period goes from a date to a later one, over a year at most")
    who = asking(request)
    cache = service_of(request).periods
    key = ("waits", begin, to, bucket)
    return answer_unless_known(request, cache.recent(key, lambda: _waits(who, begin, to, bucket), MAX_AGE))


def _waits(who: Asking, begin: int, to: int, bucket: str) -> dict[str, object]:
    period = LastStarted(begin, to, MAX_STARTED)
    with who.database.snapshot() as tx:
        by_size = tx.job_waits.waits_by_size(period)
        by_hour = tx.job_waits.waits_by_hour(period, local_zone() or "UTC")
        by_piece = tx.job_waits.waits_by_piece(period, bucket)
    ends = [first - 1 for first in CLASSES[1:]]
    return {
        "sizes": [{"from": first, "to": last} for first, last in zip(CLASSES, [*ends, None], strict=True)],
        "items": [row._asdict() for row in by_size],
        "hours": [row._asdict() for row in by_hour],
        "block_hours": BLOCK_HOURS,
        "trend": [{"size": row.size, "from": row.begin, **_spread(row)} for row in by_piece],
        "is_cut": sum(row.jobs for row in by_size if row.queue is None) >= MAX_STARTED,
    }


def _spread(waits: WaitByPiece) -> dict[str, int]:
    return {"jobs": waits.jobs, "half": waits.half, "most": waits.most}


@router.get("/v1/predictions", operation_id="prediction_errors", summary="Accuracy of predicted start times")
def prediction_errors(request: Request, since: Since = None) -> Answer:
    """Return by queue how far jobs started from their first predicted start. Default: the last week."""
    who = asking(request)
    with who.database.snapshot() as tx:
        errors = tx.job_waits.prediction_errors(tx.now - _WEEK if since is None else since)
    return answer_unless_known(request, {"items": [error._asdict() for error in errors]})


def _shown(rows: list[UsedByGroup], who: Asking, *, by_user: bool) -> list[UsedByGroup]:
    """Return the consumption that the caller may see; other users are summed up where consumption is private."""
    user = who.caller.user
    if not who.config.api_accounting_private or (user and user.is_admin):
        return rows
    own = user.name if user and by_user else None
    sums: dict[tuple[int, str], UsedByGroup] = {}
    for row in rows:
        group = row.group if row.group == own else OTHERS
        former = sums.get((row.begin, group), UsedByGroup(row.begin, group, 0, 0))
        sums[row.begin, group] = former._replace(used=former.used + row.used, asked=former.asked + row.asked)
    return list(sums.values())


administration = APIRouter(tags=["administration"], route_class=ApiRoute)

#: Seconds of one request; the next one counts the jobs that are left.
SECONDS = 10.0


class AccountingUpdate(BaseModel):
    """Which ended jobs to count."""

    model_config = STRICT

    since: int | None = Field(None, ge=0, le=LARGEST_ID, description="Only jobs that ended since this date.")
    anew: bool = Field(default=False, description="Discard the accounting and count all ended jobs again.")


class CountJobs(NamedTuple):
    """The task to count jobs that have ended."""

    since: int
    anew: bool
    seconds: float = SECONDS

    def run(self, desk: Desk) -> Outcome:
        """Count until all are counted or the time limit is reached.  Raises AccountingIsRunning, OtherWindowWidth."""
        rules, deadline = accounting.accounting_rules(desk.config), time.monotonic() + self.seconds
        batches = (
            accounting.recount(desk.database, rules)
            if self.anew
            else accounting.count(desk.database, rules, self.since)
        )
        number, windows, is_whole = 0, 0, True
        for batch in batches:
            number, windows = number + len(batch.ids), windows + len(batch.changes)
            if not self.anew and time.monotonic() > deadline:
                batches.close()
                is_whole = False
                break
        return Outcome(HTTPStatus.OK, {"jobs": number, "windows": windows, "complete": is_whole})


@administration.post("/v1/accounting", operation_id="accounting_count", summary="Update the accounting of ended jobs")
def accounting_count(request: Request, body: AccountingUpdate | None = None) -> Answer:
    """Add ended jobs to the accounting, as `oaraccounting` does. Administrators only.

    `complete` is false if the request ended before all jobs were counted; repeat it to continue.
    """
    body = body or AccountingUpdate(since=None)
    if body.anew and body.since is not None:
        raise BadRequest("since and anew are exclusive")
    who = asking(request)
    user = who.caller.administering()
    workers, seconds = service_of(request).workers, who.config.api_timeout
    outcome = workers.run_long(CountJobs(body.since or 0, body.anew), seconds)
    note(request, user)
    return answer_of(request, outcome)


@administration.delete("/v1/accounting", operation_id="accounting_purge", summary="Purge old accounting data")
def accounting_purge(
    request: Request,
    older_than: Annotated[
        int, Query(ge=0, le=2**40, description="Minimum age of the deleted windows: seconds since their end.")
    ],
) -> Answer:
    """Delete older accounting windows, as `oaraccounting --delete-before` does. Administrators only."""
    with administering(request) as act:
        removed = act.tx.accounting.delete_before(act.tx.now - older_than)
    return answer({"windows": removed})
