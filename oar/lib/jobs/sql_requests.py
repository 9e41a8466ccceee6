"""Requests about jobs (``tx.job_requests``), and deadlines that have passed, for Sarko (``tx.deadlines``).

Kill requests are rows of ``frag_jobs``, walltime changes are rows of ``walltime_change``.
"""

import json
from collections.abc import Collection, Mapping
from typing import NamedTuple

from oar.lib.bus.messages import Topic
from oar.lib.db.predicates import LIVE, NO_FRAME
from oar.lib.db.statements import Prepared, Row, Table, flag
from oar.lib.jobs.ends import Cause
from oar.lib.jobs.records import KillRequest
from oar.lib.jobs.states import JobState, KillState

_FIND_WALLTIME_CHANGE = """
    SELECT pending, force = 'YES', delay_next_jobs = 'YES', whole = 'YES', timeout,
        granted, granted_with_force, granted_with_delay_next_jobs, granted_with_whole
    FROM walltime_change WHERE job_id = %s"""
_REQUEST_WALLTIME = """
    INSERT INTO walltime_change (job_id, pending, force, delay_next_jobs, whole, timeout)
    VALUES (%(job)s, %(pending)s, %(force)s, %(delay)s, %(whole)s, %(timeout)s)
    ON CONFLICT (job_id) DO UPDATE SET pending = %(pending)s, force = %(force)s, delay_next_jobs = %(delay)s,
        whole = %(whole)s, timeout = %(timeout)s"""
_ASK_ALL = """
    INSERT INTO walltime_change (job_id, pending, force, delay_next_jobs, whole, timeout)
    SELECT id, %s, 'NO', 'NO', 'NO', 0 FROM unnest(%s::bigint[]) AS id"""
_PENDING = """
    SELECT w.job_id, w.pending, w.force = 'YES', w.delay_next_jobs = 'YES', w.whole = 'YES', w.granted, w.timeout,
        COALESCE((SELECT max(e.date) FROM event_logs e WHERE e.job_id = w.job_id AND e.type = 'WALLTIME_REQUEST'), 0),
        j.assigned_moldable_job
    FROM walltime_change w JOIN jobs j ON j.job_id = w.job_id
    WHERE w.pending <> 0 AND j.state = 'Running' ORDER BY w.job_id FOR NO KEY UPDATE OF j, w"""
_CHANGE_WALLTIME = """
    UPDATE moldable_job_descriptions SET moldable_walltime = moldable_walltime + %s WHERE moldable_id = %s
    RETURNING moldable_walltime"""
#: Granted seconds are also counted for each option of the request; without pending seconds the options are reset.
_GRANT = """
    UPDATE walltime_change SET pending = %(left)s::bigint, granted = granted + %(seconds)s::bigint,
        granted_with_force = granted_with_force + CASE WHEN force = 'YES' THEN %(more)s::bigint ELSE 0 END,
        granted_with_delay_next_jobs =
            granted_with_delay_next_jobs + CASE WHEN delay_next_jobs = 'YES' THEN %(more)s::bigint ELSE 0 END,
        granted_with_whole = granted_with_whole + CASE WHEN whole = 'YES' THEN %(more)s::bigint ELSE 0 END,
        force = CASE WHEN %(left)s::bigint = 0 THEN 'NO' ELSE force END,
        delay_next_jobs = CASE WHEN %(left)s::bigint = 0 THEN 'NO' ELSE delay_next_jobs END,
        whole = CASE WHEN %(left)s::bigint = 0 THEN 'NO' ELSE whole END,
        timeout = CASE WHEN %(left)s::bigint = 0 THEN 0 ELSE timeout END
    WHERE job_id = %(job)s"""
_DROP = """
    UPDATE walltime_change SET pending = 0, force = 'NO', delay_next_jobs = 'NO', whole = 'NO', timeout = 0
    WHERE job_id = %s"""


class WalltimeChange(NamedTuple):
    """The requested and the granted walltime change of a job, in seconds; negative values are reductions."""

    pending: int = 0
    force: bool = False
    delay_next_jobs: bool = False
    whole: bool = False
    timeout: int = 0  #: seconds after which the pending change is dropped; 0 = never
    granted: int = 0
    granted_with_force: int = 0
    granted_with_delay_next_jobs: int = 0
    granted_with_whole: int = 0


