"""Challenges and SSH keys of jobs (``tx.challenges``).  Nothing here is ever logged or shown."""

from oar.lib.db.predicates import LIVE
from oar.lib.db.statements import Prepared, Table
from oar.lib.jobs.records import JobKeys

_FIND = Prepared("SELECT challenge, ssh_private_key, ssh_public_key FROM challenges WHERE job_id = %s")
_IS_IN_USE = f"""
    SELECT 1 FROM jobs j JOIN challenges c USING (job_id)
    WHERE c.ssh_public_key = %s AND j.job_user = %s AND j.job_id <> %s
      AND {LIVE} LIMIT 1"""


class Challenges(Table):
    """Rows of ``challenges``; they are inserted with their jobs (``tx.new_jobs``)."""

    def find(self, job_id: int) -> JobKeys | None:
        """Return the challenge and the keys of a job, None if it does not exist."""
        row = self._tx.row(_FIND, (job_id,))
        return JobKeys(*row) if row else None

    def is_key_in_use(self, public_key: str, user: str, *, but: int = 0) -> bool:
        """Whether a live job of the user has the key with this public part; the job ``but`` does not count."""
        return self._tx.row(_IS_IN_USE, (public_key, user, but)) is not None
