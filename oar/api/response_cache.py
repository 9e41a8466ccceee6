"""Responses that are kept: while nothing in the database has changed, or for some time."""

import gzip
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from fastapi import Request, Response

from oar.api.responses import Answer, encoded, is_known, tag_of, validators
from oar.lib.facts import frames
from oar.lib.facts.errors import ServerUnavailable
from oar.lib.io import control

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class LastAsked(Generic[_Key, _Value]):
    """A value for each of the last keys; threads may share it."""

    def __init__(self, make: Callable[[], _Value], most: int) -> None:
        """``make``: makes the value of a new key; it takes no time.  ``most``: so many keys are kept."""
        self._make = make
        self._most = most
        self._kept: OrderedDict[_Key, _Value] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: _Key) -> _Value:
        """Return the value of a key; the key that was asked for longest ago may be forgotten."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = self._make()
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return self._kept[key]


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


#: Seconds for which a curve is told again, at least and at most.
FRESH, LONGEST_FRESH = 30.0, 3600.0
#: The part of a piece of time by which a curve may be old: nobody sees that a piece has grown by as much.  A curve of a
#: year takes seconds to make; its pieces are days.
OLD = 1 / 60
#: Curves that are kept: those of a year of density, and what others look at.
MOST_CURVES = 32
Record = Mapping[str, Any]


@dataclass
class _Curve:
    """A curve, and when it was made; who makes it holds the lock, who wants it waits."""

    record: Record | None = None
    made: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Curves:
    """The curves that were asked for last."""

    def __init__(self) -> None:
        self._kept = LastAsked[tuple[Hashable, ...], _Curve](_Curve, MOST_CURVES)

    def curve(self, key: tuple[Hashable, ...], make: Callable[[], Record], bucket: int = 0) -> Record:
        """Return a curve, made anew if it is older than it may be.

        ``key``: its kind, and all that it depends on.  ``bucket``: seconds of its pieces, if they are what is seen.
        """
        curve, fresh = self._kept.of(key), min(max(FRESH, bucket * OLD), LONGEST_FRESH)
        with curve.lock:
            if curve.record is None or time.monotonic() - curve.made > fresh:
                curve.record, curve.made = make(), time.monotonic()
            return curve.record


#: So many can be asked for.
MAX_PASSES = 500
#: Seconds given to the server, and for which its answer, or that there was none, is given again.
PATIENCE, KEPT_SECONDS = 0.5, 1.0


class LastRounds:
    """What the server has told, and when."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = float("-inf")
        self._found: frames.RoundsAnswer | None = None

    def find(self, config: "Config", number: int) -> Sequence[Mapping[str, Any]]:
        """Return what the server tells of so many rounds, the newest first.  Raises ServerUnavailable."""
        with self._lock:
            if time.monotonic() - self._asked > KEPT_SECONDS:
                found = control.ask(config, frames.RoundsQuestion(MAX_PASSES), frames.RoundsAnswer, PATIENCE)
                self._found = found if isinstance(found, frames.RoundsAnswer) else None
                self._asked = time.monotonic()
            if self._found is None:
                raise ServerUnavailable(f"the OAR server ({control.place(config)}) does not answer: ask again later")
            rounds: Sequence[Mapping[str, Any]] = self._found.state["rounds"]
            return rounds[:number]
