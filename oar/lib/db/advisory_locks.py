"""Who holds an advisory lock, and since when (``tx.advisory_locks``)."""

from oar.lib.db.statements import Table

_HOLDER = """
    SELECT a.application_name, a.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objid = %s AND l.granted LIMIT 1"""
#: When the connection was opened that holds a lock in this database.
_HELD_SINCE = """
    SELECT FLOOR(EXTRACT(EPOCH FROM a.backend_start))::bigint FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objid = %s AND l.objsubid = 2 AND l.granted
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


class AdvisoryLocks(Table):
    """Locks that sessions of PostgreSQL hold; their keys are in ``lock_keys.py``."""

    def take(self, key: tuple[int, int]) -> None:
        """Wait for a lock, and keep it until the end of the transaction."""
        self._tx.execute("SELECT pg_advisory_xact_lock(%s, %s)", key)

    def holder(self, key: tuple[int, int]) -> str:
        """Return the holder of a lock as ``application (pid n)``, '' if nobody has it."""
        row = self._tx.row(_HOLDER, key)
        return f"{row[0]} (pid {row[1]})" if row else ""

    def held_since(self, key: tuple[int, int]) -> int | None:
        """Return when the session began that holds a lock, None if nobody has it."""
        start: int | None = self._tx.value(_HELD_SINCE, key)
        return start
