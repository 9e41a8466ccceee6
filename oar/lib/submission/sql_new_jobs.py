"""New jobs (``tx.new_jobs``): rows, alternatives, dependencies, staged files, submission keys, resubmissions.

The jobs of an array differ only in number, command and secrets.  All other values are sent once, and the database
inserts them for each job.

See docs/design/schema.rst, "Bulk statements".
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby, repeat, starmap
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from oar.lib.bus.messages import Topic
from oar.lib.db.statements import About, Prepared, Row, Statements, Table
from oar.lib.db.system import SKIP_LOST_NUMBERS, UNNOTICED_PROMOTION
from oar.lib.jobs.fields import COLUMNS
from oar.lib.jobs.records import Dependency, Group, JobKeys, JobSpec, Level, Memory, Moldable, memory_columns, memory_of
from oar.lib.jobs.states import JobState, JobType, Reservation

_NEW_IDS = Prepared(
    f"""
    SELECT ARRAY(SELECT nextval('jobs_job_id_seq') FROM generate_series(1, %(jobs)s)),
           ARRAY(SELECT nextval('moldable_job_descriptions_moldable_id_seq') FROM generate_series(1, %(moldables)s)),
           ARRAY(SELECT nextval('job_resource_groups_res_group_id_seq') FROM generate_series(1, %(groups)s)),
           {UNNOTICED_PROMOTION}"""
)

#: The fields of a specification that are stored as they are, and their columns.
_STORED = {
    field: COLUMNS[field]
    for field in JobSpec._fields
    if field in COLUMNS and field not in ("command", "array_limit", "cpuset_name")
}

#: ``jobs``: source of the ids, indexes and commands.
_JOBS = f"""
    INSERT INTO jobs (job_id, array_id, array_index, array_limit, cpuset_name, job_type, state, reservation, message,
        submission_time, start_time, resubmit_job_id, exit_code, {", ".join(_STORED.values())}, command)
    SELECT job.id, %(array_id)s, job.index, COALESCE(%(array_limit)s, 0),
        COALESCE(%(cpuset_name)s, %(user)s || '_' || job.id), %(job_type)s, %(state)s, %(reservation)s, %(message)s,
        %(now)s, %(start_time)s, %(resubmit_job_id)s, NULL, {", ".join(f"%({field})s" for field in _STORED)},
        {{command}}
    FROM {{jobs}}"""

_JOBS_OF_ONE_COMMAND = """
    (SELECT id, n + %(array_index)s - 1 FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY i(id, n)) job(id, index)"""

_JOBS_OF_COMMANDS = "unnest(%(ids)s::bigint[], %(commands)s::text[]) WITH ORDINALITY job(id, command, index)"

_INSERT_OF_ONE_COMMAND = Prepared(_JOBS.format(command="%(command)s", jobs=_JOBS_OF_ONE_COMMAND))

_INSERT_OF_COMMANDS = _JOBS.format(command="job.command", jobs=_JOBS_OF_COMMANDS)

_STATE_LOGS = Prepared("""
    INSERT INTO job_state_logs (job_id, job_state, date_start) SELECT id, %s, %s FROM unnest(%s::bigint[]) id""")

_MOLDABLES = Prepared("""
    INSERT INTO moldable_job_descriptions (
        moldable_id, moldable_job_id, moldable_walltime, default_walltime, resources, memory_per_node, memory_per_core)
    SELECT * FROM unnest(
        %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::integer[], %s::bigint[], %s::bigint[])""")

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
    """A row of ``jobs`` to insert; columns that neither this record nor the specification names get their default.

    An ``id`` or ``array_id`` of 0 stands for a new number; an empty cpuset name is built from user and number.
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
    resources: int = 0  #: that it would take; 0 = unknown
    memory: Memory | None = None  #: None = its memory is not counted


class IndexedDependency(NamedTuple):
    """A dependency of each of several jobs on a different job."""

    required: Sequence[int]  #: of each job
    condition: str = ""
    min_shift: str = ""
    max_shift: str = ""


class JobBatch(NamedTuple):
    """Jobs to insert together: the array of the first job gives their number, and its index their first index."""

    first: NewJob
    alternatives: Sequence[NewAlternative]
    dependencies: Sequence[Dependency] = ()
    indexed: Sequence[IndexedDependency] = ()