class PendingWalltime(NamedTuple):
    """A pending walltime change of a running job; seconds as in ``WalltimeChange``."""

    job_id: int
    pending: int
    force: bool
    delay_next_jobs: bool
    whole: bool
    granted: int
    timeout: int
    asked: int  #: date of the request
    moldable: int  #: the alternative that runs


#: The first request of a job is the cause of its end.
_REQUEST_KILL = """
    INSERT INTO frag_jobs (frag_id_job, frag_date, frag_state, frag_cause, frag_data)
    SELECT id, %s, 'LEON', code, data FROM unnest(%s::bigint[], %s::text[], %s::text[]) asked (id, code, data)
    ORDER BY id ON CONFLICT DO NOTHING RETURNING frag_id_job"""
_FIND_KILL = Prepared("SELECT frag_id_job, frag_date, frag_state FROM frag_jobs WHERE frag_id_job = %s")
_FIND_KILLS = Prepared("SELECT frag_id_job, frag_date, frag_state FROM frag_jobs WHERE frag_id_job = ANY(%s)")
_ASKED = Prepared("SELECT frag_id_job FROM frag_jobs WHERE frag_id_job = ANY(%s)")
_IN_STATES = Prepared("""
    SELECT frag_id_job, frag_date, frag_state FROM frag_jobs
    WHERE frag_state <> 'FRAGGED' AND frag_state = ANY(%s) ORDER BY frag_id_job""")
_IS_LEON_LATE = Prepared("""
    SELECT 1 FROM frag_jobs
    WHERE frag_state <> 'FRAGGED' AND frag_state IN ('LEON', 'LEON_EXTERMINATE') AND frag_date < %s LIMIT 1""")
_MOVE = """
    UPDATE frag_jobs SET frag_state = %s WHERE frag_id_job = ANY(%s) AND frag_state = ANY(%s) RETURNING frag_id_job"""


def _request(row: Row) -> KillRequest:
    return KillRequest(row[0], row[1], KillState(row[2]))


