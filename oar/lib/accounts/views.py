"""Projects as users see them."""

from typing import TYPE_CHECKING, NamedTuple

from oar.lib.accounts import project_changes
from oar.lib.accounts.project_changes import NoSuchProject
from oar.lib.accounts.records import Member, Project

if TYPE_CHECKING:
    from oar.lib.access.records import User
    from oar.lib.db.transaction import Transaction


class ShownProject(NamedTuple):
    """A project, and its members if the reader may see them."""

    project: Project
    members: list[Member] | None

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        return {
            **self.project._asdict(),
            "members": None if self.members is None else [_member(member) for member in self.members],
        }


def _member(member: Member) -> dict[str, object]:
    return {"user": member.entry, "role": member.role, "shares": member.shares}


def shown(tx: "Transaction", user: "User | None", name: str) -> ShownProject:
    """Return a project as a user sees it.  Raises NoSuchProject."""
    project = next((project for project in tx.projects.all() if project.name == name), None)
    if project is None:
        raise NoSuchProject(name)
    is_visible = user is not None and project_changes.may_see_members(tx, user, name)
    return ShownProject(project, tx.projects.members([name]) if is_visible else None)
