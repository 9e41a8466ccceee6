"""The cache of what many clients request at the same time: one value for each question, computed once for all.

A question names all that its value depends on, besides the state of the database and the time: never the caller.  A
value is valid while nothing in the database has changed, or for some seconds.
"""

import gzip
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fastapi import Request, Response

from oar.api.responses import Answer, encoded, is_known, tag_of, validators

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

Record = Mapping[str, Any]
Value = TypeVar("Value")

#: Questions whose values are kept: the last ones.
MAX_QUESTIONS = 32


@dataclass
class _Entry:
    """A value, and when it was computed; the thread that computes it holds the lock, others wait."""

    value: Any = None
    computed: float | None = None  #: by the monotonic clock
    instant: str = ""  #: of the database
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Body(NamedTuple):
    """The body of a response, plain and compressed, and its tag."""

    plain: bytes
    compressed: bytes
    tag: str

    @classmethod
    def of(cls, record: Record) -> "_Body":
        plain = encoded(record)
        return cls(plain, gzip.compress(plain, 1, mtime=0), tag_of(plain))


class Cache:
    """The values of the last questions."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def recent(self, question: Hashable, compute: Callable[[], Value], seconds: float) -> Value:
        """Return the value of a question, computed again if it is older than ``seconds``."""
        entry = self._entry(question)
        with entry.lock:
            if entry.computed is None or time.monotonic() - entry.computed > seconds:
                entry.value = compute()
                entry.computed = time.monotonic()
            value: Value = entry.value
            return value

    def current(
        self, request: Request, database: "Database", question: Hashable, compute: "Callable[[Transaction], Record]"
    ) -> Answer:
        """Return the response with a record, which is computed again if anything in the database has changed.

        304 for a client that has the current version.
        """
        entry = self._entry(question)
        with entry.lock, database.snapshot() as tx:
            instant = tx.history.instant()
            if entry.value is None or entry.instant != instant:
                entry.value, entry.instant = _Body.of(compute(tx)), instant
            body: _Body = entry.value
        headers = {**validators(body.tag), "Vary": "Accept-Encoding"}
        if is_known(request, body.tag):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(body.plain, HTTPStatus.OK, headers, "application/json")
        return Response(body.compressed, HTTPStatus.OK, {**headers, "Content-Encoding": "gzip"}, "application/json")

    def _entry(self, question: Hashable) -> _Entry:
        with self._lock:
            entry = self._entries.setdefault(question, _Entry())
            self._entries.move_to_end(question)
            while len(self._entries) > MAX_QUESTIONS:
                self._entries.popitem(last=False)
            return entry
