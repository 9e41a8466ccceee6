"""The stored plan (``tx.plan``): predicted starts and resources, and the plans of earlier scheduling passes.

The scheduler works with ``gantt_jobs_*``; all other programs read ``gantt_jobs_*_visu``. Both change in the
transaction of a scheduling pass. The start time of moldable 0 is the date of the pass.
See docs/design/planner.rst, "What is written".
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from oar.lib.bus.messages import Topic
from oar.lib.db.predicates import NO_FRAME
from oar.lib.db.statements import Prepared, Table

_STARTS = Prepared("SELECT moldable_job_id, start_time FROM gantt_jobs_predictions")

_HAS_PLACE = """
    SELECT 1 FROM moldable_job_descriptions m JOIN gantt_jobs_predictions p ON p.moldable_job_id = m.moldable_id
    WHERE m.moldable_job_id = ANY(%s) LIMIT 1"""

#: What is new or has changed.  ``sets`` are resources, each as the text of an array.
_STORE = Prepared("""
    WITH new AS (
        SELECT n.*
        FROM unnest(%(moldables)s::bigint[], %(starts)s::bigint[], %(sets)s::text[]) AS n (id, start, members)),
    predicted AS (
        INSERT INTO gantt_jobs_predictions AS p SELECT id, start FROM new
        ON CONFLICT (moldable_job_id) DO UPDATE SET start_time = EXCLUDED.start_time
        WHERE p.start_time <> EXCLUDED.start_time)
    INSERT INTO gantt_jobs_sets AS s SELECT id, members::integer[] FROM new WHERE id <> 0
    ON CONFLICT (moldable_job_id) DO UPDATE SET resources = EXCLUDED.resources
    WHERE s.resources <> EXCLUDED.resources""")

#: Alternatives that the plan has no more.
_REMOVE = Prepared("""
    DELETE FROM gantt_jobs_predictions WHERE moldable_job_id = ANY(%(gone)s);
    DELETE FROM gantt_jobs_sets WHERE moldable_job_id = ANY(%(gone)s);
    DELETE FROM gantt_jobs_predictions_visu WHERE moldable_job_id = ANY(%(gone)s);
    DELETE FROM gantt_jobs_sets_visu WHERE moldable_job_id = ANY(%(gone)s)""")

#: All alternatives but those of the plan, whoever wrote them.
_DELETE_OTHERS = """
    DELETE FROM {table} t WHERE t.moldable_job_id > 0 AND NOT EXISTS (
        SELECT 1 FROM unnest(%s::bigint[]) AS n (id) WHERE n.id = t.moldable_job_id)"""

#: In the place of an alternative: the row whose start is the date of the oldest prediction.  It is there only while
#: predictions may be older than the last round.
AGE = -1

_STORE_AGE = """
    INSERT INTO {table} AS p (moldable_job_id, start_time) VALUES (%(age)s, %(date)s)
    ON CONFLICT (moldable_job_id) DO UPDATE SET start_time = EXCLUDED.start_time"""

_TABLES = ("gantt_jobs_predictions", "gantt_jobs_sets")

_ALL_TABLES = (*_TABLES, "gantt_jobs_predictions_visu", "gantt_jobs_sets_visu")

_AGE = Prepared("""
    SELECT a.start_time FROM gantt_jobs_predictions_visu a
    JOIN gantt_jobs_predictions_visu r ON r.moldable_job_id = 0 AND r.start_time > a.start_time
    WHERE a.moldable_job_id = %s""")

#: Make the copies that everybody reads equal to what has been stored.
_COPY = Prepared("""
    INSERT INTO gantt_jobs_predictions_visu AS p
    SELECT moldable_job_id, start_time FROM gantt_jobs_predictions WHERE moldable_job_id = ANY(%(moldables)s)
    ON CONFLICT (moldable_job_id) DO UPDATE SET start_time = EXCLUDED.start_time
    WHERE p.start_time <> EXCLUDED.start_time;
    INSERT INTO gantt_jobs_sets_visu AS s
    SELECT moldable_job_id, resources FROM gantt_jobs_sets WHERE moldable_job_id = ANY(%(moldables)s)
    ON CONFLICT (moldable_job_id) DO UPDATE SET resources = EXCLUDED.resources
    WHERE s.resources <> EXCLUDED.resources""")

#: The whole plan, stored for ever under the date of its round.
_LOG = Prepared("""
    INSERT INTO gantt_jobs_predictions_log SELECT %(now)s, moldable_job_id, start_time FROM gantt_jobs_predictions
    ON CONFLICT DO NOTHING;
    INSERT INTO gantt_jobs_resources_log SELECT %(now)s, moldable_job_id, resource_id FROM gantt_jobs_resources
    ON CONFLICT DO NOTHING""")


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """The planned or assigned start and resources of a job alternative."""

    moldable: int
    start: int
    resources: tuple[int, ...]


def _values(predictions: Collection[PredictionRow], now: int) -> dict[str, list[Any]]:
    """Return the SQL parameters for predictions, with the date of the scheduling pass as the start of alternative 0."""
    sets = (",".join(map(str, prediction.resources)) for prediction in predictions)
    return {
        "moldables": [0, *(prediction.moldable for prediction in predictions)],
        "starts": [now, *(prediction.start for prediction in predictions)],
        "sets": ["{}", *(f"{{{resources}}}" for resources in sets)],
    }


#: The last plan of each of so many parts of a period: an index is asked once for each of them.
_DATES = """
    SELECT DISTINCT found.date FROM generate_series(0, %(parts)s::numeric - 1) AS part,
        trunc((%(stop)s::numeric - %(start)s) / %(parts)s, 3) AS width,
        LATERAL (SELECT max(sched_date) AS date FROM gantt_jobs_predictions_log
            WHERE sched_date >= trunc(%(start)s + width * part)::bigint
              AND sched_date < CASE WHEN part < %(parts)s - 1 THEN trunc(%(start)s + width * (part + 1))::bigint
                  ELSE %(stop)s::bigint END) found
    WHERE found.date IS NOT NULL ORDER BY 1"""

_LAST = "SELECT COALESCE(max(sched_date), 0) FROM gantt_jobs_predictions_log WHERE sched_date <= %s"

_JOBS = f"""
    SELECT j.job_id, COALESCE(j.job_name, ''), j.job_user, l.start_time, m.moldable_walltime, j.start_time, j.stop_time,
        ARRAY(SELECT r.resource_id FROM gantt_jobs_resources_log r
            WHERE r.sched_date = l.sched_date AND r.moldable_job_id = l.moldable_job_id ORDER BY 1)
    FROM gantt_jobs_predictions_log l
    JOIN moldable_job_descriptions m ON m.moldable_id = l.moldable_job_id
    JOIN jobs j ON j.job_id = m.moldable_job_id
    WHERE l.sched_date = %(date)s AND l.start_time >= %(date)s AND {NO_FRAME}
    ORDER BY l.start_time, j.job_id LIMIT %(most)s"""


class FormerlyPlanned(NamedTuple):
    """A job in the plan of an earlier pass, and its real dates. Dates are in seconds since the epoch, 0 = not yet."""

    id: int
    name: str
    user: str
    start: int  #: as it was planned
    walltime: int
    real_start: int
    real_stop: int
    resources: list[int]


class StoredPlan(Table):
    """Rows of the ``gantt_jobs_*`` tables."""

    def starts(self) -> dict[int, int]:
        """Return the predicted starts by alternative; the start of alternative 0 is the date of the scheduling pass."""
        return dict(self._tx.rows(_STARTS))

    def has_place(self, jobs: Collection[int]) -> bool:
        """Return whether the plan contains any of the jobs."""
        return self._tx.row(_HAS_PLACE, (sorted(jobs),)) is not None

    def resources(self, moldables: Collection[int]) -> dict[int, list[int]]:
        """Return the planned resources of alternatives."""
        if not moldables:
            return {}
        return dict(
            self._tx.rows(
                "SELECT moldable_job_id, resources FROM gantt_jobs_sets WHERE moldable_job_id = ANY(%s)",
                (list(moldables),),
            )
        )

    def write(self, moldables: Collection[int], predictions: Iterable[PredictionRow], now: int, *, log: bool) -> None:
        """Replace the stored plan; ``predictions`` are those of all ``moldables``."""
        planned = sorted(moldables)
        for table in _ALL_TABLES:
            self._tx.execute(_DELETE_OTHERS.format(table=table), (planned,))
        self.change((), predictions, now, log=log)

    def propose(self, predictions: Collection[PredictionRow], now: int) -> None:
        """Store the decisions made so far for an external scheduler; all other programs still see the last plan."""
        for table in _TABLES:
            self._tx.execute(_DELETE_OTHERS.format(table=table), ([prediction.moldable for prediction in predictions],))
        self._tx.execute(_STORE, _values(predictions, now))
        self._changed(Topic.GANTT)

    def change(self, gone: Collection[int], predictions: Iterable[PredictionRow], now: int, *, log: bool) -> None:
        """Store new and changed predictions, and delete the alternatives that are no longer in the plan (``gone``).

        ``now``: the date of the scheduling pass; with ``log``, also store the complete plan in the log tables.
        """
        if gone:
            self._tx.execute(_REMOVE, {"gone": sorted(gone)})
        self._store(list(predictions), now)
        if log:
            self._tx.execute(_LOG, {"now": now})
        self._changed(Topic.GANTT)

    def store_date(self, now: int) -> None:
        """Store the date of a scheduling pass that changed nothing else."""
        self._store((), now)

    def mark_age(self, date: int) -> None:
        """Store the date of the oldest prediction; 0: all predictions are those of the last scheduling pass."""
        for table in ("gantt_jobs_predictions", "gantt_jobs_predictions_visu"):
            if date:
                self._tx.execute(_STORE_AGE.format(table=table), {"age": AGE, "date": date})
            else:
                self._tx.execute(f"DELETE FROM {table} WHERE moldable_job_id = %s", (AGE,))

    def age(self) -> int:
        """Return the date of the oldest prediction; return 0 if all are those of the last scheduling pass."""
        row = self._tx.row(_AGE, (AGE,))
        return int(row[0]) if row else 0

    def _store(self, predictions: Collection[PredictionRow], now: int) -> None:
        values = _values(predictions, now)
        self._tx.execute(_STORE, values)
        self._tx.execute(_COPY, values)

    def former_dates(self, start: int, stop: int, parts: int) -> list[int]:
        """Return the dates of logged plans in a period: the last one in each of ``parts`` equal parts."""
        rows = self._tx.rows(_DATES, {"start": start, "stop": stop, "parts": parts})
        return [row[0] for row in rows]

    def last_former_plan(self, date: int) -> int:
        """Return the date of the last logged plan up to a date; return 0 if there is none."""
        return int(self._tx.value(_LAST, (date,)))

    def former_jobs(self, date: int, most: int) -> list[FormerlyPlanned]:
        """Return at most ``most`` jobs that the plan of a date starts then or later, sorted by start."""
        return [FormerlyPlanned(*row) for row in self._tx.rows(_JOBS, {"date": date, "most": most})]
