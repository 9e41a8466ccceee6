"""The placement of one job as a task: the job, the equal jobs after it, and everything that limits its placement.

Equal jobs next to each other in planning order are placed as a *wave*, with the same start in one step.  The next job
has the same earliest start as the first one if the remaining resources satisfy its request.  A monotone request that
failed at an earlier start also fails there with fewer resources.  So the jobs of a wave get the placements that they
would get one by one, and one search is sufficient.

See docs/design/planner.rst, "Waves".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from oar.kao.facts.job_types import ParsedTypes, has_plugin
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import FOREVER, Alternative, WaitingJob
from oar.kao.planner.limits.dependencies import StartWindow
from oar.kao.planner.resources.spaces import Space
from oar.lib.jobs.states import DependencyCondition, Reservation

#: A wave has no more jobs, so that a step of a round is short.
LARGEST_WAVE = 1000


#: What equal jobs have in common besides their alternatives, whether their placements depend on it or their counters.
_COMMON = attrgetter(
    "queue", "user", "project", "types", "dependencies", "array_id", "array_limit", "reservation", "promised"
)


class Upcoming:
    """The jobs from a given one on, in planning order."""

    __slots__ = ("_at", "_jobs", "_most")

    def __init__(self, jobs: Sequence[WaitingJob], at: int, most: int = LARGEST_WAVE) -> None:
        """``at``: the index of the first job.  ``most``: the maximum number of jobs in a wave."""
        self._jobs = jobs
        self._at = at
        self._most = min(most, LARGEST_WAVE)

    def begins_with(self, wave: Sequence[WaitingJob]) -> bool:
        count = len(wave)
        return count <= self._most and list(self._jobs[self._at : self._at + count]) == list(wave)

    def equal(self, types: ParsedTypes) -> Iterator[WaitingJob]:
        """Iterate over the jobs after the first one that are equal to it; ``types``: its types."""
        jobs, at = self._jobs, self._at
        if self._most < 2 or at + 1 >= len(jobs) or jobs[at + 1].array_id != jobs[at].array_id:
            return  # the usual case, checked first
        if not _may_lead(jobs[at], types):
            return
        common, (asked,) = _COMMON(jobs[at]), jobs[at].alternatives
        for index in range(at + 1, min(at + self._most, len(jobs))):
            job = jobs[index]
            if _COMMON(job) != common or not _is_same_request(job.alternatives, asked):
                return
            yield job


def _may_lead(job: WaitingJob, types: ParsedTypes) -> bool:
    """Return whether the next equal job loses exactly the resources of this one, and nothing else."""
    is_alone = types.container or types.sharing_key or types.shared_keys or types.tokens
    is_plain = job.reservation is Reservation.NONE and job.promised is None and len(job.alternatives) == 1
    return is_plain and not (is_alone or job.alternatives[0].cut_at or job.alternatives[0].memory or has_plugin(job))


def _is_same_request(alternatives: Sequence[Alternative], asked: Alternative) -> bool:
    if len(alternatives) != 1:
        return False
    (other,) = alternatives
    return other.walltime == asked.walltime and other.groups == asked.groups and other.memory == asked.memory


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
    """The progress of a search that was interrupted for more urgent work. Nothing is placed until it resumes."""

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
