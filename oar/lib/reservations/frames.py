"""The frame of an advance reservation: the job that represents the reservation in the plan.

A frame runs no program and contacts no node, and no command changes it.  ``lifecycle`` starts and ends it with its
reservation, ``repairs`` replaces it if it was lost.

See docs/design/reservations.rst, "The object and its frame".
"""

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.history.event_types import EventType
from oar.lib.jobs.records import Group, JobKeys, JobSpec
from oar.lib.jobs.states import JobState, JobType, JobTypeName, Reservation
from oar.lib.reservations.records import AccessEntry, AdvanceReservation, NewReservation, ReservationAlternative, decode
from oar.lib.submission.sql_new_jobs import JobBatch, NewAlternative, NewJob

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


def types_of(reservation_id: int, *, is_flexible: bool) -> tuple[str, ...]:
    """Return the job types of the frame of a reservation."""
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
    """Insert the frame of a reservation, with one moldable for each alternative of the request; return its job id.

    Only the first alternative is stored with its groups.  The others, possibly many, are stored in the request only.
    """
    spec = JobSpec(
        user=reservation.owner,
        name=reservation.name or None,
        project=reservation.project,
        queue=reservation.queue,
        types=types_of(reservation.id, is_flexible=reservation.is_flexible),
        initial_request=f"qrsub ({reservation.number})",
        properties="",
        stdout_file="",  # programs of OAR 2.5 expect texts, not NULL
        stderr_file="",
    )
    message = f"advance reservation {reservation.number}"
    job = NewJob(spec, JobType.PASSIVE, JobState.WAITING, message, kind, reservation.start)
    stored = [(each.groups if index == 0 else (), each.size) for index, each in enumerate(alternatives)]
    batch = JobBatch(job, [NewAlternative(reservation.duration, groups, resources=size) for groups, size in stored])
    (job_id,) = tx.new_jobs.insert(batch, [JobKeys(os.urandom(16).hex(), None, None)])
    tx.reservations.update(reservation.id, frame_id=job_id)
    return job_id


def grant(tx: "Transaction", reservation: AdvanceReservation, groups: Sequence[Group]) -> None:
    """Mark the frame as an accepted reservation, with the granted window and alternative.

    ``groups``: the resource groups of the alternative.
    """
    moldable = tx.new_jobs.moldables_of_jobs([reservation.frame_id])[reservation.frame_id][reservation.alternative]
    tx.new_jobs.keep_alternative(reservation.frame_id, moldable.id, reservation.duration)
    if moldable.groups != tuple(groups):
        tx.new_jobs.replace_groups(moldable.id, groups)
    tx.jobs.update(reservation.frame_id, reservation=str(Reservation.SCHEDULED), start_time=reservation.start)


def set_window(tx: "Transaction", reservation: AdvanceReservation) -> bool:
    """Give the frame the same window as its reservation.

    Return False without a change unless the frame has exactly one alternative.
    """
    alternatives = tx.new_jobs.moldables_of_jobs([reservation.frame_id]).get(reservation.frame_id, ())
    if len(alternatives) != 1:
        return False
    tx.new_jobs.keep_alternative(reservation.frame_id, alternatives[0].id, reservation.duration)
    tx.jobs.update(reservation.frame_id, reservation=str(Reservation.SCHEDULED), start_time=reservation.start)
    return True


def move_window(tx: "Transaction", reservation: AdvanceReservation) -> None:
    """Set another window of the frame; the plan of the same scheduling pass moves its allocation."""
    (alternative,) = tx.new_jobs.moldables_of_jobs([reservation.frame_id])[reservation.frame_id]
    tx.new_jobs.keep_alternative(reservation.frame_id, alternative.id, reservation.duration)
    tx.jobs.update(reservation.frame_id, start_time=reservation.start)
    tx.events.add(EventType.ALTER, reservation.frame_id, f"advance reservation {reservation.number} was altered")


def set_groups(tx: "Transaction", reservation: AdvanceReservation, groups: Sequence[Group]) -> None:
    """Replace the requested resources of the frame."""
    (alternative,) = tx.new_jobs.moldables_of_jobs([reservation.frame_id])[reservation.frame_id]
    tx.new_jobs.replace_groups(alternative.id, groups)


def exchange_resources(
    tx: "Transaction", reservation: AdvanceReservation, removed: Collection[int], added: Collection[int]
) -> None:
    """Exchange assigned resources of a running frame; a waiting frame gets its prediction with the next plan."""
    if tx.jobs.get(reservation.frame_id).state is JobState.RUNNING:
        tx.jobs.exchange_resources(reservation.frame_id, removed, added)


class StoredRequest(NamedTuple):
    """A stored request."""

    id: int
    number: int
    frame_id: int
    start: int
    end: int
    series_id: int = 0  #: of a series: its id; the request is its first occurrence


def insert_request(tx: "Transaction", new: NewReservation, access: Sequence[AccessEntry]) -> StoredRequest:
    """Store a request; the caller must wake the scheduler."""
    reservation_id, number = tx.reservations.insert(new)
    tx.reservations.set_access(reservation_id, access)
    (reservation,) = tx.reservations.select([reservation_id])
    frame_id = make(tx, reservation, decode(new.request))
    return StoredRequest(reservation_id, number, frame_id, new.start, new.end, new.series_id)
