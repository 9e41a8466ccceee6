"""Series of advance reservations (``tx.reservation_series``).  See docs/design/reservations.rst, "Series"."""

from collections.abc import Collection

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Row, Table
from oar.lib.reservations.series_records import NewSeries, Series

#: The columns of ``Series``, in its order.
_COLUMNS = (
    "series_id, owner, rule, time_zone, first_start, duration, template, depth, skips_conflicts = 'YES', occurrences,"
    " next_index, next_start, ended"
)
_SELECT = f"SELECT {_COLUMNS} FROM reservation_series"
_BY_IDS = f"{_SELECT} WHERE series_id = ANY(%s) ORDER BY series_id"
_LIVE = f"{_SELECT} WHERE ended = 0 ORDER BY series_id"
_ALL = f"{_SELECT} ORDER BY series_id"
_LOCK = f"{_SELECT} WHERE series_id = %s AND ended = 0 FOR NO KEY UPDATE"
_INSERT = """
    INSERT INTO reservation_series (owner, rule, time_zone, first_start, duration, template, depth, skips_conflicts,
        occurrences, next_index, next_start)
    VALUES (%(owner)s, %(rule)s, %(time_zone)s, %(first_start)s, %(duration)s, %(template)s, %(depth)s,
        %(skips_conflicts)s, %(occurrences)s, %(next_index)s, %(next_start)s)
    RETURNING series_id"""
_ADVANCE = "UPDATE reservation_series SET next_index = %s, next_start = %s WHERE series_id = %s"
_CHANGE = "UPDATE reservation_series SET template = %s, duration = %s WHERE series_id = %s"
_END = "UPDATE reservation_series SET ended = %s, next_start = 0 WHERE series_id = %s AND ended = 0"


class ReservationSeries(Table):
    """Rows of ``reservation_series``."""

    def insert(self, new: NewSeries) -> int:
        """Insert a series; return its id."""
        self._tx.topics.add(Topic.RESERVATIONS)
        values = {**new._asdict(), "skips_conflicts": "YES" if new.skips_conflicts else "NO"}
        series_id: int = self._tx.value(_INSERT, values)
        return series_id

    def select(self, ids: Collection[int]) -> dict[int, Series]:
        """Return some series, by id."""
        return {row[0]: _series(row) for row in self._tx.rows(_BY_IDS, (list(ids),))} if ids else {}

    def all(self, *, ended: bool = False) -> list[Series]:
        """Return all series that go on, by id.  ``ended``: those that ended, too."""
        return [_series(row) for row in self._tx.rows(_ALL if ended else _LIVE)]

    def lock(self, series_id: int) -> Series | None:
        """Return a series that goes on, which nobody else changes until the end of the transaction; None if it ended.

        A transaction that locks reservations of it locks them before.
        """
        row = self._tx.row(_LOCK, (series_id,))
        return _series(row) if row else None

    def advance(self, series_id: int, next_index: int, next_start: int) -> None:
        """Note which occurrence is asked for next; 0 as its start = none."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute(_ADVANCE, (next_index, next_start, series_id))

    def change(self, series_id: int, template: str, duration: int) -> None:
        """Change what is asked for with the occurrences to come."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute(_CHANGE, (template, duration, series_id))

    def end(self, series_id: int) -> None:
        """Note that no occurrence is asked for any more."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute(_END, (self._tx.now, series_id))


def _series(row: Row) -> Series:
    return Series(*row)
