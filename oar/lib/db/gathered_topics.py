"""Combine the notifications about a burst of transactions.

The transaction of the first change after a pause notifies at once. A pause follows; changes within it are notified at
its end. So a notification is never later than the end of the pause, and a process with many changes sends only some
notifications per second.

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
    """The topics of the next notification. ``tell`` sends it."""

    def __init__(self, tell: "Callable[[Collection[Topic]], None]", later: Later = by_timer) -> None:
        self._tell = tell
        self._later = later
        self._mutex = threading.Lock()
        self._waiting: set[Topic] = set()
        self._is_pause = False

    def take(self, topics: "Collection[Topic]") -> bool:
        """Add topics to the notification at the end of the pause.

        Return False if there is no pause: the caller must notify.
        """
        with self._mutex:
            if self._is_pause:
                self._waiting |= set(topics)
                return True
            self._is_pause = True
        self._later(PAUSE, self._end_pause)
        return False

    def settle(self) -> None:
        """Send the waiting notification now."""
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
