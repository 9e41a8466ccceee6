"""What is beside a job in other tables, for those who launch and end it (``tx.job_details``)."""

from collections.abc import Collection
from typing import NamedTuple

from oar.lib.db.sql.statements import Prepared, Row, Table
from oar.lib.facts.records import JobKeys

_READ = Prepared("""
    SELECT j.job_id, COALESCE(m.moldable_walltime, 0), i.reservation_id,
        ARRAY(SELECT t.type FROM job_types t WHERE t.job_id = j.job_id AND t.types_index = 'CURRENT'
              ORDER BY t.job_type_id),
        ARRAY(SELECT a.resource_id FROM assigned_resources a
              WHERE a.moldable_job_id = m.moldable_id AND a.assigned_resource_index = 'CURRENT'),
        c.challenge, c.ssh_private_key, c.ssh_public_key
    FROM jobs j
    LEFT JOIN moldable_job_descriptions m
        ON m.moldable_id = j.assigned_moldable_job AND m.moldable_job_id = j.job_id
    LEFT JOIN challenges c ON c.job_id = j.job_id
    LEFT JOIN reservation_jobs i ON i.job_id = j.job_id
    WHERE j.job_id = ANY(%s)""")


class JobDetail(NamedTuple):
    """What is beside one job."""

    walltime: int  #: of the alternative that has its resources, 0 if there is none
    reservation_id: int | None  #: of the advance reservation that it is in
    types: tuple[str, ...]  #: those that are valid
    resources: frozenset[int]  #: that it has now
    keys: JobKeys


class JobDetails(Table):
    """A question about many tables."""

    def read(self, ids: Collection[int]) -> dict[int, JobDetail]:
        """Return what is beside those of some jobs that exist."""
        return {row[0]: _detail(row) for row in self._tx.rows(_READ, (list(ids),))}


def _detail(row: Row) -> JobDetail:
    _, walltime, reservation_id, types, resources, challenge, private_key, public_key = row
    keys = JobKeys(challenge or "", private_key, public_key)
    return JobDetail(walltime, reservation_id, tuple(types), frozenset(resources), keys)
