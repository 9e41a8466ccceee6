"""Every statement fits the schema, and none reads through the past to find the present."""

import re
from collections.abc import Iterator
from typing import Any, cast

import pytest

from oar.lib.db import migrations, predicates
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.statements import Parameters, Row
from oar.lib.db.transaction import Transaction
from oar.lib.history.sql_history import _STATE_CHANGES
from oar.lib.jobs.records import JobPlace, JobQuery
from oar.lib.jobs.sql_listings import Listings
from oar.lib.jobs.states import Outcome
from tests.builders import execute_sql
from tests.db.history import fill
from tests.db.statements import Statement, statements
from tests.postgres import PostgreSQL

FINISHED = 200_000
LIVE = 500

#: Tables that grow with every job that ever was.
GROWING = {
    "assigned_resources",
    "challenges",
    "event_log_hostnames",
    "event_logs",
    "frag_jobs",
    "job_dependencies",
    "job_resource_descriptions",
    "job_resource_groups",
    "job_state_logs",
    "job_types",
    "jobs",
    "moldable_job_descriptions",
}

#: What may be read whole: the repairs at the server's start look through the dependencies, of which there are few.
READ_WHOLE = {
    "db.invariants._ENDED_JOBS": {"job_dependencies"},
    "adoption.sql_adoption._PROJECTS": {"jobs"},  # once, when a database is adopted
}
#: What is asked for each job by its id looks at no other live job.
BY_ID = {"jobs.sql_runs._THESE_IN_HAND"}


@pytest.fixture
def past(postgres: PostgreSQL, template: DatabaseSettings) -> Iterator[Database]:
    """A database with 200,000 finished jobs and 500 live ones."""
    postgres.execute(f"CREATE DATABASE past TEMPLATE {template.name} OWNER oar")
    settings = template._replace(name="past")
    admin = postgres.connect("past", "postgres")
    migrations.secure_database(migrations.MigrationConnection(admin), settings)
    admin.close()
    database = Database(settings)
    fill(database, finished=FINISHED, live=LIVE)
    yield database
    database.close()
    postgres.execute("DROP DATABASE past")


@pytest.fixture
def connection(past: Database) -> Iterator[Any]:
    """A connection that plans without knowing the values."""
    opened = past.connection()
    with opened.cursor() as cursor:
        cursor.execute("SET plan_cache_mode TO force_generic_plan; SET max_parallel_workers_per_gather TO 0")
    yield opened
    opened.close()


@pytest.mark.parametrize("statement", statements(), ids=str)
def test_a_statement_fits_the_schema(database: Database, statement: Statement) -> None:
    with database.begin() as tx:
        tx.execute(f"PREPARE question AS {statement.sql}")
        tx.execute("DEALLOCATE question")


@pytest.mark.slow
def test_no_statement_reads_through_the_past(past: Database, connection: Any) -> None:
    """Each finds its rows by an index.  One test for all, so that the past is made once."""
    assert_live_jobs_are_known_to_be_few(connection)
    slow = {}
    for statement in statements():
        plan = plan_of(connection, statement)
        read = set(re.findall(r"Seq Scan on (\w+)", plan))
        if read & GROWING - READ_WHOLE.get(statement.name, set()):
            slow[statement.name] = plan
        if statement.name in BY_ID and "Index Scan using jobs_pkey" not in plan:
            slow[statement.name] = plan
    slow |= {name: plan for name, plan in folded_plans(past) if set(re.findall(r"Seq Scan on (\w+)", plan)) & GROWING}
    assert not slow, "\n\n".join(f"{name}\n{plan}" for name, plan in slow.items())


def test_the_details_of_a_job_are_found_by_indexes_in_a_database_of_a_few_weeks(database: Database) -> None:
    """With the default costs, PostgreSQL would read all jobs of a small site for each launch."""
    fill(database, finished=2000, live=20)
    (details,) = (each for each in statements() if each.name == "jobs.sql_jobs._READ")
    with database.begin() as tx:
        tx.execute(f"PREPARE question AS {details.sql}")
        plan = "\n".join(tx.column("EXPLAIN EXECUTE question (NULL)"))
        tx.execute("DEALLOCATE question")
    assert not set(re.findall(r"Seq Scan on (\w+)", plan)) & GROWING, plan


