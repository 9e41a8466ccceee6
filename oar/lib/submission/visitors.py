"""Who wants to use an advance reservation, and whether its access list lets him."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from oar.lib.access import name_service
from oar.lib.reservations import access_lists
from oar.lib.reservations.access_lists import Visitor
from oar.lib.reservations.records import AccessEntry

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

Key = TypeVar("Key")


def visitor(user: str, project: str = "") -> Visitor:
    """Return somebody with his groups on this machine; without groups if there is no such account."""
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


def allowed(tx: "Transaction", entries: Sequence[AccessEntry], visitors: Mapping[Key, Visitor]) -> set[Key]:
    """Return the keys of those whom an access list lets use its reservation."""
    usersets = tx.access.userset_entries(access_lists.names_of(entries).groups)
    return {key for key, who in visitors.items() if access_lists.allows(entries, who, usersets)}


def open_lists(tx: "Transaction", lists: Mapping[Key, Sequence[AccessEntry]], who: Visitor) -> set[Key]:
    """Return the keys of the access lists that let somebody use their reservations."""
    groups = {name for entries in lists.values() for name in access_lists.names_of(entries).groups}
    usersets = tx.access.userset_entries(groups)
    return {key for key, entries in lists.items() if access_lists.allows(entries, who, usersets)}


def may_use(tx: "Transaction", entries: Sequence[AccessEntry], who: Visitor) -> bool:
    """Whether an access list lets somebody use its reservation."""
    return bool(allowed(tx, entries, {who.user: who}))
