"""Requests that are carried out once, however often they come: each has a key of its own.

The key is stored in the transaction of what is asked, with the answer.  Who comes with the same key waits for the end
of that transaction, and gets the same answer; so does who comes again because the first answer was lost.
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
    """The request was carried out before; ``answer`` is what was answered."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__()
        self.answer = answer


class Once(NamedTuple):
    """A request with a key: what makes it the same one."""

    user: str
    key: str  #: its sum
    request: str  #: the sum of what is asked

    @classmethod
    def of(cls, user: str, key: str, request: str) -> "Once":
        """Return the request of a user with a key; ``request``: all of it that matters, as a text."""
        return cls(user, _sum(key), _sum(request))

    def begin(self, tx: "Transaction", hours: int) -> None:
        """Take the key, in the transaction of what is asked; ``hours``: how long keys are kept.

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
        """Keep the answer with the key."""
        tx.new_jobs.store_answer(self.user, self.key, json.dumps(answer))


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
