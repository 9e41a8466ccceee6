"""Delete advance reservations and end their jobs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.access.records import User
from oar.lib.bus.messages import Tag, Wake
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control
from oar.lib.jobs.control import ControlOutcome, ControlRefusal
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.reservations import lifecycle, permissions
from oar.lib.reservations.records import AdvanceReservation
from oar.lib.reservations.states import GRANTED, ReservationEvent, ReservationState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class Deletion(Enum):
    """Outcome of a request to delete a reservation."""

    DELETED = auto()  #: it was closed
    REGISTERED = auto()  #: its jobs are being ended; it is closed with the last one
    ALREADY = auto()  #: it was already being deleted
    UNKNOWN = auto()
    DENIED = auto()


class DeletionAnswer(NamedTuple):
    """The response to a request to delete a reservation."""

    number: int
    outcome: Deletion


def delete(
    tx: "Transaction", user: User, reservation: AdvanceReservation | None, number: int, *, force: bool = False
) -> DeletionAnswer:
    """Delete a live reservation: request the end of its jobs, and close the reservation when the last job has ended.

    ``reservation``: the reservation with this number, read earlier; None if it does not exist.  ``force``: its jobs end
    without waiting for their nodes, also if the reservation is already being deleted.
    """
    if reservation is None or not reservation.is_live or reservation.state is ReservationState.ASKED:
        return DeletionAnswer(number, Deletion.UNKNOWN)
    (locked,) = tx.reservations.lock([reservation.id])
    if not locked.is_live:
        return DeletionAnswer(number, Deletion.UNKNOWN)
    if not permissions.may_change(tx, user, locked):
        return DeletionAnswer(number, Deletion.DENIED)
    outcome = _delete(tx, locked, user.author) if locked.state in GRANTED else Deletion.ALREADY
    if outcome in (Deletion.DELETED, Deletion.REGISTERED) or force:
        _audit(tx, user, locked)
    if force and outcome is not Deletion.DELETED and not locked.is_flexible:
        _exterminate_jobs(tx, locked.id)
    return DeletionAnswer(number, outcome)


def _audit(tx: "Transaction", user: User, reservation: AdvanceReservation) -> None:
    """Record the deletion of a reservation of another user."""
    if reservation.owner != user.name:
        audit.record(tx, user, AuditAction.DELETE, f"reservation {reservation.number} ({reservation.owner})")


class SeriesDeletion(NamedTuple):
    """The response to a request to delete a series, with the responses for its reservations."""

    outcome: Deletion
    reservations: tuple[DeletionAnswer, ...] = ()


def delete_series(tx: "Transaction", user: User, series_id: int, *, force: bool = False) -> SeriesDeletion:
    """Delete a series and its live reservations; withdraw an occurrence that is not decided yet."""
    series = tx.reservations.select_series([series_id]).get(series_id)
    locked = _lock_series(tx, series_id) if series else []
    if series is None or (series.ended and not locked):
        return SeriesDeletion(Deletion.UNKNOWN)
    if not (user.name == series.owner or permissions.is_operator(tx, user)):
        return SeriesDeletion(Deletion.DENIED)
    tx.reservations.end_series(series_id)
    answers = []
    for reservation in locked:
        if reservation.state is ReservationState.ASKED:
            lifecycle.cancel(tx, reservation.id, user.author)
            _audit(tx, user, reservation)
        else:
            answers.append(delete(tx, user, reservation, reservation.number, force=force))
    return SeriesDeletion(Deletion.DELETED, tuple(answers))


def later_occurrences(tx: "Transaction", undecided: Iterable[AdvanceReservation]) -> set[int]:
    """Return the ids of the requests that follow others in a series.  No client waits for their decision."""
    in_series = [reservation for reservation in undecided if reservation.series_id]
    series = tx.reservations.select_series({reservation.series_id for reservation in in_series})
    return {
        reservation.id
        for reservation in in_series
        if reservation.series_id in series and reservation.series_index > series[reservation.series_id].depth
    }


def _lock_series(tx: "Transaction", series_id: int) -> list[AdvanceReservation]:
    """Return the live reservations of a series, locked.  While they are locked, no occurrence can be added."""
    locked: list[AdvanceReservation] = []
    while ids := set(tx.reservations.live_of_series(series_id)) - {each.id for each in locked}:
        locked += tx.reservations.lock(ids)
    return [each for each in locked if each.is_live]


def _exterminate_jobs(tx: "Transaction", reservation_id: int) -> None:
    """End the live jobs of a reservation, and the jobs inside them, without waiting for their nodes."""
    jobs = tx.reservations.live_jobs([reservation_id])[reservation_id]
    ids = {*jobs.running, *jobs.waiting}
    outer = ids
    while outer := {job for _, job in tx.jobs.inner(sorted(outer))} - ids:
        ids |= outer
    control.exterminate(tx, ids)


# -- frames that are deleted as jobs ----------------------------------------------------------------------------------


def delete_with_frames(tx: "Transaction", user: User, frames: Mapping[int, tuple[int, int]]) -> list[ControlOutcome]:
    """Delete the reservations of frames that the user deletes; return the outcome for each frame.

    ``frames``: id and number of the reservation, by job id of the frame.
    """
    locked = tx.reservations.lock([reservation_id for reservation_id, _ in frames.values()])
    frame_of = {reservation_id: job_id for job_id, (reservation_id, _) in frames.items()}
    return [
        _delete_with_frame(tx, user, frame_of[reservation.id], reservation)
        for reservation in sorted(locked, key=_lock_order)
    ]


def _lock_order(reservation: AdvanceReservation) -> tuple[int, int]:
    """Return the sort key that keeps a fixed lock order: closing a reservation also locks its series."""
    return reservation.series_id, reservation.id


def _delete_with_frame(tx: "Transaction", user: User, job_id: int, reservation: AdvanceReservation) -> ControlOutcome:
    if not permissions.may_change(tx, user, reservation):
        return ControlOutcome(job_id, ControlRefusal.NOT_YOURS)
    if reservation.is_live and reservation.state is ReservationState.ASKED:
        lifecycle.refuse(tx, reservation, "withdrawn", event=ReservationEvent.WITHDRAWN)
        return ControlOutcome(job_id)
    outcome = delete(tx, user, reservation, reservation.number).outcome
    if outcome is Deletion.ALREADY:
        return ControlOutcome(job_id, ControlRefusal.ALREADY_KILLED)
    return ControlOutcome(job_id, has_ended=outcome is Deletion.UNKNOWN)


def delete_all_with_frames(tx: "Transaction", reservation_ids: Collection[int]) -> None:
    """Delete reservations because the end of their frames was requested."""
    for reservation in sorted(tx.reservations.lock(reservation_ids), key=_lock_order):
        if reservation.is_live and reservation.state is ReservationState.ASKED:
            lifecycle.refuse(tx, reservation, "withdrawn", event=ReservationEvent.WITHDRAWN)
        elif reservation.is_live and reservation.state in GRANTED:
            _delete(tx, reservation, control.SYSTEM)


# -- jobs -------------------------------------------------------------------------------------------------------------


def _delete(tx: "Transaction", reservation: AdvanceReservation, by: str) -> Deletion:
    tx.reservations.update(reservation.id, deleted_by=by)
    reservation = reservation._replace(deleted_by=by)
    deleted = lifecycle.move(tx, reservation, ReservationState.DELETED, ReservationEvent.DELETED, author=by)
    assert deleted is not None  # the row is locked
    end_jobs(tx, [deleted], f"was deleted by {by}", by=by)
    tx.outbox.append(Wake(Tag.TERM))
    return Deletion.DELETED if lifecycle.close_all(tx, [deleted]) else Deletion.REGISTERED


def end_jobs(
    tx: "Transaction", reservations: Sequence[AdvanceReservation], fate: str, *, by: str = control.SYSTEM
) -> None:
    """Request the end of all live jobs of reservations; ``fate`` completes "the advance reservation 12 ...".

    Jobs of flexible reservations continue outside the reservation.
    """
    for reservation in reservations:
        if reservation.is_flexible:
            _release_waiting_jobs(tx, reservation)
    ending = [reservation for reservation in reservations if not reservation.is_flexible]
    live = tx.reservations.live_jobs([reservation.id for reservation in ending])
    causes = {
        job_id: Cause(EndCode.RESERVATION, {"reservation": reservation.number, "fate": fate})
        for reservation in ending
        for job_id in (*live[reservation.id].running, *live[reservation.id].waiting)
    }
    control.ask_end(tx, causes, by=by)


def _release_waiting_jobs(tx: "Transaction", reservation: AdvanceReservation) -> None:
    """Remove the waiting jobs from a flexible reservation, so that they can use other resources."""
    released = tx.reservations.release_waiting(reservation.id, reservation.entry_type)
    text = f"the advance reservation {reservation.number} is over, the job waits on without it"
    tx.events.add_many([(EventType.ALTER, job_id, text) for job_id in released])


def end_some_jobs(tx: "Transaction", reservation: AdvanceReservation, job_ids: Collection[int], fate: str) -> None:
    """Request the end of some jobs of a reservation, as ``end_jobs`` does."""
    cause = Cause(EndCode.RESERVATION, {"reservation": reservation.number, "fate": fate})
    control.ask_end(tx, dict.fromkeys(job_ids, cause))
