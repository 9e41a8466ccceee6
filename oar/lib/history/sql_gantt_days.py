"""Data for the Gantt diagram (``tx.gantt_days``): jobs on resources, and the amount of used resources."""

from collections.abc import Sequence
from typing import NamedTuple

from oar.lib.db.predicates import LIVE, NO_FRAME
from oar.lib.db.statements import Table
from oar.lib.jobs.sql_listings import OUTCOME

#: Columns of a job that is drawn: from its submission to its type, its walltime, its resources.
_JOB = """j.submission_time, j.job_user, j.project, j.queue_name, COALESCE(j.job_name, ''),
        COALESCE((SELECT string_agg(t.type, ' ' ORDER BY t.type) FROM job_types t WHERE t.job_id = j.job_id), ''),
        j.state, j.job_type"""
_WALLTIME = """COALESCE((SELECT m.moldable_walltime FROM moldable_job_descriptions m
            WHERE m.moldable_id = j.assigned_moldable_job), 0)"""
_RESOURCES = """ARRAY(SELECT a.resource_id FROM assigned_resources a
            WHERE a.moldable_job_id = j.assigned_moldable_job ORDER BY a.resource_id)"""

#: Jobs that ran and ended between two dates.
_ENDED = f"""
    SELECT j.job_id, j.start_time, j.stop_time, {_WALLTIME}, {_JOB}, {_RESOURCES},
        (SELECT round(100 * sum(u.cpu_seconds) / NULLIF(sum(u.cores) * (j.stop_time - j.start_time), 0))::integer
            FROM job_usage u WHERE u.job_id = j.job_id AND u.cpu_seconds IS NOT NULL), {OUTCOME}
    FROM jobs j
    WHERE j.stop_time >= %(start)s AND j.stop_time < %(stop)s AND j.state IN ('Terminated', 'Error')
      AND j.start_time > 0 AND j.assigned_moldable_job <> 0 AND {NO_FRAME}
    ORDER BY j.job_id"""

#: The first of them that ended at a date or later.
_FIRST_ENDED = _ENDED.replace("j.stop_time < %(stop)s", "j.start_time < %(stop)s").replace(
    "ORDER BY j.job_id", "ORDER BY j.stop_time, j.job_id LIMIT %(most)s"
)

#: The same of jobs that are on resources now.
_RUNNING = f"""
    SELECT j.job_id, j.start_time, 0, {_WALLTIME}, {_JOB}, {_RESOURCES}
    FROM jobs j
    WHERE {LIVE} AND j.start_time > 0 AND j.assigned_moldable_job <> 0
      AND {NO_FRAME}
    ORDER BY j.job_id"""

#: The same of jobs whose start is planned.
_PLANNED = f"""
    SELECT j.job_id, p.start_time, 0, m.moldable_walltime, {_JOB}, s.resources
    FROM gantt_jobs_predictions_visu p
    JOIN gantt_jobs_sets_visu s ON s.moldable_job_id = p.moldable_job_id
    JOIN moldable_job_descriptions m ON m.moldable_id = p.moldable_job_id
    JOIN jobs j ON j.job_id = m.moldable_job_id
    WHERE {LIVE} AND j.assigned_moldable_job = 0 AND {NO_FRAME}
    ORDER BY j.job_id"""

#: The first of either that are there between two dates.
_FIRST_RUNNING = _RUNNING.replace(
    "ORDER BY j.job_id",
    """AND j.start_time < %(stop)s AND NOT EXISTS (
        SELECT 1 FROM moldable_job_descriptions m WHERE m.moldable_id = j.assigned_moldable_job
          AND m.moldable_walltime > 0 AND j.start_time + m.moldable_walltime <= %(start)s)
    ORDER BY j.start_time, j.job_id LIMIT %(most)s""",
)

_FIRST_PLANNED = _PLANNED.replace(
    "ORDER BY j.job_id",
    """AND p.start_time < %(stop)s AND (m.moldable_walltime = 0 OR p.start_time + m.moldable_walltime > %(start)s)
    ORDER BY p.start_time, j.job_id LIMIT %(most)s""",
)

