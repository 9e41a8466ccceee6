"""Write the decisions on advance reservations: states, logs, frames, ends of their jobs.

Each step is written only if its reservation has not changed since the snapshot; otherwise the next round decides again.
"""

import logging
from collections.abc import Collection, Mapping, Sequence

from oar.kao.facts.plan import ChangeStep, ReservationStep
from oar.lib.accounts import budgets
from oar.lib.bus.messages import Tag, Wake
from oar.lib.config.files import Config
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.control import SYSTEM
from oar.lib.jobs.states import ProjectMode
from oar.lib.reservations import deletion, frames, lifecycle
from oar.lib.reservations.changes import (
    NO_ACCESS,
    WantedChange,
    end_without_access,
    jobs_without_access,
    log_change,
    read_change,
    set_attributes,
)
from oar.lib.reservations.records import AdvanceReservation, decode
from oar.lib.reservations.states import (
    GRANTED,
    LEAVING,
    STARTED,
    ChangeAnswer,
    IntervalKind,
    ReservationEvent,
    ReservationState,
)
from oar.lib.reservations.views import change_names

log = logging.getLogger(__name__)

#: A round waits so many milliseconds for rows that others have locked.
LOCK_PATIENCE = 2000


def write_reservations(
    tx: Transaction, config: Config, steps: Sequence[ReservationStep], changes: Sequence[ChangeStep]
) -> None:
    """Write the decisions on advance reservations, then those on changes of them."""
    concerned = {step.reservation_id for step in steps} | {change.reservation_id for change in changes}
    if not concerned:
        return
    present = _locked(tx, concerned)
    _write_steps(tx, config, steps, present)
    if changes:
        now = tx.reservations.select([each.reservation_id for each in changes])
        _write_changes(tx, changes, {each.id: each for each in now if each.id in present})


def _write_steps(
    tx: Transaction, config: Config, steps: Sequence[ReservationStep], present: Mapping[int, AdvanceReservation]
) -> None:
    over = []
    for step in steps:
        reservation = present.get(step.reservation_id)
        if reservation and (reservation.state, reservation.revision) == (step.seen, step.revision):
            moved = _write(tx, config, reservation, step)
            over += [moved] if moved.state in LEAVING else []
    exited = [each for each in over if each.state is ReservationState.EXITED]
    deletion.end_jobs(tx, exited, "has ended")
    lifecycle.close_all(tx, over)


def _locked(tx: Transaction, ids: Collection[int]) -> dict[int, AdvanceReservation]:
    """Lock reservations and return them by id.

    Reservations locked by another program for more than LOCK_PATIENCE ms are left to the next round, which is
    requested.
    """
    locked = {each.id: each for each in tx.reservations.lock_free(ids, LOCK_PATIENCE)}
    held = [each.number for each in tx.reservations.select(set(ids) - locked.keys())]
    if held:
        log.warning("advance reservations %s are held by another program: the next round decides on them", held)
        tx.outbox.append(Wake(Tag.SCHEDULING))
    return locked


def _write(
    tx: Transaction, config: Config, reservation: AdvanceReservation, step: ReservationStep
) -> AdvanceReservation:
    """Write a step; return the resulting reservation."""
    if step.is_over or _is_idle_no_more(tx, step):
        return reservation
    if step.state is ReservationState.REFUSED:
        event = step.notes[-1].event
        if event is ReservationEvent.REFUSED and reservation.series_id:
            tx.reservations.end_series(reservation.series_id)
        conflicts = {(each.number, each.start): text for each, text in step.conflicts}
        lifecycle.refuse(tx, reservation, step.message, proposal=step.proposal, event=event, conflicts=conflicts)
    elif step.seen is ReservationState.ASKED and (lack := _lack_of_hours(tx, config, reservation, step)):
        lifecycle.refuse(tx, reservation, lack, event=ReservationEvent.SKIPPED)
    else:
        if step.seen is ReservationState.ASKED:
            reservation = _grant(tx, reservation, step)
        elif step.resources:
            reservation = _replace(tx, reservation, step)
        _change_missing(tx, reservation, step)
        return _move(tx, reservation._replace(missing=step.missing, message=step.message), step)
    return reservation


