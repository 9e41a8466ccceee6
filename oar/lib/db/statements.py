"""What runs statements, and the base of all tables.

This file knows no table.  The tables know this file, and ``transaction.py`` knows the tables.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

# The C module of psycopg2 imports ssl only for call-backs of old OpenSSL versions; a command starts 8 ms sooner
# without it.  What is loaded before the first transaction takes psycopg2 from here.
_ssl_was_loaded = "ssl" in sys.modules
if not _ssl_was_loaded:
    sys.modules["ssl"] = None  # type: ignore[assignment]
import psycopg2  # noqa: E402
import psycopg2.extensions  # noqa: E402

if not _ssl_was_loaded:
    del sys.modules["ssl"]

if TYPE_CHECKING:
    from oar.lib.facts.messages import Effect
    from oar.lib.facts.topics import Topic

__all__ = [
    "Connection",
    "Parameters",
    "Prepared",
    "PreparingConnection",
    "Row",
    "Statements",
    "Table",
    "psycopg2",
    "quoted",
]

_PARAMETER = re.compile(r"%\((\w+)\)s|%s|%%")

Row = tuple[Any, ...]
Parameters = Sequence[Any] | dict[str, Any]
Connection = psycopg2.extensions.connection


class Prepared(str):
    """A statement that runs again and again, or several with ``;`` between them: PostgreSQL plans it once.

    A connection runs the text as it is for the first time, since a command runs most of them only once; for the second
    time it prepares it, and from then on it only names it.  What is prepared goes with the connection.  Not for a text
    whose columns may change while programs run (``SELECT *`` of resources).
    """

    @cached_property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Each statement with ``$1``, ``$2`` for its parameters, and the arguments that a call of it has."""
        return tuple(_part(text) for text in self.split(";") if text.strip())


class Preparations:
    """What one connection has prepared."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._calls: dict[str, str] = {}  #: what runs each text that is prepared
        self._number = 0

    def call(self, sql: Prepared, prepare: Callable[[str], object]) -> str:
        """Return the text that runs a statement; ``prepare`` runs the text that has to come before it."""
        call = self._calls.get(sql)
        if call is not None:
            return call
        if sql not in self._seen:
            self._seen.add(sql)
            return sql
        # A name is never used twice: nobody knows how far one came whose preparation failed.
        names = [f"oar_{self._number + place}" for place in range(len(sql.parts))]
        self._number += len(names)
        pairs = list(zip(names, sql.parts, strict=True))
        prepare("; ".join(f"PREPARE {name} AS {question}" for name, (question, _) in pairs))
        call = "; ".join(f"EXECUTE {name}{arguments}" for name, (_, arguments) in pairs)
        self._calls[sql] = call
        return call

    def forget(self) -> None:
        """Begin anew: the session has discarded everything."""
        self._calls.clear()


class PreparingConnection(psycopg2.extensions.connection):
    """A connection that knows what it has prepared."""

    def __init__(self, *parameters: Any, **options: Any) -> None:
        super().__init__(*parameters, **options)
        self.preparations = Preparations()


class Statements:
    """Runs statements inside a transaction that somebody else begins and ends."""

    def __init__(self, connection: PreparingConnection, now: int) -> None:
        self._cursor = connection.cursor()
        self._preparations = connection.preparations
        self.now = now  #: clock of the database at the start of the transaction, epoch seconds
        self.outbox: list[Effect] = []  #: what is sent after the commit
        self.topics: set[Topic] = set()  #: what listeners are told after the commit
        self.ended: set[int] = set()  #: the jobs of whose end they are told

    def end(self) -> None:
        """Let go of the connection: statements after the end of the transaction would be transactions of their own."""
        del self._cursor

    @property
    def connection(self) -> Connection:
        """The connection itself, for a library that brings its own statements."""
        return self._cursor.connection

    def _run(self, sql: str, parameters: Parameters) -> None:
        if isinstance(sql, Prepared):
            sql = self._preparations.call(sql, self._cursor.execute)
        self._cursor.execute(sql, parameters or None)

    def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement; return the number of rows that it touched."""
        self._run(sql, parameters)
        return self._cursor.rowcount

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Run a query; return all rows."""
        self._run(sql, parameters)
        return self._cursor.fetchall()

    def row(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """Run a query; return its first row, None if it has no rows."""
        self._run(sql, parameters)
        return self._cursor.fetchone()

    def value(self, sql: str, parameters: Parameters = ()) -> Any:
        """Run a query; return the first column of its first row, None if it has no rows."""
        row = self.row(sql, parameters)
        return row[0] if row else None

    def column(self, sql: str, parameters: Parameters = ()) -> list[Any]:
        """Run a query; return the first column of all rows."""
        return [row[0] for row in self.rows(sql, parameters)]

    def rows_and_names(self, sql: str, parameters: Parameters = ()) -> tuple[list[Row], list[str]]:
        """Run a query; return all rows and the names of its columns."""
        rows = self.rows(sql, parameters)
        return rows, [column.name for column in self._cursor.description or ()]

    def insert_many(self, sql: str, rows: Iterable[Row], page: int = 1000) -> None:
        """Run ``INSERT ... VALUES %s`` for many rows, ``page`` at a time."""
        from psycopg2.extras import execute_values

        execute_values(self._cursor, sql, list(rows), page_size=page)

    def insert_returning(self, sql: str, rows: Iterable[Row], page: int = 1000) -> list[Row]:
        """Run ``INSERT ... VALUES %s RETURNING ...`` for many rows; return the rows of RETURNING, in order."""
        from psycopg2.extras import execute_values

        returned: list[Row] = execute_values(self._cursor, sql, list(rows), page_size=page, fetch=True)
        return returned

    def inline(self, sql: str, parameters: Parameters) -> str:
        """Return a statement with its parameters as literals, for a part of another statement without parameters."""
        if not parameters:
            return sql.replace("%%", "%")
        text: bytes = self._cursor.mogrify(sql, parameters)
        return text.decode()

    def commit_asynchronously(self) -> None:
        """Let the commit not wait for the disk.

        A crash of PostgreSQL in the next moment may undo it: only for changes that are made again if they are lost.
        """
        self._cursor.execute("SET LOCAL synchronous_commit TO off")

    def limit_lock_waits(self, seconds: float) -> None:
        """Let a statement fail that waits for a lock for so long, until the end of the transaction."""
        self._cursor.execute(f"SET LOCAL lock_timeout TO '{round(1000 * seconds)}ms'")


class Table:
    """The base of every attribute of a transaction: the statements about a table, or those that answer a question."""

    def __init__(self, tx: Statements) -> None:
        self._tx = tx

    def _changed(self, *topics: "Topic") -> None:
        """Let listeners be told, after the commit, that something of these topics has changed."""
        self._tx.topics.update(topics)


def _part(text: str) -> tuple[str, str]:
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        return f"${numbers.setdefault(match[1] or str(match.start()), len(numbers) + 1)}"

    question = _PARAMETER.sub(number, text)
    arguments = ", ".join("%s" if name.isdigit() else f"%({name})s" for name in numbers)
    return (question, f"({arguments})") if numbers else (text, "")


def quoted(name: str, *, has_parameters: bool = False) -> str:
    """Return a name as an identifier of SQL; in a statement with parameters, ``%`` is written twice."""
    identifier = '"' + name.replace('"', '""') + '"'
    return identifier.replace("%", "%%") if has_parameters else identifier
