"""The moves of jobs that a plan decides: starts, answers, kills, resumptions; with their events and messages.

Each move is a compare-and-set, because jobs may have been deleted or held, and nodes may have failed, since the
snapshot.
"""

from collections.abc import Collection, Sequence

from oar.kao.facts.plan import JobStart, Kill, KillAction, Plan
from oar.kao.rounds.reading.situation import Alterations, Situation
from oar.kao.rounds.writing.held_launches import begin_trials
from oar.lib.base.times import format_duration
from oar.lib.bus.messages import Ask, JobAction, OarsubLine, Tag, Wake
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control, lifecycle
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.sql_jobs import GivenStart
from oar.lib.jobs.states import JobState, JobTypeName, Reservation
from oar.lib.planning.sql_rounds import JobRow, StartRow
from oar.lib.submission.resource_request import JobTypes

#: Type, job and description of an event.
_Event = tuple[str, int, str]


def start_jobs(tx: Transaction, situation: Situation, starts: Sequence[JobStart]) -> set[int]:
    """Move the jobs that can still be started to toLaunch; return their ids."""
    if not starts:
        return set()
    by_job = {start.placement.job_id: start for start in starts}
    waiting = set(tx.rounds.lock_waiting(by_job))
    since = situation.alterations.since
    waiting -= situation.alterations.later_in(Alterations(since, tx.rounds.altered(since)))  # their rows are locked
    resources = situation.snapshot.resources
    types = {job.id: JobTypes(job.types) for job in situation.snapshot.waiting if job.id in by_job}
    needed = {job_id: tuple(resources.ids_of(start.placement.resources)) for job_id, start in by_job.items()}
    alive = tx.rounds.share_alive({number for ids in needed.values() for number in ids})
    rows: list[StartRow] = []
    for job_id in sorted(waiting):
        placement = by_job[job_id].placement
        may_miss_nodes = types[job_id].is_standby or types[job_id].is_permissive
        if may_miss_nodes or alive.issuperset(needed[job_id]):
            start = max(placement.start, situation.rows[job_id].submission_time)
            rows.append(StartRow(job_id, placement.alternative, start, needed[job_id], placement.walltime))
    late = begin_trials(tx, situation, [row.job_id for row in rows])
    rows = [row for row in rows if row.job_id not in late]
    started = set(lifecycle.start_all(tx, {row.job_id: GivenStart(row.start, row.moldable) for row in rows}))
    tx.rounds.give([row for row in rows if row.job_id in started])
    return started


def answer_reservations(tx: Transaction, plan: Plan) -> None:
    """Accept and refuse new reservations, refuse jobs that can never run, end expired reservations."""
    for answer in plan.accepted:
        if lifecycle.move(tx, answer.job_id, JobState.TO_ACK_RESERVATION):
            tx.jobs.update(answer.job_id, reservation=str(Reservation.SCHEDULED), start_time=answer.start)
            tx.outbox.append(Ask(JobAction.TELL, answer.job_id, (OarsubLine.GOOD_RESERVATION,)))
    for answer in plan.refused:
        if lifecycle.move(tx, answer.job_id, JobState.TO_ERROR):
            tx.jobs.set_message([answer.job_id], answer.message)
            tx.rounds.end_negotiation(answer.job_id)
    for answer in plan.expired:
        causes = {answer.job_id: Cause(EndCode.EXPIRED)}
        if lifecycle.move_all(tx, causes, JobState.ERROR, (JobState.WAITING,), because=causes):
            tx.jobs.set_message([answer.job_id], answer.message)


