"""Detect a restored database: the highest job number ever seen is also stored in a file.

The file is in OAR_RUN_DIR. If the database has not assigned that number yet, it is an older state, or another database.
"""

import logging
from typing import TYPE_CHECKING

from oar.lib.db.system import JOBS
from oar.lib.jobs import recovery
from oar.lib.nodes import restoration

if TYPE_CHECKING:
    from oar.lib.db.database import Database

log = logging.getLogger(__name__)


def repair_if_restored(database: "Database", run_directory: str) -> bool:
    """Repair the database if it was restored. Return whether it was. Raises DatabaseUnavailable, OSError."""
    seen = recovery.read_newest_job(run_directory)
    with database.begin() as tx:
        newest = tx.system.newest_job()
        is_older = restoration.is_older(tx.system.id_sequences()[JOBS], seen)
        report = restoration.after_restore(tx, seen).report if is_older else ""
    for line in report.splitlines():
        log.warning("%s", line)
    if is_older or newest > seen:
        recovery.write_newest_job(run_directory, newest)
    return is_older