class JobRequests(Table):
    """Rows of ``walltime_change`` (one per job with a requested walltime change) and of ``frag_jobs``."""

    def find_walltime_change(self, job_id: int) -> WalltimeChange:
        """Return the requested and the granted walltime change of a job; return zeros if there was no request."""
        row = self._tx.row(_FIND_WALLTIME_CHANGE, (job_id,))
        return WalltimeChange(*row) if row else WalltimeChange()

    def request_walltime(self, job_id: int, change: WalltimeChange) -> None:
        """Store a request, which replaces the pending one; the granted seconds stay."""
        values = {
            "job": job_id,
            "pending": change.pending,
            "force": flag(change.force),
            "delay": flag(change.delay_next_jobs),
            "whole": flag(change.whole),
            "timeout": change.timeout,
        }
        self._tx.execute(_REQUEST_WALLTIME, values)
        self._changed(Topic.JOBS)

    def request_walltimes(self, ids: Collection[int], pending: int) -> None:
        """Store for new jobs a request for ``pending`` more seconds, granted once the jobs run."""
        self._tx.execute(_ASK_ALL, (pending, list(ids)))
        self._changed(Topic.JOBS)

    def pending_walltimes(self) -> list[PendingWalltime]:
        """Return the pending changes of running jobs, by job id; jobs and changes are locked."""
        return [PendingWalltime(*row) for row in self._tx.rows(_PENDING)]

    def grant_walltime(self, change: PendingWalltime, seconds: int) -> int:
        """Grant a part of a change; return the new walltime. The rest of a reduction is dropped."""
        left = change.pending - seconds if change.pending > 0 else 0
        walltime: int = self._tx.value(_CHANGE_WALLTIME, (seconds, change.moldable))
        values = {"left": left, "seconds": seconds, "more": max(0, seconds), "job": change.job_id}
        self._tx.execute(_GRANT, values)
        self._changed(Topic.JOBS)
        return walltime

    def drop_walltime_change(self, job_id: int) -> None:
        self._tx.execute(_DROP, (job_id,))
        self._changed(Topic.JOBS)

    def request_kill(self, causes: Mapping[int, Cause]) -> list[int]:
        """Store kill requests with their causes; return the jobs that had no request before."""
        ids = sorted(causes)
        codes = [str(causes[job_id].code) for job_id in ids]
        data = [json.dumps(causes[job_id].data) for job_id in ids]
        self._changed(Topic.JOBS)
        return sorted(self._tx.column(_REQUEST_KILL, (self._tx.now, ids, codes, data)))

    def find_kill(self, job_id: int) -> KillRequest | None:
        """Return the kill request of a job; return None if there is none."""
        row = self._tx.row(_FIND_KILL, (job_id,))
        return _request(row) if row else None

    def find_kills(self, ids: Collection[int]) -> dict[int, KillRequest]:
        """Return the kill requests of jobs, by job id."""
        requests = map(_request, self._tx.rows(_FIND_KILLS, (list(ids),)))
        return {request.job_id: request for request in requests}

    def kills_in_states(self, states: Collection[KillState]) -> list[KillRequest]:
        """Return the kill requests in one of the states, by job id; FRAGGED requests are never returned."""
        return [_request(row) for row in self._tx.rows(_IN_STATES, ([str(state) for state in states],))]

    def jobs_to_kill(self, ids: Collection[int]) -> set[int]:
        return set(self._tx.column(_ASKED, (list(ids),)))

    def is_leon_late(self, before: int) -> bool:
        """Return whether a request older than a date still waits for Leon; the Runner then starts Leon again."""
        return self._tx.row(_IS_LEON_LATE, (before,)) is not None

    def move_kill(self, ids: Collection[int], to: KillState, sources: Collection[KillState]) -> list[int]:
        """Set the state ``to`` for requests in one of the states ``sources``; return the jobs of these requests."""
        self._changed(Topic.JOBS)
        return sorted(self._tx.column(_MOVE, (to, sorted(ids), [str(state) for state in sources])))


# -- deadlines --------------------------------------------------------------------------------------------------------

_KILL_TIMERS = Prepared("""
    SELECT f.frag_id_job, f.frag_date, j.state, COALESCE((
            SELECT max(e.date) FROM event_logs e WHERE e.job_id = f.frag_id_job AND e.type = 'SEND_KILL_JOB'), 0),
        EXISTS (SELECT 1 FROM job_types t WHERE t.job_id = f.frag_id_job AND t.type ~ '^container([=:]|$)')
    FROM frag_jobs f LEFT JOIN jobs j ON j.job_id = f.frag_id_job
    WHERE f.frag_state = 'TIMER_ARMED' AND f.frag_state <> 'FRAGGED' ORDER BY f.frag_id_job""")
#: Without jobs whose end is reported or requested. Suspended time does not count.
_WALLTIMES = Prepared(f"""
    SELECT j.job_id, j.start_time, m.moldable_walltime,
        CASE WHEN j.suspended = 'YES' THEN COALESCE((
            SELECT sum(CASE WHEN l.date_stop = 0 THEN %(now)s ELSE l.date_stop END - l.date_start)
            FROM job_state_logs l WHERE l.job_id = j.job_id AND l.job_state IN ('Suspended', 'Resuming')), 0)::bigint
        ELSE 0 END,
        CASE WHEN j.job_type = 'PASSIVE' THEN j.checkpoint ELSE 0 END, COALESCE(r.updated, 0)
    FROM jobs j JOIN moldable_job_descriptions m ON m.moldable_id = j.assigned_moldable_job
    LEFT JOIN job_runs r ON r.job_id = j.job_id
    WHERE {LIVE} AND j.state = 'Running' AND COALESCE(r.report_date, 0) = 0
      AND NOT EXISTS (SELECT 1 FROM frag_jobs f WHERE f.frag_id_job = j.job_id)
      AND {NO_FRAME}
    ORDER BY j.job_id""")
