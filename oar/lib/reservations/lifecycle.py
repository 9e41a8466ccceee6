"""The only module that changes the state of an advance reservation and, with it, of its frame.

A move is a compare-and-set on the state that the caller has read.  If two programs act at the same time, one succeeds;
the other gets None and drops its action.  The event is logged in the same transaction, and notifications are added to
``tx.outbox``.

See docs/design/reservations.rst, "States".
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from oar.lib.bus.messages import Ask, JobAction, ReservationNews
from oar.lib.jobs import lifecycle as job_lifecycle
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.states import JobState
from oar.lib.reservations import mails
from oar.lib.reservations.bills import write_bills
from oar.lib.reservations.records import AdvanceReservation, ReservationLog, ReservationRevision
from oar.lib.reservations.states import LEAVING, RESERVATION_MOVES, ReservationEvent, ReservationState
from oar.lib.reservations.views import granted_text

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

Conflicts = Mapping[tuple[int, int], str]


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
    if to not in RESERVATION_MOVES[reservation.state]:
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

    ``is_mailed``: also send mails to users who subscribed to such events.
    """
    row = ReservationLog(reservation.id, tx.now, event, reservation.state, hostname, message, author)
    tx.outbox.append(ReservationNews(tx.reservation_logs.log(row)))
    if is_mailed:
        mails.send(tx, reservation, event, message)


def add_revision(tx: "Transaction", reservation: AdvanceReservation, author: str) -> None:
    """Store the current attributes of a reservation as a new revision."""
    tx.reservation_logs.add_revision(
        ReservationRevision(
            reservation.id,
            reservation.revision,
            tx.now,
            author,
            reservation.name,
            reservation.account,
            reservation.start,
            reservation.end,
            reservation.granted_pe,
            granted_text(tx, reservation),
        )
    )


def refuse(
    tx: "Transaction",
    reservation: AdvanceReservation,
    message: str,
    *,
    proposal: int = 0,
    event: ReservationEvent = ReservationEvent.REFUSED,
    author: str = "",
    conflicts: Conflicts = MappingProxyType({}),
) -> bool:
    """Reject a request and end its frame; return False if the request was already decided.

    ``event``: SKIPPED for an occurrence of a series that continues.  ``conflicts``: messages of the later occurrences
    that are also rejected, by number and start.
    """
    if not _refuse(tx, reservation, message, proposal=proposal, event=event, author=author):
        return False
    tx.queues.drop_orphan(reservation.queue)
    _request_next_occurrence(tx, reservation, conflicts)
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
    cause = Cause(EndCode.REFUSED, {"text": message})
    if event is ReservationEvent.WITHDRAWN:
        cause = frame_cause(reservation.number, "was withdrawn before it was answered")
    _end_waiting_frame(tx, reservation, message, cause)
    return True


def cancel(tx: "Transaction", reservation_id: int, author: str) -> AdvanceReservation | None:
    """Withdraw a request that was not decided; return the reservation if it was already decided, else None.

    With an occurrence, all undecided occurrences of its series are withdrawn, and the series ends.
    """
    for reservation in tx.reservations.lock([reservation_id]):
        if reservation.state is not ReservationState.ASKED:
            return reservation
        withdrawn = [reservation]
        if reservation.series_id:
            withdrawn = tx.reservations.lock(tx.reservations.live_of_series(reservation.series_id))
            tx.reservations.end_series(reservation.series_id)
        for request in withdrawn:
            if request.state is ReservationState.ASKED:
                refuse(tx, request, "withdrawn", event=ReservationEvent.WITHDRAWN, author=author)
    return None


