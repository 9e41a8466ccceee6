"""Which process answers whose request: pure decisions of the command server.

A process answers anybody until code of the site has run in it; from then on it answers the user of that request alone.
A process is held while its client lets it wait: it uses next to no processor time, so it takes no place from others.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

#: A user has at most this part of the processes at a time.
PART_OF_ONE = 4
#: Processes that are kept ready for anybody.
SPARE = 2
#: Maximum number of processes, held ones included, as a multiple of the working ones.
HELD_FACTOR = 2
#: A process that uses less than this part of a processor is held: its client reads its output slowly, or not at all.
CRAWLING = 0.05
#: Seconds that an idle process waits for a request: of its user, of anybody.
LONGEST_IDLE_OWN, LONGEST_IDLE = 5.0, 30.0


@dataclass(slots=True)
class Process:
    """A process that answers."""

    owner: int | None = None  #: the user whom alone it answers; None: anybody
    client: int | None = None  #: the user whose request it carries out
    is_ready: bool = False
    is_ending: bool = False  #: it gets no more requests
    is_new: bool = True  #: it has never been ready
    is_held: bool = False  #: its client lets it wait
    since: float = 0.0  #: when it became busy or ready


class QueuedRequest(NamedTuple):
    """A request that waits for a process."""

    number: int
    uid: int


def crawls(processor_seconds: float, seconds: float) -> bool:
    """Return whether a process has used next to no processor time in a period.

    >>> crawls(0.01, 1.0), crawls(0.0, 1.0), crawls(0.2, 1.0), crawls(0.04, 0.5)
    (True, True, False, False)
    """
    return processor_seconds < CRAWLING * seconds


class Places:
    """The processes, by their numbers; at most ``most`` work at a time."""

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.processes: dict[int, Process] = {}

    @property
    def of_one(self) -> int:
        """The number of requests of one user that are carried out at a time."""
        return max(1, self.most // PART_OF_ONE)

    @property
    def _all(self) -> Collection[Process]:
        return self.processes.values()

    def add(self, number: int, now: float) -> None:
        """Record a new process."""
        self.processes[number] = Process(since=now)

    def ready(self, number: int, now: float, *, is_owned: bool = False) -> bool:
        """Record that a process can answer; return whether it gets another request.

        ``is_owned``: from now on it answers only the user whom it has just answered.
        """
        process = self.processes[number]
        process.is_ready, process.is_new, process.is_held = not process.is_ending, False, False
        process.since = now
        if is_owned:
            process.owner = process.client
        process.client = None
        return process.is_ready

    def gone(self, number: int) -> None:
        """Forget a process that has ended."""
        del self.processes[number]

    def assign(self, queue: Iterable[QueuedRequest], now: float) -> Iterator[tuple[QueuedRequest, int]]:
        """Assign queued requests to processes: users with the fewest busy processes first, then the oldest."""
        busy = self._count_busy()
        room = self.most - sum(process.client is not None and not process.is_held for process in self._all)
        ranked: list[tuple[int, int, QueuedRequest]] = []
        position = Counter(busy)
        for age, request in enumerate(queue):
            ranked.append((position[request.uid], age, request))
            position[request.uid] += 1
        for rank, _, request in sorted(ranked):
            if room <= 0 or not any(process.is_ready for process in self._all):
                return
            process = self._take(request.uid, now) if rank < self.of_one else None
            if process is not None:
                room -= 1
                yield request, process

    def count_entitled(self, queue: Iterable[QueuedRequest]) -> int:
        """Return how many queued requests only wait for a process, not for other requests of their user."""
        busy, queued = self._count_busy(), Counter(request.uid for request in queue)
        return sum(max(0, min(number, self.of_one - busy[uid])) for uid, number in queued.items())

    def is_hopeless(self, uid: int) -> bool:
        """Return whether a request of this user waits for nothing but processes that are held by their clients."""
        own = [process for process in self._all if process.client == uid]
        if len(own) >= self.of_one:
            return all(process.is_held for process in own)
        held = sum(process.is_held for process in self._all)
        return held >= self.most * HELD_FACTOR

    def wanted(self, entitled: int) -> int:
        """Return how many processes to start when this many requests are entitled to one."""
        new = sum(process.is_new for process in self._all)
        idle = sum(process.is_ready and process.owner is None for process in self._all)
        missing = max(entitled, SPARE - idle) - new
        return max(0, min(missing, self.most - self._count_working(), self.most * HELD_FACTOR - len(self.processes)))

    def ending(self, now: float, *, entitled: int) -> list[int]:
        """Return the processes to end: those idle for long, and one that answers a single user if others wait."""
        own = [number for number, process in self._idle() if process.owner is not None]
        old = [number for number in own if now - self.processes[number].since > LONGEST_IDLE_OWN]
        shared = [number for number, process in self._idle() if process.owner is None]
        old += [number for number in shared[: -SPARE or None] if now - self.processes[number].since > LONGEST_IDLE]
        if not old and own and entitled and self._count_working() >= self.most:
            old = own[:1]
        return self._end(old)

    def renew(self) -> list[int]:
        """Return the idle processes to terminate; busy ones end after their request."""
        for process in self._all:
            process.is_ending = process.is_ending or not process.is_ready
        return self._end([number for number, process in self.processes.items() if process.is_ready])

    def busy_since(self, date: float) -> list[int]:
        """Return the processes that have been busy since before a date."""
        busy = ((number, process) for number, process in self.processes.items() if process.client is not None)
        return [number for number, process in busy if process.since < date]

    def mark_held(self, numbers: Collection[int]) -> None:
        """Record which processes are held by their clients, and that all others are not."""
        for number, process in self.processes.items():
            process.is_held = number in numbers

    def _take(self, uid: int, now: float) -> int | None:
        """Assign an idle process to a user: one of this user, else the last used one."""
        idle = self._idle()
        own = [number for number, process in idle if process.owner == uid]
        chosen = next(reversed(own or [number for number, process in idle if process.owner is None]), None)
        if chosen is not None:
            process = self.processes[chosen]
            process.client, process.is_ready, process.since = uid, False, now
        return chosen

    def _idle(self) -> list[tuple[int, Process]]:
        """Return the idle processes, the longest idle first."""
        return sorted(
            ((number, process) for number, process in self.processes.items() if process.is_ready),
            key=lambda pair: pair[1].since,
        )

    def _end(self, numbers: list[int]) -> list[int]:
        for number in numbers:
            self.processes[number].is_ready, self.processes[number].is_ending = False, True
        return numbers

    def _count_busy(self) -> Counter[int]:
        return Counter(process.client for process in self._all if process.client is not None)

    def _count_working(self) -> int:
        """Return the number of processes that are not held by their clients."""
        return sum(not process.is_held for process in self._all)
