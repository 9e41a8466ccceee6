"""--check --deep finds what a crash could leave behind; --fix-index puts right what can be."""

from collections.abc import Callable

import pytest

from oar.lib.db.database import Database
from oar.lib.db.migrations import Migrator
from oar.lib.db.transaction import Transaction
from tests.builders import execute_sql
from tests.conftest import SETUP

Said = list[str]


def found(database: Database) -> Said:
    with database.snapshot() as tx:
        return [str(violation) for violation in tx.invariants.violations(database.settings.ro_user)]


def job(tx: Transaction, state: str, *, resource: int | None = None, kind: str | None = None, stop: int = 0) -> int:
    """Insert a job with all its rows, as they are while it lives; return its id."""
    job_id: int = tx.value(
        "INSERT INTO jobs (state, queue_name, job_user, stop_time) VALUES (%s, 'default', 'alice', %s)"
        " RETURNING job_id",
        (state, stop),
    )
    moldable = tx.value(
        "INSERT INTO moldable_job_descriptions (moldable_job_id) VALUES (%s) RETURNING moldable_id", (job_id,)
    )
    group = tx.value(
        "INSERT INTO job_resource_groups (res_group_moldable_id) VALUES (%s) RETURNING res_group_id", (moldable,)
    )
    tx.execute(
        "INSERT INTO job_resource_descriptions (res_job_group_id, res_job_resource_type, res_job_order)"
        " VALUES (%s, 'core', 0)",
        (group,),
    )
    tx.execute("INSERT INTO job_state_logs (job_id, job_state, date_start) VALUES (%s, %s, 50)", (job_id, state))
    if kind:
        tx.execute("INSERT INTO job_types (job_id, type) VALUES (%s, %s)", (job_id, kind))
    if resource:
        tx.execute("UPDATE jobs SET assigned_moldable_job = %s WHERE job_id = %s", (moldable, job_id))
        tx.execute(
            "INSERT INTO assigned_resources (moldable_job_id, resource_id) VALUES (%s, %s)", (moldable, resource)
        )
    return job_id


def resource(tx: Transaction) -> int:
    """Insert a resource with its log; return its id."""
    resource_id: int = tx.value("INSERT INTO resources (network_address) VALUES ('node-1') RETURNING resource_id")
    tx.execute(
        "INSERT INTO resource_logs (resource_id, attribute, value) VALUES (%s, 'state', 'Alive')", (resource_id,)
    )
    return resource_id


def test_a_new_database_is_in_order(database: Database) -> None:
    assert found(database) == []


def test_jobs_as_they_live_are_in_order(database: Database) -> None:
    with database.begin() as tx:
        core = resource(tx)
        job(tx, "Waiting")
        job(tx, "Running", resource=core)
        job(tx, "Running", resource=core, kind="timesharing=*,*")
        job(tx, "Suspended", resource=core)
        job(tx, "Finishing", resource=resource(tx), stop=60)
    assert found(database) == []


