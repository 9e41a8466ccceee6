"""Where the time of a request goes: until somebody works on it, and in the database.  See docs/api.rst, "Records"."""

import time
from contextvars import ContextVar
from typing import Any

from oar.lib.db.sql.statements import psycopg2


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
        """Somebody begins to work on it; the second time nothing happens."""
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
