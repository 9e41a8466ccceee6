"""Protect the resources of advance reservations from changes by administrators, unless a change is forced.

An unforeseeable event, such as a node failure, sets an advance reservation to the state error. Foreseeable changes are
rejected.
See docs/design/reservations.rst, "Changes by administrators".
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from oar.lib.base.errors import WordedRefusal
from oar.lib.base.texts import enumerated
from oar.lib.db.user_sql import satisfying
from oar.lib.jobs.records import Group
from oar.lib.nodes.states import ALWAYS_AVAILABLE
from oar.lib.reservations.records import AdvanceReservation, decode_readable, granted_groups
from oar.lib.reservations.states import GRANTED, STARTED

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class WouldBreak(WordedRefusal):
    """A change would break an advance reservation."""

    exit_code = 9

    def __init__(self, message: str, reservations: Sequence[AdvanceReservation]) -> None:
        """``message``: the text before the numbers of the reservations; running reservations are listed first."""
        several = len(reservations) > 1
        by_urgency = sorted(
            reservations,
            key=lambda reservation: (reservation.state not in STARTED, reservation.start, reservation.number),
        )
        numbers = enumerated([reservation.number for reservation in by_urgency])
        super().__init__(
            f"denied: {message} the advance reservation{'s' if several else ''} {numbers}",
            f"use --force to do it anyway: {'they are' if several else 'the reservation is'} in error then",
        )


#: What a resource is and where it lies.
_IDENTITY = frozenset({"network_address", "type"})

#: For each condition of each reservation, the granted resources that satisfy it; None = it is not of our language.
Satisfied = dict[tuple[int, str], frozenset[int] | None]


def check_removal(tx: "Transaction", resource_id: int) -> None:
    """Raise WouldBreak if a resource is granted to an advance reservation."""
    if hit := list(_granted(tx, [resource_id])):
        raise WouldBreak(f"resource {resource_id} is reserved by", hit)


def check_absence(tx: "Transaction", resources: Collection[int], *, after: int = 0) -> None:
    """Reject the permanent withdrawal of granted resources. Raises WouldBreak.

    ``after``: consider only reservations that end after this date.
    """
    if hit := [reservation for reservation in _granted(tx, resources) if reservation.end > after]:
        taken = tx.resources.select(
            {id_ for reservation in hit for id_ in reservation.resources}.intersection(resources)
        )
        hosts = list(dict.fromkeys(row.network_address for row in taken if row.network_address))
        kind, names = ("host", hosts) if hosts else ("resource", [str(row.id) for row in taken])
        verb = f"{kind} {names[0]} is" if len(names) == 1 else f"{kind}s {enumerated(names)} are"
        raise WouldBreak(f"{verb} reserved by", hit)


def check_availability(tx: "Transaction", resources: Collection[int], upto: int) -> None:
    """Reject an availability date before the end of a reservation that holds the resources. Raises WouldBreak."""
    if 0 < upto < ALWAYS_AVAILABLE:
        check_absence(tx, resources, after=upto)


def satisfied(tx: "Transaction", resources: Collection[int]) -> Satisfied:
    """Return the given resources that satisfy the conditions of the advance reservations that hold them."""
    return {
        (reservation.id, group.filter): satisfying(tx, group.filter, set(resources) & set(reservation.resources))
        for reservation in _granted(tx, resources)
        for group in _groups(reservation)
    }


def check_conditions(tx: "Transaction", resources: Collection[int], before: Satisfied, names: Sequence[str]) -> None:
    """Reject new property values, already written, if a granted resource no longer satisfies its request.

    ``before``: the result of ``satisfied`` before the values were written. Raises WouldBreak.
    """
    hit = [reservation for reservation in _granted(tx, resources) if _fails(tx, reservation, resources, before, names)]
    if hit:
        raise _breaks(", ".join(names), hit)


def _fails(
    tx: "Transaction",
    reservation: AdvanceReservation,
    resources: Collection[int],
    before: Satisfied,
    names: Sequence[str],
) -> bool:
    """Return whether granted resources no longer satisfy a reservation.

    Also return True if a condition cannot be evaluated and contains a changed property.
    """
    filters = [group.filter for group in _groups(reservation)]
    unread = [text for text in filters if before.get((reservation.id, text)) is None]
    if any(_names(text, name) for text in unread for name in names):
        return True
    satisfied_before = _union(before.get((reservation.id, text)) for text in filters)
    satisfied_now = _union(satisfying(tx, text, set(resources) & set(reservation.resources)) for text in filters)
    return bool(satisfied_before - satisfied_now)


def check_identity(tx: "Transaction", resources: Collection[int], values: Mapping[str, object]) -> None:
    """Reject another host or type for granted resources, even if no condition uses it. Raises WouldBreak.

    The accounting and the displayed nodes of a reservation depend on both. ``values``: the new values, by property.
    """
    for name in sorted(_IDENTITY & values.keys()):
        moved = [row.id for row in tx.resources.select(resources) if getattr(row, name) != values[name]]
        if hit := list(_granted(tx, moved)):
            raise _breaks(name, hit)


def check_column(tx: "Transaction", name: str) -> None:
    """Raise WouldBreak if a granted request uses a property that is to be deleted or renamed."""
    granted = [reservation for reservation in tx.reservations.live() if reservation.state in GRANTED]
    if hit := [reservation for reservation in granted if _request_names(reservation, name)]:
        raise _breaks(name, hit)


def _request_names(reservation: AdvanceReservation, name: str) -> bool:
    groups = _groups(reservation)
    levels = {level.property for group in groups for level in group.levels}
    return name in levels or any(_names(group.filter, name) for group in groups)


def _breaks(name: str, reservations: Sequence[AdvanceReservation]) -> WouldBreak:
    return WouldBreak(f"the change of {name} would break", reservations)


def _granted(tx: "Transaction", resources: Collection[int]) -> Iterator[AdvanceReservation]:
    """Yield the granted reservations that hold any of the resources; skip maintenance reservations without users."""
    wanted = set(resources)
    live = tx.reservations.live()
    for_nobody = tx.reservations.for_nobody([each.id for each in live])
    for reservation in live:
        is_granted = reservation.state in GRANTED and reservation.id not in for_nobody
        if is_granted and not wanted.isdisjoint(reservation.resources):
            yield reservation


def _groups(reservation: AdvanceReservation) -> tuple[Group, ...]:
    alternatives = decode_readable(reservation.request)
    return granted_groups(alternatives[reservation.alternative]) if reservation.alternative < len(alternatives) else ()


def _names(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE) is not None


def _union(sets: "Collection[frozenset[int] | None] | Iterator[frozenset[int] | None]") -> frozenset[int]:
    return frozenset().union(*(members for members in sets if members is not None))
