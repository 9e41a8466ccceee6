"""Advance reservations (``tx.advance_reservations``): their rows, access lists, jobs, history and bills.

Statements are about all reservations at once: never a query for each.  See docs/design/reservations.rst.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from oar.lib.db.sql.predicates import LIVE
from oar.lib.db.sql.statements import About, Prepared, Row, Table, psycopg2
from oar.lib.facts.advance_reservations import (
    AccessEntry,
    AdvanceReservation,
    JobBound,
    LiveJobCounts,
    LogLine,
    NewReservation,
    ReservationChange,
    ReservationLog,
    ReservationRevision,
    ReservationUsage,
    ResourceInterval,
)
from oar.lib.facts.errors import BrokenRow
from oar.lib.facts.reservation_states import COUNTED, GRANTED, ChangeAnswer, IntervalKind, ReservationState
from oar.lib.facts.topics import Topic

#: The columns of ``AdvanceReservation``, in its order.
_COLUMNS = (
    "reservation_id, ar_id, ar_name, account, owner, owner_group, project, queue_name, submission_time, start_time,"
    " end_time, start_window, time_offset, state, state_date, ended, error_handling = 'YES', replace_lost = 'YES',"
    " flex = 'YES', interactive = 'YES', ignore_jobs = 'YES', idle_limit, request, alternative, resource_list,"
    " queue_list, master_queue_list, host_list, properties, checkpoint_name, pe, pe_range, granted_pe, granted_slots,"
    " mail_options, mail_list, resources, missing, frame_id, series_id, series_index, revision, message, proposal,"
    " deleted_by"
)
_SELECT = f"SELECT {_COLUMNS} FROM reservations"
_LIVE = f"{_SELECT} WHERE ended = 0 ORDER BY reservation_id"
_PLANNED = Prepared(_LIVE.replace(" request,", " CASE WHEN state = '' THEN request ELSE '[]' END,"))
_REQUESTS = "SELECT reservation_id, request FROM reservations WHERE reservation_id = ANY(%s)"
#: All that were ever granted, without their requests.
_EVER_GRANTED = f"{_SELECT} WHERE state <> '' AND state <> 'n' ORDER BY reservation_id".replace(" request,", " '[]',")
_BY_IDS = f"{_SELECT} WHERE reservation_id = ANY(%s) ORDER BY reservation_id"
_OF_FRAMES = "SELECT frame_id, reservation_id, ar_id FROM reservations WHERE frame_id = ANY(%s) AND frame_id <> 0"
#: For each number the live reservation that has it, else the newest one.
_BY_NUMBERS = f"""
    SELECT DISTINCT ON (ar_id) {_COLUMNS} FROM reservations WHERE ar_id = ANY(%s)
    ORDER BY ar_id, (ended = 0) DESC, reservation_id DESC"""
_LIVE_BY_NAME = f"{_SELECT} WHERE ended = 0 AND ar_name = %s ORDER BY ar_id"
#: All that were granted with a number or a name, ended ones too: numbers come again after 9999999.
_IDS_OF_NUMBER = "SELECT reservation_id FROM reservations WHERE ar_id = %s AND state <> '' AND state <> 'n'"
_IDS_OF_NAME = """
    SELECT reservation_id FROM reservations WHERE ar_name = %s AND ar_name <> '' AND state <> '' AND state <> 'n'"""
_LIVE_OF_SERIES = "SELECT reservation_id FROM reservations WHERE series_id = %s AND series_id <> 0 AND ended = 0"
_OF_SERIES = f"{_SELECT} WHERE series_id = ANY(%s) AND series_id <> 0 ORDER BY series_id, series_index"
_LOCK = f"{_SELECT} WHERE reservation_id = ANY(%s) ORDER BY reservation_id FOR NO KEY UPDATE"
_LOCK_FREE = f"{_LOCK} SKIP LOCKED"
_SHARE = f"{_SELECT} WHERE reservation_id = %s FOR SHARE"

_INSERT = """
    INSERT INTO reservations (ar_name, account, owner, owner_group, project, queue_name, submission_time, start_time,
        end_time, start_window, time_offset, state_date, error_handling, replace_lost, flex, interactive, ignore_jobs,
        idle_limit, request, resource_list, queue_list, master_queue_list, host_list, properties, checkpoint_name, pe,
        pe_range, mail_options, mail_list, series_id, series_index)
    VALUES (%(name)s, %(account)s, %(owner)s, %(owner_group)s, %(project)s, %(queue)s, %(now)s, %(start)s, %(end)s,
        %(start_window)s, %(time_offset)s, %(now)s, %(is_hard)s, %(replaces_lost)s, %(is_flexible)s,
        %(is_interactive)s, %(ignores_jobs)s, %(idle_limit)s, %(request)s, %(resource_list)s, %(queue_list)s,
        %(master_queue_list)s, %(host_list)s, %(properties)s, %(checkpoint_name)s, %(pe)s, %(pe_range)s,
        %(mail_options)s, %(mail_list)s, %(series_id)s, %(series_index)s)
    RETURNING reservation_id, ar_id"""
_MOVE = """
    UPDATE reservations SET state = %s, state_date = %s WHERE reservation_id = %s AND ended = 0 AND state = ANY(%s)"""
_CLOSE = "UPDATE reservations SET ended = %s WHERE reservation_id = ANY(%s) AND ended = 0 RETURNING reservation_id"
_COUNTS = """
    SELECT state, count(*), sum(cardinality(missing)) FROM reservations
    WHERE ended = 0 AND state <> '' GROUP BY state ORDER BY state"""
_COUNT = "SELECT count(*) FROM reservations WHERE ended = 0 AND state = ANY(%s)"

_ADD_ACCESS = """
    INSERT INTO reservation_acl (reservation_id, entry_order, entry, denied)
    SELECT %s, place, entry, CASE WHEN denied THEN 'YES' ELSE 'NO' END
    FROM unnest(%s::text[], %s::boolean[]) WITH ORDINALITY AS list (entry, denied, place)"""
_ACCESS = """
    SELECT reservation_id, entry, denied = 'YES' FROM reservation_acl
    WHERE reservation_id = ANY(%s) ORDER BY reservation_id, entry_order"""

_THAT_LIST = """
    SELECT DISTINCT r.ar_id FROM reservations r JOIN reservation_acl a ON a.reservation_id = r.reservation_id
    WHERE r.ended = 0 AND a.entry = %s AND a.denied = ANY(%s) ORDER BY r.ar_id"""

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

_LOG = """
    INSERT INTO reservation_logs (reservation_id, date, event, state, hostname, message, author)
    VALUES (%s, %s, %s, %s, %s, %s, %s)"""
_LOG_ALL = """
    INSERT INTO reservation_logs (reservation_id, date, event, state, hostname, message, author) VALUES %s"""
_LAST_LINE = "SELECT COALESCE(max(reservation_log_id), 0) FROM reservation_logs"
_NEW_LINES = """
    SELECT l.reservation_log_id, v.frame_id, v.reservation_id, v.ar_id, l.event, l.state
    FROM reservations v JOIN reservation_logs l ON l.reservation_id = v.reservation_id
    WHERE v.frame_id = ANY(%s) AND v.frame_id <> 0 AND l.reservation_log_id > %s ORDER BY l.reservation_log_id"""
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

#: When the last job of a reservation ended.
_LAST_JOBS = """
    SELECT i.reservation_id, max(j.stop_time) FROM reservation_jobs i JOIN jobs j ON j.job_id = i.job_id
    WHERE i.reservation_id = ANY(%s) GROUP BY i.reservation_id"""
_BEGIN_INTERVALS = """
    INSERT INTO reservation_intervals (reservation_id, resource_id, kind, date_start)
    SELECT %s, unnest(%s::integer[]), %s, %s"""
_END_INTERVALS = """
    UPDATE reservation_intervals SET date_stop = %s
    WHERE reservation_id = %s AND resource_id = ANY(%s) AND kind = %s AND date_stop = 0"""
_INTERVALS = """
    SELECT reservation_id, kind, resource_id, date_start, date_stop FROM reservation_intervals
    WHERE reservation_id = ANY(%s) ORDER BY resource_id, date_start"""
_MISSING_SINCE = """
    SELECT reservation_id, resource_id, date_start FROM reservation_intervals
    WHERE reservation_id = ANY(%s) AND kind = 'missing' AND date_stop = 0"""
#: When the jobs of reservations had which resources.
_JOB_INTERVALS = """
    SELECT i.reservation_id, a.resource_id, j.start_time, j.stop_time
    FROM reservation_jobs i JOIN jobs j ON j.job_id = i.job_id
    JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job
    WHERE i.reservation_id = ANY(%s) AND j.start_time > 0 ORDER BY a.resource_id, j.start_time"""
_PLACES = """
    SELECT resource_id, COALESCE(NULLIF(network_address, ''), type) FROM resources WHERE resource_id = ANY(%s)"""

_ADD_USAGE = """
    INSERT INTO reservation_usage (reservation_id, queue_name, network_address, slots, reserved, used, unusable,
        termination_time)
    VALUES %s ON CONFLICT (reservation_id, queue_name, network_address) DO NOTHING"""
_USAGE = """
    SELECT reservation_id, queue_name, network_address, slots, reserved, used, unusable, termination_time
    FROM reservation_usage WHERE reservation_id = ANY(%s) ORDER BY reservation_id, queue_name, network_address"""

_CHANGE_COLUMNS = "change_id, reservation_id, date, author, change, answer, message, proposal, expires"
_ASK_CHANGE = """
    INSERT INTO reservation_changes (reservation_id, date, author, change, expires) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (reservation_id) WHERE answer = '' DO NOTHING RETURNING change_id"""
_OPEN_CHANGES = f"SELECT {_CHANGE_COLUMNS} FROM reservation_changes WHERE answer = '' ORDER BY change_id"
_CHANGE = f"SELECT {_CHANGE_COLUMNS} FROM reservation_changes WHERE change_id = %s"
_ANSWER_CHANGE = """
    UPDATE reservation_changes SET answer = %s, message = %s, proposal = %s WHERE change_id = %s AND answer = ''"""
_DROP_CHANGE = """
    UPDATE reservation_changes SET answer = 'dropped', message = %s
    WHERE reservation_id = ANY(%s) AND answer = ''"""

#: How often an insertion is tried whose number belongs to a live reservation.
MAX_NUMBERS_SKIPPED = 1000


class AdvanceReservations(Table):
    """Rows of ``reservations`` and of the tables beside it."""

    #: A question that views of jobs ask with others.
    NUMBERS = About(_NUMBERS, dict)

    # -- rows --------------------------------------------------------------------------------------------------------

    def insert(self, new: NewReservation) -> tuple[int, int]:
        """Insert a request in the state ASKED; return its id and its number.

        A number that belongs to a live reservation is skipped.  Raises RuntimeError if a thousand in a row do, and
        BrokenRow, which leaves the transaction as it was, if a value is none that its column holds.
        """
        values = {name: _flag(value) if isinstance(value, bool) else value for name, value in new._asdict().items()}
        for _ in range(MAX_NUMBERS_SKIPPED):
            self._tx.execute("SAVEPOINT number")
            try:
                row = self._tx.row(_INSERT, {**values, "now": self._tx.now})
            except psycopg2.errors.UniqueViolation:
                self._tx.execute("ROLLBACK TO SAVEPOINT number")
                continue
            except (psycopg2.DataError, ValueError) as error:
                self._tx.execute("ROLLBACK TO SAVEPOINT number; RELEASE SAVEPOINT number")
                raise BrokenRow(f"an advance reservation cannot be stored: {str(error).splitlines()[0]}") from None
            self._tx.execute("RELEASE SAVEPOINT number")
            self._tx.topics.add(Topic.RESERVATIONS)
            assert row is not None
            return row[0], row[1]
        raise RuntimeError(f"{MAX_NUMBERS_SKIPPED} numbers of advance reservations in a row are in use")

    def live(self) -> list[AdvanceReservation]:
        """Return all that have not left the system, asked ones too, by id."""
        return [_reservation(row) for row in self._tx.rows(_LIVE)]

    def planned(self) -> list[AdvanceReservation]:
        """Return what ``live`` returns, but for the requests of those that have been granted, which may be long."""
        return [_reservation(row) for row in self._tx.rows(_PLANNED)]

    def requests(self, ids: Collection[int]) -> dict[int, str]:
        """Return the requests of some reservations, by id."""
        return dict(self._tx.rows(_REQUESTS, (list(ids),))) if ids else {}

    def ever_granted(self) -> list[AdvanceReservation]:
        """Return all that were granted, ended ones too, by id; without their requests, which may be long."""
        return [_reservation(row) for row in self._tx.rows(_EVER_GRANTED)]

    def select(self, ids: Collection[int]) -> list[AdvanceReservation]:
        """Return some reservations, by id."""
        return [_reservation(row) for row in self._tx.rows(_BY_IDS, (list(ids),))] if ids else []

    def by_numbers(self, numbers: Collection[int]) -> dict[int, AdvanceReservation]:
        """Return for each number the live reservation that has it, else the newest that ended; without unknown ones."""
        rows = self._tx.rows(_BY_NUMBERS, (list(numbers),)) if numbers else []
        return {row[1]: _reservation(row) for row in rows}

    def live_by_name(self, name: str) -> list[AdvanceReservation]:
        """Return the live reservations of a name, by number."""
        return [_reservation(row) for row in self._tx.rows(_LIVE_BY_NAME, (name,))]

    def ids_of(self, word: int | str) -> frozenset[int]:
        """Return the ids of the reservations, ended ones too, that were granted with a number or a name."""
        return frozenset(self._tx.column(_IDS_OF_NUMBER if isinstance(word, int) else _IDS_OF_NAME, (word,)))

    def live_of_series(self, series_id: int) -> list[int]:
        """Return the ids of the live occurrences of a series, ascending; those without an answer too."""
        return sorted(self._tx.column(_LIVE_OF_SERIES, (series_id,)))

    def of_series(self, ids: Collection[int]) -> list[AdvanceReservation]:
        """Return all occurrences of series, by series and number; ended and refused ones too."""
        return [_reservation(row) for row in self._tx.rows(_OF_SERIES, (list(ids),))] if ids else []

    def lock(self, ids: Collection[int]) -> list[AdvanceReservation]:
        """Return reservations whose rows nobody else changes until the end of the transaction, by id."""
        return [_reservation(row) for row in self._tx.rows(_LOCK, (list(ids),))] if ids else []

    def lock_free(self, ids: Collection[int], patience: int) -> list[AdvanceReservation]:
        """Lock reservations as ``lock`` does, without those that others still hold after ``patience`` milliseconds.

        Nor those of which somebody else waits for one while he holds another (a deadlock).
        """
        if not ids:
            return []
        self._tx.execute(f"SAVEPOINT free; SET LOCAL lock_timeout TO {patience}")
        try:
            locked = self.lock(ids)
        except (psycopg2.errors.LockNotAvailable, psycopg2.errors.DeadlockDetected):
            self._tx.execute("ROLLBACK TO SAVEPOINT free")
            locked = [_reservation(row) for row in self._tx.rows(_LOCK_FREE, (list(ids),))]
        self._tx.execute("SET LOCAL lock_timeout TO 0; RELEASE SAVEPOINT free")
        return locked

    def share(self, reservation_id: int) -> AdvanceReservation | None:
        """Return a reservation that is not changed until the end of the transaction, for a job that enters it."""
        row = self._tx.row(_SHARE, (reservation_id,))
        return _reservation(row) if row else None

    def of_frames(self, job_ids: Collection[int]) -> dict[int, tuple[int, int]]:
        """Return for those of some jobs that are frames the id and the number of their reservation."""
        rows = self._tx.rows(_OF_FRAMES, (list(job_ids),)) if job_ids else []
        return {frame: (reservation_id, number) for frame, reservation_id, number in rows}

    def counts(self) -> list[tuple[str, int, int]]:
        """Return the live granted reservations by state: their number, and that of their missing resources."""
        return [(state, number, missing) for state, number, missing in self._tx.rows(_COUNTS)]

    def count(self) -> int:
        """Return how many reservations count in MAX_ADVANCE_RESERVATIONS."""
        number: int = self._tx.value(_COUNT, ([str(state) for state in COUNTED],))
        return number

    def move(self, reservation_id: int, to: ReservationState, sources: Collection[ReservationState]) -> bool:
        """Give a live reservation the state ``to`` if it is in one of ``sources``; for ``lifecycle.move``."""
        moved = self._tx.execute(_MOVE, (str(to), self._tx.now, reservation_id, [str(state) for state in sources]))
        self._tx.topics.add(Topic.RESERVATIONS)
        return moved == 1

    def update(self, reservation_id: int, **columns: object) -> None:
        """Change columns of a reservation, never its state; values as the table has them."""
        names = ", ".join(f"{name} = %s" for name in columns)
        self._tx.execute(
            f"UPDATE reservations SET {names} WHERE reservation_id = %s", (*columns.values(), reservation_id)
        )
        self._tx.topics.add(Topic.RESERVATIONS)

    def close(self, ids: Collection[int], date: int) -> list[int]:
        """Note that reservations have left the system; return those that had not."""
        self._tx.topics.add(Topic.RESERVATIONS)
        return sorted(self._tx.column(_CLOSE, (date, list(ids)))) if ids else []

    # -- who may use them, and their jobs ----------------------------------------------------------------------------

    def set_access(self, reservation_id: int, entries: Sequence[AccessEntry]) -> None:
        """Replace the access list of a reservation."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute("DELETE FROM reservation_acl WHERE reservation_id = %s", (reservation_id,))
        texts, denied = [entry.text for entry in entries], [entry.denied for entry in entries]
        self._tx.execute(_ADD_ACCESS, (reservation_id, texts, denied))

    def access(self, ids: Collection[int]) -> dict[int, tuple[AccessEntry, ...]]:
        """Return the access lists of reservations, by id."""
        entries: defaultdict[int, list[AccessEntry]] = defaultdict(list)
        for reservation_id, text, denied in self._tx.rows(_ACCESS, (list(ids),)) if ids else ():
            entries[reservation_id].append(AccessEntry(text, denied))
        return {reservation_id: tuple(entries[reservation_id]) for reservation_id in ids}

    def numbers_that_list(self, entry: str, *, allow: bool = False, deny: bool = False) -> list[int]:
        """Return the numbers of the live reservations whose access lists allow or deny an entry, as is asked."""
        return self._tx.column(_THAT_LIST, (entry, ["NO"] * allow + ["YES"] * deny))

    def add_jobs(self, reservation_id: int, job_ids: Sequence[int]) -> None:
        """Note that jobs belong to a reservation, and to no other."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute(_ADD_JOBS, (reservation_id, list(job_ids)))

    def remove_job(self, job_id: int) -> None:
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

    def numbers_of(self, job_ids: Collection[int]) -> dict[int, int]:
        """Return for those of some jobs that are in a reservation, or are its frame, the number of the reservation."""
        return dict(self._tx.rows(_NUMBERS, (list(job_ids),))) if job_ids else {}

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

    # -- history -----------------------------------------------------------------------------------------------------

    def log(self, row: ReservationLog) -> None:
        """Write what happened."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute(_LOG, row)

    def log_all(self, rows: Sequence[ReservationLog]) -> None:
        """Write what happened to several reservations."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.insert_many(_LOG_ALL, rows)

    def last_line(self) -> int:
        """Return the number of the newest line of the log; 0 if it is empty."""
        line: int = self._tx.value(_LAST_LINE)
        return line

    def new_lines(self, frames: Collection[int], after: int) -> list[LogLine]:
        """Return the lines about the reservations of some frames behind a line, in order of writing."""
        return [LogLine(*row) for row in self._tx.rows(_NEW_LINES, (list(frames), after))]

    def logs(self, ids: Collection[int]) -> list[ReservationLog]:
        """Return what happened to reservations, each in order of time."""
        rows = self._tx.rows(_LOGS, (list(ids),)) if ids else []
        return [_log_row(row) for row in rows]

    def shown_lines(self, after: int, until: int, limit: int) -> list[tuple[int, ReservationLog]]:
        """Return the lines about what was granted behind a line, up to and including another one, with their ids."""
        return [(row[0], _log_row(row[1:])) for row in self._tx.rows(_SHOWN_LINES, (after, until, limit))]

    def add_revision(self, revision: ReservationRevision) -> None:
        """Write what a reservation is from now on, in the place of what another program wrote of the same revision."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute(_ADD_REVISION, revision)

    def revisions(self, reservation_id: int) -> list[ReservationRevision]:
        """Return what a reservation ever was, in order."""
        return [ReservationRevision(*row) for row in self._tx.rows(_REVISIONS, (reservation_id,))]

    def begin_intervals(self, reservation_id: int, kind: IntervalKind, resources: Collection[int], date: int) -> None:
        """Note what resources are to a reservation from a date on."""
        self._tx.topics.add(Topic.RESERVATIONS)
        if resources:
            self._tx.execute(_BEGIN_INTERVALS, (reservation_id, sorted(resources), str(kind), date))

    def end_intervals(self, reservation_id: int, kind: IntervalKind, resources: Collection[int], date: int) -> None:
        """Note that resources are no longer what they were to a reservation."""
        self._tx.topics.add(Topic.RESERVATIONS)
        if resources:
            self._tx.execute(_END_INTERVALS, (date, reservation_id, sorted(resources), str(kind)))

    def intervals(self, ids: Collection[int]) -> dict[int, dict[IntervalKind, list[ResourceInterval]]]:
        """Return what resources were to reservations, of each by resource and date."""
        found: dict[int, dict[IntervalKind, list[ResourceInterval]]]
        found = {number: {kind: [] for kind in IntervalKind} for number in ids}
        for number, kind, *interval in self._tx.rows(_INTERVALS, (list(ids),)) if ids else ():
            found[number][IntervalKind(kind)].append(ResourceInterval(*interval))
        return found

    def missing_since(self, ids: Collection[int]) -> dict[int, dict[int, int]]:
        """Return since when resources of reservations are missing: date by resource, by reservation."""
        since: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for reservation_id, resource_id, date in self._tx.rows(_MISSING_SINCE, (list(ids),)) if ids else ():
            since[reservation_id][resource_id] = date
        return since

    def job_intervals(self, ids: Collection[int]) -> dict[int, list[ResourceInterval]]:
        """Return when the jobs of reservations had which resources."""
        found: dict[int, list[ResourceInterval]] = {number: [] for number in ids}
        for number, *interval in self._tx.rows(_JOB_INTERVALS, (list(ids),)) if ids else ():
            found[number].append(ResourceInterval(*interval))
        return found

    def places(self, resource_ids: Collection[int]) -> dict[int, str]:
        """Return the node of each resource, its type if it is on no node; without resources that were removed."""
        return dict(self._tx.rows(_PLACES, (list(resource_ids),)))

    def add_usages(self, bills: Mapping[int, Sequence[ReservationUsage]]) -> None:
        """Write the bills of reservations; those that are there already stay."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.insert_many(_ADD_USAGE, [(number, *row) for number, rows in bills.items() for row in rows])

    def usage(self, reservation_id: int) -> list[ReservationUsage]:
        """Return the bill of a reservation, by queue and node."""
        return self.usages([reservation_id])[reservation_id]

    def usages(self, ids: Collection[int]) -> dict[int, list[ReservationUsage]]:
        """Return the bills of reservations, by id; each by queue and node."""
        found: dict[int, list[ReservationUsage]] = {number: [] for number in ids}
        for reservation_id, *row in self._tx.rows(_USAGE, (list(ids),)) if ids else ():
            found[reservation_id].append(ReservationUsage(*row))
        return found

    # -- changes -----------------------------------------------------------------------------------------------------

    def ask_change(self, reservation_id: int, author: str, change: str, expires: int) -> int | None:
        """Ask for a change; return its id, None if another one of the reservation is not answered yet."""
        self._tx.topics.add(Topic.RESERVATIONS)
        change_id: int | None = self._tx.value(_ASK_CHANGE, (reservation_id, self._tx.now, author, change, expires))
        return change_id

    def open_changes(self) -> list[ReservationChange]:
        """Return the changes that wait for an answer, by id."""
        return [_change(row) for row in self._tx.rows(_OPEN_CHANGES)]

    def change(self, change_id: int) -> ReservationChange | None:
        """Return a change; None if there is none of this id."""
        row = self._tx.row(_CHANGE, (change_id,))
        return _change(row) if row else None

    def answer_change(self, change_id: int, answer: ChangeAnswer, message: str = "", proposal: int = 0) -> bool:
        """Answer a change; False if it has an answer already."""
        self._tx.topics.add(Topic.RESERVATIONS)
        return self._tx.execute(_ANSWER_CHANGE, (str(answer), message, proposal, change_id)) == 1

    def drop_changes(self, ids: Collection[int], message: str) -> None:
        """Answer the changes of reservations that wait for an answer: they come too late."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute(_DROP_CHANGE, (message, list(ids)))


def _flag(value: bool) -> str:
    return "YES" if value else "NO"


def _reservation(row: Row) -> AdvanceReservation:
    record = AdvanceReservation(*row)
    return record._replace(
        state=ReservationState(record.state), resources=tuple(record.resources), missing=tuple(record.missing)
    )


def _log_row(row: Row) -> ReservationLog:
    return ReservationLog(*row)._replace(state=ReservationState(row[3]))


def _change(row: Row) -> ReservationChange:
    record = ReservationChange(*row)
    return record._replace(answer=ChangeAnswer(record.answer))
