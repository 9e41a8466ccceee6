"""Predictions and reasons (``tx.gantt``): what the last round foresaw, written by difference (database.md 5.7).

``gantt_jobs_*`` is what the scheduler works with, ``gantt_jobs_*_visu`` what everybody else reads: both change in the
transaction of a round.  The row of moldable 0 is the date of the round.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

#: The new plan, as far as it may differ from the stored one; and which alternatives it holds in all.
_TABLES = """
    CREATE TEMPORARY TABLE IF NOT EXISTS round_jobs (moldable_job_id bigint PRIMARY KEY) ON COMMIT DELETE ROWS;
    CREATE TEMPORARY TABLE IF NOT EXISTS round_predictions (moldable_job_id bigint PRIMARY KEY, start_time bigint)
        ON COMMIT DELETE ROWS;
    CREATE TEMPORARY TABLE IF NOT EXISTS round_resources
        (moldable_job_id bigint, resource_id integer, PRIMARY KEY (moldable_job_id, resource_id))
        ON COMMIT DELETE ROWS"""
_COPY_JOBS = "COPY round_jobs FROM STDIN"
_COPY_PREDICTIONS = "COPY round_predictions FROM STDIN"
_COPY_RESOURCES = "COPY round_resources FROM STDIN"
_ANALYZE = "ANALYZE round_jobs; ANALYZE round_predictions; ANALYZE round_resources"

#: Bring one pair of tables to the new plan.
_DIFFERENCE = """
    DELETE FROM gantt_jobs_predictions{suffix} WHERE moldable_job_id = ANY(%(gone)s);
    DELETE FROM gantt_jobs_resources{suffix} WHERE moldable_job_id = ANY(%(gone)s);
    INSERT INTO gantt_jobs_predictions{suffix} AS p SELECT moldable_job_id, start_time FROM round_predictions
    ON CONFLICT (moldable_job_id) DO UPDATE SET start_time = EXCLUDED.start_time
    WHERE p.start_time <> EXCLUDED.start_time;
    DELETE FROM gantt_jobs_resources{suffix} r USING round_predictions p
    WHERE r.moldable_job_id = p.moldable_job_id AND NOT EXISTS (
        SELECT 1 FROM round_resources n
        WHERE n.moldable_job_id = r.moldable_job_id AND n.resource_id = r.resource_id);
    INSERT INTO gantt_jobs_resources{suffix} SELECT moldable_job_id, resource_id FROM round_resources
    ON CONFLICT DO NOTHING;
    INSERT INTO gantt_jobs_predictions{suffix} AS p VALUES (0, %(now)s)
    ON CONFLICT (moldable_job_id) DO UPDATE SET start_time = EXCLUDED.start_time
    WHERE p.start_time <> EXCLUDED.start_time"""
#: Predictions of alternatives that the plan does not hold, and resources without prediction.
_ORPHANS = """
    DELETE FROM gantt_jobs_predictions{suffix} p
    WHERE p.moldable_job_id <> 0
      AND NOT EXISTS (SELECT 1 FROM round_jobs n WHERE n.moldable_job_id = p.moldable_job_id);
    DELETE FROM gantt_jobs_resources{suffix} r
    WHERE NOT EXISTS (SELECT 1 FROM round_jobs n WHERE n.moldable_job_id = r.moldable_job_id)"""
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
#: A change of the code goes to the history of the job, too.  ``date`` is since when the job has had this code.
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
        ON CONFLICT (job_id, date) DO UPDATE SET code = EXCLUDED.code)
    INSERT INTO job_reasons AS r (job_id, date, code, reason, data)
    SELECT id, %(now)s, code, reason, data FROM told
    ON CONFLICT (job_id) DO UPDATE SET
        date = CASE WHEN r.code = EXCLUDED.code THEN r.date ELSE EXCLUDED.date END,
        code = EXCLUDED.code, reason = EXCLUDED.reason, data = EXCLUDED.data"""


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
                "SELECT moldable_job_id, array_agg(resource_id) FROM gantt_jobs_resources"
                " WHERE moldable_job_id = ANY(%s) GROUP BY moldable_job_id",
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
        self._load(moldables, predictions)
        for suffix in ("", "_visu"):
            self._tx.execute(_ORPHANS.format(suffix=suffix))
        self._store((), now, keep=keep)

    def change(self, gone: Collection[int], predictions: Iterable[Prediction], now: int, *, keep: bool) -> None:
        """Store what is new in a plan, and remove the alternatives that it holds no more."""
        self._load((), predictions)
        self._store(gone, now, keep=keep)

    def _store(self, gone: Collection[int], now: int, *, keep: bool) -> None:
        for suffix in ("", "_visu"):
            self._tx.execute(_DIFFERENCE.format(suffix=suffix), {"now": now, "gone": list(gone)})
        if keep:
            self._tx.execute(_KEEP, {"now": now})
        self._tx.topics.add("gantt")

    def date(self, now: int) -> None:
        """Store the date of a round that changed nothing else."""
        for suffix in ("", "_visu"):
            self._tx.execute(
                f"INSERT INTO gantt_jobs_predictions{suffix} AS p VALUES (0, %s) ON CONFLICT (moldable_job_id)"
                " DO UPDATE SET start_time = EXCLUDED.start_time WHERE p.start_time <> EXCLUDED.start_time",
                (now,),
            )

    def tell(self, texts: Collection[JobText]) -> None:
        """Write messages, reasons and karmas into jobs that still wait."""
        if texts:
            columns = zip(*((text.job_id, text.message, text.info, text.karma) for text in texts), strict=True)
            self._tx.execute(_TELL, [list(column) for column in columns])

    def explain(self, reasons: Mapping[int, StoredReason]) -> None:
        """Store why jobs that still wait do not start."""
        if reasons:
            values = {
                "now": self._tx.now,
                "ids": list(reasons),
                "codes": [each.code for each in reasons.values()],
                "reasons": [each.reason for each in reasons.values()],
                "data": [each.data for each in reasons.values()],
            }
            self._tx.execute(_EXPLAIN, values)

    def forget_reasons(self, ids: Collection[int]) -> None:
        """Remove the reasons of jobs that start."""
        if ids:
            self._tx.execute("DELETE FROM job_reasons WHERE job_id = ANY(%s)", (sorted(ids),))

    def _load(self, moldables: Collection[int], changed: Iterable[Prediction]) -> None:
        predictions = list(changed)
        self._tx.execute(_TABLES)
        self._tx.copy_in(_COPY_JOBS, (f"{moldable}\n" for moldable in sorted(moldables)))
        self._tx.copy_in(_COPY_PREDICTIONS, (f"{each.moldable}\t{each.start}\n" for each in predictions))
        self._tx.copy_in(
            _COPY_RESOURCES, (f"{each.moldable}\t{number}\n" for each in predictions for number in each.resources)
        )
        self._tx.execute(_ANALYZE)
