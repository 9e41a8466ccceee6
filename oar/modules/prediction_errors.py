"""``kao honesty``: compare the start times of jobs with the predictions of the scheduler."""

from collections.abc import Sequence
from typing import NamedTuple

from oar.lib import runtime
from oar.lib.base.formats import Format, dump
from oar.lib.base.times import format_duration
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.sql_waits import Errors

DAY = 86400

_COLUMNS = "{:<14.14} {:<12} {:>7} {:>12} {:>15} {:>7} {:>16}"
_HEAD = _COLUMNS.format("queue", "foretold", "jobs", "half within", "9 in 10 within", "late", "9 in 10 late by")


class ErrorsOfQueue(NamedTuple):
    """The prediction errors of one queue for one horizon."""

    horizon: str  #: ``at first``, or ``within 1 h``: when the predicted start was first so near
    errors: Errors

    @property
    def record(self) -> dict[str, object]:
        """Return the fields for machine-readable formats. Durations are in seconds."""
        return {"foretold": self.horizon, **self.errors._asdict()}

    @property
    def text(self) -> str:
        """Return a line of the table."""
        queue, jobs, half, most, late, most_late = self.errors
        lateness = format_duration(most_late) if most_late > 0 else "not late"
        return _COLUMNS.format(
            queue or "all", self.horizon, jobs, format_duration(half), format_duration(most), late, lateness
        )


def report(days: int, machine: Format | None) -> str:
    """Return the prediction errors of the jobs that started in the last ``days`` days, as text."""
    opened = runtime.open_runtime("kao")
    try:
        with opened.database.snapshot() as tx:
            lines = errors_by_queue(tx, tx.now - days * DAY)
    finally:
        opened.close()
    if machine:
        return dump([line.record for line in lines], machine)
    return table(lines, days)


def errors_by_queue(tx: Transaction, since: int) -> list[ErrorsOfQueue]:
    """Return the prediction errors of the jobs that started since a time, by queue and horizon."""
    return [
        ErrorsOfQueue(horizon, errors)
        for horizon, is_near in (("at first", False), ("within 1 h", True))
        for errors in tx.job_waits.prediction_errors(since, is_near=is_near)
    ]


def table(lines: Sequence[ErrorsOfQueue], days: int) -> str:
    """Return the table as text."""
    if not lines:
        return f"No job that had to wait has started in the last {days} days.\n"
    return "".join(f"{line}\n" for line in (_HEAD, *(line.text for line in lines)))
