"""The only module that changes the state of an advance reservation.

A move is a compare-and-set on the state that the caller has read.  If two programs act at the same time, one succeeds;
the other gets None and drops its action.  The event is logged in the same transaction, and notifications are added to
``tx.outbox``.

See docs/design/reservations.rst, "States".
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from oar.lib.bus.messages import Ask, JobAction
from oar.lib.reservations import frame_life, mails
from oar.lib.reservations.bills import write_bills
from oar.lib.reservations.records import AdvanceReservation, ReservationLog
from oar.lib.reservations.states import LEAVING, ReservationEvent, ReservationState, may_enter

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


def move(
    tx: "Transaction",
    reservation: AdvanceReservation,
    to: ReservationState,
    event: ReservationEvent,
    *,
    message: str = "",
    hostname: str = "",
    author: str = "",
) -> AdvanceReservation | None:
    """Change the state of a reservation; return the changed reservation, or None if its state changed meanwhile."""
    if reservation.state not in may_enter(to):
        return None
    if not tx.reservations.move(reservation.id, to, (reservation.state,)):
        return None
    moved = reservation._replace(state=to, state_date=tx.now)
    note(tx, moved, event, message=message, hostname=hostname, author=author)
    return moved


def note(
    tx: "Transaction",
    reservation: AdvanceReservation,
    event: ReservationEvent,
    *,
    message: str = "",
    hostname: str = "",
    author: str = "",
    is_mailed: bool = True,
) -> None:
    """Log an event of a reservation and notify subscribers; the event need not change its state.

    ``is_mailed``: also send mails to users who subscribed to such events.  The Runner mails the end of a reservation,
    since a command may cause it.
    """
    row = ReservationLog(reservation.id, tx.now, event, reservation.state, hostname, message, author)
    tx.reservation_logs.log(row)
    tx.outbox.append(Ask(JobAction.AR_EVENT, reservation.frame_id))
    if is_mailed and event is not ReservationEvent.TERMINATED:
        mails.tell(tx, reservation, event, message)


def refuse(
    tx: "Transaction",
    reservation: AdvanceReservation,
    message: str,
    *,
    proposal: int = 0,
    event: ReservationEvent = ReservationEvent.REFUSED,
    author: str = "",
    conflicts: Mapping[tuple[int, int], str] = MappingProxyType({}),
) -> bool:
    """Reject a request and end its frame; return False if the request was already decided.

    ``event``: SKIPPED for an occurrence of a series that continues.  ``conflicts``: messages of the later occurrences
    that are also rejected, by number and start.
    """
    if not _refuse(tx, reservation, message, proposal=proposal, event=event, author=author):
        return False
    tx.queues.drop_orphan(reservation.queue)
    _follow(tx, reservation, conflicts)
    return True


def _refuse(
    tx: "Transaction",
    reservation: AdvanceReservation,
    message: str,
    *,
    proposal: int = 0,
    event: ReservationEvent,
    author: str = "",
) -> bool:
    refused = move(tx, reservation, ReservationState.REFUSED, event, message=message, author=author)
    if refused is None:
        return False
    tx.reservations.update(reservation.id, message=message, proposal=proposal)
    tx.reservations.close([reservation.id], tx.now)
    give_up = frame_life.withdraw if event is ReservationEvent.WITHDRAWN else frame_life.refuse
    give_up(tx, reservation, message)
    return True


def close(tx: "Transaction", reservation: AdvanceReservation) -> bool:
    """Close a reservation that ended or was deleted, unless some of its jobs must end first.

    Return whether it was closed.  Write its bill and end its frame.
    """
    return bool(close_all(tx, [reservation]))


def close_all(tx: "Transaction", reservations: Sequence[AdvanceReservation]) -> list[AdvanceReservation]:
    """Close the reservations that can be closed, as ``close`` does; return them."""
    leaving = [each for each in reservations if each.state in LEAVING and each.is_live]
    jobs = tx.reservations.live_jobs([each.id for each in leaving])
    closed = [each for each in leaving if each.is_flexible or not any(jobs[each.id])]
    if not closed:
        return []
    ids = [each.id for each in closed]
    write_bills(tx, closed)
    tx.reservation_logs.log_all(
        [ReservationLog(each.id, tx.now, ReservationEvent.TERMINATED, each.state) for each in closed]
    )
    tx.outbox.extend(Ask(JobAction.AR_EVENT, each.frame_id) for each in closed)
    tx.reservations.drop_change(ids, "the advance reservation has ended")
    frame_life.end(tx, closed)
    tx.reservations.close(ids, tx.now)
    for queue in {each.queue for each in closed}:
        tx.queues.drop_orphan(queue)
    for each in sorted(closed, key=lambda each: (each.series_id, each.id)):  # series are locked in a fixed order
        _follow(tx, each)
    return closed


def _follow(
    tx: "Transaction",
    reservation: AdvanceReservation,
    conflicts: Mapping[tuple[int, int], str] = MappingProxyType({}),
) -> None:
    """Request the next occurrences of the reservation's series; reject the occurrences in ``conflicts``."""
    if not reservation.series_id:
        return
    from oar.lib.reservations import occurrences

    skipped = dict(occurrences.ask_next(tx, reservation, conflicts))
    for each in tx.reservations.select(skipped):
        _refuse(tx, each, skipped[each.id], event=ReservationEvent.SKIPPED)
