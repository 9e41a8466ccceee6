"""Detect whether a clock was set, by comparison with a monotonic clock, and whether a time service keeps it."""

import math
import time
from pathlib import Path
from typing import NamedTuple

#: A clock that is wrong by at most so many seconds more than before was not set: it goes a little too fast or slow.
TOLERANCE = 60
#: After the clock was set ahead, no time is over for so many seconds that only the new date says is over.
GRACE = 600
#: Numbers in the memory of a watch: all, and those about the time that the clock was set ahead, which are the last.
_NUMBERS, _HOLD_NUMBERS = 6, 3


class Look(NamedTuple):
    """A time of the clock, and two times of a monotonic clock before and after it was read."""

    date: int
    before: float
    after: float


class ClockWatch:
    """Compare a clock with a monotonic clock at successive readings."""

    def __init__(self, remembered: str = "") -> None:
        """``remembered``: the ``memory`` of a former watch, "" if there is none."""
        *last, held_from, held_until, ahead = _parse_memory(remembered)
        self._last = Look(int(last[0]), last[1], last[2]) if last else None
        self._held_from, self._held_until, self._ahead = int(held_from), int(held_until), int(ahead)

    @property
    def memory(self) -> str:
        """Return the state as text, for a watch that continues from it, also on another host."""
        numbers = (*self._last, self._held_from, self._held_until, self._ahead) if self._last else ()
        return " ".join([_boot(), *map(repr, numbers)]) if numbers else ""

    def set_by(self, look: Look) -> int:
        """Return by how many seconds the clock was set since the last reading: positive if ahead, negative if back."""
        last, self._last = self._last, look
        if last is None:
            return 0
        went = look.date - last.date
        ahead, back = went - (look.after - last.before), (look.before - last.after) - went
        if ahead > TOLERANCE:
            self._ahead = math.ceil(ahead) + (self._ahead if self.held_until(last.date) else 0)
            self._held_from, self._held_until = look.date, look.date + GRACE
            return math.ceil(ahead)
        if back > TOLERANCE:  # an administrator has corrected the clock: trust it
            self._held_from = self._held_until = self._ahead = 0
            return -math.ceil(back)
        return 0

    def held_until(self, now: int) -> int:
        """Return the time before which nothing expires after the clock was set ahead, 0 if there is no such time."""
        return self._held_until if self._held_from <= now < self._held_until else 0

    def ahead(self, now: int) -> int:
        """Return by how many seconds the clock was set ahead while this is not trusted yet, else 0."""
        return self._ahead if self.held_until(now) else 0

    def moved(self, date: int, now: int) -> int:
        """Return a stored time corrected by the amount that the clock was set ahead. Later times are not changed."""
        return date + self.ahead(now) if date < self._held_from else date


_BOOT = Path("/proc/sys/kernel/random/boot_id")


def _parse_memory(text: str) -> tuple[float, ...]:
    """Return the numbers of a memory: those of the last reading, then those about a clock that was set ahead.

    The last reading is left out if it is from another host or boot: the monotonic clock was another one.
    """
    boot, *words = text.split() or [""]
    try:
        numbers = tuple(map(float, words))
    except ValueError:
        numbers = ()
    if len(numbers) != _NUMBERS or not all(map(math.isfinite, numbers)):
        return (0, 0, 0)
    return numbers if boot == _boot() else numbers[-_HOLD_NUMBERS:]


def _boot() -> str:
    return _BOOT.read_text(encoding="ascii").strip()


#: Where ``struct timex`` has the largest error that the clock may have, in microseconds, counted in longs.
_MAXERROR, _LONGS = 3, 64
#: The kernel lets the error grow to this where nobody keeps the clock, and says it at once of a clock that was set.
_UNKNOWN_ERROR = 16_000_000


def synchronized_time() -> float | None:
    """Return the current time if a time service synchronizes the clock, as in ``timedatectl``, else None."""
    import ctypes

    read_only = (ctypes.c_long * _LONGS)()
    if ctypes.CDLL(None).adjtimex(read_only) < 0 or read_only[_MAXERROR] >= _UNKNOWN_ERROR:
        return None
    return time.time()
