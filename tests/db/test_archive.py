"""The archive: ended jobs are in another database, with all that was written about them, before they are removed."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oar.cli import oar_database
from oar.cli.common.command import CommandResult, invoke
from oar.lib.access.records import User
from oar.lib.base.clock_watch import ClockWatch, Look
from oar.lib.base.errors import DatabaseUnavailable, SchemaError
from oar.lib.config.files import Config
from oar.lib.db.archive import Archive
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.system import ServerState
from oar.lib.jobs import retention
from tests.builders import execute_sql
from tests.db.test_retention import Past
from tests.postgres import PostgreSQL

pytestmark = pytest.mark.slow

Told = Callable[..., CommandResult]

#: Days that are past for the clock of the database, too, which commands go by.
LONG_AGO = 2000


@pytest.fixture
def other(postgres: PostgreSQL, template: DatabaseSettings) -> Iterator[Database]:
    """A new, empty database of this version."""
    postgres.execute(f"CREATE DATABASE archive TEMPLATE {template.name} OWNER oar")
    database = Database(template._replace(name="archive", patience=0))
    yield database
    database.close()
    postgres.execute("DROP DATABASE archive WITH (FORCE)")


@pytest.fixture
def past(database: Database) -> Past:
    return Past(database)


@pytest.fixture
def archive(past: Past, other: Database) -> Iterator[Archive]:
    """The archive, ready."""
    archive = Archive(other.settings)
    archive.prepare(past.database)
    yield archive
    archive.close()


@pytest.fixture
def run(past: Past, other: Database, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Run oar-database on both, with lines of oar.conf more."""
    conf = tmp_path_factory.mktemp("conf") / "oar.conf"
    live = past.database.settings

    def told(*arguments: str, lines: str = 'DB_ARCHIVE_BASE_NAME="archive"') -> CommandResult:
        conf.write_text(
            f'DB_HOSTNAME="{live.host}"\nDB_PORT="{live.port}"\nDB_BASE_NAME="{live.name}"\nDB_BASE_LOGIN="{live.user}"\n'
            f'DB_BASE_PASSWD="{live.password}"\nDB_BASE_LOGIN_RO="{live.ro_user}"\n{lines}\n'
        )
        return invoke(oar_database.main, ["--conf", str(conf), *arguments], user=User("root", 0))

    return told


def rows(database: Database, table: str) -> list[tuple[object, ...]]:
    """All rows of a table, in an order."""
    with database.begin() as tx:
        return [tuple(row) for row in tx.rows(f"SELECT t.* FROM {table} t ORDER BY t::text")]


ABOUT_JOBS = (
    *("jobs", "moldable_job_descriptions", "job_resource_groups", "job_resource_descriptions", "assigned_resources"),
    *("job_types", "job_state_logs", "event_logs", "event_log_hostnames", "resources"),
)


def test_ended_jobs_are_copied_with_all_their_rows_and_once(past: Past, other: Database, archive: Archive) -> None:
    for days in (5, 30, 400):
        past.ended(days)
    past.account()
    assert retention.count_missing(past.database, archive) == 3
    assert sum(retention.archive_jobs(past.database, archive)) == 3
    assert {table: rows(other, table) for table in ABOUT_JOBS} == {
        table: rows(past.database, table) for table in ABOUT_JOBS
    }
    assert rows(past.database, "challenges")
    assert rows(other, "challenges") == []  # private keys are nobody's past
    later = past.ended(1)
    past.account()
    assert retention.count_missing(past.database, archive) == 1
    assert list(retention.archive_jobs(past.database, archive)) == [1]
    assert later in [row[0] for row in rows(other, "jobs")]


def test_what_lives_or_is_not_accounted_is_not_copied(past: Past, other: Database, archive: Archive) -> None:
    past.ended(5)
    assert sum(retention.archive_jobs(past.database, archive)) == 0
    assert rows(other, "jobs") == []


def test_a_purge_removes_nothing_that_the_archive_does_not_have(past: Past, other: Database, archive: Archive) -> None:
    old = past.ended(31)
    past.account()
    before = {table: rows(past.database, table) for table in ABOUT_JOBS}
    (jobs,) = (kept for kept in retention.kept(Config(), archive) if kept.key == "RETENTION_JOBS")
    assert sum(jobs.purge(past.database, 30)) == 1
    assert past.jobs() == []
    assert {table: rows(other, table) for table in ABOUT_JOBS} == before
    with other.snapshot() as tx:
        assert [job.id for job in tx.jobs.select([old])] == [old]


