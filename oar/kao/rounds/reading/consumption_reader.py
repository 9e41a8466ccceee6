"""The consumption of users and projects and their targets, read if a job order needs them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from oar.kao.facts.snapshot import ConsumptionSums, FairShare, Settings
from oar.lib.accounts.shares import Active, Row, SharedProjects, read_shares, with_sub_projects
from oar.lib.config.files import Config
from oar.lib.jobs.queue_policies import policy_of
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import ConsumptionType, JobPriority, QueueState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class FairShareInput(NamedTuple):
    """What the fair share of jobs is computed from."""

    keys: FairShare
    consumption: dict[int, ConsumptionSums]  #: by priority of queues


def read_fair_share(
    tx: "Transaction",
    config: Config,
    settings: Settings,
    queues: Sequence[Queue],
    *,
    now: int,
    waiting: Iterable[Active],
) -> FairShareInput:
    """Return the targets and the consumption until ``now`` by queue priority, if the order of a queue needs them.

    ``waiting``: users with waiting jobs, and their projects.
    """
    priorities = {
        queue.priority for queue in queues if queue.state is QueueState.ACTIVE and _needs_consumption(queue, settings)
    }
    if not priorities:
        return FairShareInput(settings.fairshare, {})
    by_name = {queue.name: queue.priority for queue in queues}
    names = [queue.name for queue in queues if queue.priority in priorities]
    rows = tx.rounds.consumption(names, now - config.scheduler_fairsharing_window_size, now)
    shares = read_shares(tx, config, rows, waiting)
    sums = {
        priority: summed((row for row in rows if by_name[row[0]] == priority), shares)
        for priority in sorted(priorities)
    }
    return FairShareInput(with_targets(settings.fairshare, config, shares), sums)


def _needs_consumption(queue: Queue, settings: Settings) -> bool:
    policy = policy_of(queue.policy)
    return policy is not None and policy.order_by(settings) in (JobPriority.FAIRSHARE, JobPriority.MULTIFACTOR)


def with_targets(keys: FairShare, config: Config, shares: SharedProjects) -> FairShare:
    """Return the keys of fair share with the targets of users and projects."""
    return replace(keys, project_targets=shares.project_targets(config), user_targets=shares.user_targets(config))


def summed(rows: Iterable[Row], shares: SharedProjects) -> ConsumptionSums:
    """Return the sums of consumption by user and by project; a project contains its sub-projects."""
    used_by_user: dict[str, int] = {}
    asked_by_user: dict[str, int] = {}
    used_by_project: dict[str, int] = {}
    for _, user, project, kind, seconds in rows:
        by_user = used_by_user if kind == ConsumptionType.USED else asked_by_user
        by_user[user] = by_user.get(user, 0) + seconds
        if kind == ConsumptionType.USED:
            used_by_project[project] = used_by_project.get(project, 0) + seconds
    return ConsumptionSums(
        sum(used_by_user.values()),
        sum(asked_by_user.values()),
        used_by_user,
        asked_by_user,
        with_sub_projects(used_by_project, shares.projects),
    )
