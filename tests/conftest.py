"""Fixtures of all tests: a private PostgreSQL and a database whose tables are empty at the start of each test."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import psycopg2
import pytest

from oar.lib.db import migrations
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.statements import Connection
from tests.postgres import PostgreSQL, running

# A suite that a shell has started in the background ignores ^C, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Profiles "fast" (daily work) and "deep" (setup/test --all).  Examples have no deadline: how long one takes depends on
# the load of the machine.  Continuous integration uses the same examples each time, so that it judges only the change.
for name, number in (("fast", 20), ("deep", 150)):
    hypothesis.settings.register_profile(
        name,
        max_examples=number,
        deadline=None,
        derandomize=bool(os.environ.get("CI")),
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile(os.environ.get("OAR_TEST_PROFILE", "fast"))

#: ``select`` fails for descriptors from this number on.
SELECT_LIMIT = 1024

SETUP = Path(__file__).parent.parent / "setup" / "database"

#: Takes away the columns that a test added to resources.
FIXED_COLUMNS_ONLY = """
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT attname FROM pg_attribute
                WHERE attrelid = 'public.resources'::regclass AND attnum > {last} AND NOT attisdropped LOOP
        EXECUTE format('ALTER TABLE public.resources DROP COLUMN %I', name);
    END LOOP;
END $$;
"""


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgreSQL]:
    """PostgreSQL of this test process; its administrator is "postgres", no password is asked."""
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def template(postgres: PostgreSQL) -> DatabaseSettings:
    """Make the database from which others are copied: complete, and empty but for the first rows."""
    settings = DatabaseSettings(host=postgres.socket, name="oar_template", patience=0)

    def administrator(name: str) -> Connection:
        return postgres.connect(name, "postgres")

    migrations.Migrator(settings, SETUP, connect_admin=administrator, with_rules=False).create()
    return settings


@pytest.fixture(scope="session")
def shared_settings(postgres: PostgreSQL, template: DatabaseSettings) -> DatabaseSettings:
    """Make the database of this test process."""
    settings = template._replace(name="oar")
    postgres.execute(f"CREATE DATABASE oar TEMPLATE {template.name} OWNER {settings.user}")
    secure(postgres, settings)
    return settings


@pytest.fixture(scope="session")
def empty_tables(postgres: PostgreSQL, shared_settings: DatabaseSettings) -> Iterator[Callable[[], None]]:
    """Return a function that brings the database back to its first rows, whatever a test has done.

    It keeps its connection: PostgreSQL needs eight times as long for these statements on a new one.
    """
    kept = [postgres.connect(shared_settings.name, shared_settings.user)]
    cursor = kept[0].cursor()
    cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    deletes = [f"DELETE FROM public.{name};" for (name,) in cursor.fetchall()]
    cursor.execute("SELECT max(attnum) FROM pg_attribute WHERE attrelid = 'public.resources'::regclass")
    columns = FIXED_COLUMNS_ONLY.format(last=cursor.fetchall()[0][0])
    deletes.insert(0, "GRANT DELETE ON public.audit_log TO CURRENT_USER;")  # nobody has it
    deletes.append("REVOKE DELETE ON public.audit_log FROM CURRENT_USER;")
    text = "\n".join([*deletes, columns, (SETUP / "data.sql").read_text()])

    def empty() -> None:
        try:
            kept[0].cursor().execute(text)
        except (psycopg2.OperationalError, psycopg2.InterfaceError):  # a test has cut it off
            kept[0].close()
            kept[0] = postgres.connect(shared_settings.name, shared_settings.user)
            kept[0].cursor().execute(text)

    yield empty
    kept[0].close()


@pytest.fixture
def settings(shared_settings: DatabaseSettings, empty_tables: Callable[[], None]) -> DatabaseSettings:
    """Where the database is: no job, no resource; the queues and the other first rows are there."""
    empty_tables()
    return shared_settings


@pytest.fixture
def database(settings: DatabaseSettings) -> Iterator[Database]:
    """The database of an installation on which nobody has worked yet."""
    opened = Database(settings, application="oar:test")
    yield opened
    opened.close()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Open so many descriptors that the test gets only numbers above the limit of ``select``."""
    opened = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)]
    while opened[-1] <= SELECT_LIMIT:
        opened.append(os.dup(opened[0]))
    yield
    for descriptor in opened:
        os.close(descriptor)


def secure(postgres: PostgreSQL, settings: DatabaseSettings) -> None:
    """Close a copied database as its original is: what belongs to a database itself is not copied."""
    admin = postgres.connect(settings.name, "postgres")
    migrations.secure_database(migrations.MigrationConnection(admin), settings)
    admin.close()
