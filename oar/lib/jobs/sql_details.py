"""What is beside a job in other tables, for those who launch and end it (``tx.job_details``)."""

import json
from collections.abc import Collection
from typing import NamedTuple

from oar.lib.db.statements import Prepared, Row, Table
from oar.lib.jobs.records import JobKeys
from oar.lib.nodes.records import Resource

#: The rows of so many resources come with their job.  As JSON: it has another column when the table has, which what is
#: prepared cannot have; and it takes thrice as long, which many would feel.
FEW_RESOURCES = 8
_READ = Prepared(f"""
    SELECT j.job_id, COALESCE(m.moldable_walltime, 0), i.reservation_id,
        ARRAY(SELECT t.type FROM job_types t WHERE t.job_id = j.job_id AND t.types_index = 'CURRENT'
              ORDER BY t.job_type_id),
        ARRAY(SELECT a.resource_id FROM assigned_resources a
              WHERE a.moldable_job_id = m.moldable_id AND a.assigned_resource_index = 'CURRENT'),
        (SELECT json_agg(r)::text FROM (
            SELECT r.* FROM assigned_resources a JOIN resources r ON r.resource_id = a.resource_id
            WHERE a.moldable_job_id = m.moldable_id AND a.assigned_resource_index = 'CURRENT'
            LIMIT {FEW_RESOURCES + 1}) r),
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
    rows: tuple[Resource, ...] | None  #: of these, by id; None of more than a few
    keys: JobKeys


class JobDetails(Table):
    """A question about many tables."""

    def read(self, ids: Collection[int]) -> dict[int, JobDetail]:
        """Return what is beside those of some jobs that exist."""
        return {row[0]: _detail(row) for row in self._tx.rows(_READ, (list(ids),))}


def _detail(row: Row) -> JobDetail:
    _, walltime, reservation_id, types, resources, rows, challenge, private_key, public_key = row
    keys = JobKeys(challenge or "", private_key, public_key)
    return JobDetail(walltime, reservation_id, tuple(types), frozenset(resources), _rows(rows), keys)


def _rows(text: str | None) -> tuple[Resource, ...] | None:
    found = json.loads(text) if text else []
    if len(found) > FEW_RESOURCES:
        return None
    return tuple(sorted(map(Resource.of_columns, found), key=lambda resource: resource.id))