def close_all(tx: "Transaction", reservations: Sequence[AdvanceReservation]) -> list[AdvanceReservation]:
    """Close the reservations that ended or were deleted, unless some of their jobs must end first; return them.

    Write their bills and end their frames.
    """
    leaving = [each for each in reservations if each.state in LEAVING and each.is_live]
    jobs = tx.reservations.live_jobs([each.id for each in leaving])
    closed = [each for each in leaving if each.is_flexible or not any(jobs[each.id])]
    if not closed:
        return []
    ids = [each.id for each in closed]
    write_bills(tx, closed)
    lines = tx.reservation_logs.log_all(
        [ReservationLog(each.id, tx.now, ReservationEvent.TERMINATED, each.state) for each in closed]
    )
    tx.outbox.extend(map(ReservationNews, lines))
    tx.reservations.drop_change(ids, "the advance reservation has ended")
    _end_frames(tx, closed)
    tx.reservations.close(ids, tx.now)
    _mail_ends(tx, [each.id for each in closed if "e" in each.mail_options])
    for queue in {each.queue for each in closed}:
        tx.queues.drop_orphan(queue)
    for each in sorted(closed, key=lambda each: (each.series_id, each.id)):  # series are locked in a fixed order
        _request_next_occurrence(tx, each, {})
    return closed


def _mail_ends(tx: "Transaction", ids: Sequence[int]) -> None:
    bills = tx.reservation_logs.select_bills(ids) if ids else {}
    for reservation in tx.reservations.select(ids) if ids else ():
        mails.send(tx, reservation, ReservationEvent.TERMINATED, "", bills[reservation.id])


def _request_next_occurrence(tx: "Transaction", reservation: AdvanceReservation, conflicts: Conflicts) -> None:
    """Request the next occurrence of the reservation's series; reject the occurrences in ``conflicts``."""
    if reservation.series_id:
        from oar.lib.reservations import series

        skipped = dict(series.request_next(tx, reservation, conflicts))
        for occurrence in tx.reservations.select(skipped):
            _refuse(tx, occurrence, skipped[occurrence.id], event=ReservationEvent.SKIPPED)


# -- frames ------------------------------------------------------------------------------------------------------------


def start_frame(tx: "Transaction", reservation: AdvanceReservation) -> None:
    """Start the frame with all granted resources, at the start time of the reservation."""
    from oar.lib.jobs.sql_jobs import GivenStart
    from oar.lib.planning.sql_rounds import StartRow

    rows = [
        StartRow(alternative.job_id, alternative.id, reservation.start, reservation.resources, reservation.duration)
        for alternative in tx.new_jobs.moldables_of_jobs([reservation.frame_id]).get(reservation.frame_id, ())
    ]
    if not job_lifecycle.start_all(tx, {row.job_id: GivenStart(row.start, row.moldable) for row in rows}):
        return
    tx.rounds.give(rows)
    job_lifecycle.move(tx, reservation.frame_id, JobState.LAUNCHING)
    job_lifecycle.move(tx, reservation.frame_id, JobState.RUNNING)
    tx.jobs.update(reservation.frame_id, start_time=reservation.start)
    to_launch = Ask(JobAction.RUN, reservation.frame_id)  # a frame has no program to launch
    tx.outbox[:] = [effect for effect in tx.outbox if effect != to_launch]


def _end_frames(tx: "Transaction", reservations: Sequence[AdvanceReservation]) -> None:
    """End the frames of reservations that have ended, or were deleted before their start."""
    frame_ids = [reservation.frame_id for reservation in reservations]
    causes = dict.fromkeys(job_lifecycle.move_all(tx, frame_ids, JobState.FINISHING), Cause(EndCode.SUCCESS))
    if causes:
        job_lifecycle.move_all(tx, causes, JobState.TERMINATED, because=causes)
        tx.jobs.set_ends({each.frame_id: min(tx.now, each.end) for each in reservations if each.frame_id in causes})
    for reservation in reservations:
        if reservation.frame_id not in causes:
            by = f" by {reservation.deleted_by}" if reservation.deleted_by else ""
            cause = frame_cause(reservation.number, f"was deleted{by}")
            _end_waiting_frame(tx, reservation, f"advance reservation {reservation.number} was deleted", cause)


def _end_waiting_frame(tx: "Transaction", reservation: AdvanceReservation, message: str, cause: Cause) -> None:
    causes = {reservation.frame_id: cause}
    if job_lifecycle.move_all(tx, causes, JobState.ERROR, (JobState.WAITING,), because=causes):
        tx.jobs.set_message([reservation.frame_id], message)


def frame_cause(number: int, fate: str) -> Cause:
    """Return the cause of the end of a frame; ``fate`` completes "the advance reservation 12, which ..."."""
    return Cause(EndCode.RESERVATION, {"reservation": number, "fate": fate, "is_frame": True})
