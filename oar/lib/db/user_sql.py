"""Conditions of users, evaluated by the read-only login. Only ids are returned.

A condition is fully parsed (``oar.lib.conditions``) and rendered again. The original text is sent to the database only
for users who may use all of PostgreSQL. See docs/design/schema.rst, "User SQL".
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, NamedTuple

import psycopg2

from oar.lib.base.errors import BadCondition, ConfigError
from oar.lib.conditions import bounds
from oar.lib.conditions.parser import ConditionTable, ParsedCondition, parse
from oar.lib.conditions.sql import Mask, statement
from oar.lib.conditions.tokens import check_alone
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.submission.sql_admission import StoredCondition


class Subject(StrEnum):
    """The table of a condition."""

    JOBS = "jobs"
    RESOURCES = "resources"


class Asker(NamedTuple):
    """The user of a condition, with his permissions to read and write."""

    name: str = ""
    hidden: frozenset[str] = frozenset()  #: columns of ``jobs`` that are NULL in the rows of others
    has_full_sql: bool = False  #: may use all of PostgreSQL in a condition, as administrators do


#: OAR itself, and administrators.
SITE = Asker(has_full_sql=True)

_KEYS: Mapping[Subject, str] = {Subject.JOBS: "job_id", Subject.RESOURCES: "resource_id"}

#: The columns of a table, their types, and the lengths of those that have one.
_COLUMNS = """
    SELECT attname, format_type(atttypid, NULL), CASE WHEN atttypid = 'varchar'::regtype THEN atttypmod - 4 END
    FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
