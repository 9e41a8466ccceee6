"""Data that a scheduling pass reads and writes about jobs and resources (``tx.rounds``).

All live data is read in a fixed number of queries, whatever the number of jobs.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import psycopg2

from oar.lib.base.errors import ConfigError
from oar.lib.bus.messages import Topic
from oar.lib.db.predicates import LIVE
from oar.lib.db.statements import Prepared, Row, Table, quoted
from oar.lib.jobs.live_jobs import LiveJob
from oar.lib.jobs.records import Dependency, Level, Memory, memory_of
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.nodes.records import PropertyValue
from oar.lib.nodes.states import ResourceState

#: The jobs that a round looks at: all live ones but those on hold.
_LOOKED_AT = f"{LIVE} AND j.state <> 'Hold'"

#: Which version of each of their rows is the present one: a row that changes gets another ``xmin``.
_VERSIONS = Prepared(f"SELECT j.job_id, j.xmin::text FROM jobs j WHERE {_LOOKED_AT} ORDER BY j.job_id")
_JOBS = Prepared("""
    SELECT j.job_id, j.queue_name, j.job_user, j.project, COALESCE(j.job_name, ''), j.state, j.reservation,
        j.job_type = 'INTERACTIVE', j.array_id, j.array_limit, COALESCE(j.properties, ''), j.submission_time,
        j.start_time, COALESCE(j.assigned_moldable_job, 0), j.checkpoint, j.suspended = 'YES', j.message,
        j.scheduler_info, j.last_karma
    FROM jobs j WHERE j.job_id = ANY(%s) ORDER BY j.job_id""")
_ON_HOLD = Prepared("""
    SELECT j.job_id, COALESCE(l.date_start, j.submission_time)
    FROM jobs j LEFT JOIN job_state_logs l ON l.job_id = j.job_id AND l.date_stop = 0 WHERE j.state = 'Hold'""")
#: Jobs that were altered, each with its last alteration.
_ALTERED = Prepared("SELECT job_id, max(event_id) FROM event_logs WHERE type = 'ALTER' AND date >= %s GROUP BY job_id")
_NEXT_JOB = Prepared("SELECT last_value + is_called::int FROM jobs_job_id_seq")
_KILLED = Prepared("SELECT frag_id_job FROM frag_jobs WHERE frag_state <> 'FRAGGED'")
_TYPES = Prepared("""
    SELECT job_id, type FROM job_types WHERE types_index = 'CURRENT' AND job_id = ANY(%s) ORDER BY job_type_id""")
#: A request is read table by table: each time by an index, whatever the database knows of the sizes.
_MOLDABLES = Prepared("""
    SELECT moldable_id, moldable_job_id, moldable_walltime, default_walltime, resources, memory_per_node,
        memory_per_core
    FROM moldable_job_descriptions WHERE moldable_index = 'CURRENT' AND moldable_job_id = ANY(%s)
    ORDER BY moldable_id""")
_GROUPS = Prepared("""
    SELECT res_group_id, res_group_moldable_id, res_group_property FROM job_resource_groups
    WHERE res_group_index = 'CURRENT' AND res_group_moldable_id = ANY(%s) ORDER BY res_group_id""")
_LEVELS = Prepared("""
    SELECT res_job_group_id, res_job_resource_type, res_job_value FROM job_resource_descriptions
    WHERE res_job_index = 'CURRENT' AND res_job_group_id = ANY(%s) ORDER BY res_job_group_id, res_job_order""")
#: Jobs on hold that will be containers.
_HELD_CONTAINERS = """
    SELECT j.job_id, t.type FROM jobs j JOIN job_types t USING (job_id)
    WHERE j.state = 'Hold' AND t.types_index = 'CURRENT' AND (t.type = 'container' OR t.type LIKE 'container=%')
    ORDER BY j.job_id"""
_WALLTIMES = Prepared("""
    SELECT moldable_id, moldable_walltime, memory_per_node, memory_per_core
    FROM moldable_job_descriptions WHERE moldable_id = ANY(%s)""")
_ASSIGNED = Prepared("""
    SELECT moldable_job_id, array_agg(resource_id) FROM assigned_resources
    WHERE assigned_resource_index = 'CURRENT' GROUP BY moldable_job_id""")
_DEPENDENCIES = Prepared("""
    SELECT job_id, job_id_required, dependency_condition, min_start_shift, max_start_shift
    FROM job_dependencies WHERE job_dependency_index = 'CURRENT' ORDER BY job_id, job_id_required""")
_REQUIRED = Prepared("SELECT job_id, state, exit_code, start_time, stop_time FROM jobs WHERE job_id = ANY(%s)")
#: For each of some jobs in Resuming a number that grows with the requests.
_TURNS = Prepared("""
    SELECT job_id, max(job_state_log_id) FROM job_state_logs
    WHERE job_id = ANY(%s) AND job_state = 'Resuming' GROUP BY job_id""")
_CHECKPOINTS = Prepared("""
    SELECT job_id, COALESCE(max(date) FILTER (WHERE type = 'CHECKPOINT'), 0), bool_or(type = 'CHECKPOINT_TIMEOUT')
    FROM event_logs WHERE job_id = ANY(%s) AND type IN ('CHECKPOINT', 'CHECKPOINT_TIMEOUT') GROUP BY job_id""")
#: Changes when any resource changes, appears or goes.
_VERSION = Prepared("""
    SELECT count(*), COALESCE(sum(xmin::text::bigint * (resource_id % 8191 + 1)), 0)::text,
        COALESCE(bit_xor(hashint8(xmin::text::bigint << 32 | resource_id)), 0), (
            SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute
            WHERE attrelid = 'public.resources'::regclass AND attnum > 0 AND NOT attisdropped)
    FROM resources""")
#: Changes when what is in some columns changes.
_CONTENT = """
    SELECT count(*), COALESCE(sum(hashed), 0)::text, COALESCE(bit_xor(hashed), 0)
    FROM resources, LATERAL (SELECT hashtextextended(ROW({})::text, resource_id) AS hashed) h"""
#: Consumption since a date, by queue.
_CONSUMPTION = """
    SELECT queue_name, accounting_user, accounting_project, consumption_type, sum(consumption)::bigint FROM accounting
    WHERE window_start >= %s AND window_start < %s AND queue_name = ANY(%s)
    GROUP BY queue_name, accounting_user, accounting_project, consumption_type"""
#: When nodes were woken, unless they were halted later.
_WOKEN = Prepared("""
    SELECT h.hostname, max(e.date) FROM event_logs e JOIN event_log_hostnames h ON h.event_id = e.event_id
    WHERE e.type = 'WAKEUP_NODE' AND e.date > %s AND NOT EXISTS (
        SELECT 1 FROM event_log_hostnames o JOIN event_logs l ON l.event_id = o.event_id
        WHERE o.hostname = h.hostname AND o.event_id > h.event_id AND l.type = 'HALT_NODE')
    GROUP BY h.hostname""")

#: Resources on which a job has ended.
_USED_SINCE = "SELECT resource_id FROM resources WHERE last_job_date >= %s"

#: Jobs that may be started: they wait, and nobody wants their end.  Locked before their resources are
#: (docs/design/locks.rst, "Order of locks").
_LOCK_WAITING = Prepared("""
    SELECT j.job_id FROM jobs j WHERE j.job_id = ANY(%s) AND j.state = 'Waiting'
      AND NOT EXISTS (SELECT 1 FROM frag_jobs f WHERE f.frag_id_job = j.job_id)
    ORDER BY j.job_id FOR NO KEY UPDATE OF j""")
#: Resources on which a job may be started, kept from changing until the end of the transaction.
_SHARE_ALIVE = Prepared("""
    SELECT resource_id, state = 'Alive' AND next_state IN ('UnChanged', 'Alive') FROM resources
    WHERE resource_id = ANY(%s) ORDER BY resource_id FOR SHARE""")
_CUT = Prepared("""
    UPDATE moldable_job_descriptions m SET moldable_walltime = n.walltime
    FROM (SELECT unnest(%s::bigint[]) AS moldable, unnest(%s::bigint[]) AS walltime) n
    WHERE m.moldable_id = n.moldable AND m.moldable_walltime <> n.walltime""")
_ASSIGN = Prepared("""
    INSERT INTO assigned_resources (moldable_job_id, resource_id) SELECT * FROM unnest(%s::bigint[], %s::bigint[])""")
#: Texts that the scheduler writes into waiting jobs.
_TELL = Prepared("""
    UPDATE jobs j SET message = n.message, scheduler_info = n.info, last_karma = COALESCE(n.karma, j.last_karma)
    FROM (SELECT unnest(%s::bigint[]) AS id, unnest(%s::text[]) AS message, unnest(%s::text[]) AS info,
                 unnest(%s::double precision[]) AS karma) n
    WHERE j.job_id = n.id AND j.state IN ('Waiting', 'toLaunch', 'toAckReservation')""")


@dataclass(frozen=True, slots=True)
class JobText:
    """The texts that the scheduler stores in a waiting job; ``karma`` None: the stored value stays."""

    job_id: int
    message: str
    info: str
    karma: float | None = None


@dataclass(frozen=True, slots=True)
class StartRow:
    """A job that starts, with its alternative and its assigned resources."""

    job_id: int
    moldable: int
    start: int
    resources: tuple[int, ...]
    walltime: int


@dataclass(frozen=True, slots=True)
class JobRow(LiveJob):
    """A live job, as stored."""

    properties: str = ""
    submission_time: int = 0
    start_time: int = 0
    moldable: int = 0
    checkpoint: int = 0
    was_suspended: bool = False
    message: str = ""
    scheduler_info: str = ""
    karma: float | None = None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group of a request: its filter and its levels."""

    filter: str
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class MoldableRow:
    """An alternative of a job."""

    id: int
    job_id: int
    walltime: int
    groups: tuple[GroupRow, ...]
    default_walltime: int = 0  #: that of the site, if none was asked for; 0 = one was
    resources: int = 0  #: that it would take, as far as its admission knew it
    memory: Memory | None = None  #: None = its memory is not counted


