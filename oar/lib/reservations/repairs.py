"""Repair advance reservations, their frames and their jobs, at server start and with ``--check --deep``.

OAR itself does not create these faults: they come from a restored backup, an older program, or SQL statements of a
site.  The row of the reservation is authoritative; all other rows are corrected to match it.

See docs/design/reservations.rst, "Repairs".
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from oar.lib.bus.messages import Tag, Wake
from oar.lib.jobs import lifecycle as job_lifecycle
from oar.lib.jobs.control import SYSTEM
from oar.lib.jobs.states import JobState, JobTypeName, Reservation
from oar.lib.planning.sql_plan import PredictionRow
from oar.lib.reservations import deletion, frames, lifecycle
from oar.lib.reservations.bills import write_bills
from oar.lib.reservations.records import AdvanceReservation, ReservationAlternative, ReservationLog, decode_readable
from oar.lib.reservations.sql_faults import ReservationFault
from oar.lib.reservations.states import LEAVING, STARTED, IntervalKind, ReservationEvent, ReservationState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: The type by which a frame names the id of its reservation.
_FRAME_TYPE = re.compile(rf"{JobTypeName.AR}=([0-9]{{1,18}})", re.ASCII)


def oldest_request(now: int, patience: float) -> int:
    """Return the date before which no client still waits for a request; ``patience``: RESERVATION_ANSWER_TIMEOUT."""
    return now - round(10 * patience)


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
    repaired: dict[ReservationFault, int] = {}
    for fault, repair_reservation in _REPAIRS.items():
        ids = tx.reservation_faults.find(fault)
        for reservation in tx.reservations.select(ids):
            repair_reservation(tx, reservation)
        repaired[fault] = len(ids)
    for fault, repair_jobs in _REPAIRS_OF_JOBS.items():
        ids = tx.reservation_faults.find(fault)
        if ids:
            repair_jobs(tx, ids)
        repaired[fault] = len(ids)
    for reservation in tx.reservations.select(tx.reservation_faults.leaving()):
        if not lifecycle.close_all(tx, [reservation]):
            is_deleted = reservation.state is ReservationState.DELETED
            fate = f"was deleted by {reservation.deleted_by or SYSTEM}" if is_deleted else "has ended"
            deletion.end_jobs(tx, [reservation], fate)
    if any(repaired.values()):
        tx.outbox.append(Wake(Tag.SCHEDULING))
    return {fault: number for fault, number in repaired.items() if number}


# -- frames -----------------------------------------------------------------------------------------------------------


def _make_frame(tx: "Transaction", reservation: AdvanceReservation) -> None:
    has_begun = reservation.state in STARTED
    if reservation.state in LEAVING:  # only its log knows
        events = [row.event for row in tx.reservation_logs.logs([reservation.id])]
        has_begun = ReservationEvent.STARTED in events
    _remake_frame(tx, reservation, has_begun=has_begun)


def _remake_frame(tx: "Transaction", reservation: AdvanceReservation, *, has_begun: bool) -> None:
    """Create a new frame for a reservation that lost its frame, from the row of the reservation."""
    if reservation.state is ReservationState.ASKED:
        frames.make(tx, reservation, decode_readable(reservation.request) or [ReservationAlternative(())])
        return
    granted = decode_readable(reservation.request)[reservation.alternative :][:1] or [ReservationAlternative(())]
    frame_id = frames.make(tx, reservation, granted, kind=Reservation.SCHEDULED)
    if has_begun:
        lifecycle.start_frame(tx, reservation._replace(frame_id=frame_id))


def _run_frame(tx: "Transaction", reservation: AdvanceReservation) -> None:
    """Start the frame of a reservation that has begun; replace a frame that cannot start."""
    frame = tx.jobs.get(reservation.frame_id)
    can_start = frame.state is JobState.WAITING and not tx.jobs.assigned([frame.id])
    if can_start and frames.set_window(tx, reservation):
        lifecycle.start_frame(tx, reservation)
    else:
        _replace_frame(tx, reservation)


def _replace_frame(tx: "Transaction", reservation: AdvanceReservation) -> None:
    _abandon_frames(tx, [reservation.frame_id])
    _make_frame(tx, reservation)


def _abandon_frames(tx: "Transaction", frame_ids: Collection[int]) -> None:
    """End frames that belong to no live reservation, in any state."""
    causes = {
        frame_id: lifecycle.frame_cause(number, "is over, or has another frame")
        for frame_id, number in _reservation_numbers(tx, frame_ids).items()
    }
    job_lifecycle.move_all(tx, causes, JobState.FINISHING)
    job_lifecycle.move_all(tx, causes, JobState.ERROR, because=causes)


def _reservation_numbers(tx: "Transaction", frame_ids: Collection[int]) -> dict[int, int]:
    """Return the numbers of the reservations of these frames.

    If no reservation has a frame, use the reservation that the types of the frame name; 0 if there is none.
    """
    numbers = {frame_id: number for frame_id, (_, number) in tx.reservations.of_frames(frame_ids).items()}
    types = tx.jobs.types(set(frame_ids) - numbers.keys())
    named: dict[int, int] = {}
    for frame_id in set(frame_ids) - numbers.keys():
        matches = filter(None, map(_FRAME_TYPE.fullmatch, types.get(frame_id, ())))
        named[frame_id] = next((int(match[1]) for match in matches), 0)
    present = {reservation.id: reservation.number for reservation in tx.reservations.select(named.values())}
    return numbers | {frame_id: present.get(number, number) for frame_id, number in named.items()}


def _set_window(tx: "Transaction", reservation: AdvanceReservation) -> None:
    if not frames.set_window(tx, reservation):
        _replace_frame(tx, reservation)


def _hold_resources(tx: "Transaction", reservation: AdvanceReservation) -> None:
    frame_id = reservation.frame_id
    held = {row.id for row in tx.jobs.assigned([frame_id], current=True).get(frame_id, ())}
    granted = {row.id for row in tx.resources.select(reservation.resources)}
    tx.jobs.exchange_resources(frame_id, held - granted, granted - held)


def _plan(tx: "Transaction", reservation: AdvanceReservation) -> None:
    """Insert the prediction of the frame into the plan.  The date of the scheduling pass stays unchanged."""
    (alternative,) = tx.new_jobs.moldables_of_jobs([reservation.frame_id])[reservation.frame_id]
    present = tuple(row.id for row in tx.resources.select(reservation.resources))
    pass_date = tx.plan.starts().get(0, tx.now)
    tx.plan.change((), [PredictionRow(alternative.id, reservation.start, present)], pass_date, log=False)


# -- jobs -------------------------------------------------------------------------------------------------------------


def _set_types(tx: "Transaction", job_ids: list[int]) -> None:
    """Give jobs only the types of the reservation that their rows name."""
    reservation_ids = tx.reservations.of_jobs(job_ids)
    present = {reservation.id: reservation for reservation in tx.reservations.select(set(reservation_ids.values()))}
    tx.reservation_faults.leave(job_ids)
    tx.jobs.insert_types({job_id: (present[number].entry_type,) for job_id, number in reservation_ids.items()})


# -- other rows of a reservation --------------------------------------------------------------------------------------


def _forget_missing(tx: "Transaction", reservation: AdvanceReservation) -> None:
    alien = set(reservation.missing) - set(reservation.resources)
    tx.reservations.end_intervals(reservation.id, IntervalKind.MISSING, alien, tx.now)
    tx.reservations.update(reservation.id, missing=sorted(set(reservation.missing) - alien))


def _log(tx: "Transaction", reservation: AdvanceReservation, event: ReservationEvent, date: int) -> None:
    """Log a past event with its original date; send no mail."""
    tx.reservation_logs.log(ReservationLog(reservation.id, date, event, reservation.state, message="repaired"))


def _add_revision(tx: "Transaction", reservation: AdvanceReservation) -> None:
    tx.reservation_faults.forget_revisions(reservation.id, reservation.revision)
    lifecycle.add_revision(tx, reservation, SYSTEM)


#: Repairs of reservations, in this order: later repairs need the frame.
_REPAIRS: Mapping[ReservationFault, Callable[["Transaction", AdvanceReservation], None]] = {
    ReservationFault.NO_FRAME: _make_frame,
    ReservationFault.NOT_RUNNING: _run_frame,
    ReservationFault.NOT_WAITING: _replace_frame,
    ReservationFault.OTHER_WINDOW: _set_window,
    ReservationFault.OTHER_RESOURCES: _hold_resources,
    ReservationFault.OTHER_PLAN: _plan,
    ReservationFault.NOT_GRANTED: _forget_missing,
    ReservationFault.NO_GRANT: lambda tx, each: _log(tx, each, ReservationEvent.CREATED, each.submission_time),
    ReservationFault.NO_REVISION: _add_revision,
    ReservationFault.NO_END: lambda tx, each: _log(tx, each, ReservationEvent.TERMINATED, each.ended),
    ReservationFault.NO_BILL: lambda tx, each: write_bills(tx, [each]),
}
#: Repairs of jobs, after the frames.
_REPAIRS_OF_JOBS: Mapping[ReservationFault, Callable[["Transaction", list[int]], None]] = {
    ReservationFault.STRAY_FRAME: _abandon_frames,
    ReservationFault.NO_TYPE: _set_types,
    ReservationFault.NO_ROW: lambda tx, job_ids: tx.reservation_faults.leave(job_ids),
}
