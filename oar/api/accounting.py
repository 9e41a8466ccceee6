"""Usage: who used what over time, lost nodes, waiting times, fair share; what oaraccounting does."""

import time
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Annotated, Literal, NamedTuple, NotRequired, cast

from pydantic import BaseModel, Field
from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.parameters import LARGEST_ID, PRINTABLE, STRICT, check_period
from oar.api.records import records_of
from oar.api.responses import Answer
from oar.api.routing import Router
from oar.api.service import Asking, administering, asking, note, service_of
from oar.api.workers import Desk, Outcome, answer_of
from oar.kao.facts import snapshot
from oar.kao.facts.snapshot import ConsumptionSums
from oar.kao.planner.fair_share import share_of, users_ahead
from oar.kao.rounds.reading.consumption_reader import summed, with_targets
from oar.kao.rounds.reading.planner_settings import settings_of
from oar.lib.access.records import User
from oar.lib.accounts.shares import read_shares
from oar.lib.base.errors import BadRequest, NotAllowed
from oar.lib.history.gantt import DAY
from oar.lib.history.sql_usage import UsedByGroup
from oar.lib.jobs import accounting
from oar.lib.jobs.sql_waits import BLOCK_HOURS, CLASSES, LastStarted
from oar.lib.reservations.recurrence import local_zone

router = Router("usage")


AccountingUpdateResult = TypedDict("AccountingUpdateResult", {"jobs": int, "windows": int, "complete": bool})
AccountingPurgeResult = TypedDict("AccountingPurgeResult", {"windows": int})
UsageEntry = TypedDict(
    "UsageEntry",
    {
        "from": int,
        "used": int,
        "asked": int,
        "user": NotRequired[str],
        "project": NotRequired[str],
        "queue": NotRequired[str],
    },
)


Usage = TypedDict("Usage", {"items": list[UsageEntry], "capacity": int, "unavailable": dict[str, int]})
SizeClass = TypedDict("SizeClass", {"from": int, "to": int | None})


class WaitingTimeBySize(TypedDict):
    size: int
    queue: str | None
    jobs: int
    half: int
    most: int


WaitingTimeByHour = TypedDict("WaitingTimeByHour", {"size": int, "block": int, "jobs": int, "half": int})
WaitingTimeTrend = TypedDict("WaitingTimeTrend", {"size": int, "from": int, "jobs": int, "half": int, "most": int})


class WaitingTimes(TypedDict):
    sizes: list[SizeClass]
    items: list[WaitingTimeBySize]
    hours: list[WaitingTimeByHour]
    block_hours: int
    trend: list[WaitingTimeTrend]
    is_cut: bool


class PredictionError(TypedDict):
    queue: str | None
    jobs: int
    half: int
    most: int
    late: int
    most_late: int


PredictionAccuracy = TypedDict("PredictionAccuracy", {"items": list[PredictionError]})
NodeUnavailabilityItem = TypedDict("NodeUnavailabilityItem", {"node": str, "suspected": int, "seconds": dict[str, int]})
NodeUnavailability = TypedDict("NodeUnavailability", {"items": list[NodeUnavailabilityItem], "halted": int})


#: The group that sums up the consumption of other users where it is private.
OTHERS = "others"
_WEEK = 7 * 86400
_MAX_DAYS = 366
#: Jobs that are looked at for waiting times, at most.
MAX_STARTED = 20_000
#: Seconds for which figures are returned again.
MAX_AGE = 30.0
#: Nodes of a response, at most: those that were suspected most often and unavailable for longest.
MAX_NODES = 20
Begin = Annotated[int, Field(alias="from", ge=0, le=2**40, description="Start of the period, epoch seconds.")]
End = Annotated[int, Field(ge=0, le=2**40, description="End of the period, epoch seconds.")]
Since = Annotated[
    int | None, Field(ge=0, le=LARGEST_ID, description="Only jobs that started after this date, epoch seconds.")
]
Bucket = Annotated[Literal["day", "week", "month"], Field(description="Bucket length.")]


@router.get("/v1/usage", "usage", "Resource consumption over time")
def usage(
    request: Request,
    begin: Begin,
    to: End,
    group: Annotated[Literal["user", "project", "queue"], Field(description="Grouping of the consumption.")] = "user",
    bucket: Bucket = "day",
) -> Usage:
    """Return used and requested resource seconds, by time bucket and group."""
    check_period(begin, to)
    return usage_record(asking(request), begin, to, group, bucket)


def usage_record(who: Asking, begin: int, to: int, group: str = "user", bucket: str = "day") -> Usage:
    """Return the consumption of a period as far as the caller may see it."""
    with who.database.snapshot() as tx:
        rows = tx.usage.series(begin, to, group=group, bucket=bucket)
        lost = tx.usage.unavailable(begin, to)
        capacity = tx.resources.count_by_type().get("default", 0) * (to - begin)
    items = [
        cast("UsageEntry", {"from": row.begin, group: row.group, "used": row.used, "asked": row.asked})
        for row in _shown(rows, who, by_user=group == "user")
    ]
    return {"items": items, "capacity": capacity, "unavailable": lost}


