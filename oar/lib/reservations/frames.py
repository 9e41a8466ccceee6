"""The frame of an advance reservation: the job by which it stands in the plan.

No program of it runs, no node is contacted, and no command changes it.  See docs/design/reservations.rst, "The object
and its frame".
"""

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from oar.lib.db.new_jobs import JobBatch, NewAlternative, NewJob
from oar.lib.facts.advance_reservations import AdvanceReservation
from oar.lib.facts.messages import Ask, JobAction
from oar.lib.facts.records import Cause, Group, JobKeys, JobSpec
from oar.lib.facts.reservation_requests import ReservationAlternative, decode
from oar.lib.facts.reservation_states import ReservationState
from oar.lib.facts.states import EndCode, EventType, JobState, JobType, JobTypeName, Reservation
from oar.lib.jobs import lifecycle

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: From Waiting to Running: no bipbip takes part.
_START = (JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING)


def types_of(reservation_id: int, *, is_flexible: bool) -> tuple[str, ...]:
    """Return the types of the frame of a reservation."""
    space = f"{JobTypeName.PLACEHOLDER}=ar{reservation_id}" if is_flexible else str(JobTypeName.CONTAINER)
    return (
        space,
        str(JobTypeName.NOOP),
        f"{JobTypeName.STATE}=permissive",
        str(JobTypeName.NO_QUOTAS),
        f"{JobTypeName.AR}={reservation_id}",
    )


def make(
    tx: "Transaction",
    reservation: AdvanceReservation,
    alternatives: Sequence[ReservationAlternative],
    *,
    kind: Reservation = Reservation.TO_SCHEDULE,
) -> int:
    """Insert the frame of a reservation, with an alternative for each of its request; return its job id.

    The first one alone is written with what it asks for: the others, of which there may be many, are in the request.
    """
    spec = JobSpec(
        user=reservation.owner,
        name=reservation.name or None,
        project=reservation.project,
        queue=reservation.queue,
        types=types_of(reservation.id, is_flexible=reservation.is_flexible),
        initial_request=f"qrsub ({reservation.number})",
    )
    message = f"advance reservation {reservation.number}"
    job = NewJob(spec, JobType.PASSIVE, JobState.WAITING, message, kind, reservation.start)
    asked = [each.groups if place == 0 else () for place, each in enumerate(alternatives)]
    batch = JobBatch(job, [NewAlternative(reservation.duration, groups) for groups in asked])
    (job_id,) = tx.new_jobs.insert(batch, [JobKeys(os.urandom(16).hex(), None, None)])
    tx.advance_reservations.update(reservation.id, frame_id=job_id)
    return job_id


def grant(tx: "Transaction", reservation: AdvanceReservation, groups: Sequence[Group]) -> None:
    """Let the frame be a reservation that is accepted, with the window and the alternative that were granted.

    ``groups``: what the alternative asks for.
    """
    moldable = tx.jobs.moldables([reservation.frame_id])[reservation.frame_id][reservation.alternative]
    tx.new_jobs.keep_alternative(reservation.frame_id, moldable.id, reservation.duration)
    if moldable.groups != tuple(groups):
        tx.new_jobs.replace_groups(moldable.id, groups)
    tx.jobs.update(reservation.frame_id, reservation=str(Reservation.SCHEDULED), start_time=reservation.start)


def start(tx: "Transaction", reservation: AdvanceReservation) -> None:
    """Let the frame run with all granted resources, from the date at which the reservation begins."""
    if not lifecycle.move(tx, reservation.frame_id, _START[0]):
        return
    from oar.lib.db.rounds import StartRow

    (alternative,) = tx.jobs.moldables([reservation.frame_id])[reservation.frame_id]
    row = StartRow(reservation.frame_id, alternative.id, reservation.start, reservation.resources, reservation.duration)
    tx.rounds.start([row])
    for state in _START[1:]:
        lifecycle.move(tx, reservation.frame_id, state)
    tx.jobs.update(reservation.frame_id, start_time=reservation.start)
    to_launch = Ask(JobAction.RUN, reservation.frame_id)  # nothing is to be launched
    tx.outbox[:] = [each for each in tx.outbox if each != to_launch]


