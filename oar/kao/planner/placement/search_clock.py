"""The time that searches for advance reservations may take in a round."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds in all.  What is not searched for in that time is searched for in the next round, before all that came later.
SEARCH_SECONDS = 2.0


class NoTimeLeft(Exception):
    """A search was given up: there is no time left for it in this round."""


class SearchClock:
    """Counts the time of searches; the first one of each kind goes on to its end, so that each round settles one.

    A round that is planned twice has one clock for both.
    """

    def __init__(self, now: Callable[[], float] = lambda: 0.0, seconds: float = SEARCH_SECONDS) -> None:
        """``now``: the date in seconds; the default never moves."""
        self._now = now
        self._left = seconds
        self._settled: set[str] = set()  #: kinds of which one search went to its end
        self._is_first = False  #: the present search goes to its end
        self._since = 0.0
        self.left_over: set[int] = set()  #: ids of the reservations that wait for the next round

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self._left <= 0

    @contextmanager
    def searching(self, kind: str) -> Iterator[None]:
        """Count the time of a search.  Raises NoTimeLeft, also from within by ``check``."""
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
        """Raise NoTimeLeft if the time is over and the present search is not the first one of its kind."""
        self._count()
        if self.is_over and not self._is_first:
            raise NoTimeLeft

    def _count(self) -> None:
        now = self._now()
        self._left -= now - self._since
        self._since = now
