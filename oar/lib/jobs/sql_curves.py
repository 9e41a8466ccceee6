"""Curves of jobs (``tx.job_curves``): rows of ``job_curves``, one for each node of a job."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from oar.lib.db.predicates import LIVE, NO_FRAME
from oar.lib.db.statements import Prepared, Row, Table, quoted
from oar.lib.history.event_types import EventType
from oar.lib.jobs.curves import Curve, Sample
from oar.lib.jobs.states import JobTypeName

#: Jobs of these types run nothing of theirs in a group on their nodes, or not on a node of ours.
_WITHOUT_CURVE = [
    *(JobTypeName.DEPLOY, JobTypeName.COSYSTEM, JobTypeName.NOOP),
    JobTypeName.DESKTOP_COMPUTING,
]
_TYPES = ", ".join(f"'{name}'" for name in _WITHOUT_CURVE)
_HAS_PROCESSES = f"""NOT EXISTS (
        SELECT FROM job_types t WHERE t.job_id = j.job_id AND split_part(t.type, '=', 1) IN ({_TYPES}))"""
_WATCHED_JOBS = Prepared(f"""
    SELECT j.job_id FROM jobs j
    WHERE {LIVE} AND j.state IN ('Running', 'Suspended', 'Resuming') AND j.start_time BETWEEN 1 AND %s
      AND {NO_FRAME} AND {_HAS_PROCESSES}
    ORDER BY j.job_id""")
_NODES = Prepared("""
    SELECT DISTINCT s.network_address
    FROM jobs j
    JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job AND a.assigned_resource_index = 'CURRENT'
    JOIN resources s USING (resource_id)
    WHERE j.job_id = ANY(%s) AND s.network_address <> ''
    ORDER BY s.network_address LIMIT %s""")
_PLACES = Prepared(f"""
    SELECT p.job_id, p.node, COALESCE(c.begin, j.start_time), COALESCE(c.step, 0), COALESCE(cardinality(c.cpu), 0)
    FROM unnest(%s::bigint[], %s::text[]) p (job_id, node)
    JOIN jobs j ON j.job_id = p.job_id
    LEFT JOIN job_curves c ON c.job_id = p.job_id AND c.network_address = p.node
    WHERE {LIVE} AND j.start_time > 0 AND EXISTS (
        SELECT FROM assigned_resources a JOIN resources s USING (resource_id)
        WHERE a.moldable_job_id = j.assigned_moldable_job AND a.assigned_resource_index = 'CURRENT'
          AND s.network_address = p.node)""")
#: A curve with other steps, or that has these points already, stays as it is.
_APPEND = Prepared("""
    INSERT INTO job_curves (job_id, network_address, begin, step, gpus, cpu, memory, gpu, gpu_memory)
    SELECT n.job_id, n.node, n.begin, n.step, n.gpus,
        f.gap || n.cpu::integer[], f.gap || n.memory::integer[],
        CASE WHEN n.gpus > 0 THEN f.gap || n.gpu::integer[] ELSE ARRAY[]::integer[] END,
        CASE WHEN n.gpus > 0 THEN f.gap || n.gpu_memory::integer[] ELSE ARRAY[]::integer[] END
    FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::integer[], %s::integer[], %s::integer[], %s::text[],
        %s::text[], %s::text[], %s::text[]) n (job_id, node, begin, step, gpus, place, cpu, memory, gpu, gpu_memory)
    CROSS JOIN LATERAL (SELECT array_fill(NULL::integer, ARRAY[n.place])) f (gap)
    ON CONFLICT (job_id, network_address) DO UPDATE SET
        gpus = GREATEST(job_curves.gpus, EXCLUDED.gpus),
        cpu = job_curves.cpu || EXCLUDED.cpu[cardinality(job_curves.cpu) + 1:],
        memory = job_curves.memory || EXCLUDED.memory[cardinality(job_curves.cpu) + 1:],
        gpu = job_curves.gpu || EXCLUDED.gpu[cardinality(job_curves.gpu) + 1:],
        gpu_memory = job_curves.gpu_memory || EXCLUDED.gpu_memory[cardinality(job_curves.gpu) + 1:]
    WHERE job_curves.step = EXCLUDED.step AND cardinality(job_curves.cpu) < cardinality(EXCLUDED.cpu)
    RETURNING job_id, network_address""")
_COLUMNS = "c.job_id, c.network_address, c.begin, c.step, c.gpus, c.cpu, c.memory, c.gpu, c.gpu_memory"
_OF_JOBS = Prepared(
    f"SELECT {_COLUMNS} FROM job_curves c WHERE c.job_id = ANY(%s) ORDER BY c.job_id, c.network_address"
)
_LOCKED = Prepared(f"""
    SELECT {_COLUMNS} FROM unnest(%s::bigint[], %s::text[]) p (job_id, node)
    JOIN job_curves c ON c.job_id = p.job_id AND c.network_address = p.node
    ORDER BY c.job_id, c.network_address FOR UPDATE OF c""")
_REPLACE = Prepared("""
    UPDATE job_curves c SET step = n.step, cpu = n.cpu::integer[], memory = n.memory::integer[],
        gpu = n.gpu::integer[], gpu_memory = n.gpu_memory::integer[]
    FROM unnest(%s::bigint[], %s::text[], %s::integer[], %s::text[], %s::text[], %s::text[], %s::text[])
        n (job_id, node, step, cpu, memory, gpu, gpu_memory)
    WHERE c.job_id = n.job_id AND c.network_address = n.node""")

#: Jobs that may be idle: a container is used by its inner jobs, a reservation waits for its users.
_MAY_BE_IDLE = f"""NOT EXISTS (
        SELECT FROM job_types t WHERE t.job_id = j.job_id AND split_part(t.type, '=', 1) IN
            ('{JobTypeName.IDLE_OK}', '{JobTypeName.CONTAINER}', '{JobTypeName.PLACEHOLDER}'))"""
_IDLE_CANDIDATES = Prepared(f"""
    SELECT j.job_id, j.job_user, COALESCE(
            (SELECT max(l.date_start) FROM job_state_logs l WHERE l.job_id = j.job_id AND l.date_stop = 0),
            j.start_time),
        (SELECT count(*) FROM job_curves c WHERE c.job_id = j.job_id)
    FROM jobs j
    WHERE {LIVE} AND j.state = 'Running' AND j.start_time BETWEEN 1 AND %s AND j.reservation = 'None'
      AND NOT EXISTS (SELECT FROM reservation_jobs r WHERE r.job_id = j.job_id)
      AND EXISTS (SELECT FROM job_curves c WHERE c.job_id = j.job_id) AND {_MAY_BE_IDLE}
    ORDER BY j.job_id""")
_IDLE_WARNINGS = Prepared(f"""
    SELECT e.job_id, e.date, e.description FROM event_logs e
    WHERE e.job_id = ANY(%s) AND e.type = '{EventType.IDLE_JOB_WARNED}'""")

#: A curve: its job and its node.
Pair = tuple[int, str]


class CurvePlace(NamedTuple):
    """Where a curve of a live job continues: its begin, the length of its steps (0: it has none), its points."""

    begin: int
    step: int
    length: int


class IdleCandidate(NamedTuple):
    """A running job with curves that may be idle."""

    job_id: int
    user: str
    running_since: int  #: its start or last resumption
    curves: int  #: number of its curves


class HeldUnits(NamedTuple):
    """The cores and the GPUs that a job has on a node: values of the properties that name them."""

    job_id: int
    node: str
    gpus: Sequence[str]
    cores: Sequence[str]


class NewPoints(NamedTuple):
    """Points that are appended to a curve, which is made if it does not exist."""

    job_id: int
    node: str
    begin: int
    step: int
    points: Sequence[tuple[int, Sample]]  #: with the number of the step, in ascending order


class JobCurves(Table):
    """Rows of ``job_curves``."""

    def watched_jobs(self, started_before: int) -> list[int]:
        """Return the running or suspended jobs with processes that started before a date."""
        return self._tx.column(_WATCHED_JOBS, (started_before,))

    def nodes(self, ids: Collection[int], most: int) -> list[str]:
        """Return the nodes of jobs, by name, at most so many."""
        return self._tx.column(_NODES, (list(ids), most)) if ids else []

    def places(self, pairs: Collection[Pair]) -> dict[Pair, CurvePlace]:
        """Return where the curves of jobs on nodes continue.

        Pairs of which the job is not live, or does not have the node, have no place: a node may tell what is not true.
        """
        if not pairs:
            return {}
        ids, nodes = map(list, zip(*pairs, strict=True))
        return {(row[0], row[1]): CurvePlace(*row[2:]) for row in self._tx.rows(_PLACES, (ids, nodes))}

    def append(self, new: Iterable[NewPoints]) -> set[Pair]:
        """Append points; return the curves that have got them. Others have steps of another length, or these points."""
        rows = [_appended(each) for each in sorted(new, key=lambda each: each[:2])]
        if not rows:
            return set()
        return {
            (row[0], row[1]) for row in self._tx.rows(_APPEND, [list(column) for column in zip(*rows, strict=True)])
        }

    def lengthen_steps(self, steps: dict[Pair, int]) -> None:
        """Give curves longer steps."""
        ids, nodes = map(list, zip(*sorted(steps), strict=True))
        curves = [_curve(row) for row in self._tx.rows(_LOCKED, (ids, nodes))]
        longer = [curve.in_steps(steps[curve.job_id, curve.node]) for curve in curves]
        rows = [(c.job_id, c.node, c.step, *map(_literal, c.columns)) for c in longer]
        if rows:
            self._tx.execute(_REPLACE, [list(column) for column in zip(*rows, strict=True)])

    def of_jobs(self, ids: Collection[int]) -> dict[int, list[Curve]]:
        """Return the curves of jobs: for each job one for each node that has been measured, sorted by name."""
        curves: dict[int, list[Curve]] = {job_id: [] for job_id in ids}
        for row in self._tx.rows(_OF_JOBS, (list(ids),)) if ids else ():
            curves[row[0]].append(_curve(row))
        return curves

    def idle_candidates(self, started_before: int) -> list[IdleCandidate]:
        """Return the running jobs with curves that started before a date, without those that rules do not concern."""
        return [IdleCandidate(*row) for row in self._tx.rows(_IDLE_CANDIDATES, (started_before,))]

    def held_units(self, ids: Collection[int], gpu_property: str | None, core_property: str | None) -> list[HeldUnits]:
        """Return the values of two properties that jobs have on each of their nodes. None: no such property."""
        gpus, cores = (
            f"s.{quoted(name, has_parameters=True)}::text" if name else "NULL::text"
            for name in (gpu_property, core_property)
        )
        statement = f"""
            SELECT j.job_id, s.network_address, array_remove(array_agg(DISTINCT {gpus}), NULL),
                array_remove(array_agg(DISTINCT {cores}) FILTER (WHERE s.type = 'default'), NULL)
            FROM jobs j
            JOIN assigned_resources a
                ON a.moldable_job_id = j.assigned_moldable_job AND a.assigned_resource_index = 'CURRENT'
            JOIN resources s USING (resource_id)
            WHERE j.job_id = ANY(%s) AND s.network_address <> ''
            GROUP BY j.job_id, s.network_address"""
        return [HeldUnits(row[0], row[1], row[2] or (), row[3] or ()) for row in self._tx.rows(statement, (list(ids),))]

    def idle_warnings(self, ids: Collection[int]) -> dict[int, list[tuple[int, str]]]:
        """Return the warnings of jobs that they are idle: dates and texts."""
        warnings: dict[int, list[tuple[int, str]]] = {}
        for job_id, date, text in self._tx.rows(_IDLE_WARNINGS, (list(ids),)):
            warnings.setdefault(job_id, []).append((date, text))
        return warnings


def _curve(row: Row) -> Curve:
    return Curve(*row)


def _appended(new: NewPoints) -> tuple[object, ...]:
    first, last = new.points[0][0], new.points[-1][0]
    known = dict(new.points)
    samples = [known.get(place, Sample()) for place in range(first, last + 1)]
    cpu, memory, gpu, gpu_memory, gpus = zip(*samples, strict=True)
    return (*new[:4], max(gpus), first, *map(_literal, (cpu, memory, gpu, gpu_memory)))


def _literal(values: Iterable[int | None]) -> str:
    """Return the text of an array."""
    return "{" + ",".join("NULL" if value is None else str(value) for value in values) + "}"