def _lack_of_hours(tx: Transaction, config: Config, reservation: AdvanceReservation, step: ReservationStep) -> str:
    """Return why a budget does not allow a later occurrence of a series; '' if all do.

    Other requests were checked when they were stored.  No lock is taken: it could wait for a program that waits for
    rows of this round.
    """
    if config.projects is ProjectMode.FREE or not reservation.series_id:
        return ""
    series = tx.reservations.select_series([reservation.series_id]).get(reservation.series_id)
    if series is None or reservation.series_index <= series.depth:
        return ""
    seconds, windows = tx.budgets.factors(step.resources) * (step.end - step.start), [(step.start, step.end)]
    new = budgets.NewRequest(reservation.queue, reservation.project, seconds, windows=windows)
    replaced = budgets.Replaced(reservation=reservation.id)
    exhaustion = budgets.exhaustion_of(tx, config, new, replaced=replaced, locks=False)
    return exhaustion.text if exhaustion else ""


def _is_idle_no_more(tx: Transaction, step: ReservationStep) -> bool:
    """Return whether a job has entered a reservation that was to end because it was idle."""
    is_idle = any(note.event is ReservationEvent.IDLE for note in step.notes)
    return is_idle and any(tx.reservations.live_jobs([step.reservation_id])[step.reservation_id])


def _grant(tx: Transaction, reservation: AdvanceReservation, step: ReservationStep) -> AdvanceReservation:
    """Store the window and the resources of a granted request."""
    chosen = decode(reservation.request)[step.alternative]
    granted = reservation._replace(
        start=step.start, end=step.end, resources=step.resources, alternative=step.alternative
    )
    tx.reservations.update(
        granted.id,
        start_time=granted.start,
        end_time=granted.end,
        resources=list(granted.resources),
        alternative=granted.alternative,
        granted_pe=chosen.pe,
        granted_slots=chosen.slots or len(granted.resources),
    )
    tx.reservations.begin_intervals(granted.id, IntervalKind.GRANTED, granted.resources, min(tx.now, granted.start))
    frames.grant(tx, granted, chosen.groups)
    granted = granted._replace(granted_pe=chosen.pe)
    lifecycle.add_revision(tx, granted, granted.owner)
    return granted


def _replace(tx: Transaction, reservation: AdvanceReservation, step: ReservationStep) -> AdvanceReservation:
    before, after = set(reservation.resources), set(step.resources)
    replaced = reservation._replace(resources=step.resources, revision=reservation.revision + 1)
    tx.reservations.end_intervals(replaced.id, IntervalKind.GRANTED, before - after, tx.now)
    tx.reservations.end_intervals(replaced.id, IntervalKind.MISSING, before - after, tx.now)
    tx.reservations.begin_intervals(replaced.id, IntervalKind.GRANTED, after - before, tx.now)
    tx.reservations.update(replaced.id, resources=list(step.resources), revision=replaced.revision)
    frames.exchange_resources(tx, replaced, before - after, after - before)
    lifecycle.add_revision(tx, replaced, SYSTEM)
    return replaced


def _change_missing(tx: Transaction, reservation: AdvanceReservation, step: ReservationStep) -> None:
    if (step.missing, step.message) == (reservation.missing, reservation.message):
        return
    before, now = set(reservation.missing), set(step.missing)
    tx.reservations.begin_intervals(reservation.id, IntervalKind.MISSING, now - before, tx.now)
    tx.reservations.end_intervals(reservation.id, IntervalKind.MISSING, before - now, tx.now)
    tx.reservations.update(reservation.id, missing=list(step.missing), message=step.message)


