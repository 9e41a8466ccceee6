"""Repair advance reservations, their frames and their jobs, at server start and with ``--check --deep``.

OAR itself does not create these faults: they come from a restored backup, an older program, or SQL statements of a
site.  The row of the reservation is authoritative; all other rows are corrected to match it.

See docs/design/reservations.rst, "Repairs".
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from oar.lib.bus.messages import Tag, Wake
from oar.lib.jobs.control import SYSTEM
from oar.lib.jobs.states import JobState
from oar.lib.planning.sql_plan import PredictionRow
from oar.lib.reservations import deletion, frame_life, frames, lifecycle
from oar.lib.reservations.bills import write_bills
from oar.lib.reservations.records import AdvanceReservation, ReservationLog
from oar.lib.reservations.revisions import add_revision
from oar.lib.reservations.sql_fault_predicates import ReservationFault
from oar.lib.reservations.states import LEAVING, STARTED, IntervalKind, ReservationEvent, ReservationState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: A request is too old when it has waited so many times as long as the asker does.
PATIENCE_OF_REQUESTS = 10


def oldest_request(now: int, patience: float) -> int:
    """Return the date before which no client still waits for a request; ``patience``: RESERVATION_ANSWER_TIMEOUT."""
    return now - round(PATIENCE_OF_REQUESTS * patience)


def repair(tx: "Transaction", *, patience: float, ahead: int = 0) -> dict[ReservationFault, int]:
    """Repair all faults that can be repaired; return the number of faulty rows by fault.

    ``patience``: RESERVATION_ANSWER_TIMEOUT.  ``ahead``: seconds by which the clock jumped ahead, which are not trusted
    yet.
    """
    tx.reservations.lock([each.id for each in tx.reservations.live()])
    oldest = oldest_request(tx.now - ahead, patience)
    for reservation in tx.reservations.select(tx.reservation_faults.too_old(oldest)):
        if reservation.series_id:
            tx.reservations.end_series(reservation.series_id)
        lifecycle.refuse(tx, reservation, "too old")
    mended = {fault: _mend(tx, fault) for fault in (*_REPAIRS, *_REPAIRS_OF_JOBS)}
    for reservation in tx.reservations.select(tx.reservation_faults.leaving()):
        if not lifecycle.close(tx, reservation):
            deletion.end_jobs(tx, reservation, _fate(reservation))
    if any(mended.values()):
        tx.outbox.append(Wake(Tag.SCHEDULING))
    return {fault: number for fault, number in mended.items() if number}


def _mend(tx: "Transaction", fault: ReservationFault) -> int:
    ids = tx.reservation_faults.find(fault)
    if ids and fault in _REPAIRS_OF_JOBS:
        _REPAIRS_OF_JOBS[fault](tx, ids)
    elif ids:
        for reservation in tx.reservations.select(ids):
            _REPAIRS[fault](tx, reservation)
    return len(ids)


def _fate(reservation: AdvanceReservation) -> str:
    if reservation.state is ReservationState.DELETED:
        return f"was deleted by {reservation.deleted_by or SYSTEM}"
    return "has ended"


# -- frames -----------------------------------------------------------------------------------------------------------


def _has_begun(tx: "Transaction", reservation: AdvanceReservation) -> bool:
    """Return whether the reservation had started; for a deleted reservation, read its log."""
    if reservation.state not in LEAVING:
        return reservation.state in STARTED
    return any(row.event == ReservationEvent.STARTED for row in tx.reservation_logs.logs([reservation.id]))


def _make_frame(tx: "Transaction", reservation: AdvanceReservation) -> None:
    frame_life.make_anew(tx, reservation, has_begun=_has_begun(tx, reservation))


def _run_frame(tx: "Transaction", reservation: AdvanceReservation) -> None:
    """Start the frame of a reservation that has begun; replace a frame that cannot start."""
    frame = tx.jobs.get(reservation.frame_id)
    can_start = frame.state is JobState.WAITING and not tx.jobs.assigned([frame.id])
    if can_start and frames.set_window(tx, reservation):
        frame_life.start(tx, reservation)
    else:
        _exchange_frame(tx, reservation)


def _exchange_frame(tx: "Transaction", reservation: AdvanceReservation) -> None:
    frame_life.abandon(tx, [reservation.frame_id])
    _make_frame(tx, reservation)


def _set_window(tx: "Transaction", reservation: AdvanceReservation) -> None:
    if not frames.set_window(tx, reservation):
        _exchange_frame(tx, reservation)


def _hold_resources(tx: "Transaction", reservation: AdvanceReservation) -> None:
    frame_id = reservation.frame_id
    held = {each.id for each in tx.jobs.assigned([frame_id], current=True).get(frame_id, ())}
    granted = {row.id for row in tx.resources.select(reservation.resources)}
    tx.jobs.exchange_resources(frame_id, held - granted, granted - held)


def _plan(tx: "Transaction", reservation: AdvanceReservation) -> None:
    """Insert the prediction of the frame into the plan.  The date of the scheduling pass stays unchanged."""
    (alternative,) = tx.new_jobs.moldables_of_jobs([reservation.frame_id])[reservation.frame_id]
    present = tuple(row.id for row in tx.resources.select(reservation.resources))
    date_of_round = tx.plan.starts().get(0, tx.now)
    tx.plan.change((), [PredictionRow(alternative.id, reservation.start, present)], date_of_round, log=False)


# -- jobs -------------------------------------------------------------------------------------------------------------


def _enter(tx: "Transaction", job_ids: list[int]) -> None:
    """Give jobs only the types of the reservation that their rows name."""
    reservation_ids = tx.reservations.of_jobs(job_ids)
    present = {each.id: each for each in tx.reservations.select(set(reservation_ids.values()))}
    tx.reservation_faults.leave(job_ids)
    tx.jobs.insert_types({job_id: (present[each].entry_type,) for job_id, each in reservation_ids.items()})


def _leave(tx: "Transaction", job_ids: list[int]) -> None:
    tx.reservation_faults.leave(job_ids)


# -- other rows of a reservation --------------------------------------------------------------------------------------


def _forget_missing(tx: "Transaction", reservation: AdvanceReservation) -> None:
    alien = set(reservation.missing) - set(reservation.resources)
    tx.reservations.end_intervals(reservation.id, IntervalKind.MISSING, alien, tx.now)
    tx.reservations.update(reservation.id, missing=sorted(set(reservation.missing) - alien))


def _log_grant(tx: "Transaction", reservation: AdvanceReservation) -> None:
    _log(tx, reservation, ReservationEvent.CREATED, reservation.submission_time)


def _log_end(tx: "Transaction", reservation: AdvanceReservation) -> None:
    _log(tx, reservation, ReservationEvent.TERMINATED, reservation.ended)


def _log(tx: "Transaction", reservation: AdvanceReservation, event: ReservationEvent, date: int) -> None:
    """Log a past event with its original date; send no mail."""
    tx.reservation_logs.log(ReservationLog(reservation.id, date, event, reservation.state, message="repaired"))


def _revise(tx: "Transaction", reservation: AdvanceReservation) -> None:
    tx.reservation_faults.forget_revisions(reservation.id, reservation.revision)
    add_revision(tx, reservation, SYSTEM)


def _charge(tx: "Transaction", reservation: AdvanceReservation) -> None:
    write_bills(tx, [reservation])


#: How what is wrong with a reservation is mended; in this order, since the frame is needed by what follows.
_REPAIRS: Mapping[ReservationFault, Callable[["Transaction", AdvanceReservation], None]] = {
    ReservationFault.NO_FRAME: _make_frame,
    ReservationFault.NOT_RUNNING: _run_frame,
    ReservationFault.NOT_WAITING: _exchange_frame,
    ReservationFault.OTHER_WINDOW: _set_window,
    ReservationFault.OTHER_RESOURCES: _hold_resources,
    ReservationFault.OTHER_PLAN: _plan,
    ReservationFault.NOT_GRANTED: _forget_missing,
    ReservationFault.NO_GRANT: _log_grant,
    ReservationFault.NO_REVISION: _revise,
    ReservationFault.NO_END: _log_end,
    ReservationFault.NO_BILL: _charge,
}
#: How what is wrong with jobs is mended, after the frames.
_REPAIRS_OF_JOBS: Mapping[ReservationFault, Callable[["Transaction", list[int]], None]] = {
    ReservationFault.STRAY_FRAME: frame_life.abandon,
    ReservationFault.NO_TYPE: _enter,
    ReservationFault.NO_ROW: _leave,
}
