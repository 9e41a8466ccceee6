"""Records of projects, their members and their budgets."""

from typing import NamedTuple

from oar.lib.accounts.states import MemberRole, OnExhaustion, ProjectState
from oar.lib.base.times import format_date

#: End of a period that does not end.
NO_END = 2**31 - 1


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


class Budget(NamedTuple):
    """A row of ``project_budgets``: what a project and its sub-projects may use in a period."""

    project: str
    start: int  #: epoch seconds
    end: int  #: not part of the period
    hours: float  #: resource hours
    on_exhaustion: OnExhaustion = OnExhaustion.REFUSE

    def __str__(self) -> str:
        """Return the hours and the period."""
        return f"of {self.hours:,.10g} resource hours {self.period}"

    @property
    def period(self) -> str:
        """The period as messages show it, in local time."""
        until = f"until {format_date(self.end)}" if self.end < NO_END else "without end"
        return f"from {format_date(self.start)} {until}" if self.start else until

    def is_within(self, other: "Budget") -> bool:
        """Return whether the period and the hours are part of those of another budget."""
        return other.start <= self.start and self.end <= other.end and self.hours <= other.hours

    def bounds(self, width: int) -> tuple[int, int]:
        """Return the start of the first window of accounting of the period, and that of the first one behind it.

        A period begins and ends at the nearest start of a window, so that each window belongs to one period.
        ``width``: of a window.
        """
        begin, end = ((date + width // 2) // width * width for date in (self.start, self.end))
        return begin, NO_END if self.end == NO_END else end

    def is_in_force(self, date: int) -> bool:
        """Return whether a date is in the period."""
        return self.start <= date < self.end
