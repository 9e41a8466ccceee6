"""Projects: lists, one project, and the changes that oarproject makes."""

from http import HTTPStatus
from typing import Annotated, Literal, cast

from pydantic import BaseModel, Field
from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.accounting import shows_others
from oar.api.parameters import PRINTABLE, STRICT, Text
from oar.api.records import NamedResult
from oar.api.responses import Answer, created
from oar.api.routing import Router
from oar.api.service import asking, changing
from oar.lib.accounts import project_changes, records, views
from oar.lib.accounts.states import MemberRole, OnExhaustion, ProjectState
from oar.lib.base.errors import BadRequest

router = Router("administration")


class ProjectShare(TypedDict):
    target: float
    used: int | None
    effective: float | None


class ProjectBudget(TypedDict):
    period_start: int
    period_end: int
    resource_hours: float
    on_exhaustion: Literal["refuse", "wait", "besteffort"]
    used: float | None
    counted: float | None
    left: float | None
    exhausted_on: int | None


class Project(TypedDict):
    name: str
    description: str
    parent: str | None
    state: Literal["open", "closed"]
    start_date: int
    end_date: int
    shares: int
    fair_share: ProjectShare | None
    budgets: list[ProjectBudget]


class ProjectMember(TypedDict):
    user: str
    role: Literal["member", "manager"]
    shares: int
    fair_share: ProjectShare | None


class ProjectDetails(Project):
    members: list[ProjectMember] | None


ProjectPage = TypedDict("ProjectPage", {"items": list[Project]})

Name = Annotated[str, Field(max_length=255, pattern=PRINTABLE, description="Project name.")]
Entry = Annotated[str, Field(max_length=255, pattern=PRINTABLE, description="User, `@userset` or `@group`.")]
PeriodStart = Annotated[int, Field(ge=0, lt=records.NO_END, description="Start of the period; epoch seconds.")]
Date = Annotated[int, Field(ge=0, le=project_changes.LATEST_DATE)]
Shares = Annotated[int, Field(ge=0, le=project_changes.LARGEST_SHARES)]


class NewProject(BaseModel):
    """A new project."""

    model_config = STRICT

    name: Text = Field(description="Name.")
    description: Text = Field("", description="Description.")
    parent: Text | None = Field(None, description="Project above it.")
    shares: Shares = Field(default=1, description="Shares for fair share among the projects of its parent.")
    start_date: Date = Field(default=0, description="It takes jobs from this Unix time on; 0: at once.")
    end_date: Date = Field(default=0, description="It takes no jobs from this Unix time on; 0: no end.")


class ProjectUpdate(BaseModel):
    """New values of a project. Fields that are not given are kept."""

    model_config = STRICT

    state: Literal["open", "closed"] | None = Field(None, description="`closed`: its waiting jobs do not start.")
    shares: Shares | None = Field(None, description="Shares for fair share.")
    description: Text | None = Field(None, description="Description.")
    start_date: Date | None = Field(None, description="It takes jobs from this Unix time on; 0: at once.")
    end_date: Date | None = Field(None, description="It takes no jobs from this Unix time on; 0: no end.")


class MemberUpdate(BaseModel):
    """Role and shares of a member."""

    model_config = STRICT

    role: Literal["member", "manager"] = Field(default="member", description="`manager`: may add and remove members.")
    shares: Shares = Field(default=1, description="Shares for fair share, among the members of the project.")


class BudgetUpdate(BaseModel):
    """The budget of a project in a period."""

    model_config = STRICT

    period_end: int = Field(gt=0, le=records.NO_END, description="End of the period, no part of it; epoch seconds.")
    resource_hours: float = Field(ge=0, le=project_changes.LARGEST_HOURS, description="Resource hours.")
    on_exhaustion: Literal["refuse", "wait", "besteffort"] = Field(
        default="refuse", description="What happens to new jobs when it is used up."
    )


class DefaultProject(BaseModel):
    """The default project of a user."""

    model_config = STRICT

    project: Text = Field(description="Project of the jobs for which the user names none; empty: remove the default.")


@router.get("/v1/projects", "projects_list", "List projects", exports=True)
def projects_list(request: Request) -> ProjectPage:
    """Return the projects by name.

    `fair_share` is null with `PROJECTS=free`: the parts of the whole that should be used (`target`) and were used
    (`effective`, `used` resource seconds), in the last `SCHEDULER_FAIRSHARING_WINDOW_SIZE` seconds. `used` and
    `effective` are null if consumption is private (`API_ACCOUNTING_PRIVATE`) and the caller is no administrator.

    `budgets` are those of present and later periods. `used`, `counted` and `left` are resource seconds, null before the
    period; with `BUDGET_COUNTS=requests`, requests of live and waiting jobs count, too. `exhausted_on` is the date on
    which the budget is used up at the present rate.
    """
    who = asking(request)
    with who.database.snapshot() as tx:
        shown = views.list_projects(tx, who.config, shows_usage=shows_others(who))
        return {"items": [cast("Project", project.record) for project in shown]}


