"""Detect whether a time service synchronizes the clock of this computer, according to its kernel (adjtimex(2))."""

import ctypes
import time

#: Where ``struct timex`` has the largest error that the clock may have, in microseconds, counted in longs.
_MAXERROR, _LONGS = 3, 64
#: The kernel lets the error grow to this where nobody keeps the clock, and says it at once of a clock that was set.
_UNKNOWN_ERROR = 16_000_000


def kept_date() -> float | None:
    """Return the current time if a time service synchronizes the clock, as in ``timedatectl``, else None."""
    read_only = (ctypes.c_long * _LONGS)()
    if ctypes.CDLL(None).adjtimex(read_only) < 0 or read_only[_MAXERROR] >= _UNKNOWN_ERROR:
        return None
    return time.time()
