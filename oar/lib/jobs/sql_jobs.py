"""Jobs (``tx.jobs``): rows, types, state log, resources, arrays, and details for their launch and end."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from oar.lib.base.errors import NoSuchJob
from oar.lib.bus.messages import Topic
from oar.lib.db.predicates import ENDED, LIVE, NO_FRAME
from oar.lib.db.statements import About, Prepared, Row, Table
from oar.lib.jobs.fields import COLUMNS
from oar.lib.jobs.records import Dependency, Job, JobKeys, Memory, StateChange, date_of_start, memory_of
from oar.lib.jobs.states import FINAL, Accounted, Index, JobState, JobType, Reservation
from oar.lib.nodes.records import Resource

_COLUMNS = ", ".join(f"j.{COLUMNS[name]}" for name in Job._fields)
_GET = Prepared(f"SELECT {_COLUMNS} FROM jobs j WHERE j.job_id = %s")
_LOCK = Prepared(f"{_GET} FOR NO KEY UPDATE")
#: Locks are taken in a fixed order, which prevents deadlocks.
_LOCK_STATES = Prepared("SELECT job_id, state FROM jobs WHERE job_id = ANY(%s) ORDER BY job_id FOR NO KEY UPDATE")
_HOLD = Prepared("SELECT job_id FROM jobs WHERE job_id = ANY(%s) ORDER BY job_id FOR NO KEY UPDATE")
_LOCK_ALL = Prepared(f"SELECT {_COLUMNS} FROM jobs j WHERE j.job_id = ANY(%s) ORDER BY j.job_id FOR NO KEY UPDATE")
_SELECT = Prepared(f"SELECT {_COLUMNS} FROM jobs j WHERE j.job_id = ANY(%s) ORDER BY j.job_id")
_LIVE = f"SELECT {_COLUMNS} FROM jobs j WHERE {LIVE} ORDER BY j.job_id"
_LIVE_OF_USER = f"SELECT {_COLUMNS} FROM jobs j WHERE {LIVE} AND j.job_user = %s ORDER BY j.job_id"
_IN_STATES = f"SELECT {_COLUMNS} FROM jobs j WHERE {LIVE} AND j.state = ANY(%s) ORDER BY j.job_id"
_ARRAYS = f"SELECT {_COLUMNS} FROM jobs j WHERE j.array_id = ANY(%s) ORDER BY j.job_id"
_ARRAY_SUMMARY = f"""
    SELECT COALESCE(max(array_index), 0), max(job_id) FILTER (WHERE {LIVE}),
        count(*) FILTER (WHERE state = 'Terminated' AND COALESCE(exit_code, 0) = 0),
        count(*) FILTER (WHERE state = 'Terminated' AND exit_code <> 0), count(*) FILTER (WHERE state = 'Error')
    FROM jobs j WHERE array_id = %s"""
_STATES = Prepared("SELECT job_id, state FROM jobs WHERE job_id = ANY(%s) ORDER BY job_id")


def _logged(move: str) -> Prepared:
    """Return a statement that moves jobs, writes their state log, and returns the columns of ``MovedJob``, by id.

    ``move``: the UPDATE of ``jobs j``. The jobs are locked first: a move that waited for another one would not see the
    row that the other one has added to the log. A job has one open row, which is closed before a row is added; the row
    of a final state is closed at once.
    """
    return Prepared(f"""
    SELECT FROM jobs WHERE job_id = ANY(%(ids)s) ORDER BY job_id FOR NO KEY UPDATE;
    WITH moved AS ({move}
        RETURNING j.job_id, j.array_id, j.job_name, j.job_user, j.notify, j.info_type, j.exit_code,
            j.suspended = 'YES'),
    closed AS (
        UPDATE job_state_logs l SET date_stop = %(now)s FROM moved m
        WHERE l.job_id = m.job_id AND l.date_stop = 0 RETURNING l.job_id),
    opened AS (
        INSERT INTO job_state_logs (job_id, job_state, date_start, date_stop)
        SELECT m.job_id, %(to)s, %(now)s, %(stop)s FROM moved m, (SELECT count(*) FROM closed) AS before)
    SELECT * FROM moved ORDER BY job_id""")


#: The compare-and-set of the state machine. The stop date of a job that ends or finishes is set once.
_MOVE = _logged("""
    UPDATE jobs j SET state = %(to)s,
        stop_time = CASE WHEN %(stops)s AND stop_time = 0 THEN GREATEST(%(now)s, start_time * %(started)s)
                         ELSE stop_time END
    WHERE job_id = ANY(%(ids)s) AND state = ANY(%(sources)s)""")
#: The move of jobs that are started, which also sets their dates and alternatives.
_MOVE_STARTED = _logged("""
    UPDATE jobs j SET state = %(to)s, start_time = n.start, assigned_moldable_job = n.moldable
    FROM unnest(%(ids)s::bigint[], %(dates)s::bigint[], %(moldables)s::bigint[]) AS n (id, start, moldable)
    WHERE j.job_id = n.id AND j.state = ANY(%(sources)s)""")
#: Removes the alternative and the resources of a job that was not launched.
_TAKE_BACK = Prepared("""
    WITH given AS (
        UPDATE jobs j SET assigned_moldable_job = 0, start_time = 0
        FROM (SELECT job_id, assigned_moldable_job AS moldable FROM jobs WHERE job_id = %s) former
        WHERE j.job_id = former.job_id RETURNING former.moldable)
    DELETE FROM assigned_resources a USING given
    WHERE a.moldable_job_id = given.moldable AND a.assigned_resource_index = 'CURRENT'""")
#: The move of jobs with reported ends. The stop date may be long ago, but not before the start.
_MOVE_ENDED = _logged("""
    UPDATE jobs j SET state = %(to)s, exit_code = n.status,
        stop_time = GREATEST(LEAST(CASE j.stop_time WHEN 0 THEN %(now)s ELSE j.stop_time END, n.date), j.start_time)
    FROM unnest(%(ids)s::bigint[], %(dates)s::bigint[], %(statuses)s::integer[]) AS n (id, date, status)
    WHERE j.job_id = n.id AND j.state = ANY(%(sources)s)""")
_GIVE_UP = """
    UPDATE assigned_resources a SET assigned_resource_index = 'LOG' FROM jobs j
    WHERE j.job_id = %s AND a.moldable_job_id = j.assigned_moldable_job AND a.resource_id = ANY(%s)
      AND a.assigned_resource_index = 'CURRENT'"""
_TAKE = """
    INSERT INTO assigned_resources (moldable_job_id, resource_id)
    SELECT j.assigned_moldable_job, id FROM jobs j, unnest(%s::integer[]) AS id WHERE j.job_id = %s
    ON CONFLICT (moldable_job_id, resource_id) DO UPDATE SET assigned_resource_index = 'CURRENT'"""
#: The end of a job: its descriptions become history, its resources are released, its open rows are deleted
#: (docs/design/locks.rst, "State changes").
_CLOSE = Prepared("""
    UPDATE resources r SET last_job_date = %(now)s FROM assigned_resources a, jobs j
        WHERE j.job_id = ANY(%(ids)s) AND a.moldable_job_id = j.assigned_moldable_job
          AND a.assigned_resource_index = 'CURRENT' AND r.resource_id = a.resource_id;
    UPDATE job_resource_descriptions d SET res_job_index = 'LOG'
        FROM job_resource_groups g, moldable_job_descriptions m
        WHERE m.moldable_job_id = ANY(%(ids)s) AND g.res_group_moldable_id = m.moldable_id
          AND d.res_job_group_id = g.res_group_id AND d.res_job_index = 'CURRENT';
    UPDATE job_resource_groups g SET res_group_index = 'LOG' FROM moldable_job_descriptions m
        WHERE m.moldable_job_id = ANY(%(ids)s) AND g.res_group_moldable_id = m.moldable_id
          AND g.res_group_index = 'CURRENT';
    UPDATE assigned_resources a SET assigned_resource_index = 'LOG' FROM moldable_job_descriptions m
        WHERE m.moldable_job_id = ANY(%(ids)s) AND a.moldable_job_id = m.moldable_id
          AND a.assigned_resource_index = 'CURRENT';
    UPDATE moldable_job_descriptions SET moldable_index = 'LOG'
        WHERE moldable_job_id = ANY(%(ids)s) AND moldable_index = 'CURRENT';
    UPDATE job_types SET types_index = 'LOG' WHERE job_id = ANY(%(ids)s) AND types_index = 'CURRENT';
    UPDATE job_dependencies SET job_dependency_index = 'LOG'
        WHERE job_id = ANY(%(ids)s) AND job_dependency_index = 'CURRENT';
    UPDATE frag_jobs SET frag_state = 'FRAGGED' WHERE frag_id_job = ANY(%(ids)s) AND frag_state <> 'FRAGGED';
    UPDATE challenges SET challenge = '' WHERE job_id = ANY(%(ids)s);
    DELETE FROM job_runs WHERE job_id = ANY(%(ids)s);
    DELETE FROM job_reasons WHERE job_id = ANY(%(ids)s);
    DELETE FROM occupancy_hours o USING jobs j WHERE j.job_id = ANY(%(ids)s) AND o.stop_day = j.stop_time / 86400;
    DELETE FROM job_predictions WHERE job_id = ANY(%(ids)s) AND real_start = 0;
    DELETE FROM gantt_jobs_predictions p USING moldable_job_descriptions m
        WHERE m.moldable_job_id = ANY(%(ids)s) AND p.moldable_job_id = m.moldable_id;
    DELETE FROM gantt_jobs_sets p USING moldable_job_descriptions m
        WHERE m.moldable_job_id = ANY(%(ids)s) AND p.moldable_job_id = m.moldable_id""")
_SET_ENDS = """
    UPDATE jobs j SET stop_time = n.date, exit_code = 0
    FROM unnest(%s::bigint[], %s::bigint[]) AS n (id, date) WHERE j.job_id = n.id"""
_TYPES = Prepared("SELECT job_id, type FROM job_types WHERE job_id = ANY(%s) ORDER BY job_type_id")
_CURRENT_TYPES = Prepared("""
    SELECT job_id, type FROM job_types WHERE job_id = ANY(%s) AND types_index = 'CURRENT' ORDER BY job_type_id""")
_DEPENDENCIES = """
    SELECT job_id, job_id_required, dependency_condition, min_start_shift, max_start_shift
    FROM job_dependencies WHERE job_id = ANY(%s) ORDER BY job_id, job_id_required"""
#: The rows of live jobs are CURRENT, those of ended jobs LOG.
_ASSIGNED = Prepared("""
    SELECT m.moldable_job_id, a.resource_id, r.network_address, r.type
    FROM moldable_job_descriptions m
    JOIN jobs j ON j.job_id = m.moldable_job_id AND j.assigned_moldable_job = m.moldable_id
    JOIN assigned_resources a ON a.moldable_job_id = m.moldable_id
    JOIN resources r ON r.resource_id = a.resource_id
    WHERE m.moldable_job_id = ANY(%s) AND (NOT %s OR a.assigned_resource_index = 'CURRENT')
    ORDER BY m.moldable_job_id, a.resource_id""")
_STATE_CHANGES = """
    SELECT job_id, job_state, date_start, date_stop FROM job_state_logs WHERE job_id = ANY(%s)
    ORDER BY job_id, job_state_log_id"""
#: An open period counts until now.
_SUSPENDED_TIMES = """
    SELECT job_id, sum(CASE date_stop WHEN 0 THEN GREATEST(%s, date_start) ELSE date_stop END - date_start)::bigint
    FROM job_state_logs WHERE job_id = ANY(%s) AND job_state IN ('Suspended', 'Resuming') GROUP BY job_id"""
_ON_NODES = f"""
    SELECT DISTINCT j.job_id FROM jobs j
    JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job AND a.assigned_resource_index = 'CURRENT'
    JOIN resources r ON r.resource_id = a.resource_id
    WHERE r.network_address = ANY(%s) AND {LIVE} ORDER BY j.job_id"""
_ON_RESOURCES = f"""
    SELECT DISTINCT j.job_id, a.resource_id FROM assigned_resources a
    JOIN jobs j ON j.assigned_moldable_job = a.moldable_job_id
    WHERE a.resource_id = ANY(%s) AND a.assigned_resource_index = 'CURRENT'
      AND {LIVE} ORDER BY j.job_id, a.resource_id"""
#: Live jobs inside containers: inner=<id> names the container, inner=<name> the newest container=<name> before the job.
_INNER = f"""
    SELECT DISTINCT inside.container, inside.job_id FROM (
        SELECT t.job_id, CASE
            WHEN substr(t.type, 7) ~ '^[0-9]{{1,18}}$' THEN substr(t.type, 7)::bigint
            ELSE (SELECT max(named.job_id) FROM job_types named
                  WHERE named.type = 'container=' || substr(t.type, 7) AND named.job_id < t.job_id)
            END AS container
        FROM job_types t WHERE t.types_index = 'CURRENT' AND t.type LIKE 'inner=%%') inside
    JOIN jobs j ON j.job_id = inside.job_id
    WHERE inside.container = ANY(%s) AND {LIVE}
    ORDER BY inside.container, inside.job_id"""


class AssignedResource(NamedTuple):
    """A resource that a job has or had."""

    id: int
    network_address: str
    type: str


class GivenStart(NamedTuple):
    """The start time and the alternative of a job that is started."""

    date: int
    moldable: int


class GivenEnd(NamedTuple):
    """The reported end of a job: the wait status of its command (None if there is none), and the date."""

    status: int | None
    date: int


class MovedJob(NamedTuple):
    """A job whose state has just changed, with the data for its notices."""

    id: int
    array_id: int
    name: str | None
    user: str
    notify: str | None
    info_type: str | None
    exit_code: int | None
    suspended: bool


class ArraySummary(NamedTuple):
    """Number of jobs of an array, by result."""

    size: int  #: number of jobs that were submitted
    live: int | None  #: the last job that has not ended
    good: int  #: number of jobs that ended with exit code 0, with the copies of resubmitted jobs
    bad: int  #: number of jobs that ended with another exit code
    errors: int  #: number of jobs in Error


#: The members of enumerations by value: a call of the class takes eight times as long.
_STATE_OF = {str(state): state for state in JobState}
_TYPE_OF = {str(kind): kind for kind in JobType}
_RESERVATION_OF = {str(reservation): reservation for reservation in Reservation}
_ACCOUNTED_OF = {str(accounted): accounted for accounted in Accounted}


def _job(row: Row) -> Job:
    values = list(row)
    values[8] = _STATE_OF[row[8]]
    values[9] = _TYPE_OF[row[9]]
    values[10] = _RESERVATION_OF[row[10]]
    values[23] = row[23] or 0
    values[31] = row[31] == "YES"
    values[33] = _ACCOUNTED_OF[row[33]]
    return Job._make(values)


def _jobs(rows: Iterable[Row]) -> list[Job]:
    return [_job(row) for row in rows]


def _types(rows: Iterable[Row]) -> dict[int, tuple[str, ...]]:
    types: dict[int, list[str]] = defaultdict(list)
    for job_id, text in rows:
        types[job_id].append(text)
    return {job_id: tuple(texts) for job_id, texts in types.items()}


def _dependencies(rows: Iterable[Row]) -> dict[int, list[Dependency]]:
    dependencies: dict[int, list[Dependency]] = defaultdict(list)
    for row in rows:
        dependencies[row[0]].append(Dependency(*row))
    return dependencies


def _texts(states: Iterable[JobState]) -> list[str]:
    return [str(state) for state in states]


_MEMBERS = Prepared("""
    SELECT job_id, state, COALESCE(exit_code, 0), start_time, stop_time, COALESCE(assigned_moldable_job, 0)
    FROM jobs WHERE array_id = %s ORDER BY job_id""")


class ArrayMember(NamedTuple):
    """State and dates of a job of an array."""

    id: int
    state: JobState
    exit_code: int  #: as the system gives it: 256 for ``exit 1``
    start: int  #: epoch seconds, 0: never
    stop: int  #: epoch seconds, 0: not yet


_CHOSEN = f"""
    FROM jobs j
    WHERE j.job_id > %(after)s AND j.job_id <= %(last)s AND {ENDED} AND {NO_FRAME}
      AND j.submission_time >= %(start)s AND j.submission_time <= %(stop)s"""
_NEXT = f"SELECT j.job_id {_CHOSEN} ORDER BY j.job_id LIMIT %(limit)s"
_SUMMARY = f"""
    SELECT count(*), min(j.submission_time), array_agg(DISTINCT j.job_user::text), array_agg(DISTINCT j.project::text),
        array_agg(DISTINCT j.queue_name::text) {_CHOSEN}"""
_FRAMES = "SELECT frame_id FROM reservations WHERE frame_id = ANY(%s) AND frame_id <> 0"


class EndedSummary(NamedTuple):
    """Summary of several ended jobs."""

    number: int
    first_submission: int
    users: tuple[str, ...]
    projects: tuple[str, ...]
    queues: tuple[str, ...]


#: Maximum number of resources whose rows are read with their job. They are read as JSON, since a prepared statement
#: cannot return columns that are added later. JSON takes three times as long, which matters for many resources.
FEW_RESOURCES = 8
_READ = Prepared(f"""
    SELECT j.job_id, COALESCE(m.moldable_walltime, 0), COALESCE(m.memory_per_node, 0), COALESCE(m.memory_per_core, 0),
        i.reservation_id,
        ARRAY(SELECT t.type FROM job_types t WHERE t.job_id = j.job_id AND t.types_index = 'CURRENT'
              ORDER BY t.job_type_id),
        ARRAY(SELECT a.resource_id FROM assigned_resources a
              WHERE a.moldable_job_id = m.moldable_id AND a.assigned_resource_index = 'CURRENT'),
        (SELECT json_agg(r)::text FROM (
            SELECT r.* FROM assigned_resources a JOIN resources r ON r.resource_id = a.resource_id
            WHERE a.moldable_job_id = m.moldable_id AND a.assigned_resource_index = 'CURRENT'
            LIMIT {FEW_RESOURCES + 1}) r),
        c.challenge, c.ssh_private_key, c.ssh_public_key
    FROM jobs j
    LEFT JOIN moldable_job_descriptions m
        ON m.moldable_id = j.assigned_moldable_job AND m.moldable_job_id = j.job_id
    LEFT JOIN challenges c ON c.job_id = j.job_id
    LEFT JOIN reservation_jobs i ON i.job_id = j.job_id
    WHERE j.job_id = ANY(%s)""")


class JobDetail(NamedTuple):
    """Data about a job from other tables than ``jobs``."""

    walltime: int  #: of the alternative that has its resources, 0 if there is none
    memory: Memory | None  #: of that alternative
    reservation_id: int | None  #: of the advance reservation that it is in
    types: tuple[str, ...]  #: those that are valid
    resources: frozenset[int]  #: that it has now
    rows: tuple[Resource, ...] | None  #: of these, by id; None of more than a few
    keys: JobKeys


def _detail(row: Row) -> JobDetail:
    _, walltime, per_node, per_core, reservation_id, types, resources, rows, challenge, private_key, public_key = row
    read_rows = json.loads(rows) if rows else []
    return JobDetail(
        walltime,
        memory_of(per_node, per_core),
        reservation_id,
        tuple(types),
        frozenset(resources),
        tuple(sorted(map(Resource.of_columns, read_rows), key=attrgetter("id")))
        if len(read_rows) <= FEW_RESOURCES
        else None,
        JobKeys(challenge or "", private_key, public_key),
    )


class Jobs(Table):
    """Rows of ``jobs`` and of the tables that describe jobs."""

    #: Queries that views run together.
    ROWS = About(_SELECT, _jobs)
    TYPES = About(_TYPES, _types)
    DEPENDENCIES = About(_DEPENDENCIES, _dependencies)

    def get(self, job_id: int) -> Job:
        """Return one job. Raises NoSuchJob."""
        job = self.find(job_id)
        if job is None:
            raise NoSuchJob(job_id)
        return job

    def find(self, job_id: int) -> Job | None:
        """Return one job; return None if it does not exist."""
        row = self._tx.row(_GET, (job_id,))
        return _job(row) if row else None

    def lock(self, job_id: int) -> Job | None:
        """Return one job, locked until the end of the transaction; return None if it does not exist."""
        row = self._tx.row(_LOCK, (job_id,))
        return _job(row) if row else None

    def lock_all(self, ids: Collection[int]) -> dict[int, Job]:
        """Return the existing jobs of ``ids``, locked until the end of the transaction."""
        return {row[0]: _job(row) for row in self._tx.rows(_LOCK_ALL, (sorted(ids),))} if ids else {}

    def lock_states(self, ids: Collection[int]) -> dict[int, JobState]:
        """Return the states of the existing jobs of ``ids``, locked until the end of the transaction."""
        return {row[0]: JobState(row[1]) for row in self._tx.rows(_LOCK_STATES, (sorted(ids),))}

    def hold(self, ids: Collection[int]) -> None:
        """Lock jobs until the end of the transaction, so that other transactions cannot change them."""
        self._tx.execute(_HOLD, (sorted(ids),))

    def select(self, ids: Collection[int]) -> list[Job]:
        """Return the existing jobs of ``ids``, by id."""
        return _jobs(self._tx.rows(_SELECT, (list(ids),)))

    def live(self, user: str | None = None) -> list[Job]:
        """Return the jobs that have not ended, by id; ``user`` None: the jobs of all users."""
        rows = self._tx.rows(_LIVE) if user is None else self._tx.rows(_LIVE_OF_USER, (user,))
        return [_job(row) for row in rows]

    def in_states(self, states: Iterable[JobState]) -> list[Job]:
        """Return the live jobs in one of the states, by id."""
        return [_job(row) for row in self._tx.rows(_IN_STATES, (_texts(states),))]

    def of_arrays(self, arrays: Collection[int]) -> list[Job]:
        """Return all jobs of the arrays, including ended ones, by id."""
        return [_job(row) for row in self._tx.rows(_ARRAYS, (list(arrays),))]

    def array_summary(self, array_id: int) -> ArraySummary:
        """Return how many jobs of an array ended with which result; a single job is an array of size 1."""
        return ArraySummary(*self._tx.rows(_ARRAY_SUMMARY, (array_id,))[0])

    def owners(self, ids: Collection[int]) -> dict[int, str]:
        return dict(self._tx.rows("SELECT job_id, job_user FROM jobs WHERE job_id = ANY(%s)", (list(ids),)))

    def states(self, ids: Collection[int]) -> dict[int, JobState]:
        return {row[0]: JobState(row[1]) for row in self._tx.rows(_STATES, (list(ids),))}

    def types(self, ids: Collection[int], *, current: bool = False) -> dict[int, tuple[str, ...]]:
        """Return the types of jobs; with ``current`` only the current ones: an ended job has none."""
        return _types(self._tx.rows(_CURRENT_TYPES if current else _TYPES, (list(ids),)))

    def dependencies(self, ids: Collection[int]) -> dict[int, list[Dependency]]:
        return _dependencies(self._tx.rows(_DEPENDENCIES, (list(ids),)))

    def assigned(self, ids: Collection[int], *, current: bool = False) -> dict[int, list[AssignedResource]]:
        """Return the resources of jobs, sorted by id; with ``current`` only the currently assigned ones."""
        resources: dict[int, list[AssignedResource]] = defaultdict(list)
        for job_id, *resource in self._tx.rows(_ASSIGNED, (list(ids), current)):
            resources[job_id].append(AssignedResource(*resource))
        return resources

    def state_changes(self, ids: Collection[int]) -> dict[int, list[StateChange]]:
        """Return the state changes of jobs, oldest first."""
        changes: dict[int, list[StateChange]] = defaultdict(list)
        for row in self._tx.rows(_STATE_CHANGES, (list(ids),)):
            changes[row[0]].append(StateChange(row[0], JobState(row[1]), row[2], row[3]))
        return changes

    def suspended_times(self, ids: Collection[int]) -> dict[int, int]:
        """Return the time that jobs have spent in Suspended and Resuming until now, in seconds."""
        return dict(self._tx.rows(_SUSPENDED_TIMES, (self._tx.now, list(ids)))) if ids else {}

    def on_nodes(self, nodes: Collection[str]) -> list[int]:
        """Return the live jobs that hold a resource of one of the nodes, by id."""
        return self._tx.column(_ON_NODES, (list(nodes),))

    def on_resources(self, resources: Collection[int]) -> dict[int, list[int]]:
        """Return the live jobs that hold any of the resources, each with the held resources."""
        held: dict[int, list[int]] = defaultdict(list)
        for job_id, resource_id in self._tx.rows(_ON_RESOURCES, (list(resources),)):
            held[job_id].append(resource_id)
        return held

    def inner(self, containers: Collection[int]) -> list[tuple[int, int]]:
        """Return the live jobs inside the containers, as pairs ``(container, job)``."""
        return [(row[0], row[1]) for row in self._tx.rows(_INNER, (list(containers),))] if containers else []

    def move(self, ids: Collection[int], to: JobState, sources: Collection[JobState]) -> list[MovedJob]:
        """Set the state ``to`` for jobs in one of the states ``sources``; return the changed jobs, by id.

        Only ``oar.lib.jobs.lifecycle`` calls this method and its variants: a move has consequences that belong in the
        same transaction.
        """
        stops = {"stops": to in FINAL or to is JobState.FINISHING, "started": int(to is JobState.FINISHING)}
        return self._move(_MOVE, to, sources, {"ids": sorted(ids), **stops})

    def move_started(self, starts: Mapping[int, GivenStart], sources: Collection[JobState]) -> list[MovedJob]:
        """Like ``move`` to toLaunch; also set the start times and the alternatives."""
        ids = sorted(starts)
        columns = {"dates": [starts[each].date for each in ids], "moldables": [starts[each].moldable for each in ids]}
        return self._move(_MOVE_STARTED, JobState.TO_LAUNCH, sources, {"ids": ids, **columns})

    def move_ended(self, ends: Mapping[int, GivenEnd], sources: Collection[JobState]) -> list[MovedJob]:
        """Like ``move`` to Finishing; also set the reported wait statuses and end times."""
        ids = sorted(ends)
        columns = {"dates": [ends[each].date for each in ids], "statuses": [ends[each].status for each in ids]}
        return self._move(_MOVE_ENDED, JobState.FINISHING, sources, {"ids": ids, **columns})

    def _move(
        self, sql: str, to: JobState, sources: Collection[JobState], columns: Mapping[str, object]
    ) -> list[MovedJob]:
        now = self._tx.now
        common = {"to": to, "sources": _texts(sources), "now": now, "stop": now if to in FINAL else 0}
        moved = [MovedJob(*row) for row in self._tx.rows(sql, {**common, **columns})]
        if moved:
            self._changed(Topic.JOBS)
            if to in FINAL:
                self._tx.ended.update(job.id for job in moved)
        return moved

    def close(self, ids: Collection[int]) -> None:
        """Mark all rows of jobs as history, and release their resources.

        Only ``oar.lib.jobs.lifecycle`` calls this method. No separate change of resources is reported for
        ``last_job_date``: the change belongs to the end of the job.
        """
        self._tx.execute(_CLOSE, {"ids": sorted(ids), "now": self._tx.now})
        self._changed(Topic.JOBS, Topic.GANTT)

    def mark_suspended(self, ids: Collection[int]) -> None:
        """Record that jobs were suspended at least once."""
        self._tx.execute("UPDATE jobs SET suspended = 'YES' WHERE job_id = ANY(%s)", (list(ids),))
        self._changed(Topic.JOBS)

    def update(self, job_id: int, **columns: Any) -> None:
        """Set columns of one job. Raises ValueError for the column ``state``."""
        if "state" in columns:
            raise ValueError("a state changes by move")
        assignments = ", ".join(f"{name} = %({name})s" for name in columns)
        self._tx.execute(f"UPDATE jobs SET {assignments} WHERE job_id = %(id)s", columns | {"id": job_id})
        self._changed(Topic.JOBS)

    def set_message(self, ids: Collection[int], message: str) -> None:
        self._tx.execute("UPDATE jobs SET message = %s WHERE job_id = ANY(%s)", (message, sorted(ids)))
        self._changed(Topic.JOBS)

    def set_ends(self, dates: Mapping[int, int]) -> None:
        """Set the end dates of jobs, and the exit code 0."""
        self._tx.execute(_SET_ENDS, (list(dates), list(dates.values())))
        self._changed(Topic.JOBS)

    def set_start_now(self, ids: Collection[int]) -> None:
        """Set the start date of the jobs without one to the date of the transaction."""
        self._tx.execute(
            "UPDATE jobs SET start_time = %s WHERE job_id = ANY(%s) AND start_time = 0", (self._tx.now, sorted(ids))
        )
        self._changed(Topic.JOBS)

    def take_back(self, job_id: int) -> None:
        """Delete the assigned resources and the start date of a job that returns to the queue."""
        self._tx.execute(_TAKE_BACK, (job_id,))
        self._changed(Topic.JOBS, Topic.GANTT)

    def insert_types(self, types: Mapping[int, Sequence[str]]) -> None:
        rows = [(job_id, text) for job_id, texts in types.items() for text in texts]
        if rows:
            self._tx.insert_many("INSERT INTO job_types (job_id, type) VALUES %s", rows)
            self._changed(Topic.JOBS)

    def follow_resubmission(self, old: int, new: int) -> None:
        """Replace ``old`` by ``new`` in all dependencies on ``old``."""
        self._tx.execute("UPDATE job_dependencies SET job_id_required = %s WHERE job_id_required = %s", (new, old))
        self._changed(Topic.JOBS)

    def replace_type(self, job_id: int, former: str, present: str) -> None:
        """Remove the type ``former`` of a job and add the type ``present``; '' = none."""
        self._changed(Topic.JOBS)
        self._tx.execute("DELETE FROM job_types WHERE job_id = %s AND type = %s", (job_id, former))
        if present:
            self._tx.execute("INSERT INTO job_types (job_id, type) VALUES (%s, %s)", (job_id, present))

    def mark_types(self, job_id: int, text: str, index: Index) -> int:
        """Mark a type of a job as current or as history; return the number of rows."""
        self._changed(Topic.JOBS)
        return self._tx.execute(
            "UPDATE job_types SET types_index = %s WHERE job_id = %s AND type = %s", (index, job_id, text)
        )

    def exchange_resources(self, job_id: int, given_up: Collection[int], taken: Collection[int]) -> None:
        """Remove resources from a running job and assign others, possibly some that it had before."""
        self._tx.execute(_GIVE_UP, (job_id, list(given_up)))
        self._tx.execute(_TAKE, (list(taken), job_id))
        self._changed(Topic.JOBS)

    def release_resources(self, job_id: int, nodes: Collection[str]) -> int:
        """Release the resources of a job on some nodes; return their number."""
        self._changed(Topic.JOBS)
        return self._tx.execute(
            "UPDATE assigned_resources a SET assigned_resource_index = 'LOG' FROM jobs j, resources r"
            " WHERE j.job_id = %s AND a.moldable_job_id = j.assigned_moldable_job AND r.resource_id = a.resource_id"
            " AND r.network_address = ANY(%s) AND a.assigned_resource_index = 'CURRENT'",
            (job_id, list(nodes)),
        )

    def array_members(self, array_id: int) -> list[ArrayMember]:
        """Return the jobs of an array by id, with copies of resubmitted jobs; a single job is an array of size 1."""
        return [
            ArrayMember(job_id, JobState(state), exit_code, date_of_start(state, start, stop, moldable), stop)
            for job_id, state, exit_code, start, stop, moldable in self._tx.rows(_MEMBERS, (array_id,))
        ]

    def next_ended(self, after: int, last: int, *, start: int, stop: int, limit: int) -> list[int]:
        """Return at most ``limit`` ended jobs with ids above ``after``, up to ``last``.

        ``start``, ``stop``: limits of the submission time.
        """
        values = {"after": after, "last": last, "start": start, "stop": stop, "limit": limit}
        return self._tx.column(_NEXT, values)

    def frames_of_ended(self, ids: Collection[int]) -> set[int]:
        """Return the given jobs that are frames of advance reservations."""
        return set(self._tx.column(_FRAMES, (list(ids),)))

    def ended_summary(self, first: int, last: int, *, start: int, stop: int) -> EndedSummary:
        """Return a summary of the ended jobs with ids from ``first`` to ``last``.

        ``start``, ``stop``: limits of the submission time.
        """
        row = self._tx.row(_SUMMARY, {"after": first - 1, "last": last, "start": start, "stop": stop})
        assert row is not None
        count, begin, *names = row
        return EndedSummary(count, begin or 0, *(tuple(values or ()) for values in names))

    def read_details(self, ids: Collection[int]) -> dict[int, JobDetail]:
        """Return the details of the existing jobs of ``ids``."""
        return {row[0]: _detail(row) for row in self._tx.rows(_READ, (list(ids),))}