def test_jobs_with_a_rare_outcome_are_found_by_an_index_and_few_are_read(database: Database) -> None:
    fill(database, finished=2000, live=20)
    ends = "SELECT job_id, stop_time, CASE WHEN row_number() OVER () < 4 THEN 'WALLTIME' ELSE 'SUCCESS' END"
    execute_sql(database, f"INSERT INTO job_ends (job_id, date, code) {ends} FROM jobs WHERE accounted = 'YES'")
    execute_sql(database, "UPDATE jobs SET array_id = 1")
    execute_sql(database, "ANALYZE")
    query, place = JobQuery(states=None, outcomes=frozenset({Outcome.TIMEOUT})), JobPlace(1, newest_first=True)
    with database.snapshot() as tx:
        explained = Explained(tx)
        assert Listings(cast(Transaction, explained)).folded(query, place).rows
    assert "using job_ends_code" in explained.plans[0]
    assert explained.parameters[1][-2] == 10 * place.limit


def assert_live_jobs_are_known_to_be_few(connection: Any) -> None:
    """Whoever takes them for a part of all reads through the past as soon as it is long."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) SELECT FROM jobs j WHERE {predicates.LIVE}")
        assert cursor.fetchone()[0][0]["Plan"]["Plan Rows"] <= 10 * LIVE


def plan_of(connection: Any, statement: Statement) -> str:
    """Return how the server would carry out the statement, whatever its parameters are."""
    values = f"({', '.join(['NULL'] * statement.parameters)})" if statement.parameters else ""
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
        cursor.execute(f"PREPARE question AS {statement.sql}")
        cursor.execute(f"EXPLAIN EXECUTE question{values}")
        return "\n".join(row[0] for row in cursor.fetchall())


class Explained:
    """A transaction that explains the statements that it runs."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.plans: list[str] = []
        self.parameters: list[Any] = []

    def rows(self, sql: str, parameters: Parameters) -> list[Row]:
        self.plans.append("\n".join(self._tx.column(f"EXPLAIN {sql}", parameters)))
        self.parameters.append(parameters)
        return self._tx.rows(sql, parameters)


def folded_plans(past: Database) -> Iterator[tuple[str, str]]:
    """Yield the plans of the statements of folded pages, which are made of the conditions of each list."""
    with past.begin() as tx:
        tx.execute("UPDATE jobs SET array_id = job_id / 4 + 1")
        first, last = tx.row("SELECT min(job_id), max(job_id) FROM jobs") or (0, 0)
    queries = {"live": JobQuery(), "all": JobQuery(states=None), "of a user": JobQuery(states=None, users=("user7",))}
    for name, query in queries.items():
        for place in (JobPlace(200, newest_first=True), JobPlace(200, (first + last) // 2)):
            with past.snapshot() as tx:
                explained = Explained(tx)
                assert Listings(cast(Transaction, explained)).folded(query, place).rows
                for number, plan in enumerate(explained.plans):
                    yield f"job_pages.folded {name} {place} {number}", plan


def test_the_reservations_of_a_long_list_are_not_looked_for_job_by_job(database: Database) -> None:
    """Ten thousand jobs on a cluster without reservations: what is in none costs nothing."""
    with database.begin() as tx:
        question = f"EXPLAIN (ANALYZE, TIMING OFF) {tx.reservations.NUMBERS.sql}"
        plan = tx.column(question, (list(range(1, 10_001)),))
    assert max(int(loops) for line in plan for loops in re.findall(r"loops=(\d+)", line)) < 10, "\n".join(plan)


def test_the_change_before_one_is_not_looked_for_among_those_of_all_jobs(database: Database) -> None:
    """A young site that gets thousands of jobs at once: nobody has counted its changes."""
    with database.begin() as tx:
        tx.execute(
            "INSERT INTO job_state_logs (job_id, job_state) SELECT n, 'Waiting' FROM generate_series(1, 20000) n"
        )
        plan = "\n".join(tx.column(f"EXPLAIN {_STATE_CHANGES}", (0, 20_000, 500)))
    assert "job_state_logs_pkey on job_state_logs b" not in plan, plan
