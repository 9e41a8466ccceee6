"""What jobs wait for and have waited for: for those who ask, not for rounds."""

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


def foreseen_starts(tx: "Transaction") -> list[int]:
    """Return when waiting jobs are foreseen to start, in order of time."""
    return tx.column(_FORESEEN)
