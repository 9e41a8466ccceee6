"""Projects as users see them."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.accounts import project_changes
from oar.lib.accounts.budgets import HOUR, in_force, read_uses
from oar.lib.accounts.project_changes import NoSuchProject
from oar.lib.accounts.records import Budget, Member, Project
from oar.lib.accounts.shares import read_shares, with_sub_projects
from oar.lib.jobs.states import ConsumptionType, ProjectMode

if TYPE_CHECKING:
    from oar.lib.access.records import User
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction


class ShareUse(NamedTuple):
    """What a project or a user should use of the whole, and what it used in the window of fair share."""

    target: float
    used: int | None  #: resource seconds; None if the usage is private
    effective: float | None  #: part of the use of all


class ShownMember(NamedTuple):
    """A member and his fair share in the project."""

    member: Member
    fair_share: ShareUse | None  #: None with PROJECTS=free, and of usersets and groups


class ShownBudget(NamedTuple):
    """A budget in a present or later period, and what is used of it."""

    budget: Budget
    used: float | None = None  #: resource seconds; None if its period has not begun, or the usage is private
    counted: float | None = None  #: the same; with BUDGET_COUNTS=requests also what live and waiting jobs request
    exhausted_on: int | None = None  #: at the present rate; None if it lasts, or is used up

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        budget = self.budget
        return {
            "period_start": budget.start,
            "period_end": budget.end,
            "resource_hours": budget.hours,
            "on_exhaustion": budget.on_exhaustion,
            "used": self.used,
            "counted": self.counted,
            "left": None if self.counted is None else budget.hours * HOUR - self.counted,
            "exhausted_on": self.exhausted_on,
        }


class ShownProject(NamedTuple):
    """A project, its fair share and its budgets."""

    project: Project
    fair_share: ShareUse | None  #: None with PROJECTS=free
    budgets: Sequence[ShownBudget] = ()

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        return {
            **self.project._asdict(),
            "fair_share": self.fair_share and self.fair_share._asdict(),
            "budgets": [budget.record for budget in self.budgets],
        }


class ProjectDetails(NamedTuple):
    """A project, and its members if the reader may see them."""

    shown: ShownProject
    parent_target: float | None  #: of which the target is a part; None: of the whole
    members: list[ShownMember] | None

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        members = None if self.members is None else [_member(shown) for shown in self.members]
        return {**self.shown.record, "members": members}


def _member(shown: ShownMember) -> dict[str, object]:
    member, share = shown
    return {
        "user": member.entry,
        "role": member.role,
        "shares": member.shares,
        "fair_share": share and share._asdict(),
    }


def list_projects(tx: "Transaction", config: "Config", *, shows_usage: bool = True) -> list[ShownProject]:
    """Return all projects by name; ``shows_usage``: also what they used."""
    use, budgets = _Use(tx, config, shows_usage=shows_usage), show_budgets(tx, config, shows_usage=shows_usage)
    return [
        ShownProject(project, use.of_project(project.name), budgets.get(project.name, ()))
        for project in tx.projects.all()
    ]


def show_project(
    tx: "Transaction", config: "Config", user: "User | None", name: str, *, shows_usage: bool = True
) -> ProjectDetails:
    """Return a project as a user sees it.  Raises NoSuchProject.

    ``shows_usage``: also what the project and all its members used; otherwise only what the user used.  Those who may
    see the members may see what is used of budgets.
    """
    project = next((project for project in tx.projects.all() if project.name == name), None)
    if project is None:
        raise NoSuchProject(name)
    use = _Use(tx, config, user, shows_usage=shows_usage)
    is_visible = user is not None and project_changes.may_see_members(tx, user, name)
    members = [ShownMember(member, use.of_member(member)) for member in tx.projects.members([name])]
    above = use.of_project(project.parent) if project.parent else None
    budgets = show_budgets(tx, config, [name], shows_usage=shows_usage or is_visible)
    shown = ShownProject(project, use.of_project(name), budgets.get(name, ()))
    return ProjectDetails(shown, above and above.target, members if is_visible else None)


def show_budgets(
    tx: "Transaction", config: "Config", names: Collection[str] | None = None, *, shows_usage: bool
) -> dict[str, list[ShownBudget]]:
    """Return the present and later budgets of some or all projects; ``shows_usage``: also what is used of them."""
    present = [row.budget for row in tx.budgets.present() if names is None or row.budget.project in names]
    current = in_force(present, tx.now) if shows_usage else []
    uses = {use.budget: use for use in read_uses(tx, config, current)}
    shown: dict[str, list[ShownBudget]] = {}
    for budget in present:
        use = uses.get(budget)
        values = (use.used, use.counted, use.exhaustion_date(tx.now)) if use else ()
        shown.setdefault(budget.project, []).append(ShownBudget(budget, *values))
    return shown


class _Use:
    """The consumption in the window of fair share as far as the reader may see it, and the targets.

    With PROJECTS=free nothing is read, as there are no targets.
    """

    def __init__(self, tx: "Transaction", config: "Config", reader: "User | None" = None, *, shows_usage: bool) -> None:
        self._is_shared = config.projects is not ProjectMode.FREE
        self._reader, self._shows_usage = reader and reader.name, shows_usage
        self._targets: Mapping[str, float] = {}
        self._member_targets: Mapping[tuple[str, str], float] = {}
        self._by_member, self._by_project, self._total = dict[tuple[str, str], int](), dict[str, int](), 1
        if self._is_shared:
            self._read(tx, config)

    def _read(self, tx: "Transaction", config: "Config") -> None:
        since = tx.now - config.scheduler_fairsharing_window_size
        rows = tx.rounds.consumption([queue.name for queue in tx.queues.all()], since, tx.now)
        waiting = [(user, project) for user, project, _ in tx.usage.waiting_by_share()]
        shares = read_shares(tx, config, rows, waiting)
        self._targets, self._member_targets = shares.project_targets(config), shares.targets.members
        by_project: dict[str, int] = {}
        for _, user, project, kind, seconds in rows:
            if kind == ConsumptionType.USED:
                self._by_member[project, user] = self._by_member.get((project, user), 0) + seconds
                by_project[project] = by_project.get(project, 0) + seconds
        self._total = sum(by_project.values()) or 1
        self._by_project = with_sub_projects(by_project, shares.projects)

    def of_project(self, name: str) -> ShareUse | None:
        used = self._by_project.get(name, 0) if self._shows_usage else None
        return self._share(self._targets.get(name, 0.0) / 100, used)

    def of_member(self, member: Member) -> ShareUse | None:
        if member.entry.startswith("@"):
            return None
        key = member.project, member.entry
        used = self._by_member.get(key, 0) if self._shows_usage or member.entry == self._reader else None
        return self._share(self._member_targets.get(key, 0.0), used)

    def _share(self, target: float, used: int | None) -> ShareUse | None:
        effective = None if used is None else used / self._total
        return ShareUse(target, used, effective) if self._is_shared else None
