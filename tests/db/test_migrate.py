"""Migrations: a chain of hand-written steps ends where a new database begins."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from oar.lib.base.errors import SchemaError
from oar.lib.base.version import SCHEMA, StoredSchema, schema_number, version_number
from oar.lib.db import migrations
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import SCHEMA_LOCK, SERVER_LOCK
from oar.lib.db.migrations import Migrator, read_rules
from oar.lib.db.statements import Connection
from tests.conftest import SETUP
from tests.db.catalog import catalog
from tests.postgres import PostgreSQL

pytestmark = pytest.mark.slow

#: The version from which these tests upgrade, and the last one before this.
OLD, BEFORE = "3.1.0", "3.2.0"
#: The newest migration.
LAST = "3.3.0"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A copy of setup/database, to which a test adds migrations."""
    copy = tmp_path / "a 100% directory"
    shutil.copytree(SETUP, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def own(postgres: PostgreSQL, template: DatabaseSettings) -> Iterator[DatabaseSettings]:
    """A database that a test may change as it likes."""
    settings = template._replace(name="migrated")
    postgres.execute(f"CREATE DATABASE migrated TEMPLATE {template.name} OWNER oar")
    admin = postgres.connect("migrated", "postgres")
    migrations.secure_database(migrations.MigrationConnection(admin), settings)
    admin.close()
    yield settings
    postgres.execute("DROP DATABASE migrated WITH (FORCE)")


def change_last_step(directory: Path, *statements: str) -> None:
    """Put statements before those of the last migration."""
    path = directory / "versions" / f"{LAST}.py"
    lines = "".join(f'    op.execute("{statement}")\n' for statement in statements)
    text = path.read_text()
    head, body = text.split('    """Create what new installations have."""\n')
    path.write_text(f'{head}    """Create what new installations have."""\n{lines}{body}')


def make_old(settings: DatabaseSettings) -> None:
    """Make the database one of the version before this."""
    with Database(settings).begin() as tx:
        tx.execute("DROP OWNED BY CURRENT_USER CASCADE")
        tx.execute("CREATE SCHEMA IF NOT EXISTS public")
        tx.execute((Path(__file__).parent / "old_schemas" / f"{OLD}.sql").read_text())


def versions(settings: DatabaseSettings) -> tuple[object, object]:
    with Database(settings).begin() as tx:
        return tx.value("SELECT version FROM schema"), tx.value("SELECT version_num FROM alembic_version")


def test_the_newest_migration_makes_the_schema_of_the_programs_and_no_minor_release_has_two() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    configuration = Config()
    configuration.set_main_option("script_location", str(SETUP))
    configuration.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(configuration)
    assert scripts.get_heads() == [LAST]
    assert schema_number(LAST) == schema_number(SCHEMA)
    numbers = [schema_number(step.revision) for step in scripts.walk_revisions()]
    assert len(set(numbers)) == len(numbers)


def test_a_database_in_use_is_upgraded_to_what_is_installed(
    own: DatabaseSettings, directory: Path, postgres: PostgreSQL, settings: DatabaseSettings
) -> None:
    make_old(own)
    with Database(own).begin() as tx:
        job = tx.value("INSERT INTO jobs (job_user, state) VALUES ('alice', 'Running') RETURNING job_id")
        tx.execute("INSERT INTO queues (queue_name, state) VALUES ('night', 'notActive')")
        tx.execute("INSERT INTO job_runs (job_id) SELECT * FROM generate_series(1, 150000)")
    said: list[str] = []
    Migrator(own, directory, say=said.append).setup()
    assert said[:-1] == [
        f"The current schema version is {OLD}. Upgrading to {SCHEMA}.",
        "3.2.0: Advance reservations as objects: their tables and views. Since when a node says nothing of a job.",
        "3.3.0: Schema changes of release 3.3.0.",
        "  job_runs: 150,000 rows are written, about 15 s",
        "  queues: 4 rows are read, some seconds",
        "  jobs: 1 rows are read, some seconds",
        "This takes about 15 s; until then no command can be used. Jobs that run go on.",
        "OAR 3.2.0 and later can use it; an older release needs your backup of the database.",
    ]
    assert re.fullmatch(rf"The database is up to date \(version {SCHEMA}\), after \d+ s\.", said[-1])
    assert versions(own) == (BEFORE, LAST)
    with Database(own).readonly() as tx:
        assert tx.value("SELECT job_user FROM jobs WHERE job_id = %s", (job,)) == "alice"
        assert tx.value("SELECT state FROM queues WHERE queue_name = 'night'") == "notActive"
    upgraded, installed = (postgres.connect(name, own.user) for name in (own.name, settings.name))
    try:
        assert catalog(upgraded) == catalog(installed)
    finally:
        upgraded.close()
        installed.close()


def test_a_migration_that_fails_leaves_nothing_behind(own: DatabaseSettings, directory: Path) -> None:
    make_old(own)
    change_last_step(
        directory, "ALTER TABLE queues ADD COLUMN colour text", "ALTER TABLE nothing ADD COLUMN colour text"
    )
    with pytest.raises(SchemaError, match=r'relation "nothing" does not exist$'):
        Migrator(own, directory).setup()
    assert versions(own) == (BEFORE, BEFORE)  # each step is a transaction of its own
    with Database(own).begin() as tx:
        assert tx.value("SELECT count(*) FROM information_schema.columns WHERE column_name = 'colour'") == 0


def test_a_dry_upgrade_prints_the_statements(own: DatabaseSettings, directory: Path) -> None:
    make_old(own)
    said: list[str] = []
    Migrator(own, directory, say=said.append, dry=True).setup()
    assert f"INSERT INTO schema (version, name) VALUES ('{BEFORE}', '')" in "\n".join(said)
    assert versions(own) == (OLD, OLD)


def test_the_statements_of_an_upgrade_can_be_shown(own: DatabaseSettings, directory: Path) -> None:
    make_old(own)
    shown: list[str] = []
    Migrator(own, directory, show=shown.append).setup()
    assert "DELETE FROM schema;" in shown


@pytest.mark.parametrize(
    ("lock", "message"),
    [
        (SERVER_LOCK, "The OAR server is running, stop it first."),
        (SCHEMA_LOCK, "The schema is being changed by oar:other"),
    ],
)
def test_nobody_upgrades_under_a_running_server_or_another_upgrade(
    own: DatabaseSettings, directory: Path, lock: tuple[int, int], message: str
) -> None:
    make_old(own)
    with Database(own, application="oar:other").hold_lock(lock), pytest.raises(SchemaError, match=message):
        Migrator(own, directory).setup()
    assert versions(own) == (OLD, OLD)


def test_a_database_in_use_is_not_emptied_by_mistake(own: DatabaseSettings) -> None:
    with Database(own, application="oar:almighty").hold_lock(SERVER_LOCK), pytest.raises(SchemaError, match="running"):
        Migrator(own, SETUP).reset()


def test_rules_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("10_last.py", "2_second.py", "OFF_3_off.py", "1_first.py", "README", "x_1.py"):
        (tmp_path / name).write_text(f"# {name}\n")
    (tmp_path / "4_directory").mkdir()
    rules = read_rules(tmp_path)
    assert [(rule.priority, rule.enabled) for rule in rules] == [(1, True), (2, True), (3, False), (10, True)]
    assert rules[2].text == "# OFF_3_off.py\n"
    assert read_rules(tmp_path / "nowhere") == []


def test_versions_compare_as_numbers() -> None:
    names = ["3.10.0", "2.4.0", "3.1.0", "3.0.0.dev3", "3.2", "2.5.10"]
    assert sorted(names, key=version_number) == ["2.4.0", "2.5.10", "3.0.0.dev3", "3.1.0", "3.2", "3.10.0"]


def test_names_with_quotes_are_names(postgres: PostgreSQL, template: DatabaseSettings) -> None:
    settings = template._replace(
        name='odd "name"; --', user='odd "rw"', ro_user="odd 'ro' %s", password="p'\\w", ro_password="%s"
    )

    def administrator(name: str) -> Connection:
        return postgres.connect(name, "postgres")

    migrator = Migrator(settings, SETUP, connect_admin=administrator)
    migrator.create()
    try:
        assert migrator.schema() == StoredSchema(SCHEMA, BEFORE)
    finally:
        migrator.database.close()
        migrator.drop()
