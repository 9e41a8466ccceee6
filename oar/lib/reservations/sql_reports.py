"""Reports on advance reservations and their jobs (``tx.reservation_reports``): what accounting programs read."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from oar.lib.db.statements import Row, Table

#: Rows that are fetched at once.
PAGE = 2000

_NEW = """
    SELECT l.date, r.submission_time, r.ar_id, r.owner
    FROM reservation_logs l JOIN reservations r USING (reservation_id)
    WHERE l.event = 'CREATED' AND l.date >= %(since)s ORDER BY l.date, l.reservation_log_id"""
_ATTRIBUTES = """
    SELECT v.date, v.date, r.submission_time, r.ar_id, v.ar_name, v.account, v.start_time, v.end_time, v.granted_pe,
        v.granted_resources
    FROM reservation_revisions v JOIN reservations r USING (reservation_id)
    WHERE v.date >= %(since)s ORDER BY v.date, v.revision_id"""
#: Of those that were granted: an occurrence of a series that was skipped, and what was refused or withdrawn, are not.
_LOGS = """
    SELECT l.date, l.date, r.submission_time, r.ar_id, l.state, l.event, l.message
    FROM reservation_logs l JOIN reservations r USING (reservation_id)
    WHERE r.state NOT IN ('', 'n') AND l.date >= %(since)s ORDER BY l.date, l.reservation_log_id"""
_BILLS = """
    SELECT u.termination_time, u.termination_time, r.submission_time, r.ar_id, u.queue_name, u.network_address, u.slots
    FROM reservation_usage u JOIN reservations r USING (reservation_id)
    WHERE u.termination_time >= %(since)s ORDER BY u.termination_time, u.reservation_usage_id"""
#: Jobs that ran and have ended, but for frames.
_JOBS = """
    SELECT j.stop_time, j.queue_name, usage.hostname, j.job_group, j.job_user, j.job_name, j.job_id, j.submission_time,
        j.start_time, j.stop_time, j.exit_code, j.project, held.slots,
        CASE WHEN j.array_id = j.job_id AND j.array_index = 1 THEN 0 ELSE j.array_index END,
        COALESCE(usage.cpu, 0), COALESCE(usage.memory, 0), COALESCE(usage.io, 0), COALESCE(r.ar_id, 0),
        COALESCE(r.submission_time, 0)
    FROM jobs j
    LEFT JOIN reservation_jobs inside ON inside.job_id = j.job_id
    LEFT JOIN reservations r ON r.reservation_id = inside.reservation_id
    CROSS JOIN LATERAL (
        SELECT count(*) AS slots FROM assigned_resources a WHERE a.moldable_job_id = j.assigned_moldable_job) held
    LEFT JOIN LATERAL (
        SELECT min(u.network_address) AS hostname, sum(u.cpu_seconds) AS cpu, sum(u.memory_peak)::bigint AS memory,
            sum(COALESCE(u.read_bytes, 0) + COALESCE(u.write_bytes, 0))::bigint AS io
        FROM job_usage u WHERE u.job_id = j.job_id) usage ON true
    WHERE j.state IN ('Terminated', 'Error') AND j.start_time > 0 AND j.assigned_moldable_job <> 0
      AND j.stop_time >= %(since)s
      AND NOT EXISTS (SELECT 1 FROM reservations f WHERE f.frame_id = j.job_id AND f.frame_id <> 0)
    ORDER BY j.stop_time, j.job_id"""
_TOTALS = """
    SELECT r.reservation_id, r.ar_id, r.owner, r.account,
        (SELECT count(*) FROM reservation_jobs i JOIN jobs j USING (job_id)
         WHERE i.reservation_id = r.reservation_id AND j.assigned_moldable_job <> 0),
        sum(u.reserved)::bigint, sum(u.used)::bigint, sum(u.unusable)::bigint
    FROM reservations r JOIN reservation_usage u USING (reservation_id)
    WHERE r.end_time > %(start)s AND r.start_time < %(stop)s
      AND (%(ids)s::bigint[] IS NULL OR r.reservation_id = ANY(%(ids)s))
      AND (%(owner)s::text IS NULL OR r.owner = %(owner)s)
    GROUP BY r.reservation_id ORDER BY r.ar_id, r.reservation_id"""


class EndedJob(NamedTuple):
    """A job that ran and has ended, as accounting programs of Grid Engine want to know it."""

    queue: str
    hostname: str | None
    group: str
    owner: str
    name: str | None
    id: int
    submission_time: int
    start: int
    stop: int
    exit_code: int | None
    project: str
    slots: int
    task: int  #: its place in its array; 0 = it is in none
    cpu_seconds: float
    memory_peak: int  #: bytes
    io_bytes: int
    number: int  #: of its reservation; 0 = none
    reservation_submission: int


class ReservationTotal(NamedTuple):
    """The bill of an advance reservation that has ended, in slot seconds."""

    reservation_id: int
    number: int
    owner: str
    account: str
    jobs: int  #: that ran in it
    reserved: int
    used: int
    unusable: int

    @property
    def unused(self) -> int:
        """What stood idle."""
        return self.reserved - self.used - self.unusable


class ReservationReports(Table):
    """What happened since a date, each kind in order of time, and sums.

    Rows come page by page: there may be millions.
    """

    def new(self, since: int) -> Iterator[Row]:
        """Iterate over grants: date, and the fields of ``new_ar``."""
        return self._pages("new_reservations", _NEW, since)

    def attributes(self, since: int) -> Iterator[Row]:
        """Iterate over revisions: date, and the fields of ``ar_attribute``."""
        return self._pages("reservation_attributes", _ATTRIBUTES, since)

    def logs(self, since: int) -> Iterator[Row]:
        """Iterate over the history: date, and the fields of ``ar_log``."""
        return self._pages("reservation_history", _LOGS, since)

    def bills(self, since: int) -> Iterator[Row]:
        """Iterate over bills: date, and the fields of ``ar_acct``."""
        return self._pages("reservation_bills", _BILLS, since)

    def jobs(self, since: int) -> Iterator[tuple[int, EndedJob]]:
        """Iterate over jobs that have ended, each with the date."""
        return ((date, EndedJob(*fields)) for date, *fields in self._pages("ended_jobs", _JOBS, since))

    def totals(
        self, start: int, stop: int, *, ids: Collection[int] | None = None, owner: str | None = None
    ) -> list[ReservationTotal]:
        """Return the bills of the reservations that have ended and overlap ``[start, stop)``, by number.

        ``ids``: of these reservations only; None = of all.
        """
        values = {"start": start, "stop": stop, "ids": None if ids is None else sorted(ids), "owner": owner}
        return [ReservationTotal(*row) for row in self._tx.rows(_TOTALS, values)]

    def _pages(self, name: str, sql: str, since: int) -> Iterator[Row]:
        self._tx.execute(f"DECLARE {name} NO SCROLL CURSOR FOR {sql}", {"since": since})
        while rows := self._tx.rows(f"FETCH {PAGE} FROM {name}"):
            yield from rows
        self._tx.execute(f"CLOSE {name}")
