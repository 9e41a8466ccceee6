"""Lists of jobs and resources for users (``tx.listings``), and the pages of jobs of the REST API."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from oar.lib.db.predicates import ENDED, LIVE, NO_FRAME
from oar.lib.db.statements import About, Parameters, Row, Table
from oar.lib.jobs.ends import EndCode
from oar.lib.jobs.fields import COLUMNS
from oar.lib.jobs.records import LIVE_STATES, Job, JobPlace, JobQuery, date_of_start
from oar.lib.jobs.states import FINAL, NOT_STARTED, JobState, Outcome
from oar.lib.nodes.states import ALWAYS_AVAILABLE, ResourceState
from oar.lib.reservations.states import STARTED

_ASSIGNED = """
    SELECT j.job_id, array_agg(a.resource_id ORDER BY a.resource_id),
        array_agg(DISTINCT r.network_address::text) FILTER (WHERE r.network_address <> '')
    FROM jobs j
    JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job
    LEFT JOIN resources r ON r.resource_id = a.resource_id
    WHERE j.job_id = ANY(%s) AND j.assigned_moldable_job <> 0
    GROUP BY j.job_id"""
#: Planned starts and alternatives, with the date of the oldest prediction (row -1) if that is before the last
#: scheduling pass (row 0).
_PREDICTIONS = """
    SELECT m.moldable_job_id, p.start_time, m.moldable_id, coalesce(a.start_time, 0)
    FROM moldable_job_descriptions m JOIN gantt_jobs_predictions_visu p ON p.moldable_job_id = m.moldable_id
    LEFT JOIN gantt_jobs_predictions_visu a ON a.moldable_job_id = -1
        AND a.start_time < (SELECT start_time FROM gantt_jobs_predictions_visu WHERE moldable_job_id = 0)
    WHERE m.moldable_job_id = ANY(%s) ORDER BY m.moldable_job_id, p.start_time DESC"""
_PLANNED = """
    SELECT g.moldable_job_id, r.resource_id, r.network_address, r.state
    FROM gantt_jobs_resources_visu g JOIN resources r USING (resource_id)
    WHERE g.moldable_job_id = ANY(%s) ORDER BY g.moldable_job_id, r.resource_id"""
_JOBS_BETWEEN = f"""
    SELECT j.job_id FROM jobs j
    WHERE j.stop_time >= %(start)s AND j.start_time BETWEEN 1 AND %(stop)s AND j.assigned_moldable_job <> 0
    UNION
    SELECT j.job_id FROM jobs j
    WHERE {LIVE} AND j.assigned_moldable_job <> 0
      AND j.start_time BETWEEN 1 AND %(stop)s AND (j.stop_time = 0 OR j.stop_time >= %(start)s)
    UNION
    SELECT m.moldable_job_id
    FROM gantt_jobs_predictions_visu p JOIN moldable_job_descriptions m ON m.moldable_id = p.moldable_job_id
    WHERE p.start_time <= %(stop)s AND p.start_time + m.moldable_walltime >= %(start)s
    ORDER BY 1"""
_UNAVAILABLE = """
    SELECT resource_id, date_start, date_stop, value FROM resource_logs
    WHERE attribute = 'state' AND value IN ('Absent', 'Dead', 'Suspected')
      AND (date_stop = 0 OR date_stop >= %(start)s) AND date_start <= %(stop)s
    ORDER BY resource_id, date_start"""
_NODE_HISTORY = """
    SELECT l.attribute, l.value, l.date_start, l.date_stop, array_agg(l.resource_id ORDER BY l.resource_id)
    FROM resources r JOIN resource_logs l USING (resource_id)
    WHERE r.network_address = %(node)s AND l.attribute IN ('state', 'drain', 'maintenance')
      AND (l.date_stop = 0 OR l.date_stop > %(start)s) AND l.date_start <= %(stop)s
    GROUP BY l.attribute, l.value, l.date_start, l.date_stop
    ORDER BY l.date_start, l.attribute, l.value, l.date_stop"""
_RESOURCE_LOG = """
    SELECT resource_log_id, attribute, value, date_start, date_stop FROM resource_logs
    WHERE resource_id = %(resource)s AND resource_log_id < %(before)s ORDER BY resource_log_id DESC LIMIT %(limit)s"""
#: Without frames of advance reservations, which use nothing.
_HELD = f"""
    SELECT a.resource_id, j.job_id FROM jobs j
    JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job AND a.assigned_resource_index = 'CURRENT'
    WHERE {LIVE} AND j.assigned_moldable_job <> 0 AND {NO_FRAME}
    ORDER BY a.resource_id, j.job_id"""
#: Two lists instead of rows: ten thousand rows take PostgreSQL and psycopg2 five times as long.
_ON_RESOURCES = f"SELECT json_agg(resource_id)::text, json_agg(job_id)::text FROM ({_HELD}) held"
_RESERVED = """
    SELECT resource_id, v.ar_id FROM reservations v, unnest(v.resources) resource_id
    WHERE v.ended = 0 AND v.state = ANY(%s) ORDER BY resource_id, v.ar_id"""
#: Numbers of resources of nodes by state, and by whether they are drained, can be woken, are held, are reserved.
_ALIKE = f"""
    SELECT r.state, r.drain = 'YES', r.available_upto > %s AND r.available_upto <> %s,
        h.resource_id IS NOT NULL, v.resource_id IS NOT NULL, count(*)
    FROM resources r
    LEFT JOIN (SELECT DISTINCT resource_id FROM ({_HELD}) held) h USING (resource_id)
    LEFT JOIN (SELECT DISTINCT resource_id FROM ({_RESERVED}) reserved) v USING (resource_id)
    WHERE r.network_address <> '' GROUP BY 1, 2, 3, 4, 5"""
#: The same by the values of a column, for resources of nodes or for other resources.
_ALIKE_BY = _ALIKE.replace("SELECT r.state", "SELECT COALESCE(r.{column}::text, ''), r.state")
_ALIKE_BY = _ALIKE_BY.replace("r.network_address <>", "r.network_address {kind}").replace("GROUP BY 1", "GROUP BY 6, 1")
#: How many nodes, cores and GPUs there are, are up and are free: a node if all of it is free.
_CAPACITY = f"""
    SELECT count(*), count(*) FILTER (WHERE is_up), count(*) FILTER (WHERE is_free),
        COALESCE(sum(cores), 0), COALESCE(sum(cores_up), 0), COALESCE(sum(cores_free), 0),
        COALESCE(sum(gpus), 0), COALESCE(sum(gpus_up), 0), COALESCE(sum(gpus_free), 0)
    FROM (
        SELECT bool_or(is_up) AS is_up, bool_and(is_free) AS is_free,
            count(DISTINCT core) AS cores, count(DISTINCT core) FILTER (WHERE is_up) AS cores_up,
            count(DISTINCT core) - count(DISTINCT core) FILTER (WHERE NOT is_free) AS cores_free,
            count(DISTINCT gpu) AS gpus, count(DISTINCT gpu) FILTER (WHERE is_up) AS gpus_up,
            count(DISTINCT gpu) - count(DISTINCT gpu) FILTER (WHERE NOT is_free) AS gpus_free
        FROM (
            SELECT r.network_address AS node, {{core}} AS core, {{gpu}} AS gpu, r.state = 'Alive' AS is_up,
                r.state = 'Alive' AND r.drain = 'NO' AND h.resource_id IS NULL AND v.resource_id IS NULL AS is_free
            FROM resources r
            LEFT JOIN (SELECT DISTINCT resource_id FROM ({_HELD}) held) h USING (resource_id)
            LEFT JOIN (SELECT DISTINCT resource_id FROM ({_RESERVED}) reserved) v USING (resource_id)
            WHERE r.network_address <> '') parts
        GROUP BY node) nodes"""
_USABLE_BY = """
    SELECT COALESCE({column}::text, ''), array_agg(resource_id) FROM resources
    WHERE network_address {kind} '' AND state = 'Alive' AND drain = 'NO' AND COALESCE({column}::text, '') = ANY(%s)
    GROUP BY 1"""
_SINCE = f"""
    SELECT job_id FROM jobs j WHERE {LIVE} AND (%(user)s::text IS NULL OR job_user = %(user)s){{range}}
    UNION ALL SELECT job_id FROM jobs j
    WHERE {ENDED} AND stop_time >= %(date)s AND (%(user)s::text IS NULL OR job_user = %(user)s){{range}}"""
_LIVE_OR_ENDED_SINCE = f"{_SINCE.format(range='')} ORDER BY job_id"
_ENDED_LAST = f"""
    SELECT job_id FROM jobs j WHERE {ENDED} AND stop_time >= %(date)s AND job_user = %(user)s
    ORDER BY stop_time DESC, job_id DESC LIMIT %(limit)s"""
_PART_SINCE = f"{_SINCE.format(range=' AND job_id >= %(first)s AND job_id < %(before)s')} ORDER BY job_id"
#: The first job of each part. A part itself has a range of ids: a limit could make PostgreSQL read all older jobs.
_PARTS_SINCE = f"""
    SELECT job_id FROM (
        SELECT job_id, row_number() OVER (ORDER BY job_id) AS number FROM ({_SINCE.format(range="")}) since) numbered
    WHERE mod(number - 1, %(size)s) = 0 ORDER BY job_id"""
_FIRST_OF_USER = "SELECT job_id FROM jobs WHERE job_user = %s ORDER BY job_id LIMIT 1"
_ENDS = "SELECT job_id, state, exit_code FROM jobs WHERE job_id = ANY(%s)"
_COPIES = """
    SELECT resubmit_job_id, max(job_id) FROM jobs
    WHERE resubmit_job_id = ANY(%s) AND resubmit_job_id <> 0 GROUP BY resubmit_job_id"""
#: The walltime of the chosen alternative, else of the predicted one, else of the first.
_WALLTIMES = """
    SELECT DISTINCT ON (j.job_id) j.job_id, m.moldable_walltime
    FROM jobs j JOIN moldable_job_descriptions m ON m.moldable_job_id = j.job_id
    LEFT JOIN gantt_jobs_predictions_visu p ON p.moldable_job_id = m.moldable_id
    WHERE j.job_id = ANY(%s)
    ORDER BY j.job_id, m.moldable_id = j.assigned_moldable_job DESC, p.start_time, m.moldable_id"""
_SILENT = "SELECT job_id, head_host FROM job_runs WHERE job_id = ANY(%s) AND failures > 0 AND head_host <> ''"
_NOT_ALIVE = """
    SELECT j.job_id, r.network_address::text, r.state, max(COALESCE(l.date_start, 0))
    FROM jobs j
    JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job
    JOIN resources r ON r.resource_id = a.resource_id
    LEFT JOIN resource_logs l ON l.resource_id = r.resource_id AND l.attribute = 'state' AND l.date_stop = 0
    WHERE j.job_id = ANY(%s) AND j.assigned_moldable_job <> 0 AND r.state <> 'Alive' AND r.network_address <> ''
    GROUP BY j.job_id, r.network_address, r.state ORDER BY j.job_id, r.network_address, r.state"""
#: The date is that of the first resource that entered the state; 0: not known.
_OUT_OF_USE = """
    SELECT r.network_address::text, r.state, COALESCE(min(l.date_start), 0)
    FROM resources r
    LEFT JOIN resource_logs l ON l.resource_id = r.resource_id AND l.attribute = 'state' AND l.date_stop = 0
        AND l.value = r.state
    WHERE r.state = ANY(%s) AND r.network_address <> '' GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2"""


#: Greater than any id of a job.
_NO_LIMIT = 2**63 - 1


class IdRange(NamedTuple):
    """A range of ids of jobs."""

    first: int
    before: int  #: the first id that is not in it


class Assigned(NamedTuple):
    """The resources that a job has or had, and their nodes."""

    resources: tuple[int, ...]
    nodes: tuple[str, ...]


class SetValue(NamedTuple):
    """A value that a resource attribute had, a row of ``resource_logs``."""

    id: int
    attribute: str
    value: str
    start: int
    stop: int  #: 0: the current value


class NodeInterval(NamedTuple):
    """A period in which resources of a node had the same state, drain flag or maintenance flag."""

    attribute: str  #: ``state``, ``drain``, ``maintenance``
    value: str
    start: int
    stop: int  #: 0 while it lasts
    resources: tuple[int, ...]


class NodeInState(NamedTuple):
    """A node with resources in a state in which they run no jobs."""

    node: str
    state: ResourceState
    since: int  #: 0: not known


class Prediction(NamedTuple):
    """The planned start of a job, and the planned alternative."""

    start: int
    moldable: int
    foreseen_at: int = 0  #: it may be as old as this date; 0: it is that of the last scheduling pass


class PlannedResource(NamedTuple):
    """A resource that the scheduler plans to assign to a job."""

    id: int
    node: str
    state: ResourceState

    @property
    def is_usable(self) -> bool:
        return self.state is ResourceState.ALIVE


class AlikeResources(NamedTuple):
    """The number of resources with the same properties."""

    state: ResourceState
    is_drained: bool
    can_be_woken: bool  #: it is available until a later date
    is_held: bool  #: by jobs
    is_reserved: bool  #: by advance reservations that have begun
    number: int


class Capacity(NamedTuple):
    """How many parts of one kind there are, are on nodes that are Alive, and are free."""

    total: int
    up: int
    free: int


def _by(column: str, *, on_nodes: bool) -> dict[str, str]:
    return {"column": f'"{column}"', "kind": "<>" if on_nodes else "="}


def _assigned(rows: Iterable[Row]) -> dict[int, Assigned]:
    return {row[0]: Assigned(tuple(row[1]), tuple(sorted(row[2] or ()))) for row in rows}


def _predictions(rows: Iterable[Row]) -> dict[int, Prediction]:
    return {row[0]: Prediction(row[1], row[2], row[3]) for row in rows}


#: How often a folded page continues inside an array that was shown before.
_MORE_LOOKS = 4
#: Maximum number of jobs that are counted.
MOST_COUNTED = 100_000
#: Maximum number of jobs that a folded page of ended jobs reads to find its arrays.
MOST_READ = 20_000
#: The same per row of the page if no index finds the jobs of the query.
_READ_FOR_A_ROW = 10
_NO_FRAME = "NOT EXISTS (SELECT FROM reservations f WHERE f.frame_id = j.job_id AND f.frame_id <> 0)"
_TYPES = "EXISTS (SELECT FROM job_types t WHERE t.job_id = j.job_id AND t.type = ANY(%s))"
_INSIDE = "j.job_id IN (SELECT job_id FROM reservation_jobs WHERE reservation_id = ANY(%s))"
_NODES = """EXISTS (
    SELECT FROM assigned_resources a JOIN resources r USING (resource_id)
    WHERE a.moldable_job_id = j.assigned_moldable_job AND j.assigned_moldable_job <> 0
      AND r.network_address = ANY(%s))"""
_TEXT = "(strpos(lower(coalesce(j.job_name, '')), lower(%s)) > 0 OR strpos(j.job_user, %s) > 0 OR j.job_id::text = %s)"
_LIVED_BETWEEN = "j.submission_time <= %s AND (j.stop_time = 0 OR j.stop_time >= %s)"
_BY_QUEUE = (
    f"SELECT j.queue_name, j.state, count(*) FROM jobs j WHERE {LIVE} AND {_NO_FRAME} GROUP BY 1, 2 ORDER BY 1, 2"
)
_FIRST_LIVE = f"""
    SELECT j.job_id, count(*) OVER () FROM jobs j WHERE {LIVE} AND (%(user)s::text IS NULL OR j.job_user = %(user)s)
    ORDER BY j.state = ANY(%(waiting)s), j.job_id LIMIT %(limit)s"""
#: The id of a job's array. A job without array is an array of its own with a negative, and therefore unique, id.
_ARRAY = "CASE WHEN j.array_id = 0 THEN -j.job_id ELSE j.array_id END"
_EXIT_CODE = "coalesce(j.exit_code, 0)"
#: The outcome of each end code, as an SQL constant.
_OUTCOMES = f"'{json.dumps({code: code.outcome for code in EndCode})}'::jsonb"
#: The outcome of an ended job, NULL of another one. Only ended jobs need the second table.
OUTCOME = f"""CASE WHEN j.state IN ('Terminated', 'Error')
    THEN (SELECT {_OUTCOMES} ->> e.code FROM job_ends e WHERE e.job_id = j.job_id) END"""
_ENDED_AS = "EXISTS (SELECT FROM job_ends e WHERE e.job_id = j.job_id AND e.code = ANY(%s))"
_STARTED = "j.start_time > 0 AND j.assigned_moldable_job <> 0 AND (j.stop_time = 0 OR j.start_time <= j.stop_time)"
#: The rows of arrays. The position of an array is the id of its first job in the order of the list.
_FOLDED = f"""
    SELECT position, array_id, state, exit_code, outcome, lowest, highest, number, started FROM (
        SELECT alike.*, {{first}}({{end}}) OVER (PARTITION BY array_id) AS position FROM (
            SELECT {_ARRAY} AS array_id, j.state, {_EXIT_CODE} AS exit_code, {{outcome}} AS outcome,
                min(j.job_id) AS lowest, max(j.job_id) AS highest, count(*) AS number,
                min(j.start_time) FILTER (WHERE {_STARTED}) AS started
            FROM jobs j WHERE {{where}} GROUP BY 1, 2, 3, 4) alike) placed
    WHERE %s::bigint IS NULL OR position {{behind}} %s
    ORDER BY position {{order}} FETCH FIRST %s ROWS WITH TIES"""
#: The first arrays of a list, the number of jobs that were read for them, and the last of these jobs.
_ARRAYS = f"""
    WITH reached AS (
        SELECT j.job_id, {_ARRAY} AS array_id FROM jobs j WHERE {{where}} ORDER BY j.job_id {{order}} LIMIT %s)
    SELECT array_id, {{first}}(job_id) AS position,
        (SELECT count(*) FROM reached), (SELECT {{last}}(job_id) FROM reached)
    FROM reached GROUP BY array_id ORDER BY position {{order}} LIMIT %s"""
_OF_ARRAYS = "(j.array_id = ANY(%s) OR j.array_id = 0 AND j.job_id = ANY(%s))"
_MEMBERS = f"""
    SELECT j.array_id, j.state, {_EXIT_CODE}, {{outcome}}, array_agg(j.job_id ORDER BY j.job_id)
    FROM jobs j WHERE {{where}} GROUP BY 1, 2, 3, 4"""
_Condition = tuple[str, tuple[Any, ...]]


class ListedJob(NamedTuple):
    """The fields of a job in a list, named as in ``Job``. Fields that need a conversion come last."""

    id: int
    array_id: int
    array_index: int
    name: str | None
    project: str
    user: str
    state: str
    queue: str
    exit_code: int | None
    job_type: str
    reservation: str
    submission_time: int
    message: str
    start_time: int
    stop_time: int
    assigned_moldable: int | None
    outcome: str | None  #: None before the end

    @classmethod
    def of(cls, job: Job, outcome: Outcome | None) -> "ListedJob":
        """Return the list entry of a complete job."""
        return cls._make([*[getattr(job, name) for name in cls._fields[:-1]], outcome])

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def ended(self) -> int:
        """End time, 0 before the job is in a final state."""
        return self.stop_time if self.is_final else 0

    @property
    def started(self) -> int:
        """Start time, 0 if the job never started."""
        return date_of_start(self.state, self.start_time, self.stop_time, self.assigned_moldable)


_LISTED = ", ".join([*[f"j.{COLUMNS[name]}" for name in ListedJob._fields[:-1]], OUTCOME])


class FoldedJobs(NamedTuple):
    """Jobs of an array with the same state, exit code and outcome, shown as one row of a list."""

    ids: Sequence[int]  #: ascending; the list shows the first of these jobs
    started: int  #: date of the first start, 0 if none of them has started


class FoldedPage(NamedTuple):
    """A page whose rows are groups of jobs."""

    rows: list[FoldedJobs]
    next: int | None  #: where the next page begins, None if there is none


class _Group(NamedTuple):
    """A row of ``_FOLDED``."""

    position: int
    array_id: int
    state: str
    exit_code: int
    outcome: str | None
    lowest: int
    highest: int
    number: int
    started: int | None

    @property
    def key(self) -> tuple[int, str, int, str | None]:
        return self.array_id, self.state, self.exit_code, self.outcome

    @property
    def has_gaps(self) -> bool:
        return self.highest - self.lowest >= self.number


def _page(columns: str, query: JobQuery, place: JobPlace) -> _Condition:
    """Return the SQL statement of a page, and its parameters."""
    where, parameters = _joined([*_conditions(query), *_behind(place)])
    sql = f"SELECT {columns} FROM jobs j WHERE {where} ORDER BY j.job_id {_direction(place)['order']} LIMIT %s"
    return sql, (*parameters, place.limit + 1)


def _direction(place: JobPlace) -> dict[str, str]:
    """Return the SQL keywords that depend on the sort order of the list."""
    if place.newest_first:
        return {"order": "DESC", "behind": "<", "first": "max", "last": "min"}
    return {"order": "ASC", "behind": ">", "first": "min", "last": "max"}


def _behind(place: JobPlace) -> Iterator[_Condition]:
    if place.after is not None:
        yield f"j.job_id {_direction(place)['behind']} %s", (place.after,)


def _joined(conditions: Sequence[_Condition]) -> _Condition:
    texts = " AND ".join(text for text, _ in conditions) or "true"
    return texts, tuple(value for _, values in conditions for value in values)


def _alternatives(query: JobQuery) -> Iterator[_Condition]:
    """Yield the conditions that restrict a column to a list of values."""
    for column, values in (
        ("j.job_id", query.ids),
        ("j.array_id", query.arrays or None),
        ("j.job_user", query.users or None),
        ("j.queue_name", query.queues or None),
        ("j.project", query.projects or None),
        ("j.job_name", query.names or None),
    ):
        if values is not None:
            yield f"{column} = ANY(%s)", (list(values),)


def _conditions(query: JobQuery) -> Iterator[_Condition]:
    if query.states is not None:
        if query.states <= LIVE_STATES:
            yield LIVE, ()  # must match the condition of the partial indexes
        if query.states != LIVE_STATES:
            yield "j.state = ANY(%s)", ([str(state) for state in sorted(query.states)],)
    yield from _alternatives(query)
    if query.outcomes is not None:
        yield _ENDED_AS, ([code for code in EndCode if code.outcome in query.outcomes],)
    if query.types:
        yield _TYPES, (list(query.types),)
    if query.nodes:
        yield _NODES, (list(query.nodes),)
    if query.reservations is not None:
        yield _INSIDE, (sorted(query.reservations),)
    if query.text is not None:
        yield _TEXT, (query.text, query.text, query.text)
    if query.between is not None:
        yield _LIVED_BETWEEN, (query.between[1], query.between[0])
    if query.ended_since is not None:
        yield f"({LIVE} OR j.stop_time >= %s)", (query.ended_since,)
    if not query.with_frames:
        yield _NO_FRAME, ()


class Listings(Table):
    """Queries for lists: each method runs one query for all jobs or resources."""

    #: Queries that views run together.
    ASSIGNED = About(_ASSIGNED, _assigned)
    PREDICTIONS = About(_PREDICTIONS, _predictions)
    COPIES = About(_COPIES, dict)

    def assigned(self, ids: Collection[int]) -> dict[int, Assigned]:
        """Return the resources and the nodes of jobs, including ended ones."""
        return _assigned(self._tx.rows(_ASSIGNED, (list(ids),))) if ids else {}

    def predictions(self, ids: Collection[int]) -> dict[int, Prediction]:
        """Return the earliest predicted start of each job that has one."""
        return _predictions(self._tx.rows(_PREDICTIONS, (list(ids),))) if ids else {}

    def walltimes(self, ids: Collection[int]) -> dict[int, int]:
        return dict(self._tx.rows(_WALLTIMES, (list(ids),))) if ids else {}

    def planned(self, moldables: Collection[int]) -> dict[int, list[PlannedResource]]:
        """Return the planned resources of job alternatives, by alternative."""
        planned: dict[int, list[PlannedResource]] = defaultdict(list)
        for moldable, resource, node, state in self._tx.rows(_PLANNED, (list(moldables),)) if moldables else ():
            planned[moldable].append(PlannedResource(resource, node, ResourceState(state)))
        return planned

    def not_alive(self, ids: Collection[int]) -> dict[int, list[tuple[str, str, int]]]:
        """Return the nodes of jobs that are not Alive, as ``(name, state, date of the state change)``."""
        nodes: dict[int, list[tuple[str, str, int]]] = defaultdict(list)
        for job_id, name, state, date in self._tx.rows(_NOT_ALIVE, (list(ids),)) if ids else ():
            nodes[job_id].append((name, state, date))
        return nodes

    def out_of_use(self, states: Collection[ResourceState]) -> list[NodeInState]:
        """Return the nodes with resources in one of the states, newest state change first."""
        rows = self._tx.rows(_OUT_OF_USE, ([str(state) for state in states],))
        return [NodeInState(node, ResourceState(state), since) for node, state, since in rows]

    def silent_heads(self, ids: Collection[int]) -> dict[int, str]:
        """Return the head nodes that did not answer the last probe, by job."""
        return dict(self._tx.rows(_SILENT, (list(ids),))) if ids else {}

    def ends(self, ids: Collection[int]) -> dict[int, tuple[JobState, int | None]]:
        """Return the state and the wait status of each job that exists."""
        return {row[0]: (JobState(row[1]), row[2]) for row in self._tx.rows(_ENDS, (list(ids),))}

    def copies(self, ids: Collection[int]) -> dict[int, int]:
        """Return the last copy of each resubmitted job; OAR or oarsub --resubmit made the copies."""
        return dict(self._tx.rows(_COPIES, (list(ids),))) if ids else {}

    def live_or_ended_since(self, date: int, user: str | None) -> list[int]:
        """Return the live jobs and those that ended since a date, by id; ``user`` None: the jobs of all users."""
        return self._tx.column(_LIVE_OR_ENDED_SINCE, {"date": date, "user": user})

    def ended_last(self, date: int, user: str, limit: int) -> list[int]:
        """Return the jobs of a user that ended last, newest first, of those that ended since a date."""
        return self._tx.column(_ENDED_LAST, {"date": date, "user": user, "limit": limit})

    def parts_since(self, date: int, user: str | None, size: int) -> list[IdRange]:
        """Return ranges of ids in which there are so many of the jobs of ``live_or_ended_since`` each, ascending."""
        firsts = self._tx.column(_PARTS_SINCE, {"date": date, "user": user, "size": size})
        return [IdRange(first, before) for first, before in pairwise([*firsts, _NO_LIMIT])]

    def part_since(self, date: int, user: str | None, part: IdRange) -> list[int]:
        """Return the jobs of ``live_or_ended_since`` in a range of ids, by id."""
        return self._tx.column(_PART_SINCE, {"date": date, "user": user, **part._asdict()})

    def has_jobs(self, user: str) -> bool:
        """Return whether the database contains jobs of a user, including ended ones."""
        return bool(self._tx.rows(_FIRST_OF_USER, (user,)))

    def jobs_between(self, start: int, stop: int) -> list[int]:
        """Return the jobs that use, used or will use resources between two dates."""
        return self._tx.column(_JOBS_BETWEEN, {"start": start, "stop": stop})

    def unavailable_between(self, start: int, stop: int) -> dict[int, list[tuple[int, int, str]]]:
        """Return the periods of unavailability of resources, as ``(start, stop, state)``; stop = 0: not ended."""
        intervals: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for resource, begin, end, state in self._tx.rows(_UNAVAILABLE, {"start": start, "stop": stop}):
            intervals[resource].append((begin, end, state))
        return intervals

    def node_history(self, node: str, start: int, stop: int) -> list[NodeInterval]:
        """Return the states, drain and maintenance flags of the resources of a node between two dates, oldest first."""
        rows = self._tx.rows(_NODE_HISTORY, {"node": node, "start": start, "stop": stop})
        return [NodeInterval(attribute, value, begin, end, tuple(ids)) for attribute, value, begin, end, ids in rows]

    def resource_log(self, resource: int, before: int | None, limit: int) -> list[SetValue]:
        """Return the logged values of a resource, newest first; ``before``: only rows with smaller ids."""
        values = {"resource": resource, "before": 2**63 - 1 if before is None else before, "limit": limit}
        return [SetValue(*row) for row in self._tx.rows(_RESOURCE_LOG, values)]

    def resources(
        self,
        *,
        ids: Collection[int] | None = None,
        nodes: Collection[str] | None = None,
        columns: Collection[str] = ("*",),
    ) -> list[dict[str, Any]]:
        """Return the values of ``columns`` by name, for all resources or for those with the given ids or nodes."""
        parameters: Parameters = ()
        where = "true"
        if ids is not None:
            where, parameters = "resource_id = ANY(%s)", (list(ids),)
        elif nodes is not None:
            where, parameters = "network_address = ANY(%s)", (list(nodes),)
        rows, names = self._tx.rows_and_names(
            f"SELECT {', '.join(columns)} FROM resources WHERE {where} ORDER BY resource_id", parameters
        )
        return [dict(zip(names, row, strict=True)) for row in rows]

    def grouped(self, columns: Sequence[str]) -> list[tuple[Sequence[Any], list[int]]]:
        """Return all resources grouped by the values of the columns: the values, and the sorted ids."""
        names = ", ".join(dict.fromkeys(columns))
        rows = self._tx.rows(
            f"SELECT {', '.join(columns)}, array_agg(resource_id ORDER BY resource_id) FROM resources GROUP BY {names}"
        )
        return [(values, ids) for *values, ids in rows]

    def alike(self, now: int) -> list[AlikeResources]:
        """Return the numbers of node resources with equal properties."""
        parameters = (now, ALWAYS_AVAILABLE, [str(state) for state in STARTED])
        return [AlikeResources(ResourceState(state), *others) for state, *others in self._tx.rows(_ALIKE, parameters)]

    def alike_by(self, column: str, now: int, *, on_nodes: bool) -> list[tuple[str, AlikeResources]]:
        """Return the numbers of resources with equal properties, per value of a column; '' stands for no value.

        ``on_nodes``: count the resources of nodes, else those that belong to no node.
        """
        parameters = (now, ALWAYS_AVAILABLE, [str(state) for state in STARTED])
        rows = self._tx.rows(_ALIKE_BY.format(**_by(column, on_nodes=on_nodes)), parameters)
        return [(value, AlikeResources(ResourceState(state), *others)) for value, state, *others in rows]

    def capacity(self, properties: Collection[str]) -> dict[str, Capacity]:
        """Return the numbers of nodes, and of cores and GPUs if resources have the properties ``core`` and ``gpu``."""
        core, gpu = ('r."core"' if "core" in properties else "NULL"), ('r."gpu"' if "gpu" in properties else "NULL")
        text = _CAPACITY.format(core=core, gpu=f"NULLIF({gpu}::text, '0')")
        row = self._tx.row(text, ([str(state) for state in STARTED],))
        assert row
        numbers = [Capacity(*map(int, row[place : place + 3])) for place in (0, 3, 6)]
        counted = dict(zip(("nodes", "cores", "gpus"), numbers, strict=True))
        return {name: capacity for name, capacity in counted.items() if name == "nodes" or capacity.total}

    def usable_by(self, column: str, values: Sequence[str], *, on_nodes: bool) -> dict[str, list[int]]:
        """Return the resources that are Alive and not drained, by the values of a column."""
        return dict(self._tx.rows(_USABLE_BY.format(**_by(column, on_nodes=on_nodes)), (list(values),)))

    def reserved_now(self) -> dict[int, list[int]]:
        """Return for each resource the numbers of the advance reservations that have begun and not ended."""
        numbers: dict[int, list[int]] = defaultdict(list)
        for resource, number in self._tx.rows(_RESERVED, ([str(state) for state in STARTED],)):
            numbers[resource].append(number)
        return numbers

    def jobs_on_resources(self) -> dict[int, list[int]]:
        """Return the live jobs on each resource, without free resources."""
        jobs: dict[int, list[int]] = defaultdict(list)
        resources, ids = self._tx.row(_ON_RESOURCES) or (None, None)
        if resources is not None:
            for resource, job_id in zip(json.loads(resources), json.loads(ids), strict=True):
                jobs[resource].append(job_id)
        return jobs

    def listed(self, query: JobQuery, place: JobPlace) -> list[ListedJob]:
        """Return the jobs of a page, and one more job if there is a next page."""
        return [ListedJob(*row) for row in self._tx.rows(*_page(_LISTED, query, place))]

    def page(self, query: JobQuery, place: JobPlace) -> list[int]:
        """Return the ids of the jobs of a page, and one more id if there is a next page."""
        return self._tx.column(*_page("j.job_id", query, place))

    def folded(self, query: JobQuery, place: JobPlace) -> FoldedPage:
        """Return a page on which similar jobs of an array are one row.

        All rows of an array are on the page with its first job. A page has more than ``place.limit`` rows only if one
        array has more. It has fewer rows, or none, if all its jobs belong to arrays of earlier pages.
        """
        page = self._folded_page(query, place)
        for _ in range(_MORE_LOOKS):
            if page.rows or page.next is None:
                break
            page = self._folded_page(query, place._replace(after=page.next))
        return page

    def _folded_page(self, query: JobQuery, place: JobPlace) -> FoldedPage:
        conditions, following = list(_conditions(query)), None
        if query.states is None or not query.states <= LIVE_STATES:
            arrays, following = self._arrays(query, place)
            numbers = [number for number in arrays if number > 0]
            conditions.append((_OF_ARRAYS, (numbers, [-number for number in arrays if number < 0])))
        where, parameters = _joined(conditions)
        # Read whole arrays, and one more row if there is one.
        end = "highest" if place.newest_first else "lowest"
        sql = _FOLDED.format(where=where, outcome=OUTCOME, end=end, **_direction(place))
        rows = self._tx.rows(sql, (*parameters, place.after, place.after, place.limit + 1))
        groups = [_Group(*row) for row in rows]
        if len(groups) > place.limit:
            cut = groups[place.limit].position  # the array whose rows do not all fit
            groups = [group for group in groups if group.position != cut] or groups
            following = groups[-1].position
        if place.newest_first:
            groups.sort(key=lambda group: (group.position, group.highest), reverse=True)
        else:
            groups.sort(key=lambda group: (group.position, group.lowest))
        return FoldedPage(self._rows(groups, conditions), following)

    def _arrays(self, query: JobQuery, place: JobPlace) -> tuple[list[int], int | None]:
        """Return the arrays for a page, and the last job that was read for them (None at the end of the list)."""
        is_indexed = not (query.nodes or query.types or query.text or query.outcomes is not None)
        most = MOST_READ if is_indexed else min(MOST_READ, _READ_FOR_A_ROW * place.limit)
        where, parameters = _joined([*_conditions(query), *_behind(place)])
        sql = _ARRAYS.format(where=where, **_direction(place))
        for length in (place.limit + 1, most):
            rows = self._tx.rows(sql, (*parameters, length, place.limit + 1))
            arrays = [row[0] for row in rows]
            if len(rows) > place.limit:
                return arrays, rows[-1][1]
            if not rows or rows[0][2] < length:
                return arrays, None
        return arrays, rows[0][3]

    def _rows(self, groups: Sequence[_Group], conditions: Sequence[_Condition]) -> list[FoldedJobs]:
        """Return the rows of groups. Job ids are read only for arrays with gaps in their ids."""
        members: dict[tuple[int, str, int, str | None], list[int]] = {}
        arrays = {group.array_id for group in groups if group.has_gaps}
        if arrays:
            where, parameters = _joined([*conditions, ("j.array_id = ANY(%s)", (list(arrays),))])
            rows = self._tx.rows(_MEMBERS.format(where=where, outcome=OUTCOME), parameters)
            members = {tuple(key): ids for *key, ids in rows}
        return [
            FoldedJobs(
                members.get(group.key) or range(group.lowest, group.highest + 1),
                0 if group.state in NOT_STARTED else group.started or 0,
            )
            for group in groups
        ]

    def count(self, query: JobQuery) -> int:
        """Return the number of jobs; return ``MOST_COUNTED + 1`` if there are more than ``MOST_COUNTED``."""
        where, parameters = _joined(list(_conditions(query)))
        limited = f"SELECT count(*) FROM (SELECT FROM jobs j WHERE {where} LIMIT %s) counted"
        number: int = self._tx.value(limited, (*parameters, MOST_COUNTED + 1))
        return number

    def total(self, query: JobQuery) -> int:
        """Return the number of jobs; above ``MOST_COUNTED``, return the estimate of the database, which is fast."""
        number = self.count(query)
        if number <= MOST_COUNTED:
            return number
        where, parameters = _joined(list(_conditions(query)))
        (plan,) = self._tx.value(f"EXPLAIN (FORMAT JSON) SELECT FROM jobs j WHERE {where}", parameters)
        return max(number, int(plan["Plan"]["Plan Rows"]))

    def first_live(self, user: str | None, limit: int) -> tuple[list[int], int]:
        """Return the ids of the first live jobs, started ones before waiting ones, and the number of all live jobs.

        ``user``: whose jobs, None for all.
        """
        rows = self._tx.rows(_FIRST_LIVE, {"user": user, "waiting": list(map(str, NOT_STARTED)), "limit": limit})
        return [row[0] for row in rows], rows[0][1] if rows else 0

    def live_by_queue(self) -> dict[tuple[str, JobState], int]:
        return {(queue, JobState(state)): number for queue, state, number in self._tx.rows(_BY_QUEUE)}
