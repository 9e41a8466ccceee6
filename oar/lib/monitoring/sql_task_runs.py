"""The last success of each task that a timer runs (``tx.task_runs``)."""

from oar.lib.db.statements import Table
from oar.lib.monitoring.records import ServerTask

_STORE = """
    INSERT INTO task_runs (task, last_success) VALUES (%s, %s)
    ON CONFLICT (task) DO UPDATE SET last_success = EXCLUDED.last_success"""


class TaskRuns(Table):
    """Rows of ``task_runs``."""

    def record_success(self, task: ServerTask) -> None:
        """Store the present date as the last success of a task."""
        self._tx.execute(_STORE, (str(task), self._tx.now))

    def successes(self) -> list[tuple[str, int]]:
        """Return the date of the last success of each task, by its name."""
        return [(task, date) for task, date in self._tx.rows("SELECT task, last_success FROM task_runs ORDER BY task")]
