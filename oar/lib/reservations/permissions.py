"""Who may create, change, use and see advance reservations; access lists.

Permissions are checked for the real caller in the transaction that uses them.  See docs/design/reservations.rst,
"Access lists".
"""

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from oar.lib.access import name_service
from oar.lib.access.records import User
from oar.lib.base.errors import BadRequest
from oar.lib.base.name_patterns import check_number, is_pattern, matching
from oar.lib.reservations.errors import BadReservation, Denied
from oar.lib.reservations.records import CREATORS, OPERATORS, AccessEntry, AdvanceReservation

if TYPE_CHECKING:
    import grp

    from oar.lib.db.transaction import Transaction

Key = TypeVar("Key")

#: The entry of an access list without users, for maintenance.
NOBODY = "NONE"

MAX_ENTRIES = 1000
LONGEST_ENTRY = 255

_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@+-]*\$?")
_PATTERN = re.compile(r"[A-Za-z0-9_.@+*?\[\]!^$-]+")

Usersets = Mapping[str, Sequence[str]]


class Visitor(NamedTuple):
    """A user who requests access to a reservation."""

    user: str
    groups: Collection[str] = ()  #: groups of the user on the server
    project: str = ""  #: project of the user's job


class ReservationReader(NamedTuple):
    """The user who views reservations."""

    visitor: Visitor
    is_operator: bool = False
    is_private: bool = False  #: account and access list are hidden from those who cannot use the reservation

    def may_see_mail(self, reservation: AdvanceReservation) -> bool:
        """Return whether the user may see the mail recipients."""
        return self.is_operator or self.visitor.user == reservation.owner


# -- rights -----------------------------------------------------------------------------------------------------------


def check_creator(tx: "Transaction", user: User, *, is_open: bool) -> None:
    """Raise Denied if the user may not create reservations.  ``is_open``: RESERVATION_OPEN."""
    if not (is_open or user.is_admin or _is_in_userset(tx, user, CREATORS)):
        raise Denied(
            f'denied: "{user.name}" must be manager or in userset "{CREATORS}"',
            f"ask an administrator for: oaruserset -a {user.name} {CREATORS}",
        )


def is_operator(tx: "Transaction", user: User) -> bool:
    """Return whether the user may alter and delete every reservation: administrators and members of ``aroperators``."""
    return user.is_admin or _is_in_userset(tx, user, OPERATORS)


def may_change(tx: "Transaction", user: User, reservation: AdvanceReservation) -> bool:
    """Return whether the user may alter and delete a reservation: its owner or an operator."""
    return user.name == reservation.owner or is_operator(tx, user)


def reader(tx: "Transaction", user: User, *, is_private: bool) -> ReservationReader:
    """Return the reader of reservations for a user.  ``is_private``: OARSTAT_PRIVATE."""
    visitor = visitor_of(user.name) if is_private else Visitor(user.name)
    return ReservationReader(visitor, is_operator(tx, user), is_private)


def _is_in_userset(tx: "Transaction", user: User, userset: str) -> bool:
    members = tx.access.userset_entries([userset]).get(userset, ())
    return user.name in members or (bool(members) and _is_member(visitor_of(user.name), members))


# -- users and groups of the server -----------------------------------------------------------------------------------


def visitor_of(user: str, project: str = "") -> Visitor:
    """Return the visitor of a user, with the groups on this machine; without groups if the account does not exist."""
    try:
        account = name_service.account(user)
    except KeyError:
        return Visitor(user, (), project)
    groups = []
    for number in name_service.groups_of(user, account.pw_gid):
        try:
            groups.append(name_service.group(number).gr_name)
        except KeyError:
            continue
    return Visitor(user, frozenset(groups), project)


def main_group(user: str) -> str:
    """Return the name of the main group of a user; '' if the account does not exist."""
    try:
        return name_service.group(name_service.account(user).pw_gid).gr_name
    except KeyError:
        return ""


def check_user(name: str) -> None:
    """Raise BadReservation if no user has this name."""
    try:
        name_service.account(name)
    except KeyError:
        raise BadReservation(f"error: {name} is not known as a user") from None


def check_group(name: str) -> "grp.struct_group":
    """Return a group of this machine.  Raises BadReservation if it does not exist."""
    try:
        return name_service.group(name)
    except KeyError:
        raise BadReservation(f'Userset or group "{name}" does not exist') from None


# -- access lists -----------------------------------------------------------------------------------------------------


def parse_access_list(text: str, asker: str) -> tuple[AccessEntry, ...]:
    """Return the entries of a comma-separated list; ``$user`` stands for ``asker``.  Raises BadRequest."""
    words = [word.strip() for word in text.split(",")]
    entries = tuple(_parse_entry(word, asker) for word in words if word)
    if not entries:
        raise BadRequest(f'the user list "{text}" is empty')
    if len(entries) > MAX_ENTRIES:
        raise BadRequest(f"the user list has more than {MAX_ENTRIES} entries")
    check_number(entry.text for entry in entries)
    return tuple(dict.fromkeys(entries))


