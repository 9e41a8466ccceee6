"""Queues (``tx.queues``)."""

from collections.abc import Collection

from oar.lib.bus.messages import Topic
from oar.lib.db.predicates import LIVE, NO_FRAME
from oar.lib.db.statements import Prepared, Table
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import QueueState

_ALL = Prepared("SELECT queue_name, priority, scheduler_policy, state FROM queues ORDER BY queue_name")
_EXISTS = Prepared("SELECT 1 FROM queues WHERE queue_name = %s")
_HAS_STATE = Prepared("SELECT 1 FROM queues WHERE queue_name = %s AND state = %s")
_LIVE_JOBS = f"""
    SELECT count(*) FROM jobs j WHERE j.queue_name = %(name)s AND {LIVE} AND {NO_FRAME}
      AND NOT EXISTS (
        SELECT 1 FROM reservation_jobs i JOIN reservations v USING (reservation_id)
        WHERE i.job_id = j.job_id AND v.ended = 0 AND v.queue_name = %(name)s)"""
_INSERT = """
    INSERT INTO queues (queue_name, priority, scheduler_policy, state) VALUES (%s, %s, %s, %s)
    ON CONFLICT (queue_name) DO UPDATE
      SET priority = EXCLUDED.priority, scheduler_policy = EXCLUDED.scheduler_policy, state = EXCLUDED.state
      WHERE queues.state = %s"""
_DROP_ORPHAN = """
    DELETE FROM queues WHERE queue_name = %(name)s AND state = %(orphaned)s
      AND NOT EXISTS (SELECT 1 FROM reservations WHERE queue_name = %(name)s AND ended = 0)"""


class Queues(Table):
    """Rows of ``queues``."""

    def all(self) -> list[Queue]:
        """Return all queues, by name."""
        return [Queue(row[0], row[1], row[2], QueueState(row[3])) for row in self._tx.rows(_ALL)]

    def exists(self, name: str) -> bool:
        return self._tx.row(_EXISTS, (name,)) is not None

    def hold(self, name: str) -> Queue | None:
        """Return a queue, locked until the end of the transaction; return None if there is none."""
        sql = "SELECT queue_name, priority, scheduler_policy, state FROM queues WHERE queue_name = %s FOR UPDATE"
        row = self._tx.row(sql, (name,))
        return Queue(row[0], row[1], row[2], QueueState(row[3])) if row else None

    def is_orphaned(self, name: str) -> bool:
        """Return whether a queue was removed and remains only for its advance reservations."""
        return self._tx.row(_HAS_STATE, (name, QueueState.ORPHANED)) is not None

    def insert(self, queue: Queue) -> bool:
        """Add a queue or replace an orphaned queue of this name; return False if another queue has this name."""
        values = (queue.name, queue.priority, queue.policy, queue.state, QueueState.ORPHANED)
        inserted = self._tx.execute(_INSERT, values) == 1
        self._changed(Topic.QUEUES)
        return inserted

    def update(self, name: str, *, priority: int | None = None, policy: str | None = None) -> None:
        """Change the priority or the policy of a queue; None leaves the value unchanged."""
        self._tx.execute(
            "UPDATE queues SET priority = COALESCE(%s, priority), scheduler_policy = COALESCE(%s, scheduler_policy)"
            " WHERE queue_name = %s",
            (priority, policy, name),
        )
        self._changed(Topic.QUEUES)

    def delete(self, name: str) -> None:
        self._tx.execute("DELETE FROM queues WHERE queue_name = %s", (name,))
        self._changed(Topic.QUEUES)

    def set_state(self, names: Collection[str] | None, state: QueueState) -> int:
        """Set the state of queues (None: all queues); return the number of changed queues.

        Orphaned queues stay orphaned.
        """
        self._changed(Topic.QUEUES)
        return self._tx.execute(
            "UPDATE queues SET state = %s WHERE state <> %s AND state <> %s AND (%s OR queue_name = ANY(%s))",
            (state, state, QueueState.ORPHANED, names is None, list(names or ())),
        )

    def live_jobs(self, name: str) -> int:
        """Return the number of live jobs of a queue, without the frames and jobs of its advance reservations."""
        count: int = self._tx.value(_LIVE_JOBS, {"name": name})
        return count

    def live_reservations(self, name: str) -> list[int]:
        """Return the numbers of the live advance reservations in a queue, ascending."""
        sql = "SELECT ar_id FROM reservations WHERE queue_name = %s AND ended = 0 ORDER BY ar_id"
        return self._tx.column(sql, (name,))

    def orphan(self, name: str) -> None:
        """Mark a queue as orphaned: it is deleted with the last of its advance reservations."""
        self._tx.execute("UPDATE queues SET state = %s WHERE queue_name = %s", (QueueState.ORPHANED, name))
        self._changed(Topic.QUEUES)

    def drop_orphan(self, name: str) -> bool:
        """Delete an orphaned queue without live advance reservations; return whether it was deleted."""
        dropped = self._tx.execute(_DROP_ORPHAN, {"name": name, "orphaned": QueueState.ORPHANED}) == 1
        if dropped:
            self._changed(Topic.QUEUES)
        return dropped