#: What is drawn of some resources only: the jobs that have or had them between two dates, or are to have them.
_HELD_ON = """AND EXISTS (SELECT 1 FROM assigned_resources a
        WHERE a.moldable_job_id = j.assigned_moldable_job AND a.resource_id = ANY(%(resources)s))
    ORDER BY j.start_time DESC, j.job_id DESC LIMIT %(most)s"""

_ENDED_ON = _ENDED.replace("j.stop_time < %(stop)s", "j.start_time < %(stop)s").replace("ORDER BY j.job_id", _HELD_ON)

_RUNNING_ON = _RUNNING.replace("ORDER BY j.job_id", f"AND j.start_time < %(stop)s {_HELD_ON}")

_PLANNED_ON = _PLANNED.replace(
    "ORDER BY j.job_id",
    """AND p.start_time < %(stop)s AND s.resources && %(resources)s::integer[]
    ORDER BY p.start_time, j.job_id LIMIT %(most)s""",
)

_STATES_ON = """
    SELECT value, date_start, date_stop, array_agg(resource_id ORDER BY resource_id) FROM resource_logs
    WHERE resource_id = ANY(%(resources)s) AND attribute = 'state' AND value IN ('Absent', 'Dead', 'Suspected')
      AND date_start < %(stop)s AND (date_stop = 0 OR date_stop > %(start)s)
    GROUP BY value, date_start, date_stop ORDER BY date_start, value, date_stop"""

_CLOSED = """
    SELECT value, date_start, date_stop, array_agg(resource_id ORDER BY resource_id) FROM resource_logs
    WHERE attribute = 'state' AND date_stop >= %(start)s AND date_stop < %(stop)s
      AND value IN ('Absent', 'Dead', 'Suspected')
    GROUP BY value, date_start, date_stop ORDER BY date_start, value, date_stop"""

_OPEN = """
    SELECT value, date_start, 0, array_agg(resource_id ORDER BY resource_id) FROM resource_logs
    WHERE attribute = 'state' AND date_stop = 0 AND value IN ('Absent', 'Dead', 'Suspected')
    GROUP BY value, date_start ORDER BY date_start, value"""

_PAUSES = """
    SELECT job_id, date_start, date_stop FROM job_state_logs
    WHERE job_id = ANY(%s) AND job_state = 'Suspended' ORDER BY job_id, date_start"""

#: Resources of the usual type that are known.
_USUAL = "SELECT count(*) FROM resources WHERE type = 'default'"

#: Each resource of the usual type that jobs used, use or will use, as a span.
_USUAL_OF = (
    "JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job JOIN resources r USING (resource_id)"
)
_ENDED_SPANS = f"""
    SELECT j.start_time AS start, j.stop_time AS stop, false AS is_planned
    FROM jobs j {_USUAL_OF}
    WHERE ({{gaps}}) AND j.start_time < %(stop)s AND j.state IN ('Terminated', 'Error') AND r.type = 'default'
      AND j.start_time > 0 AND j.assigned_moldable_job <> 0 AND {NO_FRAME}"""
_LIVE_SPANS = f"""
    SELECT j.start_time, CASE WHEN m.moldable_walltime > 0 THEN j.start_time + m.moldable_walltime ELSE %(stop)s END,
        false
    FROM jobs j JOIN moldable_job_descriptions m ON m.moldable_id = j.assigned_moldable_job {_USUAL_OF}
    WHERE {LIVE} AND j.start_time > 0 AND j.start_time < %(stop)s AND r.type = 'default'
      AND j.assigned_moldable_job <> 0 AND {NO_FRAME}
    UNION ALL
    SELECT p.start_time, p.start_time + m.moldable_walltime, true
    FROM gantt_jobs_predictions_visu p
    JOIN gantt_jobs_sets_visu s ON s.moldable_job_id = p.moldable_job_id
    JOIN moldable_job_descriptions m ON m.moldable_id = p.moldable_job_id
    JOIN jobs j ON j.job_id = m.moldable_job_id
    JOIN resources r ON r.resource_id = ANY(s.resources)
    WHERE {LIVE} AND j.assigned_moldable_job = 0 AND p.start_time < %(stop)s AND r.type = 'default' AND {NO_FRAME}"""
