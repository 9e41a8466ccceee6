"""Predict the decision on a request for an advance reservation: ``qrsub -w v``, ``qralter -w v``; changes of series.

The planner decides on the current situation; nothing is written.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import count

from oar.kao.facts.plan import ChangeStep, ReservationStep
from oar.kao.facts.snapshot import PlannedChange, PlannedReservation, Snapshot
from oar.kao.planner.schedule import Round
from oar.kao.rounds.hypothetical.estimates import present
from oar.kao.rounds.reading.situation import HypotheticalJob
from oar.kao.rounds.site import plugins
from oar.lib.base.grid_engine_times import write_date
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.planning.sql_rounds import GroupRow, JobRow, MoldableRow
from oar.lib.reservations import frames
from oar.lib.reservations.change_requests import ChangedSeries
from oar.lib.reservations.changes import WantedChange
from oar.lib.reservations.errors import BadReservation
from oar.lib.reservations.records import AdvanceReservation, NewReservation, decode
from oar.lib.reservations.states import ReservationState
from oar.lib.reservations.views import GrantedSlots

#: Numbers that no real reservation, job or alternative has.
_ID, _FIRST_ALTERNATIVE = 2**61, 2**61


def answers(
    database: Database,
    config: Config,
    new: Sequence[NewReservation],
    *,
    skips_conflicts: bool = False,
    without: Collection[int] = (),
) -> list[ReservationStep]:
    """Return what a round would decide on a request, or on the first occurrences of a series.

    ``skips_conflicts``: occurrences of a series that cannot be granted are skipped.  ``without``: ids of reservations
    that the new ones replace; they are ignored.  Raises DatabaseUnavailable.
    """
    begin = time.monotonic()
    with database.snapshot() as tx:
        first_job, numbers = tx.rounds.next_job(), count(_FIRST_ALTERNATIVE)
        frames_of = [_frame(each, place, first_job + place, tx.now, numbers) for place, each in enumerate(new)]
    snapshot = present(database, config, frames_of).snapshot
    gone = {each.frame_id for each in snapshot.reservations if each.id in without}
    reservations = tuple(each for each in snapshot.reservations if each.id not in without)
    waiting = tuple(job for job in snapshot.waiting if job.id not in gone)
    planned = [_planned(each, _ID + place, first_job + place) for place, each in enumerate(new)]
    if len(planned) > 1:
        planned = [
            replace(each, together=_ID, occurrence=index, skips_conflicts=skips_conflicts)
            for index, each in enumerate(planned, start=1)
        ]
    tried: Snapshot = replace(snapshot, waiting=waiting, reservations=(*reservations, *planned))
    planning = Round(tried, lambda: time.monotonic() - begin, site=plugins.site_of(config))
    steps = {step.reservation_id: step for step in planning.answer_reservations()}
    return [steps[each.id] for each in planned]


def record_of(step: ReservationStep, slots: Sequence[GrantedSlots]) -> dict[str, object]:
    """Return a predicted grant as fields for machine-readable formats."""
    return {
        "start_time": step.start,
        "end_time": step.end,
        "state": str(step.state),
        "reasons": step.message.splitlines(),
        "granted_slots": [slot._asdict() for slot in slots],
        "resources": list(step.resources),
    }


def alter(database: Database, config: Config, reservation: AdvanceReservation, change: WantedChange) -> ChangeStep:
    """Return what a round would decide on a change.  Raises DatabaseUnavailable."""
    begin = time.monotonic()
    with database.snapshot() as tx:
        request = change.request or reservation.request
        asking = NewReservation(reservation.owner, tx.now, tx.now + 1, request, queue=reservation.queue)
        frame = _frame(asking, 0, tx.rounds.next_job(), tx.now, count(_FIRST_ALTERNATIVE))
    snapshot = present(database, config, [frame]).snapshot
    (asked,) = (job for job in snapshot.waiting if job.id == frame.row.id)
    alternatives = tuple(each.groups for each in asked.alternatives) if change.request else ()
    planned = PlannedChange(_ID, reservation.id, change.start, change.end, change.is_forced, alternatives)
    waiting = tuple(job for job in snapshot.waiting if job.id != asked.id)
    changes = (*snapshot.reservation_changes, planned)
    tried: Snapshot = replace(snapshot, waiting=waiting, reservation_changes=changes)
    planning = Round(tried, lambda: time.monotonic() - begin, site=plugins.site_of(config))
    return next(step for step in planning.answer_changes() if step.change_id == _ID)


def _planned(new: NewReservation, number: int, frame_id: int) -> PlannedReservation:
    return PlannedReservation(
        id=number,
        number=0,
        frame_id=frame_id,
        state=ReservationState.ASKED,
        revision=1,
        queue=new.queue,
        start=new.start,
        end=new.end,
        start_window=new.start_window,
        time_offset=new.time_offset,
        is_hard=new.is_hard,
        replaces_lost=new.replaces_lost,
        is_flexible=new.is_flexible,
        ignores_jobs=new.ignores_jobs,
        idle_limit=new.idle_limit,
        message="",
    )


def _frame(new: NewReservation, place: int, number: int, now: int, alternatives: Iterator[int]) -> HypotheticalJob:
    """Return the frame of a requested reservation, as database rows."""
    row = JobRow(
        id=number,
        queue=new.queue,
        user=new.owner,
        project=new.project,
        name=new.name,
        state=JobState.WAITING,
        reservation=Reservation.TO_SCHEDULE,
        is_interactive=False,
        array_id=number,
        array_limit=0,
        properties="",
        submission_time=now,
        start_time=new.start,
        checkpoint=0,
    )
    moldables = tuple(
        MoldableRow(
            next(alternatives),
            number,
            new.end - new.start,
            tuple(GroupRow(group.filter, group.levels) for group in each.groups),
        )
        for each in decode(new.request)
    )
    return HypotheticalJob(row, frames.types_of(_ID + place, is_flexible=new.is_flexible), moldables)


def check_overlaps(database: Database, config: Config, changed: ChangedSeries) -> None:
    """Raise BadReservation if occurrences of the changed series conflict with each other."""
    if not (together := changed.together):
        return
    series, ids = changed.series, [each.id for each in changed.not_begun]
    steps = answers(database, config, together, skips_conflicts=True, without=ids)
    refused = {step.reservation_id for step in steps if step.state is ReservationState.REFUSED}
    for step, occurrence in zip(steps, together, strict=True):
        others = [
            each
            for other, each in zip(steps, together, strict=True)
            if other.reservation_id not in refused and each.start < occurrence.end and occurrence.start < each.end
        ]
        if step.reservation_id in refused and others:
            raise BadReservation(
                f"denied: Series {series.id} can't be altered\n"
                f"  occurrence {occurrence.series_index}, {write_date(occurrence.start)}: it would overlap"
                f" occurrence {others[0].series_index}, until {write_date(others[0].end)}",
                "nothing was changed; use a duration (-d) that ends before the next one begins, or request less",
            )
