"""What is read of a job for its launch and its end."""

import pytest

from oar.lib.db.database import Database
from oar.lib.jobs.sql_jobs import FEW_RESOURCES
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources, execute_sql


@pytest.mark.parametrize("number", [1, FEW_RESOURCES, FEW_RESOURCES + 1])
def test_few_resources_come_with_their_job_and_are_as_they_would_be_alone(database: Database, number: int) -> None:
    ids = add_resources(database, nodes=1, cores=number + 1)[:number]
    job_id = add_job(database, JobState.RUNNING, on=ids[::-1])
    with database.begin() as tx:
        detail = tx.jobs.read_details([job_id])[job_id]
        assert detail.resources == set(ids)
        assert detail.rows == (tuple(tx.resources.select(ids)) if number <= FEW_RESOURCES else None)
        assert tx.jobs.read_details([add_job(database)]).popitem()[1].rows == ()


def test_a_new_property_is_seen_by_who_has_asked_before(database: Database) -> None:
    """What is prepared may not have other columns than before; columns come while programs run."""
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database)[:1])
    for _ in range(3):
        with database.begin() as tx:
            tx.jobs.read_details([job_id])
            known = tx.column("SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%r.*%'")
    assert len(known) == 1
    execute_sql(database, "ALTER TABLE resources ADD COLUMN gpu integer DEFAULT 5")
    with database.begin() as tx:
        (row,) = tx.jobs.read_details([job_id])[job_id].rows or ()
        assert row.properties["gpu"] == 5
        tx.execute("ALTER TABLE resources DROP COLUMN gpu")
    with database.begin() as tx:
        (row,) = tx.jobs.read_details([job_id])[job_id].rows or ()
        assert "gpu" not in row.properties
