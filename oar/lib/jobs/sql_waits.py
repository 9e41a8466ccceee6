"""Waiting jobs (``tx.job_waits``): reasons, predicted starts, and waiting times of the past."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from oar.lib.bus.messages import Topic
from oar.lib.db.predicates import NO_FRAME
from oar.lib.db.statements import BUCKETS, CUT, Prepared, Table
from oar.lib.jobs.reasons import ReasonCode, WaitReason, Waits, WaitSum, fold_changes, reason_code
from oar.lib.jobs.records import StateChange
from oar.lib.jobs.states import JobState

#: Maximum number of changes of the reason of a job that are stored one by one, and the number after folding.
MOST_CHANGES, CHANGES_LEFT = 100, 50
_REASONS = Prepared("SELECT job_id, date, code, reason, data FROM job_reasons WHERE job_id = ANY(%s)")
_ALL_REASONS = Prepared("SELECT job_id, code, reason, data FROM job_reasons")
_HISTORY = "SELECT job_id, date, code, seconds FROM job_waits WHERE job_id = ANY(%s) ORDER BY job_id, date"
_FOLD = Prepared("""
    DELETE FROM job_waits WHERE job_id = %(job)s AND (date < %(until)s OR seconds IS NOT NULL);
    INSERT INTO job_waits (job_id, date, code, seconds)
    SELECT %(job)s, * FROM unnest(%(dates)s::bigint[], %(codes)s::text[], %(seconds)s::bigint[]);
    UPDATE job_reasons SET changes = %(kept)s WHERE job_id = %(job)s""")
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
#: A change of the code is also added to the history of the job. ``date`` is that of the last change. Returns the jobs
#: whose history must be folded.
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
    """A job that another job waits for."""

    id: int
    user: str
    state: JobState
    end: int  #: at the latest; 0 = not known, or over already


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
#: Differences between the real and the predicted starts, in seconds; late = after the predicted date.
_ERRORS = """
    SELECT queue_name, count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY abs(error)),
        percentile_disc(0.9) WITHIN GROUP (ORDER BY abs(error)), count(*) FILTER (WHERE error > %(tolerance)s),
        percentile_disc(0.9) WITHIN GROUP (ORDER BY error)
    FROM (
        SELECT queue_name::text, real_start - CASE WHEN %(near)s THEN near_start ELSE first_start END AS error
        FROM job_predictions WHERE real_start >= %(since)s AND (near_date > 0 OR NOT %(near)s)) e
    GROUP BY GROUPING SETS ((queue_name), ()) ORDER BY queue_name"""
#: Seconds of delay that do not count as late: dates are whole seconds, and a launch takes a moment.
TOLERANCE = 1


class ToldStart(NamedTuple):
    """The predicted start that is stored for a job."""

    job_id: int
    queue: str
    start: int


class ToldStarts(NamedTuple):
    """The predicted and the real start of a job: dates, 0 = none yet."""

    first_date: int
    first_start: int
    near_date: int
    near_start: int
    real_start: int


class Errors(NamedTuple):
    """Differences between predicted and real starts of jobs, in seconds."""

    queue: str | None  #: None = all queues
    jobs: int
    half: int  #: median
    most: int  #: 90th percentile
    late: int  #: number of jobs that started later than predicted
    most_late: int  #: 90th percentile of the delays; negative = earlier than predicted


#: The smallest number of resources of each size class.
CLASSES = (1, 2, 5, 17, 65, 257)
#: Length of the blocks of a week, in hours.
BLOCK_HOURS = 3
#: The last jobs that started in a period, without reservations, and their waiting times.
_STARTED = f"""started AS (
        SELECT j.queue_name::text AS queue, j.submission_time AS submitted, j.start_time AS started,
            GREATEST(0, j.start_time - j.submission_time) AS wait,
            (SELECT count(*) FROM assigned_resources a WHERE a.moldable_job_id = j.assigned_moldable_job) AS size
        FROM jobs j
        WHERE j.start_time >= %(start)s AND j.start_time < %(stop)s AND j.assigned_moldable_job <> 0
          AND j.reservation = 'None' AND {NO_FRAME}
        ORDER BY j.start_time DESC LIMIT %(most)s),
    classed AS (SELECT *, width_bucket(size, %(classes)s::bigint[]) AS class FROM started WHERE size > 0)"""
_BY_SIZE = f"""
    WITH {_STARTED}
    SELECT class, queue, count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY wait),
        percentile_disc(0.9) WITHIN GROUP (ORDER BY wait)
    FROM classed GROUP BY GROUPING SETS ((class, queue), (class)) ORDER BY class, queue NULLS FIRST"""
_BY_HOUR = f"""
    WITH {_STARTED},
    dated AS (SELECT class, wait, to_timestamp(submitted) AT TIME ZONE %(zone)s AS date FROM classed)
    SELECT class, (extract(isodow FROM date)::integer - 1) * 24 / {BLOCK_HOURS}
        + extract(hour FROM date)::integer / {BLOCK_HOURS} AS block,
        count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY wait)
    FROM dated GROUP BY 1, 2 ORDER BY 1, 2"""
_BY_PIECE = {
    bucket: f"""
    WITH {_STARTED}
    SELECT class, {CUT.format(bucket=bucket, date="started")}, count(*),
        percentile_disc(0.5) WITHIN GROUP (ORDER BY wait), percentile_disc(0.9) WITHIN GROUP (ORDER BY wait)
    FROM classed GROUP BY 1, 2 ORDER BY 1, 2"""
    for bucket in BUCKETS
}


class WaitBySize(NamedTuple):
    """Waiting times of the jobs of a size class, in seconds."""

    size: int  #: index in ``CLASSES``
    queue: str | None  #: None = all queues
    jobs: int
    half: int  #: median
    most: int  #: 90th percentile


class WaitByHour(NamedTuple):
    """Waiting times of the jobs of a size class, by the hour of the week of their submission."""

    size: int
    block: int  #: index of the block of ``BLOCK_HOURS``, from Monday 00:00 of the site on
    jobs: int
    half: int


class WaitByPiece(NamedTuple):
    """Waiting times of the jobs of a size class, by the period of their start."""

    size: int
    begin: int  #: date
    jobs: int
    half: int
    most: int


class LastStarted(NamedTuple):
    """The selection of the last ``most`` jobs that started between two dates."""

    start: int
    stop: int
    most: int


class JobWaits(Table):
    """Waiting reasons of now and before, predicted starts, and waiting times of started jobs."""

    def reasons(self, ids: Collection[int]) -> dict[int, WaitReason]:
        """Return why jobs do not start; a job that no scheduling pass has considered yet has no reason."""
        rows = self._tx.rows(_REASONS, (list(ids),)) if ids else []
        return {row[0]: WaitReason(row[1], reason_code(row[2]), row[3], json.loads(row[4])) for row in rows}

    def stored_reasons(self) -> dict[int, StoredReason]:
        """Return the rows of ``job_reasons`` by job, for comparison with the reasons of a scheduling pass."""
        rows = self._tx.rows(_ALL_REASONS)
        return {job_id: StoredReason(reason_code(code), *texts) for job_id, code, *texts in rows}

    def history(self, ids: Collection[int]) -> dict[int, Waits]:
        changes: dict[int, list[tuple[int, str]]] = {}
        sums: dict[int, dict[str, WaitSum]] = {}
        for job_id, date, code, seconds in self._tx.rows(_HISTORY, (list(ids),)) if ids else ():
            if seconds is None:
                changes.setdefault(job_id, []).append((date, code))
            else:
                sums.setdefault(job_id, {})[code] = WaitSum(date, seconds)
        return {job_id: Waits(dates, sums.get(job_id, {})) for job_id, dates in changes.items()}

    def explain(self, reasons: Mapping[int, StoredReason]) -> list[int]:
        """Store why waiting jobs do not start or resume; return the jobs whose history must be folded."""
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
        """Keep the last changes in the history of jobs; the times before them become one sum per code.

        ``states``: the state changes of the jobs; only the time in which a job could start is counted.
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
        if ids:
            self._tx.execute("DELETE FROM job_reasons WHERE job_id = ANY(%s)", (sorted(ids),))
            self._changed(Topic.JOBS)

    def awaited_jobs(self, ids: Collection[int]) -> dict[int, AwaitedJob]:
        """Return the existing jobs of ``ids`` as jobs that others wait for."""
        rows = self._tx.rows(_AWAITED, (list(ids),)) if ids else []
        now = self._tx.now
        ends = ((row, row[3] if row[3] and row[3] >= now else 0) for row in rows)
        return {row[0]: AwaitedJob(row[0], row[1], JobState(row[2]), end) for row, end in ends}

    def foreseen_starts(self) -> list[int]:
        """Return the predicted start dates of waiting jobs, ascending, without frames of reservations."""
        return self._tx.column(_FORESEEN_STARTS)

    def pending_predictions(self) -> dict[int, bool]:
        """Return the jobs with a stored prediction that have not started.

        The value is True if a second prediction was stored shortly before the start.
        """
        return dict(self._tx.rows(_PENDING))

    def first_predicted_starts(self, ids: Collection[int]) -> dict[int, int]:
        """Return the first predicted start of each of the jobs that has one."""
        return dict(self._tx.rows(_FIRST_STARTS, (list(ids),)))

    def store_first_predictions(self, starts: Sequence[ToldStart]) -> None:
        if starts:
            queues = [start.queue for start in starts]
            self._tx.execute(_TELL_FIRST, {**self._columns(starts), "queues": queues})
            self._changed(Topic.GANTT)

    def store_near_predictions(self, starts: Sequence[ToldStart]) -> None:
        """Store the second predicted start of jobs, shortly before the start."""
        if starts:
            self._tx.execute(_TELL_NEAR, self._columns(starts))
            self._changed(Topic.GANTT)

    def store_starts(self, dates: Mapping[int, int]) -> None:
        if dates:
            self._tx.execute(_NOTE_STARTS, {"ids": list(dates), "starts": list(dates.values())})
            self._changed(Topic.GANTT)

    def forget_predictions_before(self, date: int) -> None:
        """Delete the rows of jobs that started at or before a date."""
        if self._tx.execute(_FORGET, (date,)):
            self._changed(Topic.GANTT)

    def predicted_starts(self, job_id: int) -> ToldStarts | None:
        """Return the predicted starts of a job; return None if there are none."""
        row = self._tx.row(_TOLD, (job_id,))
        return ToldStarts(*row) if row else None

    def prediction_errors(self, since: int, *, is_near: bool = False) -> list[Errors]:
        """Return the errors of the first (or, with ``is_near``, of the second) predictions for the starts since a date.

        Return one row per queue and one for all queues.
        """
        values = {"since": max(1, since), "near": is_near, "tolerance": TOLERANCE}
        return [Errors(*row) for row in self._tx.rows(_ERRORS, values) if row[1]]

    def _columns(self, starts: Sequence[ToldStart]) -> dict[str, Any]:
        return {
            "ids": [start.job_id for start in starts],
            "starts": [start.start for start in starts],
            "now": self._tx.now,
        }

    def waits_by_size(self, period: LastStarted) -> list[WaitBySize]:
        """Return the waiting times of each size class, in total and by queue."""
        rows = self._tx.rows(_BY_SIZE, {**period._asdict(), "classes": list(CLASSES)})
        return [WaitBySize(place - 1, *rest) for place, *rest in rows]

    def waits_by_hour(self, period: LastStarted, zone: str) -> list[WaitByHour]:
        """Return the waiting times of each size class by submission time, in the local time of ``zone``."""
        rows = self._tx.rows(_BY_HOUR, {**period._asdict(), "classes": list(CLASSES), "zone": zone})
        return [WaitByHour(place - 1, *rest) for place, *rest in rows]

    def waits_by_piece(self, period: LastStarted, bucket: str) -> list[WaitByPiece]:
        """Return the waiting times of each size class by start time, in UTC periods (``BUCKETS``)."""
        rows = self._tx.rows(_BY_PIECE[bucket], {**period._asdict(), "classes": list(CLASSES)})
        return [WaitByPiece(place - 1, *rest) for place, *rest in rows]
