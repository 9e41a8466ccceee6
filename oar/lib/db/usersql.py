"""SQL conditions given by users, evaluated under the read-only login: nothing comes back but ids (database.md 4)."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum

import psycopg2

from oar.lib.db.engine import Database, Transaction
from oar.lib.errors import BadSql, ConfigError
from oar.lib.sqltext import normalise


class Table(StrEnum):
    """What a condition may be about."""

    JOBS = "jobs"
    RESOURCES = "resources"


_KEYS: Mapping[Table, str] = {Table.JOBS: "job_id", Table.RESOURCES: "resource_id"}

#: Which columns the table has, and which of them are text.
_COLUMNS = """
    SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
"""

#: SQLSTATE of a statement that took longer than USER_SQL_TIMEOUT.
_CANCELED = "57014"


def evaluate(database: Database, table: Table, text: str) -> list[int]:
    """Return the ids of the rows that satisfy the condition, ascending.  Raises BadSql."""
    result = evaluate_all(database, table, [text])[text]
    if isinstance(result, BadSql):
        raise result
    return result


def check(database: Database, table: Table, text: str) -> str:
    """Return the condition as it may be stored, to be used in parentheses of its own.  Raises BadSql."""
    with _session(database) as tx:
        normal = normalise(text, _columns(tx, table))
        _try_both_forms(database, tx, table, normal)
    return normal


def evaluate_all(database: Database, table: Table, texts: Iterable[str]) -> dict[str, list[int] | BadSql]:
    """Evaluate several conditions on one connection; each has ids or an error of its own."""
    results: dict[str, list[int] | BadSql] = {}
    with _session(database) as tx:
        columns = _columns(tx, table)
        for text in dict.fromkeys(texts):
            try:
                normal = normalise(text, columns)
                _try_both_forms(database, tx, table, normal)
                results[text] = _ids(database, tx, table, normal)
            except BadSql as error:
                results[text] = error
    return results


def _session(database: Database) -> AbstractContextManager[Transaction]:
    if not database.settings.ro_user:
        raise ConfigError("DB_BASE_LOGIN_RO is not configured.")
    return database.readonly()


def _columns(tx: Transaction, table: Table) -> dict[str, str]:
    return dict(tx.rows(_COLUMNS, (table.value,)))


def _try_both_forms(database: Database, tx: Transaction, table: Table, text: str) -> None:
    """Refuse text that is valid only inside, or only outside of parentheses: it would be more than a condition."""
    for form in (f"({text}\n)", f"{text}\n"):
        _ask(database, tx, f"SELECT {_KEYS[table]} FROM {table} WHERE {form} LIMIT 0")


def _ids(database: Database, tx: Transaction, table: Table, text: str) -> list[int]:
    key = _KEYS[table]
    return _ask(database, tx, f"SELECT {key} FROM {table} WHERE ({text}\n) ORDER BY {key}")


def _ask(database: Database, tx: Transaction, statement: str) -> list[int]:
    """Run the statement; a failure leaves the transaction usable.  No parameter: a '%' of the text stays one."""
    tx.execute("SAVEPOINT condition")
    try:
        return tx.column(statement)
    except psycopg2.DatabaseError as error:
        if error.pgcode is None:  # the connection is lost
            raise
        tx.execute("ROLLBACK TO condition")
        raise BadSql(_explain(error, database.settings.user_sql_timeout)) from error


def _explain(error: psycopg2.Error, limit: int) -> str:
    if error.pgcode == _CANCELED:
        return f"cannot evaluate the SQL condition: it takes longer than {limit} s"
    return f"cannot evaluate the SQL condition: {str(error).partition(chr(10))[0]}"
