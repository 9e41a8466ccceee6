"""Tokens of the API (``tx.api_tokens``): their sums, never themselves."""

from collections.abc import Collection
from typing import NamedTuple

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import CLOCK, Prepared, Table


class ApiToken(NamedTuple):
    """A token, a row of ``api_tokens``.  Dates are epoch seconds, 0 = never."""

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
_FIND = Prepared(f"SELECT {_COLUMNS} FROM api_tokens WHERE token_hash = %s AND {_VALID}")
_OF = f"SELECT {_COLUMNS} FROM api_tokens WHERE {_VALID} AND (%s::text IS NULL OR token_user = %s) ORDER BY token_id"
_INSERT = """
    INSERT INTO api_tokens (token_user, token_hash, scope, comment, created, expires, proved, parent)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s) RETURNING token_id"""
_REVOKE = "UPDATE api_tokens SET revoked = %s WHERE revoked = 0 AND (token_id = ANY(%s) OR parent = ANY(%s))"
_FORGET = "DELETE FROM api_tokens WHERE token_user = %s AND expires <> 0 AND expires < %s"
#: Jobs that live, or ended a short time ago.
_LIVE = "SELECT job_id FROM jobs WHERE job_id = ANY(%s) AND (stop_time = 0 OR stop_time > %s)"
_REMEMBER = "INSERT INTO token_jobs (token_id, job_id) SELECT %s, unnest(%s::bigint[]) ON CONFLICT DO NOTHING"
_SUBMITTED = "SELECT job_id FROM token_jobs WHERE job_id = ANY(%s) AND token_id = %s"


class ApiTokens(Table):
    """Rows of ``api_tokens`` and ``token_jobs``."""

    def find(self, digest: str) -> ApiToken | None:
        """Return the token with a SHA-256 sum, None if there is none that is valid now."""
        row = self._tx.row(_FIND, (digest,))
        return ApiToken(*row) if row else None

    def insert(
        self, user: str, digest: str, *, scope: str, comment: str, expires: int, proved: int = 0, parent: int = 0
    ) -> int:
        """Store the sum of a new token; return its id."""
        self._changed(Topic.TOKENS)
        row = (user, digest, scope, comment, self._tx.now, expires, proved, parent)
        token_id: int = self._tx.value(_INSERT, row)
        return token_id

    def of(self, user: str | None) -> list[ApiToken]:
        """Return the valid tokens and sessions of a user, of all users for None."""
        return [ApiToken(*row) for row in self._tx.rows(_OF, (user, user))]

    def revoke(self, ids: Collection[int]) -> None:
        """Let tokens, and what was made with them, be valid no more."""
        self._changed(Topic.TOKENS)
        self._tx.execute(_REVOKE, (self._tx.now, list(ids), list(ids)))

    def forget(self, user: str, *, expired_before: int) -> None:
        """Remove the tokens of a user that expired long ago."""
        self._changed(Topic.TOKENS)
        self._tx.execute(_FORGET, (user, expired_before))

    def use(self, token_id: int, *, expires: int) -> None:
        """Write that a token was used, and when it expires now."""
        sql = "UPDATE api_tokens SET last_used = %s, expires = %s WHERE token_id = %s"
        self._tx.execute(sql, (self._tx.now, expires, token_id))

    def prove(self, token_id: int) -> None:
        """Write that its user has just given his password to it."""
        self._changed(Topic.TOKENS)
        self._tx.execute("UPDATE api_tokens SET proved = %s WHERE token_id = %s", (self._tx.now, token_id))

    def remember(self, token_id: int, jobs: Collection[int]) -> None:
        """Keep in mind that jobs were submitted by a token."""
        self._tx.execute(_REMEMBER, (token_id, list(jobs)))

    def submitted(self, token_id: int, jobs: Collection[int]) -> frozenset[int]:
        """Return those of some jobs that were submitted by a token."""
        return frozenset(self._tx.column(_SUBMITTED, (list(jobs), token_id)))

    def live(self, jobs: Collection[int], *, ended_since: int) -> frozenset[int]:
        """Return those of some jobs that live, or ended since a date."""
        return frozenset(self._tx.column(_LIVE, (list(jobs), ended_since)))
