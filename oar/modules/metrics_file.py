"""METRICS_FILE: what Prometheus is told by a server without the API, through the text files of its node exporter.

The chronicle goes on with it.  What only grows is counted from the history since the process began; Prometheus knows
that such numbers begin anew.
"""

import os
import time
from collections import Counter
from typing import TYPE_CHECKING

from oar.lib.db.feed import News
from oar.lib.facts.frames import Status, StatusQuestion
from oar.lib.facts.states import FINAL, EventType, JobState
from oar.lib.io.control import ask
from oar.lib.rules.metric_texts import WaitHistogram, counter, document, family_lines
from oar.lib.views.metrics import families, server_families

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

#: Seconds between two files; the server has so long to say how it is.
PERIOD, PATIENCE = 15.0, 2.0


class MetricsFile:
    """Counts what happens, and writes the file from time to time."""

    def __init__(self, config: "Config", path: str) -> None:
        self._config = config
        self._path = path
        self._steps: Counter[str] = Counter(submitted=0, started=0, ended=0, refused=0)
        self._causes: Counter[str] = Counter()
        self._waits = WaitHistogram()
        self._written = float("-inf")

    def count(self, tx: "Transaction", news: News) -> None:
        """Count what has happened."""
        ended = [change.job_id for change in news.changes if change.state in FINAL]
        started = [
            change.job_id
            for change in news.changes
            if change.state is JobState.RUNNING and change.former is JobState.LAUNCHING
        ]
        self._steps["submitted"] += sum(1 for change in news.changes if change.former is None)
        self._steps["started"] += len(started)
        self._steps["ended"] += len(ended)
        self._steps["refused"] += sum(1 for event in news.events if event.type == EventType.SUBMISSION_REFUSED)
        self._causes.update(str(cause.code) for cause in tx.job_ends.causes(ended).values())
        for job in tx.jobs.select(started) if started else ():
            self._waits.add(max(0, job.start_time - job.submission_time))

    def look(self, database: "Database") -> bool:
        """Write the file if it is time to; False: there is nothing to do at once.

        Raises DatabaseUnavailable, OSError.
        """
        if time.monotonic() < self._written + PERIOD:
            return False
        with database.snapshot() as tx:
            present = list(families(tx))
        answer = ask(self._config, StatusQuestion(), Status, PATIENCE)
        present += server_families(answer.state if isinstance(answer, Status) else {})
        self._replace(document([*map(family_lines, present), *self._counted()]))
        self._written = time.monotonic()
        return False

    def _counted(self) -> list[list[str]]:
        return [
            family_lines(counter("oar_job_steps_total", "What happened to jobs and submissions.", "step", self._steps)),
            family_lines(counter("oar_jobs_ended_total", "Ended jobs by cause.", "cause", self._causes)),
            self._waits.lines("oar_job_wait_seconds", "How long jobs waited that were started."),
        ]

    def _replace(self, text: str) -> None:
        """Replace the file as a whole: it is read at any moment, by another account."""
        made = f"{self._path}.new"
        with open(made, "w", encoding="utf-8", errors="replace") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
        os.replace(made, self._path)
