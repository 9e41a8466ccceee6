"""The schema of the database (``tx.schema_version``): the only row of the table ``schema``."""

import psycopg2

from oar.lib.base.version import StoredSchema
from oar.lib.db.statements import Table

#: Before 3.3 there was no column ``revision``: programs and schema had the same version.
_FIND = "SELECT COALESCE(NULLIF(to_jsonb(s) ->> 'revision', ''), version), version FROM schema s"
_UNDEFINED_TABLE = "42P01"


class SchemaVersion(Table):
    """What ``oar-database`` has written."""

    def find(self) -> StoredSchema | None:
        """Return the schema; None if the database has none.  The transaction cannot be used after that."""
        try:
            row = self._tx.row(_FIND)
        except psycopg2.Error as error:
            if error.pgcode == _UNDEFINED_TABLE:
                return None
            raise
        return StoredSchema(*row) if row else None
