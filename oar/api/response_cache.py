"""Answers that are told again while nothing in the database has changed: many pages ask for the same ones at once."""

import gzip
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi import Request, Response

from oar.api.responses import Answer, encoded, is_known, tag_of, validators
from oar.api.serving.last_asked import LastAsked

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

Make = Callable[["Transaction"], Mapping[str, Any]]

#: Answers that are kept.
MOST_ANSWERS = 16


class Told(NamedTuple):
    """An answer as it is sent."""

    body: bytes
    packed: bytes
    tag: str


@dataclass
class _Kept:
    """An answer, and what the database was like when it was made; who makes it holds the lock, who wants it waits."""

    instant: str = ""
    told: Told | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class UnchangedAnswers:
    """The answers that were asked for last, none of which depends on who asks, or on the time."""

    def __init__(self) -> None:
        self._kept = LastAsked[str, _Kept](_Kept, MOST_ANSWERS)

    def answer(self, request: Request, database: "Database", key: str, make: Make) -> Answer:
        """Return an answer, made anew if anything has been written since; 304 to a client that names its tag."""
        told = self._told(database, key, make)
        headers = {**validators(told.tag), "Vary": "Accept-Encoding"}
        if is_known(request, told.tag):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(told.body, HTTPStatus.OK, headers, "application/json")
        return Response(told.packed, HTTPStatus.OK, {**headers, "Content-Encoding": "gzip"}, "application/json")

    def _told(self, database: "Database", key: str, make: Make) -> Told:
        kept = self._kept.of(key)
        with kept.lock, database.snapshot() as tx:
            instant = tx.history.instant()
            if kept.told is None or kept.instant != instant:
                kept.told, kept.instant = _told(make(tx)), instant
            return kept.told


def _told(record: Mapping[str, Any]) -> Told:
    body = encoded(record)
    return Told(body, gzip.compress(body, 1, mtime=0), tag_of(body))
