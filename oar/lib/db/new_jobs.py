"""The rows of new jobs: one job, or an array of ten thousand, in as many statements (database.md 7).

The jobs of an array differ in number, command and secrets only; the rest is given once and multiplied by the database.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from oar.lib.db.engine import USER_LOCK_CLASS, Transaction
from oar.lib.model import Dependency, Group, JobKeys
from oar.lib.states import JobState, JobType, Reservation

_NEW_IDS = """
    SELECT ARRAY(SELECT nextval('jobs_job_id_seq') FROM generate_series(1, %(jobs)s)),
           ARRAY(SELECT nextval('moldable_job_descriptions_moldable_id_seq') FROM generate_series(1, %(moldables)s)),
           ARRAY(SELECT nextval('job_resource_groups_res_group_id_seq') FROM generate_series(1, %(groups)s))"""

_JOBS = """
    INSERT INTO jobs (job_id, array_id, array_index, array_limit, initial_request, job_name, cpuset_name, job_type,
        info_type, state, reservation, message, job_user, project, command, exit_code, queue_name, properties,
        launching_directory, submission_time, start_time, file_id, notify, checkpoint, checkpoint_signal, stdout_file,
        stderr_file, resubmit_job_id, job_env)
    SELECT job.id, %(array_id)s, job.place, %(array_limit)s, %(initial_request)s, %(name)s,
        COALESCE(%(cpuset_name)s, %(user)s || '_' || job.id), %(job_type)s, %(info_type)s, %(state)s, %(reservation)s,
        %(message)s, %(user)s, %(project)s, {command}, NULL, %(queue)s, %(properties)s, %(launching_directory)s,
        %(now)s, %(start_time)s, %(file_id)s, %(notify)s, %(checkpoint)s, %(checkpoint_signal)s, %(stdout_file)s,
        %(stderr_file)s, %(resubmit_job_id)s, %(env)s
    FROM {jobs}"""
_STATE_LOGS = """
    INSERT INTO job_state_logs (job_id, job_state, date_start) SELECT id, %s, %s FROM unnest(%s::bigint[]) id"""
_MOLDABLES = """
    INSERT INTO moldable_job_descriptions (moldable_id, moldable_job_id, moldable_walltime)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[])"""
_GROUPS = """
    INSERT INTO job_resource_groups (res_group_id, res_group_moldable_id, res_group_property)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[])"""
_LEVELS = """
    INSERT INTO job_resource_descriptions (res_job_group_id, res_job_resource_type, res_job_value, res_job_order)
    SELECT * FROM unnest(%s::bigint[], %s::text[], %s::integer[], %s::integer[])"""
_TYPES = """
    INSERT INTO job_types (job_id, type)
    SELECT id, type FROM unnest(%s::bigint[]) WITH ORDINALITY job(id, place),
        unnest(%s::text[]) WITH ORDINALITY kind(type, number) ORDER BY place, number"""
_DEPENDENCIES = """
    INSERT INTO job_dependencies (job_id, job_id_required, dependency_condition, min_start_shift, max_start_shift)
    SELECT id, required, condition, least, most FROM unnest(%s::bigint[]) id,
        unnest(%s::bigint[], %s::text[], %s::text[], %s::text[]) dependency(required, condition, least, most)"""

_NO_REQUEST = """
    WITH moldables AS (DELETE FROM moldable_job_descriptions WHERE moldable_job_id = %s RETURNING moldable_id),
         groups AS (DELETE FROM job_resource_groups USING moldables WHERE res_group_moldable_id = moldable_id
                    RETURNING res_group_id)
    DELETE FROM job_resource_descriptions USING groups WHERE res_job_group_id = res_group_id"""

_INDEXED_DEPENDENCY = """
    INSERT INTO job_dependencies (job_id, job_id_required, dependency_condition, min_start_shift, max_start_shift)
    SELECT id, required, %s, %s, %s FROM unnest(%s::bigint[], %s::bigint[]) dependency(id, required)
    ON CONFLICT (job_id, job_id_required) DO NOTHING"""


class NewJob(NamedTuple):
    """A job row to be inserted; the rest has its default."""

    id: int
    array_id: int
    array_index: int
    initial_request: str
    name: str | None
    cpuset_name: str
    job_type: JobType
    info_type: str
    state: JobState
    reservation: Reservation
    message: str
    user: str
    project: str
    command: str
    queue: str
    properties: str
    launching_directory: str
    start_time: int
    file_id: int | None
    notify: str | None
    checkpoint: int
    checkpoint_signal: int
    stdout_file: str | None
    stderr_file: str | None
    resubmit_job_id: int
    env: str | None
    array_limit: int = 0  #: so many jobs of the array may run at a time; 0 = all


class Alternative(NamedTuple):
    """One ``-l`` of a new job."""

    walltime: int
    groups: tuple[Group, ...]


class IndexedDependency(NamedTuple):
    """A dependency of each of several jobs on another job."""

    required: Sequence[int]  #: of each job
    condition: str = ""
    min_shift: str = ""
    max_shift: str = ""


class NewJobs(NamedTuple):
    """Jobs to be inserted."""

    first: NewJob  #: what they have in common; an ``id`` or ``array_id`` of 0 is found here, each job's index counts on
    commands: Sequence[str]  #: of each job; one text for all if there is only one
    number: int
    alternatives: Sequence[Alternative]
    types: Sequence[str] = ()
    dependencies: Sequence[Dependency] = ()
    indexed: Sequence[IndexedDependency] = ()


def new_id(tx: Transaction) -> int:
    """Return a fresh job id, for what has to be written before the job."""
    fresh: int = tx.value("SELECT nextval('jobs_job_id_seq')")
    return fresh


def insert(tx: Transaction, new: NewJobs, keys: Sequence[JobKeys]) -> list[int]:
    """Insert jobs with all that describes them; return their ids, ascending.  ``keys``: of each job."""
    ids, moldables, group_ids = _new_ids(tx, new.number, new.alternatives, jobs=0 if new.first.id else new.number)
    ids = ids or [new.first.id]
    _insert_jobs(tx, new, ids)
    _insert_requests(tx, new.alternatives, ids, moldables, group_ids)
    if new.types:
        tx.execute(_TYPES, (ids, list(new.types)))
    if new.dependencies:
        _insert_dependencies(tx, ids, new.dependencies)
    for each in new.indexed:
        tx.execute(_INDEXED_DEPENDENCY, (each.condition, each.min_shift, each.max_shift, ids, list(each.required)))
    tx.secrets.insert(dict(zip(ids, keys, strict=True)))
    tx.topics.add("jobs")
    return ids


def _new_ids(tx: Transaction, count: int, alternatives: Sequence[Alternative], *, jobs: int) -> list[list[int]]:
    """Return fresh numbers, ascending: of so many jobs, and of the alternatives and groups of ``count`` jobs."""
    groups = sum(len(each.groups) for each in alternatives)
    counts = {"jobs": jobs, "moldables": count * len(alternatives), "groups": count * groups}
    return [sorted(part) for part in tx.row(_NEW_IDS, counts) or ((), (), ())]


def _insert_jobs(tx: Transaction, new: NewJobs, ids: list[int]) -> None:
    job = new.first
    parameters: dict[str, Any] = {name: getattr(job, name) for name in NewJob._fields}
    parameters |= {
        "array_id": job.array_id or ids[0],
        "cpuset_name": job.cpuset_name or None,
        "now": tx.now,
        "ids": ids,
        "commands": list(new.commands),
        "place": job.array_index,
    }
    if len(new.commands) == 1:
        source = "(SELECT id, n + %(place)s - 1 FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY i(id, n)) job(id, place)"
        command = "%(command)s"
        parameters["command"] = new.commands[0]
    else:
        source = "unnest(%(ids)s::bigint[], %(commands)s::text[]) WITH ORDINALITY job(id, command, place)"
        command = "job.command"
    tx.execute(_JOBS.format(command=command, jobs=source), parameters)
    tx.execute(_STATE_LOGS, (job.state, tx.now, ids))


def _insert_requests(
    tx: Transaction,
    alternatives: Sequence[Alternative],
    ids: Sequence[int],
    moldables: list[int],
    group_ids: list[int],
) -> None:
    """Let each of some new jobs ask for the same."""
    walltimes = [alternative.walltime for alternative in alternatives]
    owners = [job_id for job_id in ids for _ in walltimes]
    tx.execute(_MOLDABLES, (moldables, owners, walltimes * len(ids)))
    wanted = [alternative.groups for alternative in alternatives] * len(ids)
    holders = [moldable for moldable, groups in zip(moldables, wanted, strict=True) for _ in groups]
    groups = [group for each in wanted for group in each]
    tx.execute(_GROUPS, (group_ids, holders, [group.filter for group in groups]))
    levels = [
        (group_id, level.property, level.quantity, order)
        for group_id, group in zip(group_ids, groups, strict=True)
        for order, level in enumerate(group.levels)
    ]
    tx.execute(_LEVELS, tuple(list(column) for column in zip(*levels, strict=True)))


def _insert_dependencies(tx: Transaction, ids: list[int], dependencies: Sequence[Dependency]) -> None:
    tx.execute(
        _DEPENDENCIES,
        (
            ids,
            [each.required for each in dependencies],
            [each.condition for each in dependencies],
            [each.min_shift for each in dependencies],
            [each.max_shift for each in dependencies],
        ),
    )


def replace_requests(tx: Transaction, job_id: int, alternatives: Sequence[Alternative]) -> None:
    """Let a job that waits ask for these and for nothing else."""
    tx.execute(_NO_REQUEST, (job_id,))
    _, moldables, group_ids = _new_ids(tx, 1, alternatives, jobs=0)
    _insert_requests(tx, alternatives, [job_id], moldables, group_ids)


def replace_dependencies(tx: Transaction, job_id: int, dependencies: Sequence[Dependency]) -> None:
    """Let a job depend on these and on no others."""
    tx.execute("DELETE FROM job_dependencies WHERE job_id = %s", (job_id,))
    if dependencies:
        _insert_dependencies(tx, [job_id], dependencies)


# -- what is asked before ---------------------------------------------------------------------------------------------

_LIVE_TYPE = "state <> 'Terminated' AND state <> 'Error' AND state <> 'Finishing'"
#: A container by its number, or the newest one of a name; with the list of its users.
_CONTAINER = f"""
    SELECT j.job_id, j.job_user, j.reservation <> 'None',
        (SELECT t.type FROM job_types t
         WHERE t.job_id = j.job_id AND t.types_index = 'CURRENT' AND t.type LIKE 'container\\_users=%%'
         ORDER BY t.job_type_id DESC LIMIT 1)
    FROM jobs j
    WHERE {_LIVE_TYPE} AND j.job_id IN (
        SELECT c.job_id FROM job_types c
        WHERE c.types_index = 'CURRENT'
          AND (c.type = %(named)s
               OR (c.job_id = %(id)s AND (c.type = 'container' OR c.type LIKE 'container=%%'))))
    ORDER BY (j.job_id = %(id)s) DESC, j.job_id DESC LIMIT 1"""
#: Values of a property among the resources of a container; those that its first request names while it has none.
_HELD = """
    SELECT COALESCE(
        (SELECT NULLIF(count(DISTINCT r.{column}), 0) FROM jobs j
         JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job
         JOIN resources r USING (resource_id) WHERE j.job_id = %(id)s),
        (SELECT sum(d.res_job_value) FILTER (WHERE d.res_job_value > 0) FROM moldable_job_descriptions m
         JOIN job_resource_groups g ON g.res_group_moldable_id = m.moldable_id
         JOIN job_resource_descriptions d ON d.res_job_group_id = g.res_group_id
         WHERE m.moldable_job_id = %(id)s AND d.res_job_resource_type = %(name)s), 0)"""
#: Reservations of a user that have not begun.
_WAITING_RESERVATIONS = """
    SELECT count(*) FROM jobs WHERE job_user = %s AND state IN ('Waiting', 'Hold', 'toAckReservation')
        AND state <> 'Terminated' AND state <> 'Error' AND reservation IN ('toSchedule', 'Scheduled')"""
#: Size of what the live jobs of a user keep.
_KEPT_BYTES = """
    SELECT COALESCE(sum(octet_length(job_env)), 0)::bigint FROM jobs
    WHERE job_user = %s AND job_env IS NOT NULL AND state <> 'Terminated' AND state <> 'Error'"""
#: Live jobs with a name of cpuset.
_SHARING_CPUSET = """
    SELECT job_id FROM jobs WHERE cpuset_name = %s AND state <> 'Terminated' AND state <> 'Error' ORDER BY job_id"""


class Container(NamedTuple):
    """A live job in which others may have their place."""

    id: int
    user: str
    is_reservation: bool
    users: tuple[str, ...]  #: who else may use it


def find_container(tx: Transaction, reference: str) -> Container | None:
    """Return the live container with this number, or this name."""
    number = int(reference) if reference.isascii() and reference.isdigit() and len(reference) <= 18 else 0
    row = tx.row(_CONTAINER, {"named": f"container={reference}", "id": number})
    if row is None:
        return None
    users = (row[3] or "").partition("=")[2]
    return Container(row[0], row[1], row[2], tuple(users.split("+")) if users else ())


def values_in_container(tx: Transaction, container: int, column: str) -> int:
    """Return how many values of a property a container holds, or asks for as long as it holds nothing."""
    name = '"' + column.replace('"', '""').replace("%", "%%") + '"'
    number: int = tx.value(_HELD.format(column=name), {"id": container, "name": column})
    return number


def members_of_array(tx: Transaction, array: int) -> dict[int, int]:
    """Return the jobs of an array by index; of those that were submitted again the last one."""
    return dict(tx.rows("SELECT array_index, max(job_id) FROM jobs WHERE array_id = %s GROUP BY array_index", (array,)))


def count_waiting_reservations(tx: Transaction, user: str) -> int:
    """Return the number of reservations of a user that have not begun."""
    number: int = tx.value(_WAITING_RESERVATIONS, (user,))
    return number


def kept_bytes(tx: Transaction, user: str) -> int:
    """Return the size of scripts and variables of a user's live jobs; he submits no other ones meanwhile."""
    tx.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (USER_LOCK_CLASS, user))
    number: int = tx.value(_KEPT_BYTES, (user,))
    return number


def jobs_of_cpuset(tx: Transaction, name: str) -> list[int]:
    """Return the live jobs that share a cpuset of this name."""
    return tx.column(_SHARING_CPUSET, (name,))
