"""States of projects and roles of their members."""

from enum import StrEnum


class ProjectState(StrEnum):
    """State of a project, ``projects.state``."""

    OPEN = "open"
    CLOSED = "closed"  #: it takes no new jobs, and its waiting jobs do not start


class MemberRole(StrEnum):
    """Role of a member, ``project_members.role``."""

    MEMBER = "member"
    MANAGER = "manager"  #: may add and remove members of the project and of its sub-projects
