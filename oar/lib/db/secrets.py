"""Challenges and SSH keys of jobs (``tx.secrets``).  Nothing here is ever logged or shown."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from oar.lib.model import JobKeys

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction


class Secrets:
    """Rows of ``challenges``."""

    def __init__(self, tx: "Transaction") -> None:
        self._tx = tx

    def insert(self, keys: Mapping[int, JobKeys]) -> None:
        """Store the challenge and the keys of new jobs."""
        self._tx.execute(
            "INSERT INTO challenges (job_id, challenge, ssh_private_key, ssh_public_key)"
            " SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[])",
            (
                list(keys),
                [key.challenge for key in keys.values()],
                [key.private_key for key in keys.values()],
                [key.public_key for key in keys.values()],
            ),
        )

    def get(self, job_id: int) -> JobKeys | None:
        """Return the challenge and the keys of a job."""
        row = self._tx.row(
            "SELECT challenge, ssh_private_key, ssh_public_key FROM challenges WHERE job_id = %s", (job_id,)
        )
        return JobKeys(*row) if row else None

    def key_in_use(self, public_key: str, user: str, *, but: int = 0) -> bool:
        """Whether a live job of the user has the key of this public key; one job does not count."""
        return (
            self._tx.row(
                "SELECT 1 FROM jobs j JOIN challenges c USING (job_id) WHERE c.ssh_public_key = %s"
                " AND j.job_user = %s AND j.state <> 'Terminated' AND j.state <> 'Error' AND j.job_id <> %s LIMIT 1",
                (public_key, user, but),
            )
            is not None
        )