def _move(tx: Transaction, reservation: AdvanceReservation, step: ReservationStep) -> AdvanceReservation:
    """Move a reservation through the states of a step, together with its frame; return the resulting reservation."""
    has_started = reservation.state in STARTED
    for note in step.notes:
        if note.state is reservation.state:
            is_mailed = not note.is_better
            lifecycle.note(
                tx, reservation, note.event, message=note.message, hostname=note.hostname, is_mailed=is_mailed
            )
            continue
        moved = lifecycle.move(tx, reservation, note.state, note.event, message=note.message, hostname=note.hostname)
        if moved is None:
            return reservation
        reservation = moved
        if reservation.state in STARTED and not has_started:
            lifecycle.start_frame(tx, reservation)
            has_started = True
    return reservation


# -- changes ----------------------------------------------------------------------------------------------------------


def _write_changes(tx: Transaction, steps: Sequence[ChangeStep], present: Mapping[int, AdvanceReservation]) -> None:
    """Write the decisions on changes of locked reservations; a granted change is written completely."""
    for step in steps:
        reservation = present.get(step.reservation_id)
        if not step.is_granted:
            tx.reservations.answer_change(step.change_id, ChangeAnswer.REFUSED, step.message, step.proposal)
        elif reservation and reservation.revision == step.revision and reservation.state in GRANTED:
            _change(tx, reservation, step)


def _change(tx: Transaction, reservation: AdvanceReservation, step: ChangeStep) -> None:
    change = tx.reservations.find_change(step.change_id)
    if change is None:
        return
    wanted = read_change(change.change)
    lost = jobs_without_access(tx, reservation, wanted.attributes)
    waiting = tx.reservations.live_jobs([reservation.id])[reservation.id].waiting
    misfits = [job_id for job_id in step.ended_jobs if job_id in waiting and job_id not in lost]
    lines = [f"job {job_id} was deleted: it no longer fits" for job_id in misfits]
    message = "\n".join(lines + [NO_ACCESS.format(job_id) for job_id in lost])
    if not tx.reservations.answer_change(change.id, ChangeAnswer.GRANTED, message):
        return
    changed = reservation._replace(
        start=step.start, end=step.end, resources=step.resources, revision=reservation.revision + 1
    )
    changed = _change_request(tx, changed, wanted, step.alternative)
    changed = set_attributes(tx, changed, wanted.attributes)
    _change_place(tx, reservation, changed)
    log_change(tx, changed, change.author, change_names(wanted.values))
    deletion.end_some_jobs(tx, changed, misfits, "was altered, so that the job no longer fits")
    end_without_access(tx, changed, lost)


def _change_place(tx: Transaction, reservation: AdvanceReservation, changed: AdvanceReservation) -> None:
    """Store the new window and resources, and update the frame."""
    before, after = set(reservation.resources), set(changed.resources)
    tx.reservations.update(
        changed.id,
        start_time=changed.start,
        end_time=changed.end,
        resources=list(changed.resources),
        missing=sorted(after & set(reservation.missing)),
    )
    for kind in IntervalKind:
        tx.reservations.end_intervals(changed.id, kind, before - after, tx.now)
    begin = tx.now if reservation.state in STARTED else min(tx.now, changed.start)
    tx.reservations.begin_intervals(changed.id, IntervalKind.GRANTED, after - before, begin)
    frames.move_window(tx, changed)
    frames.exchange_resources(tx, changed, before - after, after - before)


def _change_request(
    tx: Transaction, reservation: AdvanceReservation, change: WantedChange, alternative: int
) -> AdvanceReservation:
    if change.request is None or change.asked is None:
        return reservation
    chosen = decode(change.request)[alternative]
    slots = chosen.slots or len(reservation.resources)
    tx.reservations.update(
        reservation.id,
        request=change.request,
        alternative=alternative,
        granted_pe=chosen.pe,
        granted_slots=slots,
        **change.asked,
    )
    frames.set_groups(tx, reservation, chosen.groups)
    return reservation._replace(request=change.request, alternative=alternative, granted_pe=chosen.pe)
