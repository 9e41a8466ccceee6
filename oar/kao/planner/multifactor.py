"""The order MULTIFACTOR: the priority of a job is a weighted sum of its age, size, work, queue, karma and types.

See docs/scheduler.rst, "Several factors".
"""

from dataclasses import dataclass

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.snapshot import WaitingJob, Weights


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of a job's priority that do not come from its types or its queue."""

    resources: int
    walltime: int  #: seconds
    all_resources: int  #: on the whole machine
    age: int  #: seconds since submission
    karma: float = 0.0


def priority(job: WaitingJob, types: ParsedTypes, factors: Factors, weights: Weights) -> float:
    """Return the priority of a job; the job with the largest value is planned first."""
    small_work = 1 / max(1, factors.resources * factors.walltime)
    small_size = 1 - factors.resources / max(1, factors.all_resources)
    return (
        weights.age_weight * min(1.0, weights.age_coef * factors.age)
        + weights.queue_weight * weights.queue_coefs.get(job.queue, 0.0)
        + weights.work_weight * (1 - small_work if weights.work_mode else small_work)
        + weights.size_weight * (1 - small_size if weights.size_mode else small_size)
        + weights.karma_weight / (1 + max(factors.karma, -0.9))
        + weights.qos_weight * types.qos
        - weights.nice_weight * types.nice
    )
