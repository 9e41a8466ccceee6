"""Requests to delete, hold, resume or signal jobs: permissions, conditions, and messages for rejected requests.

Commands and the server's modules use this module. A request that needs no node is executed here: a job is held or
released in the transaction of the command. Any other request is stored as a row or an event, and the server's modules
execute it (docs/design/launch.rst, "Kill requests").
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, Self

from oar.lib.access.records import User
from oar.lib.bus.messages import Notice, NoticeTag, Tag, Wake
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.history.event_types import EventType, signal_event
from oar.lib.history.records import Event
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import FINAL, Index, JobState, JobType, JobTypeName, KillState, Reservation

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.submission.resource_request import JobTypes

#: The name in events of requests that the system makes itself.
SYSTEM = "oar"

#: States of jobs that can be held, resumed, and suspended.
HOLDABLE = frozenset({JobState.WAITING, JobState.RESUMING})
RESUMABLE = frozenset({JobState.HOLD, JobState.SUSPENDED})
SUSPENDABLE = frozenset({JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING})


class ControlRefusal(Enum):
    """Why a request on a job is rejected."""

    UNKNOWN_JOB = auto()
    NOT_YOURS = auto()
    NOT_ADMIN = auto()  #: only administrators may make this request
    ALREADY_KILLED = auto()  #: it has a kill request already
    NOT_RUNNING = auto()
    INTERACTIVE = auto()
    NOOP = auto()  #: it is of type noop: it has no processes
    FETCHED = auto()  #: the agent of a desktop computer has it: nothing can be sent there
    NOT_FINISHING = auto()
    NOT_LONG_ENOUGH = auto()  #: it has been Finishing for too short a time
    WRONG_STATE = auto()
    HAS_BEGUN = auto()  #: it was to be held, and has started
    HAS_ENDED = auto()  #: it was to be held, and is over
    ADMIN_HOLD = auto()  #: only administrators may suspend jobs
    ADMIN_RESUME = auto()  #: only administrators may resume Suspended jobs
    FRAME = auto()  #: it stands for an advance reservation: ``ControlOutcome.text`` names it


class ControlOutcome(NamedTuple):
    """The result of a request on one job."""

    job_id: int
    refusal: ControlRefusal | None = None  #: None = the request is registered, or carried out
    text: str = ""  #: detail for the user; see the functions that set it
    seconds: int = 0  #: of ``force_end``: how long the job has been Finishing
    has_ended: bool = False  #: of ``delete``: there was nothing to do


def frame_texts(tx: "Transaction", ids: Collection[int]) -> dict[int, str]:
    """Return the rejection messages of the given jobs that are frames of advance reservations, by job id."""
    return {job_id: frame_text(number) for job_id, (_, number) in tx.reservations.of_frames(ids).items()}


def frame_text(number: int) -> str:
    """Return why requests on the frame of an advance reservation are rejected."""
    return f"This job is the frame of the advance reservation {number}: use qralter."


def _with_frames(tx: "Transaction", answers: Sequence[ControlOutcome]) -> list[ControlOutcome]:
    """Reject requests on frames. Rejections for missing permission stay: they must not reveal frames."""
    first = (ControlRefusal.UNKNOWN_JOB, ControlRefusal.NOT_YOURS, ControlRefusal.NOT_ADMIN)
    texts = frame_texts(tx, [answer.job_id for answer in answers if answer.refusal not in first])
    return [
        ControlOutcome(answer.job_id, ControlRefusal.FRAME, texts[answer.job_id]) if answer.job_id in texts else answer
        for answer in answers
    ]


# -- the end of jobs --------------------------------------------------------------------------------------------------


def delete(
    tx: "Transaction", user: User, ids: Sequence[int], *, with_inner: bool, managed: Collection[str] = ()
) -> list[ControlOutcome]:
    """Request the end of jobs, if the user controls them; return the outcomes in the order of the ids.

    The request succeeds for a job that has already ended. ``with_inner``: also end the jobs inside a container.
    """
    jobs = {job.id: job for job in tx.jobs.select(ids)}
    killed = tx.job_requests.jobs_to_kill([job.id for job in jobs.values() if not job.is_final])
    answers = {}
    for job_id in ids:
        job, refusal = jobs.get(job_id), None
        if job is None:
            refusal = ControlRefusal.UNKNOWN_JOB
        elif not controls(user, job, managed):
            refusal = ControlRefusal.NOT_YOURS
        elif job_id in killed:
            refusal = ControlRefusal.ALREADY_KILLED
        has_ended = job is not None and refusal is None and job.is_final
        answers[job_id] = ControlOutcome(job_id, refusal, has_ended=has_ended)
    causes = {
        job_id: Cause(_deletion_code(user, jobs[job_id]), {"by": user.author})
        for job_id, answer in answers.items()
        if answer.refusal is None and not answer.has_ended
    }
    ask_end(tx, causes, by=user.author, with_inner=with_inner)
    audit.record_jobs(tx, user, AuditAction.DELETE, [jobs[job_id] for job_id in causes])
    if killed:  # notify Leon again, in case it missed the first notification
        _wake_leon(tx)
    return [answers[job_id] for job_id in ids]


def _deletion_code(user: User, job: Job) -> EndCode:
    if user.name == job.user:
        return EndCode.DELETED
    return EndCode.ADMINISTRATOR if user.is_admin else EndCode.MANAGER


def owns(user: User, job: Job) -> bool:
    """Return whether a user may make all requests on a job: its owner and administrators may."""
    return user.is_admin or user.name == job.user


def controls(user: User, job: Job, managed: Collection[str]) -> bool:
    """Return whether a user may delete, hold and resume a job; ``managed``: projects whose jobs the user controls."""
    return owns(user, job) or job.project in managed


def ask_end(
    tx: "Transaction",
    causes: Mapping[int, Cause],
    *,
    by: str = SYSTEM,
    with_inner: bool = True,
    reasons: Collection[tuple[str, int, str]] = (),
) -> list[int]:
    """Store kill requests with their causes, without a permission check; return the jobs that had no request before.

    ``reasons``: events of these jobs. They are written before the request events because programs take the first event
    for the cause.
    """
    new = tx.job_requests.request_kill(causes) if causes else []
    if not new:
        return []
    tx.events.add_many([reason for reason in reasons if reason[1] in new])
    with_notices = {job.id for job in tx.jobs.select(new) if job.notify}
    for has_notice in (True, False):
        texts = [
            (EventType.FRAG_JOB_REQUEST, job_id, f"User {by} requested to frag the job {job_id}")
            for job_id in new
            if (job_id in with_notices) is has_notice
        ]
        tx.events.add_many(texts, to_check=has_notice)
    _wake_leon(tx)
    return sorted(new + (end_inner_jobs(tx, new) if with_inner else []))


def exterminate(tx: "Transaction", ids: Collection[int]) -> list[int]:
    """Request that jobs with a kill request end without waiting for their nodes; return the changed jobs."""
    given_up = tx.job_requests.move_kill(ids, KillState.LEON_EXTERMINATE, (KillState.LEON, KillState.TIMER_ARMED))
    if given_up:
        _wake_leon(tx)
    return given_up


def end_inner_jobs(tx: "Transaction", containers: Collection[int]) -> list[int]:
    """Store kill requests for the jobs inside ending containers; return the jobs that had no request before.

    Skip the jobs of advance reservations: they end with the cause of the reservation, when Leon ends its frame.
    """
    ended: list[int] = []
    outer = list(containers)
    while outer:
        owner = {job: container for container, job in tx.jobs.inner(outer)}
        frames = tx.reservations.of_frames(set(owner.values())) if owner else {}
        owner = {job: container for job, container in owner.items() if container not in frames}
        ending = {job: Cause(EndCode.CONTAINER, {"container": container}) for job, container in owner.items()}
        outer = tx.job_requests.request_kill(ending) if ending else []
        tx.events.add_many(
            [
                (EventType.FRAG_JOB_REQUEST, job, f"Container job {owner[job]} was fragged, frag inner job")
                for job in outer
            ],
            to_check=True,
        )
        ended += outer
    if ended:
        _wake_leon(tx)
    return ended


def _wake_leon(tx: "Transaction") -> None:
    for effect in (Wake(Tag.CHSTATE), Wake(Tag.QDEL)):
        if effect not in tx.outbox:
            tx.outbox.append(effect)


def deletion_notice(job: Job, event: Event) -> Notice:
    """Return the notice to the owner of a job that has a kill request."""
    return Notice(
        job.id,
        job.name or "",
        job.user,
        job.notify or "",
        job.submission_host,
        NoticeTag.INFO,
        f"Your job was asked to be deleted - {event.description}",
        job.array_id,
    )


def force_end(tx: "Transaction", user: User, ids: Sequence[int], *, least: int) -> list[ControlOutcome]:
    """Request the end of jobs that have been Finishing for more than ``least`` seconds, as an administrator."""
    jobs = {job.id: job for job in tx.jobs.select(ids)}
    changes = tx.jobs.state_changes(jobs)
    answers = []
    for job_id in ids:
        job, refusal = jobs.get(job_id), None
        since = max((change.start for change in changes.get(job_id, ())), default=tx.now)
        if not user.is_admin:
            refusal = ControlRefusal.NOT_ADMIN
        elif job is None:
            refusal = ControlRefusal.UNKNOWN_JOB
        elif job.state is not JobState.FINISHING:
            refusal = ControlRefusal.NOT_FINISHING
        elif tx.now - since <= least:
            refusal = ControlRefusal.NOT_LONG_ENOUGH
        (answer,) = _with_frames(tx, [ControlOutcome(job_id, refusal, seconds=tx.now - since)])
        if answer.refusal is None:
            text = f"[oardel] force the termination of the job {job_id}, asked by {user.author}"
            tx.events.add(EventType.FORCE_TERMINATE_FINISHING_JOB, job_id, text, to_check=True)
            tx.outbox.append(Wake(Tag.CHSTATE))
        answers.append(answer)
    forced = [jobs[answer.job_id] for answer in answers if answer.refusal is None]
    audit.record_jobs(tx, user, AuditAction.DELETE, forced, Values("Finishing", "ended by force"))
    return answers


# -- besteffort -------------------------------------------------------------------------------------------------------


def toggle_besteffort(tx: "Transaction", user: User, ids: Sequence[int]) -> list[ControlOutcome]:
    """Add the type besteffort to running jobs, or remove it, as an administrator.

    ``text`` of an outcome is Add or Remove.
    """
    jobs = {job.id: job for job in tx.jobs.select(ids)}
    types = tx.jobs.types(jobs, current=True)
    frames = frame_texts(tx, jobs) if user.is_admin else {}
    answers = []
    for job_id in ids:
        if job_id in frames:
            answers.append(ControlOutcome(job_id, ControlRefusal.FRAME, frames[job_id]))
            continue
        job, refusal, text = jobs.get(job_id), None, ""
        if not user.is_admin:
            refusal = ControlRefusal.NOT_ADMIN
        elif job is None:
            refusal = ControlRefusal.UNKNOWN_JOB
        elif job.state is not JobState.RUNNING:
            refusal = ControlRefusal.NOT_RUNNING
        elif JobTypeName.BESTEFFORT in types.get(job_id, ()):
            text = "Remove"
            tx.jobs.mark_types(job_id, JobTypeName.BESTEFFORT, Index.LOG)
            tx.events.add(EventType.DELETE_BESTEFFORT_JOB_TYPE, job_id, "[oardel] the job is besteffort no more")
        else:
            text = "Add"
            if not tx.jobs.mark_types(job_id, JobTypeName.BESTEFFORT, Index.CURRENT):
                tx.jobs.insert_types({job_id: (JobTypeName.BESTEFFORT,)})
            tx.events.add(EventType.ADD_BESTEFFORT_JOB_TYPE, job_id, "[oardel] the job is besteffort from now on")
        answers.append(ControlOutcome(job_id, refusal, text))
    if any(answer.refusal is None for answer in answers):
        tx.outbox.append(Wake(Tag.TERM))
    for text, values in (("Add", Values("", "besteffort")), ("Remove", Values("besteffort", ""))):
        toggled = [jobs[answer.job_id] for answer in answers if answer.refusal is None and answer.text == text]
        audit.record_jobs(tx, user, AuditAction.CHANGE, toggled, values)
    return answers


# -- signals ----------------------------------------------------------------------------------------------------------


class SignalRequest(NamedTuple):
    """A request to the Runner to send a signal to the command of a job."""

    event_id: int
    job_id: int
    host: str  #: where the command runs, '' if unknown
    results: tuple[EventType, EventType]  #: the types of the event that ends it: of success, of failure


def request_signals(
    tx: "Transaction", user: User, ids: Sequence[int], number: int | None
) -> list[ControlOutcome | SignalRequest]:
    """Request a signal for several jobs; return the results in the order of the ids. See ``request_signal``."""
    results = [request_signal(tx, user, job_id, number) for job_id in ids]
    accepted = [result.job_id for result in results if isinstance(result, SignalRequest)]
    action = AuditAction.CHECKPOINT if number is None else AuditAction.SIGNAL
    values = Values(new="" if number is None else f"signal {number}")
    audit.record_jobs(tx, user, action, tx.jobs.select(accepted) if user.is_admin and accepted else (), values)
    return results


def request_signal(tx: "Transaction", user: User, job_id: int, number: int | None) -> ControlOutcome | SignalRequest:
    """Request a signal for a running job, as its owner or an administrator.

    ``number`` None: the checkpoint signal of the job. The caller writes the audit log.
    """
    from oar.lib.submission.resource_request import JobTypes

    types = JobTypes(tx.jobs.types([job_id], current=True).get(job_id, ()))
    refusal = _why_not_signalled(user, tx.jobs.find(job_id), types)
    text = ""
    if refusal is ControlRefusal.FETCHED:
        from oar.lib.history.event_consequences import NOT_FOR_DESKTOPS

        text = NOT_FOR_DESKTOPS
    (answer,) = _with_frames(tx, [ControlOutcome(job_id, refusal, text)])
    if answer.refusal is not None:
        return answer
    if number is None:
        type_: str = EventType.CHECKPOINT
        results = (EventType.CHECKPOINT_SUCCESS, EventType.CHECKPOINT_ERROR)
        text = f"User {user.author} requested a checkpoint of the job {job_id}"
    else:
        type_ = signal_event(number)
        results = (EventType.SIG_SUCCESS, EventType.SIG_ERROR)
        text = f"User {user.author} requested the signal {number} for the job {job_id}"
    run = tx.job_runs.find(job_id)
    return SignalRequest(tx.events.add(type_, job_id, text), job_id, run.head_host if run else "", results)


def _why_not_signalled(user: User, job: Job | None, types: "JobTypes") -> ControlRefusal | None:
    if job is None:
        return ControlRefusal.UNKNOWN_JOB
    if not owns(user, job):
        return ControlRefusal.NOT_YOURS
    if job.state is not JobState.RUNNING:
        return ControlRefusal.NOT_RUNNING
    if JobTypeName.NOOP in types:
        return ControlRefusal.NOOP
    if JobTypeName.DESKTOP_COMPUTING in types:
        return ControlRefusal.FETCHED
    return ControlRefusal.INTERACTIVE if job.job_type is JobType.INTERACTIVE else None


def result_of(tx: "Transaction", request: SignalRequest) -> bool | None:
    """Return whether a signal was sent; return None until the Runner has written the result event."""
    for event in tx.events.of_types(request.job_id, request.results):
        if event.id > request.event_id:
            return event.type == request.results[0]
    return None


# -- hold and resume --------------------------------------------------------------------------------------------------


class HoldRules(NamedTuple):
    """The settings for hold and resume."""

    users_may_suspend: bool = False  #: USERS_ALLOWED_HOLD_RESUME
    confines: bool = True  #: a job resource manager is configured

    @classmethod
    def of(cls, config: "Config") -> Self:
        return cls(config.users_allowed_hold_resume, config.job_resource_manager_property_db_field is not None)


def hold(
    tx: "Transaction",
    user: User,
    ids: Sequence[int],
    rules: HoldRules,
    *,
    running: bool,
    managed: Collection[str] = (),
) -> list[ControlOutcome]:
    """Hold waiting jobs; with ``running`` also request the suspension of running jobs.

    The jobs are locked: a concurrent scheduling pass either sees the hold, or has started the job, and the outcome then
    rejects the request. ``text`` of a refusal: why jobs of this type are never suspended.
    """
    jobs = tx.jobs.lock_all(ids)
    types = tx.jobs.types(jobs) if running else {}
    answers = []
    for job_id in ids:
        job = jobs.get(job_id)
        refusal = (
            ControlRefusal.UNKNOWN_JOB if job is None else _why_not_held(user, job, rules, managed, running=running)
        )
        text = ""
        if refusal is None and running:
            from oar.lib.history.event_consequences import why_not_suspended
            from oar.lib.submission.resource_request import JobTypes

            text = why_not_suspended(JobTypes(types.get(job_id, ())), confines=rules.confines)
        answers.append(ControlOutcome(job_id, ControlRefusal.WRONG_STATE if text else refusal, text))
    answers = _with_frames(tx, answers)
    accepted = [jobs[answer.job_id] for answer in answers if answer.refusal is None]
    type_ = EventType.HOLD_RUNNING_JOB if running else EventType.HOLD_WAITING_JOB
    audit.record_jobs(tx, user, AuditAction.HOLD, accepted)
    mine = _note_requests(tx, type_, accepted, f"User {user.author} requested to hold the job")
    _move(tx, mine, {JobState.WAITING: JobState.HOLD, JobState.RESUMING: JobState.SUSPENDED})
    waiting = [job.id for job in mine if job.state is JobState.WAITING]
    if any(job.state is JobState.RESUMING for job in mine) or tx.plan.has_place(waiting):
        tx.outbox.append(Wake(Tag.TERM))  # other jobs may use their planned resources
    return answers


def _note_requests(tx: "Transaction", type_: EventType, jobs: Sequence[Job], text: str) -> list[Job]:
    """Write the events of requests; return the jobs to move in this transaction. NodeChangeState moves the others.

    It also makes the moves between Suspended and Resuming if the owner is notified: only the server sends notices.
    """
    left = [
        job
        for job in jobs
        if job.state in SUSPENDABLE or (job.notify and job.state in (JobState.SUSPENDED, JobState.RESUMING))
    ]
    mine = [job for job in jobs if job not in left]
    tx.events.add_many([(type_, job.id, f"{text} {job.id}") for job in mine], to_check=False)
    tx.events.add_many([(type_, job.id, f"{text} {job.id}") for job in left], to_check=True)
    if left:
        tx.outbox.append(Wake(Tag.CHSTATE))
    return mine


def _move(tx: "Transaction", jobs: Sequence[Job], targets: Mapping[JobState, JobState]) -> None:
    """Move each locked job in one of the source states to its target state."""
    from oar.lib.jobs import lifecycle

    for source, target in targets.items():
        ids = [job.id for job in jobs if job.state is source]
        if ids:
            lifecycle.move_all(tx, ids, target, (source,))


def _why_not_held(
    user: User, job: Job, rules: HoldRules, managed: Collection[str], *, running: bool
) -> ControlRefusal | None:
    if running and not (user.is_admin or rules.users_may_suspend):
        return ControlRefusal.ADMIN_HOLD
    if not controls(user, job, managed):
        return ControlRefusal.NOT_YOURS
    if job.state is JobState.WAITING and job.reservation is not Reservation.SCHEDULED:
        return None
    if job.state is JobState.RESUMING or (running and job.state in SUSPENDABLE):
        return None
    if job.state in FINAL:
        return ControlRefusal.HAS_ENDED
    return ControlRefusal.HAS_BEGUN if job.state in SUSPENDABLE else ControlRefusal.WRONG_STATE


def resume(
    tx: "Transaction", user: User, ids: Sequence[int], rules: HoldRules, *, managed: Collection[str] = ()
) -> list[ControlOutcome]:
    """Release held jobs, and request that suspended jobs resume as soon as their resources are free."""
    jobs = tx.jobs.lock_all(ids)
    outcomes = [ControlOutcome(job_id, _why_not_resumed(user, jobs.get(job_id), rules, managed)) for job_id in ids]
    answers = _with_frames(tx, outcomes)
    accepted = [jobs[answer.job_id] for answer in answers if answer.refusal is None]
    audit.record_jobs(tx, user, AuditAction.RESUME, accepted)
    mine = _note_requests(tx, EventType.RESUME_JOB, accepted, f"User {user.author} requested to resume the job")
    _move(tx, mine, {JobState.HOLD: JobState.WAITING, JobState.SUSPENDED: JobState.RESUMING})
    if mine:
        tx.outbox.append(Wake(Tag.QRESUME))
    return answers


def _why_not_resumed(user: User, job: Job | None, rules: HoldRules, managed: Collection[str]) -> ControlRefusal | None:
    if job is None:
        return ControlRefusal.UNKNOWN_JOB
    if not controls(user, job, managed):
        return ControlRefusal.NOT_YOURS
    if job.state is JobState.HOLD:
        return None
    if job.state is not JobState.SUSPENDED:
        return ControlRefusal.WRONG_STATE
    return None if user.is_admin or rules.users_may_suspend else ControlRefusal.ADMIN_RESUME


# -- arrays -----------------------------------------------------------------------------------------------------------


def jobs_of_arrays(tx: "Transaction", arrays: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the ids of the jobs of arrays, and the given ids that are not array ids."""
    jobs = tx.jobs.of_arrays(arrays)
    array_ids = {job.array_id for job in jobs}
    return [job.id for job in jobs], [array for array in arrays if array not in array_ids]


