"""Predictions and reasons (``tx.gantt``): what the last round foresaw, written by difference (database.md 5.7).

``gantt_jobs_*`` is what the scheduler works with, ``gantt_jobs_*_visu`` what everybody else reads: both change in the
transaction of a round.  The row of moldable 0 is the date of the round.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

#: What is new or has changed.  ``sets`` are resources, each as the text of an array.
_STORE = """
    WITH new AS (
        SELECT n.*
        FROM unnest(%(moldables)s::bigint[], %(starts)s::bigint[], %(sets)s::text[]) AS n (id, start, members)),
    predicted AS (
        INSERT INTO gantt_jobs_predictions AS p SELECT id, start FROM new
        ON CONFLICT (moldable_job_id) DO UPDATE SET start_time = EXCLUDED.start_time
        WHERE p.start_time <> EXCLUDED.start_time)
    INSERT INTO gantt_jobs_sets AS s SELECT id, members::integer[] FROM new WHERE id <> 0
    ON CONFLICT (moldable_job_id) DO UPDATE SET resources = EXCLUDED.resources
    WHERE s.resources <> EXCLUDED.resources"""
#: Alternatives that the plan holds no more.
_REMOVE = """
    DELETE FROM gantt_jobs_predictions WHERE moldable_job_id = ANY(%(gone)s);
    DELETE FROM gantt_jobs_sets WHERE moldable_job_id = ANY(%(gone)s);
    DELETE FROM gantt_jobs_predictions_visu WHERE moldable_job_id = ANY(%(gone)s);
    DELETE FROM gantt_jobs_sets_visu WHERE moldable_job_id = ANY(%(gone)s)"""
#: All alternatives but those of the plan, whoever wrote them.
_CLEAN = """
    DELETE FROM {table} t WHERE t.moldable_job_id <> 0 AND NOT EXISTS (
        SELECT 1 FROM unnest(%s::bigint[]) AS n (id) WHERE n.id = t.moldable_job_id)"""
_WORKED_ON = ("gantt_jobs_predictions", "gantt_jobs_sets")
_CLEANED = (*_WORKED_ON, "gantt_jobs_predictions_visu", "gantt_jobs_sets_visu")
#: Bring the copies to what has been stored.
_SHOW = """
    INSERT INTO gantt_jobs_predictions_visu AS p
    SELECT moldable_job_id, start_time FROM gantt_jobs_predictions WHERE moldable_job_id = ANY(%(moldables)s)
    ON CONFLICT (moldable_job_id) DO UPDATE SET start_time = EXCLUDED.start_time
    WHERE p.start_time <> EXCLUDED.start_time;
    INSERT INTO gantt_jobs_sets_visu AS s
    SELECT moldable_job_id, resources FROM gantt_jobs_sets WHERE moldable_job_id = ANY(%(moldables)s)
    ON CONFLICT (moldable_job_id) DO UPDATE SET resources = EXCLUDED.resources
    WHERE s.resources <> EXCLUDED.resources"""
#: The whole plan, kept for ever under the date of its round.
_KEEP = """
    INSERT INTO gantt_jobs_predictions_log SELECT %(now)s, moldable_job_id, start_time FROM gantt_jobs_predictions
    ON CONFLICT DO NOTHING;
    INSERT INTO gantt_jobs_resources_log SELECT %(now)s, moldable_job_id, resource_id FROM gantt_jobs_resources
    ON CONFLICT DO NOTHING"""

#: Texts that the scheduler writes into waiting jobs.
_TELL = """
    UPDATE jobs j SET message = n.message, scheduler_info = n.info, last_karma = COALESCE(n.karma, j.last_karma)
    FROM (SELECT unnest(%s::bigint[]) AS id, unnest(%s::text[]) AS message, unnest(%s::text[]) AS info,
                 unnest(%s::double precision[]) AS karma) n
    WHERE j.job_id = n.id AND j.state IN ('Waiting', 'toLaunch', 'toAckReservation')"""
#: A change of the code goes to the history of the job, too.  ``date`` is since when the job has had this code.  What it
#: returns are the jobs whose history has become long.
_EXPLAIN = """
    WITH told AS (
        SELECT n.*, r.code AS former FROM unnest(%(ids)s::bigint[], %(codes)s::text[], %(reasons)s::text[],
            %(data)s::text[]) AS n (id, code, reason, data)
        JOIN jobs j ON j.job_id = n.id
            AND (j.state IN ('Waiting', 'toAckReservation') OR j.state = 'Hold' AND n.code = 'HOLD')
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
    SELECT job_id FROM written WHERE changes > %(most)s"""


@dataclass(frozen=True, slots=True)
class JobText:
    """What a waiting job is told."""

    job_id: int
    message: str
    info: str
    karma: float | None = None


@dataclass(frozen=True, slots=True)
class StoredReason:
    """A row of ``job_reasons``; ``data`` is JSON."""

    code: str
    reason: str
    data: str


@dataclass(frozen=True, slots=True)
class Prediction:
    """Start and resources foreseen for an alternative of a job, or held by it."""

    moldable: int
    start: int
    resources: tuple[int, ...]


class Gantt:
    """The gantt tables and ``job_reasons``."""

    def __init__(self, tx: "Transaction") -> None:
        self._tx = tx

    def starts(self) -> dict[int, int]:
        """Return the predicted starts by alternative; 0 -> date of the round."""
        return dict(self._tx.rows("SELECT moldable_job_id, start_time FROM gantt_jobs_predictions"))

    def resources(self, moldables: Collection[int]) -> dict[int, list[int]]:
        """Return the resources foreseen for some alternatives."""
        if not moldables:
            return {}
        return dict(
            self._tx.rows(
                "SELECT moldable_job_id, resources FROM gantt_jobs_sets WHERE moldable_job_id = ANY(%s)",
                (list(moldables),),
            )
        )

    def reasons(self) -> dict[int, StoredReason]:
        """Return why jobs do not start."""
        return {
            row[0]: StoredReason(*row[1:])
            for row in self._tx.rows("SELECT job_id, code, reason, data FROM job_reasons")
        }

    def write(self, moldables: Collection[int], predictions: Iterable[Prediction], now: int, *, keep: bool) -> None:
        """Store a plan that holds ``moldables``, whatever is there; of other alternatives nothing is left."""
        held = sorted(moldables)
        for table in _CLEANED:
            self._tx.execute(_CLEAN.format(table=table), (held,))
        self.change((), predictions, now, keep=keep)

    def propose(self, predictions: Collection[Prediction], now: int) -> None:
        """Put what is decided so far before an external scheduler, and nothing else; others see the last plan."""
        for table in _WORKED_ON:
            self._tx.execute(_CLEAN.format(table=table), ([each.moldable for each in predictions],))
        self._tx.execute(_STORE, _values(predictions, now))

    def change(self, gone: Collection[int], predictions: Iterable[Prediction], now: int, *, keep: bool) -> None:
        """Store what is new in a plan, and remove the alternatives that it holds no more."""
        if gone:
            self._tx.execute(_REMOVE, {"gone": sorted(gone)})
        changed = list(predictions)
        self._store(changed, now)
        if keep:
            self._tx.execute(_KEEP, {"now": now})
        self._tx.topics.add("gantt")

    def date(self, now: int) -> None:
        """Store the date of a round that changed nothing else."""
        self._store((), now)

    def _store(self, changed: Collection[Prediction], now: int) -> None:
        values = _values(changed, now)
        self._tx.execute(_STORE, values)
        self._tx.execute(_SHOW, values)

    def tell(self, texts: Collection[JobText]) -> None:
        """Write messages, reasons and karmas into jobs that still wait."""
        if texts:
            columns = zip(*((text.job_id, text.message, text.info, text.karma) for text in texts), strict=True)
            self._tx.execute(_TELL, [list(column) for column in columns])

    def explain(self, reasons: Mapping[int, StoredReason]) -> None:
        """Store why jobs that still wait do not start."""
        if reasons:
            from oar.lib.db import waits  # rounds alone need it, not every command

            values = {
                "now": self._tx.now,
                "most": waits.MOST_CHANGES,
                "ids": list(reasons),
                "codes": [each.code for each in reasons.values()],
                "reasons": [each.reason for each in reasons.values()],
                "data": [each.data for each in reasons.values()],
            }
            long = self._tx.column(_EXPLAIN, values)
            if long:
                waits.fold(self._tx, long)

    def forget_reasons(self, ids: Collection[int]) -> None:
        """Remove the reasons of jobs that start."""
        if ids:
            self._tx.execute("DELETE FROM job_reasons WHERE job_id = ANY(%s)", (sorted(ids),))


def _values(predictions: Collection[Prediction], now: int) -> dict[str, list[Any]]:
    """Return the parameters that store predictions, and the date of the round as that of alternative 0."""
    return {
        "moldables": [0, *(each.moldable for each in predictions)],
        "starts": [now, *(each.start for each in predictions)],
        "sets": ["{}", *(f"{{{','.join(map(str, each.resources))}}}" for each in predictions)],
    }
