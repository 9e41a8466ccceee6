"""The actions of ``oar-database``: logins, schema, migrations, grants.

``schema.py`` declares the tables; the files of ``setup/database`` contain views, grants and the first rows. This module
defines the order, the login and the checks of their execution. It does not read input or print: the command does.

See docs/design/schema.rst, "Migrations".
"""

import io
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2
from psycopg2 import sql
from psycopg2.extensions import quote_ident

from oar.lib.base.errors import SchemaError
from oar.lib.base.version import SCHEMA, WAY_FROM_NEWER, StoredSchema
from oar.lib.db.connections import TCP_LIMITS, Address, DatabaseSettings, connect_to_primary, unavailable
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import SCHEMA_LOCK, SERVER_LOCK
from oar.lib.db.statements import Connection
from oar.lib.db.upgrade_work import TableWork, report, tables_of

if TYPE_CHECKING:
    from alembic.config import Config

Say = Callable[[str], None]

#: Functions with which text of a user's SQL could hold our locks or our patience.
_DANGEROUS_FUNCTIONS = """
    SELECT p.oid::regprocedure::text FROM pg_proc p
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname ~ '^pg_(try_)?(advisory_|sleep)' ORDER BY 1
"""
_HAS_LOGIN = "SELECT FROM pg_roles WHERE rolname = %s"
_HAS_DATABASE = "SELECT FROM pg_database WHERE datname = %s"
_HAS_ALEMBIC = "SELECT to_regclass('public.alembic_version') IS NOT NULL"
_HAS_TABLE = "SELECT FROM pg_tables WHERE schemaname = 'public' AND tablename = %s"
_SQL_NAME = re.compile(r':"(\w+)"')
_RULE_FILE = re.compile(r"(OFF_)?(\d+)_.*")

#: What a session of the read-only login begins with, whatever program opens it.
_RO_SETTINGS = {
    "default_transaction_read_only": "'on'",
    "statement_timeout": "'60s'",
    "search_path": "oar_public, public",
    "temp_file_limit": "'300MB'",
    "work_mem": "'16MB'",
}

#: A migration waits this long for a table, so that it does not keep everybody behind it waiting; and this often.
_LOCK_TIMEOUT = "SET lock_timeout = '10s'"
_LOCK_NOT_AVAILABLE = "55P03"
_LOCK_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Secret:
    """A literal of a statement that is never displayed."""

    text: str = field(repr=False)


class MigrationConnection:
    """A connection whose statements can be displayed, or displayed without running them."""

    def __init__(self, connection: Connection, show: Say | None = None, *, dry: bool = False) -> None:
        self.connection = connection
        self._show = show
        self._dry = dry

    def run(self, statement: str, *parts: "str | Secret | sql.Composable") -> None:
        """Run a statement. Its ``{}`` are names (given as str), secrets or other parts (given as sql objects)."""
        sent = sql.SQL(statement).format(*(_part(part) for part in parts))
        shown = sql.SQL(statement).format(*(_part(part, hide=True) for part in parts))
        self._send(sent.as_string(self.connection), shown.as_string(self.connection))

    def run_text(self, text: str, **names: str) -> None:
        """Run SQL text. Replace each ``:"key"`` in it by the quoted name for that key."""
        filled = _SQL_NAME.sub(lambda match: quote_ident(names[match[1]], self.connection), text)
        self._send(filled, filled)

    def ask(self, question: str, *parameters: str) -> list[tuple[Any, ...]]:
        """Run a query and return its rows. It is not displayed, and also runs in a dry run."""
        with self.connection.cursor() as cursor:
            cursor.execute(question, parameters or None)
            return cursor.fetchall()

    def has(self, question: str, name: str) -> bool:
        """Return whether the query about ``name`` returns rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(question, (name,))
            return cursor.rowcount > 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the statements of the block in one transaction."""
        self._send("BEGIN", "BEGIN")
        try:
            yield
        except BaseException:
            self._send("ROLLBACK", "ROLLBACK")
            raise
        self._send("COMMIT", "COMMIT")

    def _send(self, statement: str, shown: str) -> None:
        if self._show:
            self._show(f"{shown.strip().removesuffix(';')};")
        if not self._dry:
            with self.connection.cursor() as cursor:
                cursor.execute(statement)


def _part(part: "str | Secret | sql.Composable", *, hide: bool = False) -> sql.Composable:
    if isinstance(part, str):
        return sql.Identifier(part)
    if isinstance(part, Secret):
        return sql.SQL("'***'") if hide else sql.Literal(part.text)
    return part


