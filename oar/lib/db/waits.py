"""What jobs wait for and have waited for."""

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.states import JobState
from oar.lib.waiting import Sum, Waits, folded

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

#: So many changes of a job may be kept one by one, and so many stay when there are more.
MOST_CHANGES, KEPT = 100, 50
_REASONS = "SELECT job_id, date, code, reason, data FROM job_reasons WHERE job_id = ANY(%s)"
_WAITS = "SELECT job_id, date, code, seconds FROM job_waits WHERE job_id = ANY(%s) ORDER BY job_id, date"
_FOLD = """
    DELETE FROM job_waits WHERE job_id = %(job)s AND (date < %(until)s OR seconds IS NOT NULL);
    INSERT INTO job_waits (job_id, date, code, seconds)
    SELECT %(job)s, * FROM unnest(%(dates)s::bigint[], %(codes)s::text[], %(seconds)s::bigint[]);
    UPDATE job_reasons SET changes = %(kept)s WHERE job_id = %(job)s"""
#: Jobs that others wait for, and when they end at the latest.
_ENDS = """
    SELECT j.job_id, j.job_user, j.state, max(p.start_time + m.moldable_walltime)
    FROM jobs j
    LEFT JOIN moldable_job_descriptions m ON m.moldable_job_id = j.job_id
    LEFT JOIN gantt_jobs_predictions_visu p ON p.moldable_job_id = m.moldable_id
    WHERE j.job_id = ANY(%s) GROUP BY j.job_id, j.job_user, j.state ORDER BY j.job_id"""
_FORESEEN = """
    SELECT min(p.start_time) AS start
    FROM gantt_jobs_predictions_visu p
    JOIN moldable_job_descriptions m ON m.moldable_id = p.moldable_job_id
    JOIN jobs j ON j.job_id = m.moldable_job_id AND j.state IN ('Waiting', 'toAckReservation')
    GROUP BY j.job_id ORDER BY start"""


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


def reasons(tx: "Transaction", ids: Collection[int]) -> dict[int, Reason]:
    """Return why jobs do not start; a job that nobody has looked at yet has none."""
    rows = tx.rows(_REASONS, (list(ids),)) if ids else []
    return {row[0]: Reason(row[1], row[2], row[3], json.loads(row[4])) for row in rows}


def history(tx: "Transaction", ids: Collection[int]) -> dict[int, Waits]:
    """Return what jobs have waited for."""
    changes: dict[int, list[tuple[int, str]]] = {}
    sums: dict[int, dict[str, Sum]] = {}
    for job_id, date, code, seconds in tx.rows(_WAITS, (list(ids),)) if ids else ():
        if seconds is None:
            changes.setdefault(job_id, []).append((date, code))
        else:
            sums.setdefault(job_id, {})[code] = Sum(date, seconds)
    return {job_id: Waits(dates, sums.get(job_id, {})) for job_id, dates in changes.items()}


def fold(tx: "Transaction", ids: Collection[int]) -> None:
    """Leave the last changes of some jobs; the times before them become sums."""
    states = tx.jobs.state_changes(ids)
    for job_id, waits in history(tx, ids).items():
        left = folded(states.get(job_id, ()), waits, KEPT)
        values = {
            "job": job_id,
            "until": left.changes[0][0],
            "dates": [each.since for each in left.sums.values()],
            "codes": list(left.sums),
            "seconds": [each.seconds for each in left.sums.values()],
            "kept": KEPT,
        }
        tx.execute(_FOLD, values)


def others(tx: "Transaction", ids: Collection[int]) -> dict[int, Other]:
    """Return the jobs that somebody waits for."""
    rows = tx.rows(_ENDS, (list(ids),)) if ids else []
    return {row[0]: Other(row[0], row[1], JobState(row[2]), row[3] or 0) for row in rows}


def foreseen_starts(tx: "Transaction") -> list[int]:
    """Return when waiting jobs are foreseen to start, in order of time."""
    return tx.column(_FORESEEN)
