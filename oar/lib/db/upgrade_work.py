"""The work of a schema upgrade: the rows that it reads or writes, and an estimate of the time.

It is derived from the statements of the migrations, so that a new migration cannot be forgotten.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple


class RowWork(StrEnum):
    """What a statement does with the existing rows of a table; the slower work is first."""

    WRITTEN = "written"
    READ = "read"


class TableWork(NamedTuple):
    """The work of an upgrade on the rows of a table."""

    table: str
    work: RowWork
    rows: int

    @property
    def seconds(self) -> float:
        """Return an estimate of the time in seconds."""
        return self.rows / _ROWS_PER_SECOND[self.work]

    def __str__(self) -> str:
        return f"{self.table}: {self.rows:,} rows are {self.work}, {about(self.seconds)}"


#: Measured on two shared cores with the widest table: an UPDATE of each row with its indexes; a new index.
_ROWS_PER_SECOND: Mapping[RowWork, int] = {RowWork.WRITTEN: 10_000, RowWork.READ: 200_000}

_TABLE = r"(?:public\.)?(?P<table>\w+)"
#: Statements that take time for each row.  New columns with a constant default take none.
_STATEMENTS: Mapping[RowWork, re.Pattern[str]] = {
    RowWork.WRITTEN: re.compile(
        rf"\b(?:UPDATE\s+{_TABLE}\s+SET|DELETE\s+FROM\s+{_TABLE.replace('table', 'emptied')}"
        rf"|ALTER\s+TABLE\s+{_TABLE.replace('table', 'altered')}\s[^;]*\bTYPE\b)",
        re.IGNORECASE,
    ),
    RowWork.READ: re.compile(
        rf"\b(?:CREATE\s+(?:UNIQUE\s+)?INDEX\s+\w+\s+ON\s+{_TABLE}"
        rf"|ALTER\s+TABLE\s+{_TABLE.replace('table', 'altered')}\s[^;]*\b(?:CHECK|FOREIGN\s+KEY|SET\s+NOT\s+NULL)\b)",
        re.IGNORECASE,
    ),
}
#: Of one row each: they say which version it is.
_BOOKKEEPING = frozenset({"schema", "alembic_version"})


def tables_of(statements: str) -> dict[str, RowWork]:
    """Return the tables whose rows SQL text reads or writes, by name.

    >>> tables_of("UPDATE public.jobs SET state = 'x'; CREATE INDEX a ON queues (name); ALTER TABLE b ADD c int")
    {'jobs': <RowWork.WRITTEN: 'written'>, 'queues': <RowWork.READ: 'read'>}
    """
    tables: dict[str, RowWork] = {}
    for work, pattern in _STATEMENTS.items():
        for match in pattern.finditer(statements):
            table = next(filter(None, match.groups()))
            if table not in _BOOKKEEPING:
                tables.setdefault(table, work)
    return tables


def report(steps: Mapping[str, str], work: Iterable[TableWork]) -> Iterator[str]:
    """Yield the lines of the report: the steps with their descriptions, the tables, the time."""
    for version, meaning in steps.items():
        yield f"{version}: {' '.join(meaning.replace('``', '').split())}"
    large = sorted((item for item in work if item.rows), key=lambda item: (-item.seconds, item.table))
    for item in large:
        yield f"  {item}"
    seconds = sum(item.seconds for item in large)
    yield f"This takes {about(seconds)}; until then no command can be used. Jobs that run go on."


def about(seconds: float) -> str:
    """Return a time as text, rounded to its accuracy.

    >>> about(0.3), about(40), about(400), about(9000)
    ('some seconds', 'about 40 s', 'about 7 min', 'about 2.5 h')
    """
    if seconds < 10:
        return "some seconds"
    if seconds < 120:
        return f"about {seconds:.0f} s"
    if seconds < 7200:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"
