"""Requests that carry a key, so that they may be repeated (``tx.submission_keys``): what was answered to each."""

from typing import NamedTuple

from oar.lib.db.statements import Table


class KeyedRequest(NamedTuple):
    """A request with a key that was carried out, a row of ``submission_keys``."""

    request: str  #: sum of what was asked
    answer: str  #: what was answered, JSON


#: Waits for the end of a transaction that has the same key.
_CLAIM = """
    INSERT INTO submission_keys (key_user, key_hash, request_hash, created) VALUES (%s, %s, %s, %s)
    ON CONFLICT DO NOTHING RETURNING created"""
_FIND = "SELECT request_hash, answer FROM submission_keys WHERE key_user = %s AND key_hash = %s"
_ANSWER = "UPDATE submission_keys SET answer = %s WHERE key_user = %s AND key_hash = %s"
_FORGET = """
    DELETE FROM submission_keys WHERE (key_user, key_hash) IN (
        SELECT key_user, key_hash FROM submission_keys WHERE created < %s
        ORDER BY created LIMIT %s FOR UPDATE SKIP LOCKED)"""


class SubmissionKeys(Table):
    """Rows of ``submission_keys``."""

    def claim(self, user: str, key: str, request: str) -> KeyedRequest | None:
        """Take a key for a request; return the request that had it before, if there is one.

        ``key``, ``request``: their sums.
        """
        if self._tx.value(_CLAIM, (user, key, request, self._tx.now)) is not None:
            return None
        row = self._tx.row(_FIND, (user, key))
        return KeyedRequest(*row) if row else None

    def answer(self, user: str, key: str, text: str) -> None:
        """Keep what is answered to the request that has a key."""
        self._tx.execute(_ANSWER, (text, user, key))

    def forget(self, before: int, limit: int) -> None:
        """Forget so many of the keys that are older than a date."""
        self._tx.execute(_FORGET, (before, limit))
