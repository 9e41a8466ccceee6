"""The occupancy of the cluster over time, as a curve.

The use by jobs that have ended is stored by hours, for each day on which jobs ended: a curve of a year reads no jobs of
stored days.  The end of a job deletes the stored use of its day, which is then stored again.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oar.lib.history.sql_gantt_days import Curve, Step

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

HOUR, DAY = 3600, 86400
#: Days whose use is stored.
KEPT_DAYS = 1100
#: The use of a day is stored so many days later: the ends of most jobs are known then.
DELAY = 2
#: Seconds between two searches for days that are not stored.
SEARCH_PERIOD = 600.0
_FOREVER = 2**62


def occupancy_curve(tx: "Transaction", begin: int, bucket: int, number: int) -> dict[str, Any]:
    """Return the mean number of used, planned and unusable resources for each part of a period."""
    curve = Curve(begin, bucket, number)
    is_by_hours = begin % HOUR == bucket % HOUR == 0
    kept = tx.gantt_days.kept_days(begin // DAY) if is_by_hours else []
    steps = tx.gantt_days.steps(curve, gaps(begin, kept))
    used = tx.gantt_days.kept_use(curve) if kept else {}
    return {
        "from": begin,
        "bucket": bucket,
        "now": tx.now,
        "resources": tx.gantt_days.resources(),
        "used": means(curve, (step for step in steps if step.kind == "used"), used),
        **{kind: means(curve, (step for step in steps if step.kind == kind)) for kind in ("planned", "unusable")},
    }


def gaps(begin: int, days: Sequence[int]) -> list[tuple[int, int]]:
    """Return the periods from a date on that are not on any of the given days.

    >>> gaps(100, [1, 2])[:1]
    [(100, 86400)]
    """
    periods = []
    for day in days:
        if begin < day * DAY:
            periods.append((begin, day * DAY))
        begin = max(begin, (day + 1) * DAY)
    return [*periods, (begin, _FOREVER)]


def means(curve: Curve, steps: Iterable[Step], seconds: Mapping[int, int] | None = None) -> list[float]:
    """Return the mean number of resources in each part.  ``seconds``: resource seconds by part, which are added.

    >>> means(Curve(0, 10, 3), [Step("used", 0, 2, 20), Step("used", 1, -2, -10)])
    [2.0, 1.0, 0.0]
    """
    sums, changes, whole = [0] * curve.number, [0] * curve.number, 0
    for part, number in (seconds or {}).items():
        sums[part] = number
    for step in steps:
        if step.part < curve.number:
            sums[step.part] += step.seconds
            changes[step.part] += step.change
    for part, change in enumerate(changes):
        sums[part] += whole * curve.bucket
        whole += change
    return [round(number / curve.bucket, 2) for number in sums]


class OccupancyKeeper:
    """Stores the use of past days, one at a time."""

    def __init__(self) -> None:
        self._next_search = float("-inf")

    def look(self, database: "Database") -> bool:
        """Store the use of the next day; return whether there was one.  Raises DatabaseUnavailable."""
        if time.monotonic() < self._next_search:
            return False
        with database.begin() as tx:
            day = tx.gantt_days.missing_day(tx.now // DAY - DELAY, KEPT_DAYS)
            if day is not None:
                tx.gantt_days.keep_day(day, KEPT_DAYS)
        if day is None:
            self._next_search = time.monotonic() + SEARCH_PERIOD
        return day is not None
