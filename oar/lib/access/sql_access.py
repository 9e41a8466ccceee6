"""Access (``tx.access``): hashes of API tokens, challenges and SSH keys of jobs, usersets."""

from collections.abc import Collection
from typing import NamedTuple

from oar.lib.bus.messages import Topic
from oar.lib.db.predicates import LIVE
from oar.lib.db.statements import CLOCK, Prepared, Table
from oar.lib.jobs.records import JobKeys


class ApiToken(NamedTuple):
    """A token, a row of ``api_tokens``.  Dates are epoch seconds, 0 means never."""

    id: int
    user: str
    scope: str
    comment: str
    created: int
    expires: int
    last_used: int
    revoked: int
    proved: int = 0  #: when its user last gave his password to it; of sessions of browsers
    parent: int = 0  #: of a session: the token with which it began, 0 for a password


_COLUMNS = "token_id, token_user, scope, comment, created, expires, last_used, revoked, proved, parent"
_LIVES = f"revoked = 0 AND (expires = 0 OR expires > {CLOCK})"
#: A session that began with a token is valid while the token is, whatever happened since to either of them.
_VALID = f"""{_LIVES}
    AND (parent = 0 OR parent IN (SELECT token_id FROM api_tokens AS parents WHERE {_LIVES}))"""
_FIND_TOKEN = Prepared(f"SELECT {_COLUMNS} FROM api_tokens WHERE token_hash = %s AND {_VALID}")
_OF = f"SELECT {_COLUMNS} FROM api_tokens WHERE {_VALID} AND (%s::text IS NULL OR token_user = %s) ORDER BY token_id"
_INSERT = """
    INSERT INTO api_tokens (token_user, token_hash, scope, comment, created, expires, proved, parent)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s) RETURNING token_id"""
_REVOKE = "UPDATE api_tokens SET revoked = %s WHERE revoked = 0 AND (token_id = ANY(%s) OR parent = ANY(%s))"
_FORGET = "DELETE FROM api_tokens WHERE token_user = %s AND expires <> 0 AND expires < %s"
#: Jobs that live, or ended a short time ago.
_LIVE = "SELECT job_id FROM jobs WHERE job_id = ANY(%s) AND (stop_time = 0 OR stop_time > %s)"
_RECORD_SUBMITTED = "INSERT INTO token_jobs (token_id, job_id) SELECT %s, unnest(%s::bigint[]) ON CONFLICT DO NOTHING"
_SUBMITTED = "SELECT job_id FROM token_jobs WHERE job_id = ANY(%s) AND token_id = %s"
_FIND_CHALLENGE = Prepared("SELECT challenge, ssh_private_key, ssh_public_key FROM challenges WHERE job_id = %s")
_IS_IN_USE = f"""
    SELECT 1 FROM jobs j JOIN challenges c USING (job_id)
    WHERE c.ssh_public_key = %s AND j.job_user = %s AND j.job_id <> %s
      AND {LIVE} LIMIT 1"""
_ENTRIES = """
    SELECT s.userset_name, e.entry FROM usersets s LEFT JOIN userset_entries e ON e.userset_name = s.userset_name
    WHERE s.userset_name = ANY(%s) ORDER BY s.userset_name, e.entry"""
_KEEP = "SELECT userset_name FROM usersets WHERE userset_name = ANY(%s) ORDER BY userset_name FOR SHARE"
_ADD = """
    INSERT INTO userset_entries (userset_name, entry) SELECT %s, unnest(%s::text[]) ON CONFLICT DO NOTHING
    RETURNING entry"""
_REMOVE = "DELETE FROM userset_entries WHERE userset_name = %s AND entry = ANY(%s) RETURNING entry"