_CHECKPOINTS = Prepared("""
    SELECT e.job_id, max(e.date), EXISTS (
        SELECT 1 FROM event_logs f WHERE f.job_id = e.job_id AND f.type = 'CHECKPOINT_ERROR'
          AND f.event_id > max(e.event_id))
    FROM event_logs e JOIN jobs j ON j.job_id = e.job_id
    WHERE e.job_id = ANY(%s) AND e.type = 'CHECKPOINT' AND e.date >= j.start_time GROUP BY e.job_id""")
_EXPIRE_DESKTOPS = Prepared("""
    UPDATE resources SET next_state = 'Suspected', next_finaud_decision = 'YES'
    WHERE resource_id IN (
        SELECT resource_id FROM resources
        WHERE state = 'Alive' AND desktop_computing = 'YES' AND expiry_date > 0 AND expiry_date < %s
          AND next_state = 'UnChanged' ORDER BY resource_id FOR NO KEY UPDATE)
    RETURNING resource_id, network_address""")
_EXPIRE_SUSPECTED = Prepared("""
    UPDATE resources SET next_state = 'Dead', next_finaud_decision = 'YES'
    WHERE resource_id IN (
        SELECT r.resource_id FROM resources r JOIN resource_logs l USING (resource_id)
        WHERE r.state = 'Suspected' AND r.next_state = 'UnChanged'
          AND l.attribute = 'state' AND l.date_stop = 0 AND l.date_start < %s
        ORDER BY r.resource_id FOR NO KEY UPDATE OF r)
    RETURNING network_address""")


class KillTimer(NamedTuple):
    """A kill request that Leon is processing."""

    job_id: int
    asked: int  #: date of the request
    state: JobState | None  #: None: the job does not exist
    sent: int  #: date of the last kill that was sent, 0 if none was
    is_container: bool


class TimeLimit(NamedTuple):
    """A running job and its walltime."""

    job_id: int
    start: int
    walltime: int
    suspended: int  #: seconds that it spent suspended
    checkpoint: int  #: seconds before its end at which it is to be sent the checkpoint signal, 0 = never
    heard: int  #: date of the last report to the Runner

    @property
    def end(self) -> int:
        """The time at which the walltime of the job ends."""
        return self.start + self.walltime + self.suspended


class Deadlines(Table):
    """Expired kill requests, walltimes, reservations and resource states."""

    def kill_timers(self) -> list[KillTimer]:
        """Return the kill requests whose job has not ended yet, by job id."""
        return [
            KillTimer(row[0], row[1], JobState(row[2]) if row[2] else None, row[3], row[4])
            for row in self._tx.rows(_KILL_TIMERS)
        ]

    def reservation_starts(self) -> list[int]:
        """Return the start dates of the accepted reservations that have not begun, ascending."""
        return self._tx.column(
            "SELECT DISTINCT start_time FROM jobs WHERE state = 'Waiting' AND reservation = 'Scheduled'"
            " ORDER BY start_time"
        )

    def time_limits(self) -> list[TimeLimit]:
        """Return the running jobs without a reported end and without a kill request, by id."""
        return [TimeLimit(*row) for row in self._tx.rows(_WALLTIMES, {"now": self._tx.now})]

    def checkpoints(self, ids: Collection[int]) -> dict[int, tuple[int, bool]]:
        """Return for each job with a checkpoint signal the date of its last signal, and whether it failed."""
        return {row[0]: (row[1], row[2]) for row in self._tx.rows(_CHECKPOINTS, (list(ids),))} if ids else {}

    def expire_desktops(self) -> dict[int, str]:
        """Request the state Suspected for desktop computers that did not call in time.

        Return the resources with their nodes.
        """
        resources: dict[int, str] = dict(self._tx.rows(_EXPIRE_DESKTOPS, (self._tx.now,)))
        if resources:
            self._changed(Topic.RESOURCES)
        return resources

    def expire_suspected(self, seconds: int) -> set[str]:
        """Request the state Dead for resources that were Suspected for more than ``seconds``; return their nodes."""
        nodes = set(self._tx.column(_EXPIRE_SUSPECTED, (self._tx.now - seconds,)))
        if nodes:
            self._changed(Topic.RESOURCES)
        return nodes
