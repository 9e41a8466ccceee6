"""Limits of a user: quotas, limits on waiting jobs, fair share, the priority of waiting jobs."""

from typing import Annotated, Literal, cast

from pydantic import Field
from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.accounting import FairShareTerm, FairShareUser, check_usage_shown, shows_others
from oar.api.parameters import PRINTABLE
from oar.api.projects import ProjectBudget
from oar.api.routing import Router
from oar.api.service import asking
from oar.kao.rounds import user_limits

router = Router("jobs")


class LimitMeasure(TypedDict):
    name: Literal["resources", "jobs", "hours"]
    used: float
    limit: float


class LimitEnd(TypedDict):
    job_id: int
    date: int


class LimitRule(TypedDict):
    kind: Literal["quota", "waiting"]
    rule: str
    queue: str | None
    project: str | None
    type: str | None
    user: str | None
    measures: list[LimitMeasure]
    next_end: LimitEnd | None


class LimitFairShare(TypedDict):
    project: str
    karma: float
    place: int
    users: int
    terms: list[FairShareTerm]
    ahead: list[FairShareUser] | None


class LimitJob(TypedDict):
    job_id: int
    queue: str
    project: str
    order: str
    karma: float | None
    priority: float | None


class LimitBudget(ProjectBudget):
    project: str


class Limits(TypedDict):
    user: str
    date: int
    projects: list[str]
    default_project: str | None
    rules: list[LimitRule]
    budgets: list[LimitBudget]
    fair_share: list[LimitFairShare]
    jobs: list[LimitJob]


UserName = Annotated[str | None, Field(max_length=255, pattern=PRINTABLE, description="User; default: the caller.")]


@router.get("/v1/limits", "limits", "Get the limits of a user")
def get_limits(request: Request, user: UserName = None) -> Limits:
    """Return the rules that limit a user, his fair share and the priority of his waiting jobs, as `oarstat --limits`.

    Each rule counts the jobs of its `queue`, `project`, `type` and `user`; null stands for all. `next_end` is the
    counted job whose walltime ends first. `place` is the user's place among the `users` with waiting jobs; `ahead` has
    the users with a smaller karma, null if consumption is private. Projects in which the user has no jobs are shown to
    the user and to administrators only. With PROJECTS=members, `projects` are those that he may choose. `budgets` are
    those of his projects and of the projects above them.
    """
    who = asking(request)
    name = who.caller.identified().name if user is None else user
    check_usage_shown(who, name)
    with who.database.snapshot() as tx:
        user_limits.check_exists(tx, name, who.caller.user)
        limits = user_limits.limits_of(tx, who.config, name, who.caller.user, shows_others=shows_others(who))
        return cast("Limits", limits.record)
