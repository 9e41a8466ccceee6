"""Files that users gave to their jobs (``tx.files``), rows of ``files``."""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

_AT = "SELECT file_id, location FROM files WHERE md5sum = %s AND location = %s ORDER BY file_id LIMIT 1"
_INSERT = """
    INSERT INTO files (md5sum, location, method, compression, size) VALUES (%s, %s, 'FILE', %s, %s) RETURNING file_id"""
_REMOVE = """
    DELETE FROM files f WHERE f.file_id = %s AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.file_id = f.file_id)"""
#: Those that no job needs, nor has needed for a while.
_UNUSED = """
    SELECT f.file_id, f.location FROM files f WHERE NOT EXISTS (
        SELECT 1 FROM jobs j WHERE j.file_id = f.file_id
          AND (j.state NOT IN ('Terminated', 'Error') OR GREATEST(j.start_time, j.submission_time) > %s))
    ORDER BY f.file_id"""


class StagedFile(NamedTuple):
    """A file that is kept for jobs."""

    id: int
    location: str  #: its path on the server


class Files:
    """Rows of ``files``."""

    def __init__(self, tx: "Transaction") -> None:
        self._tx = tx

    def at(self, md5sum: str, location: str) -> StagedFile | None:
        """Return the file with this sum that is kept there."""
        row = self._tx.row(_AT, (md5sum, location))
        return StagedFile(*row) if row else None

    def known(self, locations: Collection[str]) -> frozenset[str]:
        """Return those of some paths where a file is kept."""
        return frozenset(self._tx.column("SELECT location FROM files WHERE location = ANY(%s)", (list(locations),)))

    def add(self, md5sum: str, location: str, compression: str, size: int) -> StagedFile:
        """Note a file; ``compression`` is the kind of archive, '' if it is none."""
        return StagedFile(self._tx.value(_INSERT, (md5sum, location, compression, size)), location)

    def remove(self, file_id: int) -> bool:
        """Forget a file unless a job names it; return whether it is forgotten."""
        return self._tx.execute(_REMOVE, (file_id,)) > 0

    def forget(self, file_id: int) -> None:
        """Forget a file; the jobs that named it have ended."""
        self._tx.execute("UPDATE jobs SET file_id = NULL WHERE file_id = %s", (file_id,))
        self._tx.execute("DELETE FROM files WHERE file_id = %s", (file_id,))

    def unused(self, since: int) -> list[StagedFile]:
        """Return the files that no job uses that lives or was started after a date."""
        return [StagedFile(*row) for row in self._tx.rows(_UNUSED, (since,))]
