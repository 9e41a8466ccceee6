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
        self._tx.insert_many(
            "INSERT INTO challenges (job_id, challenge, ssh_private_key, ssh_public_key) VALUES %s",
            [(job_id, key.challenge, key.private_key, key.public_key) for job_id, key in keys.items()],
        )

    def get(self, job_id: int) -> JobKeys | None:
        """Return the challenge and the keys of a job."""
        row = self._tx.row(
            "SELECT challenge, ssh_private_key, ssh_public_key FROM challenges WHERE job_id = %s", (job_id,)
        )
        return JobKeys(*row) if row else None

    def key_in_use(self, private_key: str, user: str) -> bool:
        """Whether another live job of the user has this private key."""
        return (
            self._tx.row(
                "SELECT 1 FROM challenges c JOIN jobs j USING (job_id) WHERE c.ssh_private_key = %s"
                " AND j.job_user = %s AND j.state <> 'Terminated' AND j.state <> 'Error' LIMIT 1",
                (private_key, user),
            )
            is not None
        )
