"""Accounts (``tx.accounts``): waiting jobs of users, and the limits of the server's quota file."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from oar.lib.accounts.limit_rules import Pattern
from oar.lib.db.predicates import LIVE, NO_FRAME
from oar.lib.db.statements import Prepared, Table
from oar.lib.jobs.states import CURRENT, LIMITED_WAITING
from oar.lib.nodes.states import ResourceState

#: The text of a file as the server read it last.
_FILE = Prepared("SELECT value FROM policy_log WHERE kind = 'file' AND name = %s ORDER BY log_id DESC LIMIT 1")

#: Of the first alternative of a job: the number of resources, with which its message begins, and the walltime.
#: What a job requests is its largest alternative; those of older releases all have the size of the first one.
RESOURCES = "substring(j.message FROM '^R=([0-9]+)')"
_WALLTIME = """(
    SELECT m.moldable_walltime FROM moldable_job_descriptions m WHERE m.moldable_job_id = j.job_id
    ORDER BY m.moldable_id LIMIT 1)"""
SECONDS_OF_JOB = f"""(
    SELECT max(COALESCE(NULLIF(m.resources, 0)::bigint, {RESOURCES}::bigint) * m.moldable_walltime)
    FROM moldable_job_descriptions m WHERE m.moldable_job_id = j.job_id)"""
CURRENT_STATES = ", ".join(sorted(repr(str(state)) for state in CURRENT))
SECONDS = f"COALESCE(sum({SECONDS_OF_JOB}), 0)::bigint"
#: The job of an advance reservation itself does not count. Only jobs with a reservation are looked up as such.
_LIMITED = f"""
    FROM jobs j WHERE j.state IN ({", ".join(repr(str(state)) for state in LIMITED_WAITING)})
      AND (j.reservation = 'None' OR {NO_FRAME})"""
_WAITING = f"""{_LIMITED}
      AND (%(queue)s::text IS NULL OR j.queue_name = %(queue)s)
      AND (%(project)s::text IS NULL OR j.project = %(project)s)
      AND (%(type)s::text IS NULL OR EXISTS (
          SELECT 1 FROM job_types t WHERE t.job_id = j.job_id AND split_part(t.type, '=', 1) = %(type)s))
      AND j.job_id <> %(but)s"""
_NUMBER_OF_ALL = f"SELECT count(*), 0::bigint {_WAITING}"
_SUM_OF_ALL = f"SELECT count(*), {SECONDS} {_WAITING}"
#: Both find their rows by the index jobs_waiting_user.
_NUMBER_OF_USER = f"{_NUMBER_OF_ALL} AND j.job_user = %(user)s"
_SUM_OF_USER = f"{_SUM_OF_ALL} AND j.job_user = %(user)s"
#: Other projects, types and users are not distinguished: the groups stay few.
_WAITING_GROUPS = f"""
    SELECT j.queue_name, CASE WHEN j.project = ANY(%(projects)s::text[]) THEN j.project END,
        ARRAY(SELECT DISTINCT split_part(t.type, '=', 1) FROM job_types t
              WHERE cardinality(%(types)s::text[]) > 0 AND t.job_id = j.job_id
                AND split_part(t.type, '=', 1) = ANY(%(types)s::text[]) ORDER BY 1),
        CASE WHEN j.job_user = %(user)s THEN j.job_user END,
        count(*), COALESCE(sum(CASE WHEN %(has_seconds)s::boolean THEN {SECONDS_OF_JOB} END), 0)::bigint
    {_LIMITED} AND (%(of_all)s::boolean OR j.job_user = %(user)s) GROUP BY 1, 2, 3, 4"""
_TYPES = "ARRAY(SELECT t.type FROM job_types t WHERE t.job_id = j.job_id AND t.types_index = 'CURRENT')"
#: The jobs that hold resources. Time in suspension extends a walltime.
_HOLDING = f"""
    SELECT j.job_id, j.queue_name, j.project, j.job_user,
        j.start_time + m.moldable_walltime + COALESCE((
            SELECT sum(CASE l.date_stop WHEN 0 THEN GREATEST(%s, l.date_start) ELSE l.date_stop END - l.date_start)
            FROM job_state_logs l
            WHERE j.suspended = 'YES' AND l.job_id = j.job_id AND l.job_state IN ('Suspended', 'Resuming')), 0)::bigint,
        (SELECT count(*) FROM assigned_resources a JOIN resources r ON r.resource_id = a.resource_id
         WHERE a.moldable_job_id = j.assigned_moldable_job AND a.assigned_resource_index = 'CURRENT'
           AND r.type = 'default'),
        {_TYPES}
    FROM jobs j JOIN moldable_job_descriptions m ON m.moldable_id = j.assigned_moldable_job
    WHERE {LIVE} AND j.state IN ({CURRENT_STATES}) ORDER BY j.job_id"""
_ORDERED = f"""
    SELECT j.job_id, j.queue_name, j.project, j.submission_time, j.last_karma,
        COALESCE({RESOURCES}::int, 0), {_WALLTIME}, {_TYPES}
    FROM jobs j WHERE j.state = 'Waiting' AND j.job_user = %s AND j.reservation = 'None' ORDER BY j.job_id LIMIT %s"""
_PROJECTS_OF = f"SELECT DISTINCT j.project FROM jobs j WHERE {LIVE} AND j.job_user = %s ORDER BY 1 LIMIT %s"
_COUNTED = "SELECT count(*) FROM resources WHERE type = 'default' AND state = ANY(%s)"


class WaitingSum(NamedTuple):
    """Jobs that wait, and the resource seconds that they request."""

    jobs: int
    seconds: int


class WaitingGroup(NamedTuple):
    """Waiting jobs that the same rules count."""

    queue: str
    project: str | None  #: None: any that was not requested
    types: Sequence[str]  #: those of the requested names that each job has
    user: str | None  #: None: all others
    jobs: int
    seconds: int


class HoldingJob(NamedTuple):
    """A job that holds resources, as far as quotas count it."""

    id: int
    queue: str
    project: str
    user: str
    end: int  #: of its walltime
    resources: int
    types: Sequence[str]


class OrderedJob(NamedTuple):
    """A waiting job, with the values that decide about its place among others."""

    id: int
    queue: str
    project: str
    submission_time: int
    karma: float | None  #: in the last scheduling pass
    resources: int  #: of its first alternative
    walltime: int
    types: Sequence[str]


class Accounts(Table):
    """Waiting jobs and their limits."""

    def server_file(self, path: str) -> str | None:
        """Return the text of a policy file of the server; None if there is none, or no scheduling pass has read it."""
        text: str | None = self._tx.value(_FILE, (path,))
        return text

    def waiting(self, pattern: Pattern, *, but: int = 0, has_seconds: bool = False) -> WaitingSum:
        """Return the sum of the waiting jobs of a pattern; ``but``: a job that is not counted."""
        queue, project, type_, user = pattern
        number, total = (_NUMBER_OF_ALL, _SUM_OF_ALL) if user is None else (_NUMBER_OF_USER, _SUM_OF_USER)
        parameters = {"queue": queue, "project": project, "type": type_, "user": user, "but": but}
        row = self._tx.row(total if has_seconds else number, parameters)
        return WaitingSum(*row) if row else WaitingSum(0, 0)

    def waiting_groups(
        self, user: str, projects: Sequence[str], types: Sequence[str], *, of_all: bool, has_seconds: bool
    ) -> list[WaitingGroup]:
        """Return the waiting jobs of a user or of all users, in groups by queue, project, names of types, and user."""
        parameters = {"user": user, "projects": projects, "types": types, "of_all": of_all, "has_seconds": has_seconds}
        return [WaitingGroup(*row) for row in self._tx.rows(_WAITING_GROUPS, parameters)]

    def holding(self) -> list[HoldingJob]:
        """Return all jobs that hold resources, by id."""
        return [HoldingJob(*row) for row in self._tx.rows(_HOLDING, (self._tx.now,))]

    def ordered(self, user: str, limit: int) -> list[OrderedJob]:
        """Return the oldest waiting jobs of a user that are no reservations."""
        return [OrderedJob(*row) for row in self._tx.rows(_ORDERED, (user, limit))]

    def projects_of(self, user: str, limit: int) -> list[str]:
        """Return projects of a user's jobs that have not ended, by name."""
        return self._tx.column(_PROJECTS_OF, (user, limit))

    def counted_resources(self, states: Collection[ResourceState]) -> int:
        """Return the number of resources that quotas count, in some states."""
        number: int = self._tx.value(_COUNTED, ([*states],))
        return number
