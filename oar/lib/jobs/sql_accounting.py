"""Consumption windows (``tx.accounting``): requested and used resources of users and projects."""

from collections.abc import Collection
from typing import NamedTuple

from oar.lib.bus.messages import Topic
from oar.lib.db.statements import Table
from oar.lib.nodes.states import ALWAYS_AVAILABLE

_BY_USER = """
    SELECT accounting_user, accounting_project, min(window_start), max(window_stop),
        COALESCE(sum(consumption) FILTER (WHERE consumption_type = 'ASKED'), 0)::bigint,
        COALESCE(sum(consumption) FILTER (WHERE consumption_type = 'USED'), 0)::bigint
    FROM accounting WHERE window_stop >= %s AND window_start < %s AND (%s::text IS NULL OR accounting_user = %s)
    GROUP BY accounting_user, accounting_project ORDER BY accounting_user, accounting_project"""
#: Locked until the end of the transaction, so that no job is counted twice.
_NOT_COUNTED = """
    SELECT job_id FROM jobs
    WHERE accounted = 'NO' AND state IN ('Terminated', 'Error') AND job_id > %(last)s AND stop_time >= %(since)s
    ORDER BY job_id LIMIT %(most)s FOR NO KEY UPDATE"""
_ENDED = """
    SELECT job_id FROM jobs WHERE state IN ('Terminated', 'Error') AND job_id > %(last)s
    ORDER BY job_id LIMIT %(most)s FOR NO KEY UPDATE"""
#: The given jobs that are frames of advance reservations.
_FRAMES = """frames AS MATERIALIZED (
    SELECT c.*, r.reservation_id, %(by_users)s OR r.flex = 'YES' AS is_shared
    FROM counted c JOIN reservations r ON r.frame_id = c.job_id AND r.frame_id <> 0)"""
#: The periods in which frames had resources, and in which jobs that are accounted themselves used them.
_HELD = """held AS (
    SELECT f.job_id, i.resource_id, i.date_start AS begins,
        COALESCE(NULLIF(i.date_stop, 0), %(end_of_time)s) AS ends, 1 AS granted, 0 AS used
    FROM frames f JOIN reservation_intervals i USING (reservation_id) JOIN resources r USING (resource_id)
    WHERE i.kind = 'granted' AND (%(all_types)s OR r.type = 'default')
    UNION ALL
    SELECT f.job_id, a.resource_id, j.start_time, COALESCE(NULLIF(j.stop_time, 0), f.stop_time), 0, 1
    FROM frames f JOIN reservation_jobs i USING (reservation_id) JOIN jobs j ON j.job_id = i.job_id
    JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job
    WHERE f.is_shared AND j.start_time > 0 AND j.assigned_moldable_job <> 0
    UNION ALL
    SELECT f.job_id, a.resource_id, GREATEST(l.date_start, j.start_time),
        LEAST(NULLIF(l.date_stop, 0), NULLIF(j.stop_time, 0), %(end_of_time)s), 0, -1
    FROM frames f JOIN reservation_jobs i USING (reservation_id) JOIN jobs j ON j.job_id = i.job_id
    JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job
    JOIN job_state_logs l ON l.job_id = j.job_id
    WHERE f.is_shared AND j.start_time > 0 AND j.assigned_moldable_job <> 0
      AND %(subtract_suspended)s AND l.job_state IN ('Suspended', 'Resuming'))"""
#: The same as periods without changes.
_LEVELS = """edges AS (
    SELECT job_id, resource_id, at, sum(granted * step) AS granted, sum(used * step) AS used
    FROM held CROSS JOIN LATERAL (VALUES (begins, 1), (ends, -1)) AS edge (at, step)
    WHERE ends > begins GROUP BY job_id, resource_id, at),
levels AS (
    SELECT job_id, resource_id, at AS begins, lead(at) OVER along AS ends,
        sum(granted) OVER along AS granted, sum(used) OVER along AS used
    FROM edges WINDOW along AS (PARTITION BY job_id, resource_id ORDER BY at))"""
#: The property of resources with the cost factor of a resource second; without the property, or a number, it is 1.
COST = "cost"
_HAS_COSTS = f"""
    SELECT EXISTS (SELECT FROM pg_attribute
        WHERE attrelid = 'public.resources'::regclass AND attname = '{COST}' AND NOT attisdropped)"""
_VALUE = f"(to_jsonb(r) ->> '{COST}')"  # resources may not have it
#: The cost factor of a resource ``r``; values are read only if there is the property.
FACTOR = rf"""(CASE WHEN NOT ({_HAS_COSTS}) THEN 1
    WHEN {_VALUE} ~ '^[0-9]+(\.[0-9]+)?$' THEN {_VALUE}::float8 ELSE 1 END)"""


