"""Queues and admission rules (``tx.queues``)."""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.model import Queue
from oar.lib.states import QueueState

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction


class Rule(NamedTuple):
    """An admission rule: a text of Python."""

    id: int
    priority: int
    enabled: bool
    text: str


class Queues:
    """Rows of ``queues`` and ``admission_rules``."""

    def __init__(self, tx: "Transaction") -> None:
        self._tx = tx

    def all(self) -> list[Queue]:
        """Return the queues by name."""
        rows = self._tx.rows("SELECT queue_name, priority, scheduler_policy, state FROM queues ORDER BY queue_name")
        return [Queue(row[0], row[1], row[2], QueueState(row[3])) for row in rows]

    def exists(self, name: str) -> bool:
        """Whether there is a queue of that name."""
        return self._tx.row("SELECT 1 FROM queues WHERE queue_name = %s", (name,)) is not None

    def insert(self, queue: Queue) -> None:
        """Add a queue."""
        self._tx.execute(
            "INSERT INTO queues (queue_name, priority, scheduler_policy, state) VALUES (%s, %s, %s, %s)",
            (queue.name, queue.priority, queue.policy, queue.state),
        )
        self._tx.topics.add("queues")

    def update(self, name: str, *, priority: int | None = None, policy: str | None = None) -> None:
        """Change what is given of a queue."""
        self._tx.execute(
            "UPDATE queues SET priority = COALESCE(%s, priority), scheduler_policy = COALESCE(%s, scheduler_policy)"
            " WHERE queue_name = %s",
            (priority, policy, name),
        )
        self._tx.topics.add("queues")

    def delete(self, name: str) -> None:
        """Remove a queue."""
        self._tx.execute("DELETE FROM queues WHERE queue_name = %s", (name,))
        self._tx.topics.add("queues")

    def set_state(self, names: Collection[str] | None, state: QueueState) -> int:
        """Let queues (all with None) be scheduled or not; return how many changed."""
        self._tx.topics.add("queues")
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

    def rules(self, *, enabled: bool | None = None) -> list[Rule]:
        """Return the admission rules in the order in which they run."""
        rows = self._tx.rows("SELECT id, priority, enabled, rule FROM admission_rules ORDER BY priority, id")
        found = [Rule(row[0], row[1], row[2] == "YES", row[3]) for row in rows]
        return [rule for rule in found if enabled is None or rule.enabled is enabled]

    def rule(self, rule_id: int) -> Rule | None:
        """Return one rule."""
        row = self._tx.row("SELECT id, priority, enabled, rule FROM admission_rules WHERE id = %s", (rule_id,))
        return Rule(row[0], row[1], row[2] == "YES", row[3]) if row else None

    def insert_rule(self, text: str, *, priority: int, enabled: bool, author: str) -> int:
        """Add a rule; return its id."""
        rule_id: int = self._tx.value(
            "INSERT INTO admission_rules (priority, enabled, rule) VALUES (%s, %s, %s) RETURNING id",
            (priority, "YES" if enabled else "NO", text),
        )
        self._log_rule(rule_id, "create", author, text)
        return rule_id

    def update_rule(self, rule: Rule, author: str) -> None:
        """Replace a rule; its former text is kept in the log."""
        former = self.rule(rule.id)
        self._log_rule(rule.id, "modify", author, former.text if former else "")
        self._tx.execute(
            "UPDATE admission_rules SET priority = %s, enabled = %s, rule = %s WHERE id = %s",
            (rule.priority, "YES" if rule.enabled else "NO", rule.text, rule.id),
        )

    def delete_rule(self, rule: Rule, author: str) -> None:
        """Remove a rule; its text is kept in the log."""
        self._log_rule(rule.id, "delete", author, rule.text)
        self._tx.execute("DELETE FROM admission_rules WHERE id = %s", (rule.id,))

    def rule_history(self, rule_id: int) -> list[tuple[int, str, str, str]]:
        """Return what was done to a rule: ``(date, author, action, text before)``, oldest first."""
        rows = self._tx.rows(
            "SELECT date, author, action, rule FROM admission_rules_log WHERE id = %s ORDER BY log_id", (rule_id,)
        )
        return [(row[0], row[1], row[2], row[3]) for row in rows]

    def _log_rule(self, rule_id: int, action: str, author: str, text: str) -> None:
        self._tx.execute(
            "INSERT INTO admission_rules_log (id, date, author, action, rule) VALUES (%s, %s, %s, %s, %s)",
            (rule_id, self._tx.now, author, action, text),
        )
