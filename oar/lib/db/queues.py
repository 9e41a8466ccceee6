"""Queues (``tx.queues``)."""

from collections.abc import Collection

from oar.lib.db.statements import Table
from oar.lib.facts.records import Queue
from oar.lib.facts.states import QueueState
from oar.lib.facts.topics import Topic


class Queues(Table):
    """Rows of ``queues``."""

    def all(self) -> list[Queue]:
        """Return the queues by name."""
        rows = self._tx.rows("SELECT queue_name, priority, scheduler_policy, state FROM queues ORDER BY queue_name")
        return [Queue(row[0], row[1], row[2], QueueState(row[3])) for row in rows]

    def exists(self, name: str) -> bool:
        """Whether there is a queue of that name."""
        return self._tx.row("SELECT 1 FROM queues WHERE queue_name = %s", (name,)) is not None

    def is_orphaned(self, name: str) -> bool:
        """Whether a queue was removed, and stays only for its advance reservations."""
        sql = "SELECT 1 FROM queues WHERE queue_name = %s AND state = %s"
        return self._tx.row(sql, (name, QueueState.ORPHANED)) is not None

    def insert(self, queue: Queue) -> None:
        """Add a queue."""
        self._tx.execute(
            "INSERT INTO queues (queue_name, priority, scheduler_policy, state) VALUES (%s, %s, %s, %s)",
            (queue.name, queue.priority, queue.policy, queue.state),
        )
        self._changed(Topic.QUEUES)

    def update(self, name: str, *, priority: int | None = None, policy: str | None = None) -> None:
        """Change the priority or the policy of a queue; None leaves it as it is."""
        self._tx.execute(
            "UPDATE queues SET priority = COALESCE(%s, priority), scheduler_policy = COALESCE(%s, scheduler_policy)"
            " WHERE queue_name = %s",
            (priority, policy, name),
        )
        self._changed(Topic.QUEUES)

    def delete(self, name: str) -> None:
        """Remove a queue."""
        self._tx.execute("DELETE FROM queues WHERE queue_name = %s", (name,))
        self._changed(Topic.QUEUES)

    def set_state(self, names: Collection[str] | None, state: QueueState) -> int:
        """Give queues a state, all queues with None; return the number of those that had another."""
        self._changed(Topic.QUEUES)
        return self._tx.execute(
            "UPDATE queues SET state = %s WHERE state <> %s AND (%s OR queue_name = ANY(%s))",
            (state, state, names is None, list(names or ())),
        )

    def live_jobs(self, name: str) -> int:
        """Return the number of jobs of a queue that have not ended."""
        count: int = self._tx.value(
            "SELECT count(*) FROM jobs WHERE queue_name = %s AND state <> 'Terminated' AND state <> 'Error'", (name,)
        )
        return count
