"""The nodes whose jobs' curves are recorded: the Runner reads them in a thread of its own, and names them to bipbips.

See docs/design/nodes.rst, "Curves of jobs".
"""

import logging
import threading
import time
from collections.abc import Sequence

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.curves import PERIOD
from oar.lib.remote.requests import most_watched

log = logging.getLogger("runner")

#: Names are read for so many times the nodes that all bipbips can watch: the nodes are not distributed evenly.
_SURPLUS = 2


class WatchedNodes:
    """The nodes with jobs that have run for a period."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next = 0.0
        self._thread: threading.Thread | None = None
        self._jobs: Sequence[int] = ()  #: for which the nodes were read
        self._nodes: list[str] = []
        self._is_failing = False

    def follow(self, config: Config) -> list[str]:
        """Return the nodes, the same list until others are found. Start to look for them if it is time."""
        is_reading = self._thread is not None and self._thread.is_alive()
        if time.monotonic() >= self._next and not is_reading:
            self._next = time.monotonic() + PERIOD
            if config.job_curves:
                self._thread = threading.Thread(target=self._look, args=(config,), name="watched nodes", daemon=True)
                self._thread.start()
            else:
                self._jobs, self._nodes = (), self._nodes and []
        return self._nodes

    def _look(self, config: Config) -> None:
        try:
            self.read(_SURPLUS * config.bipbip_workers * most_watched(config.oar_ssh_pool_max))
            self._is_failing = False
        except DatabaseUnavailable:
            pass  # the Runner itself reports it
        except Exception:
            if not self._is_failing:
                log.exception("cannot find the nodes with running jobs: their curves are not recorded")
            self._is_failing = True

    def read(self, most: int) -> None:
        """Read the nodes if the jobs are others than before."""
        with self._database.snapshot() as tx:
            jobs = tx.job_curves.watched_jobs(tx.now - PERIOD)
            if jobs != self._jobs:
                self._nodes = tx.job_curves.nodes(jobs, most)
        self._jobs = jobs
