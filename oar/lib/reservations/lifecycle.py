"""The only place where an advance reservation changes its state.

A move is a compare-and-set on the state that the caller has seen: of two programs that act at once one wins, and the
other gets None and drops its action.  What happened is logged in the same transaction; what others must hear is left
in ``tx.outbox``.

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
    """Move a reservation from the state in ``reservation``; return it as it is then, None if it was moved meanwhile."""
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
    """Log what happened to a reservation, and have it told; also what is no change of its state.

    ``is_mailed``: to those, too, who asked for mails about such events.  Its end is mailed by the Runner, since a
    command may bring it about.
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
    """Answer a request with no; return whether it was not answered before.  Its frame ends with it.

    ``SKIPPED`` as event: of a series, which goes on.  ``conflicts``: the occurrences behind it that are refused, too,
    by their numbers and starts, with the messages.
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
    """Let a reservation leave the system, if it is at its end or deleted and none of its jobs has to end before it.

    The bill is written, and its frame ends.
    """
    return bool(close_all(tx, [reservation]))


def close_all(tx: "Transaction", reservations: Sequence[AdvanceReservation]) -> list[AdvanceReservation]:
    """Let those of some reservations leave the system that may, as ``close`` does; return them."""
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
    for each in sorted(closed, key=lambda each: (each.series_id, each.id)):  # series are locked in their order
        _follow(tx, each)
    return closed


def _follow(
    tx: "Transaction",
    reservation: AdvanceReservation,
    conflicts: Mapping[tuple[int, int], str] = MappingProxyType({}),
) -> None:
    """Let follow what a reservation of a series leaves behind: another one, and those that are refused with it."""
    if not reservation.series_id:
        return
    from oar.lib.reservations import occurrences

    skipped = dict(occurrences.ask_next(tx, reservation, conflicts))
    for each in tx.reservations.select(skipped):
        _refuse(tx, each, skipped[each.id], event=ReservationEvent.SKIPPED)
