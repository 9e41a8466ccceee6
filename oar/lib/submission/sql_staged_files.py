"""Files that users gave to their jobs (``tx.staged_files``), rows of ``files``."""

from collections.abc import Collection
from typing import NamedTuple

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Table

_FIND = "SELECT file_id, location FROM files WHERE md5sum = %s AND location = %s ORDER BY file_id LIMIT 1"
_INSERT = """
    INSERT INTO files (md5sum, location, method, compression, size) VALUES (%s, %s, 'FILE', %s, %s) RETURNING file_id"""
_REMOVE = """
    DELETE FROM files f WHERE f.file_id = %s AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.file_id = f.file_id)"""
#: Files that no live job names, nor one that was started or submitted after a date.
_UNUSED = """
    SELECT f.file_id, f.location FROM files f WHERE NOT EXISTS (
        SELECT 1 FROM jobs j WHERE j.file_id = f.file_id
          AND (j.state NOT IN ('Terminated', 'Error') OR GREATEST(j.start_time, j.submission_time) > %s))
    ORDER BY f.file_id"""


class StagedFile(NamedTuple):
    """A file that the server keeps for jobs."""

    id: int
    location: str  #: its path on the server


class StagedFiles(Table):
    """Rows of ``files``."""

    def find(self, md5sum: str, location: str) -> StagedFile | None:
        """Return the file with this checksum at this path, None if there is none."""
        row = self._tx.row(_FIND, (md5sum, location))
        return StagedFile(*row) if row else None

    def locations(self, locations: Collection[str]) -> frozenset[str]:
        """Return those of some paths that are paths of files."""
        return frozenset(self._tx.column("SELECT location FROM files WHERE location = ANY(%s)", (list(locations),)))

    def add(self, md5sum: str, location: str, compression: str, size: int) -> StagedFile:
        """Add a file; ``compression`` is the kind of archive, '' if it is none; ``size`` is in bytes."""
        return StagedFile(self._tx.value(_INSERT, (md5sum, location, compression, size)), location)

    def remove_unless_named(self, file_id: int) -> bool:
        """Remove a file unless a job names it; return whether it was removed."""
        return self._tx.execute(_REMOVE, (file_id,)) > 0

    def remove(self, file_id: int) -> None:
        """Remove a file, also from the jobs that name it; they have ended."""
        self._tx.execute("UPDATE jobs SET file_id = NULL WHERE file_id = %s", (file_id,))
        self._changed(Topic.JOBS)
        self._tx.execute("DELETE FROM files WHERE file_id = %s", (file_id,))

    def unused(self, since: int) -> list[StagedFile]:
        """Return the files that no live job names, nor one that was started or submitted after a date."""
        return [StagedFile(*row) for row in self._tx.rows(_UNUSED, (since,))]
