"""Check that the users and groups of an access list exist, and expand its groups."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from oar.lib.access import name_service
from oar.lib.base.name_patterns import is_pattern, matching
from oar.lib.reservations import access_lists
from oar.lib.reservations.access_lists import Usersets
from oar.lib.reservations.preparation import BadReservation
from oar.lib.reservations.records import AccessEntry

if TYPE_CHECKING:
    import grp

    from oar.lib.db.transaction import Transaction


def expand(tx: "Transaction", entries: Sequence[AccessEntry], *, limit: int, known: Collection[str] = ()) -> list[str]:
    """Return the users of an access list, including members of its usersets and groups; at most ``limit``.

    Users who are denied by name, group or pattern are left out.  Patterns and projects are not expanded.
    ``known``: names that need no check, because these users made the request.  Raises BadReservation for unknown names.
    """
    usersets = tx.access.userset_entries(access_lists.names_of(entries).groups)
    allowed = _users([entry for entry in entries if not entry.denied], usersets, known)
    denying = [entry for entry in entries if entry.denied]
    patterns = [entry.text for entry in denying if is_pattern(entry.text)]
    denied = matching([*_users(denying, usersets, known), *patterns], allowed)
    return [user for user in allowed if user not in denied and not is_pattern(user)][:limit]


def keep_usersets(tx: "Transaction", entries: Sequence[AccessEntry]) -> None:
    """Lock the usersets of a list until it is stored.  Raises BadReservation if one no longer exists."""
    groups = access_lists.names_of(entries).groups
    for name in sorted(set(groups) - tx.access.keep_usersets(groups)):
        check_group(name)


def _users(entries: Sequence[AccessEntry], usersets: Usersets, known: Collection[str]) -> dict[str, None]:
    """Return the users of the entries in their order, and the patterns in usersets.  Raises BadReservation."""
    names = access_lists.names_of(entries)
    users: dict[str, None] = {}
    for name in names.users:
        if name not in known:
            check_user(name)
        users[name] = None
    for name in names.groups:
        members = usersets.get(name)
        for member in _group_members(name) if members is None else members:
            users |= dict.fromkeys(_group_members(member[1:]) if member.startswith("@") else (member,))
    return users


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


def _group_members(name: str) -> list[str]:
    """Return the members of a group of this machine, including users whose main group it is.  Raises BadReservation."""
    group = check_group(name)
    main = [account.pw_name for account in name_service.accounts() if account.pw_gid == group.gr_gid]
    return list(dict.fromkeys([*group.gr_mem, *main]))