def test_without_its_archive_a_purge_removes_nothing(past: Past) -> None:
    kept = past.ended(31)
    past.account()
    away = Archive(past.database.settings._replace(name="nowhere", patience=0))
    (jobs,) = (each for each in retention.kept(Config(), away) if each.key == "RETENTION_JOBS")
    with pytest.raises(DatabaseUnavailable):
        list(jobs.purge(past.database, 30))
    assert past.jobs() == [kept]


def test_rows_that_arrive_otherwise_than_they_were_sent_are_refused(
    past: Past, other: Database, archive: Archive
) -> None:
    kept = past.ended(31)
    past.account()
    with other.begin() as tx:  # a rule of the archive's own that loses what it gets
        tx.execute("CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        tx.execute("CREATE TRIGGER lose BEFORE INSERT ON event_logs FOR EACH ROW EXECUTE FUNCTION lose()")
    (jobs,) = (each for each in retention.kept(Config(), archive) if each.key == "RETENTION_JOBS")
    with pytest.raises(SchemaError, match="other rows of event_logs than were copied: nothing is changed"):
        list(jobs.purge(past.database, 30))
    assert past.jobs() == [kept]
    assert rows(other, "jobs") == []


def test_another_job_under_the_same_number_is_noticed(past: Past, other: Database, archive: Archive) -> None:
    job = past.ended(31)
    past.account()
    assert sum(retention.archive_jobs(past.database, archive)) == 1
    execute_sql(other, "UPDATE jobs SET submission_time = 7")
    with pytest.raises(SchemaError, match=f"has another job {job}: it belongs to another database"):
        list(retention.archive_jobs(past.database, archive))


def test_the_archive_gets_the_properties_that_it_lacks(past: Past, other: Database) -> None:
    execute_sql(past.database, "ALTER TABLE resources ADD COLUMN colour varchar(255) DEFAULT 'blue'")
    past.ended(31)
    past.account()
    archive = Archive(other.settings)
    archive.prepare(past.database)
    assert sum(retention.archive_jobs(past.database, archive)) == 1
    archive.close()
    with other.snapshot() as tx:
        assert set(tx.column("SELECT colour FROM resources")) == {"blue"}


def test_the_command_copies_and_tells_how_many(past: Past, run: Told) -> None:
    past.ended(LONG_AGO)
    past.account()
    assert run("--archive", "--dry-run") == CommandResult(0, "1 jobs would be copied to the archive.\n", "")
    assert run("--archive") == CommandResult(0, "1 jobs were copied to the archive.\n", "")
    assert run("archive") == CommandResult(0, "0 jobs were copied to the archive.\n", "")


def test_a_purge_by_command_copies_first(past: Past, other: Database, run: Told, tmp_path: Path) -> None:
    past.ended(LONG_AGO)
    past.account()
    lines = (
        f'DB_ARCHIVE_BASE_NAME="archive"\nRETENTION_JOB_STATE_LOGS="1"\nRETENTION_JOBS="1"\nOAR_RUN_DIR="{tmp_path}"'
    )
    watch, now = ClockWatch(), int(time.time())
    for date in (now - 7200, now):  # two hours, in no time
        watch.set_by(Look(date, time.monotonic(), time.monotonic()))
    with past.database.begin() as tx:
        tx.system.store_state(ServerState.CLOCK, watch.memory)
    states = rows(past.database, "job_state_logs")
    doubted = run("--purge", lines=lines)
    assert (doubted.exit, doubted.out) == (1, "")
    assert doubted.err.endswith("nothing is removed. If the date is right: oar-database --purge --trust-clock\n")
    assert rows(past.database, "job_state_logs") == states
    told = run("--purge", "--trust-clock", lines=lines)
    assert (told.exit, told.err) == (0, "")
    assert told.out.splitlines()[0] == "1 jobs were copied to the archive."
    assert rows(past.database, "job_state_logs") == []
    assert rows(other, "job_state_logs") == states


def test_what_cannot_be_an_archive_is_refused_in_a_line(
    past: Past, postgres: PostgreSQL, other: Database, run: Told
) -> None:
    without = run("--archive", lines="")
    assert (without.exit, without.out) == (1, "")
    assert without.err == "[ERROR] There is no archive: set DB_ARCHIVE_BASE_NAME in oar.conf.\n"
    name = past.database.settings.name
    same = run("--archive", lines=f'DB_ARCHIVE_BASE_NAME="{name}"')
    assert same.err == f"[ERROR] DB_ARCHIVE_BASE_NAME: {name} is the database of the server itself.\n"
    with other.begin() as tx:
        tx.execute("DROP OWNED BY CURRENT_USER CASCADE")
        tx.execute("CREATE SCHEMA IF NOT EXISTS public")
    empty = run("--archive")
    assert (empty.exit, empty.out) == (1, "")
    assert empty.err.startswith("[ERROR] The archive archive has no schema of OAR: run oar-database --create")
