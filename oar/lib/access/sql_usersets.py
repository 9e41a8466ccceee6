"""Usersets (``tx.usersets``): named lists of users.  Read at each request and never kept: a change holds at once."""

from collections.abc import Collection

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Table

_ENTRIES = """
    SELECT s.userset_name, e.entry FROM usersets s LEFT JOIN userset_entries e ON e.userset_name = s.userset_name
    WHERE s.userset_name = ANY(%s) ORDER BY s.userset_name, e.entry"""
_KEEP = "SELECT userset_name FROM usersets WHERE userset_name = ANY(%s) ORDER BY userset_name FOR SHARE"
_ADD = """
    INSERT INTO userset_entries (userset_name, entry) SELECT %s, unnest(%s::text[]) ON CONFLICT DO NOTHING
    RETURNING entry"""
_REMOVE = "DELETE FROM userset_entries WHERE userset_name = %s AND entry = ANY(%s) RETURNING entry"


class Usersets(Table):
    """Rows of ``usersets`` and ``userset_entries``."""

    def names(self) -> list[str]:
        """Return the names of all usersets."""
        return self._tx.column("SELECT userset_name FROM usersets ORDER BY userset_name")

    def entries(self, names: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return the entries of those of some usersets that exist, ascending."""
        found: dict[str, tuple[str, ...]] = {}
        for name, entry in self._tx.rows(_ENTRIES, (list(names),)) if names else ():
            found[name] = (*found.get(name, ()), *([entry] if entry is not None else []))
        return found

    def keep(self, names: Collection[str]) -> set[str]:
        """Let nobody change some usersets until the end of the transaction; return those that exist."""
        return set(self._tx.column(_KEEP, (list(names),))) if names else set()

    def lock(self, name: str) -> None:
        """Let nobody else change or name a userset until the end of the transaction."""
        self._tx.execute("SELECT 1 FROM usersets WHERE userset_name = %s FOR UPDATE", (name,))

    def create(self, name: str) -> bool:
        """Create an empty userset; False if it exists."""
        self._tx.topics.add(Topic.RESERVATIONS)
        return self._tx.execute("INSERT INTO usersets (userset_name) VALUES (%s) ON CONFLICT DO NOTHING", (name,)) == 1

    def add(self, name: str, entries: Collection[str]) -> set[str]:
        """Add entries to a userset; return those that it did not have."""
        self._tx.topics.add(Topic.RESERVATIONS)
        return set(self._tx.column(_ADD, (name, list(entries))))

    def remove(self, name: str, entries: Collection[str]) -> set[str]:
        """Take entries out of a userset; return those that it had."""
        self._tx.topics.add(Topic.RESERVATIONS)
        return set(self._tx.column(_REMOVE, (name, list(entries))))

    def drop(self, name: str) -> bool:
        """Delete a userset with its entries; False if there is none."""
        self._tx.topics.add(Topic.RESERVATIONS)
        self._tx.execute("DELETE FROM userset_entries WHERE userset_name = %s", (name,))
        return self._tx.execute("DELETE FROM usersets WHERE userset_name = %s", (name,)) == 1
