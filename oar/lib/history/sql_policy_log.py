"""The history of what decides about jobs (``tx.policy_log``)."""

from collections.abc import Collection

from oar.lib.db.statements import Prepared, Table
from oar.lib.history.policy_records import PolicyChange, PolicyItem

#: What is in force as far as the log knows: the last row of each name that does not say that it has gone.
_LAST = Prepared("""
    SELECT kind, name, value FROM (
        SELECT DISTINCT ON (kind, name) kind, name, value FROM policy_log WHERE kind = ANY(%s)
        ORDER BY kind, name, log_id DESC) l
    WHERE value IS NOT NULL""")
_CHANGES = """
    SELECT date, author, kind, name, former, value FROM policy_log
    WHERE %(name)s::text IS NULL OR name = %(name)s
    ORDER BY log_id"""


class PolicyLog(Table):
    """Rows of ``policy_log``."""

    def last(self, kinds: Collection[str]) -> dict[PolicyItem, str]:
        """Return the last known values of what is of some kinds."""
        rows = self._tx.rows(_LAST, ([str(kind) for kind in kinds],))
        return {PolicyItem(kind, name): value for kind, name, value in rows}

    def add(self, changes: Collection[PolicyChange]) -> None:
        """Note changes."""
        self._tx.insert_many(
            "INSERT INTO policy_log (date, author, kind, name, former, value) VALUES %s",
            [(change.date, change.author, *change.item, change.former, change.value) for change in changes],
        )

    def changes(self, name: str | None = None) -> list[PolicyChange]:
        """Return the changes, oldest first: all, or those of what has a name."""
        rows = self._tx.rows(_CHANGES, {"name": name})
        return [PolicyChange(row[0], row[1], PolicyItem(row[2], row[3]), row[4], row[5]) for row in rows]