@contextmanager
def readable_errors() -> Iterator[None]:
    """Convert errors of PostgreSQL to SchemaError, with one line that quotes the error."""
    try:
        yield
    except psycopg2.Error as error:
        line = str(error).strip().partition("\n")[0]
        raise SchemaError(f'PostgreSQL rejected a statement: "{line}". Nothing of this step was changed.') from error


# -- actions of an administrator of PostgreSQL ---------------------------------------------------------------------


def connect_admin(addresses: Sequence[Address], name: str, user: str, password: str | None) -> Connection:
    """Open a database on the primary, in autocommit mode. The caller's own PostgreSQL password file is not used."""

    def connect(address: Address) -> Connection:
        connection: Connection = psycopg2.connect(
            **address._asdict(),
            target_session_attrs="primary" if len(addresses) > 1 else "any",
            dbname=name,
            user=user,
            password=password,
            connect_timeout=5,
            passfile="/dev/null/none",
            **TCP_LIMITS.client_options(),
        )
        connection.autocommit = True
        return connection

    return connect_to_primary(addresses, connect)[1]


def create_logins(admin: MigrationConnection, settings: DatabaseSettings) -> None:
    """Create both logins if they are missing, with their passwords, and restrict the read-only one."""
    _create_login(admin, settings.user, settings.password)
    create_ro_login(admin, settings)


def create_ro_login(admin: MigrationConnection, settings: DatabaseSettings) -> None:
    """Create the read-only login if it is missing, and restrict it."""
    _create_login(admin, settings.ro_user, settings.ro_password)
    for name, value in _RO_SETTINGS.items():
        admin.run(f"ALTER ROLE {{}} SET {name} = {value}", settings.ro_user)


def _create_login(admin: MigrationConnection, name: str, password: str) -> None:
    admin.run(f"{'ALTER' if admin.has(_HAS_LOGIN, name) else 'CREATE'} ROLE {{}} LOGIN", name)
    if password:
        admin.run("ALTER ROLE {} PASSWORD {}", name, Secret(password))


def create_database(admin: MigrationConnection, settings: DatabaseSettings) -> None:
    """Create the empty database, sorted by code points so that the order is the same on every machine."""
    statement = "CREATE DATABASE {} OWNER {} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
    admin.run(statement, settings.name, settings.user)


def secure_database(admin: MigrationConnection, settings: DatabaseSettings) -> None:
    """Revoke from PUBLIC the rights with which SQL of users could do harm. ``admin`` is connected to the database.

    Among them is the right to advisory locks, since a user could take a lock of OAR.
    """
    close_database(admin, settings)
    admin.run("ALTER SCHEMA public OWNER TO {}", settings.user)
    functions = sql.SQL(", ".join(row[0] for row in admin.ask(_DANGEROUS_FUNCTIONS)))
    admin.run("REVOKE EXECUTE ON FUNCTION {} FROM PUBLIC", functions)
    admin.run("GRANT EXECUTE ON FUNCTION {} TO {}", functions, settings.user)


def close_database(session: MigrationConnection, settings: DatabaseSettings) -> None:
    """Restrict connections to the two logins, and forbid temporary tables, which could shadow others.

    The owner may do this too.
    """
    session.run("REVOKE CONNECT, TEMPORARY ON DATABASE {} FROM PUBLIC", settings.name)
    session.run("GRANT CONNECT ON DATABASE {} TO {}", settings.name, settings.ro_user)


# -- actions of the owner ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShippedRule:
    """An admission rule that OAR ships."""

    priority: int
    enabled: bool
    text: str
    name: str = ""  #: of its file, with the priority before it


def read_rules(directory: Path) -> list[ShippedRule]:
    """Return the rules in the files ``<priority>_<title>``.

    A file name that begins with ``OFF_`` is a disabled rule.
    """
    rules = []
    for path in directory.iterdir() if directory.is_dir() else ():
        match = _RULE_FILE.fullmatch(path.name)
        if match and path.is_file():
            rules.append(
                ShippedRule(
                    int(match[2]), not match[1], path.read_text(encoding="utf-8"), path.stem.removeprefix("OFF_")
                )
            )
    return sorted(rules, key=lambda rule: rule.priority)


