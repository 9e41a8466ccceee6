"""The only place where a job changes state.

A move is a compare-and-set on the former state: of two programs that act at once one wins, and the other is told so
and drops what it was about to do.  The log of states, the dates and, for a final state, everything that ends with the
job (database.md 5 rule 3) are written in the same transaction; what must be told outside is left in ``tx.outbox``.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from oar.lib import causes, ends
from oar.lib.cause_texts import tell
from oar.lib.messages import Ask, Effect, JobAction, Notice, Tag, Wake
from oar.lib.model import Cause
from oar.lib.notices import TEXTS
from oar.lib.states import FINAL, EndCode, EventType, JobState, may_become

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction
    from oar.lib.db.jobs import MovedJob

#: The notice that the owner of a job gets when it enters a state (server.md 8.2).
NOTICES = {
    JobState.RUNNING: "RUNNING",
    JobState.TERMINATED: "END",
    JobState.ERROR: "ERROR",
    JobState.SUSPENDED: "SUSPENDED",
    JobState.RESUMING: "RESUMING",
}


def move(tx: "Transaction", job_id: int, to: JobState) -> bool:
    """Move a job to ``to``.  False if its present state does not allow it: somebody else was first."""
    return bool(move_all(tx, (job_id,), to))


def move_all(
    tx: "Transaction",
    ids: Collection[int],
    to: JobState,
    sources: Collection[JobState] | None = None,
    *,
    because: Mapping[int, Cause] | None = None,
) -> list[int]:
    """Move several jobs to ``to``; return those that did.

    ``sources`` narrows the states from which they may come (default: all that the table of moves allows).
    ``because``: why jobs end, where the caller knows; for the others it is found out.
    """
    allowed = may_become(to) if sources is None else may_become(to) & frozenset(sources)
    moved = tx.jobs.move(ids, to, allowed)
    if not moved:
        return []
    done = [job.id for job in moved]
    found: Mapping[int, Cause] = {}
    if to in FINAL:
        found = _note_causes(tx, done, because or {})
        tx.jobs.close(done)
    if to in (JobState.SUSPENDED, JobState.RUNNING) or (to in FINAL and any(job.suspended for job in moved)):
        _settle_suspension(tx, done, to, moved)
    used = _used(tx, [job.id for job in moved if job.notify]) if to in FINAL else {}
    if to is JobState.RUNNING and any(tx.events.is_open(one, EventType.HOLD_RUNNING_JOB) for one in done):
        tx.outbox.append(Wake(Tag.CHSTATE))  # who asked for its suspension while it was launched was told to wait
    for job in moved:
        tx.outbox.extend(_effects(job, to, found.get(job.id), used.get(job.id, "")))
    return done


def _used(tx: "Transaction", ids: Collection[int]) -> dict[int, str]:
    """Return what jobs used whose users are told of their end, in words."""
    return {use.job.id: use.sentence for use in ends.uses(tx, tx.jobs.select(ids), None)} if ids else {}


def _note_causes(tx: "Transaction", ids: Collection[int], known: Mapping[int, Cause]) -> dict[int, Cause]:
    """Store why jobs end, before what tells it goes with them; return it."""
    found = {job_id: known[job_id] for job_id in ids if job_id in known}
    for facts in tx.ends.facts([one for one in ids if one not in found]):
        found[facts.job_id] = causes.decide(facts)
    tx.ends.store(found)
    return found


def _settle_suspension(tx: "Transaction", ids: list[int], to: JobState, moved: "list[MovedJob]") -> None:
    """Keep ``jobs.suspended`` and ``resources.suspended_jobs`` true to the states."""
    if to is JobState.SUSPENDED:
        tx.jobs.mark_suspended(ids)
    if to is JobState.SUSPENDED or any(job.suspended for job in moved):
        tx.resources.recount_suspended()


def _effects(job: "MovedJob", to: JobState, cause: Cause | None, used: str) -> list[Effect]:
    effects: list[Effect] = []
    if to is JobState.TO_LAUNCH:
        effects.append(Ask(JobAction.RUN, job.id))
    if to in FINAL:
        effects.append(Wake(Tag.CHSTATE))
    if to is JobState.RUNNING and job.suspended:  # its end is a date again
        effects.append(Wake(Tag.VILLAINS))
    if job.notify and to in NOTICES:
        effects.append(_notice(job, to, cause, used))
    return effects


def _notice(job: "MovedJob", to: JobState, cause: Cause | None, used: str) -> Notice:
    tag = NOTICES[to]
    text = TEXTS[tag]
    if to is JobState.TERMINATED:
        text += f"\nexit_code: {format_exit_code(job.exit_code)}"
    host = (job.info_type or "").partition(":")[0]
    about = (job.id, job.name or "", job.user, job.notify or "", host)
    return Notice(*about, tag, text, job.array_id, "\n".join(filter(None, (_why(job.id, cause), used))))


def _why(job_id: int, cause: Cause | None) -> str:
    """Return why a job ended, in words; '' if there is nothing to tell."""
    if cause is None or cause.code is EndCode.SUCCESS:
        return ""
    told = tell(cause, job_id)
    return "\n".join(filter(None, (told.sentence, told.advice)))


def format_exit_code(status: int | None) -> str:
    """Return a raw wait status as oarstat shows it: ``256 (1,0,0)`` = status (code, signal, core); '' if none."""
    if status is None:
        return ""
    return f"{status} ({status >> 8},{status & 0x7F},{(status >> 7) & 1})"
