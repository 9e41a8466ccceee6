"""Chains of passed jobs: the earliest start of a passed job that requires passed jobs, without a search.

See docs/design/planner.rst, "Two depths".
"""

from collections.abc import Mapping, Sequence

from oar.kao.facts.snapshot import WaitingJob
from oar.kao.planner.limits.dependencies import Dependencies, RequiredLifetime
from oar.kao.planner.passed_jobs import Turn
from oar.lib.jobs.records import Dependency


class PassedChains:
    """The passed jobs that require other passed jobs."""

    def __init__(self, turns: Mapping[int, Turn], dependencies: Dependencies, now: int) -> None:
        """``turns``: the passed jobs by id; the mapping changes during the pass."""
        self._turns = turns
        self._dependencies = dependencies
        self._now = now

    def bound(self, turn: Turn) -> None:
        """Raise the earliest start of a job to the first date that the passed jobs it requires allow."""
        for required, dependency in self._requirements(turn.job):
            begin = max(self._now, required.until)
            lifetime = RequiredLifetime(begin, begin + _shortest_walltime(required.job))
            date = self._dependencies.earliest(dependency, turn.rules.dependency_condition, lifetime)
            turn.until = max(turn.until, date)

    def up_from(self, turn: Turn) -> Sequence[Turn]:
        """Return a job, then a passed job that it requires, and so on to the first job of the chain.

        A cyclic chain is returned once around.
        """
        chain = {turn.job.id: turn}
        while requirements := self._requirements(turn.job):
            turn = requirements[0][0]
            if turn.job.id in chain:
                break
            chain[turn.job.id] = turn
        return list(chain.values())

    def reach(self, job: WaitingJob) -> int:
        """Return the resources by which a job is connected with the passed jobs that it requires."""
        reach = 0
        for required, _ in self._requirements(job):
            reach |= required.reach
        return reach

    def _requirements(self, job: WaitingJob) -> list[tuple[Turn, Dependency]]:
        turns = self._turns
        return [(turns[each.required], each) for each in job.dependencies if each.required in turns]


def may_precede_required(job: WaitingJob) -> bool:
    """Return whether a dependency lets a job start before the job that it requires."""
    return any("-" in dependency.min_shift for dependency in job.dependencies)


def _shortest_walltime(job: WaitingJob) -> int:
    """Return the minimum duration of a job; it is 1 for an alternative whose walltime may be cut."""
    return min((1 if each.cut_at else each.walltime for each in job.alternatives), default=0)
