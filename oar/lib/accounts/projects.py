"""The check of a job's project, for all ways in which a project can be chosen (``PROJECTS``).

Admission calls it before the rules for the user's choice, and after them for the choice of the rules.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from oar.lib.accounts.states import ProjectState
from oar.lib.base.errors import BadRequest
from oar.lib.base.texts import enumerated
from oar.lib.base.times import format_date
from oar.lib.jobs.states import ProjectMode

if TYPE_CHECKING:
    from oar.lib.access.records import User
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction


class ProjectRefused(BadRequest):
    """The job may not have this project."""


def choose(tx: "Transaction", config: "Config", user: str, project: str) -> str:
    """Return the project of a user's job; ``project``: the requested one, '' = none.  Raises ProjectRefused.

    Without a request, it is the user's default, with PROJECTS=members else his only project, else that of the site.
    """
    if config.projects is ProjectMode.FREE:
        return project
    if config.projects is ProjectMode.KNOWN:
        chosen = project or tx.projects.default_of(user) or config.project
        check_open(tx, config, chosen)
        return chosen
    entries = entries_of(tx, user)
    chosen = project or tx.projects.default_of(user) or _only_project(tx, user, entries)
    usable = tx.projects.usable(entries)
    if chosen not in usable:
        raise ProjectRefused(f'{user} may not use the project "{chosen}". {_choices(usable)}')
    check_open(tx, config, chosen)
    return chosen


def check_open(tx: "Transaction", config: "Config", project: str) -> None:
    """Raise ProjectRefused if a project does not exist, or it or a project above it takes no jobs now."""
    if config.projects is ProjectMode.FREE:
        return
    is_open = tx.projects.is_open(project)
    if is_open is None:
        raise ProjectRefused(f'the project "{project}" does not exist. List the projects: oarproject --list')
    if not is_open:
        raise ProjectRefused(f"{_closure(tx, project)}. Choose another one: oarproject --list")


def _closure(tx: "Transaction", name: str) -> str:
    """Return why a project takes no jobs now; a project above it may be the cause."""
    lineage = tx.projects.lineage(name)
    if any(project.state is ProjectState.CLOSED for project in lineage):
        return f'the project "{name}" is closed'
    for project in lineage:
        where = f'the project "{project.name}"' if project.name == name else f'"{project.name}", above "{name}",'
        if project.start_date > tx.now:
            return f"{where} takes jobs from {format_date(project.start_date)} on"
        if 0 < project.end_date <= tx.now:
            return f"{where} took jobs until {format_date(project.end_date)}"
    return f'the project "{name}" is closed'


def may_use(tx: "Transaction", config: "Config", user: str, project: str) -> bool:
    """Return whether a user may choose a project."""
    return config.projects is not ProjectMode.MEMBERS or project in tx.projects.usable(entries_of(tx, user))


def controlled_by(tx: "Transaction", config: "Config", user: "User | None") -> frozenset[str]:
    """Return the projects whose jobs a user controls as a manager (``PROJECT_MANAGERS_CONTROL_JOBS``).

    Names are compared as they are: jobs of a project that is not declared have no manager.
    """
    if not config.project_managers_control_jobs or user is None or user.is_admin:
        return frozenset()
    return frozenset(tx.projects.managed(entries_of(tx, user.name)))


def entries_of(tx: "Transaction", user: str) -> list[str]:
    """Return the entries of projects that stand for a user: the login name, and @NAME of usersets and groups."""
    listed = tx.projects.listed_groups()
    if not listed:
        return [user]
    from oar.lib.reservations.permissions import allows, visitor_of
    from oar.lib.reservations.records import AccessEntry

    visitor, usersets = visitor_of(user), tx.access.userset_entries([entry[1:] for entry in listed])
    return [user, *(entry for entry in listed if allows([AccessEntry(entry, denied=False)], visitor, usersets))]


def ancestors(parents: Mapping[str, str | None], name: str) -> list[str]:
    """Return a project and the projects above it, from the bottom to the top; ``parents``: by name of the project."""
    above: list[str] = []
    project: str | None = name
    while project is not None and project not in above:
        above.append(project)
        project = parents.get(project)
    return above


def _only_project(tx: "Transaction", user: str, entries: list[str]) -> str:
    own = tx.projects.of_entries(entries)
    if len(own) != 1:
        hint = "Name one (--project), or set a default: oarproject --default NAME."
        raise ProjectRefused(f"the job has no project, and {user} has no default. {hint} {_choices(own)}")
    return own[0]


def _choices(projects: list[str]) -> str:
    return f"Projects: {enumerated(projects)}" if projects else "You have none: ask an administrator."
