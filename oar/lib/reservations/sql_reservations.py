"""Advance reservations (``tx.reservations``): rows, access lists, series, intervals, jobs, requested changes.

Each statement handles all reservations at once; there is never one query for each reservation.

See docs/design/reservations.rst.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence

from oar.lib.base.errors import BrokenRow
from oar.lib.bus.messages import Topic
from oar.lib.db.predicates import LIVE
from oar.lib.db.statements import About, Prepared, Row, Table, flag, psycopg2
from oar.lib.reservations.fields import COLUMNS, FLAGS
from oar.lib.reservations.records import (
    AccessEntry,
    AdvanceReservation,
    JobBound,
    LiveJobCounts,
    NewReservation,
    NewSeries,
    ReservationChange,
    ResourceInterval,
    Series,
)
from oar.lib.reservations.states import COUNTED, GRANTED, ChangeAnswer, IntervalKind, ReservationState

#: The columns of ``AdvanceReservation``, in its order; columns of truth values hold YES or NO.
_COLUMNS = ", ".join(
    f"{COLUMNS[name]} = 'YES'" if name in FLAGS else COLUMNS[name] for name in AdvanceReservation._fields
)

_SELECT = f"SELECT {_COLUMNS} FROM reservations"

_LIVE = f"{_SELECT} WHERE ended = 0 ORDER BY reservation_id"

_PLANNED = Prepared(_LIVE.replace(" request,", " CASE WHEN state = '' THEN request ELSE '[]' END,"))

#: Reservations whose access list is NONE alone.
_FOR_NOBODY = """
    SELECT reservation_id FROM reservation_acl WHERE reservation_id = ANY(%s)
    GROUP BY reservation_id HAVING bool_and(entry = 'NONE' AND denied = 'NO')"""

_REQUESTS = "SELECT reservation_id, request FROM reservations WHERE reservation_id = ANY(%s)"

#: All that were ever granted, without their requests.
_EVER_GRANTED = f"{_SELECT} WHERE state <> '' AND state <> 'n' ORDER BY reservation_id".replace(" request,", " '[]',")

_BY_IDS = f"{_SELECT} WHERE reservation_id = ANY(%s) ORDER BY reservation_id"

_OF_FRAMES = About(
    "SELECT frame_id, reservation_id, ar_id FROM reservations WHERE frame_id = ANY(%s) AND frame_id <> 0",
    lambda rows: {frame: (reservation_id, number) for frame, reservation_id, number in rows},
)

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

_INSERT = f"""
    INSERT INTO reservations (submission_time, state_date,
        {", ".join(COLUMNS[name] for name in NewReservation._fields)})
    VALUES (%(now)s, %(now)s, {", ".join(f"%({name})s" for name in NewReservation._fields)})
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

#: How often an insertion is tried whose number belongs to a live reservation.
MAX_NUMBERS_SKIPPED = 1000


def _reservation(row: Row) -> AdvanceReservation:
    record = AdvanceReservation(*row)
    return record._replace(
        state=ReservationState(record.state), resources=tuple(record.resources), missing=tuple(record.missing)
    )


#: The columns of ``Series``, which have the names of its fields.
_SERIES_COLUMNS = ", ".join(
    {"id": "series_id", "skips_conflicts": "skips_conflicts = 'YES'"}.get(name, name) for name in Series._fields
)

_SELECT_SERIES = f"SELECT {_SERIES_COLUMNS} FROM reservation_series"

_SERIES_BY_IDS = f"{_SELECT_SERIES} WHERE series_id = ANY(%s) ORDER BY series_id"

_LIVE_SERIES = f"{_SELECT_SERIES} WHERE ended = 0 ORDER BY series_id"

_ALL = f"{_SELECT_SERIES} ORDER BY series_id"

_LOCK_SERIES = f"{_SELECT_SERIES} WHERE series_id = %s AND ended = 0 FOR NO KEY UPDATE"

_INSERT_SERIES = f"""
    INSERT INTO reservation_series ({", ".join(NewSeries._fields)})
    VALUES ({", ".join(f"%({name})s" for name in NewSeries._fields)})
    RETURNING series_id"""

