"""The order in which jobs are planned: first come first served, fair share, several factors, or a plug-in.

See docs/design/planner.rst, "Order", and docs/scheduler.rst, "Several factors".
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.snapshot import ConsumptionSums, WaitingJob, Weights
from oar.kao.planner.fair_share import share_of
from oar.kao.planner.placement.round_context import RoundContext
from oar.lib.jobs.queue_policies import QueuePolicy
from oar.lib.jobs.reasons import RoundLimit
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobPriority, Reservation


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of a job's priority that do not come from its types or its queue."""

    resources: int
    walltime: int  #: seconds
    all_resources: int  #: on the whole machine
    age: int  #: seconds since submission
    karma: float = 0.0


def priority(queue: str, types: ParsedTypes, factors: Factors, weights: Weights) -> float:
    """Return the priority of a job in a queue; the job with the largest value is planned first."""
    small_work = 1 / max(1, factors.resources * factors.walltime)
    small_size = 1 - factors.resources / max(1, factors.all_resources)
    return (
        weights.age_weight * min(1.0, weights.age_coef * factors.age)
        + weights.queue_weight * weights.queue_coefs.get(queue, 0.0)
        + weights.work_weight * (1 - small_work if weights.work_mode else small_work)
        + weights.size_weight * (1 - small_size if weights.size_mode else small_size)
        + weights.karma_weight / (1 + max(factors.karma, -0.9))
        + weights.qos_weight * types.qos
        - weights.nice_weight * types.nice
    )


class JobOrder:
    """Sorts the jobs of queues; records their karma and the jobs that the order excludes."""

    def __init__(self, context: RoundContext, plugin: Callable[[Sequence[WaitingJob]], Sequence[int]] | None) -> None:
        """``plugin`` returns the ids of jobs in the order of JOB_PRIORITY=CUSTOM."""
        self._snapshot = context.snapshot
        self._settings = context.settings
        self._types = context.types
        self._requests = context.requests
        self._usable = context.usable
        self._decisions = context.decisions
        self._plugin = plugin
        #: of the users and projects at each priority of queues: their share as data, and their karma
        self._shares: dict[tuple[int, str, str], tuple[dict[str, float], float]] = {}

    def sorted(
        self, jobs: Sequence[WaitingJob], queues: Sequence[Queue], policies: Mapping[str, QueuePolicy]
    ) -> list[WaitingJob]:
        """Return the jobs of queues of equal priority in planning order.

        Jobs of queues with different orders are sorted separately and concatenated.  Then the jobs of each user beyond
        a number are moved behind the jobs of all users within it (SCHEDULER_MAX_JOBS_PER_USER).
        """
        orders = {queue.name: policies[queue.name].order_by(self._settings) for queue in queues}
        ordered: list[WaitingJob] = []
        for order in dict.fromkeys(orders.values()):
            group = [job for job in jobs if orders[job.queue] == order]
            ordered += self._sorted_by(order, group, queues[0].priority)
        first, later, limit = in_turns(ordered, self._settings.first_jobs_per_user, self._settings.max_jobs)
        self._decisions.turns.update(dict.fromkeys([job.id for job in later], limit))
        return [*first, *later]

    def _sorted_by(self, order: str, jobs: Sequence[WaitingJob], queue_priority: int) -> list[WaitingJob]:
        match order:
            case JobPriority.MULTIFACTOR:
                return self._by_factors(jobs, queue_priority)
            case JobPriority.CUSTOM:
                return self._by_plugin(jobs)
            case JobPriority.FAIRSHARE:
                limit = self._settings.max_jobs_per_user
                oldest = oldest_of_each_user(jobs, limit)
                karma = {job.id: self._karma(job, queue_priority) for job in oldest}
                for job_id in {job.id for job in jobs} - karma.keys():
                    self._decisions.reasons[job_id] = reasons.limit(limit, RoundLimit.USER)
                return sorted(oldest, key=lambda job: (karma[job.id], job.id))
        return sorted(jobs, key=lambda job: job.id)

    def _by_plugin(self, jobs: Sequence[WaitingJob]) -> list[WaitingJob]:
        """Return the jobs in the order of the plug-in, or the oldest first if the plug-in fails."""
        oldest_first = sorted(jobs, key=lambda job: job.id)
        by_id = {job.id: job for job in oldest_first}
        try:
            ids = list(self._plugin(list(oldest_first))) if self._plugin else list(by_id)
        except Exception as error:  # noqa: BLE001 - a plug-in must not end the round
            trouble = f"{type(error).__name__}: {error}"
            self._decisions.troubles.append(f"custom order: {trouble}; the oldest jobs go first")
            return oldest_first
        if len(ids) != len(by_id) or set(ids) != by_id.keys():
            self._decisions.troubles.append("custom order: it is no permutation of the jobs; the oldest jobs go first")
            return oldest_first
        return [by_id[job_id] for job_id in ids]

    def _by_factors(self, jobs: Sequence[WaitingJob], queue_priority: int) -> list[WaitingJob]:
        weights, resources = self._settings.weights, self._snapshot.resources
        all_resources = (self._usable.not_dead & resources.where(resources.types, "default")).bit_count()
        priorities: dict[int, float] = {}
        for job in jobs:
            factors = Factors(
                resources=self._requests.size(job, self._usable.present),
                walltime=job.alternatives[0].walltime if job.alternatives else 0,
                all_resources=all_resources,
                age=self._snapshot.now - job.submission_time,
                karma=self._karma(job, queue_priority) if weights.karma_weight else 0.0,
            )
            priorities[job.id] = priority(job.queue, self._types[job.id], factors, weights)
        return sorted(jobs, key=lambda job: (-priorities[job.id], job.id))

    def _karma(self, job: WaitingJob, queue_priority: int) -> float:
        key = queue_priority, job.user, job.project
        if key not in self._shares:
            keys = self._settings.fairshare
            consumption = self._snapshot.consumption.get(queue_priority, ConsumptionSums(0, 0))
            share = share_of(job.user, job.project, consumption, keys)
            self._shares[key] = asdict(share), share.karma(keys)
        self._decisions.shares[job.id], karma = self._shares[key]
        self._decisions.karma[job.id] = karma
        return karma


