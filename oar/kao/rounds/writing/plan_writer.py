"""``Plan`` -> database, in one transaction: moves of jobs, predictions, reasons, messages, orders to nodes.

Decisions that are no longer valid are skipped, and the next round decides again.

Of each waiting job two predictions are kept as history, for comparison with the actual starts: the first one, and the
first one that is less than 1 hour ahead.  Reservations are excluded, because their dates are fixed.

See docs/design/planner.rst, "What is written".
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from oar.kao.facts import reasons
from oar.kao.facts.plan import Plan, Reason
from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.kao.rounds.reading.filter_pools import Deferral
from oar.kao.rounds.reading.situation import Situation
from oar.kao.rounds.writing.held_launches import reason_of
from oar.kao.rounds.writing.job_moves import (
    answer_reservations,
    end_refused_jobs,
    kill_besteffort_jobs,
    resume_jobs,
    start_jobs,
    write_reservation_events,
)
from oar.kao.rounds.writing.reservation_moves import write_reservations
from oar.lib.accounts import budget_mails
from oar.lib.base.resource_set import ResourceSet
from oar.lib.config.files import Config
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.jobs import launch_holds
from oar.lib.jobs.sql_waits import StoredReason, ToldStart
from oar.lib.jobs.states import FINAL, Reservation
from oar.lib.nodes import state_changes
from oar.lib.planning.sql_plan import AGE, PredictionRow
from oar.lib.planning.sql_rounds import JobText

#: A start is near when it is no more seconds away than this.
NEAR = 3600


#: Predictions are removed so many seconds after the start of their job.
PREDICTION_RETENTION = 90 * 86400


#: Seconds between two searches for old predictions.
SWEEP_PERIOD = 86400


@dataclass(frozen=True, slots=True)
class NewPredictions:
    """The predictions of a plan to store."""

    first: list[ToldStart] = field(default_factory=list)
    near: list[ToldStart] = field(default_factory=list)


def new_predictions(
    snapshot: Snapshot, plan: Plan, started: Collection[int], pending: Mapping[int, bool]
) -> NewPredictions:
    """Return the predictions to store; ``pending``: the jobs with a prediction, and whether it is a near one."""
    new = NewPredictions()
    starts = {placement.job_id: placement.start for placement in plan.placements}
    for job in snapshot.waiting:
        start = starts.get(job.id)
        if start is None or job.reservation is not Reservation.NONE or job.id in started:
            continue
        prediction = ToldStart(job.id, job.queue, start)
        if job.id not in pending:
            new.first.append(prediction)
        if start - plan.now <= NEAR and not pending.get(job.id):
            new.near.append(prediction)
    return new


class PredictionHistory:
    """Writes predictions; a warm instance knows which jobs have stored predictions."""

    def __init__(self) -> None:
        self._pending: dict[int, bool] | None = None
        self._next_pending: dict[int, bool] = {}
        self._swept_at = 0

    def write(self, tx: Transaction, snapshot: Snapshot, plan: Plan, started: Mapping[int, int]) -> None:
        """Write the new predictions of a plan, and the start dates of jobs (``started``, by job id)."""
        pending = tx.job_waits.pending_predictions() if self._pending is None else self._pending
        new = new_predictions(snapshot, plan, started, pending)
        tx.job_waits.store_first_predictions(new.first)
        tx.job_waits.store_near_predictions(new.near)
        tx.job_waits.store_starts(started)
        if self._is_sweep_due(plan.now):
            tx.job_waits.forget_predictions_before(plan.now - PREDICTION_RETENTION)
        waiting = {job.id for job in snapshot.waiting} - started.keys()
        self._next_pending = {job_id: is_near for job_id, is_near in pending.items() if job_id in waiting}
        self._next_pending |= {prediction.job_id: False for prediction in new.first}
        self._next_pending |= {prediction.job_id: True for prediction in new.near}

    def remember(self, plan: Plan) -> None:
        """Store what has been written; call this after the commit."""
        self._pending = self._next_pending
        if self._is_sweep_due(plan.now):
            self._swept_at = plan.now

    def forget(self) -> None:
        self._pending = None

    def _is_sweep_due(self, now: int) -> bool:
        return not 0 <= now - self._swept_at < SWEEP_PERIOD


#: Characters of a condition that an event quotes.
LONGEST_QUOTATION = 500


#: Start and resources by alternative.
Predictions = Mapping[int, tuple[int, ResourceSet]]


#: Reasons by job id, each with its stored form.
StoredReasons = Mapping[int, tuple[Reason, StoredReason]]


@dataclass(frozen=True, slots=True)
class WrittenPlan:
    """The known content of the tables after the last round."""

    predictions: Predictions = field(default_factory=dict)
    resource_ids: tuple[int, ...] = ()  #: the bits of the sets in ``predictions``
    reasons: StoredReasons = field(default_factory=dict)


class PlanWriter:
    """Writes plans.  A warm writer writes only the predictions that have changed."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._keeps_all_plans = config.scheduler_log_decisions
        self.changes = 0  #: predictions that the last plan has changed
        self._written = WrittenPlan()
        self._reasons: StoredReasons = {}
        self._portion_reasons: StoredReasons = {}
        self._ended_frames: frozenset[int] = frozenset()
        self._history = PredictionHistory()

    def write(self, tx: Transaction, situation: Situation, plan: Plan) -> set[int]:
        """Write a plan; return the ids of the jobs that start."""
        write_reservations(tx, self._config, plan.reservations, plan.reservation_changes)
        self._ended_frames = _ended_frames(tx, plan)
        launch_holds.end_holds(tx, situation.launch_holds)
        started = start_jobs(tx, situation, plan.started)
        answer_reservations(tx, plan)
        kill_besteffort_jobs(tx, plan.kills)
        write_reservation_events(tx, plan, started)
        self._write_predictions(tx, situation, plan)
        last = situation.starts.get(AGE, 0)
        age = (plan.foreseen_at or last or situation.starts.get(0, 0)) if plan.undecided else 0
        if age != last:
            tx.plan.mark_age(age)
        _write_messages(tx, situation, plan)
        self._write_reasons(tx, situation, plan, started)
        self._history.write(tx, situation.snapshot, plan, dict.fromkeys(started, plan.now))
        end_refused_jobs(tx, situation, plan)
        resume_jobs(tx, situation, plan)
        tx.outbox.extend(situation.mails)
        budget_mails.notify(tx, situation.budget_notices)
        _note_deferrals(tx, situation.deferrals)
        state_changes.order_wake(tx, plan.wake, "MetaSched", "jobs need these nodes")
        state_changes.order_halt(tx, plan.halt, "MetaSched", "these nodes are idle")
        if not tx.ended and _is_repeatable(situation, plan):
            tx.commit_asynchronously()
        return started

    def write_reservations(self, tx: Transaction, situation: Situation, plan: Plan) -> None:
        """Write only the decisions on advance reservations; the plan for the jobs follows."""
        write_reservations(tx, self._config, plan.reservations, plan.reservation_changes)
        placed = {step.frame_id for step in plan.reservations if step.resources}
        ids_of = situation.snapshot.resources.ids_of
        rows = [
            PredictionRow(place.alternative, place.start, tuple(ids_of(place.resources)))
            for place in plan.placements
            if place.job_id in placed
        ]
        tx.plan.change((), rows, plan.now, log=self._keeps_all_plans)

    def remember(self, situation: Situation, plan: Plan) -> None:
        """Store the content of the tables; call this after the commit."""
        self._written = WrittenPlan(
            _predictions(situation, plan, self._ended_frames), situation.snapshot.resources.ids, self._reasons
        )
        self._history.remember(plan)

    def write_portion(self, tx: Transaction, situation: Situation, plan: Plan) -> None:
        """Write the predictions of a plan for some jobs; leave those of other jobs unchanged."""
        ids = situation.snapshot.resources.ids_of
        rows = [PredictionRow(each.alternative, each.start, tuple(ids(each.resources))) for each in plan.placements]
        tx.plan.change(self._outdated(situation, plan), rows, plan.now, log=False)
        tx.plan.mark_age(plan.foreseen_at)
        _write_messages(tx, situation, plan)
        stored = {job_id: _stored(reason) for job_id, reason in plan.reasons.items()}
        self._explain(tx, {job_id: each for job_id, each in stored.items() if situation.reasons.get(job_id) != each})
        self._portion_reasons = {job_id: (plan.reasons[job_id], each) for job_id, each in stored.items()}

    def remember_portion(self, plan: Plan) -> None:
        """Store what ``write_portion`` has written; call this after the commit."""
        written = self._written
        if not written.predictions:
            return
        predictions = {each.alternative: (each.start, each.resources) for each in plan.placements}
        self._written = replace(
            written,
            predictions={**written.predictions, **predictions},
            reasons={**written.reasons, **self._portion_reasons},
        )

    def _outdated(self, situation: Situation, plan: Plan) -> set[int]:
        jobs = {*plan.reasons, *plan.messages}
        placed = {placement.alternative for placement in plan.placements}
        return _alternatives_of([job for job in situation.snapshot.waiting if job.id in jobs]) - placed

    def forget(self) -> None:
        """Delete the stored content, so that the next write compares all predictions with the tables.

        Another program may have changed the tables.
        """
        self._written = WrittenPlan()
        self._history.forget()

    def _write_predictions(self, tx: Transaction, situation: Situation, plan: Plan) -> None:
        resources = situation.snapshot.resources
        new = _predictions(situation, plan, self._ended_frames)
        old = self._written.predictions if self._written.resource_ids == resources.ids else {}
        changed = {
            alternative: (start, members)
            for alternative, (start, members) in new.items()
            if old.get(alternative) != (start, members) or situation.starts.get(alternative) != start
        }
        kept = _kept_alternatives(situation, plan) - new.keys()
        self.changes = len(changed)
        obsolete = (situation.starts.keys() | old.keys()) - new.keys() - kept - {0, AGE}
        if not (changed or obsolete or not old or self._keeps_all_plans):
            tx.plan.store_date(plan.now)
            return
        rows = (
            PredictionRow(alternative, start, tuple(resources.ids_of(members)))
            for alternative, (start, members) in changed.items()
        )
        if old:
            tx.plan.change(obsolete, rows, plan.now, log=self._keeps_all_plans)
        else:
            tx.plan.write(new.keys() | kept, rows, plan.now, log=self._keeps_all_plans)

    def _write_reasons(self, tx: Transaction, situation: Situation, plan: Plan, started: Collection[int]) -> None:
        self._reasons = _stored_reasons(plan, started, self._written.reasons)
        new = {job_id: stored for job_id, (_, stored) in self._reasons.items()}
        new |= {job_id: _stored(reasons.held(since)) for job_id, since in situation.on_hold.items()}
        new |= {job_id: _stored(reason_of(hold)) for job_id, hold in situation.launches_held.items()}
        changed = {job_id: stored for job_id, stored in new.items() if situation.reasons.get(job_id) != stored}
        self._explain(tx, changed)
        tx.job_waits.forget_reasons(situation.reasons.keys() - new.keys() - set(plan.undecided))

    @staticmethod
    def _explain(tx: Transaction, changed: Mapping[int, StoredReason]) -> None:
        many_changes = tx.job_waits.explain(changed)
        if many_changes:
            tx.job_waits.fold(many_changes, tx.jobs.state_changes(many_changes))


