"""``kao honesty``: how far the starts of jobs were from what the scheduler had foretold."""

from collections.abc import Sequence
from typing import NamedTuple

from oar.lib import runtime
from oar.lib.db import predictions
from oar.lib.db.engine import Transaction
from oar.lib.db.predictions import Errors
from oar.lib.formats import Format, dump
from oar.lib.times import format_signed_duration

DAY = 86400

_COLUMNS = "{:<14.14} {:<12} {:>7} {:>12} {:>15} {:>7} {:>16}"
_HEAD = _COLUMNS.format("queue", "foretold", "jobs", "half within", "9 in 10 within", "late", "9 in 10 late by")


class Line(NamedTuple):
    """How good one kind of prediction was in one queue."""

    said: str  #: ``at first``, or ``within 1 h``: when the start first seemed to be so near
    errors: Errors

    @property
    def record(self) -> dict[str, object]:
        """All of it; durations in seconds."""
        return {"foretold": self.said, **self.errors._asdict()}

    @property
    def text(self) -> str:
        """A line of the table."""
        queue, jobs, half, most, late, most_late = self.errors
        durations = [format_signed_duration(each).removeprefix("+") for each in (half, most, most_late)]
        return _COLUMNS.format(queue or "all", self.said, jobs, durations[0], durations[1], late, durations[2])


def shown(days: int, machine: Format | None) -> str:
    """Return how good the predictions were of the jobs that started in the last days."""
    opened = runtime.open_runtime("kao")
    try:
        with opened.database.snapshot() as tx:
            lines = lines_of(tx, tx.now - days * DAY)
    finally:
        opened.close()
    if machine:
        return dump([each.record for each in lines], machine)
    return table(lines, days)


def lines_of(tx: Transaction, since: int) -> list[Line]:
    """Return what there is to show of the starts since a date."""
    return [
        Line(said, each)
        for said, is_near in (("at first", False), ("within 1 h", True))
        for each in predictions.errors(tx, since, is_near=is_near)
    ]


def table(lines: Sequence[Line], days: int) -> str:
    """Return the table for people."""
    if not lines:
        return f"No job that had to wait has started in the last {days} days.\n"
    return "".join(f"{line}\n" for line in (_HEAD, *(each.text for each in lines)))