def make_anew(tx: "Transaction", reservation: AdvanceReservation, *, has_begun: bool) -> None:
    """Give a reservation a frame in the place of the one that it has lost, as its row says."""
    if reservation.state is ReservationState.ASKED:
        make(tx, reservation, decode(reservation.request))
        return
    granted = decode(reservation.request)[reservation.alternative :][:1] or [ReservationAlternative(())]
    frame_id = make(tx, reservation, granted, kind=Reservation.SCHEDULED)
    if has_begun:
        start(tx, reservation._replace(frame_id=frame_id))


def abandon(tx: "Transaction", frame_ids: Collection[int]) -> None:
    """End frames that stand for no live reservation, whatever state they are in."""
    causes = {
        frame_id: _cause(number, "is over, or has another frame")
        for frame_id, number in _numbers(tx, frame_ids).items()
    }
    lifecycle.move_all(tx, causes, JobState.FINISHING)
    lifecycle.move_all(tx, causes, JobState.ERROR, because=causes)


def _numbers(tx: "Transaction", frame_ids: Collection[int]) -> dict[int, int]:
    """Return the numbers of the reservations that frames say to stand for."""
    prefix = f"{JobTypeName.AR}="
    ids = {
        frame_id: next(int(text.removeprefix(prefix)) for text in types if text.startswith(prefix))
        for frame_id, types in tx.jobs.types(frame_ids).items()
    }
    numbers = {each.id: each.number for each in tx.advance_reservations.select(ids.values())}
    return {frame_id: numbers.get(reservation_id, reservation_id) for frame_id, reservation_id in ids.items()}


def set_window(tx: "Transaction", reservation: AdvanceReservation) -> bool:
    """Let the frame have the window of its reservation; False if it has not just one alternative."""
    alternatives = tx.jobs.moldables([reservation.frame_id]).get(reservation.frame_id, ())
    if len(alternatives) != 1:
        return False
    tx.new_jobs.keep_alternative(reservation.frame_id, alternatives[0].id, reservation.duration)
    tx.jobs.update(reservation.frame_id, reservation=str(Reservation.SCHEDULED), start_time=reservation.start)
    return True


def move_window(tx: "Transaction", reservation: AdvanceReservation) -> None:
    """Let the frame have another window; its place in the plan follows with the plan of the same round."""
    (alternative,) = tx.jobs.moldables([reservation.frame_id])[reservation.frame_id]
    tx.new_jobs.keep_alternative(reservation.frame_id, alternative.id, reservation.duration)
    tx.jobs.update(reservation.frame_id, start_time=reservation.start)
    tx.events.add(EventType.ALTER, reservation.frame_id, f"advance reservation {reservation.number} was altered")


def ask_for(tx: "Transaction", reservation: AdvanceReservation, groups: Sequence[Group]) -> None:
    """Let the frame ask for other resources."""
    (alternative,) = tx.jobs.moldables([reservation.frame_id])[reservation.frame_id]
    tx.new_jobs.replace_groups(alternative.id, groups)


def exchange(
    tx: "Transaction", reservation: AdvanceReservation, given_up: Collection[int], taken: Collection[int]
) -> None:
    """Let the frame, if it runs, hold other resources; one that waits gets its prediction with the next plan."""
    if tx.jobs.get(reservation.frame_id).state is JobState.RUNNING:
        tx.jobs.exchange_resources(reservation.frame_id, given_up, taken)


def end(tx: "Transaction", reservations: Sequence[AdvanceReservation]) -> None:
    """End the frames of reservations that are over, or were deleted before their start."""
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
    """End the frame of a request that the scheduler refused."""
    _give_up(tx, reservation, message, Cause(EndCode.REFUSED, {"text": message}))


def withdraw(tx: "Transaction", reservation: AdvanceReservation, message: str) -> None:
    """End the frame of a request for whose answer nobody waits any more."""
    _give_up(tx, reservation, message, _cause(reservation.number, "was withdrawn before it was answered"))


def _cause(number: int, fate: str) -> Cause:
    """Return the cause of the end of a frame; ``fate`` completes "the advance reservation 12, which ..."."""
    return Cause(EndCode.RESERVATION, {"reservation": number, "fate": fate, "is_frame": True})


def _give_up(tx: "Transaction", reservation: AdvanceReservation, message: str, cause: Cause) -> None:
    """End a frame that waits."""
    causes = {reservation.frame_id: cause}
    if lifecycle.move_all(tx, causes, JobState.ERROR, (JobState.WAITING,), because=causes):
        tx.jobs.set_message([reservation.frame_id], message)
