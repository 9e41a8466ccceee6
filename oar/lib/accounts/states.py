"""States of projects, roles of their members, and what happens when a budget is used up."""

from enum import StrEnum


class ProjectState(StrEnum):
    """State of a project, ``projects.state``."""

    OPEN = "open"
    CLOSED = "closed"  #: it takes no new jobs, and its waiting jobs do not start


class MemberRole(StrEnum):
    """Role of a member, ``project_members.role``."""

    MEMBER = "member"
    MANAGER = "manager"  #: may add and remove members of the project and of its sub-projects


class OnExhaustion(StrEnum):
    """What happens to a new job whose project has used up its budget, ``project_budgets.on_exhaustion``."""

    REFUSE = "refuse"  #: it is refused
    WAIT = "wait"  #: it waits until the period ends
    BESTEFFORT = "besteffort"  #: it becomes a besteffort job
