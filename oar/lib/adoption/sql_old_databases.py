"""A database of an older OAR, which is only read, never written (``oar-database --adopt``).

It is read in one snapshot: a read-only transaction with isolation level REPEATABLE READ.  The names and columns of its
tables are read from its catalogue.  They depend on the version, and on the program that converted a MySQL database.
"""

import re
from collections.abc import Mapping
from typing import IO, Any, NamedTuple, Self

from psycopg2 import sql

from oar.lib.base.errors import SchemaError
from oar.lib.db.connections import TCP_LIMITS, explain_failure
from oar.lib.db.statements import Row, psycopg2

#: Tables that every version has.
_CORE = ("jobs", "moldable_job_descriptions", "queues", "resources", "schema")
_HOME = """
    SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relname = ANY(%s)
    GROUP BY n.nspname HAVING count(*) = %s ORDER BY n.nspname <> 'public', n.nspname"""
_COLUMNS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY c.relname, a.attnum"""
_SEQUENCE = "SELECT pg_get_serial_sequence(%s, %s)"
_MYSQL = re.compile(r"(mysql|mariadb)(\+\w+)?:", re.IGNORECASE)
_ADDRESS = "write it as postgresql://LOGIN@HOST:PORT/NAME, and the password in PGPASSWORD or ~/.pgpass"
_SESSION = "SET TimeZone TO 'UTC'; SET statement_timeout TO 0; SET idle_in_transaction_session_timeout TO 0"

#: Tables by their names, each with its columns and their types.
Catalogue = Mapping[str, Mapping[str, str]]


class OldDatabase:
    """A snapshot of an older database."""

    def __init__(self, connection: Any) -> None:
        """``connection``: in a read-only transaction with isolation level REPEATABLE READ.  Raises SchemaError."""
        self._connection = connection
        homes = [row[0] for row in self.rows(_HOME, (list(_CORE), len(_CORE)))]
        if not homes:
            raise SchemaError(f"{self.name} is not a database of OAR: it has no tables {', '.join(_CORE)}.")
        self.schema = homes[0]  #: the one in which its tables are: pgloader names it like the database of MySQL
        tables: dict[str, dict[str, str]] = {}
        for table, column, kind in self.rows(_COLUMNS, (self.schema,)):
            tables.setdefault(table, {})[column] = kind
        self.tables: Catalogue = tables
        if "gantt_jobs_sets" in self.tables:
            raise SchemaError(f"{self.name} is a database of this generation of OAR: use --setup, or restore its dump.")
        versions = self.rows(f"SELECT version FROM {self.quoted('schema')}")
        self.version = str(versions[-1][0]) if versions else "unknown"

    @classmethod
    def open(cls, address: str) -> Self:
        """Open a database by its libpq address.  Raises SchemaError, whose message contains no password."""
        if _MYSQL.match(address):
            raise SchemaError("MySQL cannot be read: convert the database first (docs/adoption.rst, From MySQL).")
        try:
            connection = psycopg2.connect(
                address, connect_timeout=10, application_name="oar:adopt", **TCP_LIMITS.client_options()
            )
        except psycopg2.OperationalError as error:
            reason = explain_failure(str(error), quotes=True)
            text = f"Cannot open the old database: {reason}. Check the address behind --from: {_ADDRESS}."
            raise SchemaError(text) from None
        except (psycopg2.Error, UnicodeError):
            raise SchemaError(f"The value of --from must be the address of a database: {_ADDRESS}.") from None
        try:
            connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
            connection.set_client_encoding("UTF8")
            with connection.cursor() as cursor:
                cursor.execute(_SESSION)
            connection.commit()  # otherwise ``refresh`` would roll it back
            return cls(connection)
        except psycopg2.Error as error:
            connection.close()
            raise SchemaError(_unreadable(error)) from None
        except BaseException:
            connection.close()
            raise

    @property
    def name(self) -> str:
        """Name and host of the database, for messages."""
        info = self._connection.info
        return f"{info.dbname} at {info.host or 'the local socket'}"

    def refresh(self) -> None:
        """Start a new snapshot."""
        self._connection.rollback()

    def cancel(self) -> None:
        """Cancel the query that another thread runs."""
        self._connection.cancel()

    def close(self) -> None:
        self._connection.close()

    def quoted(self, table: str) -> str:
        """Return the quoted name of a table for SQL statements."""
        text: str = sql.Identifier(self.schema, table).as_string(self._connection)
        return text

    def rows(self, question: str, parameters: tuple[Any, ...] | None = None) -> list[Row]:
        """Return the rows of a query.  Raises SchemaError."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(question, parameters)
                return list(cursor.fetchall())
        except psycopg2.Error as error:
            raise SchemaError(_unreadable(error)) from None

    def count(self, table: str) -> int:
        """Return the number of the rows of a table."""
        number: int = self.rows(f"SELECT count(*) FROM {self.quoted(table)}")[0][0]
        return number

    def last_number(self, table: str, column: str) -> int:
        """Return the last number that the sequence of a column returned; 0 if there is none."""
        names = self.rows(_SEQUENCE, (self.quoted(table), column))
        if names[0][0] is None:
            return 0
        numbers = self.rows(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {names[0][0]}")
        return int(numbers[0][0])

    def copy_to(self, query: str, file: IO[bytes]) -> None:
        """Write the rows of a query to a file, in the text format of COPY.  Raises psycopg2.Error."""
        with self._connection.cursor() as cursor:
            cursor.copy_expert(f"COPY ({query}) TO STDOUT", file)


class LiveJobs(NamedTuple):
    """Jobs that the old server must still finish."""

    number: int
    first: tuple[int, ...] = ()  #: the numbers of some of them
    last_end: int = 0  #: when their walltimes end; 0: unknown


def live_jobs(old: OldDatabase) -> LiveJobs:
    """Return the jobs that only the old server can finish."""
    jobs, moldable = old.quoted("jobs"), old.quoted("moldable_job_descriptions")
    question = f"""
        SELECT count(*), (array_agg(j.job_id ORDER BY j.job_id))[1:5],
               COALESCE(max(CASE WHEN j.start_time > 0 THEN j.start_time + m.moldable_walltime END), 0)
        FROM {jobs} j LEFT JOIN {moldable} m ON m.moldable_id = j.assigned_moldable_job
        WHERE j.state::text NOT IN ('Waiting', 'Hold', 'Terminated', 'Error')
           OR j.state::text IN ('Waiting', 'Hold')
              AND (j.job_type::text = 'INTERACTIVE' OR j.reservation::text = 'toSchedule')"""
    number, first, last_end = old.rows(question)[0]
    return LiveJobs(number, tuple(first or ()), last_end)


def _unreadable(error: Exception) -> str:
    return f'Cannot read the old database: PostgreSQL rejected a statement: "{error_line(error)}".'


def error_line(error: Exception) -> str:
    """Return the first line of PostgreSQL's error message."""
    return str(error).strip().partition("\n")[0].removesuffix(".")
