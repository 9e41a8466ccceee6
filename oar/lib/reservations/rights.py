"""Permissions on advance reservations, checked for the real caller in the transaction that uses them."""

from typing import TYPE_CHECKING

from oar.lib.access import name_service
from oar.lib.access.records import User
from oar.lib.base.errors import WordedRefusal
from oar.lib.reservations import access_lists
from oar.lib.reservations.access_lists import Visitor
from oar.lib.reservations.records import CREATORS, OPERATORS, AdvanceReservation
from oar.lib.reservations.views import ReservationReader

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class Denied(WordedRefusal):
    """The user does not have permission; the message is a complete line."""


def main_group(user: str) -> str:
    """Return the name of the main group of a user; '' if the account does not exist."""
    try:
        return name_service.group(name_service.account(user).pw_gid).gr_name
    except KeyError:
        return ""


def is_operator(tx: "Transaction", user: User) -> bool:
    """Return whether the user may alter and delete every reservation: administrators and members of ``aroperators``."""
    return user.is_admin or _is_member(tx, user, OPERATORS)


def check_creator(tx: "Transaction", user: User, *, is_open: bool) -> None:
    """Raise Denied if the user may not create reservations.  ``is_open``: RESERVATION_OPEN."""
    if not (is_open or user.is_admin or _is_member(tx, user, CREATORS)):
        raise Denied(
            f'denied: "{user.name}" must be manager or in userset "{CREATORS}"',
            f"ask an administrator for: oaruserset -a {user.name} {CREATORS}",
        )


def may_change(tx: "Transaction", user: User, reservation: AdvanceReservation) -> bool:
    """Return whether the user may alter and delete a reservation: its owner or an operator."""
    return user.name == reservation.owner or is_operator(tx, user)


def reader(tx: "Transaction", user: User, *, is_private: bool) -> ReservationReader:
    """Return the reader of reservations for a user.  ``is_private``: OARSTAT_PRIVATE."""
    from oar.lib.submission.visitors import visitor

    who = visitor(user.name) if is_private else Visitor(user.name)
    return ReservationReader(who, is_operator(tx, user), is_private)


def _is_member(tx: "Transaction", user: User, userset: str) -> bool:
    members = tx.access.userset_entries([userset]).get(userset, ())
    if user.name in members:
        return True
    from oar.lib.submission.visitors import visitor

    return bool(members) and access_lists.is_member(visitor(user.name), members)