#: In which parts of a period the number of resources changes, by how much, and for how many seconds of that part.
_STEPS = f"""
    WITH held AS ({_ENDED_SPANS} UNION ALL {_LIVE_SPANS}),
    span AS (
        SELECT 'used' AS kind, start, LEAST(stop, %(now)s) AS stop FROM held WHERE NOT is_planned
        UNION ALL SELECT 'planned', GREATEST(start, %(now)s), stop FROM held
        UNION ALL SELECT 'unusable', date_start, COALESCE(NULLIF(date_stop, 0), %(now)s) FROM resource_logs
        WHERE attribute = 'state' AND value IN ('Absent', 'Dead', 'Suspected')
          AND (date_stop = 0 OR date_stop > %(start)s AND date_stop <= %(now)s)),
    edge AS (
        SELECT kind, edge.date - %(start)s AS date, edge.change FROM span, LATERAL (
            VALUES (GREATEST(start, %(start)s), 1), (LEAST(stop, %(stop)s), -1)) AS edge (date, change)
        WHERE LEAST(stop, %(stop)s) > GREATEST(start, %(start)s))
    SELECT kind, date / %(bucket)s, sum(change), sum(change * (%(bucket)s - date %% %(bucket)s))::bigint FROM edge
    GROUP BY 1, 2"""

#: Stored use of jobs by the days on which they ended.
_KEPT_DAYS = "SELECT DISTINCT stop_day FROM occupancy_hours WHERE stop_day >= %s ORDER BY stop_day"
_KEPT_USE = """
    SELECT (hour * 3600::bigint - %(start)s) / %(bucket)s, sum(resource_seconds)::bigint FROM occupancy_hours
    WHERE stop_day >= %(start)s / 86400 AND hour >= %(start)s / 3600 AND hour < %(stop)s / 3600 GROUP BY 1"""
#: The newest day without stored use among the given number of days, not before the first end of a job.
_MISSING_DAY = """
    SELECT day FROM generate_series(%(newest)s::integer, GREATEST(%(newest)s - %(days)s, (
        SELECT min(stop_time) / 86400 FROM jobs WHERE stop_time > 0))::integer, -1) AS day
    WHERE NOT EXISTS (SELECT FROM occupancy_hours o WHERE o.stop_day = day) LIMIT 1"""
_LOCK_USE = "LOCK TABLE occupancy_hours IN SHARE ROW EXCLUSIVE MODE"
_KEEP_USE = f"""
    WITH span AS (
        SELECT GREATEST(j.start_time, (%(day)s::bigint - %(days)s) * 86400) AS start, j.stop_time AS stop,
            count(*) AS number
        FROM jobs j {_USUAL_OF}
        WHERE j.stop_time >= %(day)s * 86400 AND j.stop_time < (%(day)s + 1) * 86400
          AND j.state IN ('Terminated', 'Error') AND j.start_time > 0 AND j.assigned_moldable_job <> 0
          AND r.type = 'default' AND {NO_FRAME}
        GROUP BY j.job_id),
    piece AS (
        SELECT hour, number * (LEAST(stop, (hour + 1) * 3600) - GREATEST(start, hour * 3600)) AS seconds
        FROM span, generate_series(start / 3600, (stop - 1) / 3600) AS hour
        UNION ALL SELECT %(day)s * 24, 0)
    INSERT INTO occupancy_hours (stop_day, hour, resource_seconds)
    SELECT %(day)s, hour, sum(seconds) FROM piece GROUP BY hour"""

