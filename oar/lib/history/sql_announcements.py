"""Announcements (``tx.announcements``): rows of ``announcements``."""

from typing import NamedTuple

from oar.lib.db.statements import Prepared, Table

#: Characters of a text; announcements at a time.
LONGEST, MOST = 500, 10

_COLUMNS = "announcement_id, date, author, until, text"
_SHOWN = Prepared(f"SELECT {_COLUMNS} FROM announcements WHERE until = 0 OR until > %s ORDER BY announcement_id")
_ADD = "INSERT INTO announcements (date, author, until, text) VALUES (%s, %s, %s, %s) RETURNING announcement_id"
_DELETE = f"DELETE FROM announcements WHERE announcement_id = %s RETURNING {_COLUMNS}"
#: Deletes the expired announcements.
_PURGE = "DELETE FROM announcements WHERE until <> 0 AND until <= %s"


class Announcement(NamedTuple):
    """A text of an administrator for all users."""

    id: int
    date: int
    author: str
    until: int  #: 0: no end
    text: str


class Announcements(Table):
    """Rows of ``announcements``."""

    def shown(self) -> list[Announcement]:
        """Return the announcements that have not expired, oldest first."""
        return [Announcement(*row) for row in self._tx.rows(_SHOWN, (self._tx.now,))]

    def texts(self) -> list[str]:
        """Return the texts that users see, each as one printable line, whatever the database contains."""
        texts = [announcement.text for announcement in self.shown()[:MOST]]
        return ["".join(c if c.isprintable() else " " for c in text)[:LONGEST] for text in texts]

    def add(self, author: str, until: int, text: str) -> int:
        """Add an announcement, and delete expired ones; return its id."""
        self._tx.execute(_PURGE, (self._tx.now,))
        number: int = self._tx.value(_ADD, (self._tx.now, author, until, text))
        return number

    def delete(self, announcement: int) -> Announcement | None:
        """Delete an announcement; return it, None if there is none with this id."""
        row = self._tx.row(_DELETE, (announcement,))
        return Announcement(*row) if row else None
