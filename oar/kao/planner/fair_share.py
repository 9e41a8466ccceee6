"""Fair share: the karma of a job, computed from the consumption and the targets of its user and its project.

See docs/scheduler.rst, "Fair share".
"""

from dataclasses import dataclass
from typing import NamedTuple

from oar.kao.facts.snapshot import ConsumptionSums, FairShare


class Term(NamedTuple):
    """A term of the karma of a user: the share that was used, its target and its weight."""

    name: str
    used: float
    target: float
    weight: float

    @property
    def karma(self) -> float:
        """What the term adds to the karma; of a weight of 0 without the sign."""
        return self.weight * (self.used - self.target) + 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """The consumption of a project and a user, and their targets, as fractions of the total consumption."""

    project_used: float
    project_target: float
    user_used: float
    user_target: float
    user_asked: float
    asked_target: float

    def karma(self, keys: FairShare) -> float:
        """Return how far the consumption exceeds the targets; the job with the smallest karma is planned first."""
        return (
            keys.coefficient_project * (self.project_used - self.project_target)
            + keys.coefficient_user * (self.user_used - self.user_target)
            + keys.coefficient_asked * (self.user_asked - self.asked_target)
        )

    def terms(self, keys: FairShare) -> list[Term]:
        """Return the terms whose sum is the karma."""
        return [
            Term("project", self.project_used, self.project_target, keys.coefficient_project),
            Term("user", self.user_used, self.user_target, keys.coefficient_user),
            Term("asked", self.user_asked, self.asked_target, keys.coefficient_asked),
        ]


def share_of(user: str, project: str, consumption: ConsumptionSums, keys: FairShare) -> Share:
    used, asked = consumption.used or 1, consumption.asked or 1
    target = keys.user_targets.get(user, 0.0) / 100
    return Share(
        consumption.used_by_project.get(project, 0) / used,
        keys.project_targets.get(project, 0.0) / 100,
        consumption.used_by_user.get(user, 0) / used,
        target,
        consumption.asked_by_user.get(user, 0) / asked,
        target,
    )