def _columns(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    """Return the columns of at least one row, as arrays for unnest."""
    return tuple(list(column) for column in zip(*rows, strict=True))


#: Alternatives with their groups and levels, in any order.
_JOINED = Prepared("""
    SELECT m.moldable_id, g.res_group_id, d.res_job_order, m.moldable_job_id, m.moldable_walltime, m.default_walltime,
           m.memory_per_node, m.memory_per_core, g.res_group_property, d.res_job_resource_type, d.res_job_value
    FROM moldable_job_descriptions m
    LEFT JOIN job_resource_groups g ON g.res_group_moldable_id = m.moldable_id
    LEFT JOIN job_resource_descriptions d ON d.res_job_group_id = g.res_group_id
    WHERE m.moldable_job_id = ANY(%s)""")

_SIZES = "SELECT moldable_id, resources FROM moldable_job_descriptions WHERE moldable_job_id = %s"

_ALTERNATIVES_OF_MANY = """
    SELECT moldable_id, moldable_job_id, moldable_walltime, default_walltime, memory_per_node, memory_per_core
    FROM moldable_job_descriptions WHERE moldable_job_id = ANY(%s)"""

_GROUPS_OF_MANY = """
    SELECT res_group_moldable_id, res_group_id, res_group_property
    FROM job_resource_groups WHERE res_group_moldable_id = ANY(%s)"""

_LEVELS_OF_MANY = """
    SELECT res_job_group_id, res_job_order, res_job_resource_type, res_job_value
    FROM job_resource_descriptions WHERE res_job_group_id = ANY(%s)"""

_NOTHING = repeat(())

T = TypeVar("T")

#: Groups as they are stored: the filter of each, and its levels.
_Stored = tuple[tuple[str | None, tuple[tuple[str, int], ...]], ...]

_ByJob = dict[int, list[Moldable]]


def _of_rows(rows: Sequence[Row]) -> _ByJob:
    alternatives = dict.fromkeys([(row[0], *row[3:8]) for row in rows])
    groups = dict.fromkeys([(row[0], row[1], row[8]) for row in rows if row[1] is not None])
    levels = [(row[1], row[2], *row[9:]) for row in rows if row[9] is not None]
    return _gathered(list(alternatives), list(groups), levels)


def _of_many(tx: Statements, job_ids: Sequence[int]) -> _ByJob:
    """Return the alternatives of many jobs, read table by table from one snapshot.

    Alternatives of other jobs may be included.
    """
    alternatives = tx.rows_about(_ALTERNATIVES_OF_MANY, job_ids)
    groups = tx.rows_about(_GROUPS_OF_MANY, [row[0] for row in alternatives])
    levels = tx.rows_about(_LEVELS_OF_MANY, [row[1] for row in groups])
    return _gathered(alternatives, groups, levels)


def _gathered(alternatives: Sequence[Row], groups: Sequence[Row], levels: Sequence[Row]) -> _ByJob:
    """Return the alternatives with their groups and levels, from the rows of the statements for many jobs."""
    ids, jobs, walltimes, defaults, per_node, per_core = _columns_or_empty(alternatives, 6)
    owners, group_ids, filters = _columns_or_empty(groups, 3)
    in_groups, orders, names, values = _columns_or_empty(levels, 4)
    pairs = list(zip(names, values, strict=True))
    asked: Iterable[_Stored]
    if (owners, in_groups) == (ids, group_ids):  # each has one group with one level, in the same order
        asked = zip(zip(filters, zip(pairs, strict=True), strict=True), strict=True)
    else:
        levels_of = _by_owner(in_groups, orders, pairs)
        stored = zip(filters, map(levels_of.get, group_ids, _NOTHING), strict=False)
        asked = map(_by_owner(owners, group_ids, list(stored)).get, ids, _NOTHING)
    memories = map(memory_of, per_node, per_core)
    return _by_job(ids, jobs, walltimes, map(_Requests().__getitem__, asked), defaults, memories)


def _columns_or_empty(rows: Sequence[Row], number: int) -> Sequence[Sequence[Any]]:
    return list(zip(*rows, strict=True)) or [()] * number


def _by_owner(owners: Sequence[int], places: Sequence[int], things: Sequence[T]) -> dict[int, tuple[T, ...]]:
    """Return the items of each owner, sorted by place; most owners have one item."""
    found: dict[int, tuple[T, ...]] = dict(zip(owners, zip(things, strict=True), strict=True))
    if len(found) < len(owners):
        several = {owner for owner, count in Counter(owners).items() if count > 1}
        rows = [row for row in zip(owners, places, things, strict=True) if row[0] in several]
        for owner, some in groupby(sorted(rows, key=itemgetter(0, 1)), itemgetter(0)):
            found[owner] = tuple([thing for _, _, thing in some])
    return found


def _by_job(
    ids: Sequence[int],
    jobs: Sequence[int],
    walltimes: Sequence[int],
    requests: Iterable[tuple[Group, ...]],
    *rest: Iterable[object],
) -> _ByJob:
    fields = zip(ids, jobs, walltimes, requests, *rest, strict=True)
    found = map(tuple.__new__, repeat(Moldable), fields)  # same as Moldable._make, in half the time
    if len(set(jobs)) == len(jobs):
        return {job_id: [alternative] for job_id, alternative in zip(jobs, found, strict=True)}
    alternatives: _ByJob = defaultdict(list)
    for alternative in sorted(found):
        alternatives[alternative.job_id].append(alternative)
    return alternatives


class _Requests(dict[_Stored, tuple[Group, ...]]):
    """A cache of the groups of requests: most of 10000 jobs have the same request."""

    def __missing__(self, request: _Stored) -> tuple[Group, ...]:
        groups = self[request] = tuple([Group(text or "", tuple(starmap(Level, levels))) for text, levels in request])
        return groups


_COLUMNS = "job_id, job_id_required, dependency_condition, min_start_shift, max_start_shift"

_OF = f"""
    SELECT {_COLUMNS} FROM job_dependencies WHERE job_id = ANY(%s) ORDER BY job_id, job_id_required LIMIT %s"""

_ON = f"""
    SELECT {_COLUMNS} FROM job_dependencies WHERE job_id_required = ANY(%s)
    ORDER BY job_id_required, job_id LIMIT %s"""

_DEPENDANTS = """
    WITH RECURSIVE dependants (id) AS (
        SELECT %s::bigint
        UNION SELECT d.job_id FROM dependants, job_dependencies d
            WHERE d.job_id_required = id AND d.job_dependency_index = 'CURRENT')
    SELECT id FROM dependants"""

_FIND_FILE = "SELECT file_id, location FROM files WHERE md5sum = %s AND location = %s ORDER BY file_id LIMIT 1"

_INSERT = """
    INSERT INTO files (md5sum, location, method, compression, size) VALUES (%s, %s, 'FILE', %s, %s) RETURNING file_id"""

_REMOVE = """
    DELETE FROM files f WHERE f.file_id = %s AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.file_id = f.file_id)"""

#: Files that no live job names, nor one that was started or submitted after a date.
_UNUSED = """
    SELECT f.file_id, f.location FROM files f WHERE NOT EXISTS (
        SELECT 1 FROM jobs j WHERE j.file_id = f.file_id
          AND (j.state NOT IN ('Terminated', 'Error') OR GREATEST(j.start_time, j.submission_time) > %s))
    ORDER BY f.file_id"""


class StagedFile(NamedTuple):
    """A file that the server stores for jobs."""

    id: int
    location: str  #: its path on the server


class KeyedRequest(NamedTuple):
    """A completed request with a key, a row of ``submission_keys``."""

    request: str  #: sum of what was asked
    answer: str  #: what was answered, JSON


#: Waits for the end of a transaction that has the same key.
_CLAIM = """
    INSERT INTO submission_keys (key_user, key_hash, request_hash, created) VALUES (%s, %s, %s, %s)
    ON CONFLICT DO NOTHING RETURNING created"""

_FIND_KEY = "SELECT request_hash, answer FROM submission_keys WHERE key_user = %s AND key_hash = %s"

_ANSWER = "UPDATE submission_keys SET answer = %s WHERE key_user = %s AND key_hash = %s"

_FORGET = """
    DELETE FROM submission_keys WHERE (key_user, key_hash) IN (
        SELECT key_user, key_hash FROM submission_keys WHERE created < %s
        ORDER BY created LIMIT %s FOR UPDATE SKIP LOCKED)"""

_NOTE = "INSERT INTO auto_resubmissions (job_id, new_job_id) VALUES (%s, %s) ON CONFLICT DO NOTHING"

_COPIES = "SELECT job_id, new_job_id FROM auto_resubmissions WHERE job_id = ANY(%s)"

_FACTS = Prepared("""
    SELECT id, EXISTS (SELECT 1 FROM frag_jobs f WHERE f.frag_id_job = id),
        EXISTS (SELECT 1 FROM auto_resubmissions a WHERE a.job_id = id), r.oarexec_code
    FROM unnest(%s::bigint[]) id LEFT JOIN job_runs r ON r.job_id = id""")

_CHAIN = """
    WITH RECURSIVE chain(id) AS (
        SELECT job_id FROM auto_resubmissions WHERE new_job_id = %s
        UNION SELECT a.job_id FROM auto_resubmissions a JOIN chain c ON a.new_job_id = c.id)
    SELECT count(*) FROM chain"""


class ResubmissionFacts(NamedTuple):
    """The facts that decide whether a job may be submitted again."""

    kill_asked: bool = False
    was_resubmitted: bool = False
    oarexec_code: int | None = None  #: that of its end, None if oarexec has not reported


class NewJobs(Table):
    """Rows of new jobs in all tables that describe jobs, of staged files, and of submission keys."""

    def new_id(self) -> int:
        """Return a new job id, for rows that must be written before the job."""
        return self._new_ids(0, (), jobs=1)[0][0]

    def insert(self, batch: JobBatch, keys: Sequence[JobKeys]) -> list[int]:
        """Insert jobs with all their related rows; return their ids, ascending.  ``keys``: the keys of each job."""
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
        """Replace the requests of a waiting job."""
        self._tx.execute(_DELETE_REQUESTS, (job_id,))
        _, moldables, groups = self._new_ids(1, alternatives, jobs=0)
        self._insert_requests(alternatives, [job_id], moldables, groups)
        self._changed(Topic.JOBS)

    def keep_alternative(self, job_id: int, moldable_id: int, walltime: int) -> None:
        """Delete all alternatives of a waiting job except one, and set its walltime."""
        self._tx.topics.add(Topic.JOBS)
        self._tx.execute(_DELETE_OTHER_REQUESTS, (job_id, moldable_id))
        self._tx.execute(
            "UPDATE moldable_job_descriptions SET moldable_walltime = %s WHERE moldable_id = %s",
            (walltime, moldable_id),
        )

    def replace_groups(self, moldable_id: int, groups: Sequence[Group]) -> None:
        """Replace the requested resources of an alternative."""
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
        """Return new ids, ascending: for ``jobs`` jobs, and for the alternatives and groups of ``count`` jobs."""
        groups = sum(len(alternative.groups) for alternative in alternatives)
        counts = {"jobs": jobs, "moldables": count * len(alternatives), "groups": count * groups}
        *ids, is_promoted = self._tx.row(_NEW_IDS, counts) or ((), (), (), False)
        if is_promoted:
            self._tx.execute(SKIP_LOST_NUMBERS)
            *ids, _ = self._tx.row(_NEW_IDS, counts) or ((), (), (), False)
        return [sorted(numbers) for numbers in ids]

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
        sizes = [alternative.resources for alternative in alternatives]
        per_node, per_core = map(list, zip(*(memory_columns(each.memory) for each in alternatives), strict=True))
        owners = [job_id for job_id in ids for _ in walltimes]
        columns = [values * len(ids) for values in (walltimes, defaults, sizes, per_node, per_core)]
        self._tx.execute(_MOLDABLES, (moldables, owners, *columns))
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

    #: A question that views of jobs ask with others.
    OF_JOBS = About(_JOINED, _of_rows, _of_many)

    def moldables_of_jobs(self, ids: Collection[int]) -> dict[int, list[Moldable]]:
        """Return the alternatives of jobs with their requests, in the order of the submission."""
        return _of_rows(self._tx.rows(_JOINED, (list(ids),)))

    def sizes(self, job_id: int) -> dict[int, int]:
        """Return how many resources each alternative of a job would take; 0: its admission did not know it."""
        return dict(self._tx.rows(_SIZES, (job_id,)))

    def dependencies_of(self, ids: Collection[int], most: int) -> list[Dependency]:
        """Return the dependencies of jobs on other jobs, at most ``most``."""
        return [Dependency(*row) for row in self._tx.rows(_OF, (list(ids), most))]

    def dependencies_on(self, ids: Collection[int], most: int) -> list[Dependency]:
        """Return the dependencies of other jobs on these jobs, at most ``most``."""
        return [Dependency(*row) for row in self._tx.rows(_ON, (list(ids), most))]

    def dependants(self, job_id: int) -> frozenset[int]:
        """Return a job and all live jobs that depend on it, directly or indirectly."""
        return frozenset(self._tx.column(_DEPENDANTS, (job_id,)))

    def find_file(self, md5sum: str, location: str) -> StagedFile | None:
        """Return the file with this checksum and path; None if there is none."""
        row = self._tx.row(_FIND_FILE, (md5sum, location))
        return StagedFile(*row) if row else None

    def file_locations(self, locations: Collection[str]) -> frozenset[str]:
        """Return the given paths that are stored as file locations."""
        return frozenset(self._tx.column("SELECT location FROM files WHERE location = ANY(%s)", (list(locations),)))

    def add_file(self, md5sum: str, location: str, compression: str, size: int) -> StagedFile:
        """Add a file; ``compression``: the kind of archive, '' if it is none; ``size``: in bytes."""
        return StagedFile(self._tx.value(_INSERT, (md5sum, location, compression, size)), location)

    def remove_file_unless_named(self, file_id: int) -> bool:
        """Delete a file unless a job refers to it; return whether it was deleted."""
        return self._tx.execute(_REMOVE, (file_id,)) > 0

    def remove_file(self, file_id: int) -> None:
        """Delete a file, and the references of ended jobs to it."""
        self._tx.execute("UPDATE jobs SET file_id = NULL WHERE file_id = %s", (file_id,))
        self._changed(Topic.JOBS)
        self._tx.execute("DELETE FROM files WHERE file_id = %s", (file_id,))

    def unused_files(self, since: int) -> list[StagedFile]:
        """Return the files to which no live job refers, and no job that was started or submitted after a date."""
        return [StagedFile(*row) for row in self._tx.rows(_UNUSED, (since,))]

    def claim_key(self, user: str, key: str, request: str) -> KeyedRequest | None:
        """Claim a key for a request; return None, or the earlier request with this key.

        ``key``, ``request``: their checksums.
        """
        if self._tx.value(_CLAIM, (user, key, request, self._tx.now)) is not None:
            return None
        row = self._tx.row(_FIND_KEY, (user, key))
        return KeyedRequest(*row) if row else None

    def store_answer(self, user: str, key: str, text: str) -> None:
        """Store the response to the request with this key."""
        self._tx.execute(_ANSWER, (text, user, key))

    def forget_keys(self, before: int, limit: int) -> None:
        """Delete at most ``limit`` keys that are older than a date."""
        self._tx.execute(_FORGET, (before, limit))

    #: A question that views ask with others.
    COPIES = About(_COPIES, dict)

    def store_resubmission(self, job_id: int, copy: int) -> bool:
        """Store ``copy`` as the resubmission of a job; return False if the job already has a copy."""
        self._changed(Topic.JOBS)
        return self._tx.execute(_NOTE, (job_id, copy)) == 1

    def resubmitted_copies(self, ids: Collection[int]) -> dict[int, int]:
        """Return the copy of each job that was resubmitted."""
        return dict(self._tx.rows(_COPIES, (list(ids),))) if ids else {}

    def resubmission_facts(self, ids: Collection[int]) -> dict[int, ResubmissionFacts]:
        """Return for each job the facts that decide whether it may be submitted again."""
        return {row[0]: ResubmissionFacts(*row[1:]) for row in self._tx.rows(_FACTS, (sorted(ids),))} if ids else {}

    def chain_length(self, job_id: int) -> int:
        """Return the number of automatic resubmissions that led to a job; 0 if a user submitted it."""
        length: int = self._tx.value(_CHAIN, (job_id,))
        return length
