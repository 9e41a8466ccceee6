"""The accounted consumption of users and projects, in resource seconds."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.sql_accounting import Consumption


class ProjectConsumption(NamedTuple):
    """The consumption of a user in a project, in resource seconds."""

    project: str
    requested: int
    used: int
    karma: float | None


class UserConsumption(NamedTuple):
    """The consumption of a user, in resource seconds, with the start of the first and the end of the last window."""

    user: str
    first_window_start: int
    last_window_stop: int
    projects: tuple[ProjectConsumption, ...]

    @property
    def requested(self) -> int:
        """The requested consumption of all projects: resources times walltime."""
        return sum(project.requested for project in self.projects)

    @property
    def used(self) -> int:
        """The real consumption of all projects."""
        return sum(project.used for project in self.projects)

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        return {
            "first_window_start": self.first_window_start,
            "last_window_stop": self.last_window_stop,
            "asked": self.requested,
            "used": self.used,
            "projects": {
                project.project: {"asked": project.requested, "used": project.used, "karma": project.karma}
                for project in self.projects
            },
        }


def consumption_by_user(tx: "Transaction", start: int, stop: int, user: str | None = None) -> list[UserConsumption]:
    """Return the consumption in the windows that overlap ``[start, stop)``, sorted by user.

    ``user`` None: the consumption of all users, without karma.
    """
    by_user: dict[str, list[Consumption]] = defaultdict(list)
    for consumption in tx.accounting.between(start, stop, user):
        by_user[consumption.user].append(consumption)

    def karma(project: str) -> float | None:
        return tx.accounting.last_karma(user, project) if user is not None else None

    return [_usage(name, rows, karma) for name, rows in sorted(by_user.items())]


def _usage(user: str, rows: "Sequence[Consumption]", karma: Callable[[str], float | None]) -> UserConsumption:
    return UserConsumption(
        user,
        min(row.first_window_start for row in rows),
        max(row.last_window_stop for row in rows),
        tuple(ProjectConsumption(row.project, row.asked, row.used, karma(row.project)) for row in rows),
    )