#: How often something ended on each day, a sum by which another set of jobs is noticed, and when the first of it began.
_VERSIONS = f"""
    WITH ended AS (
        SELECT j.stop_time / 86400 AS day, count(*) AS jobs, sum(hashint8(j.job_id))::bigint AS sum,
            min(j.start_time) AS first FROM jobs j
        WHERE j.stop_time >= %(start)s AND j.stop_time < %(stop)s AND j.state IN ('Terminated', 'Error')
          AND j.start_time > 0 AND j.assigned_moldable_job <> 0 AND {NO_FRAME} GROUP BY 1),
    closed AS (
        SELECT l.date_stop / 86400 AS day, count(*) AS intervals, min(l.date_start) AS first FROM resource_logs l
        WHERE l.attribute = 'state' AND l.date_stop >= %(start)s AND l.date_stop < %(stop)s
          AND l.value IN ('Absent', 'Dead', 'Suspected') GROUP BY 1)
    SELECT day, COALESCE(jobs, 0), COALESCE(sum, 0), COALESCE(intervals, 0), LEAST(ended.first, closed.first)
    FROM ended FULL JOIN closed USING (day) ORDER BY day"""


class DrawnJob(NamedTuple):
    """A job on resources, as drawn. Dates are in seconds since the epoch, 0 = not yet."""

    id: int
    start: int
    stop: int
    walltime: int
    submitted: int
    user: str
    project: str
    queue: str
    name: str
    types: str  #: with blanks between them
    state: str
    kind: str
    resources: list[int]
    efficiency: int | None = None  #: of one that has ended: percents of its cores' time; None if nobody knows
    outcome: str | None = None  #: of one that has ended

    @property
    def latest_end(self) -> int | None:
        """The end of the walltime; None without a walltime."""
        return self.start + self.walltime if self.walltime else None


class DrawnState(NamedTuple):
    """A period in which resources could not be used."""

    state: str
    start: int
    stop: int
    resources: list[int]


class Curve(NamedTuple):
    """A period in parts of equal length.  Dates are in seconds since the epoch."""

    start: int
    bucket: int  #: seconds of a part
    number: int  #: of parts

    @property
    def stop(self) -> int:
        """Return the end of the last part."""
        return self.start + self.bucket * self.number


class Step(NamedTuple):
    """A change of the number of resources within a part of a period."""

    kind: str  #: used, planned or unusable
    part: int
    change: int  #: number of resources
    seconds: int  #: change * seconds until the end of the part


class DayVersion(NamedTuple):
    """A summary of the content of a day, to detect changes."""

    day: int  #: days since 1970, UTC
    jobs: int
    sum: int
    states: int
    first: int  #: when the first of what ended on it had begun


#: What is summed: how long so many resources of a group were in one state, cut to pieces of time.
_PIECES = """
    SELECT {kind}, span.place, piece.number, sum(span.number * (
        LEAST(span.stop, piece.start + %(bucket)s::bigint) - GREATEST(span.start, piece.start)))
    FROM span, LATERAL (
        SELECT number, %(start)s::bigint + number * %(bucket)s::bigint AS start FROM generate_series(
            (GREATEST(span.start, %(start)s::bigint) - %(start)s::bigint) / %(bucket)s::bigint,
            (LEAST(span.stop, %(stop)s::bigint) - 1 - %(start)s::bigint) / %(bucket)s::bigint) AS number) piece
    GROUP BY 1, 2, 3"""

_GROUPS = "grouped AS (SELECT id, place FROM unnest(%(ids)s::integer[], %(places)s::integer[]) AS g (id, place))"

