"""Counts and durations of requests, for /metrics and the header Server-Timing, and the audit log."""

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.types import Scope

from oar.api.authentication import SAFE_METHODS, Caller
from oar.api.clients import Client
from oar.lib.db.statements import psycopg2
from oar.lib.monitoring.prometheus_text import HistogramFamily, MetricFamily

if TYPE_CHECKING:
    from oar.api.concurrency import FairPlaces


class Spent:
    """The seconds that one request has taken so far; threads that work for it add to them."""

    __slots__ = ("_begin", "database", "wait")

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self.wait: float | None = None  #: until a thread has begun with it
        self.database = 0.0

    @property
    def all(self) -> float:
        """All seconds until now."""
        return time.perf_counter() - self._begin

    def begin(self) -> None:
        """Record that a thread starts to handle the request; a second call does nothing."""
        if self.wait is None:
            self.wait = self.all

    @property
    def header(self) -> str:
        """The value of ``Server-Timing``."""
        return f"db;dur={1000 * self.database:.1f}, wait;dur={1000 * (self.wait or 0.0):.1f}"


#: Of the request that this thread, or this task, works for.
SPENT: ContextVar[Spent | None] = ContextVar("spent", default=None)


class TimedCursor(psycopg2.extensions.cursor):
    """A cursor that adds to the time of the request for which it runs a statement."""

    def execute(self, query: Any, parameters: Any = None) -> None:
        """Run a statement."""
        begin = time.perf_counter()
        try:
            super().execute(query, parameters)
        finally:
            if spent := SPENT.get():
                spent.database += time.perf_counter() - begin


_log = logging.getLogger(__name__)

#: Upper bounds of the histogram buckets, in seconds.
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
#: The route label of older addresses, and of unknown ones.
_OLDER, _NONE = "older", "none"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestCounts:
    """Counters and durations of requests."""

    def __init__(self, threads: "FairPlaces") -> None:
        """``threads``: the threads that handle requests."""
        self._numbers: Counter[tuple[str, ...]] = Counter()
        self._times = HistogramFamily(
            "oar_api_request_seconds", "How long it took until an answer began.", _BOUNDS, "route"
        )
        self._database = HistogramFamily(
            "oar_database_seconds", "How long a request took in the database.", _BOUNDS, "call"
        )
        self._threads = threads

    def count(self, scope: Scope, status: int, spent: Spent) -> None:
        """Count a request whose response starts; log it if it is a change."""
        route, method = _route_of(scope, status), scope["method"]
        self._numbers[route, method if method in _METHODS else "other", str(status)] += 1
        self._times.add(spent.all, route)
        self._database.add(spent.database, route)
        if method not in SAFE_METHODS:
            _write_down(scope, status)

    @property
    def threads_busy(self) -> int:
        """The number of threads that handle requests."""
        return self._threads.busy

    def families(self) -> Iterator[MetricFamily]:
        """Yield the counters."""
        rows = [(labels, float(number)) for labels, number in sorted(self._numbers.copy().items())]
        labels = ("route", "method", "status")
        yield MetricFamily("oar_api_requests_total", "Requests.", labels, rows, "counter")
        busy = [((), float(self.threads_busy))]
        yield MetricFamily("oar_api_threads_busy", "Threads that answer requests.", (), busy)

    def histograms(self) -> tuple[HistogramFamily, ...]:
        """Return how long requests took, and the database for them."""
        return self._times, self._database


def _route_of(scope: Scope, status: int) -> str:
    """Return the route of a request as in the OpenAPI document, never text of the client."""
    operation = scope.get("operation")
    if operation is not None:
        return str(operation.path)
    return _NONE if status == HTTPStatus.NOT_FOUND else _OLDER


def _write_down(scope: Scope, status: int) -> None:
    state = scope["state"]
    caller, client = state.get("caller", Caller()), state.get("client", Client())
    _log.info(
        "[audit] request=%s user=%s way=%s token=%s peer=%s client=%s %s %s %s",
        *(state["request_id"], caller.user.name if caller.user else "-", caller.way, caller.token or "-"),
        *(client.peer, client.address or "-", scope["method"], _written(scope), status),
    )


def _written(scope: Scope) -> str:
    """Return the path of a request as received, which cannot contain a line break."""
    raw: bytes = scope.get("raw_path") or b""
    return raw.decode("ascii", "replace")