def _is_repeatable(situation: Situation, plan: Plan) -> bool:
    """Return whether a crash of PostgreSQL may undo a round, because the next one would decide again.

    Starts may be undone: no command runs before the commit of ``GO`` has written them to disk.  Messages to users,
    orders to nodes, and decisions that are made only once must not be undone.
    """
    told = (plan.kills, plan.accepted, plan.refused, plan.expired, plan.regained, plan.lost, plan.resumed)
    ordered = (plan.wake, plan.halt, plan.reservations, plan.reservation_changes, situation.mails, situation.deferrals)
    is_cut = any(start.is_reduced or start.old_walltime for start in plan.started)
    return not (any(told) or any(ordered) or situation.budget_notices or is_cut)


def _alternatives_of(jobs: Collection[WaitingJob]) -> set[int]:
    return {alternative.id for job in jobs for alternative in job.alternatives}


def _ended_frames(tx: Transaction, plan: Plan) -> frozenset[int]:
    states = tx.jobs.states([step.frame_id for step in plan.reservations]) if plan.reservations else {}
    return frozenset(job_id for job_id, state in states.items() if state in FINAL)


def _kept_alternatives(situation: Situation, plan: Plan) -> set[int]:
    """Return the alternatives of undecided jobs whose predictions stay until the next full plan."""
    if not plan.undecided:
        return set()
    undecided = set(plan.undecided)
    placed = {placement.job_id for placement in plan.placements}
    waiting = situation.snapshot.waiting
    return _alternatives_of([job for job in waiting if job.id in undecided and job.id not in placed])


