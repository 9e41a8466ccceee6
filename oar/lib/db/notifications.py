"""Notifications of the listeners of the database, after a commit.

See docs/design/locks.rst, "Notifications".
"""

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from oar.lib.bus.messages import Channel

if TYPE_CHECKING:
    from oar.lib.bus.messages import Topic

#: A payload has less than 8000 bytes; an id has ten digits at most.
_IDS_IN_PAYLOAD = 500


def notification(topics: Iterable[str], ended: Iterable[int]) -> str:
    """Return the transaction that notifies listeners of topics and of ended jobs."""
    ids = [str(job_id) for job_id in sorted(ended)]
    pieces = (ids[begin : begin + _IDS_IN_PAYLOAD] for begin in range(0, len(ids), _IDS_IN_PAYLOAD))
    payloads = [(Channel.EVENT, topic) for topic in sorted(topics)]
    payloads += [(Channel.JOB_END, " ".join(piece)) for piece in pieces]
    notices = "".join(f"NOTIFY {channel}, '{payload}'; " for channel, payload in payloads)
    return f"BEGIN; SET LOCAL synchronous_commit TO off; {notices}COMMIT"


#: Seconds between two notifications about topics.
PAUSE = 0.05

#: Calls a function after so many seconds, in another thread.
Later = Callable[[float, Callable[[], None]], None]


def by_timer(seconds: float, function: Callable[[], None]) -> None:
    """Call a function later, unless this process has ended by then."""
    import threading  # commands, which notify too, do not load it

    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()


class GatheredTopics:
    """Combine the notifications about a burst of transactions: the topics of the next one. ``tell`` sends it.

    The transaction of the first change after a pause notifies at once. A pause follows; changes within it are notified
    at its end. So a notification is never later than the end of the pause, and a process with many changes sends only
    some notifications per second.
    """

    def __init__(self, tell: "Callable[[Collection[Topic]], None]", later: Later = by_timer) -> None:
        import threading

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
