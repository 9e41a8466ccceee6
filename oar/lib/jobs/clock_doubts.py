"""Checks of the system clock for programs that timers start and that delete old rows.

If the clock is far ahead, all rows look old enough to be deleted. When time really passes, OAR stores some rows, at
least one per purge. The date is therefore doubted after a long period without any stored row, unless a time service
confirms it. It is also doubted while the server holds its deadlines back because the clock was set ahead.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oar.lib.base.clock_watch import TOLERANCE, ClockWatch, Look
from oar.lib.base.times import format_date

if TYPE_CHECKING:
    from oar.lib.db.database import Database

_DAY = 86400
#: A stretch without anything is as long as this, in seconds, and so many of them are looked at.
STRETCH, STRETCHES = 10 * _DAY, 6


def ahead(database: "Database", remembered: Sequence[float]) -> int:
    """Return by how many seconds the clock was set ahead as long as the server does not trust it, else 0.

    ``remembered``: the stored state of the server's clock watch; empty if there is none.
    """
    watch, now = _looked(database, remembered)
    return watch.ahead(now)


def of_purge(database: "Database", remembered: Sequence[float], kept: float | None = None) -> str:
    """Return why rows must not be deleted by the date of the database; return '' if they may be deleted.

    ``kept``: the date of a clock that a time service synchronizes; None if there is none.
    """
    watch, now = _looked(database, remembered)
    if held := watch.held_until(now):
        return f"The clock was set ahead; the server waits until {format_date(held)} whether it is set back"
    if kept is not None and abs(kept - now) <= TOLERANCE:
        return ""
    with database.snapshot() as tx:
        signs = tx.retention.signs_of_life()
        if not signs.first:  # there is no row to delete
            return ""
        since = max(signs.first, signs.last_purge, now - STRETCHES * STRETCH)
        for until in range(now, since + STRETCH - 1, -STRETCH):
            last = tx.retention.last_sign(until)
            if last <= until - STRETCH:
                return (
                    f"The clock of the database says {format_date(now)}, but nothing has happened between"
                    f" {format_date(last)} and {format_date(until)}"
                )
    return ""


def _looked(database: "Database", remembered: Sequence[float]) -> tuple[ClockWatch, int]:
    """Return a watch that has read the clock of the database, and the date."""
    watch, before = ClockWatch(remembered), time.monotonic()
    with database.snapshot() as tx:
        now = tx.now
    watch.set_by(Look(now, before, time.monotonic()))
    return watch, now
