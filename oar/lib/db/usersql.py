"""SQL conditions given by users, evaluated under the read-only login: nothing comes back but ids (database.md 4)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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
#: ... and of one that names a column that is none.
_NO_COLUMN = "42703"


def evaluate(database: Database, table: Table, text: str) -> list[int]:
    """Return the ids of the rows that satisfy the condition, ascending.  Raises BadSql."""
    with session(database, table) as conditions:
        return conditions.ids(text)


def check(database: Database, table: Table, text: str) -> str:
    """Return the condition as it may be stored, to be used in parentheses of its own.  Raises BadSql."""
    with session(database, table) as conditions:
        return conditions.check(text)


def evaluate_all(database: Database, table: Table, texts: Iterable[str]) -> dict[str, list[int] | BadSql]:
    """Evaluate several conditions on one connection; each has ids or an error of its own."""
    results: dict[str, list[int] | BadSql] = {}
    with session(database, table) as conditions:
        for text in dict.fromkeys(texts):
            try:
                results[text] = conditions.ids(text)
            except BadSql as error:
                results[text] = error
    return results


@contextmanager
def session(database: Database, table: Table) -> Iterator["Conditions"]:
    """Open a session of the read-only login for conditions about one table.  Raises ConfigError."""
    if not database.settings.ro_user:
        raise ConfigError("DB_BASE_LOGIN_RO is not configured.")
    with database.readonly() as tx:
        yield Conditions(tx, table, database.settings.user_sql_timeout)


class Conditions:
    """Conditions about one table, in an open session of the read-only login."""

    def __init__(self, tx: Transaction, table: Table, limit: int) -> None:
        """``limit``: the seconds given to each statement, for messages."""
        self.columns: Mapping[str, str] = dict(tx.rows(_COLUMNS, (table.value,)))  #: names and SQL types
        self._tx = tx
        self._table = table
        self._limit = limit

    def check(self, text: str) -> str:
        """Return the condition as it may be stored, to be used in parentheses of its own.  Raises BadSql."""
        normal = normalise(text, self.columns)
        # What is valid only inside, or only outside of parentheses would be more than a condition.
        head = f"SELECT {_KEYS[self._table]} FROM {self._table} WHERE"
        with self.guarded() as tx:
            tx.rows(f"{head} ({normal}\n) LIMIT 0; {head} {normal}\n LIMIT 0")
        return normal

    def ids(self, text: str) -> list[int]:
        """Return the ids of the rows that satisfy the condition, ascending.  Raises BadSql."""
        normal = self.check(text)
        key = _KEYS[self._table]
        with self.guarded() as tx:
            return tx.column(f"SELECT {key} FROM {self._table} WHERE ({normal}\n) ORDER BY {key}")

    @contextmanager
    def guarded(self) -> Iterator[Transaction]:
        """Run a statement that holds checked conditions, without parameters: a '%' of the text stays one.

        A failure leaves the session usable.  Raises BadSql.
        """
        self._tx.execute("SAVEPOINT condition")
        try:
            yield self._tx
        except psycopg2.DatabaseError as error:
            if error.pgcode is None:  # the connection is lost
                raise
            self._tx.execute("ROLLBACK TO condition")
            raise BadSql(_explain(error, self._limit, self.columns)) from error


def _explain(error: psycopg2.Error, limit: int, columns: Iterable[str]) -> str:
    if error.pgcode == _CANCELED:
        return f"cannot evaluate the SQL condition: it takes longer than {limit} s"
    text = str(error).partition("\n")[0]
    return f"cannot evaluate the SQL condition: {text}{_guess(text, columns) if error.pgcode == _NO_COLUMN else ''}"


def _guess(text: str, columns: Iterable[str]) -> str:
    """Return what was meant by the column that does not exist, '' if nothing is like it."""
    from oar.lib.guesses import nearest

    written = re.search(r'"([^"]+)"', text)
    meant = nearest(written[1], columns) if written else None
    return f', did you mean "{meant}"?' if meant else ""
