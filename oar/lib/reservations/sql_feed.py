"""Up to where the log of advance reservations can be read by who asks now and then.

See docs/design/events.rst, "The feed".
"""

import copy
import threading
from typing import TYPE_CHECKING

from oar.lib.history.sql_feed import GAP_SECONDS, POLL_SECONDS, SettledRows
from oar.lib.history.sql_history import Log

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction


class ReservationFeed:
    """Knows up to which line nothing older can come.  May be shared by threads, which do not wait for one another."""

    def __init__(self, database: "Database") -> None:
        self._database = database
        self._lock = threading.Lock()
        self._rows: SettledRows | None = None

    @property
    def pause(self) -> float:
        """The seconds between two looks of who waits for lines."""
        return GAP_SECONDS if self._rows and self._rows.waits else POLL_SECONDS

    def settled(self) -> int | None:
        """Return the last line behind which nothing older can come; None: those who wrote at the begin still write.

        Lines up to it are seen by each transaction that begins later.  Raises DatabaseUnavailable.
        """
        rows = self._database.look(self._advanced)
        with self._lock:
            if self._rows is None or _place(rows) >= _place(self._rows):
                self._rows = rows
        return rows.last if rows.has_begun else None

    def _advanced(self, tx: "Transaction") -> SettledRows:
        """Return what is settled now.  It is a copy that goes on, for another thread may go on at the same time."""
        if self._rows is None:
            newest = tx.reservation_logs.last_line()
            rows = SettledRows(Log.RESERVATIONS, newest, tx.history.writers(Log.RESERVATIONS))
        else:
            rows = copy.copy(self._rows)
        rows.advance(tx.history)
        return rows


def _place(rows: SettledRows) -> tuple[bool, int]:
    return rows.has_begun, rows.last