def test_an_ended_job_that_left_everything_behind(database: Database) -> None:
    with database.begin() as tx:
        job_id = job(tx, "Error", resource=resource(tx), kind="besteffort", stop=100)
        tx.execute("INSERT INTO job_dependencies (job_id, job_id_required) VALUES (%s, 1)", (job_id,))
        tx.execute("INSERT INTO frag_jobs (frag_id_job) VALUES (%s)", (job_id,))
        tx.execute("INSERT INTO job_runs (job_id) VALUES (%s)", (job_id,))
        tx.execute("INSERT INTO job_reasons (job_id, date, code, reason) VALUES (%s, 1, 'BUSY', '')", (job_id,))
        tx.execute("INSERT INTO challenges (job_id, challenge) VALUES (%s, '12')", (job_id,))
        tx.execute(
            "INSERT INTO gantt_jobs_predictions SELECT moldable_id, 1 FROM moldable_job_descriptions"
            " WHERE moldable_job_id = %s",
            (job_id,),
        )
    assert found(database) == [
        "moldable_job_descriptions: 1 rows: CURRENT, but the job has ended",
        "job_resource_groups: 1 rows: CURRENT, but the job has ended",
        "job_resource_descriptions: 1 rows: CURRENT, but the job has ended",
        "job_types: 1 rows: CURRENT, but the job has ended",
        "job_dependencies: 1 rows: CURRENT, but the job has ended",
        "assigned_resources: 1 rows: CURRENT, but the job has ended",
        "job_state_logs: 1 rows: open, but the job has ended",
        "assigned_resources: 1 rows: CURRENT, but no job holds them",
        "frag_jobs: 1 rows: the kill request of an ended job is open",
        "job_runs: 1 rows: the Runner has a row of an ended job",
        "job_reasons: 1 rows: a waiting reason of an ended job",
        "jobs: 1 rows: ended without an end cause",
        "challenges: 1 rows: the challenge of an ended job",
        "gantt_jobs_predictions: 1 rows: the prediction of an ended job",
    ]


