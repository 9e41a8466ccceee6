"""How the time before the start of a job divides: pure.

The scheduler notes when the reason for which a job waits changes; the log of states tells when it waited at all.  Of a
job whose reason changes again and again the older changes are folded into one sum for each reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from oar.lib.model import StateChange
from oar.lib.states import JobState

#: States in which the time divides by reasons, and in which a job is about to begin.
BEFORE_ITS_START = frozenset({JobState.WAITING, JobState.TO_ACK_RESERVATION, JobState.TO_ERROR})
_STARTING = frozenset({JobState.TO_LAUNCH, JobState.LAUNCHING})


class Sum(NamedTuple):
    """The time for which a job waited for one reason, in stretches that are not kept one by one."""

    since: int  #: when the first of them began
    seconds: int


class Waits(NamedTuple):
    """What a job waited for: sums, and after them each change with its date, in order of time."""

    changes: Sequence[tuple[int, str]] = ()
    sums: Mapping[str, Sum] = MappingProxyType({})

    @property
    def summed_until(self) -> int:
        """Up to when the sums reach."""
        return self.changes[0][0] if self.sums and self.changes else 0


def divided(states: Sequence[StateChange], waits: Waits, now: int) -> dict[str, int]:
    """Return how the time before the start of a job divides: seconds by code, the longest first."""
    seconds = {code: each.seconds for code, each in waits.sums.items()}
    for code, start, stop in _pieces(states, waits, now):
        seconds[code] = seconds.get(code, 0) + stop - start
    for each in states:
        if each.state is JobState.HOLD or each.state in _STARTING:
            code = "HOLD" if each.state is JobState.HOLD else "STARTING"
            seconds[code] = seconds.get(code, 0) + (each.stop or now) - each.start
    longest = sorted(seconds.items(), key=lambda each: (-each[1], each[0]))
    return {code: length for code, length in longest if length > 0}


def folded(states: Sequence[StateChange], waits: Waits, kept: int) -> Waits:
    """Return the same with the last ``kept`` changes alone; what was before them is in the sums."""
    changes = waits.changes[-kept:]
    until = changes[0][0]
    sums = dict(waits.sums)
    for code, start, stop in _pieces(states, waits, until):
        if start < min(stop, until):
            known = sums.get(code, Sum(start, 0))
            sums[code] = Sum(known.since, known.seconds + min(stop, until) - start)
    return Waits(changes, sums)


def _pieces(states: Sequence[StateChange], waits: Waits, now: int) -> Iterator[tuple[str, int, int]]:
    """Cut the times of waiting that are not in the sums where the reason changed: code, start, stop."""
    for each in states:
        start, stop = max(each.start, waits.summed_until), each.stop or now
        if each.state in BEFORE_ITS_START and start < stop:
            yield from _cut(start, stop, waits.changes)


def _cut(start: int, stop: int, changes: Sequence[tuple[int, str]]) -> Iterator[tuple[str, int, int]]:
    before = [code for date, code in changes if date <= start]
    code = before[-1] if before and before[-1] != "HOLD" else "NEW"
    for date, after in changes:
        if start < date < stop:
            yield code, start, date
            start, code = date, after
    yield code, start, stop
