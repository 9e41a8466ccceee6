"""Admission rules and the log of their changes (``tx.admission_rules``)."""

from typing import NamedTuple

from oar.lib.db.statements import Prepared, Row, Table

_ALL = Prepared("SELECT id, priority, enabled, rule FROM admission_rules ORDER BY priority, id")


class AdmissionRule(NamedTuple):
    """An admission rule in Python."""

    id: int
    priority: int
    enabled: bool
    text: str


class AdmissionRules(Table):
    """Rows of ``admission_rules`` and ``admission_rules_log``."""

    def all(self, *, enabled: bool | None = None) -> list[AdmissionRule]:
        """Return the rules in the order of execution.

        ``enabled``: True for enabled rules only, False for disabled rules only, None for all.
        """
        rows = self._tx.rows(_ALL)
        rules = [_rule(row) for row in rows]
        return [rule for rule in rules if enabled is None or rule.enabled is enabled]

    def find(self, rule_id: int) -> AdmissionRule | None:
        """Return one rule; None if it does not exist."""
        row = self._tx.row("SELECT id, priority, enabled, rule FROM admission_rules WHERE id = %s", (rule_id,))
        return _rule(row) if row else None

    def hold(self, rule_id: int) -> None:
        """Lock a rule until the end of the transaction."""
        self._tx.execute("SELECT 1 FROM admission_rules WHERE id = %s FOR UPDATE", (rule_id,))

    def insert(self, text: str, *, priority: int, enabled: bool, author: str) -> int:
        """Add a rule; return its id."""
        rule_id: int = self._tx.value(
            "INSERT INTO admission_rules (priority, enabled, rule) VALUES (%s, %s, %s) RETURNING id",
            (priority, "YES" if enabled else "NO", text),
        )
        self._log(rule_id, "create", author, text)
        return rule_id

    def update(self, rule: AdmissionRule, author: str) -> None:
        """Replace a rule; log its former text."""
        former = self.find(rule.id)
        self._log(rule.id, "modify", author, former.text if former else "")
        self._tx.execute(
            "UPDATE admission_rules SET priority = %s, enabled = %s, rule = %s WHERE id = %s",
            (rule.priority, "YES" if rule.enabled else "NO", rule.text, rule.id),
        )

    def delete(self, rule: AdmissionRule, author: str) -> None:
        """Delete a rule; log its text."""
        self._log(rule.id, "delete", author, rule.text)
        self._tx.execute("DELETE FROM admission_rules WHERE id = %s", (rule.id,))

    def history(self, rule_id: int) -> list[tuple[int, str, str, str]]:
        """Return the changes of a rule: ``(date, author, action, text before)``, oldest first."""
        rows = self._tx.rows(
            "SELECT date, author, action, rule FROM admission_rules_log WHERE id = %s ORDER BY log_id", (rule_id,)
        )
        return [(row[0], row[1], row[2], row[3]) for row in rows]

    def _log(self, rule_id: int, action: str, author: str, text: str) -> None:
        self._tx.execute(
            "INSERT INTO admission_rules_log (id, date, author, action, rule) VALUES (%s, %s, %s, %s, %s)",
            (rule_id, self._tx.now, author, action, text),
        )


def _rule(row: Row) -> AdmissionRule:
    return AdmissionRule(row[0], row[1], row[2] == "YES", row[3])
