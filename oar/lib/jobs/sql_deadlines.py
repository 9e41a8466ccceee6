"""Deadlines that have passed, for Sarko (``tx.deadlines``): each query covers all jobs or resources."""

from collections.abc import Collection
from dataclasses import dataclass

from oar.lib.bus.topics import Topic
from oar.lib.db.predicates import LIVE, NO_FRAME
from oar.lib.db.statements import Prepared, Table
from oar.lib.jobs.states import JobState

#: Kills that were sent, and whether the job has obeyed.
_KILL_TIMERS = Prepared("""
    SELECT f.frag_id_job, f.frag_date, j.state, COALESCE((
            SELECT max(e.date) FROM event_logs e WHERE e.job_id = f.frag_id_job AND e.type = 'SEND_KILL_JOB'), 0),
        EXISTS (SELECT 1 FROM job_types t WHERE t.job_id = f.frag_id_job AND t.type ~ '^container([=:]|$)')
    FROM frag_jobs f LEFT JOIN jobs j ON j.job_id = f.frag_id_job
    WHERE f.frag_state = 'TIMER_ARMED' AND f.frag_state <> 'FRAGGED' ORDER BY f.frag_id_job""")
#: Running jobs and when their time is over; the time that they were suspended does not count.  Those whose end is
#: known, or already asked for, are left to it.
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
#: When the checkpoint signal was last sent to jobs since they began, and whether that failed.
_CHECKPOINTS = Prepared("""
    SELECT e.job_id, max(e.date), EXISTS (
        SELECT 1 FROM event_logs f WHERE f.job_id = e.job_id AND f.type = 'CHECKPOINT_ERROR'
          AND f.event_id > max(e.event_id))
    FROM event_logs e JOIN jobs j ON j.job_id = e.job_id
    WHERE e.job_id = ANY(%s) AND e.type = 'CHECKPOINT' AND e.date >= j.start_time GROUP BY e.job_id""")
#: Desktop computers that did not call in time.
_EXPIRE_DESKTOPS = Prepared("""
    UPDATE resources SET next_state = 'Suspected', next_finaud_decision = 'YES'
    WHERE resource_id IN (
        SELECT resource_id FROM resources
        WHERE state = 'Alive' AND desktop_computing = 'YES' AND expiry_date > 0 AND expiry_date < %s
          AND next_state = 'UnChanged' ORDER BY resource_id FOR NO KEY UPDATE)
    RETURNING resource_id, network_address""")
#: Suspected for too long.
_EXPIRE_SUSPECTED = Prepared("""
    UPDATE resources SET next_state = 'Dead', next_finaud_decision = 'YES'
    WHERE resource_id IN (
        SELECT r.resource_id FROM resources r JOIN resource_logs l USING (resource_id)
        WHERE r.state = 'Suspected' AND r.next_state = 'UnChanged'
          AND l.attribute = 'state' AND l.date_stop = 0 AND l.date_start < %s
        ORDER BY r.resource_id FOR NO KEY UPDATE OF r)
    RETURNING network_address""")


@dataclass(frozen=True, slots=True)
class KillTimer:
    """A kill request that Leon is processing."""

    job_id: int
    asked: int  #: date of the request
    state: JobState | None  #: None: the job does not exist
    sent: int  #: date of the last kill that was sent, 0 if none was
    is_container: bool


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """A running job and its walltime."""

    job_id: int
    start: int
    walltime: int
    suspended: int  #: seconds that it spent suspended
    checkpoint: int  #: seconds before its end at which it is to be sent the checkpoint signal, 0 = never
    heard: int  #: date at which the Runner last heard of it

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
