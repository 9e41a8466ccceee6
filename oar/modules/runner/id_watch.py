"""Notices that the database is older than it was: the newest job that was ever seen is kept beside the database.

The file is in OAR_RUN_DIR.  It says only which number was given, and a database in which that number has not been
drawn yet is another one, or one of an earlier day.
"""

import logging
from typing import TYPE_CHECKING

from oar.lib.db.system import JOBS
from oar.lib.jobs import newest_job
from oar.lib.nodes import restoration

if TYPE_CHECKING:
    from oar.lib.db.database import Database

log = logging.getLogger(__name__)


class IdWatch:
    """Follows the numbers of jobs."""

    def __init__(self, run_directory: str) -> None:
        self._directory = run_directory

    def look(self, database: "Database") -> bool:
        """Do what a restored database needs, if it is one; return whether it is.

        Raises DatabaseUnavailable, OSError.
        """
        seen = newest_job.read(self._directory)
        with database.begin() as tx:
            newest = tx.system.newest_job()
            is_older = restoration.is_older(tx.system.id_sequences()[JOBS], seen)
            report = restoration.after_restore(tx, seen).report if is_older else ""
        for line in report.splitlines():
            log.warning("%s", line)
        if is_older or newest > seen:
            newest_job.write(self._directory, newest)
        return is_older
