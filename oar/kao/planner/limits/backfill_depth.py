"""The depth of backfilling: the number of waiting jobs of a queue that get a planned start.

The jobs behind them start now, if they delay none of these jobs, or have no placement.  The jobs in each container are
counted separately, and so are besteffort jobs, because they take no resources from the other jobs.

See docs/design/planner.rst, "Depth of backfilling".
"""

from enum import Enum, auto

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import Settings, WaitingJob
from oar.lib.jobs.reasons import ReasonCode

#: Jobs with these reasons wait for something of their own: no resources would let them start.
_OWN = frozenset({ReasonCode.POSTPONED, ReasonCode.DEPENDENCY, ReasonCode.ARRAY, ReasonCode.QUOTA})


class Standing(Enum):
    """The position of a job relative to the depth of its queue."""

    WITHIN = auto()  #: it gets a planned start
    BEHIND = auto()  #: it begins now or has no place
    DOUBTFUL = auto()  #: it is not known whether all passed jobs before it count


#: What is counted for itself: a queue, a container or none, and whether it is about besteffort jobs.
_Key = tuple[str, str, bool]


class BackfillDepth:
    """Counts the waiting jobs that have a planned start."""

    def __init__(self, settings: Settings, now: int) -> None:
        self.is_used = bool(settings.backfill_depths)  #: whether any queue has one
        self._settings = settings
        self._now = now
        self._counted: dict[_Key, set[int]] = {}
        self._doubtful: dict[_Key, set[int]] = {}  #: passed jobs of which it is not known whether they count

    def of(self, queue: str) -> int:
        """Return the depth of a queue; 0 = all its jobs have a planned start."""
        return self._settings.backfill_depth(queue) if self.is_used else 0

    def standing(self, job: WaitingJob, types: ParsedTypes) -> Standing:
        """Return the position of a job at its turn."""
        depth = self.of(job.queue)
        if not depth:
            return Standing.WITHIN
        key = _key(job, types)
        counted, doubtful = self._counted.get(key, set()), self._doubtful.get(key, set())
        if job.id in counted or len(counted | doubtful - {job.id}) < depth:
            return Standing.WITHIN
        return Standing.BEHIND if len(counted) >= depth else Standing.DOUBTFUL

    def note(self, job: WaitingJob, types: ParsedTypes, placement: Placement | None, reason: Reason | None) -> None:
        """Record the decision on a job: a job that waits for resources and has a placement is counted."""
        if not self.of(job.queue):
            return
        self._doubtful.get(_key(job, types), set()).discard(job.id)
        if placement and placement.start > self._now and not (reason and reason.code in _OWN):
            self._counted.setdefault(_key(job, types), set()).add(job.id)

    def note_passed(self, job: WaitingJob, types: ParsedTypes, *, is_sure: bool) -> None:
        """Record a job that was passed over; ``is_sure``: a full plan gives it a placement, so it counts."""
        jobs = self._counted if is_sure else self._doubtful
        jobs.setdefault(_key(job, types), set()).add(job.id)


def _key(job: WaitingJob, types: ParsedTypes) -> _Key:
    return job.queue, types.inner, types.is_besteffort
