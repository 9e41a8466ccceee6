"""Advance reservations (``tx.advance_reservations``): their rows, and who may use them.

Statements are about all reservations at once: never a query for each.  See docs/design/reservations.rst.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence

from oar.lib.base.errors import BrokenRow
from oar.lib.bus.topics import Topic
from oar.lib.db.statements import About, Prepared, Row, Table, flag, psycopg2
from oar.lib.reservations.records import AccessEntry, AdvanceReservation, NewReservation
from oar.lib.reservations.states import COUNTED, ReservationState

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


#: How often an insertion is tried whose number belongs to a live reservation.
MAX_NUMBERS_SKIPPED = 1000


class AdvanceReservations(Table):
    """Reservations that are asked for, live or ended, and their access lists."""

    # -- rows --------------------------------------------------------------------------------------------------------

    def insert(self, new: NewReservation) -> tuple[int, int]:
        """Insert a request in the state ASKED; return its id and its number.

        A number that belongs to a live reservation is skipped.  Raises RuntimeError if a thousand in a row do, and
        BrokenRow, which leaves the transaction as it was, if a value is none that its column holds.
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

    def for_nobody(self, ids: Collection[int]) -> set[int]:
        """Return those of some reservations that nobody may use: maintenance."""
        return set(self._tx.column(_FOR_NOBODY, (list(ids),))) if ids else set()

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
        if not job_ids:
            return {}
        (found,) = self._tx.about(job_ids, _OF_FRAMES)
        return {job_id: found[job_id] for job_id in job_ids if job_id in found}

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

    # -- who may use them --------------------------------------------------------------------------------------------

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


def _reservation(row: Row) -> AdvanceReservation:
    record = AdvanceReservation(*row)
    return record._replace(
        state=ReservationState(record.state), resources=tuple(record.resources), missing=tuple(record.missing)
    )
