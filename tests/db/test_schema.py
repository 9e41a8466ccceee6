"""The schema of a new database: what the programs and outside readers rely on, and what the two logins may do."""

from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
from psycopg2 import errors

from oar.lib.base.version import SCHEMA
from oar.lib.db import schema
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from tests.builders import execute_sql
from tests.db.catalog import catalog
from tests.postgres import PostgreSQL


@pytest.fixture
def installed(postgres: PostgreSQL, settings: DatabaseSettings) -> Iterator[Any]:
    """A database as it is installed."""
    connection = postgres.connect(settings.name, settings.user)
    yield connection
    connection.close()


def test_all_views_are_there(installed: Any) -> None:
    views = [name for scheme, name, _ in catalog(installed, ("views",))["views"] if scheme == "public"]
    assert views == sorted(schema.VIEWS)


def test_checks_are_named_after_table_and_column(installed: Any) -> None:
    for table, name, definition in catalog(installed, ("constraints",))["constraints"]:
        if definition.startswith("CHECK"):
            column = name.removeprefix(f"{table}_").removesuffix("_check")
            assert f"({column})::text" in definition or f"({column} " in definition


def test_index_names_that_maintenance_scripts_use(installed: Any) -> None:
    names = {name for _, name, _ in catalog(installed, ("indexes",))["indexes"]}
    assert names >= {
        "resource_state",
        "resource_type",
        "resource_next_state",
        "resource_suspended_jobs",
        "ix_resource_logs_id_dstop_attr",
        "state_id",
        "job_array_id",
        "assigned_moldable_job",
        "job_mold",
        "moldable_job",
        "md5sum",
    }


def test_busy_tables_are_vacuumed_early(installed: Any) -> None:
    storage = dict(catalog(installed, ("storage",))["storage"])
    for name in ("jobs", "resources", "frag_jobs", "event_logs", "gantt_jobs_predictions", "gantt_jobs_sets_visu"):
        assert "autovacuum_vacuum_scale_factor=0.02" in storage[name]
        assert "autovacuum_analyze_scale_factor=0.02" in storage[name]
    assert "fillfactor=80" in storage["jobs"]
    assert "fillfactor=80" in storage["resources"]


def test_the_read_only_jobs_have_the_columns_of_jobs_in_their_order(installed: Any) -> None:
    with installed.cursor() as cursor:
        cursor.execute(
            "SELECT table_schema, array_agg(column_name::text || data_type ORDER BY ordinal_position)"
            " FROM information_schema.columns WHERE table_name = 'jobs' GROUP BY table_schema"
        )
        columns = dict(cursor.fetchall())
    assert len(columns) == 2
    assert columns["oar_public"] == columns["public"]


def test_the_first_rows(database: Database) -> None:
    with database.begin() as tx:
        assert tx.rows("SELECT revision, name FROM schema") == [(SCHEMA, "")]
        assert tx.column("SELECT version_num FROM alembic_version")[0].startswith(f"{SCHEMA}.")
        assert tx.rows("SELECT queue_name, priority, scheduler_policy, state FROM queues ORDER BY priority DESC") == [
            ("admin", 10, "kamelot", "Active"),
            ("default", 2, "kamelot", "Active"),
            ("besteffort", 0, "kamelot", "Active"),
        ]
        for table in ("gantt_jobs_predictions", "gantt_jobs_predictions_visu"):
            assert tx.rows(f"SELECT moldable_job_id, start_time FROM {table}") == [(0, 0)]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO jobs (state) VALUES ('Suspend')",
        "INSERT INTO resources (state) VALUES ('alive')",
        "INSERT INTO resources (available_upto) VALUES (2147483648)",
        "INSERT INTO resources (available_upto) VALUES (-1)",
        "INSERT INTO walltime_change (job_id, whole) VALUES (1, 'yes')",
        "INSERT INTO job_dependencies (job_id, job_id_required, dependency_condition) VALUES (1, 2, 'never')",
    ],
)
def test_values_outside_an_enumeration_are_refused(database: Database, statement: str) -> None:
    with pytest.raises(errors.CheckViolation), database.begin() as tx:
        tx.execute(statement)


