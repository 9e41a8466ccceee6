"""What jobs were told of their start, and when they started: table ``job_predictions``.

A job that starts in the first round that sees it was told nothing and has no row.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

_KNOWN = "SELECT job_id, near_date > 0 FROM job_predictions WHERE real_start = 0"
_FIRST = """
    INSERT INTO job_predictions (job_id, queue_name, first_date, first_start)
    SELECT n.id, n.queue, %(now)s, n.start
    FROM unnest(%(ids)s::bigint[], %(queues)s::text[], %(starts)s::bigint[]) AS n (id, queue, start)
    JOIN jobs j ON j.job_id = n.id AND j.state = 'Waiting'
    ON CONFLICT DO NOTHING"""
_NEAR = """
    UPDATE job_predictions p SET near_date = %(now)s, near_start = n.start
    FROM unnest(%(ids)s::bigint[], %(starts)s::bigint[]) AS n (id, start)
    WHERE p.job_id = n.id AND p.near_date = 0"""
_STARTED = """
    UPDATE job_predictions p SET real_start = n.start
    FROM unnest(%(ids)s::bigint[], %(starts)s::bigint[]) AS n (id, start) WHERE p.job_id = n.id"""
_OLD = "DELETE FROM job_predictions WHERE real_start BETWEEN 1 AND %s"
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


class Told(NamedTuple):
    """When a job is foretold to start."""

    job_id: int
    queue: str
    start: int


class Errors(NamedTuple):
    """How far predictions were from the truth, in seconds."""

    queue: str | None  #: None = all queues
    jobs: int
    half: int  #: half of the jobs were off by no more
    most: int  #: nine of ten were
    late: int  #: so many started later than foretold
    most_late: int  #: nine of ten were later by no more; negative = they were earlier


def known(tx: "Transaction") -> dict[int, bool]:
    """Return the jobs that have been told something and have not started; whether they were told when it was near."""
    return dict(tx.rows(_KNOWN))


def tell_first(tx: "Transaction", told: Sequence[Told]) -> None:
    """Keep what jobs are told for the first time."""
    if told:
        queues = [each.queue for each in told]
        values = {"ids": [each.job_id for each in told], "starts": [each.start for each in told], "queues": queues}
        tx.execute(_FIRST, {**values, "now": tx.now})


def tell_near(tx: "Transaction", told: Sequence[Told]) -> None:
    """Keep what jobs are told when their start has come near."""
    if told:
        values = {"ids": [each.job_id for each in told], "starts": [each.start for each in told], "now": tx.now}
        tx.execute(_NEAR, values)


def started(tx: "Transaction", starts: Mapping[int, int]) -> None:
    """Keep when jobs really started."""
    if starts:
        tx.execute(_STARTED, {"ids": list(starts), "starts": list(starts.values())})


def forget_before(tx: "Transaction", date: int) -> None:
    """Remove what was told of starts before a date."""
    tx.execute(_OLD, (date,))


def errors(tx: "Transaction", since: int, *, is_near: bool = False) -> list[Errors]:
    """Return how far starts since a date were from what was said first, or when near: for each queue, then for all."""
    values = {"since": max(1, since), "near": is_near, "tolerance": TOLERANCE}
    return [Errors(*row) for row in tx.rows(_ERRORS, values) if row[1]]