def _predictions(
    situation: Situation, plan: Plan, ended: Collection[int] = frozenset()
) -> dict[int, tuple[int, ResourceSet]]:
    """Return the predictions of all jobs, without ``ended`` frames: these end during a round."""
    running = (job for job in situation.snapshot.running if job.id not in ended)
    predictions = {job.alternative: (job.start_time, job.resources) for job in running}
    expired = {answer.job_id for answer in plan.expired} | set(ended)
    for placement in plan.placements:
        if placement.job_id not in expired:
            predictions[placement.alternative] = placement.start, placement.resources
    return predictions


def _write_messages(tx: Transaction, situation: Situation, plan: Plan) -> None:
    texts = []
    for job_id, message in plan.messages.items():
        row, reason, karma = situation.rows[job_id], plan.reasons.get(job_id), plan.karma.get(job_id)
        info = reason.text if reason else ""
        if (row.message, row.scheduler_info) != (message, info) or (karma is not None and row.karma != karma):
            texts.append(JobText(job_id, message, info, karma))
    tx.rounds.tell(texts)


def _stored_reasons(
    plan: Plan, started: Collection[int], last: StoredReasons
) -> dict[int, tuple[Reason, StoredReason]]:
    """Return the reasons of a plan with their stored form; unchanged ones reuse that of the last round."""
    answered = {answer.job_id for answer in (*plan.refused, *plan.expired)}
    overtaken = {start.placement.job_id: reasons.overtaken() for start in plan.started}
    stored: dict[int, tuple[Reason, StoredReason]] = {}
    for job_id, reason in {**plan.reasons, **overtaken}.items():
        if job_id not in started and job_id not in answered:
            old = last.get(job_id)
            stored[job_id] = old if old and old[0] == reason else (reason, _stored(reason))
    return stored


def _stored(reason: Reason) -> StoredReason:
    return StoredReason(reason.code, reason.text, json.dumps(dict(reason.data), sort_keys=True))


def _note_deferrals(tx: Transaction, deferrals: Sequence[Deferral]) -> None:
    """Add events that report the users whose conditions take too much time."""
    tx.events.add_many(
        [
            (
                EventType.CONDITION_TOO_SLOW,
                0,
                f"[MetaSched] the condition of {', '.join(sorted(deferral.owners))} takes longer than"
                f" {deferral.seconds:.2f} s; its jobs wait: {deferral.condition[:LONGEST_QUOTATION]}",
            )
            for deferral in deferrals
        ]
    )