@dataclass(frozen=True, slots=True)
class DependencyRow:
    """A dependency, and the state of the required job; None if that job no longer exists."""

    dependency: Dependency
    state: JobState | None
    exit_code: int | None
    start_time: int
    stop_time: int


@dataclass(frozen=True, slots=True)
class ResourceRow:
    """A resource, its ranks in the two configured orders, and the values of the requested properties."""

    id: int
    type: str
    network_address: str
    state: ResourceState
    available_upto: int
    rank: int
    reservation_rank: int
    values: tuple[PropertyValue, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """The version of the resources: equal versions mean that no resource has changed.

    ``columns``: the columns of ``resources``.
    """

    mark: tuple[int, str, int]
    columns: frozenset[str]


class Rounds(Table):
    """The SQL statements of a scheduling pass."""

    def versions(self) -> dict[int, str]:
        """Return the live jobs that are not on hold, by id, each with a mark that changes with its row."""
        return dict(self._tx.rows(_VERSIONS))

    def altered(self, since: int) -> dict[int, int]:
        """Return the jobs altered since a date, each with a number that changes with the next alteration."""
        return dict(self._tx.rows(_ALTERED, (since,)))

    def jobs(self, ids: Collection[int]) -> list[JobRow]:
        """Return the given jobs, sorted by id."""
        return [_job(row) for row in self._tx.rows(_JOBS, (list(ids),))] if ids else []

    def on_hold(self) -> dict[int, int]:
        """Return the jobs on hold, each with the date since when it is on hold."""
        return dict(self._tx.rows(_ON_HOLD))

    def next_job(self) -> int:
        """Return the id of the next new job."""
        job_id: int = self._tx.value(_NEXT_JOB)
        return job_id

    def killed(self) -> set[int]:
        """Return the jobs with an open kill request."""
        return set(self._tx.column(_KILLED))

    def types(self, ids: Collection[int]) -> dict[int, tuple[str, ...]]:
        types: dict[int, list[str]] = defaultdict(list)
        for job_id, text in self._tx.rows(_TYPES, (list(ids),)) if ids else ():
            types[job_id].append(text)
        return {job_id: tuple(texts) for job_id, texts in types.items()}

    def moldables(self, ids: Collection[int]) -> dict[int, tuple[MoldableRow, ...]]:
        """Return the alternatives of jobs, in the order of their submission."""
        if not ids:
            return {}
        rows = self._tx.rows(_MOLDABLES, (list(ids),))
        group_rows = self._tx.rows(_GROUPS, ([row[0] for row in rows],))
        levels: dict[int, list[Level]] = defaultdict(list)
        for group_id, name, value in self._tx.rows(_LEVELS, ([row[0] for row in group_rows],)):
            levels[group_id].append(Level(name, value))
        groups: dict[int, list[GroupRow]] = defaultdict(list)
        for group_id, moldable_id, text in group_rows:
            groups[moldable_id].append(GroupRow(text or "", tuple(levels[group_id])))
        moldables: dict[int, list[MoldableRow]] = defaultdict(list)
        for moldable_id, job_id, walltime, default, size, *memory in rows:
            asked = tuple(groups[moldable_id])
            row = MoldableRow(moldable_id, job_id, walltime, asked, default, size, memory_of(*memory))
            moldables[job_id].append(row)
        return {job_id: tuple(alternatives) for job_id, alternatives in moldables.items()}

    def walltimes(self, moldables: Collection[int]) -> dict[int, tuple[int, Memory | None]]:
        """Return the current walltimes of alternatives, and their memory."""
        rows = self._tx.rows(_WALLTIMES, (list(moldables),)) if moldables else ()
        return {moldable_id: (walltime, memory_of(*memory)) for moldable_id, walltime, *memory in rows}

    def held_containers(self) -> list[tuple[int, str]]:
        """Return the jobs on hold that are containers, each with its container type."""
        return [(row[0], row[1]) for row in self._tx.rows(_HELD_CONTAINERS)]

    def assigned(self) -> dict[int, list[int]]:
        """Return the currently assigned resources, by alternative."""
        return dict(self._tx.rows(_ASSIGNED))

    def dependencies(self, supposed: Sequence[Dependency] = ()) -> list[DependencyRow]:
        """Return the dependencies of live jobs and the ``supposed`` ones, with the states of the required jobs."""
        dependencies = [*(Dependency(*row) for row in self._tx.rows(_DEPENDENCIES)), *supposed]
        if not dependencies:
            return []
        required = sorted({dependency.required for dependency in dependencies})
        jobs = {row[0]: row[1:] for row in self._tx.rows(_REQUIRED, (required,))}
        return [_dependency(dependency, jobs.get(dependency.required)) for dependency in dependencies]

    def turns(self, ids: Collection[int]) -> dict[int, int]:
        """Return numbers that order jobs in Resuming: the earliest resume request has the lowest number."""
        return dict(self._tx.rows(_TURNS, (list(ids),))) if ids else {}

    def checkpoints(self, ids: Collection[int]) -> dict[int, tuple[int, bool]]:
        """Return for jobs with a checkpoint request its date, and whether its timeout has expired."""
        return {row[0]: (row[1], row[2]) for row in self._tx.rows(_CHECKPOINTS, (list(ids),))} if ids else {}

    def version(self) -> Version:
        """Return the current version of all resources."""
        row = self._tx.rows(_VERSION)[0]
        return Version((row[0], row[1], row[2]), frozenset(row[3].split()))

    def content(self, columns: Collection[str]) -> tuple[int, str, int]:
        """Return a checksum of columns of all resources: it changes with the values."""
        names = ", ".join(quoted(name) for name in sorted(columns))
        row = self._tx.rows(_CONTENT.format(names))[0]
        return row[0], row[1], row[2]

    def resources(self, names: Sequence[str], order: str, reservation_order: str) -> list[ResourceRow]:
        """Return all resources with their properties ``names``; the orders are SQL of the administrator.

        Raises ConfigError if the database rejects an order.
        """
        columns = "".join(f", {quoted(name)}" for name in names)
        sql = (
            "SELECT resource_id, type, network_address,"
            " CASE WHEN next_state IN ('Absent', 'Suspected', 'Dead') THEN next_state ELSE state END,"
            f" available_upto, row_number() OVER (ORDER BY {order}, resource_id),"
            f" row_number() OVER (ORDER BY {reservation_order}, resource_id){columns}"
            " FROM resources ORDER BY resource_id"
        )
        self._tx.execute("SAVEPOINT orders")
        try:
            rows = self._tx.rows(sql)
        except psycopg2.ProgrammingError as error:
            self._tx.execute("ROLLBACK TO orders")
            raise ConfigError(f"SCHEDULER_RESOURCE_ORDER: {str(error).partition(chr(10))[0]}") from None
        return [_resource(row) for row in rows]

    def column_values(self, names: Sequence[str]) -> dict[int, Sequence[PropertyValue]]:
        """Return the values of columns of all resources, by id."""
        rows = self._tx.rows(f"SELECT resource_id, {', '.join(map(quoted, names))} FROM resources")
        return {row[0]: row[1:] for row in rows}

    def consumption(self, queues: Collection[str], since: int, until: int) -> list[tuple[str, str, str, str, int]]:
        """Return sums of accounting windows, as ``(queue, user, project, ASKED or USED, resource seconds)``."""
        return [
            (row[0], row[1], row[2], row[3], row[4])
            for row in self._tx.rows(_CONSUMPTION, (since, until, list(queues)))
        ]

    def woken(self, since: int) -> Mapping[str, int]:
        """Return the nodes that were woken after a date and not halted since, with the date of the last wake-up."""
        return dict(self._tx.rows(_WOKEN, (since,)))

    def used_since(self, date: int) -> list[int]:
        """Return the resources on which a job ended at a date or later."""
        return self._tx.column(_USED_SINCE, (date,))

    def lock_waiting(self, ids: Collection[int]) -> list[int]:
        """Lock and return the given jobs that may be started: they are waiting and have no kill request."""
        return self._tx.column(_LOCK_WAITING, (sorted(ids),))

    def share_alive(self, ids: Collection[int]) -> set[int]:
        """Return the given resources that are Alive; all given ones are locked until the end of the transaction."""
        return {row[0] for row in self._tx.rows(_SHARE_ALIVE, (sorted(ids),)) if row[1]}

    def give(self, rows: Sequence[StartRow]) -> None:
        """Assign resources to jobs that are started, and set the walltimes of their alternatives."""
        if not rows:
            return
        moldables = [row.moldable for row in rows]
        self._tx.execute(_CUT, (moldables, [row.walltime for row in rows]))
        pairs = [(row.moldable, number) for row in rows for number in row.resources]
        self._tx.execute(_ASSIGN, ([moldable for moldable, _ in pairs], [number for _, number in pairs]))
        self._changed(Topic.JOBS)

    def tell(self, texts: Collection[JobText]) -> None:
        """Store messages, texts and karmas in jobs that have not started."""
        if texts:
            columns = zip(*((text.job_id, text.message, text.info, text.karma) for text in texts), strict=True)
            self._tx.execute(_TELL, [list(column) for column in columns])
            self._changed(Topic.JOBS)

    def end_negotiation(self, job_id: int) -> None:
        """Record that the scheduler has accepted or rejected a reservation."""
        self._tx.execute(
            "UPDATE jobs SET reservation = 'Scheduled' WHERE job_id = %s AND reservation = 'toSchedule'", (job_id,)
        )
        self._changed(Topic.JOBS)


def _job(row: Row) -> JobRow:
    values = list(row)
    values[5:7] = JobState(row[5]), Reservation(row[6])
    return JobRow(*values)


def _dependency(dependency: Dependency, required: Row | None) -> DependencyRow:
    if required is None:
        return DependencyRow(dependency, None, None, 0, 0)
    state, code, start, stop = required
    return DependencyRow(dependency, JobState(state), code, start or 0, stop or 0)


def _resource(row: Row) -> ResourceRow:
    values = [*row[:7], row[7:]]
    values[3] = ResourceState(row[3])
    return ResourceRow(*values)
