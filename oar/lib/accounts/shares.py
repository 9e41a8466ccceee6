"""Targets of fair share from the shares of projects and members.

The whole is divided from the top: the sub-projects and the users of a project divide its part in proportion to their
shares.  See docs/scheduler.rst, "Targets from projects".
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.accounts.records import Member, Project
from oar.lib.accounts.states import MemberRole
from oar.lib.jobs.states import ProjectMode

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction

#: Shares of a user with jobs whom no entry of the project names, and no group lets in.
_UNNAMED_SHARES = 1

#: A user and a project in which he used resources, or in which jobs of his wait.
Active = tuple[str, str]


#: A row of consumption: queue, user, project, USED or ASKED, resource seconds.
Row = tuple[str, str, str, str, int]


class Targets(NamedTuple):
    """Parts of the whole, which is 1."""

    projects: Mapping[str, float]
    members: Mapping[tuple[str, str], float]  #: by project and user

    def of_users(self) -> dict[str, float]:
        """Return the part of each user in all projects together."""
        sums: dict[str, float] = {}
        for (_, user), part in self.members.items():
            sums[user] = sums.get(user, 0.0) + part
        return sums


class SharedProjects(NamedTuple):
    """The projects whose shares decide about fair share; with PROJECTS=free there are none."""

    projects: Sequence[Project] = ()
    targets: Targets = Targets({}, {})

    def project_targets(self, config: "Config") -> Mapping[str, float]:
        """Return the target of each project in percent; targets that oar.conf sets win."""
        key = "scheduler_fairsharing_project_targets"
        return self._percent(self.targets.projects, config, key)

    def user_targets(self, config: "Config") -> Mapping[str, float]:
        """Return the target of each user in percent; targets that oar.conf sets win."""
        key = "scheduler_fairsharing_user_targets"
        return self._percent(self.targets.of_users(), config, key)

    def _percent(self, parts: Mapping[str, float], config: "Config", key: str) -> Mapping[str, float]:
        given: Mapping[str, float] = getattr(config, key)
        if not self.projects:
            return given
        is_default = given == getattr(type(config)(), key)
        return {**{name: 100 * part for name, part in parts.items()}, **({} if is_default else given)}


def read_shares(tx: "Transaction", config: "Config", rows: Iterable[Row], waiting: Iterable[Active]) -> SharedProjects:
    """Return the projects and their targets.

    ``rows``: the consumption; ``waiting``: users with waiting jobs, and their projects.
    """
    if config.projects is ProjectMode.FREE:
        return SharedProjects()
    projects, closed = tx.projects.all(), frozenset(tx.projects.closed())
    active = {*waiting, *((user, project) for _, user, project, _, _ in rows)}
    present = [project for project in projects if project.name not in closed]
    return SharedProjects(projects, targets_of(present, tx.projects.members(), active))


def targets_of(projects: Iterable[Project], members: Iterable[Member], active: Collection[Active]) -> Targets:
    """Return the targets; ``projects``: those that take jobs."""
    takers = _takers(members, active)
    children: dict[str | None, list[Project]] = {}
    for project in projects:
        children.setdefault(project.parent, []).append(project)
    parts: dict[str, float] = {}
    by_member: dict[tuple[str, str], float] = {}
    unread: list[tuple[str | None, float]] = [(None, 1.0)]
    while unread:
        parent, part = unread.pop()
        below = children.get(parent, [])
        own = takers.get(parent, {}) if parent is not None else {}
        total = sum(project.shares for project in below) + sum(own.values())
        for project in below:
            parts[project.name] = part * project.shares / total if total else 0.0
            unread.append((project.name, parts[project.name]))
        if parent is not None and total:
            by_member |= {(parent, user): part * shares / total for user, shares in own.items()}
    return Targets(parts, by_member)


def _takers(members: Iterable[Member], active: Collection[Active]) -> dict[str, dict[str, int]]:
    """Return the shares of the users who take part, by project: members, and all users with jobs there.

    Managers take part if they have jobs.  A user who is a member through a userset or a group has the shares of that
    entry.
    """
    takers: dict[str, dict[str, int]] = {}
    named: dict[tuple[str, str], int] = {}
    groups: dict[str, int] = {}
    for member in members:
        if member.entry.startswith("@"):
            groups[member.project] = max(member.shares, groups.get(member.project, 0))
            continue
        named[member.project, member.entry] = member.shares
        if member.role is MemberRole.MEMBER:
            takers.setdefault(member.project, {})[member.entry] = member.shares
    for user, project in active:
        shares = named.get((project, user), groups.get(project, _UNNAMED_SHARES))
        takers.setdefault(project, {})[user] = shares
    return takers


def with_sub_projects(used: Mapping[str, int], projects: Iterable[Project]) -> dict[str, int]:
    """Return the consumption by project, in which that of a project contains that of the projects below it."""
    parents = {project.name: project.parent for project in projects}
    sums: dict[str, int] = {}
    for name, seconds in used.items():
        above: set[str] = set()
        project: str | None = name
        while project is not None and project not in above:
            sums[project] = sums.get(project, 0) + seconds
            above.add(project)
            project = parents.get(project)
    return sums
