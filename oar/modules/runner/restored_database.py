"""Detect a restored database, and a promoted replica that may lack commits of the former primary.

The highest job number ever seen is also stored in a file in OAR_RUN_DIR. If the database has not assigned that number
yet, it is an older state, or another database. The timeline and the kind of replication are stored in the database: if
the timeline has increased since then and replication was asynchronous, commits may be lost.
"""

import logging
from typing import TYPE_CHECKING

from oar.lib.db.system import ASYNCHRONOUS, JOBS, LOST, Replication, ServerState
from oar.lib.jobs import recovery
from oar.lib.nodes import restoration

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

log = logging.getLogger(__name__)


def repair_if_restored(database: "Database", run_directory: str) -> bool:
    """Repair the database if commits may be missing. Return whether they may. Raises DatabaseUnavailable, OSError."""
    seen = recovery.read_newest_job(run_directory)
    with database.begin() as tx:
        newest = tx.system.newest_job()
        is_promoted = _note_promotion(tx, is_job_missing=tx.system.newest_job(seen) < seen)
        is_older = is_promoted or restoration.is_older(tx.system.id_sequences()[JOBS], seen)
        report = restoration.after_restore(tx, seen, is_promoted=is_promoted).report if is_older else ""
    for line in report.splitlines():
        log.warning("%s", line)
    if is_older or newest > seen:
        recovery.write_newest_job(run_directory, newest)
    return is_older


def _note_promotion(tx: "Transaction", *, is_job_missing: bool) -> bool:
    """Store the present timeline; return whether a replica was promoted that may lack commits."""
    present = tx.system.replication()
    if tx.system.read_state(ServerState.DATABASE) == str(present):
        return False
    stored = tx.system.lock_state(ServerState.DATABASE)  # another process may have noticed it meanwhile
    tx.system.store_state(ServerState.DATABASE, str(present))
    return may_lack_commits(stored, present, is_job_missing=is_job_missing)


def may_lack_commits(stored: str, present: Replication, *, is_job_missing: bool) -> bool:
    """Return whether commits of the stored timeline may be missing on the present one.

    >>> may_lack_commits("1 asynchronous", Replication(2, ASYNCHRONOUS), is_job_missing=False)
    True
    >>> may_lack_commits("1 synchronous", Replication(2, ASYNCHRONOUS), is_job_missing=False)
    False
    """
    timeline, _, mode = stored.partition(" ")
    is_later = timeline.isdigit() and int(timeline) < present.timeline
    return mode == LOST or (is_later and (mode == ASYNCHRONOUS or is_job_missing))
