"""Idempotent requests: a request with a key is carried out once, even if the client sends it several times.

The key is stored with the response, in the transaction of the request.  A second request with the same key waits for
the end of this transaction and gets the same response.  A client that lost the response can therefore repeat the
request.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.base.errors import UserError

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Old keys that go with each new one.
_MOST_FORGOTTEN = 100
_HOUR = 3600
#: The header of an answer that was given before.
REPLAYED: Mapping[str, str] = {"Idempotency-Replayed": "true"}


class KeyReused(UserError):
    """The key belongs to another request."""


class AlreadyDone(Exception):
    """The request was already carried out; ``answer`` is the stored response."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__()
        self.answer = answer


class Once(NamedTuple):
    """A request with a key: user, key and content identify it."""

    user: str
    key: str  #: its sum
    request: str  #: the sum of its operation and its body

    @classmethod
    def of(cls, user: str, key: str, operation: str, body: object = None) -> "Once":
        """Return the request of a user with a key; ``body``: what the client sent, as parsed from JSON.

        The sum does not depend on blanks, on the order of keys, or on fields that the client left out: a client may
        repeat a request after an upgrade that adds fields.
        """
        return cls(user, _sum(key), _sum(json.dumps([operation, body], sort_keys=True, separators=(",", ":"))))

    def begin(self, tx: "Transaction", hours: int) -> None:
        """Claim the key in the transaction of the request; ``hours``: how long keys are kept.

        Raises AlreadyDone, KeyReused.
        """
        tx.new_jobs.forget_keys(tx.now - hours * _HOUR, _MOST_FORGOTTEN)
        former = tx.new_jobs.claim_key(self.user, self.key, self.request)
        if former is None:
            return
        if former.request != self.request:
            raise KeyReused("this key belongs to another request: take a new one for each new request")
        raise AlreadyDone(json.loads(former.answer))

    def end(self, tx: "Transaction", answer: Mapping[str, Any]) -> None:
        """Store the response with the key."""
        tx.new_jobs.store_answer(self.user, self.key, json.dumps(answer))


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
