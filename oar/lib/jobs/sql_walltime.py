"""Changes of walltime that users ask for and rounds grant (``tx.walltime_changes``): table ``walltime_change``."""

from collections.abc import Collection
from typing import NamedTuple

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Table, flag

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

#: Changes of running jobs that are pending, and when they were asked.  The rows are locked.
_PENDING = """
    SELECT w.job_id, w.pending, w.force = 'YES', w.delay_next_jobs = 'YES', w.whole = 'YES', w.granted, w.timeout,
        COALESCE((SELECT max(e.date) FROM event_logs e WHERE e.job_id = w.job_id AND e.type = 'WALLTIME_REQUEST'), 0),
        j.assigned_moldable_job
    FROM walltime_change w JOIN jobs j ON j.job_id = w.job_id
    WHERE w.pending <> 0 AND j.state = 'Running' ORDER BY w.job_id FOR NO KEY UPDATE OF j, w"""
_CHANGE_WALLTIME = """
    UPDATE moldable_job_descriptions SET moldable_walltime = moldable_walltime + %s WHERE moldable_id = %s
    RETURNING moldable_walltime"""
#: What is granted counts also for each way in which it was; nothing pending: nothing is asked any more.
_GRANT = """
    UPDATE walltime_change SET pending = %(left)s::bigint, granted = granted + %(seconds)s::bigint,
        granted_with_force = granted_with_force + CASE WHEN force = 'YES' THEN %(more)s::bigint ELSE 0 END,
        granted_with_delay_next_jobs =
            granted_with_delay_next_jobs + CASE WHEN delay_next_jobs = 'YES' THEN %(more)s::bigint ELSE 0 END,
        granted_with_whole = granted_with_whole + CASE WHEN whole = 'YES' THEN %(more)s::bigint ELSE 0 END,
        force = CASE WHEN %(left)s::bigint = 0 THEN 'NO' ELSE force END,
        delay_next_jobs = CASE WHEN %(left)s::bigint = 0 THEN 'NO' ELSE delay_next_jobs END,
        whole = CASE WHEN %(left)s::bigint = 0 THEN 'NO' ELSE whole END,
        timeout = CASE WHEN %(left)s::bigint = 0 THEN 0 ELSE timeout END
    WHERE job_id = %(job)s"""
_DROP = """
    UPDATE walltime_change SET pending = 0, force = 'NO', delay_next_jobs = 'NO', whole = 'NO', timeout = 0
    WHERE job_id = %s"""


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


class PendingWalltime(NamedTuple):
    """A change of the walltime of a running job that is pending; seconds as in ``WalltimeChange``."""

    job_id: int
    pending: int
    force: bool
    delay_next_jobs: bool
    whole: bool
    granted: int
    timeout: int
    asked: int  #: date of the request
    moldable: int  #: the alternative that runs


class WalltimeChanges(Table):
    """Rows of ``walltime_change``: one for each job whose walltime was ever to be changed."""

    def find(self, job_id: int) -> WalltimeChange:
        """Return what was asked for a job and granted; zeros if nothing ever was."""
        row = self._tx.row(_FIND, (job_id,))
        return WalltimeChange(*row) if row else WalltimeChange()

    def ask(self, job_id: int, change: WalltimeChange) -> None:
        """Store a request in place of the pending one; what was granted stays."""
        values = {
            "job": job_id,
            "pending": change.pending,
            "force": flag(change.force),
            "delay": flag(change.delay_next_jobs),
            "whole": flag(change.whole),
            "timeout": change.timeout,
        }
        self._tx.execute(_ASK, values)
        self._changed(Topic.JOBS)

    def ask_all(self, ids: Collection[int], pending: int) -> None:
        """Store for new jobs the request of ``pending`` more seconds, which are granted once they run."""
        self._tx.execute(_ASK_ALL, (pending, list(ids)))
        self._changed(Topic.JOBS)

    def pending(self) -> list[PendingWalltime]:
        """Return the pending changes of running jobs, by job id; jobs and changes are locked."""
        return [PendingWalltime(*row) for row in self._tx.rows(_PENDING)]

    def grant(self, change: PendingWalltime, seconds: int) -> int:
        """Grant a part of a change; return the new walltime.  What is left of a reduction is dropped."""
        left = change.pending - seconds if change.pending > 0 else 0
        walltime: int = self._tx.value(_CHANGE_WALLTIME, (seconds, change.moldable))
        values = {"left": left, "seconds": seconds, "more": max(0, seconds), "job": change.job_id}
        self._tx.execute(_GRANT, values)
        self._changed(Topic.JOBS)
        return walltime

    def drop(self, job_id: int) -> None:
        """Drop a pending change."""
        self._tx.execute(_DROP, (job_id,))
        self._changed(Topic.JOBS)