def test_one_open_row_per_job_and_per_attribute_of_a_resource(database: Database) -> None:
    with database.begin() as tx:
        tx.execute("INSERT INTO job_state_logs (job_id) VALUES (7)")
        tx.execute("INSERT INTO resource_logs (resource_id, attribute, value) VALUES (7, 'state', 'Alive')")
    with pytest.raises(errors.UniqueViolation), database.begin() as tx:
        tx.execute("INSERT INTO job_state_logs (job_id) VALUES (7)")
    with pytest.raises(errors.UniqueViolation), database.begin() as tx:
        tx.execute("INSERT INTO resource_logs (resource_id, attribute, value) VALUES (7, 'state', 'Dead')")


def test_documented_names_that_are_copies(database: Database) -> None:
    with database.begin() as tx:
        tx.execute("INSERT INTO job_types (job_id, type, types_index) VALUES (1, 'besteffort', 'LOG')")
        assert tx.rows("SELECT types_index, type_index FROM job_types") == [("LOG", "LOG")]
        assert tx.value("INSERT INTO files (md5sum) VALUES ('x') RETURNING file_id = idfile") is True


def test_dates_after_2038_fit(database: Database) -> None:
    with database.begin() as tx:
        tx.execute("INSERT INTO jobs (start_time, stop_time) VALUES (4102444800, 5000000000)")
        tx.execute("INSERT INTO moldable_job_descriptions (moldable_walltime) VALUES (3000000000)")
        assert tx.value("SELECT stop_time - start_time FROM jobs") == 897555200


def test_resources_of_predictions_are_written_one_by_one_as_into_a_table(database: Database) -> None:
    for suffix in ("", "_visu"):
        view, stored = f"gantt_jobs_resources{suffix}", f"SELECT * FROM gantt_jobs_sets{suffix} ORDER BY 1"
        with database.begin() as tx:
            tx.execute(f"INSERT INTO {view} (moldable_job_id, resource_id) VALUES (7, 1), (7, 3), (8, 2), (7, 2)")
            assert tx.rows(stored) == [(7, [1, 3, 2]), (8, [2])]
            tx.execute(f"DELETE FROM {view} WHERE resource_id = 2")
            tx.execute(f"UPDATE {view} SET resource_id = 4 WHERE resource_id = 3")
            assert tx.rows(stored) == [(7, [1, 4])]
            assert tx.rows(f"SELECT moldable_job_id, resource_id FROM {view} ORDER BY 2") == [(7, 1), (7, 4)]
        with pytest.raises(errors.UniqueViolation, match="alternative 7 already has"), database.begin() as tx:
            tx.execute(f"INSERT INTO {view} VALUES (7, 4)")


# -- views ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def reservation(database: Database) -> dict[str, int]:
    """A reservation that is a container with a running and a waiting inner job; ids by their names."""
    with database.begin() as tx:
        ids = {}
        for name, state, start, kind, types, walltime in [
            ("container", "Running", 1000, "Scheduled", ["container=box"], 500),
            ("running", "Running", 1100, "None", ["inner=box", "idempotent"], 100),
            ("waiting", "Waiting", 0, "None", ["inner={container}"], 100),
            ("ended", "Terminated", 1100, "None", ["inner={container}"], 100),
        ]:
            job = tx.value(
                "INSERT INTO jobs (job_name, job_user, project, state, start_time, submission_time, reservation,"
                " stop_time) VALUES (%s, 'alice', 'default', %s, %s, 900, %s, %s) RETURNING job_id",
                (name, state, start, kind, 1150 if state == "Terminated" else 0),
            )
            moldable = tx.value(
                "INSERT INTO moldable_job_descriptions (moldable_job_id, moldable_walltime) VALUES (%s, %s)"
                " RETURNING moldable_id",
                (job, walltime),
            )
            tx.execute(
                "UPDATE jobs SET assigned_moldable_job = %s WHERE job_id = %s AND start_time > 0", (moldable, job)
            )
            ids[name] = job
            ids[f"{name} moldable"] = moldable
            for kind_of_job in types:
                text = kind_of_job.format(**ids)
                tx.execute("INSERT INTO job_types (job_id, type) VALUES (%s, %s)", (job, text))
    return ids


