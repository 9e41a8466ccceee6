"""What a burst of transactions has changed, told to listeners together.

The first change after a pause is told at once, by who made it; what changes within the pause that follows is told at
its end.  So nobody hears later than that of a change, and a process that changes much tells it some times in a second.

See docs/design/locks.rst, "Notifications".
"""

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oar.lib.bus.topics import Topic

#: Seconds between two notifications about topics.
PAUSE = 0.05

#: Calls a function after so many seconds, in another thread.
Later = Callable[[float, Callable[[], None]], None]


def by_timer(seconds: float, function: Callable[[], None]) -> None:
    """Call a function later, unless this process has ended by then."""
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()


class GatheredTopics:
    """The topics that listeners are still to be told of; ``tell`` tells them."""

    def __init__(self, tell: "Callable[[Collection[Topic]], None]", later: Later = by_timer) -> None:
        self._tell = tell
        self._later = later
        self._mutex = threading.Lock()
        self._waiting: set[Topic] = set()
        self._is_pause = False

    def take(self, topics: "Collection[Topic]") -> bool:
        """Take topics, to be told at the end of the pause; return False if there is none: who calls tells them."""
        with self._mutex:
            if self._is_pause:
                self._waiting |= set(topics)
                return True
            self._is_pause = True
        self._later(PAUSE, self._end_pause)
        return False

    def settle(self) -> None:
        """Tell at once what waits for the end of the pause."""
        with self._mutex:
            topics, self._waiting = self._waiting, set()
        if topics:
            self._tell(topics)

    def _end_pause(self) -> None:
        with self._mutex:
            self._is_pause = bool(self._waiting)
            goes_on = self._is_pause
        if goes_on:
            self._later(PAUSE, self._end_pause)
            self.settle()