@router.get("/v1/usage/nodes", "usage_nodes", "Unavailability of nodes")
def usage_nodes(request: Request, begin: Begin, to: End) -> NodeUnavailability:
    """Return the nodes that were unavailable, those with the most changes to Suspected first.

    `seconds` are resource seconds by state; `halted` is the total of resource seconds of nodes halted to save energy.
    """
    check_period(begin, to, _MAX_DAYS)
    who = asking(request)

    def compute() -> NodeUnavailability:
        with who.database.snapshot() as tx:
            lost, halted = tx.usage.lost_nodes(begin, to, MAX_NODES), tx.usage.halted(begin, to)
        return {"items": records_of(lost, NodeUnavailabilityItem), "halted": halted}

    return service_of(request).periods.recent(("nodes", begin, to), compute, MAX_AGE)


@router.get("/v1/usage/waits", "usage_waits", "Waiting times of jobs")
def usage_waits(
    request: Request,
    begin: Begin,
    to: End,
    bucket: Bucket = "day",
) -> WaitingTimes:
    """Return the waiting times of the jobs that started in a period, by number of resources, queue, hour and day.

    `is_cut` is true if only the last jobs of the period were evaluated. `hours` group by submission time in the time
    zone of the site: `block` 0 starts on Monday at midnight, each block has `block_hours`. `trend` groups by start time
    (UTC). Jobs with a reserved start are left out.
    """
    check_period(begin, to, _MAX_DAYS)
    who = asking(request)
    cache = service_of(request).periods
    key = ("waits", begin, to, bucket)
    return cache.recent(key, lambda: _waits(who, begin, to, bucket), MAX_AGE)


def _waits(who: Asking, begin: int, to: int, bucket: str) -> WaitingTimes:
    period = LastStarted(begin, to, MAX_STARTED)
    with who.database.snapshot() as tx:
        by_size = tx.job_waits.waits_by_size(period)
        by_hour = tx.job_waits.waits_by_hour(period, local_zone() or "UTC")
        by_piece = tx.job_waits.waits_by_piece(period, bucket)
    ends = [first - 1 for first in CLASSES[1:]]
    return {
        "sizes": [{"from": first, "to": last} for first, last in zip(CLASSES, [*ends, None], strict=True)],
        "items": records_of(by_size, WaitingTimeBySize),
        "hours": records_of(by_hour, WaitingTimeByHour),
        "block_hours": BLOCK_HOURS,
        "trend": [
            {"size": row.size, "from": row.begin, "jobs": row.jobs, "half": row.half, "most": row.most}
            for row in by_piece
        ],
        "is_cut": sum(row.jobs for row in by_size if row.queue is None) >= MAX_STARTED,
    }


@router.get("/v1/predictions", "prediction_errors", "Accuracy of predicted start times")
def prediction_errors(request: Request, since: Since = None) -> PredictionAccuracy:
    """Return by queue how far jobs started from their first predicted start. Default: the last week."""
    who = asking(request)
    with who.database.snapshot() as tx:
        errors = tx.job_waits.prediction_errors(tx.now - _WEEK if since is None else since)
    return {"items": records_of(errors, PredictionError)}


def _shown(rows: list[UsedByGroup], who: Asking, *, by_user: bool) -> list[UsedByGroup]:
    """Return the consumption that the caller may see; other users are summed up where consumption is private."""
    if shows_others(who):
        return rows
    own = who.caller.user.name if who.caller.user and by_user else None
    sums: dict[tuple[int, str], UsedByGroup] = {}
    for row in rows:
        group = row.group if row.group == own else OTHERS
        former = sums.get((row.begin, group), UsedByGroup(row.begin, group, 0, 0))
        sums[row.begin, group] = former._replace(used=former.used + row.used, asked=former.asked + row.asked)
    return list(sums.values())


administration = Router("administration")

#: Seconds of one request; the next one counts the jobs that are left.
SECONDS = 10.0


class AccountingUpdate(BaseModel):
    """Which ended jobs to count."""

    model_config = STRICT

    since: int | None = Field(None, ge=0, le=LARGEST_ID, description="Only jobs that ended since this date.")
    anew: bool = Field(default=False, description="Discard the accounting and count all ended jobs again.")


