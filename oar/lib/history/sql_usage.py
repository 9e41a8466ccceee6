"""Used and available resources over time (``tx.usage``)."""

from collections.abc import Collection
from typing import NamedTuple

from oar.lib.db.predicates import LIVE, NO_FRAME
from oar.lib.db.statements import BUCKETS, CUT, Table

#: Names of what consumption can be told by, and the columns of it.
GROUPS = {"user": "accounting_user", "project": "accounting_project", "queue": "queue_name"}

#: The columns of jobs by which it is told who has what.
_OWNERS = {"user": "j.job_user", "project": "COALESCE(j.project, '')"}

_NODES = """
    SELECT state, count(DISTINCT network_address) FROM resources WHERE network_address <> '' GROUP BY 1 ORDER BY 1"""
_ACTIONS = """
    SELECT r.phase, count(*) FROM jobs j JOIN job_runs r ON r.job_id = j.job_id
    WHERE j.state IN ('toLaunch', 'Launching', 'Finishing') GROUP BY 1 ORDER BY 1"""
#: What a user consumed in each of some pieces of time, of the same length.
_IN_PIECES = """
    SELECT (window_start - %(start)s) / %(step)s, queue_name, accounting_project, consumption_type,
        sum(consumption)::bigint
    FROM accounting
    WHERE accounting_user = %(user)s AND window_start >= %(start)s
      AND window_start < %(start)s + %(number)s * %(step)s AND queue_name = ANY(%(queues)s)
    GROUP BY 1, 2, 3, 4"""
_UNSEEN = "SELECT count(*) FROM event_logs WHERE to_check = 'YES'"


class UsedByGroup(NamedTuple):
    """The consumption of a user, a project or a queue in a period, in resource seconds."""

    begin: int
    group: str
    used: int
    asked: int


class WaitOfQueue(NamedTuple):
    queue: str
    waiting: int
    oldest: int  #: date of the submission of the oldest


class OwnedJobs(NamedTuple):
    """The current jobs of a user or a project in one state."""

    owner: str
    state: str  #: of the jobs
    jobs: int
    resources: int  #: that these jobs have, of type default


class NodeOutOfUse(NamedTuple):
    """Downtime of a node in a period."""

    node: str
    suspected: int  #: how often it became Suspected
    seconds: dict[str, int]  #: resource seconds by state


