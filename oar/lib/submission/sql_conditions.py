"""Conditions that live jobs are stored with (``tx.stored_conditions``)."""

from typing import NamedTuple

from oar.lib.db.predicates import LIVE
from oar.lib.db.statements import Table

_OF_LIVE_JOBS = f"""
    SELECT j.job_id, j.job_user, j.properties FROM jobs j WHERE {LIVE} AND j.properties <> ''
    UNION
    SELECT j.job_id, j.job_user, g.res_group_property FROM jobs j
    JOIN moldable_job_descriptions m ON m.moldable_job_id = j.job_id AND m.moldable_index = 'CURRENT'
    JOIN job_resource_groups g ON g.res_group_moldable_id = m.moldable_id AND g.res_group_index = 'CURRENT'
    WHERE {LIVE} AND g.res_group_property <> ''
    ORDER BY 1, 3"""


class StoredCondition(NamedTuple):
    """A condition of a job, on resources."""

    job_id: int
    user: str
    text: str


class StoredConditions(Table):
    """The conditions of jobs (``-p``) and of the groups of their requests (``{...}``)."""

    def of_live_jobs(self) -> list[StoredCondition]:
        """Return those of the jobs that have not ended, by job."""
        return [StoredCondition(*row) for row in self._tx.rows(_OF_LIVE_JOBS)]
