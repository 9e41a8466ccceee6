"""Logs, bills and reports of advance reservations (``tx.reservation_logs``).

Each statement handles all reservations at once; there is never one query for each reservation.

See docs/design/reservations.rst.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from oar.lib.bus.messages import Topic
from oar.lib.db.statements import Row, Table
from oar.lib.reservations.records import LogLine, ReservationLog, ReservationRevision, ReservationUsage
from oar.lib.reservations.states import ReservationState

_LOG = """
    INSERT INTO reservation_logs (reservation_id, date, event, state, hostname, message, author)
    VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING reservation_log_id"""

_LOG_ALL = """
    INSERT INTO reservation_logs (reservation_id, date, event, state, hostname, message, author) VALUES %s
    RETURNING reservation_log_id"""

_LAST_LINE = "SELECT COALESCE(max(reservation_log_id), 0) FROM reservation_logs"

_LINES = """
    SELECT l.reservation_log_id, v.frame_id, v.reservation_id, v.ar_id, l.event, l.state
    FROM reservations v JOIN reservation_logs l ON l.reservation_id = v.reservation_id
    WHERE l.reservation_log_id = ANY(%s) AND v.frame_id <> 0 ORDER BY l.reservation_log_id"""

#: The lines of requests that were not granted have a state of their own: whether a line is shown never changes.
_SHOWN_LINES = """
    SELECT reservation_log_id, reservation_id, date, event, state, hostname, message, author FROM reservation_logs
    WHERE reservation_log_id > %s AND reservation_log_id <= %s AND state <> '' AND state <> 'n'
    ORDER BY reservation_log_id LIMIT %s"""

_LOGS = """
    SELECT reservation_id, date, event, state, hostname, message, author FROM reservation_logs
    WHERE reservation_id = ANY(%s) ORDER BY reservation_id, reservation_log_id"""

_ADD_REVISION = """
    INSERT INTO reservation_revisions (reservation_id, revision, date, author, ar_name, account, start_time, end_time,
        granted_pe, granted_resources)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (reservation_id, revision) DO UPDATE SET date = EXCLUDED.date, author = EXCLUDED.author,
        ar_name = EXCLUDED.ar_name, account = EXCLUDED.account, start_time = EXCLUDED.start_time,
        end_time = EXCLUDED.end_time, granted_pe = EXCLUDED.granted_pe,
        granted_resources = EXCLUDED.granted_resources"""

_REVISIONS = """
    SELECT reservation_id, revision, date, author, ar_name, account, start_time, end_time, granted_pe,
        granted_resources
    FROM reservation_revisions WHERE reservation_id = %s ORDER BY revision"""


def _log_row(row: Row) -> ReservationLog:
    return ReservationLog(*row)._replace(state=ReservationState(row[3]))


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
_LOGS_FOR_REPORT = """
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
    """A job that ran and has ended, with the fields of Grid Engine accounting."""

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
        """Time that was neither used nor unusable."""
        return self.reserved - self.used - self.unusable


_ADD_USAGE = """
    INSERT INTO reservation_usage (reservation_id, queue_name, network_address, slots, reserved, used, unusable,
        termination_time)
    VALUES %s ON CONFLICT (reservation_id, queue_name, network_address) DO NOTHING"""

_USAGE = """
    SELECT reservation_id, queue_name, network_address, slots, reserved, used, unusable, termination_time
    FROM reservation_usage WHERE reservation_id = ANY(%s) ORDER BY reservation_id, queue_name, network_address"""


