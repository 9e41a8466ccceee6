"""Delete, hold, resume, signal: who may, when, and what follows; for the commands, the API and the server's modules.

Nothing acts on a job here.  A request is a row or an event, written with its trace in one transaction; the server's
modules carry it out (server.md 5.2, 6.4, 6.5).
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from oar.lib import incidents
from oar.lib.messages import Notice, Tag, Wake
from oar.lib.model import Cause, Event, Job, User
from oar.lib.request import JobTypes
from oar.lib.states import EndCode, EventType, Index, JobState, JobType, Reservation, signal_event

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

#: Who asks for the end of a job when the system does.
SYSTEM = "oar"

#: States of jobs that may be held, may be suspended besides, and may go on.
HOLDABLE = frozenset({JobState.WAITING, JobState.RESUMING})
RESUMABLE = frozenset({JobState.HOLD, JobState.SUSPENDED})
SUSPENDABLE = frozenset({JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING})


class No(Enum):
    """Why a request about a job is refused."""

    UNKNOWN_JOB = auto()
    NOT_YOURS = auto()
    NOT_ADMIN = auto()  #: only administrators may do this to any job
    ALREADY_KILLED = auto()  #: its deletion is under way
    NOT_RUNNING = auto()
    INTERACTIVE = auto()
    NOOP = auto()  #: nothing of it runs anywhere
    NOT_FINISHING = auto()
    NOT_LONG_ENOUGH = auto()  #: in Finishing for too short a time
    WRONG_STATE = auto()
    ADMIN_HOLD = auto()  #: only administrators may suspend
    ADMIN_RESUME = auto()  #: only administrators may resume what is Suspended


class Answer(NamedTuple):
    """What came of a request about one job."""

    job_id: int
    no: No | None = None  #: None = it is registered, or done
    text: str = ""  #: detail: the host of the job, or what was done
    seconds: int = 0  #: NOT_LONG_ENOUGH: for how long it is in Finishing


# -- the end of jobs --------------------------------------------------------------------------------------------------


def delete(tx: "Transaction", user: User, ids: Sequence[int], *, with_inner: bool) -> list[Answer]:
    """Ask for the end of jobs, as their owner or an administrator; one answer for each id, in order.

    A job that has ended is a success: who deletes it wanted it gone.  ``with_inner``: jobs inside a container end with
    it.
    """
    jobs = {job.id: job for job in tx.jobs.select(ids)}
    killed = tx.runs.kills_asked([job.id for job in jobs.values() if not job.is_final])
    answers = {job_id: Answer(job_id, _why_not_deleted(user, jobs.get(job_id), killed)) for job_id in ids}
    wanted = [job_id for job_id, answer in answers.items() if answer.no is None and not jobs[job_id].is_final]
    ask_end(tx, {job_id: _deletion(user, jobs[job_id]) for job_id in wanted}, by=user.name, with_inner=with_inner)
    if killed:  # harmless, and the server may have missed it
        _ring_leon(tx)
    return [answers[job_id] for job_id in ids]


def _why_not_deleted(user: User, job: Job | None, killed: Collection[int]) -> No | None:
    if job is None:
        return No.UNKNOWN_JOB
    if not owns(user, job):
        return No.NOT_YOURS
    return No.ALREADY_KILLED if job.id in killed else None


def _deletion(user: User, job: Job) -> Cause:
    return Cause(EndCode.DELETED if user.name == job.user else EndCode.ADMINISTRATOR, {"by": user.name})


def owns(user: User, job: Job) -> bool:
    """Whether a user may steer a job: it is his, or he is an administrator."""
    return user.is_admin or user.name == job.user


def ask_end(tx: "Transaction", causes: Mapping[int, Cause], *, by: str = SYSTEM, with_inner: bool = True) -> list[int]:
    """Ask Leon for the end of jobs, each for its cause, without a question of rights.

    Return those of which it was not asked before.
    """
    new = tx.runs.ask_kill(causes) if causes else []
    if not new:
        return []
    told = {job.id for job in tx.jobs.select(new) if job.notify}
    for tells in (True, False):
        texts = [
            (EventType.FRAG_JOB_REQUEST, job_id, f"User {by} requested to frag the job {job_id}")
            for job_id in new
            if (job_id in told) is tells
        ]
        tx.events.add_many(texts, to_check=tells)
    _ring_leon(tx)
    return sorted(new + (end_inner_jobs(tx, new) if with_inner else []))


def end_inner_jobs(tx: "Transaction", containers: Collection[int]) -> list[int]:
    """Ask for the end of the jobs inside containers that end; return those of which it was not asked before."""
    ended: list[int] = []
    outer = list(containers)
    while outer:
        owner = {job: container for container, job in tx.jobs.inner(outer)}
        ending = {job: Cause(EndCode.CONTAINER, {"container": container}) for job, container in owner.items()}
        outer = tx.runs.ask_kill(ending) if ending else []
        tx.events.add_many(
            [
                (EventType.FRAG_JOB_REQUEST, job, f"Container job {owner[job]} was fragged, frag inner job")
                for job in outer
            ],
            to_check=True,
        )
        ended += outer
    if ended:
        _ring_leon(tx)
    return ended


def _ring_leon(tx: "Transaction") -> None:
    for effect in (Wake(Tag.CHSTATE), Wake(Tag.QDEL)):
        if effect not in tx.outbox:
            tx.outbox.append(effect)


def deletion_notice(job: Job, event: Event) -> Notice:
    """Return what the owner of a job is told when its deletion is asked."""
    return Notice(
        job.id,
        job.name or "",
        job.user,
        job.notify or "",
        job.submission_host,
        "INFO",
        f"Your job was asked to be deleted - {event.description}",
        job.array_id,
    )


def force_end(tx: "Transaction", user: User, ids: Sequence[int], *, least: int) -> list[Answer]:
    """Let jobs that have been Finishing for more than ``least`` seconds end at once, as an administrator."""
    jobs = {job.id: job for job in tx.jobs.select(ids)}
    changes = tx.jobs.state_changes(jobs)
    answers = []
    for job_id in ids:
        job = jobs.get(job_id)
        since = max((change.start for change in changes.get(job_id, ())), default=tx.now)
        answer = Answer(job_id, _why_not_forced(user, job, tx.now - since > least), seconds=tx.now - since)
        if answer.no is None:
            text = f"[oardel] force the termination of the job {job_id}, asked by {user.name}"
            tx.events.add(EventType.FORCE_TERMINATE_FINISHING_JOB, job_id, text, to_check=True)
            tx.outbox.append(Wake(Tag.CHSTATE))
        answers.append(answer)
    return answers


def _why_not_forced(user: User, job: Job | None, long_enough: bool) -> No | None:
    if not user.is_admin:
        return No.NOT_ADMIN
    if job is None:
        return No.UNKNOWN_JOB
    if job.state is not JobState.FINISHING:
        return No.NOT_FINISHING
    return None if long_enough else No.NOT_LONG_ENOUGH


# -- besteffort -------------------------------------------------------------------------------------------------------


def toggle_besteffort(tx: "Transaction", user: User, ids: Sequence[int]) -> list[Answer]:
    """Give running jobs the type besteffort, or take it from them, as an administrator.  ``text``: Add or Remove."""
    jobs = {job.id: job for job in tx.jobs.select(ids)}
    types = tx.jobs.types(jobs, current=True)
    answers = []
    for job_id in ids:
        job = jobs.get(job_id)
        no = No.NOT_ADMIN if not user.is_admin else None if job else No.UNKNOWN_JOB
        if no is None and job and job.state is not JobState.RUNNING:
            no = No.NOT_RUNNING
        if no is None:
            removed = "besteffort" in types.get(job_id, ())
            _set_besteffort(tx, job_id, not removed)
        answers.append(Answer(job_id, no, text="" if no else "Remove" if removed else "Add"))
    if any(answer.no is None for answer in answers):
        tx.outbox.append(Wake(Tag.TERM))
    return answers


def _set_besteffort(tx: "Transaction", job_id: int, wanted: bool) -> None:
    if not wanted:
        tx.jobs.mark_types(job_id, "besteffort", Index.LOG)
        tx.events.add(EventType.DELETE_BESTEFFORT_JOB_TYPE, job_id, "[oardel] the job is besteffort no more")
        return
    if not tx.jobs.mark_types(job_id, "besteffort", Index.CURRENT):
        tx.jobs.insert_types({job_id: ("besteffort",)})
    tx.events.add(EventType.ADD_BESTEFFORT_JOB_TYPE, job_id, "[oardel] the job is besteffort from now on")


# -- signals ----------------------------------------------------------------------------------------------------------


class SignalRequest(NamedTuple):
    """A request that the Runner sends a signal to the command of a job."""

    event_id: int
    job_id: int
    host: str  #: where the command runs, '' if nobody knows
    results: tuple[EventType, EventType]  #: the types of event that end it: done, failed


def request_signal(tx: "Transaction", user: User, job_id: int, number: int | None) -> Answer | SignalRequest:
    """Ask for a signal to a running job, as its owner or an administrator; ``number`` None = its checkpoint signal."""
    job = tx.jobs.find(job_id)
    types = tx.jobs.types([job_id], current=True).get(job_id, ())
    no = _why_not_signalled(user, job, JobTypes(types))
    if no is not None:
        return Answer(job_id, no)
    if number is None:
        type_: str = EventType.CHECKPOINT
        results = (EventType.CHECKPOINT_SUCCESS, EventType.CHECKPOINT_ERROR)
        text = f"User {user.name} requested a checkpoint of the job {job_id}"
    else:
        type_ = signal_event(number)
        results = (EventType.SIG_SUCCESS, EventType.SIG_ERROR)
        text = f"User {user.name} requested the signal {number} for the job {job_id}"
    run = tx.runs.find(job_id)
    return SignalRequest(tx.events.add(type_, job_id, text), job_id, run.head_host if run else "", results)


def _why_not_signalled(user: User, job: Job | None, types: JobTypes) -> No | None:
    if job is None:
        return No.UNKNOWN_JOB
    if not owns(user, job):
        return No.NOT_YOURS
    if job.state is not JobState.RUNNING:
        return No.NOT_RUNNING
    if "noop" in types:
        return No.NOOP
    return No.INTERACTIVE if job.job_type is JobType.INTERACTIVE else None


def result_of(tx: "Transaction", request: SignalRequest) -> bool | None:
    """Return whether a signal was sent; None as long as the Runner has not said."""
    for event in tx.events.of_types(request.job_id, request.results):
        if event.id > request.event_id:
            return event.type == request.results[0]
    return None


# -- hold and resume --------------------------------------------------------------------------------------------------


class HoldRules(NamedTuple):
    """What the site allows."""

    users_may_suspend: bool = False  #: USERS_ALLOWED_HOLD_RESUME
    confines: bool = True  #: a job resource manager is configured


def hold(tx: "Transaction", user: User, ids: Sequence[int], rules: HoldRules, *, running: bool) -> list[Answer]:
    """Ask that jobs are held: waiting ones, with ``running`` also those that run.

    ``text`` of a refusal: why a job of this kind is never suspended.
    """
    jobs = {job.id: job for job in tx.jobs.select(ids)}
    types = tx.jobs.types(jobs) if running else {}
    answers = []
    for job_id in ids:
        job = jobs.get(job_id)
        no = No.UNKNOWN_JOB if job is None else _why_not_held(user, job, rules, running)
        text = ""
        if no is None and running:
            text = incidents.why_not_suspended(JobTypes(types.get(job_id, ())), confines=rules.confines)
        answers.append(Answer(job_id, No.WRONG_STATE if text else no, text))
    type_ = EventType.HOLD_RUNNING_JOB if running else EventType.HOLD_WAITING_JOB
    _request(tx, type_, answers, f"User {user.name} requested to hold the job")
    return answers


def _why_not_held(user: User, job: Job, rules: HoldRules, running: bool) -> No | None:
    if running and not (user.is_admin or rules.users_may_suspend):
        return No.ADMIN_HOLD
    if not owns(user, job):
        return No.NOT_YOURS
    if job.state is JobState.WAITING and job.reservation is not Reservation.SCHEDULED:
        return None
    if job.state is JobState.RESUMING or (running and job.state in SUSPENDABLE):
        return None
    return No.WRONG_STATE


def resume(tx: "Transaction", user: User, ids: Sequence[int], rules: HoldRules) -> list[Answer]:
    """Ask that jobs that are held or suspended go on."""
    jobs = {job.id: job for job in tx.jobs.select(ids)}
    answers = [Answer(job_id, _why_not_resumed(user, jobs.get(job_id), rules)) for job_id in ids]
    _request(tx, EventType.RESUME_JOB, answers, f"User {user.name} requested to resume the job")
    return answers


def _why_not_resumed(user: User, job: Job | None, rules: HoldRules) -> No | None:
    if job is None:
        return No.UNKNOWN_JOB
    if not owns(user, job):
        return No.NOT_YOURS
    if job.state is JobState.HOLD:
        return None
    if job.state is not JobState.SUSPENDED:
        return No.WRONG_STATE
    return None if user.is_admin or rules.users_may_suspend else No.ADMIN_RESUME


def _request(tx: "Transaction", type_: EventType, answers: Sequence[Answer], text: str) -> None:
    wanted = [answer.job_id for answer in answers if answer.no is None]
    if wanted:
        tx.events.add_many([(type_, job_id, f"{text} {job_id}") for job_id in wanted], to_check=True)
        tx.outbox.append(Wake(Tag.CHSTATE))


# -- what jobs are meant ----------------------------------------------------------------------------------------------


def jobs_of_arrays(tx: "Transaction", arrays: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the jobs of some arrays, and those of the ids that are no array."""
    jobs = tx.jobs.of_arrays(arrays)
    known = {job.array_id for job in jobs}
    return [job.id for job in jobs], [array for array in arrays if array not in known]
