"""oar-database as an administrator types it, on a real PostgreSQL."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg2
import pytest

from oar.cli import oar_database
from oar.cli.common.command import CommandResult, invoke
from oar.kao.facts.snapshot import Settings
from oar.lib.access.records import User
from oar.lib.base.version import SCHEMA, VERSION
from oar.lib.jobs.queue_policies import POLICIES
from oar.lib.jobs.states import JobPriority
from tests.db.catalog import catalog
from tests.postgres import PostgreSQL

Run = Callable[..., CommandResult]


@pytest.fixture
def conf(postgres: PostgreSQL, tmp_path: Path) -> Iterator[Path]:
    """A configuration that names a database of its own, which is not there yet."""
    path = tmp_path / "oar.conf"
    path.write_text(
        f'DB_HOSTNAME="{postgres.socket}"\nDB_BASE_NAME="fresh"\n'
        'DB_BASE_LOGIN="fresh_rw"\nDB_BASE_PASSWD="pass \'word"\n'
        'DB_BASE_LOGIN_RO="fresh_ro"\nDB_BASE_PASSWD_RO="secret-ro"\n'
    )
    yield path
    postgres.execute("DROP DATABASE IF EXISTS fresh")
    for login in ("fresh_rw", "fresh_ro"):
        postgres.execute(f"DROP ROLE IF EXISTS {login}")


@pytest.fixture
def run(conf: Path) -> Run:
    """Run oar-database with this configuration, as an administrator of PostgreSQL would."""

    def run(*arguments: str, admin: bool = True, user: str = "root") -> CommandResult:
        options = ["--conf", str(conf), *(["--db-admin-user=postgres"] if admin else [])]
        return invoke(oar_database.main, [*options, *arguments], user=User(user, 0))

    return run


def test_create_then_check(run: Run) -> None:
    assert run("--create") == CommandResult(0, f"The database fresh is ready (version {SCHEMA}).\n", "")
    assert run("--check") == CommandResult(0, "[Success] The OAR database is accessible and ready.\n", "")
    assert run("--check", "--deep") == CommandResult(0, "[Success] The OAR database is accessible and ready.\n", "")
    again = run("--create")
    assert (again.exit, again.out) == (1, "")
    assert again.err.startswith(f"[ERROR] The database fresh already has an OAR schema (version {SCHEMA}).")


def test_a_dump_is_restored_on_a_postgresql_that_knows_neither_database_nor_logins(
    run: Run, postgres: PostgreSQL, tmp_path: Path
) -> None:
    run("--create")
    postgres.execute("INSERT INTO queues (queue_name) VALUES ('night')", "fresh", "fresh_rw")
    dump = str(tmp_path / "oar.dump")
    place = ["-h", postgres.socket, "-U", "postgres"]
    subprocess.run([str(postgres.programs / "pg_dump"), *place, "-Fc", "-f", dump, "fresh"], check=True)
    refused = run("--create-empty")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith("[ERROR] The database fresh exists.")
    run("--drop", "-y")
    assert run("--create-empty").out == "The database fresh is empty: restore a dump into it (pg_restore).\n"
    subprocess.run([str(postgres.programs / "pg_restore"), *place, "-d", "fresh", dump], check=True)
    assert run("--setup", admin=False).out == f"The database is up to date (version {SCHEMA}).\n"
    assert run("--check", "--deep").exit == 0
    with pytest.raises(psycopg2.errors.UniqueViolation):  # it is there again
        postgres.execute("INSERT INTO queues (queue_name) VALUES ('night')", "fresh", "fresh_rw")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        postgres.execute("SELECT pg_sleep(0)", "fresh", "fresh_ro")


def test_purge_tells_what_is_removed(run: Run, conf: Path) -> None:
    run("--create")
    kept = "RETENTION_RESERVATIONS is 0: advance reservations are kept for ever."
    log = "RETENTION_AUDIT is 0: rows of the audit log are kept for ever."
    first = run("--purge")
    assert (first, first.exit, first.err) == (run("purge"), 0, "")
    assert first.out.splitlines()[0] == "0 key pairs of ended jobs were removed that ended more than 30 days ago."
    assert first.out.splitlines()[-2:] == [kept, log]
    with conf.open("a") as file:
        file.write('RETENTION_RESERVATIONS="30"\n')
    removed = "0 advance reservations {} removed that ended more than 30 days ago."
    assert run("--purge").out.splitlines()[-2:] == [removed.format("were"), log]
    assert run("--purge", "--dry-run").out.splitlines()[-2:] == [removed.format("would be"), log]


def test_a_server_that_is_installed_anew_gets_its_database_back_with_new_passwords(
    run: Run, conf: Path, postgres: PostgreSQL
) -> None:
    run("--create")
    conf.write_text(conf.read_text().replace("pass 'word", "of the new file").replace("secret-ro", "new-ro"))
    (before,) = passwords(postgres)
    result = run("--setup")
    assert (result.exit, result.err) == (0, "")
    assert result.out.endswith(f"The database is up to date (version {SCHEMA}).\n")
    (after,) = passwords(postgres)
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert run("--setup", admin=False).exit == 0
    assert passwords(postgres) == [after]


def passwords(postgres: PostgreSQL) -> list[tuple[str, str]]:
    """The stored passwords of both logins."""
    connection = postgres.connect("postgres", "postgres")
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT a.rolpassword, b.rolpassword FROM pg_authid a, pg_authid b"
                " WHERE a.rolname = 'fresh_rw' AND b.rolname = 'fresh_ro'"
            )
            return cursor.fetchall()
    finally:
        connection.close()


def test_what_create_makes_is_what_the_tests_use(run: Run, postgres: PostgreSQL, database: object) -> None:
    run("create")
    both = [postgres.connect(name, user) for name, user in (("fresh", "fresh_rw"), ("oar", "oar"))]
    first, second = (catalog(connection) for connection in both)
    for connection in both:
        connection.close()
    grants = [
        (table, grantee.replace("fresh_ro", "oar_ro").replace("fresh_rw", "oar"), right)
        for table, grantee, right in first.pop("grants")
    ]
    assert sorted(grants) == sorted(second.pop("grants"))
    assert first == second


def test_setup_creates_and_then_has_nothing_to_do(run: Run) -> None:
    assert run("--setup").out == f"The database fresh is ready (version {SCHEMA}).\n"
    assert run("--setup") == CommandResult(0, f"The database is up to date (version {SCHEMA}).\n", "")
    assert run("upgrade", admin=False) == CommandResult(0, f"The database is up to date (version {SCHEMA}).\n", "")


def test_setup_fills_an_empty_database(run: Run, postgres: PostgreSQL) -> None:
    postgres.execute("CREATE ROLE fresh_rw LOGIN")
    postgres.execute("CREATE ROLE fresh_ro LOGIN")
    postgres.execute("CREATE DATABASE fresh OWNER fresh_rw")
    assert run("--check", admin=False) == CommandResult(
        1, "[Failed] No OAR database schema version found. Run on the server: oar-database --setup\n", ""
    )
    result = run("--setup", admin=False)
    assert result.out.startswith("No schema version found. Initialising the database.\n")
    assert run("--check", admin=False).exit == 0


def test_init_needs_a_database_that_is_empty(run: Run, postgres: PostgreSQL) -> None:
    postgres.execute("CREATE ROLE fresh_rw LOGIN")
    postgres.execute("CREATE ROLE fresh_ro LOGIN")
    postgres.execute("CREATE DATABASE fresh OWNER fresh_rw")
    assert run("--init", admin=False).exit == 0
    assert "already has an OAR schema" in run("--init", admin=False).err


def test_check_lists_the_conditions_that_keep_jobs_waiting(run: Run, conf: Path, postgres: PostgreSQL) -> None:
    run("--create")
    insert = (
        "INSERT INTO jobs (job_id, state, queue_name, job_user, properties) VALUES ({}, '{}', 'default', '{}', $${}$$)"
    )
    for job_id, state, user, text in (
        (1, "Waiting", "alice", "(type = 'default') AND (repeat(type, 2) = 'x\n')"),
        (2, "Waiting", "bob", "type = 'default'"),
        (3, "Terminated", "bob", "repeat(type, 2) = 'x'"),
        (4, "Hold", "carol", "repeat(type, 2) = 'x'"),
        (5, "Waiting", "bob", "type = 'default'"),
    ):
        postgres.execute(insert.format(job_id, state, user, text), "fresh", "fresh_rw")
    group = "INSERT INTO moldable_job_descriptions (moldable_id, moldable_job_id) VALUES (9, 5);"
    group += "INSERT INTO job_resource_groups (res_group_moldable_id, res_group_property) VALUES (9, 'nothing = 1')"
    postgres.execute(group, "fresh", "fresh_rw")
    with conf.open("a") as file:
        file.write('USER_SQL_FULL_USERS="carol"\n')
    result = run("--check")
    assert (result.exit, result.err) == (0, "")
    first, second, verdict = result.out.splitlines()
    assert first.startswith("job 1 of alice waits: ")
    assert first.endswith(r""": "(type = 'default') AND (repeat(type, 2) = 'x\n')" """.rstrip())
    assert "unknown function repeat" in first
    assert second.startswith("job 5 of bob waits: ")
    assert second.endswith(": 'nothing = 1'")
    assert verdict == "[Success] The OAR database is accessible and ready."


def test_reset_twice_then_drop_twice(run: Run, postgres: PostgreSQL) -> None:
    run("--create")
    postgres.execute("INSERT INTO resources (network_address) VALUES ('node-1')", "fresh", "fresh_rw")
    for _ in range(2):
        assert run("--reset", "-y").out == f"The database fresh is empty again (version {SCHEMA}).\n"
    connection = postgres.connect("fresh", "fresh_rw")
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM resources")
        assert cursor.fetchone() == (0,)
    connection.close()
    assert run("--drop", "--force-yes") == CommandResult(
        0, "The database fresh is dropped.\nThe login fresh_ro is dropped.\nThe login fresh_rw is dropped.\n", ""
    )
    assert run("--drop", "--force-yes") == CommandResult(1, "", "[ERROR] The database fresh does not exist.\n")


def test_a_login_that_owns_something_else_is_kept(run: Run, postgres: PostgreSQL) -> None:
    run("--create")
    postgres.execute("CREATE DATABASE other OWNER fresh_rw")
    assert "The login fresh_rw is kept: something else uses it.\n" in run("--drop", "-y").out
    postgres.execute("DROP DATABASE other")


@pytest.mark.parametrize("action", ["--reset", "--drop"])
def test_nothing_is_lost_unless_somebody_says_yes(run: Run, action: str) -> None:
    run("--create")
    result = run(action)
    assert (result.exit, result.err) == (1, "Aborted.\n")
    assert "all data will be lost" in result.out
    assert run("--check").exit == 0


def test_the_shipped_rules_are_inserted_unless_refused(run: Run, postgres: PostgreSQL) -> None:
    def enabled() -> int:
        connection = postgres.connect("fresh", "fresh_rw")
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM admission_rules WHERE enabled = 'YES'")
            (count,) = cursor.fetchall()[0]
        connection.close()
        return int(count)

    files = [path.name for path in (oar_database.setup_directory() / "admission_rules").glob("[0-9]*")]
    run("--create")
    assert enabled() == len(files)
    run("--reset", "-y", "--no-admission-rules")
    assert enabled() == 0


def test_rules_that_are_off_say_how_a_new_installation_turns_them_on(run: Run, postgres: PostgreSQL) -> None:
    run("--create")
    connection = postgres.connect("fresh", "fresh_rw")
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, rule FROM admission_rules WHERE enabled = 'NO' AND rule LIKE '%%LONGEST_WALLTIME%%'")
        ((number, text),) = cursor.fetchall()
    connection.close()
    assert text.splitlines()[0].endswith(f"; to turn it on: oaradmissionrules --modify {number} --enabled")


def test_the_queues_of_a_new_installation_obey_quotas(run: Run, postgres: PostgreSQL) -> None:
    run("--create")
    connection = postgres.connect("fresh", "fresh_rw")
    with connection.cursor() as cursor:
        cursor.execute("SELECT scheduler_policy FROM queues")
        policies = [POLICIES[name] for (name,) in cursor.fetchall()]
    connection.close()
    assert {policy.has_quotas(is_configured=True) for policy in policies} == {True}
    assert {policy.order_by(Settings()) for policy in policies} == {JobPriority.FIFO}


def test_check_tells_what_is_wrong(run: Run, postgres: PostgreSQL) -> None:
    absent = run("--check")
    assert (absent.exit, absent.out) == (1, "[Failed] Cannot connect to OAR database.\n")
    assert absent.err.startswith(
        f"[ERROR] Cannot use the database: fresh at {postgres.socket}:5432: it has no such login"
    )
    run("--create")
    postgres.execute("UPDATE schema SET version = '2.5.10', revision = ''", "fresh", "fresh_rw")
    assert run("check") == CommandResult(
        1,
        f"[Failed] OAR database version mismatch: the database has schema 2.5.10, this program ({VERSION}) needs"
        f" schema {SCHEMA}."
        " Run on the server: oar-database --setup\n",
        "",
    )
    postgres.execute("DELETE FROM schema", "fresh", "fresh_rw")
    assert run("--check") == CommandResult(
        1, "[Failed] No OAR database schema version found. Run on the server: oar-database --setup\n", ""
    )


def test_an_unknown_future_is_not_touched(run: Run, postgres: PostgreSQL) -> None:
    run("--create")
    postgres.execute("UPDATE schema SET version = '3.10.0', revision = ''", "fresh", "fresh_rw")
    assert run("--upgrade") == CommandResult(
        1,
        "",
        f"[ERROR] The schema version 3.10.0 is newer than this program ({SCHEMA}). Install OAR 3.10.0 on"
        " this machine, or restore the dump that was made before the upgrade.\n",
    )


def test_a_database_of_an_earlier_generation_is_not_touched(run: Run, postgres: PostgreSQL) -> None:
    run("--create")
    postgres.execute(
        "UPDATE schema SET version = '2.5.10', revision = ''; DROP TABLE alembic_version", "fresh", "fresh_rw"
    )
    result = run("--upgrade")
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith("[ERROR] The schema version 2.5.10 is that of an earlier generation of OAR")


def test_rights_are_renewed(run: Run, postgres: PostgreSQL) -> None:
    run("--create")
    postgres.execute(
        "GRANT SELECT ON challenges TO fresh_ro; REVOKE SELECT ON queues FROM fresh_ro", "fresh", "fresh_rw"
    )
    assert run("--check", "--deep") == CommandResult(2, "challenges: 1 rows: fresh_ro may read it\n", "")
    assert run("--fix-ro-user-priv", admin=False).exit == 0
    assert run("--check", "--deep").exit == 0
    postgres.execute("SELECT * FROM queues", "fresh", "fresh_ro")


def test_a_missing_read_only_login_is_created(run: Run, postgres: PostgreSQL) -> None:
    run("--create")
    postgres.execute("DROP OWNED BY fresh_ro; DROP ROLE fresh_ro", "fresh")
    assert run("--check", "--deep").out == "resources: 1 rows: the login fresh_ro does not exist\n"
    assert "does not exist: run oar-database --fix-ro-user-priv" in run("--fix-ro-user-priv", admin=False).err
    assert run("--fix-ro-user-priv").exit == 0
    assert run("--check", "--deep").exit == 0


def test_a_dry_run_does_nothing_and_shows_no_password(run: Run) -> None:
    result = run("--create", "--dry-run")
    assert result.exit == 0
    assert 'CREATE ROLE "fresh_rw" LOGIN;' in result.out
    assert "PASSWORD '***'" in result.out
    assert "pass 'word" not in result.out
    assert "secret-ro" not in result.out
    assert run("--check").out == "[Failed] Cannot connect to OAR database.\n"
    run("--create")
    assert "DROP TABLE" in run("--reset", "--dry-run").out
    assert run("--check", "--deep").exit == 0


def test_debug_shows_what_is_done(run: Run) -> None:
    result = run("--create", "-d")
    assert "CREATE TABLE jobs" in result.out
    assert "secret-ro" not in result.out
    assert run("--check").exit == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--create", "--db-type", "mysql"], "[ERROR] MySQL is not supported."),
        (["--create", "--db-name", ""], "[ERROR] You must specify the database name (--db-name or DB_BASE_NAME in the"),
        (["--create", "--db-host", "db", "--db-pass", ""], "[ERROR] You must specify the database password (--db-pass"),
        (["--create", "--db-port", "0x1"], "[ERROR] 0x1 is not a port"),
        (["--create", "--conf", "/nowhere/oar.conf"], "[ERROR] cannot read the configuration file /nowhere/oar.conf"),
        (["--create", "--drop"], "Only one action can be done at a time."),
        (["archive-all"], "Unknown action: archive-all"),
        ([], "No action is given. See: oar-database --help"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(run: Run, arguments: list[str], error: str) -> None:
    result = run(*arguments)
    assert (result.exit, result.out) == (1, "")
    assert result.err.splitlines()[-1 if "--conf" in arguments else 0].startswith(error)  # run() gives --conf too


def test_without_an_administrator_nothing_is_created(run: Run) -> None:
    result = run("--create", admin=False)
    assert (result.exit, result.out) == (1, "")
    assert "--db-is-local or --db-admin-user" in result.err


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming postgres takes root")
def test_root_becomes_postgres_for_a_moment(run: Run) -> None:
    assert run("--setup", "--db-is-local", admin=False).out == f"The database fresh is ready (version {SCHEMA}).\n"
    assert os.geteuid() == 0
    assert run("--drop", "--db-is-local", "-y", admin=False).exit == 0


def test_a_database_that_cannot_be_used_is_named_with_the_way_out(run: Run, conf: Path, postgres: PostgreSQL) -> None:
    run("--create")
    postgres.execute("ALTER DATABASE fresh RENAME TO elsewhere")
    absent = run("--setup", admin=False)
    postgres.execute("ALTER DATABASE elsewhere RENAME TO fresh")
    assert (absent.exit, absent.out) == (1, "")
    place = f"fresh at {postgres.socket}:5432"
    told = f"[ERROR] Cannot use the database: {place}: it has no such database. Create it: oar-database --create\n"
    assert absent.err == told
    text = conf.read_text()
    conf.write_text(text.replace("fresh_rw", "nobody"))
    assert run("--setup", admin=False).err == (
        f"[ERROR] Cannot use the database: {place}: it has no such login."
        " Correct DB_BASE_NAME, DB_BASE_LOGIN and DB_BASE_PASSWD in oar.conf, or pg_hba.conf of PostgreSQL.\n"
    )
    conf.write_text(text.replace(postgres.socket, "/nowhere"))
    away = run("--check", admin=False)
    assert away.err == (
        "[ERROR] Cannot use the database: fresh at /nowhere:5432: no server listens at this socket."
        " Start PostgreSQL there, or correct DB_HOSTNAME and DB_PORT in oar.conf.\n"
    )
