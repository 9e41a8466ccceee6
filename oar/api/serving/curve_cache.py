"""Curves that were asked for, kept for a moment: many pages ask for the same one."""

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oar.api.serving.last_asked import LastAsked

#: Seconds for which a curve is told again, at least and at most.
FRESH, LONGEST_FRESH = 30.0, 3600.0
#: The part of a piece of time by which a curve may be old: nobody sees that a piece has grown by as much.  A curve of a
#: year takes seconds to make; its pieces are days.
OLD = 1 / 60
#: Curves that are kept: those of a year of density, and what others look at.
MOST_CURVES = 32
Record = Mapping[str, Any]


@dataclass
class _Curve:
    """A curve, and when it was made; who makes it holds the lock, who wants it waits."""

    record: Record | None = None
    made: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Curves:
    """The curves that were asked for last."""

    def __init__(self) -> None:
        self._kept = LastAsked[tuple[Hashable, ...], _Curve](_Curve, MOST_CURVES)

    def curve(self, key: tuple[Hashable, ...], make: Callable[[], Record], bucket: int = 0) -> Record:
        """Return a curve, made anew if it is older than it may be.

        ``key``: its kind, and all that it depends on.  ``bucket``: seconds of its pieces, if they are what is seen.
        """
        curve, fresh = self._kept.of(key), min(max(FRESH, bucket * OLD), LONGEST_FRESH)
        with curve.lock:
            if curve.record is None or time.monotonic() - curve.made > fresh:
                curve.record, curve.made = make(), time.monotonic()
            return curve.record
