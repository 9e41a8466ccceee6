"""What jobs were told of their start, and when they started (``tx.job_predictions``).

A job that starts in the first round that sees it was told nothing and has no row.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Prepared, Table

_PENDING = Prepared("SELECT job_id, near_date > 0 FROM job_predictions WHERE real_start = 0")
_TELL_FIRST = Prepared("""
    INSERT INTO job_predictions (job_id, queue_name, first_date, first_start)
    SELECT n.id, n.queue, %(now)s, n.start
    FROM unnest(%(ids)s::bigint[], %(queues)s::text[], %(starts)s::bigint[]) AS n (id, queue, start)
    JOIN jobs j ON j.job_id = n.id AND j.state = 'Waiting'
    ON CONFLICT DO NOTHING""")
_TELL_NEAR = Prepared("""
    UPDATE job_predictions p SET near_date = %(now)s, near_start = n.start
    FROM unnest(%(ids)s::bigint[], %(starts)s::bigint[]) AS n (id, start)
    WHERE p.job_id = n.id AND p.near_date = 0""")
_NOTE_STARTS = Prepared("""
    UPDATE job_predictions p SET real_start = n.start
    FROM unnest(%(ids)s::bigint[], %(starts)s::bigint[]) AS n (id, start) WHERE p.job_id = n.id""")
_TOLD = """
    SELECT first_date, first_start, near_date, near_start, real_start FROM job_predictions WHERE job_id = %s"""
_FIRST_STARTS = "SELECT job_id, first_start FROM job_predictions WHERE job_id = ANY(%s)"
_FORGET = "DELETE FROM job_predictions WHERE real_start BETWEEN 1 AND %s"
#: How far the starts of jobs were from what had been said of them, in seconds; late = after the date that was said.
_ERRORS = """
    SELECT queue_name, count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY abs(error)),
        percentile_disc(0.9) WITHIN GROUP (ORDER BY abs(error)), count(*) FILTER (WHERE error > %(tolerance)s),
        percentile_disc(0.9) WITHIN GROUP (ORDER BY error)
    FROM (
        SELECT queue_name::text, real_start - CASE WHEN %(near)s THEN near_start ELSE first_start END AS error
        FROM job_predictions WHERE real_start >= %(since)s AND (near_date > 0 OR NOT %(near)s)) e
    GROUP BY GROUPING SETS ((queue_name), ()) ORDER BY queue_name"""

#: A start that is later by no more than this is on time: dates are whole seconds, and a launch takes a moment.
TOLERANCE = 1


class ToldStart(NamedTuple):
    """The start that a job is told."""

    job_id: int
    queue: str
    start: int


class ToldStarts(NamedTuple):
    """What a job was told of its start: dates, 0 = not yet."""

    first_date: int
    first_start: int
    near_date: int
    near_start: int
    real_start: int


class Errors(NamedTuple):
    """How far the starts of jobs were from those that they were told, in seconds."""

    queue: str | None  #: None = all queues
    jobs: int
    half: int  #: half of the jobs were off by no more
    most: int  #: nine of ten jobs were off by no more
    late: int  #: number of jobs that started later than they were told
    most_late: int  #: nine of ten jobs were later by no more; negative = they were earlier


class JobPredictions(Table):
    """Rows of ``job_predictions``."""

    def pending(self) -> dict[int, bool]:
        """Return the jobs that were told a start and have not started; True: they were told again when it was near."""
        return dict(self._tx.rows(_PENDING))

    def first_starts(self, ids: Collection[int]) -> dict[int, int]:
        """Return the first start that each of some jobs was told, if it was told any."""
        return dict(self._tx.rows(_FIRST_STARTS, (list(ids),)))

    def tell_first(self, starts: Sequence[ToldStart]) -> None:
        """Store the first start that jobs are told."""
        if starts:
            queues = [start.queue for start in starts]
            self._tx.execute(_TELL_FIRST, {**self._columns(starts), "queues": queues})
            self._changed(Topic.GANTT)

    def tell_near(self, starts: Sequence[ToldStart]) -> None:
        """Store the start that jobs are told when it has come near."""
        if starts:
            self._tx.execute(_TELL_NEAR, self._columns(starts))
            self._changed(Topic.GANTT)

    def note_starts(self, dates: Mapping[int, int]) -> None:
        """Store when jobs really started."""
        if dates:
            self._tx.execute(_NOTE_STARTS, {"ids": list(dates), "starts": list(dates.values())})
            self._changed(Topic.GANTT)

    def forget_before(self, date: int) -> None:
        """Remove the rows of jobs that started before a date, or at it."""
        if self._tx.execute(_FORGET, (date,)):
            self._changed(Topic.GANTT)

    def told(self, job_id: int) -> ToldStarts | None:
        """Return what a job was told of its start; None if it was told nothing."""
        row = self._tx.row(_TOLD, (job_id,))
        return ToldStarts(*row) if row else None

    def errors(self, since: int, *, is_near: bool = False) -> list[Errors]:
        """Return how far the starts since a date were from what was told first, or when near.

        A value for each queue, then one for all.
        """
        values = {"since": max(1, since), "near": is_near, "tolerance": TOLERANCE}
        return [Errors(*row) for row in self._tx.rows(_ERRORS, values) if row[1]]

    def _columns(self, starts: Sequence[ToldStart]) -> dict[str, Any]:
        return {
            "ids": [start.job_id for start in starts],
            "starts": [start.start for start in starts],
            "now": self._tx.now,
        }