def oldest_of_each_user(jobs: Iterable[WaitingJob], limit: int) -> list[WaitingJob]:
    """Return the ``limit`` oldest jobs of each user in each queue, oldest first; ``limit`` 0 = all jobs."""
    counts: dict[tuple[str, str], int] = {}
    oldest = []
    for job in sorted(jobs, key=lambda job: job.id):
        key = job.queue, job.user
        counts[key] = counts.get(key, 0) + 1
        if not limit or counts[key] <= limit:
            oldest.append(job)
    return oldest


def in_turns(
    jobs: Sequence[WaitingJob], limit: int, most: int
) -> tuple[Sequence[WaitingJob], Sequence[WaitingJob], int]:
    """Return the first jobs of each user, the jobs to plan after them, and the number of first jobs of a user.

    ``limit``: the largest number; 0 = all.  ``most``: the number of jobs that a pass plans; 0 = all.  The number is
    smaller than ``limit`` if otherwise the first jobs of all users were more than ``most``.
    """
    counts = Counter(job.user for job in jobs)
    limit = _even_part(sorted(counts.values()), limit, most)
    if len(counts) < 2 or max(counts.values()) <= limit or not limit:  # the usual case
        return jobs, (), limit
    taken: Counter[str] = Counter()
    first: list[WaitingJob] = []
    later: list[WaitingJob] = []
    for job in jobs:
        taken[job.user] += 1
        (first if taken[job.user] <= limit else later).append(job)
    return first, later, limit


def _even_part(counts: Sequence[int], limit: int, most: int) -> int:
    """Return the largest number up to ``limit``, at least 1, with which the users together have at most ``most`` jobs.

    ``counts``: the number of jobs of each user, ascending.
    """
    if not limit or not most or sum(min(count, limit) for count in counts) <= most:
        return limit
    left = most
    for index, count in enumerate(counts):
        part = left // (len(counts) - index)
        if count > part:
            return max(1, part)
        left -= count
    return limit


def behind_required_jobs(
    jobs: Sequence[WaitingJob], types: Mapping[int, ParsedTypes]
) -> tuple[list[WaitingJob], list[WaitingJob]]:
    """Move each job behind its container and the jobs that it requires.

    The second list holds the jobs with cyclic dependencies; the first list does not contain them.
    """
    if not any(job.dependencies or types[job.id].inner for job in jobs):  # the usual case
        return list(jobs), []
    ids = {job.id for job in jobs}
    containers = {name: job.id for job in jobs for name in types[job.id].container_names(job.id)}
    required = {job.id: _required(job, types[job.id], containers) & ids for job in jobs}
    followers: dict[int, list[WaitingJob]] = {}
    passed: set[int] = set()
    ordered: list[WaitingJob] = []
    for job in jobs:
        ready = [job]
        while ready:
            next_job = ready.pop()
            missing = required[next_job.id] - passed
            if missing:
                followers.setdefault(min(missing), []).append(next_job)
                continue
            passed.add(next_job.id)
            ordered.append(next_job)
            ready.extend(reversed(followers.pop(next_job.id, [])))
    return ordered, [job for job in jobs if job.id not in passed]


def cyclic_jobs(waiting: Iterable[WaitingJob], types: Mapping[int, ParsedTypes]) -> frozenset[int]:
    """Return the jobs of all queues with cyclic dependencies, and the jobs that depend on them."""
    dependants = [job for job in waiting if job.dependencies and job.reservation is Reservation.NONE]
    return frozenset(job.id for job in behind_required_jobs(dependants, types)[1])


def _required(job: WaitingJob, types: ParsedTypes, containers: Mapping[str, int]) -> set[int]:
    required = {dependency.required for dependency in job.dependencies}
    container = containers.get(types.inner, job.id)
    return required if container == job.id else required | {container}
