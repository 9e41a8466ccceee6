"""The waiting time of jobs by reason (pure functions).

The scheduler stores the dates at which the reason of a waiting job changes; the state log contains the periods of
waiting. If the reason of a job changes often, the older changes are folded into one sum per reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from oar.lib.jobs.reason_codes import ReasonCode, WaitStage
from oar.lib.jobs.records import StateChange
from oar.lib.jobs.states import JobState

#: States whose time divides by reasons, and states of a job that is about to start.
BEFORE_ITS_START = frozenset({JobState.WAITING, JobState.TO_ACK_RESERVATION, JobState.TO_ERROR})
_STARTING = frozenset({JobState.TO_LAUNCH, JobState.LAUNCHING})


class WaitSum(NamedTuple):
    """The folded waiting time of a job for one reason."""

    since: int  #: when it waited for this reason first
    seconds: int


class Waits(NamedTuple):
    """The reasons for which a job waited: sums of older times, then the dated changes in chronological order.

    A code is a ``ReasonCode``, a ``WaitStage``, or the code of another version.
    """

    changes: Sequence[tuple[int, str]] = ()
    sums: Mapping[str, WaitSum] = MappingProxyType({})

    @property
    def summed_until(self) -> int:
        """The end of the period that the sums cover."""
        return self.changes[0][0] if self.sums and self.changes else 0


def divide_waiting_time(states: Sequence[StateChange], waits: Waits, now: int) -> dict[str, int]:
    """Return the waiting time of a job by reason code, in seconds, longest first."""
    seconds = {code: change.seconds for code, change in waits.sums.items()}
    for code, start, stop in _pieces(states, waits, now):
        seconds[code] = seconds.get(code, 0) + stop - start
    for change in states:
        if change.state is JobState.HOLD or change.state in _STARTING:
            code = ReasonCode.HOLD if change.state is JobState.HOLD else WaitStage.STARTING
            seconds[code] = seconds.get(code, 0) + (change.stop or now) - change.start
    longest = sorted(seconds.items(), key=lambda change: (-change[1], change[0]))
    return {code: length for code, length in longest if length > 0}


def fold_changes(states: Sequence[StateChange], waits: Waits, number: int) -> Waits:
    """Return the waits with only the last ``number`` changes; older changes are folded into the sums."""
    changes = waits.changes[-number:]
    until = changes[0][0]
    sums = dict(waits.sums)
    for code, start, stop in _pieces(states, waits, until):
        if start < min(stop, until):
            former = sums.get(code, WaitSum(start, 0))
            sums[code] = WaitSum(former.since, former.seconds + min(stop, until) - start)
    return Waits(changes, sums)


def _pieces(states: Sequence[StateChange], waits: Waits, now: int) -> Iterator[tuple[str, int, int]]:
    """Yield the periods of waiting after the sums, split at each change of the reason: code, start, stop."""
    for change in states:
        start, stop = max(change.start, waits.summed_until), change.stop or now
        if change.state in BEFORE_ITS_START and start < stop:
            yield from _cut(start, stop, waits.changes)


def _cut(start: int, stop: int, changes: Sequence[tuple[int, str]]) -> Iterator[tuple[str, int, int]]:
    before = [code for date, code in changes if date <= start]
    code = before[-1] if before and before[-1] != ReasonCode.HOLD else WaitStage.NEW
    for date, after in changes:
        if start < date < stop:
            yield code, start, date
            start, code = date, after
    yield code, start, stop