_ADVANCE = "UPDATE reservation_series SET next_index = %s, next_start = %s WHERE series_id = %s"

_CHANGE_SERIES = "UPDATE reservation_series SET template = %s, duration = %s WHERE series_id = %s"

_END = "UPDATE reservation_series SET ended = %s, next_start = 0 WHERE series_id = %s AND ended = 0"


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

_CHANGE_COLUMNS = "change_id, reservation_id, date, author, change, answer, message, proposal, expires"

_ASK_CHANGE = """
    INSERT INTO reservation_changes (reservation_id, date, author, change, expires) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (reservation_id) WHERE answer = '' DO NOTHING RETURNING change_id"""

_OPEN_CHANGES = f"SELECT {_CHANGE_COLUMNS} FROM reservation_changes WHERE answer = '' ORDER BY change_id"

_FIND_CHANGE = f"SELECT {_CHANGE_COLUMNS} FROM reservation_changes WHERE change_id = %s"

_ANSWER_CHANGE = """
    UPDATE reservation_changes SET answer = %s, message = %s, proposal = %s WHERE change_id = %s AND answer = ''"""

_DROP_CHANGE = """
    UPDATE reservation_changes SET answer = 'dropped', message = %s
    WHERE reservation_id = ANY(%s) AND answer = ''"""


def _change(row: Row) -> ReservationChange:
    record = ReservationChange(*row)
    return record._replace(answer=ChangeAnswer(record.answer))


