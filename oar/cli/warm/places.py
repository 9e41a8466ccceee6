"""Which process answers whom: pure decisions of the command server."""

from dataclasses import dataclass

#: A user has so large a part of the processes.
PART_OF_ONE = 4
#: Processes that have answered nobody yet and wait, at most.
FRESH = 2
#: Seconds that a process waits for another request of its user.
LONGEST_IDLE = 5.0
#: Who waits for processes all of which are busy for longer than this, in seconds, is told so at once.
LONG_BUSY = 1.0


@dataclass(slots=True)
class Process:
    """A process that answers."""

    uid: int | None = None  #: whose it is; None: it is fresh
    is_ready: bool = False
    is_ending: bool = False  #: it gets nothing more
    is_new: bool = True  #: it has never been ready
    since: float = 0.0  #: when it became busy or ready


class Places:
    """The processes, at most so many, by their numbers."""

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.processes: dict[int, Process] = {}

    @property
    def of_one(self) -> int:
        """How many of them one user may have."""
        return max(1, self.most // PART_OF_ONE)

    def add(self, number: int, now: float) -> None:
        """A process was made."""
        self.processes[number] = Process(since=now)

    def ready(self, number: int, now: float) -> bool:
        """A process can answer; return whether it may."""
        process = self.processes[number]
        process.is_ready, process.is_new, process.since = not process.is_ending, False, now
        return process.is_ready

    def gone(self, number: int) -> None:
        """A process has ended."""
        del self.processes[number]

    def take(self, uid: int, now: float) -> int | None:
        """Let a process be busy for a user: one of his own, else a fresh one; None if there is none for him now."""
        chosen = self._idle(uid)
        if chosen is None and self._count(uid) < self.of_one:
            chosen = self._idle(None)
        if chosen is not None:
            process = self.processes[chosen]
            process.uid, process.is_ready, process.since = uid, False, now
        return chosen

    def is_hopeless(self, uid: int, now: float) -> bool:
        """Whether who waits for a process would wait for long."""
        own = [each for each in self.processes.values() if each.uid == uid]
        of_others = [each for each in self.processes.values() if each.uid is not None]
        return (len(own) >= self.of_one and _are_long_busy(own, now)) or (
            len(of_others) >= self.most and _are_long_busy(of_others, now)
        )

    def wanted(self, waiting: int) -> int:
        """Return how many processes to make, when so many users wait."""
        fresh = sum(1 for each in self.processes.values() if each.uid is None and not each.is_ending)
        return max(0, min(max(FRESH, waiting) - fresh, self.most - len(self.processes)))

    def ending(self, now: float, *, waiting: bool) -> list[int]:
        """Return the processes that are to end: those that nobody needs, and one of them if somebody else waits."""
        idle = [each for each in self.processes.items() if each[1].is_ready and each[1].uid is not None]
        idle.sort(key=lambda each: each[1].since)
        old = [number for number, process in idle if now - process.since > LONGEST_IDLE]
        if not old and idle and waiting and len(self.processes) >= self.most:
            old = [idle[0][0]]
        return self._end(old)

    def renew(self) -> list[int]:
        """Return the processes that are to end because all are to be made anew; busy ones end later."""
        for process in self.processes.values():
            process.is_ending = process.is_ending or not process.is_ready
        return self._end([number for number, process in self.processes.items() if process.is_ready])

    def _end(self, numbers: list[int]) -> list[int]:
        for number in numbers:
            self.processes[number].is_ready, self.processes[number].is_ending = False, True
        return numbers

    def _idle(self, uid: int | None) -> int | None:
        for number, process in self.processes.items():
            if process.is_ready and process.uid == uid:
                return number
        return None

    def _count(self, uid: int) -> int:
        return sum(1 for each in self.processes.values() if each.uid == uid)


def _are_long_busy(processes: list[Process], now: float) -> bool:
    return all(not each.is_ready and now - each.since > LONG_BUSY for each in processes)
