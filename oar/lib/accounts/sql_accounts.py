"""Accounts (``tx.accounts``): waiting jobs of users, and the limits of the server's quota file."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from oar.lib.accounts.limit_rules import Pattern
from oar.lib.db.lock_keys import USER_LOCK_CLASS
from oar.lib.db.predicates import LIVE, NO_FRAME
from oar.lib.db.statements import Prepared, Table
from oar.lib.jobs.sql_accounting import ProjectUse
from oar.lib.jobs.states import CURRENT, LIMITED_WAITING
from oar.lib.nodes.states import ResourceState

#: The text of a file as the server read it last.
_FILE = Prepared("SELECT value FROM policy_log WHERE kind = 'file' AND name = %s ORDER BY log_id DESC LIMIT 1")

#: The same, and whether the budget of a project is in force.
_LIMITS = Prepared("""
    SELECT (SELECT value FROM policy_log WHERE kind = 'file' AND name = %s ORDER BY log_id DESC LIMIT 1),
        EXISTS (SELECT FROM project_budgets WHERE period_end > %s)""")

#: Of the first alternative of a job: the number of resources, with which its message begins, and the walltime.
#: What a job requests is its largest alternative; those of older releases all have the size of the first one.
_RESOURCES = "substring(j.message FROM '^R=([0-9]+)')"
_WALLTIME = """(
    SELECT m.moldable_walltime FROM moldable_job_descriptions m WHERE m.moldable_job_id = j.job_id
    ORDER BY m.moldable_id LIMIT 1)"""
_SECONDS_OF_JOB = f"""(
    SELECT max(COALESCE(NULLIF(m.resources, 0)::bigint, {_RESOURCES}::bigint) * m.moldable_walltime)
    FROM moldable_job_descriptions m WHERE m.moldable_job_id = j.job_id)"""
_CURRENT = ", ".join(sorted(repr(str(state)) for state in CURRENT))
_SECONDS = f"COALESCE(sum({_SECONDS_OF_JOB}), 0)::bigint"
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
_SUM_OF_ALL = f"SELECT count(*), {_SECONDS} {_WAITING}"
#: Both find their rows by the index jobs_waiting_user.
_NUMBER_OF_USER = f"{_NUMBER_OF_ALL} AND j.job_user = %(user)s"
_SUM_OF_USER = f"{_SUM_OF_ALL} AND j.job_user = %(user)s"
#: What jobs request that wait without a date, as far as accounting will count it to their project; besteffort jobs do
#: not count.
_REQUESTED = f"""
    SELECT j.project, {_SECONDS} FROM jobs j
    WHERE {LIVE} AND j.state IN ('Waiting', 'Hold') AND j.reservation = 'None'
      AND j.queue_name <> 'besteffort' AND j.project = ANY(%(projects)s::text[]) AND j.job_id <> %(but)s
      AND (%(by_users)s::boolean OR NOT EXISTS (
          SELECT FROM reservation_jobs i JOIN reservations r USING (reservation_id)
          WHERE i.job_id = j.job_id AND r.flex = 'NO'))
      AND (%(inner)s::boolean OR NOT EXISTS (
          SELECT FROM job_types t WHERE t.job_id = j.job_id AND t.type LIKE 'inner=%%'
            AND NOT EXISTS (SELECT FROM reservation_jobs i WHERE i.job_id = j.job_id)))
    GROUP BY 1"""
#: What live reservations will use from now on in periods, by jobs (``oarsub -r``) and advance reservations; those that
#: have started only if they are asked for.
_RESERVED = f"""
    WITH dated AS (
        SELECT j.project, GREATEST(j.start_time, %(now)s) AS begins,
            CASE WHEN j.state IN ({_CURRENT}) THEN j.start_time ELSE GREATEST(j.start_time, %(now)s) END
                + m.walltime AS ends, m.resources
        FROM jobs j CROSS JOIN LATERAL (
            SELECT w.moldable_walltime AS walltime,
                COALESCE(NULLIF(w.resources, 0)::bigint, {_RESOURCES}::bigint, 0) AS resources
            FROM moldable_job_descriptions w
            WHERE w.moldable_job_id = j.job_id
              AND (j.assigned_moldable_job = 0 OR w.moldable_id = j.assigned_moldable_job)
            ORDER BY resources * w.moldable_walltime DESC LIMIT 1) m
        WHERE {LIVE} AND j.reservation <> 'None' AND {NO_FRAME}
          AND (j.state IN ('Waiting', 'Hold', 'toAckReservation') OR %(started)s AND j.state IN ({_CURRENT}))
          AND j.queue_name <> 'besteffort' AND j.project = ANY(%(projects)s::text[])
        UNION ALL
        SELECT v.project, GREATEST(v.start_time, %(now)s), v.end_time, COALESCE(
            NULLIF(cardinality(v.resources), 0),
            (SELECT max(w.resources) FROM moldable_job_descriptions w WHERE w.moldable_job_id = v.frame_id), 0)
        FROM reservations v
        WHERE v.ended = 0 AND (v.state IN ('', 'w', 'W') OR %(started)s AND v.state IN ('r', 'E'))
          AND v.queue_name <> 'besteffort' AND v.project = ANY(%(projects)s::text[])
          AND v.reservation_id <> %(but)s)
    SELECT p.number - 1, d.project,
        sum(d.resources * (LEAST(d.ends, p.ends) - GREATEST(d.begins, p.begins)))::bigint
    FROM unnest(%(begins)s::bigint[], %(ends)s::bigint[]) WITH ORDINALITY p (begins, ends, number)
    JOIN dated d ON d.begins < p.ends AND d.ends > p.begins AND d.ends > d.begins GROUP BY 1, 2"""
#: Other projects, types and users are not distinguished: the groups stay few.
_WAITING_GROUPS = f"""
    SELECT j.queue_name, CASE WHEN j.project = ANY(%(projects)s::text[]) THEN j.project END,
        ARRAY(SELECT DISTINCT split_part(t.type, '=', 1) FROM job_types t
              WHERE cardinality(%(types)s::text[]) > 0 AND t.job_id = j.job_id
                AND split_part(t.type, '=', 1) = ANY(%(types)s::text[]) ORDER BY 1),
        CASE WHEN j.job_user = %(user)s THEN j.job_user END,
        count(*), COALESCE(sum(CASE WHEN %(has_seconds)s::boolean THEN {_SECONDS_OF_JOB} END), 0)::bigint
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
    WHERE {LIVE} AND j.state IN ({_CURRENT}) ORDER BY j.job_id"""
_ORDERED = f"""
    SELECT j.job_id, j.queue_name, j.project, j.submission_time, j.last_karma,
        COALESCE({_RESOURCES}::int, 0), {_WALLTIME}, {_TYPES}
    FROM jobs j WHERE j.state = 'Waiting' AND j.job_user = %s AND j.reservation = 'None' ORDER BY j.job_id LIMIT %s"""
_PROJECTS_OF = f"SELECT DISTINCT j.project FROM jobs j WHERE {LIVE} AND j.job_user = %s ORDER BY 1 LIMIT %s"
_COUNTED = "SELECT count(*) FROM resources WHERE type = 'default' AND state = ANY(%s)"


class SubmissionLimits(NamedTuple):
    """What can limit a submission."""

    quota_file: str | None  #: its text as the server read it last
    has_budgets: bool  #: whether a project has a budget now or later


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

    def submission_limits(self, path: str) -> SubmissionLimits:
        """Return the text of the quota file with this path, and whether there are budgets."""
        row = self._tx.row(_LIMITS, (path, self._tx.now))
        return SubmissionLimits(*row) if row else SubmissionLimits(None, has_budgets=False)

    def requested(
        self, projects: Collection[str], *, but: int = 0, by_users: bool = False, inner: bool = False
    ) -> dict[str, int]:
        """Return the resource seconds that jobs request that wait without a date, by project.

        ``but``: a job that does not count.  ``by_users``, ``inner``: jobs in advance reservations and in containers
        count themselves, as in accounting.
        """
        values = {"projects": list(projects), "but": but, "by_users": by_users, "inner": inner}
        return dict(self._tx.rows(_REQUESTED, values))

    def reserved(
        self, projects: Collection[str], periods: Sequence[tuple[int, int]], *, with_started: bool, but: int = 0
    ) -> list[ProjectUse]:
        """Return the resource seconds that live reservations will use in periods, from now on.

        ``with_started``: also what remains of those that have started.  ``but``: an advance reservation that does not
        count.
        """
        values = {
            "projects": list(projects),
            "begins": [begin for begin, _ in periods],
            "ends": [end for _, end in periods],
            "now": self._tx.now,
            "started": with_started,
            "but": but,
        }
        return [ProjectUse(*row) for row in self._tx.rows(_RESERVED, values)]

    def lock_user(self, user: str) -> None:
        """Block other submissions of a user until the end of the transaction; ``*``: those limited for all users."""
        self._tx.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (USER_LOCK_CLASS, user))

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