@router.get("/v1/projects/{name}", "project", "Get a project")
def get_project(request: Request, name: Name) -> ProjectDetails:
    """Return a project. `members` is null unless the caller is a member or a manager of it, or an administrator.

    If consumption is private, `used` and `effective` have values only for the caller and for administrators; those of
    budgets also for members.
    """
    who = asking(request)
    with who.database.snapshot() as tx:
        shown = views.show_project(tx, who.config, who.caller.user, name, shows_usage=shows_others(who))
        return cast("ProjectDetails", shown.record)


@router.post(
    "/v1/projects",
    "project_create",
    "Create a project",
    status=HTTPStatus.CREATED,
    record=NamedResult,
    has_location=True,
)
def project_create(request: Request, body: NewProject) -> Answer:
    """Create a project, as `oarproject --create` does. Administrators only."""
    with changing(request) as act:
        project = records.Project(
            body.name,
            body.description,
            body.parent,
            start_date=body.start_date,
            end_date=body.end_date,
            shares=body.shares,
        )
        project_changes.create(act.tx, act.user, project)
    return created({"name": body.name, "done": "created", "warnings": act.warnings}, "projects", body.name)


@router.patch("/v1/projects/{name}", "project_change", "Update a project")
def project_change(request: Request, name: Name, body: ProjectUpdate) -> NamedResult:
    """Set shares, description and dates of a project, close or reopen it, as `oarproject` does. Administrators only."""
    if not body.model_fields_set:
        raise BadRequest("the request changes nothing: set state, shares, description, start_date or end_date")
    update = project_changes.ProjectUpdate(body.description, body.start_date, body.end_date)
    with changing(request) as act:
        if body.shares is not None:
            project_changes.set_shares(act.tx, act.user, name, body.shares)
        if update != project_changes.ProjectUpdate():
            project_changes.change(act.tx, act.user, name, update)
        if body.state is not None:
            project_changes.set_state(act.tx, act.user, name, ProjectState(body.state))
    return {"name": name, "done": "changed", "warnings": act.warnings}


@router.delete("/v1/projects/{name}", "project_delete", "Delete a project")
def project_delete(request: Request, name: Name) -> NamedResult:
    """Delete a project without sub-projects, jobs and accounting. Administrators only."""
    with changing(request) as act:
        project_changes.delete(act.tx, act.user, name)
    return {"name": name, "done": "deleted", "warnings": act.warnings}


@router.put("/v1/projects/{name}/members/{entry}", "project_add", "Add a member to a project")
def project_add(request: Request, name: Name, entry: Entry, body: MemberUpdate | None = None) -> NamedResult:
    """Add a member, or replace role and shares, which default to `member` and 1. Managers and administrators only."""
    body = body or MemberUpdate()
    with changing(request) as act:
        project_changes.add(act.tx, act.user, name, [entry], role=MemberRole(body.role), shares=body.shares)
        unknown = project_changes.unknown_entries(act.tx, [entry])
    warnings = [*act.warnings, *(f"there is no {each} on this machine: check the name" for each in unknown)]
    return {"name": name, "done": "added", "warnings": warnings}


@router.delete("/v1/projects/{name}/members/{entry}", "project_remove", "Remove a member from a project")
def project_remove(request: Request, name: Name, entry: Entry) -> NamedResult:
    """Remove a member, as `oarproject --remove` does. Managers and administrators only."""
    with changing(request) as act:
        project_changes.remove(act.tx, act.user, name, [entry])
    return {"name": name, "done": "removed", "warnings": act.warnings}


@router.put("/v1/projects/{name}/budgets/{start}", "project_budget", "Set the budget of a project in a period")
def project_budget(request: Request, name: Name, start: PeriodStart, body: BudgetUpdate) -> NamedResult:
    """Set a budget, or replace that with the same start. Administrators, and managers of a project above it only."""
    with changing(request) as act:
        mode = OnExhaustion(body.on_exhaustion)
        budget = records.Budget(name, start, body.period_end, body.resource_hours, mode)
        project_changes.set_budget(act.tx, act.config, act.user, budget)
    return {"name": name, "done": "set", "warnings": act.warnings}


@router.delete("/v1/projects/{name}/budgets/{start}", "project_budget_remove", "Remove the budget of a period")
def project_budget_remove(request: Request, name: Name, start: PeriodStart) -> NamedResult:
    """Remove the budget that begins at a date. Administrators, and managers of a project above it only."""
    with changing(request) as act:
        project_changes.remove_budget(act.tx, act.user, name, start)
    return {"name": name, "done": "removed", "warnings": act.warnings}


@router.put("/v1/users/{user}/project", "project_default", "Set the default project of a user")
def project_default(request: Request, user: Entry, body: DefaultProject) -> NamedResult:
    """Set a default project, as `oarproject --default` does. Only administrators set those of other users."""
    with changing(request) as act:
        project_changes.set_default(act.tx, act.config, act.user, body.project, user)
    return {"name": body.project, "done": "set", "warnings": act.warnings}
