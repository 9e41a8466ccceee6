"""Users who request access to an advance reservation, and whether its access list allows them."""

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


def allowed(tx: "Transaction", entries: Sequence[AccessEntry], visitors: Mapping[Key, Visitor]) -> set[Key]:
    """Return the keys of the visitors that an access list allows."""
    usersets = tx.access.userset_entries(access_lists.names_of(entries).groups)
    return {key for key, who in visitors.items() if access_lists.allows(entries, who, usersets)}


def open_lists(tx: "Transaction", lists: Mapping[Key, Sequence[AccessEntry]], who: Visitor) -> set[Key]:
    """Return the keys of the access lists that allow the visitor."""
    groups = {name for entries in lists.values() for name in access_lists.names_of(entries).groups}
    usersets = tx.access.userset_entries(groups)
    return {key for key, entries in lists.items() if access_lists.allows(entries, who, usersets)}


def may_use(tx: "Transaction", entries: Sequence[AccessEntry], who: Visitor) -> bool:
    """Return whether an access list allows the visitor."""
    return bool(allowed(tx, entries, {who.user: who}))