def spans_cte(ids: str, stop: str, weight: str) -> str:
    """Return common table expressions; the last one, ``spans``, has the consumption per second of jobs, in intervals.

    ``ids``: the condition on the id of the jobs.  ``stop``: the end of a job ``j``.  ``weight``: what a second of a
    resource ``r`` counts.  Suspended time is subtracted if configured.
    """
    # The given jobs that are accounted to their container, or to the owner of their advance reservation.
    inside = f"""inside AS MATERIALIZED (
    SELECT t.job_id FROM job_types t
    WHERE t.job_id {ids} AND t.type LIKE 'inner=%%' AND NOT %(inner)s
      AND NOT EXISTS (SELECT 1 FROM reservation_jobs i WHERE i.job_id = t.job_id)
    UNION
    SELECT i.job_id FROM reservation_jobs i JOIN reservations r USING (reservation_id)
    WHERE i.job_id {ids} AND r.flex = 'NO' AND NOT %(by_users)s)"""
    # The given jobs that consumed something; the number of resources is that of their alternative.
    counted = f"""counted AS MATERIALIZED (
    SELECT j.job_id, j.job_user, j.project, j.queue_name, j.start_time, {stop} AS stop_time,
        COALESCE(NULLIF(m.moldable_walltime, 0), {stop} - j.start_time) AS walltime, held.weight AS number
    FROM jobs j
    LEFT JOIN moldable_job_descriptions m ON m.moldable_id = j.assigned_moldable_job
    CROSS JOIN LATERAL (
        SELECT count(*) AS number, sum({weight}) AS weight
        FROM assigned_resources a JOIN resources r USING (resource_id)
        WHERE a.moldable_job_id = j.assigned_moldable_job AND (%(all_types)s OR r.type = 'default')) held
    WHERE j.job_id {ids} AND j.assigned_moldable_job <> 0 AND held.number > 0
      AND j.start_time > 0 AND {stop} > j.start_time
      AND j.job_id NOT IN (SELECT job_id FROM inside))"""
    spans = f"""plain AS (SELECT * FROM counted WHERE job_id NOT IN (SELECT job_id FROM frames)),
spans AS (
    SELECT b.*, 'USED' AS kind, start_time AS begins, stop_time AS ends, number AS adds FROM plain b
    UNION ALL
    SELECT b.*, 'ASKED', start_time, LEAST(start_time + walltime, %(end_of_time)s), number FROM plain b
    UNION ALL
    SELECT b.*, span.kind, GREATEST(l.begins, b.start_time), LEAST(l.ends, span.ends), {weight}
    FROM counted b JOIN levels l USING (job_id) JOIN resources r USING (resource_id)
    CROSS JOIN LATERAL (
        VALUES ('USED', b.stop_time), ('ASKED', LEAST(b.start_time + b.walltime, %(end_of_time)s))) span (kind, ends)
    WHERE l.granted > 0 AND l.used = 0
    UNION ALL
    SELECT b.*, 'USED', GREATEST(l.date_start, start_time), LEAST(NULLIF(l.date_stop, 0), stop_time), -number
    FROM plain b JOIN job_state_logs l USING (job_id)
    WHERE %(subtract_suspended)s AND l.job_state IN ('Suspended', 'Resuming')
      AND l.date_start < stop_time AND (l.date_stop > start_time OR l.date_stop = 0))"""
    return f"{inside}, {counted}, {_FRAMES}, {_HELD}, {_LEVELS}, {spans}"


#: The sums of these intervals per window.
_PARTS = """parts AS MATERIALIZED (
    SELECT place * %(width)s AS window_start, (place + 1) * %(width)s - 1 AS window_stop,
        job_user, project, queue_name, kind,
        sum(adds * (LEAST(ends, (place + 1) * %(width)s) - GREATEST(begins, place * %(width)s)))::bigint AS consumption
    FROM spans CROSS JOIN LATERAL generate_series(begins / %(width)s, (ends - 1) / %(width)s) place
    WHERE ends > begins
    GROUP BY place, job_user, project, queue_name, kind)"""
_IDS, _STOP = "= ANY(%(ids)s)", "j.stop_time"
_COUNT = f"""
    WITH {spans_cte(_IDS, _STOP, "1")}, {_PARTS},
    written AS (
        INSERT INTO accounting SELECT * FROM parts
        ORDER BY window_start, window_stop, job_user, project, queue_name, kind
        ON CONFLICT (window_start, window_stop, accounting_user, accounting_project, queue_name, consumption_type)
        DO UPDATE SET consumption = accounting.consumption + EXCLUDED.consumption
        RETURNING window_start, accounting_user, accounting_project, queue_name, consumption_type, xmax = 0 AS is_new),
    marked AS (
        UPDATE jobs j SET accounted = CASE WHEN c.job_id IS NULL THEN 'NA' ELSE 'YES' END
        FROM unnest(%(ids)s::bigint[]) AS asked (job_id) LEFT JOIN counted c USING (job_id)
        WHERE j.job_id = asked.job_id
          AND j.accounted <> CASE WHEN c.job_id IS NULL THEN 'NA' ELSE 'YES' END)
    SELECT p.window_start, p.window_stop, p.project, p.job_user, p.queue_name, p.kind, p.consumption, w.is_new
    FROM parts p JOIN written w
      ON (w.window_start, w.accounting_user, w.accounting_project, w.queue_name, w.consumption_type)
       = (p.window_start, p.job_user, p.project, p.queue_name, p.kind)
    ORDER BY 1, 3, 4, 5, 6"""
