"""The position up to which clients that poll can read the log of advance reservations.

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
    """Track the position below which the log is complete.  Threads may share it and do not block each other."""

    def __init__(self, database: "Database") -> None:
        self._database = database
        self._lock = threading.Lock()
        self._rows: SettledRows | None = None

    @property
    def pause(self) -> float:
        """The seconds between two polls for new lines."""
        return GAP_SECONDS if self._rows and self._rows.waits else POLL_SECONDS

    def settled(self) -> int | None:
        """Return the last line up to which the log is complete.

        Return None while transactions that were open at the start still run.  Transactions that begin later see all
        lines up to the returned one.  Raises DatabaseUnavailable.
        """
        rows = self._database.look(self._advanced)
        with self._lock:
            if self._rows is None or _place(rows) >= _place(self._rows):
                self._rows = rows
        return rows.last if rows.has_begun else None

    def _advanced(self, tx: "Transaction") -> SettledRows:
        """Return the complete rows now.  Work on a copy, because another thread may advance at the same time."""
        if self._rows is None:
            newest = tx.reservation_logs.last_line()
            rows = SettledRows(Log.RESERVATIONS, newest, tx.history.writers(Log.RESERVATIONS))
        else:
            rows = copy.copy(self._rows)
        rows.advance(tx.history)
        return rows


def _place(rows: SettledRows) -> tuple[bool, int]:
    return rows.has_begun, rows.last