#: The last seconds of jobs that ended in a period, of each group that they had resources of.
_USED = f"""
    WITH {_GROUPS},
    ended AS (
        SELECT j.job_id, j.assigned_moldable_job AS moldable, j.start_time, j.stop_time,
            EXISTS (SELECT 1 FROM job_types t WHERE t.job_id = j.job_id AND t.type = 'besteffort') AS is_besteffort
        FROM jobs j
        WHERE j.stop_time > %(start)s::bigint AND j.stop_time < %(stop)s::bigint AND j.state IN ('Terminated', 'Error')
          AND j.start_time > 0 AND j.assigned_moldable_job <> 0 AND {NO_FRAME}),
    span AS (
        SELECT e.is_besteffort, g.place, e.start_time AS start, e.stop_time AS stop, count(*) AS number
        FROM ended e JOIN assigned_resources a ON a.moldable_job_id = e.moldable JOIN grouped g ON g.id = a.resource_id
        GROUP BY e.job_id, 1, 2, 3, 4)
    {_PIECES.format(kind="span.is_besteffort")}"""

_UNUSABLE = f"""
    WITH {_GROUPS},
    span AS (
        SELECT g.place, l.date_start AS start, l.date_stop AS stop, count(*) AS number
        FROM resource_logs l JOIN grouped g ON g.id = l.resource_id
        WHERE l.attribute = 'state' AND l.value IN ('Absent', 'Dead', 'Suspected')
          AND l.date_stop > %(start)s::bigint AND l.date_stop < %(stop)s::bigint
        GROUP BY 1, 2, 3)
    {_PIECES.format(kind="false")}"""


class Pieces(NamedTuple):
    """A period divided into pieces, and groups of resources."""

    start: int
    stop: int
    bucket: int  #: seconds of a piece
    groups: Sequence[Sequence[int]]  #: ids of resources


class Amount(NamedTuple):
    """Resource seconds of a group in a piece of the period."""

    is_besteffort: bool
    group: int  #: its place among the groups
    piece: int  #: its place among the pieces
    seconds: int


def _asked(pieces: Pieces) -> dict[str, object]:
    members = [(number, place) for place, ids in enumerate(pieces.groups) for number in ids]
    return {
        "start": pieces.start,
        "stop": pieces.stop,
        "bucket": pieces.bucket,
        "ids": [number for number, _ in members],
        "places": [place for _, place in members],
    }


