"""The dependencies of a job and the jobs that depend on it, up to some steps."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.jobs.records import Dependency, Job

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Steps that are looked at in each direction.
STEPS = 3
#: Dependencies that are shown in each direction, at most.
MOST = 1000


class JobsAround(NamedTuple):
    """The jobs before and after a job in the dependency graph."""

    job_id: int
    jobs: tuple[Job, ...]  #: those that still exist, by id, the job itself among them
    dependencies: tuple[Dependency, ...]
    is_complete: bool  #: whether nothing was left out because there is too much of it

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        return {
            "dependencies": [
                {
                    "job": each.job_id,
                    "requires": each.required,
                    "condition": each.condition or None,
                    "min_shift": each.min_shift or None,
                    "max_shift": each.max_shift or None,
                }
                for each in self.dependencies
            ],
            "jobs": [{"id": job.id, "user": job.user, "name": job.name, "state": job.state} for job in self.jobs],
            "complete": self.is_complete,
        }


def jobs_around(tx: "Transaction", job_id: int) -> JobsAround:
    """Return the dependencies of a job and the jobs that depend on it, up to ``STEPS`` steps."""
    before = _followed(job_id, lambda ids: tx.new_jobs.dependencies_of(ids, MOST + 1), lambda each: each.required)
    behind = _followed(job_id, lambda ids: tx.new_jobs.dependencies_on(ids, MOST + 1), lambda each: each.job_id)
    found = tuple(sorted({*before[:MOST], *behind[:MOST]}))
    ids = {job_id, *(each.job_id for each in found), *(each.required for each in found)}
    jobs = tuple(sorted(tx.jobs.select(sorted(ids)), key=lambda job: job.id))
    return JobsAround(job_id, jobs, found, max(len(before), len(behind)) <= MOST)


def _followed(
    job_id: int, ask: Callable[[Collection[int]], Collection[Dependency]], end: Callable[[Dependency], int]
) -> list[Dependency]:
    """Return the dependencies in one direction; more than ``MOST`` results show that there are others."""
    found: list[Dependency] = []
    seen, reached = {job_id}, {job_id}
    for _ in range(STEPS):
        if not reached or len(found) > MOST:
            break
        step = ask(reached)
        found += step
        reached = {end(each) for each in step} - seen
        seen |= reached
    return found