class CountJobs(NamedTuple):
    """The task to count jobs that have ended."""

    user: User
    since: int
    anew: bool
    seconds: float = SECONDS

    def run(self, desk: Desk) -> Outcome:
        """Count until all are counted or the time limit is reached.  Raises AccountingIsRunning, OtherWindowWidth."""
        rules, deadline = accounting.accounting_rules(desk.config), time.monotonic() + self.seconds
        batches = (
            accounting.recount(desk.database, rules, self.user)
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


@administration.post(
    "/v1/accounting", "accounting_count", "Update the accounting of ended jobs", record=AccountingUpdateResult
)
def accounting_count(request: Request, body: AccountingUpdate | None = None) -> Answer:
    """Add ended jobs to the accounting, as `oaraccounting` does. Administrators only.

    `complete` is false if the request ended before all jobs were counted; repeat it to continue.
    """
    body = body or AccountingUpdate(since=None)
    if body.anew and body.since is not None:
        raise BadRequest("`since` and `anew` are exclusive")
    who = asking(request)
    user = who.caller.administering()
    workers, seconds = service_of(request).workers, who.config.api_timeout
    outcome = workers.run_long(CountJobs(user, body.since or 0, body.anew), seconds)
    note(request, user)
    return answer_of(request, outcome)


@administration.delete("/v1/accounting", "accounting_purge", "Purge old accounting data")
def accounting_purge(
    request: Request,
    older_than: Annotated[
        int, Field(ge=0, le=2**40, description="Minimum age of the deleted windows: seconds since their end.")
    ],
) -> AccountingPurgeResult:
    """Delete older accounting windows, as `oaraccounting --delete-before` does. Administrators only."""
    with administering(request) as act:
        removed = accounting.delete_before(act.tx, act.user, older_than)
    return {"windows": removed}


class FairShareTerm(TypedDict):
    name: str
    used: float
    target: float
    weight: float
    karma: float


FairShareUser = TypedDict("FairShareUser", {"user": str, "project": str, "waiting": int, "karma": float, "by": str})


class FairShare(TypedDict):
    user: str
    project: str
    karma: float
    window: int
    terms: list[FairShareTerm]
    ahead: list[FairShareUser] | None
    step: int
    fades: list[float]


#: Steps (of a day at most) for which the fading of karma is computed.
STEPS = 7


@router.get("/v1/fairshare/{user}", "fairshare", "Get the fair share of a user")
def fairshare(
    request: Request,
    user: Annotated[str, Field(max_length=255, pattern=PRINTABLE, description="User name.")],
    project: Annotated[str, Field(max_length=255, pattern=PRINTABLE, description="Project name.")] = "default",
) -> FairShare:
    """Return the karma of a user in a project: for each term the consumption, its target and its weight.

    `ahead` lists users with waiting jobs and a smaller karma, smallest first; null if consumption is private. `fades`
    is the karma after each `step` of seconds if the user submits nothing and the other users continue as before.
    """
    who = asking(request)
    check_usage_shown(who, user)
    window = who.config.scheduler_fairsharing_window_size
    with who.database.snapshot() as tx:
        queues, since = [queue.name for queue in tx.queues.all()], tx.now - window
        rows, waiting = tx.rounds.consumption(queues, since, tx.now), tx.usage.waiting_by_share()
        ended = tx.usage.in_pieces(user, queues, since, _step(window), STEPS)  # what leaves the window next
        shares = read_shares(tx, who.config, rows, [(name, of) for name, of, _ in waiting])
    keys, sums = with_targets(settings_of(who.config).fairshare, who.config, shares), summed(rows, shares)
    share = share_of(user, project, sums, keys)
    ahead = users_ahead(waiting, (user, project), sums, keys)
    return {
        "user": user,
        "project": project,
        "karma": share.karma(keys) + 0.0,
        "window": window,
        "terms": [cast("FairShareTerm", {**term._asdict(), "karma": term.karma}) for term in share.terms(keys)],
        "ahead": records_of(ahead, FairShareUser) if shows_others(who) else None,
        "step": _step(window),
        "fades": _fades(sums, (summed(piece, shares) for piece in ended), (user, project), keys),
    }


def _step(window: int) -> int:
    return max(1, min(DAY, window // STEPS))


def _fades(
    sums: ConsumptionSums, ended: Iterable[ConsumptionSums], of: tuple[str, str], keys: snapshot.FairShare
) -> list[float]:
    """Return the karma after each piece of time, when what the user consumed in it no longer counts."""
    karmas = []
    for piece in ended:
        sums = _without(sums, piece)
        karmas.append(share_of(*of, sums, keys).karma(keys) + 0.0)
    return karmas


def _without(sums: ConsumptionSums, gone: ConsumptionSums) -> ConsumptionSums:
    """Subtract consumption that no longer counts."""

    def left(all_: Mapping[str, int], part: Mapping[str, int]) -> dict[str, int]:
        return {**all_, **{name: all_.get(name, 0) - seconds for name, seconds in part.items()}}

    return ConsumptionSums(
        sums.used - gone.used,
        sums.asked - gone.asked,
        left(sums.used_by_user, gone.used_by_user),
        left(sums.asked_by_user, gone.asked_by_user),
        left(sums.used_by_project, gone.used_by_project),
    )


def check_usage_shown(who: Asking, user: str) -> None:
    """Check that the caller may see the usage of a user.  Raises NotAllowed."""
    caller = who.caller.user
    if not shows_others(who) and not (caller and caller.name == user):
        raise NotAllowed("the usage of other users is private (API_ACCOUNTING_PRIVATE)")


def shows_others(who: Asking) -> bool:
    caller = who.caller.user
    return not who.config.api_accounting_private or bool(caller and caller.is_admin)
