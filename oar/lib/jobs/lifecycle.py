"""Job state changes. Job states are changed in this module only.

A move is a compare-and-set on the current state. If two programs act at the same time, one succeeds; the other gets
False and drops its action. The same transaction writes the state log and the dates. For a final state, it also closes
all rows of the job. Messages about the move are appended to ``tx.outbox``.
See docs/design/locks.rst, "State changes".
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from oar.lib.bus.messages import Ask, Effect, JobAction, Notice, NoticeTag, Tag, Wake
from oar.lib.history.event_types import EventType
from oar.lib.jobs import end_decision
from oar.lib.jobs.ends import Cause, EndCode, cause_text, format_exit_code
from oar.lib.jobs.states import FINAL, JobState, Outcome, may_become
from oar.lib.jobs.usage import job_usages
from oar.lib.notifications.notices import TEXTS

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.sql_jobs import GivenEnd, GivenStart, MovedJob

#: The notice that the owner of a job gets when it enters a state.
NOTICES = {
    JobState.RUNNING: NoticeTag.RUNNING,
    JobState.TERMINATED: NoticeTag.END,
    JobState.ERROR: NoticeTag.ERROR,
    JobState.SUSPENDED: NoticeTag.SUSPENDED,
    JobState.RESUMING: NoticeTag.RESUMING,
}


def move(tx: "Transaction", job_id: int, to: JobState) -> bool:
    """Move a job to ``to``; return False if its current state does not allow the move."""
    return bool(move_all(tx, (job_id,), to))


def move_all(
    tx: "Transaction",
    ids: Collection[int],
    to: JobState,
    sources: Collection[JobState] | None = None,
    *,
    because: Mapping[int, Cause] | None = None,
) -> list[int]:
    """Move several jobs to ``to``; return the jobs that have moved.

    ``sources`` restricts the states from which jobs may move (default: all that the state machine allows).
    ``because``: end causes known to the caller; the other causes are determined here.
    """
    allowed = may_become(to) if sources is None else may_become(to) & frozenset(sources)
    return _follow(tx, tx.jobs.move(ids, to, allowed), to, because or {})


def start_all(tx: "Transaction", starts: "Mapping[int, GivenStart]") -> list[int]:
    """Move waiting jobs to toLaunch, with their start times and alternatives; return the jobs that have moved."""
    return _follow(tx, tx.jobs.move_started(starts, (JobState.WAITING,)), JobState.TO_LAUNCH)


def finish_all(tx: "Transaction", ends: "Mapping[int, GivenEnd]") -> list[int]:
    """Move jobs to Finishing, with the reported wait statuses and end times; return the jobs that have moved."""
    return _follow(tx, tx.jobs.move_ended(ends, may_become(JobState.FINISHING)), JobState.FINISHING)


def _follow(
    tx: "Transaction", moved: "list[MovedJob]", to: JobState, because: Mapping[int, Cause] = MappingProxyType({})
) -> list[int]:
    """Apply the consequences of a move; return the jobs that have moved."""
    if not moved:
        return []
    moved_ids = [job.id for job in moved]
    causes: dict[int, Cause] = {}
    usages: dict[int, str] = {}
    if to in FINAL:
        causes = _store_causes(tx, moved_ids, because)
        tx.jobs.close(moved_ids)
        notified = tx.jobs.select([job.id for job in moved if job.notify])
        usages = {usage.job.id: usage.sentence for usage in job_usages(tx, notified, None)}
    if to is JobState.SUSPENDED:
        tx.jobs.mark_suspended(moved_ids)
    if to is JobState.SUSPENDED or (to in (JobState.RUNNING, *FINAL) and any(job.suspended for job in moved)):
        tx.resources.recount_suspended()
    if to is JobState.RUNNING:
        is_suspension_asked, is_trial = tx.events.awaited_starts(moved_ids, EventType.HOLD_RUNNING_JOB)
        awaiting = ((Tag.CHSTATE, is_suspension_asked), (Tag.SCHEDULING, is_trial))  # a scheduling pass ends the hold
        tx.outbox.extend(Wake(tag) for tag, is_asked in awaiting if is_asked)
    for job in moved:
        tx.outbox.extend(_effects(job, to, causes.get(job.id), usages.get(job.id, "")))
    return moved_ids


def _store_causes(tx: "Transaction", ids: Collection[int], given_causes: Mapping[int, Cause]) -> dict[int, Cause]:
    """Store and return the end causes of jobs; call it before the rows with the facts are deleted."""
    causes = {job_id: given_causes[job_id] for job_id in ids if job_id in given_causes}
    for facts in tx.job_runs.end_facts([job_id for job_id in ids if job_id not in causes]):
        causes[facts.job_id] = end_decision.decide(facts)
    tx.job_runs.store_ends(causes)
    return causes


def _effects(job: "MovedJob", to: JobState, cause: Cause | None, usage: str) -> list[Effect]:
    effects: list[Effect] = []
    if to is JobState.TO_LAUNCH:
        effects.append(Ask(JobAction.RUN, job.id))
    if to is JobState.HOLD and ":" in (job.info_type or ""):  # an oarsub process waits for the start of the job
        effects.append(Ask(JobAction.TELL, job.id))
    if to in FINAL:
        effects.append(Wake(Tag.CHSTATE))
    if to is JobState.RUNNING and job.suspended:  # the job has an end time again
        effects.append(Wake(Tag.VILLAINS))
    if job.notify and to in NOTICES:
        effects.append(_notice(job, to, cause, usage))
    return effects


def _notice(job: "MovedJob", to: JobState, cause: Cause | None, usage: str) -> Notice:
    tag = NOTICES[to]
    text = TEXTS[tag]
    if to is JobState.TERMINATED:
        text += f"\nexit_code: {format_exit_code(job.exit_code)}"
    details = [usage]
    if cause and cause.code is not EndCode.SUCCESS:
        details[:0] = cause_text(cause, job.id)
    if cause and cause.code.outcome is not Outcome.UNKNOWN:
        details[:0] = [f"Outcome: {cause.code.outcome}"]
    host = (job.info_type or "").partition(":")[0]
    about = (job.id, job.name or "", job.user, job.notify or "", host)
    return Notice(*about, tag, text, job.array_id, "\n".join(filter(None, details)))
