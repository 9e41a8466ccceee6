"""METRICS_FILE: metrics for Prometheus from a server without the API, as a text file for its node exporter.

The chronicle updates it. Counters include the history since the process started; Prometheus handles the reset of
counters.
"""

import os
import time
from typing import TYPE_CHECKING

from oar.lib.bus.control_client import ask
from oar.lib.bus.frames import Status, StatusQuestion
from oar.lib.history.sql_feed import News
from oar.lib.monitoring.metrics import Happenings, Labels, families, rounds_of, server_families
from oar.lib.monitoring.prometheus_text import document, family_lines

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

#: Seconds between two files; the server has so long to say how it is.
PERIOD, PATIENCE = 15.0, 2.0


class MetricsFile:
    """Count events, and write the file periodically."""

    def __init__(self, config: "Config", path: str) -> None:
        self._config = config
        self._path = path
        self._happenings = Happenings()
        self._written = float("-inf")

    def count(self, tx: "Transaction", news: News) -> None:
        """Count new events."""
        self._happenings.count(tx, news)

    def look(self, database: "Database") -> bool:
        """Write the file if it is due. Return False: there is no more work now.

        Raises DatabaseUnavailable, OSError.
        """
        if time.monotonic() < self._written + PERIOD:
            return False
        with database.snapshot() as tx:
            present = list(families(tx, Labels.of(self._config)))
        answer = ask(self._config, StatusQuestion(), Status, PATIENCE)
        state = answer.state if isinstance(answer, Status) else {}
        present += [*server_families(state, time.time()), *self._happenings.families()]
        histograms = [*self._happenings.histograms(), *rounds_of(state)]
        self._replace(document([*map(family_lines, present), *(each.lines() for each in histograms)]))
        self._written = time.monotonic()
        return False

    def _replace(self, text: str) -> None:
        """Replace the file atomically: another account may read it at any time."""
        made = f"{self._path}.new"
        with open(made, "w", encoding="utf-8", errors="replace") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
        os.replace(made, self._path)
