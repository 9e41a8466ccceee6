"""The rows of new jobs (``tx.new_jobs``): one job, or an array of ten thousand, in as many statements.

The jobs of an array differ in number, command and secrets only; everything else is sent once and multiplied by the
database.

See docs/design/schema.rst, "Bulk statements".
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Prepared, Table
from oar.lib.jobs.records import Dependency, Group, JobKeys, JobSpec
from oar.lib.jobs.states import JobState, JobType, Reservation

_NEW_IDS = Prepared("""
    SELECT ARRAY(SELECT nextval('jobs_job_id_seq') FROM generate_series(1, %(jobs)s)),
           ARRAY(SELECT nextval('moldable_job_descriptions_moldable_id_seq') FROM generate_series(1, %(moldables)s)),
           ARRAY(SELECT nextval('job_resource_groups_res_group_id_seq') FROM generate_series(1, %(groups)s))""")

_JOBS = """
    INSERT INTO jobs (job_id, array_id, array_index, array_limit, initial_request, job_name, cpuset_name, job_type,
        info_type, state, reservation, message, job_user, project, command, exit_code, queue_name, properties,
        launching_directory, submission_time, start_time, file_id, notify, checkpoint, checkpoint_signal, stdout_file,
        stderr_file, resubmit_job_id, job_env)
    SELECT job.id, %(array_id)s, job.index, COALESCE(%(array_limit)s, 0), %(initial_request)s, %(name)s,
        COALESCE(%(cpuset_name)s, %(user)s || '_' || job.id), %(job_type)s, %(info_type)s, %(state)s, %(reservation)s,
        %(message)s, %(user)s, %(project)s, {command}, NULL, %(queue)s, %(properties)s, %(launching_directory)s,
        %(now)s, %(start_time)s, %(file_id)s, %(notify)s, %(checkpoint)s, %(checkpoint_signal)s, %(stdout_file)s,
        %(stderr_file)s, %(resubmit_job_id)s, %(env)s
    FROM {jobs}"""
#: Where their numbers, indexes and commands come from.
_JOBS_OF_ONE_COMMAND = """
    (SELECT id, n + %(array_index)s - 1 FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY i(id, n)) job(id, index)"""
_JOBS_OF_COMMANDS = "unnest(%(ids)s::bigint[], %(commands)s::text[]) WITH ORDINALITY job(id, command, index)"
_INSERT_OF_ONE_COMMAND = Prepared(_JOBS.format(command="%(command)s", jobs=_JOBS_OF_ONE_COMMAND))
_INSERT_OF_COMMANDS = _JOBS.format(command="job.command", jobs=_JOBS_OF_COMMANDS)
_STATE_LOGS = Prepared("""
    INSERT INTO job_state_logs (job_id, job_state, date_start) SELECT id, %s, %s FROM unnest(%s::bigint[]) id""")
_MOLDABLES = Prepared("""
    INSERT INTO moldable_job_descriptions (moldable_id, moldable_job_id, moldable_walltime, default_walltime)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])""")
_GROUPS = Prepared("""
    INSERT INTO job_resource_groups (res_group_id, res_group_moldable_id, res_group_property)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[])""")
_LEVELS = Prepared("""
    INSERT INTO job_resource_descriptions (res_job_group_id, res_job_resource_type, res_job_value, res_job_order)
    SELECT * FROM unnest(%s::bigint[], %s::text[], %s::integer[], %s::integer[])""")
_TYPES = Prepared("""
    INSERT INTO job_types (job_id, type)
    SELECT id, type FROM unnest(%s::bigint[]) WITH ORDINALITY job(id, place),
        unnest(%s::text[]) WITH ORDINALITY kind(type, number) ORDER BY place, number""")
_DEPENDENCIES = """
    INSERT INTO job_dependencies (job_id, job_id_required, dependency_condition, min_start_shift, max_start_shift)
    SELECT id, required, condition, least, most FROM unnest(%s::bigint[]) id,
        unnest(%s::bigint[], %s::text[], %s::text[], %s::text[]) dependency(required, condition, least, most)"""

_SECRETS = Prepared("""
    INSERT INTO challenges (job_id, challenge, ssh_private_key, ssh_public_key)
    SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[])""")

_DELETE_REQUESTS = """
    WITH moldables AS (DELETE FROM moldable_job_descriptions WHERE moldable_job_id = %s RETURNING moldable_id),
         groups AS (DELETE FROM job_resource_groups USING moldables WHERE res_group_moldable_id = moldable_id
                    RETURNING res_group_id)
    DELETE FROM job_resource_descriptions USING groups WHERE res_job_group_id = res_group_id"""

_DELETE_OTHER_REQUESTS = """
    WITH moldables AS (DELETE FROM moldable_job_descriptions WHERE moldable_job_id = %s AND moldable_id <> %s
                       RETURNING moldable_id),
         groups AS (DELETE FROM job_resource_groups USING moldables WHERE res_group_moldable_id = moldable_id
                    RETURNING res_group_id)
    DELETE FROM job_resource_descriptions USING groups WHERE res_job_group_id = res_group_id"""

_DELETE_GROUPS = """
    WITH groups AS (DELETE FROM job_resource_groups WHERE res_group_moldable_id = %s RETURNING res_group_id)
    DELETE FROM job_resource_descriptions USING groups WHERE res_job_group_id = res_group_id"""

_INDEXED_DEPENDENCIES = """
    INSERT INTO job_dependencies (job_id, job_id_required, dependency_condition, min_start_shift, max_start_shift)
    SELECT id, required, %s, %s, %s FROM unnest(%s::bigint[], %s::bigint[]) dependency(id, required)
    ON CONFLICT (job_id, job_id_required) DO NOTHING"""


class NewJob(NamedTuple):
    """A row of ``jobs`` to be inserted; the columns that neither this nor the specification names have their default.

    An ``id`` or ``array_id`` of 0 stands for a new number; an empty name of cpuset is made of user and number.
    """

    spec: JobSpec
    job_type: JobType
    state: JobState
    message: str
    reservation: Reservation = Reservation.NONE
    start_time: int = 0
    id: int = 0
    array_id: int = 0
    array_index: int = 1
    resubmit_job_id: int = 0


class NewAlternative(NamedTuple):
    """One ``-l`` of a new job."""

    walltime: int
    groups: tuple[Group, ...]
    default_walltime: int = 0  #: that of the site, if none was asked for; 0 = one was


class IndexedDependency(NamedTuple):
    """A dependency of each of several jobs on another job."""

    required: Sequence[int]  #: of each job
    condition: str = ""
    min_shift: str = ""
    max_shift: str = ""


class JobBatch(NamedTuple):
    """Jobs to be inserted together: as many as the array of the first one has, numbered from its index on."""

    first: NewJob
    alternatives: Sequence[NewAlternative]
    dependencies: Sequence[Dependency] = ()
    indexed: Sequence[IndexedDependency] = ()


class NewJobs(Table):
    """Rows of ``jobs`` and of all tables that describe jobs."""

    def new_id(self) -> int:
        """Return a fresh job id, for rows that have to be written before the job."""
        job_id: int = self._tx.value("SELECT nextval('jobs_job_id_seq')")
        return job_id

    def insert(self, batch: JobBatch, keys: Sequence[JobKeys]) -> list[int]:
        """Insert jobs with all that describes them; return their ids, ascending.  ``keys``: of each job."""
        spec = batch.first.spec
        new_jobs = 0 if batch.first.id else spec.array_size
        ids, moldables, groups = self._new_ids(spec.array_size, batch.alternatives, jobs=new_jobs)
        ids = ids or [batch.first.id]
        self._insert_jobs(batch.first, ids)
        self._insert_requests(batch.alternatives, ids, moldables, groups)
        if spec.types:
            self._tx.execute(_TYPES, (ids, list(spec.types)))
        if batch.dependencies:
            self._insert_dependencies(ids, batch.dependencies)
        for indexed in batch.indexed:
            parameters = (indexed.condition, indexed.min_shift, indexed.max_shift, ids, list(indexed.required))
            self._tx.execute(_INDEXED_DEPENDENCIES, parameters)
        self._insert_secrets(ids, keys)
        self._changed(Topic.JOBS)
        return ids

    def replace_requests(self, job_id: int, alternatives: Sequence[NewAlternative]) -> None:
        """Replace the requests of a job that waits."""
        self._tx.execute(_DELETE_REQUESTS, (job_id,))
        _, moldables, groups = self._new_ids(1, alternatives, jobs=0)
        self._insert_requests(alternatives, [job_id], moldables, groups)
        self._changed(Topic.JOBS)

    def keep_alternative(self, job_id: int, moldable_id: int, walltime: int) -> None:
        """Let a job that waits have one of its alternatives only, with a walltime."""
        self._tx.topics.add(Topic.JOBS)
        self._tx.execute(_DELETE_OTHER_REQUESTS, (job_id, moldable_id))
        self._tx.execute(
            "UPDATE moldable_job_descriptions SET moldable_walltime = %s WHERE moldable_id = %s",
            (walltime, moldable_id),
        )

    def replace_groups(self, moldable_id: int, groups: Sequence[Group]) -> None:
        """Let an alternative of a job ask for other resources."""
        self._tx.execute(_DELETE_GROUPS, (moldable_id,))
        _, _, ids = self._new_ids(1, [NewAlternative(0, tuple(groups))], jobs=0)
        self._insert_groups([moldable_id] * len(groups), groups, ids)
        self._changed(Topic.JOBS)

    def replace_dependencies(self, job_id: int, dependencies: Sequence[Dependency]) -> None:
        """Replace the dependencies of a job."""
        self._tx.execute("DELETE FROM job_dependencies WHERE job_id = %s", (job_id,))
        if dependencies:
            self._insert_dependencies([job_id], dependencies)
        self._changed(Topic.JOBS)

    def _new_ids(self, count: int, alternatives: Sequence[NewAlternative], *, jobs: int) -> list[list[int]]:
        """Return fresh ids, ascending: of so many jobs, and of the alternatives and groups of ``count`` jobs."""
        groups = sum(len(alternative.groups) for alternative in alternatives)
        counts = {"jobs": jobs, "moldables": count * len(alternatives), "groups": count * groups}
        return [sorted(ids) for ids in self._tx.row(_NEW_IDS, counts) or ((), (), ())]

    def _insert_jobs(self, first: NewJob, ids: list[int]) -> None:
        commands = first.spec.commands
        parameters: dict[str, Any] = {
            **first.spec._asdict(),
            **first._asdict(),
            "array_id": first.array_id or ids[0],
            "cpuset_name": first.spec.cpuset_name or None,
            "env": first.spec.stored_env,
            "now": self._tx.now,
            "ids": ids,
            "commands": list(commands),
        }
        if len(commands) == 1:
            parameters["command"] = commands[0]
        self._tx.execute(_INSERT_OF_ONE_COMMAND if len(commands) == 1 else _INSERT_OF_COMMANDS, parameters)
        self._tx.execute(_STATE_LOGS, (first.state, self._tx.now, ids))

    def _insert_requests(
        self, alternatives: Sequence[NewAlternative], ids: Sequence[int], moldables: list[int], group_ids: list[int]
    ) -> None:
        """Insert the same requests for each of several new jobs."""
        walltimes = [alternative.walltime for alternative in alternatives]
        defaults = [alternative.default_walltime for alternative in alternatives]
        owners = [job_id for job_id in ids for _ in walltimes]
        self._tx.execute(_MOLDABLES, (moldables, owners, walltimes * len(ids), defaults * len(ids)))
        requests = [alternative.groups for alternative in alternatives] * len(ids)
        holders = [moldable for moldable, groups in zip(moldables, requests, strict=True) for _ in groups]
        self._insert_groups(holders, [group for request in requests for group in request], group_ids)

    def _insert_groups(self, holders: Sequence[int], groups: Sequence[Group], group_ids: Sequence[int]) -> None:
        """Insert groups with their levels.  ``holders``: the alternative of each group."""
        self._tx.execute(_GROUPS, (list(group_ids), list(holders), [group.filter for group in groups]))
        levels = [
            (group_id, level.property, level.quantity, order)
            for group_id, group in zip(group_ids, groups, strict=True)
            for order, level in enumerate(group.levels)
        ]
        if levels:
            self._tx.execute(_LEVELS, _columns(levels))

    def _insert_dependencies(self, ids: list[int], dependencies: Sequence[Dependency]) -> None:
        columns = _columns([dependency[1:] for dependency in dependencies])
        self._tx.execute(_DEPENDENCIES, (ids, *columns))

    def _insert_secrets(self, ids: Sequence[int], keys: Sequence[JobKeys]) -> None:
        rows = zip(ids, keys, strict=True)
        columns = _columns([(job_id, key.challenge, key.private_key, key.public_key) for job_id, key in rows])
        self._tx.execute(_SECRETS, columns)


def _columns(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    """Return the columns of rows, of which there is one at least, as arrays for unnest."""
    return tuple(list(column) for column in zip(*rows, strict=True))
