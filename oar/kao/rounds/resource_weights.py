"""The property ``scheduler_priority``: how close a resource is to besteffort and timesharing jobs."""

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction


class ResourceWeights:
    """Keeps ``scheduler_priority`` of all resources up to date."""

    def __init__(self, database: Database, config: Config) -> None:
        self._database = database
        self._levels = [name for name in config.scheduler_priority_hierarchy_order.split("/") if name]
        self._are_changes_logged = config.log_scheduler_priority_changes
        self._may_be_set = True  #: there may be weights; the first round looks

    def update(self) -> None:
        """Update the weights while there are besteffort or timesharing jobs, and once after the last of them."""
        if not self._levels or not (self._may_be_set or self._database.look(_has_shared_jobs)):
            return
        with self._database.begin() as tx:
            has_shared_jobs = _has_shared_jobs(tx)
            columns = tx.resources.columns()
            levels = [name for name in self._levels if name in columns]
            tx.resources.weigh(levels, logged=self._are_changes_logged)
        self._may_be_set = has_shared_jobs


def _has_shared_jobs(tx: Transaction) -> bool:
    return tx.resources.has_shared_jobs()