class Access(Table):
    """Rows of ``api_tokens``, ``token_jobs``, ``challenges``, ``usersets`` and ``userset_entries``."""

    def find_token(self, digest: str) -> ApiToken | None:
        """Return the valid token with a SHA-256 digest; None if there is none."""
        row = self._tx.row(_FIND_TOKEN, (digest,))
        return ApiToken(*row) if row else None

    def insert_token(
        self, user: str, digest: str, *, scope: str, comment: str, expires: int, proved: int = 0, parent: int = 0
    ) -> int:
        """Store the digest of a new token; return its id."""
        self._changed(Topic.TOKENS)
        row = (user, digest, scope, comment, self._tx.now, expires, proved, parent)
        token_id: int = self._tx.value(_INSERT, row)
        return token_id

    def tokens_of(self, user: str | None) -> list[ApiToken]:
        """Return the valid tokens and sessions of a user; None means all users."""
        return [ApiToken(*row) for row in self._tx.rows(_OF, (user, user))]

    def revoke_token(self, ids: Collection[int]) -> None:
        """Revoke tokens, and the sessions that were started with them."""
        self._changed(Topic.TOKENS)
        self._tx.execute(_REVOKE, (self._tx.now, list(ids), list(ids)))

    def forget_tokens(self, user: str, *, expired_before: int) -> None:
        """Delete the tokens of a user that expired before a date."""
        self._changed(Topic.TOKENS)
        self._tx.execute(_FORGET, (user, expired_before))

    def use_token(self, token_id: int, *, expires: int) -> None:
        """Store that a token was used now, and its new expiry date."""
        sql = "UPDATE api_tokens SET last_used = %s, expires = %s WHERE token_id = %s"
        self._tx.execute(sql, (self._tx.now, expires, token_id))

    def prove_token(self, token_id: int) -> None:
        """Store that the user has just confirmed the session with the password."""
        self._changed(Topic.TOKENS)
        self._tx.execute("UPDATE api_tokens SET proved = %s WHERE token_id = %s", (self._tx.now, token_id))

    def record_submitted_jobs(self, token_id: int, jobs: Collection[int]) -> None:
        """Store that jobs were submitted with a token."""
        self._tx.execute(_RECORD_SUBMITTED, (token_id, list(jobs)))

    def jobs_submitted_with(self, token_id: int, jobs: Collection[int]) -> frozenset[int]:
        """Return the ids of the jobs that were submitted with a token."""
        return frozenset(self._tx.column(_SUBMITTED, (list(jobs), token_id)))

    def live_jobs(self, jobs: Collection[int], *, ended_since: int) -> frozenset[int]:
        """Return the ids of the jobs that are live, or ended since a date."""
        return frozenset(self._tx.column(_LIVE, (list(jobs), ended_since)))

    def find_challenge(self, job_id: int) -> JobKeys | None:
        """Return the challenge and the keys of a job; None if it does not exist."""
        row = self._tx.row(_FIND_CHALLENGE, (job_id,))
        return JobKeys(*row) if row else None

    def is_key_in_use(self, public_key: str, user: str, *, but: int = 0) -> bool:
        """Return whether a live job of the user has this public key; the job ``but`` is ignored."""
        return self._tx.row(_IS_IN_USE, (public_key, user, but)) is not None

    def userset_names(self) -> list[str]:
        return self._tx.column("SELECT userset_name FROM usersets ORDER BY userset_name")

    def userset_entries(self, names: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return the entries of the existing usersets, ascending."""
        entries: dict[str, tuple[str, ...]] = {}
        for name, entry in self._tx.rows(_ENTRIES, (list(names),)) if names else ():
            entries[name] = (*entries.get(name, ()), *([entry] if entry is not None else []))
        return entries

    def keep_usersets(self, names: Collection[str]) -> set[str]:
        """Lock usersets against changes until the end of the transaction; return the names that exist."""
        return set(self._tx.column(_KEEP, (list(names),))) if names else set()

    def lock_userset(self, name: str) -> None:
        """Lock a userset against changes and new references until the end of the transaction."""
        self._tx.execute("SELECT 1 FROM usersets WHERE userset_name = %s FOR UPDATE", (name,))

    def create_userset(self, name: str) -> bool:
        """Create an empty userset; return False if it already exists."""
        self._tx.topics.add(Topic.RESERVATIONS)
        return self._tx.execute("INSERT INTO usersets (userset_name) VALUES (%s) ON CONFLICT DO NOTHING", (name,)) == 1

    def add_to_userset(self, name: str, entries: Collection[str]) -> set[str]:
        """Add entries to a userset; return the entries that are new."""
        self._tx.topics.add(Topic.RESERVATIONS)
        return set(self._tx.column(_ADD, (name, list(entries))))

    def remove_from_userset(self, name: str, entries: Collection[str]) -> set[str]:
        """Remove entries from a userset; return the entries that it had."""
        self._tx.topics.add(Topic.RESERVATIONS)
        return set(self._tx.column(_REMOVE, (name, list(entries))))

    def drop_userset(self, name: str) -> bool:
        """Delete a userset with its entries; return False if it does not exist."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute("DELETE FROM userset_entries WHERE userset_name = %s", (name,))
        return self._tx.execute("DELETE FROM usersets WHERE userset_name = %s", (name,)) == 1