# -- texts ------------------------------------------------------------------------------------------------------------

_SIGNAL = {
    ControlRefusal.NOT_YOURS: "You are not the right user.",
    ControlRefusal.NOT_RUNNING: "This job is not running.",
    ControlRefusal.ALREADY_KILLED: "This job was already killed.",
    ControlRefusal.INTERACTIVE: "The job is Interactive.",
    ControlRefusal.NOOP: "The job is of the noop type.",
    ControlRefusal.UNKNOWN_JOB: "This job does not exist.",
}
_HOLD = {
    ControlRefusal.UNKNOWN_JOB: "this job does not exist.",
    ControlRefusal.NOT_YOURS: "you are not the right user.",
    ControlRefusal.WRONG_STATE: "the job is not in the right state (try '-r' option).",
    ControlRefusal.HAS_BEGUN: "the job is not in the right state: it has begun (try '-r' option).",
    ControlRefusal.HAS_ENDED: "it has ended.",
    ControlRefusal.ADMIN_HOLD: "only oar or root users can use '-r' option.",
}
_RESUME = {
    ControlRefusal.UNKNOWN_JOB: "this job does not exist.",
    ControlRefusal.NOT_YOURS: "you are not the right user.",
    ControlRefusal.WRONG_STATE: "the job is not in the Hold or Suspended state.",
    ControlRefusal.ADMIN_RESUME: "only oar or root user can resume Suspended jobs.",
}


