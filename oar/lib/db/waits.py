"""What jobs wait for and have waited for, and what they were told of their start: for those who ask, not for rounds."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.states import JobState

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

_REASONS = "SELECT job_id, date, code, reason, data FROM job_reasons WHERE job_id = ANY(%s)"
_CHANGES = "SELECT job_id, date, code FROM job_waits WHERE job_id = ANY(%s) ORDER BY job_id, date"
#: Jobs that others wait for, and when they end at the latest.
_ENDS = """
    SELECT j.job_id, j.job_user, j.state, max(p.start_time + m.moldable_walltime)
    FROM jobs j
    LEFT JOIN moldable_job_descriptions m ON m.moldable_job_id = j.job_id
    LEFT JOIN gantt_jobs_predictions_visu p ON p.moldable_job_id = m.moldable_id
    WHERE j.job_id = ANY(%s) GROUP BY j.job_id, j.job_user, j.state ORDER BY j.job_id"""
_EARLIER = """
    SELECT count(DISTINCT j.job_id)
    FROM gantt_jobs_predictions_visu p
    JOIN moldable_job_descriptions m ON m.moldable_id = p.moldable_job_id
    JOIN jobs j ON j.job_id = m.moldable_job_id AND j.state IN ('Waiting', 'toAckReservation')
    WHERE p.start_time < %s"""
#: How far the starts of jobs were from what had been said of them.  Seconds; late = after the date that was said.
_ERRORS = """
    SELECT queue_name, count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY abs(error)),
        percentile_disc(0.9) WITHIN GROUP (ORDER BY abs(error)), count(*) FILTER (WHERE error > %(second)s),
        percentile_disc(0.9) WITHIN GROUP (ORDER BY error)
    FROM (
        SELECT CASE WHEN %(by_queue)s THEN queue_name::text ELSE '' END AS queue_name,
            real_start - {said}_start AS error
        FROM job_predictions WHERE real_start >= %(since)s AND {said}_date > 0) e
    GROUP BY queue_name ORDER BY queue_name"""

#: A start that is later by no more than this is on time: dates are whole seconds, and a launch takes a moment.
TOLERANCE = 1


class Reason(NamedTuple):
    """Why a job does not start."""

    date: int  #: since when this is so
    code: str
    text: str
    data: Mapping[str, Any]


class Other(NamedTuple):
    """A job that another one waits for."""

    id: int
    user: str
    state: JobState
    end: int  #: at the latest; 0 = not known


class Errors(NamedTuple):
    """How far predictions were from the truth, in seconds."""

    queue: str  #: '' = all
    jobs: int
    half: int  #: half of the jobs were off by no more
    most: int  #: nine of ten were
    late: int  #: so many started later than foretold
    most_late: int  #: nine of ten were later by no more; negative = they were earlier


def reasons(tx: "Transaction", ids: Collection[int]) -> dict[int, Reason]:
    """Return why jobs do not start; a job that nobody has looked at yet has none."""
    rows = tx.rows(_REASONS, (list(ids),)) if ids else []
    return {row[0]: Reason(row[1], row[2], row[3], json.loads(row[4])) for row in rows}


def changes(tx: "Transaction", ids: Collection[int]) -> dict[int, list[tuple[int, str]]]:
    """Return since when jobs waited for what: ``(date, code)`` in order of time."""
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for job_id, date, code in tx.rows(_CHANGES, (list(ids),)) if ids else ():
        found[job_id].append((date, code))
    return found


def others(tx: "Transaction", ids: Collection[int]) -> dict[int, Other]:
    """Return the jobs that somebody waits for."""
    rows = tx.rows(_ENDS, (list(ids),)) if ids else []
    return {row[0]: Other(row[0], row[1], JobState(row[2]), row[3] or 0) for row in rows}


def foreseen_before(tx: "Transaction", date: int) -> int:
    """Return how many waiting jobs are foreseen to start before a date."""
    count: int = tx.value(_EARLIER, (date,))
    return count


def errors(tx: "Transaction", since: int, *, said: str = "first", by_queue: bool = False) -> list[Errors]:
    """Return how far starts since a date were from what was ``said``: ``first``, or ``near``, an hour before."""
    if said not in ("first", "near"):
        raise ValueError(f"nothing was said {said}")
    values = {"since": max(1, since), "by_queue": by_queue, "second": TOLERANCE}
    return [Errors(*row) for row in tx.rows(_ERRORS.format(said=said), values)]