class GanttDays(Table):
    """Queries for drawing jobs on resources over time."""

    def ended(self, start: int, stop: int) -> list[DrawnJob]:
        """Return the jobs that ran and ended between two dates, by id."""
        return [DrawnJob(*row) for row in self._tx.rows(_ENDED, {"start": start, "stop": stop})]

    def first_ended(self, start: int, stop: int, most: int) -> list[DrawnJob]:
        """Return at most ``most`` jobs that began before ``stop`` and ended at ``start`` or later, sorted by end."""
        return [DrawnJob(*row) for row in self._tx.rows(_FIRST_ENDED, {"start": start, "stop": stop, "most": most})]

    def running(self) -> list[DrawnJob]:
        """Return the jobs that hold resources now, by id."""
        return [DrawnJob(*row) for row in self._tx.rows(_RUNNING)]

    def planned(self) -> list[DrawnJob]:
        """Return the jobs with a planned start, by id."""
        return [DrawnJob(*row) for row in self._tx.rows(_PLANNED)]

    def first_live(self, start: int, stop: int, most: int) -> list[DrawnJob]:
        """Return at most ``most`` jobs that use resources between two dates, or are planned to, sorted by start."""
        period = {"start": start, "stop": stop, "most": most}
        running = self._tx.rows(_FIRST_RUNNING, period)
        planned = self._tx.rows(_FIRST_PLANNED, {**period, "most": most - len(running)})
        return [DrawnJob(*row) for row in (*running, *planned)]

    def on(self, resources: Sequence[int], start: int, stop: int, most: int) -> list[DrawnJob]:
        """Return jobs that used, use or will use any of the resources between two dates, with all their resources.

        Return at most ``most`` ended, running and planned jobs each: the latest starts, and for planned jobs the
        earliest.
        """
        parameters = {"resources": list(resources), "start": start, "stop": stop, "most": most}
        return [
            DrawnJob(*row) for sql in (_ENDED_ON, _RUNNING_ON, _PLANNED_ON) for row in self._tx.rows(sql, parameters)
        ]

    def states_on(self, resources: Sequence[int], start: int, stop: int) -> list[DrawnState]:
        """Return the periods between two dates in which the given resources could not be used."""
        parameters = {"resources": list(resources), "start": start, "stop": stop}
        return [DrawnState(*row) for row in self._tx.rows(_STATES_ON, parameters)]

    def closed_states(self, start: int, stop: int) -> list[DrawnState]:
        """Return the periods of unusable resources that ended between two dates."""
        return [DrawnState(*row) for row in self._tx.rows(_CLOSED, {"start": start, "stop": stop})]

    def open_states(self) -> list[DrawnState]:
        """Return the periods of unusable resources that have not ended."""
        return [DrawnState(*row) for row in self._tx.rows(_OPEN)]

    def pauses(self, jobs: list[int]) -> list[tuple[int, int, int]]:
        """Return the suspensions of jobs as ``(job, start, stop)``; stop = 0: not ended."""
        return [(row[0], row[1], row[2]) for row in self._tx.rows(_PAUSES, (jobs,))]

    def steps(self, curve: Curve, gaps: Sequence[tuple[int, int]]) -> list[Step]:
        """Return the changes of the numbers of used, planned and unusable resources.

        Running jobs count until the end of their walltime. ``gaps``: jobs that ended outside of these periods are left
        out.
        """
        period = {"start": curve.start, "stop": curve.stop, "bucket": curve.bucket, "now": self._tx.now}
        # dates in the text: from them PostgreSQL estimates the number of jobs
        ends = " OR ".join(f"j.stop_time >= {low:d} AND j.stop_time < {high:d}" for low, high in gaps)
        return [Step(*row) for row in self._tx.rows(_STEPS.format(gaps=ends), period)]

    def kept_days(self, first: int) -> list[int]:
        """Return the days with stored use, ascending, from a day on (in days since 1970)."""
        return self._tx.column(_KEPT_DAYS, (first,))

    def kept_use(self, curve: Curve) -> dict[int, int]:
        """Return the stored use in resource seconds by part.  Start and parts must be multiples of an hour."""
        return dict(self._tx.rows(_KEPT_USE, {"start": curve.start, "stop": curve.stop, "bucket": curve.bucket}))

    def missing_day(self, newest: int, days: int) -> int | None:
        """Return the latest of the ``days`` days up to ``newest`` whose use is not stored; None if there is none."""
        day: int | None = self._tx.value(_MISSING_DAY, {"newest": newest, "days": days})
        return day

    def keep_day(self, day: int, days: int) -> None:
        """Store by hours the use of the jobs that ended on a day, at most that of the ``days`` days before.

        The lock makes ends of jobs wait that would delete the stored use of this day.
        """
        self._tx.execute(_LOCK_USE)
        self._tx.execute(_KEEP_USE, {"day": day, "days": days})

    def resources(self) -> int:
        """Return the number of default resources."""
        return int(self._tx.rows(_USUAL)[0][0])

    def database_number(self) -> int:
        """Return a number that identifies the database, also among databases with the same name."""
        number: int = self._tx.value("SELECT oid FROM pg_database WHERE datname = current_database()")
        return number

    def versions(self, start: int, stop: int) -> list[DayVersion]:
        """Return the versions of the days between two dates, without empty days."""
        return [DayVersion(*row) for row in self._tx.rows(_VERSIONS, {"start": start, "stop": stop})]

    def used_density(self, pieces: Pieces) -> list[Amount]:
        """Return the resource usage in a period by the jobs that ended in it."""
        return [Amount(*row) for row in self._tx.rows(_USED, _asked(pieces))]

    def unusable_density(self, pieces: Pieces) -> list[Amount]:
        """Return the unusable time in a period, for states that ended in it."""
        return [Amount(*row) for row in self._tx.rows(_UNUSABLE, _asked(pieces))]
