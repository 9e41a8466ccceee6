"""``Plan`` -> database, in one transaction: starts, answers, kills, predictions, reasons (scheduling.md 1 step 9).

Between the snapshot and this transaction jobs may have been deleted or held and nodes may have failed.  So each move is
a compare-and-set, and a job starts only if its resources are still Alive; what does not hold any more is left out, and
the next round decides anew.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from oar.kao import explain
from oar.kao.foretold import Foretold
from oar.kao.model import Kill, Launch, Plan, Reason
from oar.kao.platform import Alterations, Situation
from oar.lib import control, lifecycle, nodes
from oar.lib.db.engine import Transaction
from oar.lib.db.gantt import JobText, Prediction, StoredReason
from oar.lib.db.rounds import JobRow, StartRow
from oar.lib.messages import Ask, JobAction, Tag, Wake
from oar.lib.model import Cause
from oar.lib.request import JobTypes
from oar.lib.states import EndCode, EventType, JobState, Reservation
from oar.lib.times import format_duration

#: What an oarsub that waits for a reservation reads when it is accepted, and what it or another reads when it is not.
GOOD_RESERVATION = "GOOD RESERVATION"
BAD_JOB = "BAD JOB"


@dataclass(slots=True)
class Stored:
    """What a warm scheduler remembers of the gantt tables: start and resources by alternative."""

    predictions: dict[int, tuple[int, int]] = field(default_factory=dict)
    key: tuple[int, ...] = ()  #: the resources by bit, when these sets were written
    reasons: dict[int, tuple[Reason, StoredReason]] = field(default_factory=dict)  #: as planned, and as stored


class Writer:
    """Writes plans.  A warm one writes only the predictions that it knows to have changed."""

    def __init__(self, *, keeps_all_plans: bool = False) -> None:
        self._keeps_all_plans = keeps_all_plans
        self._stored = Stored()
        self._reasons: dict[int, tuple[Reason, StoredReason]] = {}
        self._foretold = Foretold()

    def write(self, tx: Transaction, situation: Situation, plan: Plan) -> set[int]:
        """Carry out a plan; return the jobs that start."""
        started = _start(tx, situation, plan.launches)
        _answer(tx, plan)
        _kill(tx, plan.kills)
        _reservation_events(tx, plan, started)
        self._write_predictions(tx, situation, plan)
        _tell_jobs(tx, situation, plan)
        self._write_reasons(tx, situation, plan, started)
        self._foretold.write(tx, situation.snapshot, plan, dict.fromkeys(started, plan.now))
        _give_up(tx, situation, plan)
        _remind(tx, situation)
        _resume(tx, situation, plan)
        tx.outbox.extend(situation.mails)
        nodes.order_wake(tx, plan.wake, "[MetaSched] jobs need these nodes")
        nodes.order_halt(tx, plan.halt, "[MetaSched] these nodes are idle")
        return started

    def remember(self, situation: Situation, plan: Plan) -> None:
        """Note, after the commit, what the gantt tables hold."""
        sets = predicted(situation, plan)
        self._stored = Stored(sets, situation.snapshot.resources.ids, self._reasons)
        self._foretold.remember(plan)

    def forget(self) -> None:
        """Compare everything the next time: somebody else may have written."""
        self._stored = Stored()
        self._foretold.forget()

    def _write_predictions(self, tx: Transaction, situation: Situation, plan: Plan) -> None:
        resources = situation.snapshot.resources
        new = predicted(situation, plan)
        known = self._stored.predictions if self._stored.key == resources.ids else {}
        changed = {
            number: (start, members)
            for number, (start, members) in new.items()
            if known.get(number) != (start, members) or situation.starts.get(number) != start
        }
        gone = (situation.starts.keys() | known.keys()) - new.keys() - {0}
        if not (changed or gone or not known or self._keeps_all_plans):
            tx.gantt.date(plan.now)
            return
        predictions = (
            Prediction(number, start, tuple(resources.ids_of(members))) for number, (start, members) in changed.items()
        )
        if known:
            tx.gantt.change(gone, predictions, plan.now, keep=self._keeps_all_plans)
        else:
            tx.gantt.write(new.keys(), predictions, plan.now, keep=self._keeps_all_plans)

    def _write_reasons(self, tx: Transaction, situation: Situation, plan: Plan, started: Collection[int]) -> None:
        """Write the reasons that differ from those of the last round."""
        self._reasons = reasons_of(plan, started, self._stored.reasons)
        new = {job_id: stored for job_id, (_, stored) in self._reasons.items()}
        new |= {job_id: _stored(explain.held(since)) for job_id, since in situation.on_hold.items()}
        tx.gantt.explain({job_id: each for job_id, each in new.items() if situation.reasons.get(job_id) != each})
        tx.gantt.forget_reasons(situation.reasons.keys() - new.keys())


def predicted(situation: Situation, plan: Plan) -> dict[int, tuple[int, int]]:
    """Return start and resources of all that has or will have some: running jobs, reservations, waiting jobs."""
    rows = {job.alternative: (job.start_time, job.resources) for job in situation.snapshot.running}
    ended = {answer.job_id for answer in plan.expired}
    for placement in plan.placements:
        if placement.job_id not in ended:
            rows[placement.alternative] = placement.start, placement.resources
    return rows


# ------------------------------------------------------------------------------------------------------------- starting


def _start(tx: Transaction, situation: Situation, launches: Sequence[Launch]) -> set[int]:
    """Start the jobs that may still start."""
    if not launches:
        return set()
    wanted = {launch.placement.job_id: launch for launch in launches}
    waiting = set(tx.rounds.lock_waiting(wanted))
    waiting -= _altered_meanwhile(tx, situation.alterations)
    resources = situation.snapshot.resources
    types = {job.id: job.types for job in situation.snapshot.waiting if job.id in wanted}
    held = {number: tuple(resources.ids_of(launch.placement.resources)) for number, launch in wanted.items()}
    present = tx.rounds.share_alive({number for ids in held.values() for number in ids})
    rows: list[StartRow] = []
    for job_id in sorted(waiting):
        launch = wanted[job_id]
        ids = held[job_id]
        if _needs_no_node(types[job_id]) or present.issuperset(ids):
            row = situation.rows[job_id]
            start = max(launch.placement.start, row.submission_time)
            rows.append(StartRow(job_id, launch.placement.alternative, start, ids, launch.placement.walltime))
    started = set(lifecycle.move_all(tx, [row.job_id for row in rows], JobState.TO_LAUNCH, (JobState.WAITING,)))
    tx.rounds.start([row for row in rows if row.job_id in started])
    return started


def _altered_meanwhile(tx: Transaction, known: Alterations) -> set[int]:
    """Return the jobs that were planned as they are no more; asked when they are locked."""
    return known.differ(Alterations(known.since, tx.rounds.altered(known.since)))


def _needs_no_node(texts: Sequence[str]) -> bool:
    """Whether a job of these types may be started on resources that are not Alive; the planner has looked at which."""
    types = JobTypes(texts)
    return types.is_standby or types.is_permissive


# -------------------------------------------------------------------------------------------------------------- answers


def _answer(tx: Transaction, plan: Plan) -> None:
    """Answer new reservations, and give up the jobs that can never run."""
    for answer in plan.accepted:
        if lifecycle.move(tx, answer.job_id, JobState.TO_ACK_RESERVATION):
            tx.jobs.update(answer.job_id, reservation=str(Reservation.SCHEDULED), start_time=answer.start)
            tx.outbox.append(Ask(JobAction.TELL, answer.job_id, (GOOD_RESERVATION,)))
    for answer in plan.refused:
        if lifecycle.move(tx, answer.job_id, JobState.TO_ERROR):
            tx.jobs.say([answer.job_id], answer.message)
            tx.rounds.end_negotiation(answer.job_id)
    for answer in plan.expired:
        because = {answer.job_id: Cause(EndCode.EXPIRED, {"text": answer.message})}
        if lifecycle.move_all(tx, because, JobState.ERROR, (JobState.WAITING,), because=because):
            tx.jobs.say([answer.job_id], answer.message)


def _give_up(tx: Transaction, situation: Situation, plan: Plan) -> None:
    """End the jobs in toError, from this round or an earlier one; whoever waits for them is told why."""
    messages = {row.id: row.message for row in situation.in_state(JobState.TO_ERROR)}
    messages |= {answer.job_id: answer.message for answer in plan.refused}
    because = {job_id: _refusal(situation.rows[job_id], text) for job_id, text in messages.items()}
    ended = lifecycle.move_all(tx, because, JobState.ERROR, (JobState.TO_ERROR,), because=because) if because else []
    for job_id in ended:
        if _is_listened_to(situation.rows[job_id]):
            tx.outbox.append(Ask(JobAction.TELL, job_id, (messages[job_id], BAD_JOB)))


def _refusal(row: JobRow, message: str) -> Cause:
    """Return why a job is given up: a reservation is refused, another job has missed its dates."""
    code = EndCode.EXPIRED if row.reservation is Reservation.NONE else EndCode.REFUSED
    return Cause(code, {"text": message})


def _is_listened_to(row: JobRow) -> bool:
    return row.is_interactive or row.reservation is not Reservation.NONE


def _remind(tx: Transaction, situation: Situation) -> None:
    """Ring the Runner again for what it may have missed."""
    tx.outbox.extend(Ask(JobAction.RUN, row.id) for row in situation.in_state(JobState.TO_LAUNCH))
    tx.outbox.extend(
        Ask(JobAction.TELL, row.id, (GOOD_RESERVATION,)) for row in situation.in_state(JobState.TO_ACK_RESERVATION)
    )


# ----------------------------------------------------------------------------------------------- killing and going on


def _kill(tx: Transaction, kills: Sequence[Kill]) -> None:
    """Have besteffort jobs write their checkpoint, or end."""
    if not kills:
        return
    ending = [each for each in kills if each.action != "CHECKPOINT"]
    causes = {each.job_id: Cause(EndCode.EVICTED, {"for_job": each.for_job}) for each in ending}
    asked = set(control.ask_end(tx, causes))
    events = [
        (EventType.BESTEFFORT_KILL, each.job_id, f"kill the besteffort job {each.job_id} for job {each.for_job}")
        for each in ending
        if each.job_id in asked
    ]
    events += [
        (
            EventType.CHECKPOINT_TIMEOUT,
            each.job_id,
            f"[MetaSched] job {each.job_id} has not ended in the time for its checkpoint",
        )
        for each in ending
        if each.action == "CHECKPOINT_TIMEOUT" and each.job_id in asked
    ]
    for each in kills:
        if each.action == "CHECKPOINT":
            text = f"[MetaSched] job {each.job_id} is asked to write a checkpoint: job {each.for_job} wants its place"
            events.append((EventType.CHECKPOINT, each.job_id, text))
            tx.outbox.append(Ask(JobAction.SIGNAL, each.job_id))
    tx.events.add_many(events)
    if Wake(Tag.CHSTATE) not in tx.outbox:
        tx.outbox.append(Wake(Tag.CHSTATE))


def _reservation_events(tx: Transaction, plan: Plan, started: Collection[int]) -> None:
    """Write what became of reservations that started late or with less, or lost their resources."""
    events: list[tuple[str, int, str]] = []
    for launch in plan.launches:
        job_id = launch.placement.job_id
        if job_id not in started:
            continue
        if launch.is_reduced:
            text = f"[MetaSched] Reduce the number of resources for the job {job_id}."
            events.append((EventType.SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION, job_id, text))
        if launch.old_walltime:
            old, new = format_duration(launch.old_walltime), format_duration(launch.placement.walltime)
            text = f"Change walltime from {old} to {new}"
            events.append((EventType.REDUCE_RESERVATION_WALLTIME, job_id, text))
    for job_id in plan.regained:
        text = f"[MetaSched] Renewed resources for the reservation {job_id}."
        events.append((EventType.GET_RESOURCES_BACK_FOR_RESERVATION, job_id, text))
    missed = EventType.UNABLE_TO_GET_RESOURCE_BACK_FOR_RESERVATION
    known = tx.events.having(plan.lost, [missed]) if plan.lost else set()
    for job_id in plan.lost:
        if (job_id, str(missed)) not in known:
            events.append((missed, job_id, f"[MetaSched] No resources for the reservation {job_id}."))
    tx.events.add_many(events)


def _resume(tx: Transaction, situation: Situation, plan: Plan) -> None:
    """Let suspended jobs go on; a noop job has nothing to be thawed."""
    for job in situation.snapshot.running:
        if job.id in plan.resumed:
            if "noop" in JobTypes(job.types):
                lifecycle.move(tx, job.id, JobState.RUNNING)
            else:
                tx.outbox.append(Ask(JobAction.RESUME, job.id))


# ---------------------------------------------------------------------------------------------------------------- texts


def _tell_jobs(tx: Transaction, situation: Situation, plan: Plan) -> None:
    """Write the messages that differ from those of the last round."""
    texts = []
    for job_id, message in plan.messages.items():
        row, reason = situation.rows[job_id], plan.reasons.get(job_id)
        info = reason.text if reason else ""
        karma = plan.karma.get(job_id)
        if (row.message, row.scheduler_info) != (message, info) or (karma is not None and row.karma != karma):
            texts.append(JobText(job_id, message, info, karma))
    tx.gantt.tell(texts)


def reasons_of(
    plan: Plan, started: Collection[int], known: Mapping[int, tuple[Reason, StoredReason]]
) -> dict[int, tuple[Reason, StoredReason]]:
    """Return the reasons, each with the form in which it is stored; ``known`` are those of the last round."""
    answered = {answer.job_id for answer in (*plan.refused, *plan.expired)}
    missed = {launch.placement.job_id: explain.overtaken() for launch in plan.launches}
    found = {}
    for job_id, reason in {**plan.reasons, **missed}.items():
        if job_id not in started and job_id not in answered:
            before = known.get(job_id)
            found[job_id] = before if before and before[0] is reason else (reason, _stored(reason))
    return found


def _stored(reason: Reason) -> StoredReason:
    return StoredReason(reason.code, reason.text, json.dumps(dict(reason.data), sort_keys=True))
