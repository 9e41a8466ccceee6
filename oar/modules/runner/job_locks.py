"""The advisory locks of the jobs that a bipbip handles.

The actions of a burst share statements: while one is under way, further locks wait, and the next statement takes and
releases all of them. A single lock is never delayed.

See docs/design/locks.rst, "Advisory locks".
"""

import threading
from collections.abc import Sequence

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import job_lock
from oar.lib.db.locks import Locks


class _Wish:
    """A lock to take or to release, and the state of the thread that waits for it."""

    def __init__(self, job_id: int, *, is_release: bool) -> None:
        self.job_id = job_id
        self.is_release = is_release
        self.is_over = False
        self.is_taken = False
        self.error: Exception | None = None


class JobLocks:
    """The database locks of the jobs that this process handles. They last at most as long as the process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed = threading.Condition()
        self._wishes: list[_Wish] = []
        self._is_busy = False  #: a thread uses the connection
        self._locks: Locks | None = None

    def acquire(self, job_id: int) -> bool:
        """Lock a job. Return False if another process has locked it. Raises DatabaseUnavailable."""
        return self._fulfil(_Wish(job_id, is_release=False)).is_taken

    def release(self, job_id: int) -> None:
        """Release the lock of a job. If the connection was lost, PostgreSQL has released the lock already."""
        self._fulfil(_Wish(job_id, is_release=True))

    def _fulfil(self, wish: _Wish) -> _Wish:
        """Wait until a wish is fulfilled, by this thread if no other one uses the connection."""
        with self._changed:
            self._wishes.append(wish)
            self._changed.wait_for(lambda: wish.is_over or not self._is_busy)
            wishes, self._wishes = ([], self._wishes) if wish.is_over else (self._wishes, [])
            self._is_busy |= bool(wishes)
        if wishes:
            self._fulfil_all(wishes)
        if wish.error:
            raise wish.error
        return wish

    def _fulfil_all(self, wishes: Sequence[_Wish]) -> None:
        releases, wanted = ([wish for wish in wishes if wish.is_release is kind] for kind in (True, False))
        try:
            answers = self._exchange([wish.job_id for wish in releases], [wish.job_id for wish in wanted])
            for wish, is_taken in zip(wanted, answers, strict=True):
                wish.is_taken = is_taken
        except Exception as error:  # noqa: BLE001 - it is raised again in the waiting threads
            for wish in wishes:
                wish.error = None if wish.is_release and isinstance(error, DatabaseUnavailable) else error
        finally:
            with self._changed:
                for wish in wishes:
                    wish.is_over = True
                self._is_busy = False
                self._changed.notify_all()

    def _exchange(self, releases: Sequence[int], wanted: Sequence[int]) -> list[bool]:
        """Release and take locks. Return for each wanted one whether it is taken. Connect again after a loss."""
        keys = [job_lock(job_id) for job_id in wanted]
        if self._locks is not None:
            try:
                return self._locks.exchange([job_lock(job_id) for job_id in releases], keys)
            except DatabaseUnavailable:
                self._locks = None
        if not wanted:
            return []
        self._locks = self._database.locks()
        return self._locks.exchange([], keys)
