"""The life cycle of a frame: it starts without a bipbip, ends with its reservation, and is replaced if it was lost.

It is separate from ``frames`` because every request for a reservation imports that module.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from oar.lib.bus.messages import Ask, JobAction
from oar.lib.jobs import lifecycle
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.states import JobState, JobTypeName, Reservation
from oar.lib.reservations import frames
from oar.lib.reservations.records import AdvanceReservation, ReservationAlternative, decode_readable
from oar.lib.reservations.states import ReservationState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: The type by which a frame names the id of its reservation.
_FRAME_TYPE = re.compile(rf"{JobTypeName.AR}=([0-9]{{1,18}})", re.ASCII)
#: From toLaunch to Running: no bipbip takes part.
_START = (JobState.LAUNCHING, JobState.RUNNING)


def start(tx: "Transaction", reservation: AdvanceReservation) -> None:
    """Start the frame with all granted resources, at the start time of the reservation."""
    from oar.lib.jobs.sql_jobs import GivenStart
    from oar.lib.planning.sql_rounds import StartRow

    rows = [
        StartRow(alternative.job_id, alternative.id, reservation.start, reservation.resources, reservation.duration)
        for alternative in tx.new_jobs.moldables_of_jobs([reservation.frame_id]).get(reservation.frame_id, ())
    ]
    if not lifecycle.start_all(tx, {row.job_id: GivenStart(row.start, row.moldable) for row in rows}):
        return
    tx.rounds.give(rows)
    for state in _START:
        lifecycle.move(tx, reservation.frame_id, state)
    tx.jobs.update(reservation.frame_id, start_time=reservation.start)
    to_launch = Ask(JobAction.RUN, reservation.frame_id)  # a frame has no program to launch
    tx.outbox[:] = [each for each in tx.outbox if each != to_launch]


def make_anew(tx: "Transaction", reservation: AdvanceReservation, *, has_begun: bool) -> None:
    """Create a new frame for a reservation that lost its frame, from the row of the reservation."""
    if reservation.state is ReservationState.ASKED:
        frames.make(tx, reservation, decode_readable(reservation.request) or [ReservationAlternative(())])
        return
    granted = decode_readable(reservation.request)[reservation.alternative :][:1] or [ReservationAlternative(())]
    frame_id = frames.make(tx, reservation, granted, kind=Reservation.SCHEDULED)
    if has_begun:
        start(tx, reservation._replace(frame_id=frame_id))


def abandon(tx: "Transaction", frame_ids: Collection[int]) -> None:
    """End frames that belong to no live reservation, in any state."""
    causes = {
        frame_id: _cause(number, "is over, or has another frame")
        for frame_id, number in _numbers(tx, frame_ids).items()
    }
    lifecycle.move_all(tx, causes, JobState.FINISHING)
    lifecycle.move_all(tx, causes, JobState.ERROR, because=causes)


def _numbers(tx: "Transaction", frame_ids: Collection[int]) -> dict[int, int]:
    """Return the numbers of the reservations of these frames.

    If no reservation has a frame, use the reservation that the types of the frame name.
    """
    known = {frame_id: number for frame_id, (_, number) in tx.reservations.of_frames(frame_ids).items()}
    types = tx.jobs.types(set(frame_ids) - known.keys())
    said = {frame_id: _said(types.get(frame_id, ())) for frame_id in frame_ids if frame_id not in known}
    numbers = {each.id: each.number for each in tx.reservations.select(said.values())}
    return known | {frame_id: numbers.get(reservation_id, reservation_id) for frame_id, reservation_id in said.items()}


def _said(types: Iterable[str]) -> int:
    """Return the id of the reservation that the types of a frame name; 0 if there is none."""
    matches = filter(None, map(_FRAME_TYPE.fullmatch, types))
    return next((int(match[1]) for match in matches), 0)


def end(tx: "Transaction", reservations: Sequence[AdvanceReservation]) -> None:
    """End the frames of reservations that have ended, or were deleted before their start."""
    frame_ids = [each.frame_id for each in reservations]
    causes = dict.fromkeys(lifecycle.move_all(tx, frame_ids, JobState.FINISHING), Cause(EndCode.SUCCESS))
    if causes:
        lifecycle.move_all(tx, causes, JobState.TERMINATED, because=causes)
        tx.jobs.set_ends({each.frame_id: min(tx.now, each.end) for each in reservations if each.frame_id in causes})
    for each in reservations:
        if each.frame_id not in causes:
            fate = f"was deleted by {each.deleted_by}" if each.deleted_by else "was deleted"
            _give_up(tx, each, f"advance reservation {each.number} was deleted", _cause(each.number, fate))


def refuse(tx: "Transaction", reservation: AdvanceReservation, message: str) -> None:
    """End the frame of a request that the scheduler rejected."""
    _give_up(tx, reservation, message, Cause(EndCode.REFUSED, {"text": message}))


def withdraw(tx: "Transaction", reservation: AdvanceReservation, message: str) -> None:
    """End the frame of a request whose client stopped waiting for the decision."""
    _give_up(tx, reservation, message, _cause(reservation.number, "was withdrawn before it was answered"))


def _cause(number: int, fate: str) -> Cause:
    """Return the cause of the end of a frame; ``fate`` completes "the advance reservation 12, which ..."."""
    return Cause(EndCode.RESERVATION, {"reservation": number, "fate": fate, "is_frame": True})


def _give_up(tx: "Transaction", reservation: AdvanceReservation, message: str, cause: Cause) -> None:
    """End a waiting frame."""
    causes = {reservation.frame_id: cause}
    if lifecycle.move_all(tx, causes, JobState.ERROR, (JobState.WAITING,), because=causes):
        tx.jobs.set_message([reservation.frame_id], message)