def _parse_entry(word: str, asker: str) -> AccessEntry:
    denied, name = word.startswith("!"), word.removeprefix("!")
    name = asker if name == "$user" else name
    body = name[1:] if name.startswith(("@", "%")) else name
    pattern = _NAME if name != body or not is_pattern(name) else _PATTERN
    if len(name) > LONGEST_ENTRY or not pattern.fullmatch(body):
        raise BadRequest(f'"{word}" must be a user, @group, %project or pattern')
    return AccessEntry(name, denied)


def groups_of(entries: Sequence[AccessEntry]) -> list[str]:
    """Return the names of the usersets and groups in an access list."""
    return [entry.text[1:] for entry in entries if entry.text.startswith("@")]


def allows(entries: Sequence[AccessEntry], visitor: Visitor, usersets: Usersets) -> bool:
    """Return whether the visitor may use the reservation: an entry allows it, and no entry denies it.

    A list that contains only denials allows all other users.  ``usersets``: the existing usersets that the entries
    name.
    """
    if any(entry.denied and _matches(entry.text, visitor, usersets) for entry in entries):
        return False
    allowing = [entry.text for entry in entries if not entry.denied]
    return not allowing or any(_matches(text, visitor, usersets) for text in allowing)


def _matches(text: str, visitor: Visitor, usersets: Usersets) -> bool:
    if text == NOBODY:
        return False
    if text.startswith("%"):
        return visitor.project == text[1:]
    if text.startswith("@"):
        members = usersets.get(text[1:])
        return text[1:] in visitor.groups if members is None else _is_member(visitor, members)
    return fnmatchcase(visitor.user, text) if is_pattern(text) else visitor.user == text


def _is_member(visitor: Visitor, members: Sequence[str]) -> bool:
    """Return whether the visitor is in a userset: users, patterns, and ``@group`` for groups of the server."""
    return any(
        entry[1:] in visitor.groups if entry.startswith("@") else fnmatchcase(visitor.user, entry) for entry in members
    )


def allowed_visitors(tx: "Transaction", entries: Sequence[AccessEntry], visitors: Mapping[Key, Visitor]) -> set[Key]:
    """Return the keys of the visitors that an access list allows."""
    usersets = tx.access.userset_entries(groups_of(entries))
    return {key for key, visitor in visitors.items() if allows(entries, visitor, usersets)}


def lists_that_allow(tx: "Transaction", lists: Mapping[Key, Sequence[AccessEntry]], visitor: Visitor) -> set[Key]:
    """Return the keys of the access lists that allow the visitor."""
    usersets = tx.access.userset_entries({name for entries in lists.values() for name in groups_of(entries)})
    return {key for key, entries in lists.items() if allows(entries, visitor, usersets)}


def expand(tx: "Transaction", entries: Sequence[AccessEntry], *, limit: int, known: Collection[str] = ()) -> list[str]:
    """Return the users of an access list, including members of its usersets and groups; at most ``limit``.

    Users who are denied by name, group or pattern are left out.  Patterns and projects are not expanded.
    ``known``: names that need no check, because these users made the request.  Raises BadReservation for unknown names.
    """
    usersets = tx.access.userset_entries(groups_of(entries))
    allowed = _listed_users([entry for entry in entries if not entry.denied], usersets, known)
    denying = [entry for entry in entries if entry.denied]
    patterns = [entry.text for entry in denying if is_pattern(entry.text)]
    denied = matching([*_listed_users(denying, usersets, known), *patterns], allowed)
    return [user for user in allowed if user not in denied and not is_pattern(user)][:limit]


def lock_usersets(tx: "Transaction", entries: Sequence[AccessEntry]) -> None:
    """Lock the usersets of a list until it is stored.  Raises BadReservation if one no longer exists."""
    groups = groups_of(entries)
    for name in sorted(set(groups) - tx.access.keep_usersets(groups)):
        check_group(name)


def _listed_users(entries: Sequence[AccessEntry], usersets: Usersets, known: Collection[str]) -> dict[str, None]:
    """Return the users of the entries in their order, and the patterns in usersets.  Raises BadReservation."""
    users: dict[str, None] = {}
    for name in (entry.text for entry in entries if entry.text != NOBODY and not is_pattern(entry.text)):
        if not name.startswith(("@", "%")):
            if name not in known:
                check_user(name)
            users[name] = None
    for name in groups_of(entries):
        members = usersets.get(name)
        for member in _group_members(name) if members is None else members:
            users |= dict.fromkeys(_group_members(member[1:]) if member.startswith("@") else (member,))
    return users


def _group_members(name: str) -> list[str]:
    """Return the members of a group of this machine, including users whose main group it is.  Raises BadReservation."""
    group = check_group(name)
    main = [account.pw_name for account in name_service.accounts() if account.pw_gid == group.gr_gid]
    return list(dict.fromkeys([*group.gr_mem, *main]))