BREAKS: dict[str, tuple[Callable[[Transaction, int], object], str]] = {
    "no request": (
        lambda tx, _: tx.execute("DELETE FROM moldable_job_descriptions"),
        "jobs: 1 rows: live, but without a request",
    ),
    "stop date": (
        lambda tx, _: tx.execute("UPDATE jobs SET stop_time = 9"),
        "jobs: 1 rows: not ended nor Finishing, but with a stop date",
    ),
    "queue": (
        lambda tx, _: tx.execute("UPDATE jobs SET queue_name = 'gone'"),
        "jobs: 1 rows: live, in a queue that does not exist",
    ),
    "log of another state": (
        lambda tx, _: tx.execute("UPDATE job_state_logs SET job_state = 'Hold'"),
        "job_state_logs: 1 rows: open, but the job has another state",
    ),
    "log closed": (
        lambda tx, _: tx.execute("UPDATE job_state_logs SET date_stop = 9"),
        "job_state_logs: 1 rows: a live job has no open row",
    ),
    "resource taken twice": (
        lambda tx, core: job(tx, "Running", resource=core),
        "assigned_resources: 1 rows: a resource has two jobs that cannot share it",
    ),
    "state of a resource": (
        lambda tx, _: tx.execute("UPDATE resources SET state = 'Dead'"),
        "resource_logs: 1 rows: the state of a resource has no open row",
    ),
    "two versions": (
        lambda tx, _: tx.execute("INSERT INTO schema (version) VALUES ('3.0.0')"),
        "schema: 1 rows: there must be one row",
    ),
    "alembic": (
        lambda tx, _: tx.execute("UPDATE alembic_version SET version_num = '9'"),
        "alembic_version: 1 rows: differs from schema",
    ),
    "end of a live job": (
        lambda tx, _: tx.execute("INSERT INTO job_ends SELECT job_id, 1, 'SUCCESS' FROM jobs"),
        "job_ends: 1 rows: end cause of a job that has not ended",
    ),
    "usage of no job": (
        lambda tx, _: tx.execute("INSERT INTO job_usage (job_id, network_address) VALUES (4711, 'n')"),
        "job_usage: 1 rows: the job does not exist",
    ),
    "no round": (
        lambda tx, _: tx.execute("DELETE FROM gantt_jobs_predictions"),
        "gantt_jobs_predictions: 1 rows: the date of the last round is missing",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_each_broken_invariant_is_named(database: Database, name: str) -> None:
    breaks, message = BREAKS[name]
    with database.begin() as tx:
        core = resource(tx)
        job(tx, "Running", resource=core)
    assert found(database) == []
    with database.begin() as tx:
        breaks(tx, core)
    assert found(database) == [message]


def test_an_ended_job_without_a_date(database: Database) -> None:
    with database.begin() as tx:
        tx.execute("INSERT INTO jobs (state) VALUES ('Terminated')")
        tx.execute("INSERT INTO job_ends SELECT job_id, 1, 'SUCCESS' FROM jobs")
    assert found(database) == ["jobs: 1 rows: ended without a stop date"]


@pytest.fixture
def scratch(database: Database) -> "Callable[[str, str], Said]":
    """Break the schema with a statement, look, and mend it with another."""

    def broken(statement: str, mend: str) -> Said:
        execute_sql(database, statement)
        try:
            return found(database)
        finally:
            execute_sql(database, mend)

    return broken


#: What is done to the schema, what undoes it, what is said of it.
DAMAGES = [
    ("DROP INDEX md5sum", "CREATE INDEX md5sum ON files (md5sum)", "files: 1 rows: the index md5sum is missing"),
    (
        "ALTER TABLE job_usage RENAME TO hidden",
        "ALTER TABLE hidden RENAME TO job_usage",
        "job_usage: 1 rows: the table is missing",
    ),
    (
        "ALTER VIEW view_nodes RENAME TO hidden",
        "ALTER VIEW hidden RENAME TO view_nodes",
        "view_nodes: 1 rows: the view is missing",
    ),
    (
        "ALTER TABLE files RENAME size TO bytes",
        "ALTER TABLE files RENAME bytes TO size",
        "files: 1 rows: the column size is missing",
    ),
    (
        "ALTER TABLE queues ALTER priority TYPE bigint",
        "ALTER TABLE queues ALTER priority TYPE integer",
        "queues: 1 rows: the column priority is of type bigint",
    ),
    (
        "ALTER TABLE queues RENAME CONSTRAINT queues_state_check TO other",
        "ALTER TABLE queues RENAME CONSTRAINT other TO queues_state_check",
        "queues: 1 rows: the constraint queues_state_check is missing",
    ),
    (
        "GRANT SELECT ON job_runs TO oar_ro",
        "REVOKE SELECT ON job_runs FROM oar_ro",
        "job_runs: 1 rows: oar_ro may read it",
    ),
]


@pytest.mark.parametrize(("statement", "mend", "message"), DAMAGES)
def test_what_is_missing_or_open_in_the_schema(
    scratch: Callable[[str, str], Said], statement: str, mend: str, message: str
) -> None:
    assert scratch(statement, mend) == [message]


def test_columns_of_administrators_are_nobodys_business(database: Database) -> None:
    execute_sql(database, "ALTER TABLE resources ADD COLUMN gpu integer")
    assert found(database) == []


def test_fix_index_closes_what_ended_jobs_left_open(database: Database) -> None:
    with database.begin() as tx:
        ended = job(tx, "Terminated", kind="besteffort", stop=100)
        tx.execute("INSERT INTO frag_jobs (frag_id_job) VALUES (%s)", (ended,))
        live = job(tx, "Running", resource=resource(tx), kind="besteffort")
        tx.execute("DROP INDEX jobs_live_state")
    said: Said = []
    Migrator(database.settings, SETUP, say=said.append).fix_index()
    assert found(database) == []
    assert said == [
        "moldable_job_descriptions: 1 rows: set to LOG, the job has ended",
        "job_resource_groups: 1 rows: set to LOG, the job has ended",
        "job_resource_descriptions: 1 rows: set to LOG, the job has ended",
        "job_types: 1 rows: set to LOG, the job has ended",
        "job_state_logs: 1 rows: closed, the job has ended",
        "job_ends: 1 rows: added with the end cause unknown",
        "frag_jobs: 1 rows: closed, the job has ended",
        "jobs_live_state: created",
    ]
    with database.begin() as tx:
        assert tx.value("SELECT date_stop FROM job_state_logs WHERE job_id = %s", (ended,)) == 100
        assert tx.rows("SELECT types_index FROM job_types WHERE job_id = %s", (live,)) == [("CURRENT",)]
    again: Said = []
    Migrator(database.settings, SETUP, say=again.append).fix_index()
    assert again == []