#: What the given jobs cost beyond their resource seconds; budgets do not count the queue besteffort.
_COUNT_COSTS = f"""
    WITH {spans_cte(_IDS, _STOP, f"({FACTOR} - 1)")}
    INSERT INTO accounting_costs (window_start, window_stop, accounting_project, extra)
    SELECT place * %(width)s, (place + 1) * %(width)s - 1, project,
        sum(adds * (LEAST(ends, (place + 1) * %(width)s) - GREATEST(begins, place * %(width)s)))
    FROM spans CROSS JOIN LATERAL generate_series(begins / %(width)s, (ends - 1) / %(width)s) place
    WHERE ends > begins AND kind = 'USED' AND adds <> 0 AND queue_name <> 'besteffort'
    GROUP BY 1, 2, 3 ORDER BY 1, 3
    ON CONFLICT (window_start, window_stop, accounting_project)
    DO UPDATE SET extra = accounting_costs.extra + EXCLUDED.extra"""
_NOT_APPLICABLE = "SELECT job_id FROM jobs WHERE job_id = ANY(%s) AND accounted = 'NA'"


class Rules(NamedTuple):
    """Accounting rules (keys ``ACCOUNTING_*`` of oar.conf)."""

    width: int  #: of a window, in seconds
    all_types: bool = False  #: count resources of all types, not only of type default
    subtract_suspended: bool = False  #: do not count the time in suspension as used
    inner: bool = False  #: count inner jobs, too, not only their container
    by_users: bool = False  #: advance reservations: account jobs to their users, idle time to the owner


class WindowChange(NamedTuple):
    """The consumption that a batch of jobs added to a window."""

    window_start: int
    window_stop: int  #: its last second
    project: str
    user: str
    queue: str
    kind: str  #: ASKED or USED
    consumption: int  #: resource seconds
    is_new: bool


class Consumption(NamedTuple):
    """The requested and used consumption of a user in a project, in resource seconds, and the period of its windows."""

    user: str
    project: str
    first_window_start: int
    last_window_stop: int
    asked: int
    used: int


class Accounting(Table):
    """Rows of ``accounting``."""

    def between(self, start: int, stop: int, user: str | None = None) -> list[Consumption]:
        """Return the consumption in the windows that overlap ``[start, stop)``, by user and project."""
        return [Consumption(*row) for row in self._tx.rows(_BY_USER, (start, stop, user, user))]

    def last_karma(self, user: str, project: str) -> float | None:
        """Return the karma of the last job of a user in a project; return None if no job has one."""
        karma: float | None = self._tx.value(
            "SELECT last_karma FROM jobs WHERE job_user = %s AND project = %s AND last_karma IS NOT NULL"
            " ORDER BY job_id DESC LIMIT 1",
            (user, project),
        )
        return karma

    def not_counted(self, most: int, *, after: int = 0, since: int = 0) -> list[int]:
        """Return and lock at most ``most`` jobs that are not accounted yet.

        ``after``: only jobs with larger ids; ``since``: only jobs that ended at this date or later.
        """
        return self._tx.column(_NOT_COUNTED, {"most": most, "last": after, "since": since})

    def ended(self, most: int, *, after: int = 0) -> list[int]:
        """Return and lock at most ``most`` ended jobs with ids above ``after``, accounted or not."""
        return self._tx.column(_ENDED, {"most": most, "last": after})

    def count(self, ids: Collection[int], rules: Rules) -> list[WindowChange]:
        """Add the consumption of ended jobs to the windows, and mark the jobs; return the additions by window."""
        self._changed(Topic.ACCOUNTING)
        values = {**rules._asdict(), "ids": list(ids), "end_of_time": ALWAYS_AVAILABLE}
        if self.has_costs():
            self._tx.execute(_COUNT_COSTS, values)
        return [WindowChange(*row) for row in self._tx.rows(_COUNT, values)]

    def not_applicable(self, ids: Collection[int]) -> frozenset[int]:
        """Return the given jobs that have no consumption to account."""
        return frozenset(self._tx.column(_NOT_APPLICABLE, (list(ids),)))

    def other_width(self, width: int) -> int | None:
        """Return the width of any window that is not ``width`` seconds wide; return None if there is none."""
        other: int | None = self._tx.value(
            "SELECT window_stop - window_start + 1 FROM accounting WHERE window_stop - window_start + 1 <> %s LIMIT 1",
            (width,),
        )
        return other

    def delete_before(self, date: int) -> int:
        """Delete the windows that ended before a date; return the number of rows."""
        self._changed(Topic.ACCOUNTING)
        self._tx.execute("DELETE FROM accounting_costs WHERE window_stop < %s", (date,))
        return self._tx.execute("DELETE FROM accounting WHERE window_stop < %s", (date,))

    def clear(self) -> None:
        self._changed(Topic.ACCOUNTING)
        self._tx.execute("DELETE FROM accounting_costs")
        self._tx.execute("DELETE FROM accounting")

    def has_costs(self) -> bool:
        """Return whether resources have the property with their cost factor."""
        return bool(self._tx.value(_HAS_COSTS))
