"""Changes of walltime that users ask for (table ``walltime_change``); rounds grant them (``tx.rounds``)."""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

_FIND = """
    SELECT pending, force = 'YES', delay_next_jobs = 'YES', whole = 'YES', timeout,
        granted, granted_with_force, granted_with_delay_next_jobs, granted_with_whole
    FROM walltime_change WHERE job_id = %s"""
_ASK = """
    INSERT INTO walltime_change (job_id, pending, force, delay_next_jobs, whole, timeout)
    VALUES (%(job)s, %(pending)s, %(force)s, %(delay)s, %(whole)s, %(timeout)s)
    ON CONFLICT (job_id) DO UPDATE SET pending = %(pending)s, force = %(force)s, delay_next_jobs = %(delay)s,
        whole = %(whole)s, timeout = %(timeout)s"""

_ASK_ALL = """
    INSERT INTO walltime_change (job_id, pending, force, delay_next_jobs, whole, timeout)
    SELECT id, %s, 'NO', 'NO', 'NO', 0 FROM unnest(%s::bigint[]) AS id"""


class WalltimeChange(NamedTuple):
    """What was asked for a job and what was granted; all in seconds, below 0: less."""

    pending: int = 0
    force: bool = False
    delay_next_jobs: bool = False
    whole: bool = False
    timeout: int = 0  #: what is pending is dropped after so long; 0 = never
    granted: int = 0
    granted_with_force: int = 0
    granted_with_delay_next_jobs: int = 0
    granted_with_whole: int = 0


class Walltimes:
    """Rows of ``walltime_change``."""

    def __init__(self, tx: "Transaction") -> None:
        self._tx = tx

    def find(self, job_id: int) -> WalltimeChange:
        """Return what was asked for a job and granted; zeros if nothing ever was."""
        row = self._tx.row(_FIND, (job_id,))
        return WalltimeChange(*row) if row else WalltimeChange()

    def ask(self, job_id: int, change: WalltimeChange) -> None:
        """Store what is asked now, in place of what is pending; what was granted stays."""
        values = {
            "job": job_id,
            "pending": change.pending,
            "force": _flag(change.force),
            "delay": _flag(change.delay_next_jobs),
            "whole": _flag(change.whole),
            "timeout": change.timeout,
        }
        self._tx.execute(_ASK, values)

    def ask_all(self, ids: Collection[int], pending: int) -> None:
        """Store that new jobs may last longer, once they run."""
        self._tx.execute(_ASK_ALL, (pending, list(ids)))


def _flag(value: bool) -> str:
    return "YES" if value else "NO"