class ReservationLogs(Table):
    """Log lines, and revisions: the attributes of a reservation from one change to the next."""

    def log(self, row: ReservationLog) -> int:
        """Store an event; return the number of its line."""
        self._tx.topics.add(Topic.RESERVATIONS)
        line: int = self._tx.value(_LOG, row)
        return line

    def log_all(self, rows: Sequence[ReservationLog]) -> list[int]:
        """Store events of several reservations; return the numbers of their lines."""
        self._tx.topics.add(Topic.RESERVATIONS)
        return [row[0] for row in self._tx.insert_returning(_LOG_ALL, rows)]

    def last_line(self) -> int:
        """Return the number of the newest line of the log; 0 if it is empty."""
        line: int = self._tx.value(_LAST_LINE)
        return line

    def lines(self, ids: Collection[int]) -> list[LogLine]:
        """Return lines about granted reservations, in the order of writing."""
        return [LogLine(*row) for row in self._tx.rows(_LINES, (list(ids),))]

    def logs(self, ids: Collection[int]) -> list[ReservationLog]:
        """Return the events of reservations, for each reservation in order of time."""
        rows = self._tx.rows(_LOGS, (list(ids),)) if ids else []
        return [_log_row(row) for row in rows]

    def shown_lines(self, after: int, until: int, limit: int) -> list[tuple[int, ReservationLog]]:
        """Return at most ``limit`` lines about granted reservations, with their ids.

        The lines are after line ``after``, up to and including line ``until``.
        """
        return [(row[0], _log_row(row[1:])) for row in self._tx.rows(_SHOWN_LINES, (after, until, limit))]

    def add_revision(self, revision: ReservationRevision) -> None:
        """Store the attributes of a reservation from now on; overwrite an equal revision of another program."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute(_ADD_REVISION, revision)

    def revisions(self, reservation_id: int) -> list[ReservationRevision]:
        """Return all revisions of a reservation, in order."""
        return [ReservationRevision(*row) for row in self._tx.rows(_REVISIONS, (reservation_id,))]

    def new_for_report(self, since: int) -> Iterator[Row]:
        """Iterate over grants: the date and the fields of ``new_ar``."""
        return self._pages("new_reservations", _NEW, since)

    def attributes_for_report(self, since: int) -> Iterator[Row]:
        """Iterate over revisions: the date and the fields of ``ar_attribute``."""
        return self._pages("reservation_attributes", _ATTRIBUTES, since)

    def logs_for_report(self, since: int) -> Iterator[Row]:
        """Iterate over the history: the date and the fields of ``ar_log``."""
        return self._pages("reservation_history", _LOGS_FOR_REPORT, since)

    def bills_for_report(self, since: int) -> Iterator[Row]:
        """Iterate over bills: the date and the fields of ``ar_acct``."""
        return self._pages("reservation_bills", _BILLS, since)

    def ended_jobs(self, since: int) -> Iterator[tuple[int, EndedJob]]:
        """Iterate over ended jobs, each with its date."""
        return ((date, EndedJob(*fields)) for date, *fields in self._pages("ended_jobs", _JOBS, since))

    def reservation_totals(
        self, start: int, stop: int, *, ids: Collection[int] | None = None, owner: str | None = None
    ) -> list[ReservationTotal]:
        """Return the bills of the ended reservations that overlap ``[start, stop)``, by number.

        ``ids``: only these reservations; None means all.
        """
        values = {"start": start, "stop": stop, "ids": None if ids is None else sorted(ids), "owner": owner}
        return [ReservationTotal(*row) for row in self._tx.rows(_TOTALS, values)]

    def _pages(self, name: str, sql: str, since: int) -> Iterator[Row]:
        self._tx.execute(f"DECLARE {name} NO SCROLL CURSOR FOR {sql}", {"since": since})
        while rows := self._tx.rows(f"FETCH {PAGE} FROM {name}"):
            yield from rows
        self._tx.execute(f"CLOSE {name}")

    def add_bill(self, bills: Mapping[int, Sequence[ReservationUsage]]) -> None:
        """Store the bills of reservations; existing bills stay unchanged."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.insert_many(_ADD_USAGE, [(number, *row) for number, rows in bills.items() for row in rows])

    def select_bills(self, ids: Collection[int]) -> dict[int, list[ReservationUsage]]:
        """Return the bills of reservations by reservation id, each sorted by queue and node."""
        bills: dict[int, list[ReservationUsage]] = {number: [] for number in ids}
        for reservation_id, *row in self._tx.rows(_USAGE, (list(ids),)) if ids else ():
            bills[reservation_id].append(ReservationUsage(*row))
        return bills