def why_not_ended(outcome: ControlOutcome, verb: str = "frag") -> str:
    """Return why a job is not deleted or signalled; ``verb`` names the requested operation.

    >>> why_not_ended(ControlOutcome(42, ControlRefusal.ALREADY_KILLED))
    'Cannot frag 42 ; This job was already killed.'
    """
    return f"Cannot {verb} {outcome.job_id} ; {_reason(outcome, _SIGNAL)}"


def why_not_held(outcome: ControlOutcome) -> str:
    return f"/!\\ Cannot hold {outcome.job_id}: {_reason(outcome, _HOLD)}"


def why_not_resumed(outcome: ControlOutcome) -> str:
    return f"/!\\ Cannot resume {outcome.job_id}: {_reason(outcome, _RESUME)}"


def why_not_forced(outcome: ControlOutcome, least: int) -> str:
    """Return why the end of a job is not forced; ``least``: required time in state Finishing, in seconds."""
    is_early = outcome.refusal is ControlRefusal.NOT_LONG_ENOUGH
    seconds = f" for more than {least}s ({outcome.seconds}s)" if is_early else ""
    return _why_not_administered(outcome, "force the end", f"Finishing state{seconds}")


def why_not_toggled(outcome: ControlOutcome) -> str:
    """Return why the type besteffort of a job is not changed."""
    return _why_not_administered(outcome, "toggle the type", "Running state")


def _why_not_administered(outcome: ControlOutcome, act: str, required_state: str) -> str:
    match outcome.refusal:
        case ControlRefusal.UNKNOWN_JOB:
            return f"The job {outcome.job_id} does not exist."
        case ControlRefusal.FRAME:
            return f"Cannot {act} of {outcome.job_id} ; {outcome.text}"
        case ControlRefusal.NOT_ADMIN:
            return "only administrators may do this."
        case _:
            return f"The job {outcome.job_id} is not in the {required_state}."


def _reason(outcome: ControlOutcome, reasons: Mapping[ControlRefusal, str]) -> str:
    return outcome.text or reasons.get(outcome.refusal or ControlRefusal.WRONG_STATE, "unknown reason.")
