"""Waves: equal jobs next to each other in planning order, placed with the same start in one step.

The next job has the same earliest start as the first one if the remaining resources satisfy its request.  A monotone
request that failed at an earlier start also fails there with fewer resources.  So the jobs of a wave get the placements
that they would get one by one, and one search is sufficient.

See docs/design/planner.rst, "Waves".
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter

from oar.kao.facts.job_types import ParsedTypes, has_plugin
from oar.kao.facts.snapshot import Alternative, WaitingJob
from oar.lib.jobs.states import Reservation

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
        """Return whether the first jobs are those of a wave."""
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
    """Return whether jobs equal to this one may be placed with it.

    That is so if the next job loses exactly the resources of this one, and nothing else.
    """
    is_alone = types.container or types.sharing_key or types.shared_keys or types.tokens
    is_plain = job.reservation is Reservation.NONE and job.promised is None and len(job.alternatives) == 1
    return is_plain and not (is_alone or job.alternatives[0].cut_at or has_plugin(job))


def _is_same_request(alternatives: Sequence[Alternative], asked: Alternative) -> bool:
    return (
        len(alternatives) == 1 and alternatives[0].walltime == asked.walltime and alternatives[0].groups == asked.groups
    )