class Reservations(Table):
    """Requested, live and ended reservations, access lists, series, intervals, jobs, requested changes."""

    def _write(self, sql: str, values: Sequence[object]) -> int:
        """Run a statement that changes reservations; return the number of rows."""
        self._changed(Topic.RESERVATIONS)
        return self._tx.execute(sql, values)

    # -- rows --------------------------------------------------------------------------------------------------------

    def insert(self, new: NewReservation) -> tuple[int, int]:
        """Insert a request in state ASKED; return its id and number.

        A number that belongs to a live reservation is skipped.  Raises RuntimeError if MAX_NUMBERS_SKIPPED numbers in a
        row are taken.  Raises BrokenRow if a value does not fit into its column; the transaction stays usable.
        """
        values = {name: flag(value) if isinstance(value, bool) else value for name, value in new._asdict().items()}
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
            self._changed(Topic.RESERVATIONS)
            assert row is not None
            return row[0], row[1]
        raise RuntimeError(f"{MAX_NUMBERS_SKIPPED} numbers of advance reservations in a row are in use")

    def live(self) -> list[AdvanceReservation]:
        """Return all reservations that are still in the system, including undecided requests, by id."""
        return [_reservation(row) for row in self._tx.rows(_LIVE)]

    def planned(self) -> list[AdvanceReservation]:
        """Return the reservations that ``live`` returns; granted ones without their requests, which may be long."""
        return [_reservation(row) for row in self._tx.rows(_PLANNED)]

    def for_nobody(self, ids: Collection[int]) -> set[int]:
        """Return the ids of the reservations that no user may use (maintenance)."""
        return set(self._tx.column(_FOR_NOBODY, (list(ids),))) if ids else set()

    def requests(self, ids: Collection[int]) -> dict[int, str]:
        """Return the requests of reservations, by id."""
        return dict(self._tx.rows(_REQUESTS, (list(ids),))) if ids else {}

    def ever_granted(self) -> list[AdvanceReservation]:
        """Return all reservations that were ever granted, by id, without their requests, which may be long."""
        return [_reservation(row) for row in self._tx.rows(_EVER_GRANTED)]

    def select(self, ids: Collection[int]) -> list[AdvanceReservation]:
        """Return the reservations with these ids, by id."""
        return [_reservation(row) for row in self._tx.rows(_BY_IDS, (list(ids),))] if ids else []

    def by_numbers(self, numbers: Collection[int]) -> dict[int, AdvanceReservation]:
        """Return for each known number its live reservation, or else the one that ended last."""
        rows = self._tx.rows(_BY_NUMBERS, (list(numbers),)) if numbers else []
        return {row[1]: _reservation(row) for row in rows}

    def live_by_name(self, name: str) -> list[AdvanceReservation]:
        """Return the live reservations with a name, by number."""
        return [_reservation(row) for row in self._tx.rows(_LIVE_BY_NAME, (name,))]

    def ids_of(self, word: int | str) -> frozenset[int]:
        """Return the ids of all reservations, including ended ones, that were granted with this number or name."""
        return frozenset(self._tx.column(_IDS_OF_NUMBER if isinstance(word, int) else _IDS_OF_NAME, (word,)))

    def live_of_series(self, series_id: int) -> list[int]:
        """Return the ids of the live occurrences of a series, ascending, including undecided ones."""
        return sorted(self._tx.column(_LIVE_OF_SERIES, (series_id,)))

    def of_series(self, ids: Collection[int]) -> list[AdvanceReservation]:
        """Return all occurrences of series, by series and number, including ended and rejected ones."""
        return [_reservation(row) for row in self._tx.rows(_OF_SERIES, (list(ids),))] if ids else []

    def lock(self, ids: Collection[int]) -> list[AdvanceReservation]:
        """Lock the rows of reservations until the end of the transaction; return them by id."""
        return [_reservation(row) for row in self._tx.rows(_LOCK, (list(ids),))] if ids else []

    def lock_free(self, ids: Collection[int], patience: int) -> list[AdvanceReservation]:
        """Lock reservations as ``lock`` does, except those that others still lock after ``patience`` milliseconds.

        On a deadlock, too, only the reservations that are free are locked.
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
        """Lock a reservation against changes until the end of the transaction, for a job that enters it; return it."""
        row = self._tx.row(_SHARE, (reservation_id,))
        return _reservation(row) if row else None

    def of_frames(self, job_ids: Collection[int]) -> dict[int, tuple[int, int]]:
        """Return id and number of the reservation for each job that is a frame."""
        if not job_ids:
            return {}
        (by_id,) = self._tx.about(job_ids, _OF_FRAMES)
        return {job_id: by_id[job_id] for job_id in job_ids if job_id in by_id}

    def counts(self) -> list[tuple[str, int, int]]:
        """Return the live granted reservations by state: number of reservations and of missing resources."""
        return [(state, number, missing) for state, number, missing in self._tx.rows(_COUNTS)]

    def count(self) -> int:
        """Return how many reservations count towards MAX_ADVANCE_RESERVATIONS."""
        number: int = self._tx.value(_COUNT, ([str(state) for state in COUNTED],))
        return number

    def move(self, reservation_id: int, to: ReservationState, sources: Collection[ReservationState]) -> bool:
        """Set the state of a live reservation if it is one of ``sources``.  Only ``lifecycle.move`` calls this."""
        return self._write(_MOVE, (str(to), self._tx.now, reservation_id, [str(state) for state in sources])) == 1

    def update(self, reservation_id: int, **columns: object) -> None:
        """Change columns of a reservation, except its state."""
        names = ", ".join(f"{name} = %s" for name in columns)
        values = [flag(value) if isinstance(value, bool) else value for value in columns.values()]
        self._write(f"UPDATE reservations SET {names} WHERE reservation_id = %s", (*values, reservation_id))

    def close(self, ids: Collection[int], date: int) -> list[int]:
        """Store the end date of reservations; return the ids of those that were live."""
        self._changed(Topic.RESERVATIONS)
        return sorted(self._tx.column(_CLOSE, (date, list(ids)))) if ids else []

    # -- access lists ------------------------------------------------------------------------------------------------

    def set_access(self, reservation_id: int, entries: Sequence[AccessEntry]) -> None:
        """Replace the access list of a reservation."""
        self._write("DELETE FROM reservation_acl WHERE reservation_id = %s", (reservation_id,))
        texts, denied = [entry.text for entry in entries], [entry.denied for entry in entries]
        self._tx.execute(_ADD_ACCESS, (reservation_id, texts, denied))

    def access(self, ids: Collection[int]) -> dict[int, tuple[AccessEntry, ...]]:
        """Return the access lists of reservations, by id."""
        entries: defaultdict[int, list[AccessEntry]] = defaultdict(list)
        for reservation_id, text, denied in self._tx.rows(_ACCESS, (list(ids),)) if ids else ():
            entries[reservation_id].append(AccessEntry(text, denied))
        return {reservation_id: tuple(entries[reservation_id]) for reservation_id in ids}

    def numbers_that_list(self, entry: str, *, allow: bool = False, deny: bool = False) -> list[int]:
        """Return the numbers of the live reservations whose access lists allow or deny an entry."""
        return self._tx.column(_THAT_LIST, (entry, ["NO"] * allow + ["YES"] * deny))

    def insert_series(self, new: NewSeries) -> int:
        """Insert a series; return its id."""
        self._changed(Topic.RESERVATIONS)
        values = {**new._asdict(), "skips_conflicts": flag(new.skips_conflicts)}
        series_id: int = self._tx.value(_INSERT_SERIES, values)
        return series_id

    def select_series(self, ids: Collection[int]) -> dict[int, Series]:
        """Return the series with these ids, by id."""
        return {row[0]: Series(*row) for row in self._tx.rows(_SERIES_BY_IDS, (list(ids),))} if ids else {}

    def all_series(self, *, ended: bool = False) -> list[Series]:
        """Return all active series, by id.  ``ended``: include ended series."""
        return [Series(*row) for row in self._tx.rows(_ALL if ended else _LIVE_SERIES)]

    def lock_series(self, series_id: int) -> Series | None:
        """Lock an active series until the end of the transaction and return it; return None if it has ended.

        A transaction that also locks reservations of the series must lock them first.
        """
        row = self._tx.row(_LOCK_SERIES, (series_id,))
        return Series(*row) if row else None

    def advance_series(self, series_id: int, next_index: int, next_start: int) -> None:
        """Store which occurrence is requested next; ``next_start`` 0 means none."""
        self._write(_ADVANCE, (next_index, next_start, series_id))

    def change_series(self, series_id: int, template: str, duration: int) -> None:
        """Store a new template and duration for future occurrences."""
        self._write(_CHANGE_SERIES, (template, duration, series_id))

    def end_series(self, series_id: int) -> None:
        """Mark a series as ended: no further occurrences are requested."""
        self._write(_END, (self._tx.now, series_id))

    def begin_intervals(self, reservation_id: int, kind: IntervalKind, resources: Collection[int], date: int) -> None:
        """Store that intervals of a kind begin for resources of a reservation."""
        if resources:
            self._write(_BEGIN_INTERVALS, (reservation_id, sorted(resources), str(kind), date))

    def end_intervals(self, reservation_id: int, kind: IntervalKind, resources: Collection[int], date: int) -> None:
        """Store that intervals of a kind end for resources of a reservation."""
        if resources:
            self._write(_END_INTERVALS, (date, reservation_id, sorted(resources), str(kind)))

    def intervals_of(self, ids: Collection[int]) -> dict[int, dict[IntervalKind, list[ResourceInterval]]]:
        """Return the resource intervals of reservations by kind, sorted by resource and date."""
        by_id: dict[int, dict[IntervalKind, list[ResourceInterval]]]
        by_id = {number: {kind: [] for kind in IntervalKind} for number in ids}
        for number, kind, *interval in self._tx.rows(_INTERVALS, (list(ids),)) if ids else ():
            by_id[number][IntervalKind(kind)].append(ResourceInterval(*interval))
        return by_id

    def resources_missing_since(self, ids: Collection[int]) -> dict[int, dict[int, int]]:
        """Return since when resources of reservations are missing: date by resource, by reservation."""
        since: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for reservation_id, resource_id, date in self._tx.rows(_MISSING_SINCE, (list(ids),)) if ids else ():
            since[reservation_id][resource_id] = date
        return since

    def intervals_of_jobs(self, ids: Collection[int]) -> dict[int, list[ResourceInterval]]:
        """Return the intervals in which the jobs of reservations used resources."""
        by_id: dict[int, list[ResourceInterval]] = {number: [] for number in ids}
        for number, *interval in self._tx.rows(_JOB_INTERVALS, (list(ids),)) if ids else ():
            by_id[number].append(ResourceInterval(*interval))
        return by_id

    def interval_places(self, resource_ids: Collection[int]) -> dict[int, str]:
        """Return the node of each resource, or its type if it is on no node; skip removed resources."""
        return dict(self._tx.rows(_PLACES, (list(resource_ids),)))

    #: A question that views of jobs ask with others.
    NUMBERS = About(_NUMBERS, dict)

    def add_job(self, reservation_id: int, job_ids: Sequence[int]) -> None:
        """Assign jobs to a reservation, and to no other."""
        self._write(_ADD_JOBS, (reservation_id, list(job_ids)))

    def remove_job(self, job_id: int) -> None:
        """Remove a job from its reservation."""
        self._write("DELETE FROM reservation_jobs WHERE job_id = %s", (job_id,))

    def release_waiting(self, reservation_id: int, type_: str) -> list[int]:
        """Remove the waiting jobs from a reservation, and their type for it; return their ids."""
        self._changed(Topic.RESERVATIONS, Topic.JOBS)
        return self._tx.column(_RELEASE_WAITING, (reservation_id, type_))

    def of_jobs(self, job_ids: Collection[int]) -> dict[int, int]:
        """Return the reservation id of each job that is in a reservation."""
        return dict(self._tx.rows(_JOBS, (list(job_ids),))) if job_ids else {}

    def job_bounds(self, job_id: int, resources: Collection[int]) -> list[JobBound]:
        """Return the reservations before whose start or end a job on these resources must have ended."""
        states = [str(state) for state in GRANTED]
        return [JobBound(*row) for row in self._tx.rows(_BOUNDS, (job_id, states, list(resources)))]

    def live_jobs(self, ids: Collection[int]) -> dict[int, LiveJobCounts]:
        """Return the live jobs of reservations, by reservation id."""
        running: defaultdict[int, list[int]] = defaultdict(list)
        waiting: defaultdict[int, list[int]] = defaultdict(list)
        for reservation_id, job_id, is_waiting in self._tx.rows(_LIVE_JOBS, (list(ids),)) if ids else ():
            (waiting if is_waiting else running)[reservation_id].append(job_id)
        return {number: LiveJobCounts(tuple(running[number]), tuple(waiting[number])) for number in ids}

    def last_job_dates(self, ids: Collection[int]) -> dict[int, int]:
        """Return when the last job of each reservation ended, for reservations that had a job."""
        return dict(self._tx.rows(_LAST_JOBS, (list(ids),))) if ids else {}

    def request_change(self, reservation_id: int, author: str, change: str, expires: int) -> int | None:
        """Store a requested change; return its id, or None if another change of the reservation is still unanswered."""
        self._changed(Topic.RESERVATIONS)
        change_id: int | None = self._tx.value(_ASK_CHANGE, (reservation_id, self._tx.now, author, change, expires))
        return change_id

    def open_changes(self) -> list[ReservationChange]:
        """Return the unanswered changes, by id."""
        return [_change(row) for row in self._tx.rows(_OPEN_CHANGES)]

    def find_change(self, change_id: int) -> ReservationChange | None:
        """Return a change; None if the id does not exist."""
        row = self._tx.row(_FIND_CHANGE, (change_id,))
        return _change(row) if row else None

    def answer_change(self, change_id: int, answer: ChangeAnswer, message: str = "", proposal: int = 0) -> bool:
        """Store the answer to a change; return False if it was already answered."""
        return self._write(_ANSWER_CHANGE, (str(answer), message, proposal, change_id)) == 1

    def drop_change(self, ids: Collection[int], message: str) -> None:
        """Answer the open changes of reservations as dropped, because they come too late."""
        self._write(_DROP_CHANGE, (message, list(ids)))
