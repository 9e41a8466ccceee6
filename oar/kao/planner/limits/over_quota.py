"""Lower bounds of the start of jobs that quotas delay, computed once for jobs of similar size.

Counters only increase while a plan is made.  So a job that is at least as large and as long as another job starts no
earlier than that job.

See docs/design/planner.rst, "Two depths".
"""

from collections.abc import Hashable

from oar.kao.facts.snapshot import WaitingJob
from oar.kao.planner.limits.quota_usage import QuotaUsage

#: Resources and walltime, and a date before which no job starts that has as much.
_Bound = tuple[int, int, int]


class OverQuota:
    """The dates before which jobs cannot start because of quotas, if these dates are later than ``soon``."""

    def __init__(self, quotas: QuotaUsage, now: int, soon: int) -> None:
        self._quotas = quotas
        self._now = now
        self._soon = soon
        self._bounds: dict[Hashable, list[_Bound]] = {}  #: by what decides which rules bind a job

    def first_start(self, job: WaitingJob, resources: int, walltime: int) -> int:
        """Return a date before which the quotas let no job of this size or walltime, or larger, start."""
        known = self.known_start(job, resources, walltime)
        if known:
            return known
        date = self._quotas.first_start(job, self._now, resources, walltime)
        if date > self._soon:
            bounds = self._bounds.setdefault(_key(job), [])
            bounds[:] = [each for each in bounds if each[0] < resources or each[1] < walltime or each[2] > date]
            bounds.append((resources, walltime, date))
        return date

    def known_start(self, job: WaitingJob, resources: int, walltime: int) -> int:
        """Return the latest such date recorded for jobs that are not larger; return 0 if there is none."""
        bounds = self._bounds.get(_key(job), ()) if self._bounds else ()
        return max((date for least, shortest, date in bounds if least <= resources and shortest <= walltime), default=0)


def _key(job: WaitingJob) -> Hashable:
    return job.queue, job.project, job.types, job.user
