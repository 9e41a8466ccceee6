"""The placement of one job as a task: the job and everything that limits its placement."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import FOREVER, WaitingJob
from oar.kao.planner.limits.dependencies import StartWindow
from oar.kao.planner.placement.waves import Upcoming
from oar.kao.planner.resources.spaces import Space
from oar.lib.jobs.states import DependencyCondition


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """Placement rules of a job: settings of its queue, and whether it is a reservation."""

    dependency_condition: DependencyCondition = DependencyCondition.OK
    is_reservation: bool = False
    is_distant: bool = False  #: a reservation whose date is so far away that the present state of nodes means nothing
    has_quotas: bool = False
    not_before: int = 0  #: the job starts then or later
    is_now_only: bool = False  #: the job gets no placement that starts later (a queue without backfilling)
    depth: int = 0  #: the job starts now or has no placement: so many of its queue that wait have one, all before it


class SearchProgress(NamedTuple):
    """The progress of a search that was interrupted for more urgent work.

    Nothing is placed until it resumes.
    """

    results: Mapping[int, Placement | Reason]  #: of the alternatives that are done, by id
    start: int = 0  #: no start before is possible for the present alternative
    refusal: Reason | None = None  #: as ``PlacementTask.refusal``


#: Of a search that begins.
NO_PROGRESS = SearchProgress({})


@dataclass(slots=True)
class PlacementTask:
    """A job that is being placed, possibly with the equal jobs after it."""

    job: WaitingJob
    types: ParsedTypes
    rules: PlacementRules
    space: Space
    window: StartWindow
    upcoming: Upcoming  #: the job, and those behind it
    #: alternatives whose result may depend on the date of the round, so that the next round must search again
    date_dependent: set[int] = field(default_factory=set)
    #: the first start that was tried for a request whose groups compete; none before is possible
    possible_from: int = FOREVER
    found: "SearchResult | None" = field(default=None, init=False)  #: the result of the last search
    refusal: Reason | None = field(default=None, init=False)  #: the quota that has refused the present alternative last
    progress: SearchProgress = field(default=NO_PROGRESS, init=False)


class GiveWay(Exception):
    """A search was interrupted for more urgent work; it resumes with the same task."""

    def __init__(self, task: PlacementTask) -> None:
        super().__init__()
        self.task = task


class SearchResult(NamedTuple):
    """The result of a search, and the numbers of bookings before it; it is valid until a number changes."""

    placed: int  #: so many jobs had been placed, wherever
    occupants: int  #: so many had entered the space
    best: Placement | None
    refusal: Reason | None  #: without a placement: of the first alternative
