"""The situation of a round: a snapshot, and the plan of the last round as stored in the database."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from oar.kao.facts.snapshot import Snapshot
from oar.kao.rounds.reading.filter_pools import Deferral
from oar.lib.accounts.budgets import BudgetNotice
from oar.lib.bus.messages import Mail
from oar.lib.jobs.records import Dependency, LaunchHold
from oar.lib.jobs.sql_waits import StoredReason
from oar.lib.jobs.states import JobState
from oar.lib.planning.sql_rounds import JobRow, MoldableRow
from oar.lib.reservations.records import AdvanceReservation

#: Returns the number of free tokens for those of some names that have a script; None = unknown.
TokenCounts = Callable[[Iterable[str]], Mapping[str, int | None]]


@dataclass(frozen=True, slots=True)
class Alterations:
    """The jobs that were altered since a date."""

    since: int = 0
    events: Mapping[int, int] = field(default_factory=dict)  #: job id -> id of the last event ALTER

    def later_in(self, later: "Alterations") -> set[int]:
        """Return the jobs that were altered between this and a later reading."""
        return {job_id for job_id, event in later.events.items() if self.events.get(job_id) != event}


@dataclass(frozen=True, slots=True)
class Situation:
    """The data that a round has read."""

    snapshot: Snapshot
    rows: Mapping[int, JobRow]  #: the live jobs that are not on hold, by id
    starts: Mapping[int, int]  #: stored predictions: alternative -> start; 0 -> date of the last round
    reasons: Mapping[int, StoredReason]  #: by job id
    held: Mapping[int, Sequence[int]]  #: alternative -> resource ids that its job holds
    on_hold: Mapping[int, int]  #: jobs on hold -> the date since when
    alterations: Alterations
    reservations: Mapping[int, AdvanceReservation] = field(default_factory=dict)  #: the live ones, by id
    reservations_need_repair: bool = False  #: rows that do not fit together would mislead a round
    mails: Sequence[Mail] = ()  #: for the administrator
    launch_holds: Sequence[LaunchHold] = ()
    launches_held: Mapping[int, LaunchHold] = field(default_factory=dict)  #: jobs that are not planned meanwhile
    deferrals: Sequence[Deferral] = ()  #: conditions that the round has put aside
    budget_notices: Sequence[BudgetNotice] = ()  #: budgets whose managers get a mail

    def in_state(self, state: JobState) -> list[JobRow]:
        return [row for row in self.rows.values() if row.state is state]


@dataclass(frozen=True, slots=True)
class HypotheticalJob:
    """A job that is planned as if it had been submitted."""

    row: JobRow
    types: tuple[str, ...]
    moldables: tuple[MoldableRow, ...]
    dependencies: tuple[Dependency, ...] = ()
