"""The jobs of advance reservations (``tx.reservation_jobs``).

Statements are about all reservations at once: never a query for each.  See docs/design/reservations.rst.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence

from oar.lib.bus.topics import Topic
from oar.lib.db.predicates import LIVE
from oar.lib.db.statements import About, Prepared, Table
from oar.lib.reservations.records import JobBound, LiveJobCounts
from oar.lib.reservations.states import GRANTED

_ADD_JOBS = """
    INSERT INTO reservation_jobs (job_id, reservation_id) SELECT id, %s FROM unnest(%s::bigint[]) AS id
    ON CONFLICT (job_id) DO UPDATE SET reservation_id = EXCLUDED.reservation_id"""
_JOBS = Prepared("SELECT job_id, reservation_id FROM reservation_jobs WHERE job_id = ANY(%s)")
#: The numbers of the reservations that jobs are in, or are the frames of.
_NUMBERS = """
    WITH asked AS (SELECT unnest(%s::bigint[]) AS job_id)
    SELECT job_id, ar_id FROM asked JOIN reservation_jobs USING (job_id) JOIN reservations USING (reservation_id)
    UNION ALL SELECT job_id, ar_id FROM asked JOIN reservations ON frame_id = job_id AND frame_id <> 0"""
_LIVE_JOBS = f"""
    SELECT i.reservation_id, j.job_id, j.state IN ('Waiting', 'Hold', 'toAckReservation', 'toError')
    FROM reservation_jobs i JOIN jobs j ON j.job_id = i.job_id
    WHERE i.reservation_id = ANY(%s) AND {LIVE}
    ORDER BY i.reservation_id, j.job_id"""
#: The jobs that wait belong to no reservation any more, and lose the type by which they did.
_RELEASE_WAITING = """
    WITH released AS (
        DELETE FROM reservation_jobs i USING jobs j
        WHERE i.reservation_id = %s AND j.job_id = i.job_id AND j.state IN ('Waiting', 'Hold', 'toAckReservation')
        RETURNING i.job_id),
    freed AS (DELETE FROM job_types t USING released r WHERE t.job_id = r.job_id AND t.type = %s)
    SELECT job_id FROM released ORDER BY job_id"""
#: What bounds the end of a job: the reservation that it is in, and those that are to begin on its resources.
_BOUNDS = """
    SELECT v.ar_id, i.job_id IS NOT NULL,
        CASE WHEN i.job_id IS NULL THEN v.start_time ELSE v.end_time - v.time_offset END
    FROM reservations v LEFT JOIN reservation_jobs i ON i.reservation_id = v.reservation_id AND i.job_id = %s
    WHERE v.ended = 0 AND v.state = ANY(%s)
      AND CASE WHEN i.job_id IS NULL THEN v.resources && %s::integer[] ELSE v.flex = 'NO' END
    ORDER BY v.ar_id"""
#: When the last job of a reservation ended.
_LAST_JOBS = """
    SELECT i.reservation_id, max(j.stop_time) FROM reservation_jobs i JOIN jobs j ON j.job_id = i.job_id
    WHERE i.reservation_id = ANY(%s) GROUP BY i.reservation_id"""


class ReservationJobs(Table):
    """The jobs that are in reservations, and what these mean for the ends of jobs."""

    #: A question that views of jobs ask with others.
    NUMBERS = About(_NUMBERS, dict)

    def add(self, reservation_id: int, job_ids: Sequence[int]) -> None:
        """Note that jobs belong to a reservation, and to no other."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute(_ADD_JOBS, (reservation_id, list(job_ids)))

    def remove(self, job_id: int) -> None:
        """Note that a job belongs to no reservation any more."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute("DELETE FROM reservation_jobs WHERE job_id = %s", (job_id,))

    def release_waiting(self, reservation_id: int, type_: str) -> list[int]:
        """Take the waiting jobs out of a reservation, with the type by which they are in it; return them by id."""
        self._tx.topics |= {Topic.RESERVATIONS, Topic.JOBS}
        return self._tx.column(_RELEASE_WAITING, (reservation_id, type_))

    def of_jobs(self, job_ids: Collection[int]) -> dict[int, int]:
        """Return the id of the reservation of each of some jobs that has one."""
        return dict(self._tx.rows(_JOBS, (list(job_ids),))) if job_ids else {}

    def bounds(self, job_id: int, resources: Collection[int]) -> list[JobBound]:
        """Return the reservations before whose start or end a job on some resources has to be over."""
        states = [str(state) for state in GRANTED]
        return [JobBound(*row) for row in self._tx.rows(_BOUNDS, (job_id, states, list(resources)))]

    def live_jobs(self, ids: Collection[int]) -> dict[int, LiveJobCounts]:
        """Return the live jobs of reservations, by id of the reservation."""
        running: defaultdict[int, list[int]] = defaultdict(list)
        waiting: defaultdict[int, list[int]] = defaultdict(list)
        for reservation_id, job_id, is_waiting in self._tx.rows(_LIVE_JOBS, (list(ids),)) if ids else ():
            (waiting if is_waiting else running)[reservation_id].append(job_id)
        return {number: LiveJobCounts(tuple(running[number]), tuple(waiting[number])) for number in ids}

    def last_job_dates(self, ids: Collection[int]) -> dict[int, int]:
        """Return when the last job of each reservation ended that had one."""
        return dict(self._tx.rows(_LAST_JOBS, (list(ids),))) if ids else {}
