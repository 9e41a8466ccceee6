"""What the two logins may do."""

import psycopg2
import pytest
from psycopg2 import errors

from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from tests.builders import execute_sql
from tests.postgres import PostgreSQL

SECRET = [
    *("public.challenges", "public.api_tokens", "public.token_jobs", "public.submission_keys", "public.job_runs"),
    *("public.jobs", "public.files", "public.history_positions", "public.policy_log", "public.task_runs"),
]


@pytest.mark.parametrize("table", SECRET)
def test_secret_tables_are_closed_to_the_read_only_login(database: Database, table: str) -> None:
    with database.readonly() as tx, pytest.raises(errors.InsufficientPrivilege):
        tx.rows(f"SELECT * FROM {table}")


def test_every_other_table_and_view_is_open_to_it(database: Database) -> None:
    with database.begin() as tx:
        names = tx.column(
            "SELECT format('%I.%I', relnamespace::regnamespace, relname) FROM pg_class WHERE relkind IN ('r', 'v')"
            " AND relnamespace IN ('public'::regnamespace, 'oar_public'::regnamespace)"
        )
    with database.readonly() as tx:
        closed = [name for name in names if not tx.value("SELECT has_table_privilege(%s, 'SELECT')", (name,))]
        assert sorted(closed) == sorted(SECRET)


def test_of_staged_files_it_sees_all_but_the_checksums(database: Database) -> None:
    with database.begin() as tx:
        tx.new_jobs.add_file("0" * 32, "/stageins/" + "0" * 32, "tar", 5)
    with database.readonly() as tx:
        assert tx.rows("SELECT compression, size FROM files") == [("tar", 5)]
        with pytest.raises(errors.InsufficientPrivilege):
            tx.rows("SELECT file_id FROM files WHERE md5sum LIKE '0%'")


def test_the_environment_of_jobs_is_hidden_from_it(database: Database) -> None:
    execute_sql(database, "INSERT INTO jobs (job_user, job_env) VALUES ('alice', 'SECRET=1')")
    with database.readonly() as tx:
        assert tx.rows("SELECT job_user, job_env FROM jobs WHERE job_env IS NULL") == [("alice", None)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE queues SET priority = 1",
        "DELETE FROM event_logs",
        "CREATE TABLE mine (a integer)",
        "CREATE SCHEMA mine",
        "CREATE TEMPORARY TABLE resources (a integer)",
        "SELECT nextval('jobs_job_id_seq')",
        "SELECT pg_advisory_lock(1, 2)",
        "SELECT pg_try_advisory_xact_lock(1)",
        "SELECT pg_sleep(0)",
    ],
)
def test_the_read_only_login_cannot_change_or_block_anything(settings: DatabaseSettings, statement: str) -> None:
    connection = psycopg2.connect(host=settings.host, dbname=settings.name, user=settings.ro_user)
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only TO off")
            with pytest.raises(errors.InsufficientPrivilege):
                cursor.execute(statement)
    finally:
        connection.close()


def test_it_begins_confined_whatever_program_opens_it(settings: DatabaseSettings) -> None:
    connection = psycopg2.connect(host=settings.host, dbname=settings.name, user=settings.ro_user)
    names = ["default_transaction_read_only", "statement_timeout", "search_path", "temp_file_limit", "work_mem"]
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}")
            assert cursor.fetchone() == ("on", "1min", "oar_public, public", "300MB", "16MB")
    finally:
        connection.close()


def test_other_logins_do_not_get_in(postgres: PostgreSQL, settings: DatabaseSettings) -> None:
    postgres.execute("DROP ROLE IF EXISTS stranger; CREATE ROLE stranger LOGIN")
    with pytest.raises(psycopg2.OperationalError, match="CONNECT"):
        postgres.connect(settings.name, "stranger")


def test_the_owner_takes_locks(database: Database) -> None:
    with database.hold_lock((1, 2)) as lock:
        assert lock is not None
        with database.hold_lock((1, 2)) as other:
            assert other is None
    with database.hold_lock((1, 2)) as lock:
        assert lock is not None
