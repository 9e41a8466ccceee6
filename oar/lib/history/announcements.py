"""Announcements of administrators, which users see on the pages and after ``oarsub``."""

from typing import TYPE_CHECKING

from oar.lib.access.records import User
from oar.lib.base.errors import BadRequest
from oar.lib.base.times import format_date
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.history.sql_announcements import LONGEST, MOST

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.history.sql_announcements import Announcement


def announce(tx: "Transaction", user: User, text: str, until: int = 0) -> int:
    """Store an announcement; return its id.  ``until``: its end, 0 for none.  Raises BadRequest."""
    text = " ".join(text.split())
    if not text:
        raise BadRequest("the announcement is empty: write a text")
    if not text.isprintable():
        raise BadRequest("the announcement has control characters: write plain text")
    if len(text) > LONGEST:
        raise BadRequest(f"the announcement has {len(text)} characters: write at most {LONGEST}")
    if until and until <= tx.now:
        raise BadRequest(f"the announcement would end on {format_date(until)}, which is past: give a later date")
    shown = tx.announcements.shown()
    if len(shown) >= MOST:
        raise BadRequest(f"there are {len(shown)} announcements: withdraw one first (oarnotify --withdraw ID)")
    number = tx.announcements.add(user.author, until, text)
    end = f" until {format_date(until)}" if until else ""
    audit.record(tx, user, AuditAction.ADD, f"announcement {number}", Values(new=f"{text}{end}"))
    return number


def withdraw(tx: "Transaction", user: User, number: int) -> "Announcement":
    """Delete an announcement; return it.  Raises BadRequest if there is none with this id."""
    announcement = tx.announcements.delete(number)
    if announcement is None:
        raise BadRequest(f"there is no announcement {number}. List them: oarnotify --announcements")
    audit.record(tx, user, AuditAction.REMOVE, f"announcement {number}", Values(former=announcement.text))
    return announcement