def test_view_jobs(database: Database, reservation: dict[str, int]) -> None:
    with database.begin() as tx:
        resources = tx.column(
            "INSERT INTO resources (network_address) VALUES ('n1'), ('n1'), ('n2'), ('') RETURNING resource_id"
        )
        for resource in resources:
            tx.execute(
                "INSERT INTO assigned_resources (moldable_job_id, resource_id) VALUES (%s, %s)",
                (reservation["ended moldable"], resource),
            )
        tx.execute(
            "INSERT INTO gantt_jobs_predictions_visu (moldable_job_id, start_time) VALUES (%s, 2000)",
            (reservation["waiting moldable"],),
        )
    question = (
        "SELECT walltime, nb_resources, nb_nodes, run_time, planned_start, types FROM view_jobs WHERE job_id = %s"
    )
    with database.readonly() as tx:
        ended = tx.row(question, (reservation["ended"],))
        waiting = tx.row(question, (reservation["waiting"],))
        assert tx.value("SELECT wait_time FROM view_jobs WHERE job_id = %s", (reservation["ended"],)) == 200
    inner = [f"inner={reservation['container']}"]
    assert ended == (100, 4, 2, 50, None, inner)
    assert waiting == (100, 0, 0, 0, 2000, inner)


def test_view_nodes(database: Database) -> None:
    with database.begin() as tx:
        ids = tx.column(
            "INSERT INTO resources (network_address, state, available_upto, drain, last_job_date) VALUES"
            " ('n1', 'Alive', 2147483647, 'NO', 5), ('n1', 'Absent', 2147483646, 'YES', 9),"
            " ('n1', 'Absent', 2147483647, 'NO', 0), ('n1', 'Dead', 0, 'NO', 0), ('', 'Alive', 0, 'NO', 0)"
            " RETURNING resource_id"
        )
        tx.execute("INSERT INTO assigned_resources (moldable_job_id, resource_id) VALUES (1, %s)", (ids[0],))
    with database.readonly() as tx:
        assert tx.rows("SELECT * FROM view_nodes") == [("n1", 4, 1, 2, 0, 1, 1, 1, "YES", 9)]


def test_view_usage_daily(database: Database) -> None:
    execute_sql(
        database,
        "INSERT INTO accounting (window_start, window_stop, accounting_user, accounting_project, queue_name,"
        " consumption_type, consumption) VALUES"
        " (86400, 129599, 'alice', 'p', 'default', 'ASKED', 10),"
        " (129600, 172799, 'alice', 'p', 'default', 'ASKED', 5),"
        " (86400, 129599, 'alice', 'p', 'default', 'USED', 3)",
    )
    with database.readonly() as tx:
        assert tx.rows("SELECT * FROM view_usage_daily") == [(86400, "alice", "p", "default", 15, 3)]


SECRET = [
    *("public.challenges", "public.api_tokens", "public.token_jobs", "public.submission_keys", "public.job_runs"),
    *("public.jobs", "public.files", "public.history_positions", "public.policy_log", "public.task_runs"),
    *("public.server_state", "public.server_generation", "public.servers", "public.outbox"),
    *("public.project_members", "public.user_settings", "public.audit_log"),
]


def test_all_but_the_secret_tables_are_open_to_the_read_only_login(database: Database) -> None:
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
