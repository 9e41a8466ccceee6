"""The time limit of searches for advance reservations in a round."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds in all.  What is not searched for in that time is searched for in the next round, before all that came later.
SEARCH_SECONDS = 2.0


class NoTimeLeft(Exception):
    """A search was stopped: there is no time left for it in this round."""


class SearchClock:
    """Limits the total time of searches; the first search of each kind always completes.

    So each round decides at least one search of each kind.  A round that is planned twice uses one clock for both
    plans.
    """

    def __init__(self, now: Callable[[], float] = lambda: 0.0, seconds: float = SEARCH_SECONDS) -> None:
        """``now``: returns the time in seconds; with the default, no time passes."""
        self._now = now
        self._left = seconds
        self._settled: set[str] = set()  #: kinds of which one search went to its end
        self._is_first = False  #: the present search goes to its end
        self._since = 0.0
        self.left_over: set[int] = set()  #: ids of the reservations that wait for the next round

    @property
    def is_over(self) -> bool:
        """Return whether the time has run out."""
        return self._left <= 0

    @contextmanager
    def searching(self, kind: str) -> Iterator[None]:
        """Count the time of a search.  Raises NoTimeLeft, also in ``check`` during the search."""
        if self.is_over and kind in self._settled:
            raise NoTimeLeft
        self._is_first = kind not in self._settled
        self._settled.add(kind)
        self._since = self._now()
        try:
            yield
        finally:
            self._count()

    def check(self) -> None:
        """Raise NoTimeLeft if the time has run out and the current search is not the first of its kind."""
        self._count()
        if self.is_over and not self._is_first:
            raise NoTimeLeft

    def _count(self) -> None:
        now = self._now()
        self._left -= now - self._since
        self._since = now
