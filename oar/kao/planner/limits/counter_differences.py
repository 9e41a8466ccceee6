"""The jobs counted by limits in the last round and in this round, compared while this round is planned.

In both rounds jobs are only added.
"""

from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple


class CountedJob(NamedTuple):
    """A job as counted by a limit (quotas, arrays)."""

    job_id: int
    start: int
    end: int
    amount: int
    counters: tuple[Hashable, ...]


class CounterDifferences:
    """The counters that have counted fewer or more jobs than at the same position of the last round."""

    def __init__(self, now: int, last_log: Sequence[CountedJob], log: Sequence[CountedJob]) -> None:
        """``log``: the jobs counted in this round; it grows while the round is planned."""
        self._now = now
        self._last_log, self._log = last_log, log
        self._last_position = self._position = 0  #: so much of each log has been compared
        self._only_last: dict[int, CountedJob] = {}
        self._only_this: dict[int, CountedJob] = {}
        self._less: dict[Hashable, int] = {}  #: counter -> number of jobs that it lacks
        self._more: dict[Hashable, int] = {}  #: counter -> number of jobs that it has in addition

    def advance(self, last_position: int) -> None:
        """Compare the first ``last_position`` jobs of the last log with all jobs counted in this round so far."""
        last_log, log = self._last_log, self._log
        last, this = self._last_position, self._position
        while last < last_position and this < len(log) and last_log[last] == log[this]:
            last, this = last + 1, this + 1
        for counted in last_log[last:last_position]:
            if counted.end > self._now:
                self._enter_last(counted)
        for counted in log[this:]:
            self._enter_this(counted)
        self._last_position, self._position = max(last_position, self._last_position), len(log)

    def has_less(self, counters: Collection[Hashable]) -> bool:
        """Return whether a counter lacks a job that it had counted in the last round."""
        return bool(self._less) and any(self._less.get(counter) for counter in counters)

    def has_more(self, counters: Collection[Hashable]) -> bool:
        """Return whether a counter has counted a job that it had not counted in the last round."""
        return bool(self._more) and any(self._more.get(counter) for counter in counters)

    def _enter_last(self, counted: CountedJob) -> None:
        new = self._only_this.pop(counted.job_id, None)
        if new:
            _add(self._more, new, -1)
            self._compare(counted, new)
        else:
            self._only_last[counted.job_id] = counted
            _add(self._less, counted, 1)

    def _enter_this(self, counted: CountedJob) -> None:
        old = self._only_last.pop(counted.job_id, None)
        if old:
            _add(self._less, old, -1)
            self._compare(old, counted)
        else:
            self._only_this[counted.job_id] = counted
            _add(self._more, counted, 1)

    def _compare(self, old: CountedJob, new: CountedJob) -> None:
        """Compare the two counts of one job and record whether this round counts less or more."""
        covers_old = (
            old.counters == new.counters
            and old.amount <= new.amount
            and max(old.start, self._now) >= max(new.start, self._now)
            and old.end <= new.end
        )
        if not covers_old:
            _add(self._less, old, 1)
        if old != new:
            _add(self._more, new, 1)


def _add(numbers: dict[Hashable, int], counted: CountedJob, number: int) -> None:
    for counter in counted.counters:
        numbers[counter] = numbers.get(counter, 0) + number
