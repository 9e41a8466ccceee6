"""Fair share: the karma of a job, computed from the consumption and the targets of its user and its project.

See docs/scheduler.rst, "Fair share".
"""

from collections.abc import Iterable
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


class UserAhead(NamedTuple):
    """A user with waiting jobs and a smaller karma."""

    user: str
    project: str
    waiting: int  #: jobs
    karma: float
    by: str  #: name of the term by which he is the farthest ahead


#: At most so many users ahead are returned.
MAX_AHEAD = 20


def users_ahead(
    waiting: Iterable[tuple[str, str, int]], of: tuple[str, str], consumption: ConsumptionSums, keys: FairShare
) -> list[UserAhead]:
    """Return the users whose waiting jobs come before those of a user in a project, the smallest karma first.

    ``waiting``: users, their projects, and numbers of waiting jobs.
    """
    own = share_of(*of, consumption, keys)
    users = []
    for user, project, jobs in waiting:
        share = share_of(user, project, consumption, keys)
        if share.karma(keys) < own.karma(keys) and (user, project) != of:
            users.append(UserAhead(user, project, jobs, share.karma(keys) + 0.0, _farthest(share, own, keys)))
    return sorted(users, key=lambda ahead: (ahead.karma, ahead.user, ahead.project))[:MAX_AHEAD]


def _farthest(share: Share, own: Share, keys: FairShare) -> str:
    """Return the name of the term by which a share is the farthest below another one."""
    pairs = zip(share.terms(keys), own.terms(keys), strict=True)
    return max((other.karma - this.karma, this.name) for this, other in pairs)[1]
