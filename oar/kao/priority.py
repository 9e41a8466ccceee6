"""The order in which jobs are tried: policies of queues, first come, fair share (scheduling.md 3.1, 7.3, 11)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from oar.kao.model import Consumption, FairShare, Settings, WaitingJob, Weights
from oar.kao.traits import Traits


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """What ``queues.scheduler_policy`` means."""

    order: str  #: FIFO or FAIRSHARE; '' = JOB_PRIORITY
    quotas: str = ""  #: ASKED: if QUOTAS says so; ALWAYS; '' = never
    dependency_condition: str = ""  #: '' = DEPENDENCY_CONDITION
    is_backfilling: bool = True


_OLD = "oar_sched_gantt_with_timesharing"
_FIFO = QueuePolicy("FIFO")
_FAIR = QueuePolicy("FAIRSHARE")
_OWN = QueuePolicy("", "ASKED")

#: Names of the planner of this package.  Every other name is that of an external scheduler.
POLICIES: Mapping[str, QueuePolicy] = {
    _OLD: _FIFO,
    f"{_OLD}_and_placeholder": _FIFO,
    f"{_OLD}_and_fairsharing": _FAIR,
    f"{_OLD}_and_fairsharing_and_placeholder": _FAIR,
    f"{_OLD}_and_fairsharing_and_quotas": QueuePolicy("FAIRSHARE", "ALWAYS", "any"),
    "kamelot": _OWN,
    "default": _OWN,
    "": _OWN,
    "kamelot_fifo": QueuePolicy("FIFO", is_backfilling=False),
    "kamelot-fifo": QueuePolicy("FIFO", is_backfilling=False),
}


def policy_of(name: str) -> QueuePolicy | None:
    """Return what a policy name means; None for an external scheduler."""
    return POLICIES.get(name)


def order_of(policy: QueuePolicy, settings: Settings) -> str:
    """Return the order of a queue: an explicit JOB_PRIORITY wins over FIFO of old names, never over fair share."""
    if policy.order == "FAIRSHARE" or (policy.order and not settings.is_priority_explicit):
        return policy.order
    return "FAIRSHARE" if settings.job_priority in ("FAIRSHARE", "FAIRSHARING") else settings.job_priority


def has_quotas(policy: QueuePolicy, settings: Settings) -> bool:
    """Whether quotas hold in a queue."""
    return policy.quotas == "ALWAYS" or (policy.quotas == "ASKED" and settings.has_quotas)


@dataclass(frozen=True, slots=True)
class Share:
    """What a project and a user have had, and what they should have: parts of all."""

    project_used: float
    project_target: float
    user_used: float
    user_target: float
    user_asked: float
    asked_target: float

    def karma(self, keys: FairShare) -> float:
        """Return how much more than its share it is; the smallest goes first."""
        return (
            keys.coefficient_project * (self.project_used - self.project_target)
            + keys.coefficient_user * (self.user_used - self.user_target)
            + keys.coefficient_asked * (self.user_asked - self.asked_target)
        )


def share_of(user: str, project: str, consumption: Consumption, keys: FairShare) -> Share:
    """Return the share of a user and a project."""
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


@dataclass(frozen=True, slots=True)
class Factors:
    """What a job asks, on a machine of so many resources, and since when it waits."""

    resources: int
    walltime: int
    everything: int
    age: int
    karma: float = 0.0


def priority(job: WaitingJob, traits: Traits, factors: Factors, weights: Weights) -> float:
    """Return the priority by several factors; the largest goes first."""
    small_work = 1 / max(1, factors.resources * factors.walltime)
    narrow = 1 - factors.resources / max(1, factors.everything)
    return (
        weights.age_weight * min(1.0, weights.age_coef * factors.age)
        + weights.queue_weight * weights.queue_coefs.get(job.queue, 0.0)
        + weights.work_weight * (1 - small_work if weights.work_mode else small_work)
        + weights.size_weight * (1 - narrow if weights.size_mode else narrow)
        + weights.karma_weight / (1 + max(factors.karma, -0.9))
        + weights.qos_weight * traits.qos
        - weights.nice_weight * traits.nice
    )


def first_of_each_user(jobs: Iterable[WaitingJob], most: int) -> list[WaitingJob]:
    """Return the ``most`` oldest jobs of each user and queue (0 = all)."""
    counts: dict[tuple[str, str], int] = {}
    kept = []
    for job in sorted(jobs, key=lambda job: job.id):
        place = job.queue, job.user
        counts[place] = counts.get(place, 0) + 1
        if not most or counts[place] <= most:
            kept.append(job)
    return kept


def defer(jobs: Sequence[WaitingJob], traits: Mapping[int, Traits]) -> tuple[list[WaitingJob], list[WaitingJob]]:
    """Move a job whose container or required job comes later to directly behind it; return also those in a circle."""
    present = {job.id for job in jobs}
    containers = {name: job.id for job in jobs if traits[job.id].container for name in _names(job, traits[job.id])}
    needs = {job.id: _needs(job, traits[job.id], containers) & present for job in jobs}
    followers: dict[int, list[WaitingJob]] = {}
    done: set[int] = set()
    ordered: list[WaitingJob] = []
    for job in jobs:
        ready = [job]
        while ready:
            next_job = ready.pop()
            missing = needs[next_job.id] - done
            if missing:
                followers.setdefault(min(missing), []).append(next_job)
                continue
            done.add(next_job.id)
            ordered.append(next_job)
            ready.extend(reversed(followers.pop(next_job.id, [])))
    return ordered, [job for job in jobs if job.id not in done]


def _names(job: WaitingJob, traits: Traits) -> tuple[str, str]:
    return traits.container, str(job.id)


def _needs(job: WaitingJob, traits: Traits, containers: Mapping[str, int]) -> set[int]:
    needed = {dependency.required for dependency in job.dependencies}
    container = containers.get(traits.inner, job.id)
    return needed if container == job.id else needed | {container}
