"""What ``oar-database`` does to a database: roles, schema, migrations, grants (database.md 4 and 9).

``Connection`` arguments named ``admin`` are those of a superuser of PostgreSQL; all others are the owner's.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from psycopg2 import sql
from psycopg2.extensions import quote_ident

from oar.lib.db.engine import Connection, DatabaseSettings

#: Functions that text of a user's SQL could hold our locks or our patience with.
_DANGEROUS_FUNCTIONS = """
    SELECT p.oid::regprocedure::text FROM pg_proc p
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname ~ '^pg_(try_)?(advisory_|sleep)' ORDER BY 1
"""
_SQL_NAME = re.compile(r':"(\w+)"')

#: What a session of the read-only login begins with, whatever program opens it.
_RO_SETTINGS = {
    "default_transaction_read_only": "on",
    "statement_timeout": "60s",
    "search_path": "oar_public, public",
    "temp_file_limit": "300MB",
    "work_mem": "16MB",
}


def create_roles(admin: Connection, settings: DatabaseSettings) -> None:
    """Create both logins where they are missing, with their passwords, and confine the read-only one."""
    _create_login(admin, settings.user, settings.password)
    _create_login(admin, settings.ro_user, settings.ro_password)
    for name, value in _RO_SETTINGS.items():
        # search_path is a list: quoted as one word it would be one schema of that strange name
        right = sql.SQL(value) if name == "search_path" else sql.Literal(value)
        _execute(admin, "ALTER ROLE {} SET {} = {}", settings.ro_user, sql.SQL(name), right)


def create_database(admin: Connection, settings: DatabaseSettings) -> None:
    """Create the empty database, sorted by code points so that order is the same on every machine."""
    statement = "CREATE DATABASE {} OWNER {} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
    _execute(admin, statement, settings.name, settings.user)


def secure_database(admin: Connection, settings: DatabaseSettings) -> None:
    """Take from everybody what users' SQL could do harm with.  ``admin`` is connected to the database itself.

    A temporary table could shadow a real one; an advisory lock could be one of ours.
    """
    _execute(admin, "REVOKE CONNECT, TEMPORARY ON DATABASE {} FROM PUBLIC", settings.name)
    _execute(admin, "GRANT CONNECT ON DATABASE {} TO {}, {}", settings.name, settings.user, settings.ro_user)
    _execute(admin, "ALTER SCHEMA public OWNER TO {}", settings.user)
    with admin.cursor() as cursor:
        cursor.execute(_DANGEROUS_FUNCTIONS)
        functions = sql.SQL(", ".join(row[0] for row in cursor.fetchall()))
    _execute(admin, "REVOKE EXECUTE ON FUNCTION {} FROM PUBLIC", functions)
    _execute(admin, "GRANT EXECUTE ON FUNCTION {} TO {}", functions, settings.user)


def install(connection: Connection, directory: Path, ro_user: str, rules: Sequence[tuple[int, bool, str]] = ()) -> None:
    """Create all tables, the rows that a new database begins with and the grants, in one transaction."""
    with connection, connection.cursor() as cursor:
        for name in ("schema.sql", "data.sql", "grants.sql"):
            cursor.execute(read_sql(directory, name, connection, ro=ro_user))
        for priority, enabled, rule in rules:
            cursor.execute(_INSERT_RULE, (priority, "YES" if enabled else "NO", rule))


_INSERT_RULE = "INSERT INTO admission_rules (priority, enabled, rule) VALUES (%s, %s, %s)"


def read_sql(directory: Path, name: str, connection: Connection, **names: str) -> str:
    """Return the text of a file of setup/database with ``:"key"`` replaced by the quoted name of that key."""
    text = (directory / name).read_text(encoding="utf-8")
    return _SQL_NAME.sub(lambda match: quote_ident(names[match[1]], connection), text)


def _create_login(admin: Connection, name: str, password: str) -> None:
    with admin.cursor() as cursor:
        cursor.execute("SELECT FROM pg_roles WHERE rolname = %s", (name,))
        exists = cursor.rowcount > 0
    verb = "ALTER" if exists else "CREATE"
    _execute(admin, verb + " ROLE {} LOGIN", name)
    if password:
        _execute(admin, "ALTER ROLE {} PASSWORD {}", name, sql.Literal(password))


def _execute(connection: Connection, statement: str, *arguments: "str | sql.Composable") -> None:
    """Run a statement whose ``{}`` are names (given as str) or other parts (given as sql objects)."""
    parts = [sql.Identifier(part) if isinstance(part, str) else part for part in arguments]
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL(statement).format(*parts))