def install(owner: MigrationConnection, directory: Path, ro_user: str, rules: Sequence[ShippedRule] = ()) -> None:
    """Create all tables, the initial rows and the grants, inside the caller's transaction."""
    from oar.lib.db import schema
    from oar.lib.db.schema_tables import creation

    owner.run("SET LOCAL search_path = public")
    owner.run_text(";\n".join(statement for table in schema.TABLES for statement in creation(table)))
    for file in ("views.sql", "reservation_views.sql", "data.sql"):
        owner.run_text((directory / file).read_text(encoding="utf-8"))
    for rule in rules:
        values = [sql.Literal(value) for value in (rule.priority, "YES" if rule.enabled else "NO", rule.text)]
        owner.run("INSERT INTO admission_rules (priority, enabled, rule) VALUES ({}, {}, {})", *values)
    grant(owner, directory, ro_user)


def grant(owner: MigrationConnection, directory: Path, ro_user: str) -> None:
    """Grant the read-only login its rights, and revoke all others."""
    owner.run_text((directory / "grants.sql").read_text(encoding="utf-8"), ro=ro_user)


def remove_tables(owner: MigrationConnection) -> None:
    """Drop every table of OAR, with all data and with the views of it."""
    from oar.lib.db import schema

    owner.run("DROP SCHEMA IF EXISTS oar_public CASCADE")
    for table in schema.TABLES:
        owner.run("DROP TABLE IF EXISTS public.{} CASCADE", table.name)
    owner.run("DROP FUNCTION IF EXISTS public.change_gantt_jobs_resources")


