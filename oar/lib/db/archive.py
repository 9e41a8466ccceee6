"""The archive: a second database with the same schema, to which ended jobs are copied with all their rows.

The copied rows are compared in both databases before the commit. Secrets and plans are not archived.

See docs/design/schema.rst, "Archive".
"""

import tempfile
from collections.abc import Collection

from oar.lib.base.errors import SchemaError
from oar.lib.base.version import explain_schema_mismatch
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.statements import quoted
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.sql_retention import ALTERNATIVES, ROWS_OF_JOBS

#: Keys, who may do what, plans and what the Runner notes: worth nothing when a job is over, or secret.
_LEFT_OUT = ("challenges", "token_jobs", "job_runs", "job_reasons", "job_predictions", "gantt_", "job_dependencies")
#: The dependencies of a job on others; those of others on it are theirs.
_DEPENDENCIES = "job_dependencies WHERE job_id = ANY(%(ids)s)"
_ROWS = (*(rows for rows in ROWS_OF_JOBS if not rows.startswith(_LEFT_OUT)), _DEPENDENCIES)
_RESOURCES = "resources WHERE resource_id = ANY(%(resources)s)"
_RESOURCES_OF_JOBS = f"SELECT DISTINCT resource_id FROM assigned_resources WHERE moldable_job_id IN ({ALTERNATIVES})"

#: Columns that can be written, with their types.
_COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = to_regclass('public.' || %s) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    ORDER BY attnum"""
_SUBMITTED = "SELECT job_id, submission_time FROM jobs WHERE job_id = ANY(%s)"
#: What no two databases have in common.
_IDENTITY = "SELECT pg_postmaster_start_time()::text, current_database()::text"

#: Bytes of rows that are held in memory; more go through a file.
_HELD = 1 << 24


class Archive:
    """The access to the archive. Each method raises DatabaseUnavailable, or SchemaError if it is the wrong database."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self._name = settings.name
        self._database = Database(settings, application="oar:database")
        self._columns: dict[str, tuple[str, ...]] = {}

    def prepare(self, live: Database) -> None:
        """Check that the database is an archive for the jobs of ``live``. Add missing properties of resources to it."""
        with live.snapshot() as source, self._database.begin() as target:
            if source.row(_IDENTITY) == target.row(_IDENTITY):
                raise SchemaError(f"DB_ARCHIVE_BASE_NAME: {self._name} is the database of the server itself.")
            schema = target.system.schema_version()
            if explain_schema_mismatch(schema):
                problem = f"has the schema version {schema.revision}" if schema else "has no schema of OAR"
                raise SchemaError(
                    f"The archive {self._name} {problem}: run oar-database {'--setup' if schema else '--create'}"
                    f" --db-name {self._name} with the logins of the archive first."
                )
            present: dict[str, str] = dict(target.rows(_COLUMNS, ("resources",)))
            for name, kind in source.rows(_COLUMNS, ("resources",)):
                if name not in present:
                    target.execute(f"ALTER TABLE public.resources ADD COLUMN {quoted(name)} {kind}")

    def missing(self, source: Transaction, ids: Collection[int]) -> list[int]:
        """Return the jobs that the archive does not have.

        If the archive has another job with the same number, it belongs to another database. Raises SchemaError in this
        case.
        """
        with self._database.snapshot() as target:
            archived: dict[int, int] = dict(target.rows(_SUBMITTED, (list(ids),)))
        live: dict[int, int] = dict(source.rows(_SUBMITTED, (list(archived),)))
        for job_id in sorted(archived):
            if archived[job_id] != live.get(job_id):
                raise SchemaError(f"The archive {self._name} has another job {job_id}: it belongs to another database.")
        return [job_id for job_id in ids if job_id not in archived]

    def keep(self, source: Transaction, ids: Collection[int]) -> int:
        """Copy ended jobs that the archive does not have. Return their number."""
        missing = self.missing(source, ids)
        if missing:
            values = {"ids": missing, "resources": source.column(_RESOURCES_OF_JOBS, {"ids": missing})}
            with self._database.begin() as target:
                target.execute(f"DELETE FROM {_RESOURCES}", values)
                for rows in (_RESOURCES, *reversed(_ROWS)):
                    self._copy(source, target, rows, values)
        return len(missing)

    def close(self) -> None:
        self._database.close()

    def _copy(self, source: Transaction, target: Transaction, rows: str, values: dict[str, list[int]]) -> None:
        """Copy the rows of a table that satisfy a condition, and check that the copies are equal."""
        table = rows.partition(" ")[0]
        names = ", ".join(map(quoted, self._columns_of(source, table)))
        with tempfile.SpooledTemporaryFile(_HELD) as file:
            selected = source.inline(f"SELECT {names} FROM {rows}", values)
            with source.connection.cursor() as cursor:
                cursor.copy_expert(f"COPY ({selected}) TO STDOUT", file)
            file.seek(0)
            with target.connection.cursor() as cursor:
                cursor.copy_expert(f"COPY public.{table} ({names}) FROM STDIN", file)
        sums = f"SELECT count(*), COALESCE(sum(hashtextextended(ROW({names})::text, 0)), 0) FROM {rows}"
        if source.row(sums, values) != target.row(sums, values):
            raise SchemaError(
                f"The archive {self._name} has other rows of {table} than were copied: nothing is changed."
            )

    def _columns_of(self, source: Transaction, table: str) -> tuple[str, ...]:
        if table not in self._columns:
            self._columns[table] = tuple(source.column(_COLUMNS, (table,)))
        return self._columns[table]
