"""What jobs wait for and have waited for (``tx.job_waits``): rows of ``job_reasons`` and ``job_waits``."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Prepared, Table
from oar.lib.jobs.reason_codes import ReasonCode, reason_code
from oar.lib.jobs.records import StateChange, WaitReason
from oar.lib.jobs.states import JobState
from oar.lib.jobs.wait_times import Waits, WaitSum, fold_changes

#: So many changes of the reason of a job may be stored one by one, and so many stay when they are more.
MOST_CHANGES, CHANGES_LEFT = 100, 50

_REASONS = Prepared("SELECT job_id, date, code, reason, data FROM job_reasons WHERE job_id = ANY(%s)")
_ALL_REASONS = Prepared("SELECT job_id, code, reason, data FROM job_reasons")
_HISTORY = "SELECT job_id, date, code, seconds FROM job_waits WHERE job_id = ANY(%s) ORDER BY job_id, date"
_FOLD = Prepared("""
    DELETE FROM job_waits WHERE job_id = %(job)s AND (date < %(until)s OR seconds IS NOT NULL);
    INSERT INTO job_waits (job_id, date, code, seconds)
    SELECT %(job)s, * FROM unnest(%(dates)s::bigint[], %(codes)s::text[], %(seconds)s::bigint[]);
    UPDATE job_reasons SET changes = %(kept)s WHERE job_id = %(job)s""")
#: Jobs with the date at which they end at the latest.
_AWAITED = Prepared("""
    SELECT j.job_id, j.job_user, j.state, max(p.start_time + m.moldable_walltime)
    FROM jobs j
    LEFT JOIN moldable_job_descriptions m ON m.moldable_job_id = j.job_id
    LEFT JOIN gantt_jobs_predictions_visu p ON p.moldable_job_id = m.moldable_id
    WHERE j.job_id = ANY(%s) GROUP BY j.job_id, j.job_user, j.state ORDER BY j.job_id""")
_FORESEEN_STARTS = """
    SELECT min(p.start_time) AS start
    FROM gantt_jobs_predictions_visu p
    JOIN moldable_job_descriptions m ON m.moldable_id = p.moldable_job_id
    JOIN jobs j ON j.job_id = m.moldable_job_id AND j.state IN ('Waiting', 'toAckReservation')
    WHERE NOT EXISTS (SELECT 1 FROM reservations r WHERE r.frame_id = j.job_id AND r.frame_id <> 0)
    GROUP BY j.job_id ORDER BY start"""
#: A change of the code goes to the history of the job, too.  ``date`` is since when the job has had this code.  What it
#: returns are the jobs whose history has become long.
_EXPLAIN = Prepared("""
    WITH told AS (
        SELECT n.*, r.code AS former FROM unnest(%(ids)s::bigint[], %(codes)s::text[], %(reasons)s::text[],
            %(data)s::text[]) AS n (id, code, reason, data)
        JOIN jobs j ON j.job_id = n.id
            AND (j.state IN ('Waiting', 'toAckReservation', 'Resuming') OR j.state = 'Hold' AND n.code = %(hold)s)
        LEFT JOIN job_reasons r ON r.job_id = n.id),
    changed AS (
        INSERT INTO job_waits AS w (job_id, date, code)
        SELECT id, %(now)s, code FROM told WHERE code IS DISTINCT FROM former
        ON CONFLICT (job_id, date) DO UPDATE SET code = EXCLUDED.code),
    written AS (
        INSERT INTO job_reasons AS r (job_id, date, code, reason, data, changes)
        SELECT id, %(now)s, code, reason, data, 1 + CASE WHEN former IS NULL THEN (
            SELECT count(*) FROM job_waits w WHERE w.job_id = id AND w.seconds IS NULL) ELSE 0 END
        FROM told
        ON CONFLICT (job_id) DO UPDATE SET
            date = CASE WHEN r.code = EXCLUDED.code THEN r.date ELSE EXCLUDED.date END,
            changes = CASE WHEN r.code = EXCLUDED.code THEN r.changes ELSE r.changes + 1 END,
            code = EXCLUDED.code, reason = EXCLUDED.reason, data = EXCLUDED.data
        RETURNING job_id, changes)
    SELECT job_id FROM written WHERE changes > %(most)s""")


class StoredReason(NamedTuple):
    """A row of ``job_reasons``; ``data`` is JSON."""

    code: ReasonCode | str  #: a plain string: the code of another version
    reason: str
    data: str


class AwaitedJob(NamedTuple):
    """A job that another one waits for."""

    id: int
    user: str
    state: JobState
    end: int  #: at the latest; 0 = not known, or over already


class JobWaits(Table):
    """Why jobs do not start, and why they did not before."""

    def reasons(self, ids: Collection[int]) -> dict[int, WaitReason]:
        """Return why jobs do not start; a job that no round has looked at yet has no reason."""
        rows = self._tx.rows(_REASONS, (list(ids),)) if ids else []
        return {row[0]: WaitReason(row[1], reason_code(row[2]), row[3], json.loads(row[4])) for row in rows}

    def stored_reasons(self) -> dict[int, StoredReason]:
        """Return the rows of ``job_reasons`` by job, for the round that compares them with its own."""
        rows = self._tx.rows(_ALL_REASONS)
        return {job_id: StoredReason(reason_code(code), *texts) for job_id, code, *texts in rows}

    def history(self, ids: Collection[int]) -> dict[int, Waits]:
        """Return what jobs have waited for."""
        changes: dict[int, list[tuple[int, str]]] = {}
        sums: dict[int, dict[str, WaitSum]] = {}
        for job_id, date, code, seconds in self._tx.rows(_HISTORY, (list(ids),)) if ids else ():
            if seconds is None:
                changes.setdefault(job_id, []).append((date, code))
            else:
                sums.setdefault(job_id, {})[code] = WaitSum(date, seconds)
        return {job_id: Waits(dates, sums.get(job_id, {})) for job_id, dates in changes.items()}

    def explain(self, reasons: Mapping[int, StoredReason]) -> list[int]:
        """Store why jobs that still wait do not start or go on; return the jobs whose history is to be folded."""
        if not reasons:
            return []
        values = {
            "now": self._tx.now,
            "most": MOST_CHANGES,
            "ids": list(reasons),
            "hold": ReasonCode.HOLD,
            "codes": [reason.code for reason in reasons.values()],
            "reasons": [reason.reason for reason in reasons.values()],
            "data": [reason.data for reason in reasons.values()],
        }
        self._changed(Topic.JOBS)
        return self._tx.column(_EXPLAIN, values)

    def fold(self, ids: Collection[int], states: Mapping[int, Sequence[StateChange]]) -> None:
        """Leave the last changes in the history of some jobs; the times before them become a sum for each code.

        ``states`` are the changes of their states: only the time in which they could start counts.
        """
        for job_id, waits in self.history(ids).items():
            left = fold_changes(states.get(job_id, ()), waits, CHANGES_LEFT)
            values = {
                "job": job_id,
                "until": left.changes[0][0],
                "dates": [total.since for total in left.sums.values()],
                "codes": list(left.sums),
                "seconds": [total.seconds for total in left.sums.values()],
                "kept": CHANGES_LEFT,
            }
            self._tx.execute(_FOLD, values)
            self._changed(Topic.JOBS)

    def forget_reasons(self, ids: Collection[int]) -> None:
        """Remove the reasons of jobs that start."""
        if ids:
            self._tx.execute("DELETE FROM job_reasons WHERE job_id = ANY(%s)", (sorted(ids),))
            self._changed(Topic.JOBS)

    def awaited_jobs(self, ids: Collection[int]) -> dict[int, AwaitedJob]:
        """Return those of some jobs that exist, as jobs that others wait for."""
        rows = self._tx.rows(_AWAITED, (list(ids),)) if ids else []
        now = self._tx.now
        ends = ((row, row[3] if row[3] and row[3] >= now else 0) for row in rows)
        return {row[0]: AwaitedJob(row[0], row[1], JobState(row[2]), end) for row, end in ends}

    def foreseen_starts(self) -> list[int]:
        """Return the dates at which waiting jobs, not frames of reservations, are foreseen to start, ascending."""
        return self._tx.column(_FORESEEN_STARTS)