class Migrator:
    """The actions of ``oar-database``. Each raises SchemaError, or DatabaseUnavailable."""

    def __init__(
        self,
        settings: DatabaseSettings,
        directory: Path,
        *,
        connect_admin: Callable[[str], Connection] | None = None,
        with_rules: bool = True,
        say: Say = lambda text: None,
        show: Say | None = None,
        dry: bool = False,
    ) -> None:
        """``connect_admin``: opens a database by its name as an administrator of PostgreSQL, in autocommit mode."""
        self.settings = settings
        self.database = Database(settings, application="oar:database")
        self._directory = directory
        self._connect_admin = connect_admin
        self.rules = read_rules(directory / "admission_rules") if with_rules else []
        self._say = say
        self._show = show
        self._dry = dry

    def create(self) -> None:
        """Create logins, database, schema, initial rows, rules and grants."""
        with self._admin("postgres") as admin:
            exists = admin.has(_HAS_DATABASE, self.settings.name)
            if exists:
                with self._admin(self.settings.name) as inside:
                    self._require_empty(inside)
            create_logins(admin, self.settings)
            if not exists:
                create_database(admin, self.settings)
        if self._dry and not exists:
            self._say("The schema would follow: tables, views, initial rows, rules and grants.")
            return
        with self._admin(self.settings.name) as inside:
            secure_database(inside, self.settings)
            inside.run("SET ROLE {}", self.settings.user)
            self._install(inside)

    def create_empty(self) -> None:
        """Create logins, and a database without tables, to restore a dump into it."""
        with self._admin("postgres") as admin:
            if admin.has(_HAS_DATABASE, self.settings.name):
                raise SchemaError(
                    f"The database {self.settings.name} exists. Remove it: dropdb --force {self.settings.name}"
                )
            create_logins(admin, self.settings)
            create_database(admin, self.settings)
        if self._dry:
            return
        with self._admin(self.settings.name) as inside:
            secure_database(inside, self.settings)
        self._say(f"The database {self.settings.name} is empty: restore a dump into it (pg_restore).")

    def init(self) -> None:
        """Create schema, initial rows, rules and grants in an empty database whose logins exist."""
        with self._owner() as owner:
            self._require_empty(owner)
            close_database(owner, self.settings)
            self._install(owner)

    def setup(self) -> None:
        """Bring the database to the version of this program, from any state."""
        if self._connect_admin:
            with self._admin("postgres") as admin:
                exists = admin.has(_HAS_DATABASE, self.settings.name)
                if exists:  # a newly installed server has other passwords
                    create_logins(admin, self.settings)
            if not exists:
                return self.create()
        schema = self.schema()
        if schema is None:
            self._say("No schema version found. Initialising the database.")
            return self.init()
        if schema.is_outdated:
            return self._upgrade(schema.revision)
        if schema.is_newer:  # only the programs of the later release know its grants
            way = WAY_FROM_NEWER.format(revision=schema.revision)
            raise SchemaError(f"The schema version {schema.revision} is newer than this program ({SCHEMA}). {way}")
        self._regrant()
        return self._say(f"The database is up to date (version {SCHEMA}).")

    def reset(self) -> None:
        """Drop every table of OAR and create them again."""
        with self.alone(), self._owner() as owner, owner.transaction():
            remove_tables(owner)
            install(owner, self._directory, self.settings.ro_user, self.rules)
        self._say(f"The database {self.settings.name} is empty again (version {SCHEMA}).")

    def drop(self) -> None:
        """Drop the database. Drop the logins if nothing else uses them."""
        with self._admin("postgres") as admin:
            if not admin.has(_HAS_DATABASE, self.settings.name):
                raise SchemaError(f"The database {self.settings.name} does not exist.")
            admin.run("DROP DATABASE {}", self.settings.name)
            self._say(f"The database {self.settings.name} is dropped.")
            for login in (self.settings.ro_user, self.settings.user):
                self._drop_login(admin, login)

    def fix_ro_user(self) -> None:
        """Create the read-only login if it is missing, and restore its rights."""
        if self._connect_admin:
            with self._admin(self.settings.name) as admin:
                create_ro_login(admin, self.settings)
                secure_database(admin, self.settings)
        self._regrant()
        self._say(f"The rights of {self.settings.ro_user} are in order.")

    def fix_index(self) -> None:
        """Mark the rows of ended jobs as history. Create missing indexes."""
        from oar.lib.db import invariants

        with self._owner() as owner:
            for repair in invariants.REPAIRS:
                count = 0 if self._dry else invariants.run_repair(owner.connection, repair)
                if count:
                    self._say(f"{repair.table}: {count} rows: {repair.effect}")
            for index, statement in invariants.missing_indexes(owner.connection):
                owner.run("DROP INDEX CONCURRENTLY IF EXISTS public.{}", index)
                owner.run(statement)
                self._say(f"{index}: created")

    def schema(self) -> StoredSchema | None:
        """Return the schema of the database, None if it has none."""
        with self.database.snapshot() as tx:
            return tx.system.schema_version()

    # -- parts -------------------------------------------------------------------------------------------------------

    def _install(self, session: MigrationConnection) -> None:
        with session.transaction():
            install(session, self._directory, self.settings.ro_user, self.rules)
        if not self._dry:
            self._say(f"The database {self.settings.name} is ready (version {SCHEMA}).")

    def _require_empty(self, session: MigrationConnection) -> None:
        if session.ask("SELECT to_regclass('public.schema') IS NOT NULL")[0][0]:
            version = session.ask(
                "SELECT COALESCE(NULLIF(to_jsonb(s) ->> 'revision', ''), version) FROM public.schema s"
            )
            present = version[0][0] if version else "unknown"
            raise SchemaError(
                f"The database {self.settings.name} already has an OAR schema (version {present})."
                " Use --setup to bring it up to date, --reset to begin anew."
            )

    def _regrant(self) -> None:
        with self._owner() as owner, owner.transaction():
            if not owner.has(_HAS_LOGIN, self.settings.ro_user):
                raise SchemaError(
                    f"The login {self.settings.ro_user} does not exist: run oar-database --fix-ro-user-priv"
                    " with --db-is-local or --db-admin-user."
                )
            grant(owner, self._directory, self.settings.ro_user)

    def _drop_login(self, admin: MigrationConnection, login: str) -> None:
        if not admin.has(_HAS_LOGIN, login):
            return
        try:
            admin.run("DROP ROLE {}", login)
        except psycopg2.errors.DependentObjectsStillExist:
            self._say(f"The login {login} is kept: something else uses it.")
        else:
            self._say(f"The login {login} is dropped.")

    def _upgrade(self, version: str) -> None:
        with self._owner() as owner:
            is_ours = owner.ask(_HAS_ALEMBIC)[0][0]
            step = owner.ask("SELECT version_num FROM public.alembic_version")[0][0] if is_ours else ""
            foreseen = list(self._foresee(owner, step)) if is_ours else []
        if not is_ours:
            raise SchemaError(
                f"The schema version {version} is that of an earlier generation of OAR: create a new database"
                f" (--create with another --db-name), and take this one over (--adopt --from)."
            )
        self._say(f"The current schema version is {version}. Upgrading to {SCHEMA}.")
        for line in foreseen:
            self._say(line)
        self._say(f"OAR {self._oldest()} and later can use it; an older release needs your backup of the database.")
        began = time.monotonic()
        with self.alone():
            self._migrate(step)
        self._regrant()
        if not self._dry:
            self._say(f"The database is up to date (version {SCHEMA}), after {time.monotonic() - began:.0f} s.")

    def _oldest(self) -> str:
        """Return the oldest release whose programs can use the new schema."""
        from alembic.script import ScriptDirectory

        head = ScriptDirectory.from_config(self._alembic()).get_revision("head")
        return str(getattr(head.module, "oldest", head.revision))

    def _foresee(self, owner: MigrationConnection, version: str) -> Iterator[str]:
        """Yield the lines that describe the work of the migrations from ``version`` on."""
        from alembic.script import ScriptDirectory

        scripts = ScriptDirectory.from_config(self._alembic())
        steps = [step for step in scripts.iterate_revisions("head", version) if step.revision != version]
        tables = tables_of(self._statements(version))
        work = [
            TableWork(
                table, kind, owner.ask(f"SELECT count(*) FROM public.{quote_ident(table, owner.connection)}")[0][0]
            )
            for table, kind in tables.items()
            if owner.has(_HAS_TABLE, table)
        ]
        return report({step.revision: step.doc for step in reversed(steps)}, work)

    def _statements(self, version: str) -> str:
        from alembic import command

        configuration = self._alembic()
        configuration.output_buffer = io.StringIO()
        command.upgrade(configuration, f"{version}:head", sql=True)
        return str(configuration.output_buffer.getvalue())

    def _migrate(self, version: str) -> None:
        """Run the migrations from ``version`` on, each in its own transaction."""
        from alembic import command
        from sqlalchemy import exc

        if self._dry:
            return self._say(self._statements(version))
        configuration = self._alembic()
        for attempt in range(1, _LOCK_ATTEMPTS + 1):
            try:
                with self._sqlalchemy() as connection:
                    configuration.attributes["connection"] = connection
                    return command.upgrade(configuration, "head")
            except exc.DBAPIError as error:
                is_busy = getattr(error.orig, "pgcode", None) == _LOCK_NOT_AVAILABLE
                if not is_busy or attempt == _LOCK_ATTEMPTS:
                    raise SchemaError(str(error.orig).strip().partition("\n")[0]) from error
        return None

    def _alembic(self) -> "Config":
        from alembic.config import Config

        configuration = Config()
        configuration.set_main_option("script_location", str(self._directory).replace("%", "%%"))
        configuration.set_main_option("path_separator", "os")
        return configuration

    @contextmanager
    def _sqlalchemy(self) -> Iterator[Any]:
        """Open the owner's connection for alembic."""
        from sqlalchemy import create_engine, event
        from sqlalchemy.pool import NullPool

        engine = create_engine("postgresql+psycopg2://", creator=self._transactional_connection, poolclass=NullPool)
        if self._show:
            show = self._show
            event.listen(engine, "before_cursor_execute", lambda *call: show(f"{call[2].strip().removesuffix(';')};"))
        with engine.connect() as connection:
            yield connection

    def _transactional_connection(self) -> Connection:
        connection = self.database.connection()
        connection.cursor().execute(_LOCK_TIMEOUT)
        connection.autocommit = False
        return connection

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the locks that exclude the server and other changes of the schema."""
        with ExitStack() as stack:
            if stack.enter_context(self.database.hold_lock(SERVER_LOCK)) is None:
                raise SchemaError("The OAR server is running, stop it first.")
            if stack.enter_context(self.database.hold_lock(SCHEMA_LOCK)) is None:
                raise SchemaError(f"The schema is being changed by {self.database.lock_holder(SCHEMA_LOCK)}.")
            yield

    @contextmanager
    def _owner(self) -> Iterator[MigrationConnection]:
        connection = self.database.connection()
        try:
            yield MigrationConnection(connection, self._show, dry=self._dry)
        finally:
            connection.close()

    @contextmanager
    def _admin(self, name: str) -> Iterator[MigrationConnection]:
        if self._connect_admin is None:
            raise SchemaError("This requires an administrator of PostgreSQL: use --db-is-local or --db-admin-user.")
        try:
            connection = self._connect_admin(name)
        except psycopg2.OperationalError as error:
            raise unavailable(error) from error
        try:
            yield MigrationConnection(connection, self._show, dry=self._dry)
        finally:
            connection.close()