def end_refused_jobs(tx: Transaction, situation: Situation, plan: Plan) -> None:
    """End the jobs in toError, of this and earlier rounds, and notify the waiting oarsub processes."""
    messages = {row.id: row.message for row in situation.in_state(JobState.TO_ERROR)}
    messages |= {answer.job_id: answer.message for answer in plan.refused}
    causes = {job_id: _cause_of_refusal(situation.rows[job_id], message) for job_id, message in messages.items()}
    if not causes:
        return
    for job_id in lifecycle.move_all(tx, causes, JobState.ERROR, (JobState.TO_ERROR,), because=causes):
        row = situation.rows[job_id]
        if row.is_interactive or row.reservation is not Reservation.NONE:
            tx.outbox.append(Ask(JobAction.TELL, job_id, (messages[job_id], OarsubLine.BAD_JOB)))


def _cause_of_refusal(row: JobRow, message: str) -> Cause:
    code = EndCode.EXPIRED if row.reservation is Reservation.NONE else EndCode.REFUSED
    return Cause(code, {"text": message})


def kill_besteffort_jobs(tx: Transaction, kills: Sequence[Kill]) -> None:
    """Request the end of besteffort jobs, or first their checkpoints."""
    if not kills:
        return
    ends = [kill for kill in kills if kill.action is not KillAction.CHECKPOINT]
    causes = {kill.job_id: Cause(EndCode.EVICTED, {"for_job": kill.for_job}) for kill in ends}
    reasons: list[_Event] = [
        (EventType.BESTEFFORT_KILL, kill.job_id, f"kill the besteffort job {kill.job_id} for job {kill.for_job}")
        for kill in ends
    ]
    accepted = set(control.ask_end(tx, causes, reasons=reasons))
    events: list[_Event] = [
        (
            EventType.CHECKPOINT_TIMEOUT,
            kill.job_id,
            f"[MetaSched] job {kill.job_id} has not ended in the time for its checkpoint",
        )
        for kill in ends
        if kill.action is KillAction.CHECKPOINT_TIMEOUT and kill.job_id in accepted
    ]
    for kill in kills:
        if kill.action is KillAction.CHECKPOINT:
            text = f"[MetaSched] job {kill.job_id} gets the checkpoint signal: job {kill.for_job} needs its resources"
            events.append((EventType.CHECKPOINT, kill.job_id, text))
            tx.outbox.append(Ask(JobAction.SIGNAL, kill.job_id))
    tx.events.add_many(events)
    if Wake(Tag.CHSTATE) not in tx.outbox:
        tx.outbox.append(Wake(Tag.CHSTATE))


def write_reservation_events(tx: Transaction, plan: Plan, started: Collection[int]) -> None:
    """Write the events of reservations that start late or reduced, and of those whose resources were lost."""
    events: list[_Event] = []
    for start in plan.started:
        job_id = start.placement.job_id
        if job_id not in started:
            continue
        if start.is_reduced:
            text = f"[MetaSched] Reduce the number of resources for the job {job_id}."
            events.append((EventType.SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION, job_id, text))
        if start.old_walltime:
            old, new = format_duration(start.old_walltime), format_duration(start.placement.walltime)
            events.append((EventType.REDUCE_RESERVATION_WALLTIME, job_id, f"Change walltime from {old} to {new}"))
    for job_id in plan.regained:
        text = f"[MetaSched] Renewed resources for the reservation {job_id}."
        events.append((EventType.GET_RESOURCES_BACK_FOR_RESERVATION, job_id, text))
    failed = EventType.UNABLE_TO_GET_RESOURCE_BACK_FOR_RESERVATION
    written = tx.events.having(plan.lost, [failed]) if plan.lost else set()
    for job_id in plan.lost:
        if (job_id, str(failed)) not in written:
            events.append((failed, job_id, f"[MetaSched] No resources for the reservation {job_id}."))
    tx.events.add_many(events)


def resume_jobs(tx: Transaction, situation: Situation, plan: Plan) -> None:
    """Resume jobs in Resuming; a noop job has no processes, so it becomes Running at once."""
    for job in situation.snapshot.running:
        if job.id in plan.resumed:
            if JobTypeName.NOOP in JobTypes(job.types):
                lifecycle.move(tx, job.id, JobState.RUNNING)
            else:
                tx.outbox.append(Ask(JobAction.RESUME, job.id))
