"""The columns of ``resources`` that administrators add, rename and remove (``tx.property_columns``).

Changes of the table take an advisory lock and give up after a while: behind a waiting ALTER TABLE everybody waits.
"""

from collections.abc import Sequence

import psycopg2.errors

from oar.lib.base.errors import Busy
from oar.lib.bus.topics import Topic
from oar.lib.db.lock_keys import SCHEMA_LOCK
from oar.lib.db.statements import Table, quoted

#: How long a change of the table waits for those who read it.
LOCK_TIMEOUT = "10s"

_RESERVED = "SELECT 1 FROM pg_get_keywords() WHERE word = %s AND catcode IN ('R', 'T')"


class PropertyColumns(Table):
    """Changes of the table ``resources``, and questions about its columns."""

    def lock(self) -> None:
        """Keep others from changing the schema until the end of the transaction.  Raises Busy."""
        if not self._tx.value("SELECT pg_try_advisory_xact_lock(%s, %s)", SCHEMA_LOCK):
            raise Busy("the table is busy, try again")
        self._tx.execute(f"SET LOCAL lock_timeout TO '{LOCK_TIMEOUT}'")

    def is_reserved_word(self, name: str) -> bool:
        """Whether a name would have to be quoted wherever it is written in SQL."""
        return self._tx.row(_RESERVED, (name,)) is not None

    def add(self, name: str, *, is_text: bool) -> None:
        """Add a column.  Raises Busy."""
        self._alter(f"ADD COLUMN {quoted(name)} {'varchar(255)' if is_text else 'integer'}")

    def drop(self, name: str) -> None:
        """Remove a column; its history stays.  Raises Busy."""
        self._alter(f"DROP COLUMN {quoted(name)}")

    def rename(self, old: str, new: str) -> None:
        """Give a column another name, in its history and in the levels of requests too.  Raises Busy."""
        self._alter(f"RENAME COLUMN {quoted(old)} TO {quoted(new)}")
        self._tx.execute(
            "UPDATE job_resource_descriptions SET res_job_resource_type = %s WHERE res_job_resource_type = %s",
            (new, old),
        )
        self._changed(Topic.JOBS)
        self._tx.execute("UPDATE resource_logs SET attribute = %s WHERE attribute = %s", (new, old))

    def counts(self, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return for each column the number of its distinct values, and the number of resources that have none."""
        if not names:
            return {}
        counted = ", ".join(
            f"count(DISTINCT {quoted(name)}), count(*) FILTER (WHERE {quoted(name)} IS NULL)" for name in names
        )
        row = self._tx.row(f"SELECT {counted} FROM resources") or ()
        return dict(zip(names, zip(row[::2], row[1::2], strict=True), strict=True))

    def largest(self, name: str) -> str | int | None:
        """Return the largest value of a column (its name has been checked), None if there is none."""
        value: str | int | None = self._tx.value(f"SELECT max({quoted(name)}) FROM resources")
        return value

    def _alter(self, change: str) -> None:
        try:
            self._tx.execute(f"ALTER TABLE resources {change}")
        except psycopg2.errors.LockNotAvailable as error:
            raise Busy("the table is busy, try again") from error
        self._changed(Topic.RESOURCES)
