"""Records of projects and their members."""

from typing import NamedTuple

from oar.lib.accounts.states import MemberRole, ProjectState


class Project(NamedTuple):
    """A row of ``projects``."""

    name: str
    description: str = ""
    parent: str | None = None
    state: ProjectState = ProjectState.OPEN
    start_date: int = 0  #: it takes no jobs before; epoch seconds
    end_date: int = 0  #: it takes no jobs from then on; 0 = no end
    shares: int = 1  #: of what its parent has, in proportion to its siblings


class Member(NamedTuple):
    """A row of ``project_members``."""

    project: str
    entry: str  #: a user, or @NAME for a userset or a group of the server
    role: MemberRole = MemberRole.MEMBER
    shares: int = 1
