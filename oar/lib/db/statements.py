"""Run statements, and the base of all tables.

This module does not depend on any table. The tables import this module, and ``transaction.py`` imports the tables.
"""

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

# The C module of psycopg2 imports ssl only for callbacks of old OpenSSL versions. Without ssl, a command starts 8 ms
# earlier. Modules that are loaded before the first transaction must import psycopg2 from here.
_ssl_was_loaded = "ssl" in sys.modules
if not _ssl_was_loaded:
    sys.modules["ssl"] = None  # type: ignore[assignment]
import psycopg2  # noqa: E402
import psycopg2.extensions  # noqa: E402

if not _ssl_was_loaded:
    del sys.modules["ssl"]

if TYPE_CHECKING:
    from oar.lib.bus.messages import Effect, Topic

__all__ = [
    "BUCKETS",
    "CLOCK",
    "CUT",
    "About",
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

#: Reads rows from JSON: the values of each row, without their names.
_DECODER = json.JSONDecoder(object_pairs_hook=lambda pairs: tuple([value for _, value in pairs]))
#: A list of so many elements goes to the database as one literal.
LONG_LIST = 100
_PARAMETER = re.compile(r"%\((\w+)\)s|%s|%%")

#: Whole seconds that have passed, as the clocks of commands and nodes count them: a cast alone would round up.
CLOCK = "FLOOR(EXTRACT(EPOCH FROM clock_timestamp()))::bigint"
#: Lengths of pieces of time (in UTC), as PostgreSQL cuts dates to them, and the begin of the piece of a date.
BUCKETS = ("day", "week", "month")
CUT = "extract(epoch FROM date_trunc('{bucket}', to_timestamp({date}) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')::bigint"
#: More ids than this are asked about with statements for each question: an answer of PostgreSQL is one text for fewer.
_TOGETHER = 1000
#: If they lie so close together, ids are asked about as the range that they are in: for each one of a list PostgreSQL
#: looks at its statistics before it begins, and that of ten thousand takes as long as the answer.
_SPREAD = 2
_AS_RANGE = (
    (re.compile(r"(\S+) = ANY\(%\(ids\)s\)"), r"\1 BETWEEN %(first)s AND %(last)s"),
    (re.compile(r"unnest\(%\(ids\)s::bigint\[\]\)"), "generate_series(%(first)s::bigint, %(last)s::bigint)"),
)

Row = tuple[Any, ...]
Parameters = Sequence[Any] | dict[str, Any]
Connection = psycopg2.extensions.connection
#: Ids as parameters of a statement: all, or the first and the last one.
_Extent = dict[str, Any]


class About(NamedTuple):
    """A query about objects of one kind. Its only parameter is the list of their ids.

    The parameter is in ``= ANY(%s)`` or ``unnest(%s::bigint[])``. The columns have types that JSON supports. Rows about
    other ids are ignored.
    """

    sql: str
    read: Callable[[Sequence[Row]], Any]  #: makes the answer of the rows
    of_many: "Callable[[Statements, Sequence[int]], Any] | None" = None  #: answers it where there are many ids


class Prepared(str):
    """A statement that runs repeatedly, or several separated by ``;``. PostgreSQL plans it once.

    At the first run, a connection sends the text unchanged, since a command runs most statements only once. At the
    second run, it prepares the statement; later runs only name it. Prepared statements end with the connection. Do not
    use this for a text whose columns may change while programs run (``SELECT *`` of resources).

    With a long list, the text is sent unchanged. A plan made for few rows in small tables would scan a whole table for
    each of 10000 newly submitted jobs.
    """

    @cached_property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Return each statement with ``$1``, ``$2`` as its parameters, and the arguments of its call."""
        return tuple(_part(text) for text in self.split(";") if text.strip())


class Preparations:
    """The prepared statements of one connection."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._calls: dict[str, str] = {}  #: what runs each text that is prepared
        self._number = 0

    def call(self, sql: Prepared, prepare: Callable[[str], object]) -> str:
        """Return the text that runs a statement. ``prepare`` is called with the text that must run before."""
        call = self._calls.get(sql)
        if call is not None:
            return call
        if sql not in self._seen:
            self._seen.add(sql)
            return sql
        # A name is never reused: it is unknown whether a failed preparation has used it.
        names = [f"oar_{self._number + place}" for place in range(len(sql.parts))]
        self._number += len(names)
        pairs = list(zip(names, sql.parts, strict=True))
        prepare("; ".join(f"PREPARE {name} AS {question}" for name, (question, _) in pairs))
        call = "; ".join(f"EXECUTE {name}{arguments}" for name, (_, arguments) in pairs)
        self._calls[sql] = call
        return call

    def forget(self) -> None:
        """Clear the list: the session has discarded all prepared statements."""
        self._calls.clear()


class PreparingConnection(psycopg2.extensions.connection):
    """A connection with its prepared statements, and a callback for the case that PostgreSQL does not respond."""

    def __init__(
        self,
        *parameters: Any,
        prompt_seconds: float = 5,
        on_silence: Callable[[], None] | None = None,
        **options: Any,
    ) -> None:
        self.preparations = Preparations()
        self.prompt_seconds = prompt_seconds  #: for which an answer that comes at once is awaited
        self.on_silence = on_silence
        self.idle_since = 0.0  #: by the monotonic clock
        self.is_prompt = True  #: PostgreSQL answers at once, if at all: it has no statement that may take long
        super().__init__(*parameters, **options)


class Statements:
    """Run statements inside a transaction that another object begins and ends."""

    def __init__(self, connection: PreparingConnection, now: int | None) -> None:
        """``now``: the database clock, None to read it when it is needed."""
        self._cursor = connection.cursor()
        self._preparations = connection.preparations
        if now is not None:
            self.now = now
        self.outbox: list[Effect] = []  #: what is sent after the commit
        self.topics: set[Topic] = set()  #: what listeners are told after the commit
        self.ended: set[int] = set()  #: the jobs of whose end they are told
        self.is_asynchronous = False  #: the commit does not wait for the disk

    @cached_property
    def now(self) -> int:
        """Return the clock of the database at the start of the transaction, as Unix time."""
        return int(self.value(f"SELECT {CLOCK}"))

    def end(self) -> None:
        """Release the connection: a statement after the end of the transaction would be a separate transaction."""
        del self._cursor

    @property
    def connection(self) -> Connection:
        """Return the connection, for a library that runs its own statements."""
        return self._cursor.connection

    def _run(self, sql: str, parameters: Parameters) -> None:
        if _has_long_list(parameters):
            parameters = _with_literals(parameters)
        elif isinstance(sql, Prepared):
            sql = self._preparations.call(sql, self._cursor.execute)
        self._cursor.execute(sql, parameters or None)

    def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement. Return the number of affected rows."""
        self._run(sql, parameters)
        return self._cursor.rowcount

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Run a query. Return all rows."""
        self._run(sql, parameters)
        return self._cursor.fetchall()

    def row(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """Run a query. Return its first row, None if it has no rows."""
        self._run(sql, parameters)
        return self._cursor.fetchone()

    def value(self, sql: str, parameters: Parameters = ()) -> Any:
        """Run a query. Return the first column of its first row, None if it has no rows."""
        row = self.row(sql, parameters)
        return row[0] if row else None

    def column(self, sql: str, parameters: Parameters = ()) -> list[Any]:
        """Run a query. Return the first column of all rows."""
        return [row[0] for row in self.rows(sql, parameters)]

    def about(self, ids: Collection[int], *questions: About) -> list[Any]:
        """Return the results of several queries about ids. Up to 1000 ids need only one statement.

        For more ids, the results may also contain data of other ids between them.
        """
        wanted = list(ids)
        if len(wanted) > _TOGETHER:
            extent = _extent(wanted)
            return [
                question.of_many(self, wanted)
                if question.of_many
                else question.read(self._rows_in(question.sql, extent))
                for question in questions
            ]
        texts = self.row(_together(tuple(question.sql for question in questions)), {"ids": wanted}) or ()
        return [
            question.read(_DECODER.decode(text) if text else [])
            for question, text in zip(questions, texts, strict=True)
        ]

    def rows_about(self, sql: str, ids: Sequence[int]) -> list[Row]:
        """Return the rows about many ids, and possibly about others between them.

        ``sql`` has the form of ``About.sql``.
        """
        return self._rows_in(sql, _extent(ids)) if ids else []

    def _rows_in(self, sql: str, extent: _Extent) -> list[Row]:
        named = sql.replace("%s", "%(ids)s")
        for their_list, their_range in _AS_RANGE if "first" in extent else ():
            named = their_list.sub(their_range, named)
        self._cursor.execute(named, extent)
        return self._cursor.fetchall()

    def rows_and_names(self, sql: str, parameters: Parameters = ()) -> tuple[list[Row], list[str]]:
        """Run a query. Return all rows and the names of its columns."""
        rows = self.rows(sql, parameters)
        return rows, [column.name for column in self._cursor.description or ()]

    def insert_many(self, sql: str, rows: Iterable[Row], page: int = 1000) -> None:
        """Run ``INSERT ... VALUES %s`` for many rows, ``page`` rows at a time."""
        from psycopg2.extras import execute_values

        execute_values(self._cursor, sql, list(rows), page_size=page)

    def insert_returning(self, sql: str, rows: Iterable[Row], page: int = 1000) -> list[Row]:
        """Run ``INSERT ... VALUES %s RETURNING ...`` for many rows. Return the rows of RETURNING, in order."""
        from psycopg2.extras import execute_values

        returned: list[Row] = execute_values(self._cursor, sql, list(rows), page_size=page, fetch=True)
        return returned

    def inline(self, sql: str, parameters: Parameters) -> str:
        """Return a statement with its parameters as literals, to insert it into a statement without parameters."""
        if not parameters:
            return sql.replace("%%", "%")
        text: bytes = self._cursor.mogrify(sql, parameters)
        return text.decode()

    def commit_asynchronously(self) -> None:
        """Do not wait for the disk at the commit.

        A crash of PostgreSQL shortly afterwards may undo the commit. So use this only for changes that are repeated if
        lost.
        """
        self.is_asynchronous = True


class Table:
    """The base of every attribute of a transaction: the statements about a table, or for one query."""

    def __init__(self, tx: Statements) -> None:
        self._tx = tx

    def _changed(self, *topics: "Topic") -> None:
        """Notify listeners of these topics after the commit."""
        self._tx.topics.update(topics)


@lru_cache(maxsize=32)
def _together(questions: tuple[str, ...]) -> Prepared:
    """Return a statement with one column per query: its rows as JSON, null if there are none."""
    columns = (f"(SELECT json_agg(q) FROM ({sql.replace('%s', '%(ids)s')}) q)::text" for sql in questions)
    return Prepared(f"SELECT {', '.join(columns)}")


def _extent(ids: Sequence[int]) -> _Extent:
    first, last = min(ids), max(ids)
    is_range = last - first < _SPREAD * len(ids)
    return {"first": first, "last": last} if is_range else {"ids": _literal(list(ids))}


def _has_long_list(parameters: Parameters) -> bool:
    values = parameters.values() if isinstance(parameters, dict) else parameters
    return any(isinstance(value, list) and len(value) >= LONG_LIST for value in values)


def _with_literals(parameters: Parameters) -> Parameters:
    """Return the parameters of a statement with each long list as one array literal.

    psycopg2 would write an expression for each element, which takes psycopg2 and PostgreSQL ten times as long.
    """
    if isinstance(parameters, dict):
        return {name: _literal(value) for name, value in parameters.items()}
    return [_literal(value) for value in parameters]


def _literal(value: Any) -> Any:
    if not isinstance(value, list) or len(value) < LONG_LIST:
        return value
    kinds = set(map(type, value))
    if kinds == {int}:
        return f"{{{','.join(map(str, value))}}}"
    if kinds <= {str, type(None)}:
        return f"{{{','.join(map(_quoted_element, value))}}}"
    return value


def _quoted_element(text: str | None) -> str:
    if text is None:
        return "NULL"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


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
    """Return a name as an SQL identifier. In a statement with parameters, ``%`` is doubled."""
    identifier = '"' + name.replace('"', '""') + '"'
    return identifier.replace("%", "%%") if has_parameters else identifier


def flag(value: bool) -> str:
    """Return a truth value as the columns of the schema store it."""
    return "YES" if value else "NO"
