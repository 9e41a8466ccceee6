"""Changes of usersets by administrators; changes that would affect the users of live reservations are rejected."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from oar.lib.access.records import User
from oar.lib.base.errors import BrokenRow, WordedRefusal
from oar.lib.base.name_patterns import is_pattern
from oar.lib.base.texts import enumerated
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.reservations import permissions
from oar.lib.reservations.changes import read_change
from oar.lib.reservations.errors import BadReservation
from oar.lib.reservations.permissions import check_group, check_user
from oar.lib.reservations.records import CREATORS, OPERATORS, AccessEntry, ReservationChange

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

LONGEST_NAME = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]*", re.ASCII)
#: Entries of a userset: users, patterns of users, and groups of the server.
_ENTRY = re.compile(r"@?[A-Za-z0-9_.][A-Za-z0-9_.@+-]*\$?|[A-Za-z0-9_.@+*?\[\]!^$-]*[*?\[][A-Za-z0-9_.@+*?\[\]!^$-]*")


class BadUserset(WordedRefusal):
    """A userset or an entry does not exist or is invalid."""


class NoUserset(BadUserset):
    """The userset does not exist."""


class UsersetInUse(WordedRefusal):
    """A change would break a live reservation."""

    exit_code = 9


def add(tx: "Transaction", user: User, text: str, name: str, *, force: bool = False) -> list[tuple[str, bool]]:
    """Add the entries of a comma-separated list to a userset; return each entry and whether it is new.

    Create the userset if it does not exist.  Unless forced, reject changes that would take a live reservation from a
    user. Such changes are: an entry of a userset that an access list denies, and a new userset that hides a listed
    group.
    """
    user.check_administers()
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise BadUserset(f'denied: "{name}" is not a valid object name')
    entries = _entries(text)
    for entry in entries:
        if len(entry) > permissions.LONGEST_ENTRY or not _ENTRY.fullmatch(entry):
            raise BadUserset(f'denied: "{entry}" must be a user, @group or pattern')
    hides_group = tx.access.create_userset(name) and _is_group(name)
    tx.access.lock_userset(name)
    added = tx.access.add_to_userset(name, entries)
    if name != CREATORS and not force:
        if hides_group:
            numbers = _listing(tx, f"@{name}", allow=True, deny=True)
            _check_use(f'a userset "{name}" in the place of the group', numbers)
        if new := [entry for entry in entries if entry in added]:
            _check_use(f'adding "{",".join(new)}" to "{name}"', _listing(tx, f"@{name}", deny=True))
    if len(tx.access.userset_entries([name])[name]) > permissions.MAX_ENTRIES:
        raise BadUserset(f'denied: access list "{name}" would have more than {permissions.MAX_ENTRIES} entries')
    if new := [entry for entry in entries if entry in added]:
        audit.record(tx, user, AuditAction.ADD, f"userset {name}", Values(new=", ".join(new)))
    return [(entry, entry in added) for entry in entries]


def unknown_names(text: str) -> list[str]:
    """Return a sentence for each entry of a comma-separated list that does not exist on this server yet."""
    sentences = []
    for entry in _entries(text):
        try:
            if entry.startswith("@"):
                check_group(entry[1:])
            elif not is_pattern(entry):
                check_user(entry)
        except BadReservation as error:
            sentences.append(str(error).removeprefix("error: "))
    return sentences


def remove(tx: "Transaction", user: User, text: str, name: str, *, force: bool = False) -> list[tuple[str, bool]]:
    """Remove the entries of a comma-separated list from a userset; return each entry and whether it was there."""
    user.check_administers()
    tx.access.lock_userset(name)
    present, entries = entries_of(tx, name), _entries(text)
    for entry in entries if name != CREATORS and not force else ():
        if entry in present:
            numbers = _listing(tx, f"@{name}", allow=True)
            _check_use(f'removing "{entry}" from "{name}"', numbers)
    removed = tx.access.remove_from_userset(name, entries)
    if gone := [entry for entry in entries if entry in removed]:
        audit.record(tx, user, AuditAction.REMOVE, f"userset {name}", Values(former=", ".join(gone)))
    return [(entry, entry in removed) for entry in entries]


def delete(tx: "Transaction", user: User, name: str, *, force: bool = False) -> None:
    """Delete a userset; usersets that grant rights cannot be deleted, only emptied."""
    user.check_administers()
    tx.access.lock_userset(name)
    former = entries_of(tx, name)
    if name in (CREATORS, OPERATORS):
        raise UsersetInUse(f'denied: "{name}" cannot be deleted, its entries can (-d)')
    if not force:
        numbers = _listing(tx, f"@{name}", allow=True, deny=True)
        _check_use(f'removing "{name}"', numbers)
    tx.access.drop_userset(name)
    audit.record(tx, user, AuditAction.DELETE, f"userset {name}", Values(former=", ".join(former)))


def _is_group(name: str) -> bool:
    """Return whether the server has a group of this name, which a userset of the same name would hide."""
    try:
        check_group(name)
    except BadReservation:
        return False
    return True


def entries_of(tx: "Transaction", name: str) -> tuple[str, ...]:
    """Return the entries of a userset, ascending."""
    found = tx.access.userset_entries([name])
    if name not in found:
        raise NoUserset(f'Userset "{name}" does not exist', f"there are {', '.join(tx.access.userset_names())}")
    return found[name]


def _entries(text: str) -> Sequence[str]:
    entries = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not entries:
        raise BadUserset(f'denied: the user list "{text}" is empty')
    return entries


def _listing(tx: "Transaction", entry: str, *, allow: bool = False, deny: bool = False) -> list[int]:
    """Return the numbers of the live reservations whose access list, or a requested one, allows or denies an entry."""
    present = tx.reservations.numbers_that_list(entry, allow=allow, deny=deny)
    changing = {
        change.reservation_id
        for change in tx.reservations.open_changes()
        if any(text == entry and (deny if denied else allow) for text, denied in _wanted_access(change))
    }
    live = [reservation for reservation in tx.reservations.select(changing) if reservation.is_live]
    return sorted({*present, *(reservation.number for reservation in live)})


def _wanted_access(change: ReservationChange) -> Iterator[AccessEntry]:
    """Iterate over the access list in a requested change; nothing if it cannot be read, because it will be rejected."""
    try:
        yield from read_change(change.change).attributes.access or ()
    except BrokenRow:
        return


def _check_use(change: str, numbers: Sequence[int]) -> None:
    """Raise UsersetInUse if the change would affect the users of live reservations."""
    if numbers:
        several = "s" if len(numbers) > 1 else ""
        text = f"denied: {change} would break the advance reservation{several} {enumerated(numbers)}"
        raise UsersetInUse(text, "use -f to do it anyway")
