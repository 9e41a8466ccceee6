"""The overview of a user: his jobs, limits, place, consumption, efficiency, and what to change."""

from typing import Any, Literal, cast

from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.limits import LimitBudget, LimitEnd
from oar.api.routing import Router
from oar.api.service import Asking, asking, service_of
from oar.kao.rounds import user_overview
from oar.kao.rounds.user_overview import Groups
from oar.lib.jobs.states import JobState

router = Router("jobs")

#: Seconds for which the ended jobs of a user are returned again: they are thousands.
MAX_AGE = 30.0


class OverviewJob(TypedDict):
    id: int
    name: str | None
    queue: str
    project: str
    state: JobState


class OverviewRunningJob(OverviewJob):
    nodes: list[str]
    start: int | None
    walltime: int | None
    remaining: int | None


class OverviewWaitingJob(OverviewJob):
    scheduled_start: int | None
    why: str


class OverviewLimit(TypedDict):
    kind: Literal["quota", "waiting"]
    rule: str
    name: Literal["resources", "jobs", "hours"]
    used: float
    limit: float
    next_end: LimitEnd | None
    sentence: str


class OverviewPlace(TypedDict):
    project: str
    before: int
    others: int
    sentence: str


class OverviewProject(TypedDict):
    project: str
    hours: float


class JobGroupAdvice(TypedDict):
    code: str
    values: dict[str, Any]
    sentence: str


class JobGroup(TypedDict):
    user: str
    name: str | None
    jobs: int
    outcomes: dict[str, int]
    elapsed: int
    walltime: int | None
    cores: int
    core_seconds: int
    cpu_seconds: float | None
    cpu_efficiency: float | None
    memory_peak: int | None
    advice: list[JobGroupAdvice]


class OverviewJobAdvice(TypedDict):
    job_id: int
    trouble: str
    solution: str


class OverviewNumbers(TypedDict):
    running: int
    waiting: int


class UserOverview(TypedDict):
    user: str
    date: int
    numbers: OverviewNumbers
    running: list[OverviewRunningJob]
    waiting: list[OverviewWaitingJob]
    limits: list[OverviewLimit]
    budgets: list[LimitBudget]
    place: OverviewPlace | None
    month: int
    projects: list[OverviewProject]
    groups: list[JobGroup]
    groups_cut: bool
    job_advice: list[OverviewJobAdvice]
    changes: list[str]


@router.get("/v1/me", "me", "Get the overview of the caller")
def get_me(request: Request) -> UserOverview:
    """Return the jobs, limits, consumption and efficiency of the caller, as `oarstat --me`.

    `numbers` counts all running and waiting jobs, the lists have the first 50. `projects` are the resource hours since
    `month`, as accounted so far. `groups` are the jobs that ended in the last 30 days, by name; `groups_cut` is true if
    only the newest ones were read. `place` counts the users with waiting jobs after the caller; it is null without fair
    share. A token needs the scope `ro` or `rw`.
    """
    return overview_record(request, asking(request))


def overview_record(request: Request, who: Asking) -> UserOverview:
    """Return the overview of the caller.  Raises Unidentified, NotAllowed for a token that reads no private data."""
    user = who.caller.reading_all()

    def read_groups() -> Groups:
        with who.database.snapshot() as tx:
            return user_overview.read_groups(tx, who.config, user.name)

    groups = service_of(request).periods.recent(("me", user.name), read_groups, MAX_AGE)
    with who.database.snapshot() as tx:
        return cast("UserOverview", user_overview.overview_of(tx, who.config, user, groups).record)
