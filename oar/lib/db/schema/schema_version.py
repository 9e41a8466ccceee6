"""The version of the schema (``tx.schema_version``): the only row of the table ``schema``."""

import psycopg2

from oar.lib.db.sql.statements import Table

_UNDEFINED_TABLE = "42P01"


class SchemaVersion(Table):
    """The version that ``oar-database`` has written."""

    def find(self) -> str | None:
        """Return the version, None if the database has no schema.  The transaction is of no use after that."""
        try:
            version: str | None = self._tx.value("SELECT version FROM schema")
        except psycopg2.Error as error:
            if error.pgcode == _UNDEFINED_TABLE:
                return None
            raise
        return version
