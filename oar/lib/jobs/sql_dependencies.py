"""What jobs depend on, and what depends on them (``tx.job_dependencies``)."""

from collections.abc import Collection

from oar.lib.db.statements import Table
from oar.lib.jobs.records import Dependency

_COLUMNS = "job_id, job_id_required, dependency_condition, min_start_shift, max_start_shift"
_OF = f"""
    SELECT {_COLUMNS} FROM job_dependencies WHERE job_id = ANY(%s) ORDER BY job_id, job_id_required LIMIT %s"""
_ON = f"""
    SELECT {_COLUMNS} FROM job_dependencies WHERE job_id_required = ANY(%s)
    ORDER BY job_id_required, job_id LIMIT %s"""
_DEPENDANTS = """
    WITH RECURSIVE dependants (id) AS (
        SELECT %s::bigint
        UNION SELECT d.job_id FROM dependants, job_dependencies d
            WHERE d.job_id_required = id AND d.job_dependency_index = 'CURRENT')
    SELECT id FROM dependants"""


class JobDependencies(Table):
    """Rows of ``job_dependencies``, of live and of ended jobs."""

    def of(self, ids: Collection[int], most: int) -> list[Dependency]:
        """Return what some jobs depend on, so many dependencies at most."""
        return [Dependency(*row) for row in self._tx.rows(_OF, (list(ids), most))]

    def on(self, ids: Collection[int], most: int) -> list[Dependency]:
        """Return what depends on some jobs, so many dependencies at most."""
        return [Dependency(*row) for row in self._tx.rows(_ON, (list(ids), most))]

    def dependants(self, job_id: int) -> frozenset[int]:
        """Return a job with all live jobs that depend on it, directly or through others."""
        return frozenset(self._tx.column(_DEPENDANTS, (job_id,)))