class Usage(Table):
    """Queries about consumption and waiting jobs."""

    def series(self, start: int, stop: int, *, group: str, bucket: str) -> list[UsedByGroup]:
        """Return the consumption in the windows between two dates, by time bucket and group."""
        assert bucket in BUCKETS
        cut = CUT.format(bucket=bucket, date="window_start")
        sql = f"""
            SELECT {cut}, {GROUPS[group]},
                COALESCE(sum(consumption) FILTER (WHERE consumption_type = 'USED'), 0)::bigint,
                COALESCE(sum(consumption) FILTER (WHERE consumption_type = 'ASKED'), 0)::bigint
            FROM accounting WHERE window_stop >= %s AND window_start < %s GROUP BY 1, 2 ORDER BY 1, 2"""
        return [UsedByGroup(*row) for row in self._tx.rows(sql, (start, stop))]

    def in_pieces(
        self, user: str, queues: Collection[str], start: int, step: int, number: int
    ) -> list[list[tuple[str, str, str, str, int]]]:
        """Return the consumption of a user in ``number`` consecutive periods of ``step`` seconds from ``start``.

        Return sums of accounting windows, as ``(queue, user, project, ASKED or USED, resource seconds)``.
        """
        values = {"user": user, "queues": list(queues), "start": start, "step": step, "number": number}
        pieces: list[list[tuple[str, str, str, str, int]]] = [[] for _ in range(number)]
        for piece, queue, project, kind, seconds in self._tx.rows(_IN_PIECES, values):
            pieces[piece].append((queue, user, project, kind, seconds))
        return pieces

    def unavailable(self, start: int, stop: int) -> dict[str, int]:
        """Return the lost resource seconds between two dates by state, for resources that still exist."""
        sql = """
            SELECT l.value, sum(LEAST(COALESCE(NULLIF(l.date_stop, 0), %(now)s), %(stop)s)
                - GREATEST(l.date_start, %(start)s))::bigint
            FROM resource_logs l JOIN resources r USING (resource_id)
            WHERE l.attribute = 'state' AND l.value IN ('Absent', 'Dead', 'Suspected') AND r.type = 'default'
              AND (l.date_stop = 0 OR l.date_stop > %(start)s) AND l.date_start < LEAST(%(stop)s, %(now)s)
            GROUP BY l.value ORDER BY l.value"""
        return dict(self._tx.rows(sql, {"start": start, "stop": stop, "now": self._tx.now}))

    def lost_nodes(self, start: int, stop: int, most: int) -> list[NodeOutOfUse]:
        """Return at most ``most`` nodes with downtime between two dates.

        Sort by number of suspicions, then by lost time.
        """
        sql = """
            WITH lost AS (
                SELECT r.network_address AS node, l.value AS state,
                    sum(LEAST(COALESCE(NULLIF(l.date_stop, 0), %(now)s), %(stop)s)
                        - GREATEST(l.date_start, %(start)s))::bigint AS seconds,
                    count(DISTINCT l.date_start)
                        FILTER (WHERE l.value = 'Suspected' AND l.date_start >= %(start)s) AS times
                FROM resource_logs l JOIN resources r USING (resource_id)
                WHERE l.attribute = 'state' AND l.value IN ('Absent', 'Dead', 'Suspected') AND r.network_address <> ''
                  AND (l.date_stop = 0 OR l.date_stop > %(start)s) AND l.date_start < LEAST(%(stop)s, %(now)s)
                GROUP BY 1, 2)
            SELECT node, sum(times)::bigint, json_object_agg(state, seconds ORDER BY state) FROM lost
            GROUP BY node ORDER BY 2 DESC, sum(seconds) DESC, node LIMIT %(most)s"""
        period = {"start": start, "stop": stop, "now": self._tx.now, "most": most}
        return [NodeOutOfUse(*row) for row in self._tx.rows(sql, period)]

    def halted(self, start: int, stop: int) -> int:
        """Return the total time in seconds for which nodes were halted to save energy between two dates.

        Nodes halted more than a year before ``start`` are not counted.
        """
        sql = """
            SELECT COALESCE(sum(LEAST(COALESCE(until, %(now)s), %(stop)s) - GREATEST(date, %(start)s)), 0)::bigint
            FROM (SELECT e.type, e.date, lead(e.date) OVER (PARTITION BY h.hostname ORDER BY e.event_id) AS until
                FROM event_logs e JOIN event_log_hostnames h USING (event_id)
                WHERE e.type IN ('HALT_NODE', 'WAKEUP_NODE') AND e.date > %(start)s - 31622400) AS orders
            WHERE type = 'HALT_NODE' AND date < LEAST(%(stop)s, %(now)s) AND COALESCE(until, %(now)s) > %(start)s"""
        seconds: int = self._tx.value(sql, {"start": start, "stop": stop, "now": self._tx.now})
        return seconds

    def waiting_by_share(self) -> list[tuple[str, str, int]]:
        """Return the number of waiting jobs by user and project."""
        sql = """
            SELECT job_user, project, count(*) FROM jobs WHERE state = 'Waiting' GROUP BY 1, 2 ORDER BY 1, 2"""
        return [(user, project, number) for user, project, number in self._tx.rows(sql)]

    def waits(self) -> list[WaitOfQueue]:
        """Return by queue the number of waiting jobs, and the oldest submission."""
        sql = """
            SELECT queue_name, count(*), min(submission_time) FROM jobs
            WHERE state = 'Waiting' GROUP BY 1 ORDER BY 1"""
        return [WaitOfQueue(*row) for row in self._tx.rows(sql)]

    def reasons(self) -> dict[tuple[str, str], int]:
        """Return the number of waiting jobs by queue and reason code."""
        sql = f"""
            SELECT j.queue_name, r.code, count(*) FROM job_reasons r JOIN jobs j USING (job_id)
            WHERE {LIVE} GROUP BY 1, 2 ORDER BY 1, 2"""
        return {(queue, code): number for queue, code, number in self._tx.rows(sql)}

    def shares(self, kind: str) -> list[OwnedJobs]:
        """Return the current jobs and resources of each user or project, by job state."""
        sql = f"""
            SELECT {_OWNERS[kind]}, j.state, count(*), COALESCE(sum(held.number), 0)::bigint
            FROM jobs j LEFT JOIN LATERAL (
                SELECT count(*) AS number FROM assigned_resources a JOIN resources r USING (resource_id)
                WHERE a.moldable_job_id = j.assigned_moldable_job AND a.assigned_resource_index = 'CURRENT'
                  AND r.type = 'default') held ON j.assigned_moldable_job <> 0
            WHERE {LIVE} AND {NO_FRAME} GROUP BY 1, 2 ORDER BY 1, 2"""
        return [OwnedJobs(*row) for row in self._tx.rows(sql)]

    def conditions(self) -> list[tuple[str, str, bool, bool, bool, int, int]]:
        """Return the number of resources and nodes by ``(type, state, is used, drains, sleeps)``."""
        sql = """
            SELECT r.type, r.state,
                EXISTS (SELECT 1 FROM assigned_resources a
                    WHERE a.resource_id = r.resource_id AND a.assigned_resource_index = 'CURRENT'),
                r.drain = 'YES', r.available_upto > %s AND r.available_upto <> 2147483647,
                count(*), count(DISTINCT NULLIF(r.network_address, ''))
            FROM resources r GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5"""
        return [tuple(row) for row in self._tx.rows(sql, (self._tx.now,))]

    def sessions(self) -> dict[str, int]:
        """Return the number of other database sessions of this login: idle, busy, or waiting for a lock."""
        sql = """
            SELECT CASE WHEN wait_event_type = 'Lock' THEN 'waiting' WHEN state = 'idle' THEN 'idle' ELSE 'busy' END,
                count(*)
            FROM pg_stat_activity
            WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid() GROUP BY 1"""
        return {"idle": 0, "busy": 0, "waiting": 0} | dict(self._tx.rows(sql))

    def nodes(self) -> list[tuple[str, int]]:
        """Return the number of nodes with a resource in each state."""
        return [(state, number) for state, number in self._tx.rows(_NODES)]

    def actions(self) -> list[tuple[str, int]]:
        """Return the number of jobs in each phase of their launch or end."""
        return [(phase, number) for phase, number in self._tx.rows(_ACTIONS)]

    def events_to_check(self) -> int:
        """Return the number of open events."""
        number: int = self._tx.value(_UNSEEN)
        return number

    def last_round(self) -> int:
        """Return the date of the last scheduling pass; return 0 if there was none."""
        date: int | None = self._tx.value("SELECT start_time FROM gantt_jobs_predictions WHERE moldable_job_id = 0")
        return date or 0
