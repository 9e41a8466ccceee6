"""Days of the Gantt diagram become files when they are over: who looks at a month first does not wait for them."""

import logging
import threading
import time
from typing import TYPE_CHECKING

from oar.lib.facts.errors import OarError
from oar.lib.views.gantt_chunks import DAY, chunk_version

if TYPE_CHECKING:
    from oar.api.serving.chunk_cache import Chunks
    from oar.lib.db.database import Database

_log = logging.getLogger(__name__)

#: Days that are made ahead: those of a month.
DAYS = 31
#: Seconds after the end of a day at which it is made: what ended on it is written then.
SETTLED = 300.0
#: Seconds after which it is tried again if the database could not be asked.
AGAIN = 60.0


class ChunksAhead:
    """A thread that makes the files of the last days, one after the other, and each night that of the day that is over.

    It rests as long as it works: requests come first.
    """

    def __init__(self, database: "Database", chunks: "Chunks") -> None:
        self._database = database
        self._chunks = chunks
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if chunks become files at all."""
        if self._chunks.keeps_files:
            self._thread = threading.Thread(target=self._follow, name="days", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Make no more.  Waits for the day that is being made."""
        self._ends.set()
        if self._thread:
            self._thread.join()

    def make_missing(self) -> None:
        """Make the files of the last days that are not there, the earliest first: of too many those go.

        Raises OarError.
        """
        with self._database.snapshot() as tx:
            today = tx.now // DAY
            found = tx.gantt_days.versions((today - DAYS) * DAY, today * DAY)
        for each in found:
            began = time.monotonic()
            with self._database.snapshot() as tx:
                self._chunks.make_file(tx, each.day, chunk_version(each))
            if self._ends.wait(time.monotonic() - began):
                return

    def _follow(self) -> None:
        while not self._ends.is_set():
            try:
                self.make_missing()
                rest = DAY - time.time() % DAY + SETTLED
            except OarError as error:
                _log.info("days of the Gantt diagram are not made ahead: %s", error)
                rest = AGAIN
            self._ends.wait(rest)
