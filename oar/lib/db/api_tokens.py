"""Tokens of the API (``tx.api_tokens``): their sums, never themselves."""

from collections.abc import Collection
from typing import NamedTuple

from oar.lib.db.statements import Table
from oar.lib.facts.topics import Topic


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


_COLUMNS = "token_id, token_user, scope, comment, created, expires, last_used, revoked"
_FIND = f"""
    SELECT {_COLUMNS} FROM api_tokens
    WHERE token_hash = %s AND revoked = 0 AND (expires = 0 OR expires > %s)"""
_OF = f"SELECT {_COLUMNS} FROM api_tokens WHERE revoked = 0 AND (%s::text IS NULL OR token_user = %s) ORDER BY token_id"
_INSERT = """
    INSERT INTO api_tokens (token_user, token_hash, scope, comment, created, expires)
    VALUES (%s, %s, %s, %s, %s, %s) RETURNING token_id"""
_REMEMBER = "INSERT INTO token_jobs (token_id, job_id) SELECT %s, unnest(%s::bigint[]) ON CONFLICT DO NOTHING"
_SUBMITTED = "SELECT job_id FROM token_jobs WHERE job_id = ANY(%s) AND token_id = %s"


class ApiTokens(Table):
    """Rows of ``api_tokens`` and ``token_jobs``."""

    def find(self, digest: str) -> ApiToken | None:
        """Return the token with a SHA-256 sum, None if there is none that is valid now."""
        row = self._tx.row(_FIND, (digest, self._tx.now))
        return ApiToken(*row) if row else None

    def insert(self, user: str, digest: str, *, scope: str, comment: str, expires: int) -> int:
        """Store the sum of a new token; return its id."""
        self._changed(Topic.TOKENS)
        token_id: int = self._tx.value(_INSERT, (user, digest, scope, comment, self._tx.now, expires))
        return token_id

    def of(self, user: str | None) -> list[ApiToken]:
        """Return the tokens of a user, of all for None, that are not revoked."""
        return [ApiToken(*row) for row in self._tx.rows(_OF, (user, user))]

    def revoke(self, ids: list[int]) -> None:
        """Let tokens be valid no more."""
        self._changed(Topic.TOKENS)
        self._tx.execute("UPDATE api_tokens SET revoked = %s WHERE token_id = ANY(%s)", (self._tx.now, ids))

    def remember(self, token_id: int, jobs: Collection[int]) -> None:
        """Keep in mind that jobs were submitted by a token."""
        self._tx.execute(_REMEMBER, (token_id, list(jobs)))

    def submitted(self, token_id: int, jobs: Collection[int]) -> frozenset[int]:
        """Return those of some jobs that were submitted by a token."""
        return frozenset(self._tx.column(_SUBMITTED, (list(jobs), token_id)))