"""

#: SQLSTATE of a statement that took longer than its time limit.
_CANCELED = "57014"
#: SQLSTATE of an operator or a function that does not take values of these types.
_WRONG_TYPES = "42883"


def evaluate(database: Database, subject: Subject, text: str, asker: Asker) -> list[int]:
    """Return the ids of the rows that satisfy the condition, in ascending order. Raises BadCondition."""
    with session(database, subject, asker) as conditions:
        return conditions.ids(text)


def everything(database: Database, text: str, limit: int, offset: int = 0) -> list[dict[str, Any]]:
    """Return the rows of ``SELECT * <text>``, by column names: SQL of administrators.

    Raises BadCondition.
    """
    check_alone(text)
    with session(database, Subject.JOBS, SITE) as conditions, conditions.guarded() as tx:
        rows = tx.column(f"SELECT to_jsonb(found)::text FROM (SELECT * {text}\n) found LIMIT {limit} OFFSET {offset}")
    return [json.loads(row) for row in rows]


@contextmanager
def session(database: Database, subject: Subject, asker: Asker) -> Iterator["Conditions"]:
    """Open a session of the read-only login for conditions on one table. Raises ConfigError."""
    if not database.settings.ro_user:
        raise ConfigError("DB_BASE_LOGIN_RO is not configured.")
    with database.readonly() as tx:
        yield Conditions(tx, subject, asker, database.settings.user_sql_timeout)


def condition_table(tx: Transaction, subject: Subject) -> ConditionTable:
    """Return the columns of a table that conditions may use."""
    rows = tx.rows(_COLUMNS, (subject.value,))
    types = {name: type_ for name, type_, _ in rows}
    lengths = {name: length for name, _, length in rows if length is not None and length > 0}
    return ConditionTable(subject, types, lengths, may_select=subject is Subject.RESOURCES)


def satisfying(tx: Transaction, text: str, resources: Collection[int]) -> frozenset[int] | None:
    """Return the resources that satisfy a stored condition, None if the condition cannot be parsed.

    The condition is parsed and rendered again, so it may be sent in any transaction.
    """
    if not text.strip():
        return frozenset(resources)
    try:
        tree = parse(text, condition_table(tx, Subject.RESOURCES)).tree
    except BadCondition:
        return None
    written = statement(tree, Subject.RESOURCES, bounds.LONGEST_COLUMN)
    condition = tx.inline(written.text, written.parameters)
    ids = ", ".join(map(str, [*resources, 0]))
    return frozenset(tx.column(f"SELECT resource_id FROM resources WHERE resource_id IN ({ids}) AND ({condition}\n)"))


def not_understood(tx: Transaction, full_users: Collection[str]) -> Iterator[tuple[StoredCondition, BadCondition]]:
    """Yield the conditions of live jobs that cannot be parsed, each with the reason.

    ``full_users`` may use all of PostgreSQL's SQL (USER_SQL_FULL_USERS).
    """
    table = condition_table(tx, Subject.RESOURCES)
    for condition in tx.submission_checks.conditions_of_live_jobs():
        try:
            parse(condition.text, table)
        except BadCondition as error:
            if condition.user not in full_users:
                yield condition, error


class Conditions:
    """Conditions on one table, in an open session of the read-only login."""

    def __init__(self, tx: Transaction, subject: Subject, asker: Asker, limit: float) -> None:
        """``limit``: time limit of each statement in seconds."""
        self.table = condition_table(tx, subject)
        self._tx = tx
        self._subject = subject
        self._asker = asker
        self._limit = limit
        self._has_savepoint = False  #: one is enough for all statements: they only read

    @property
    def columns(self) -> Mapping[str, str]:
        """Return the columns of the table, with their SQL types."""
        return self.table.types

    def parse(self, text: str) -> ParsedCondition | None:
        """Parse a condition. Return None for plain SQL of a user who may use it. Raises BadCondition."""
        try:
            return parse(text, self.table)
        except BadCondition:
            if not self._asker.has_full_sql:
                raise
            check_alone(text)
            return None

    def check(self, text: str) -> str:
        """Return the condition in the form to store, after the database has checked its types.

        Raises BadCondition.
        """
        with self.guarded() as tx:
            tx.rows(f"SELECT FROM {self._subject} WHERE ({self.sql(text)}\n) LIMIT 0")
        condition = self.parse(text)
        return condition.text if condition else text

    def sql(self, text: str) -> str:
        """Return the SQL of a condition, to be put in parentheses in a statement without parameters.

        Raises BadCondition.
        """
        condition = self.parse(text)
        if condition is None:
            return text
        mask = Mask("job_user", self._asker.name, self._asker.hidden) if self._asker.hidden else None
        written = statement(condition.tree, self._subject, bounds.LONGEST_COLUMN, mask)
        return self._tx.inline(written.text, written.parameters)

    def ids(self, text: str) -> list[int]:
        """Return the ids of the rows that satisfy the condition, in ascending order. Raises BadCondition."""
        key = _KEYS[self._subject]
        query = f"SELECT {key} FROM {self._subject} WHERE ({self.sql(text)}\n) ORDER BY {key}"
        with self.guarded() as tx:
            return tx.column(query)

    def limit(self, seconds: float) -> None:
        """Set the time limit of each later statement."""
        self._limit, self._has_savepoint = seconds, False  # a rollback to the former savepoint would undo the limit
        self._tx.execute("SET LOCAL statement_timeout TO %s", (max(1, round(seconds * 1000)),))

    @contextmanager
    def guarded(self) -> Iterator[Transaction]:
        """Run a statement that contains conditions. A failure leaves the session usable. Raises BadCondition."""
        if not self._has_savepoint:
            self._tx.execute("SAVEPOINT condition")
            self._has_savepoint = True
        try:
            yield self._tx
        except psycopg2.DatabaseError as error:
            if error.pgcode is None:  # the connection is lost
                raise
            self._tx.execute("ROLLBACK TO condition")
            raise _refusal(error, self._limit) from error


_NOT_ALLOWED = "42501"
#: Why PostgreSQL rejects a condition, by its codes.
_REASONS = {
    "22003": "a number is out of the range of its column",
    "22008": "a date does not exist",
    "22012": "a number is divided by zero",
    "22P02": "a value does not have the type of its column",
    "2201B": "a pattern is not a regular expression",
    "22025": "a pattern ends with its escape character",
    _NOT_ALLOWED: "it reads a table that users may not read",
    "42601": "it must be valid SQL",
    "42703": "a column does not exist",
    "42702": "a column name is ambiguous",
    "42804": "two values have different types",
    _WRONG_TYPES: "a function does not exist, or an operator does not accept these types",
    "42P01": "a table does not exist",
}
_QUOTED = re.compile(r'"[^"]{1,100}"')
#: What PostgreSQL writes around an operator or a function with the types of its operands.
_AROUND_TYPES = re.compile("^(operator does not exist: |function )| does not exist$")


class TooSlow(BadCondition):
    """A condition exceeds its time limit."""


def _refusal(error: psycopg2.Error, limit: float) -> BadCondition:
    if error.pgcode == _CANCELED:
        return TooSlow(f"cannot evaluate the SQL condition: it takes longer than {limit:g} s")
    hint = ". Convert a text to a number first, as in cpuset::int" if error.pgcode == _WRONG_TYPES else ""
    reason = _REASONS.get(error.pgcode or "", f"PostgreSQL rejects it (SQLSTATE {error.pgcode})")
    return BadCondition(f"cannot evaluate the SQL condition: {reason}{_named_in(error)}{hint}")


def _named_in(error: psycopg2.Error) -> str:
    """Return the names, types and values of the condition in PostgreSQL's error."""
    line = str(error).partition("\n")[0]
    named = _QUOTED.findall(line)
    if error.pgcode == _WRONG_TYPES:
        named = [_AROUND_TYPES.sub("", line)]
    elif error.pgcode == _NOT_ALLOWED:
        named = [line.rpartition(" ")[2]]
    return f": {', '.join(named)}" if any(named) else ""
