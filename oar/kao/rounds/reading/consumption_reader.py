"""The consumption of users and projects, read from the accounting if a job order needs it."""

from collections.abc import Iterable, Sequence

from oar.kao.facts.queue_policies import policy_of
from oar.kao.facts.snapshot import ConsumptionSums, Settings
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import ConsumptionType, JobPriority, QueueState
from oar.lib.planning.sql_rounds import Rounds

#: Queue, user, project, USED or ASKED, resource seconds.
_Row = tuple[str, str, str, str, int]


def read_consumption(
    rounds: Rounds, queues: Sequence[Queue], settings: Settings, since: int, now: int
) -> dict[int, ConsumptionSums]:
    """Return the consumption from ``since`` to ``now`` by queue priority, if the order of a queue needs it."""
    priorities = {
        queue.priority for queue in queues if queue.state is QueueState.ACTIVE and _needs_consumption(queue, settings)
    }
    if not priorities:
        return {}
    by_name = {queue.name: queue.priority for queue in queues}
    names = [queue.name for queue in queues if queue.priority in priorities]
    rows = rounds.consumption(names, since, now)
    return {priority: summed(row for row in rows if by_name[row[0]] == priority) for priority in sorted(priorities)}


def _needs_consumption(queue: Queue, settings: Settings) -> bool:
    policy = policy_of(queue.policy)
    return policy is not None and policy.order_by(settings) in (JobPriority.FAIRSHARE, JobPriority.MULTIFACTOR)


def summed(rows: Iterable[_Row]) -> ConsumptionSums:
    """Return the sums of consumption by user and by project."""
    used_by_user: dict[str, int] = {}
    asked_by_user: dict[str, int] = {}
    used_by_project: dict[str, int] = {}
    for _, user, project, kind, seconds in rows:
        by_user = used_by_user if kind == ConsumptionType.USED else asked_by_user
        by_user[user] = by_user.get(user, 0) + seconds
        if kind == ConsumptionType.USED:
            used_by_project[project] = used_by_project.get(project, 0) + seconds
    return ConsumptionSums(
        sum(used_by_user.values()), sum(asked_by_user.values()), used_by_user, asked_by_user, used_by_project
    )
