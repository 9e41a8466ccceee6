"""What an event or an exit code of oarexec does to its job and to its nodes (server.md 5.3, 6.3, 6.4).

Tables and functions of plain values: nothing is read or written here.  NodeChangeState gathers the ``JobFacts``, asks
``judge`` and does what the ``Verdict`` says; the Runner asks ``events_of`` how to report an end.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from oar.lib.messages import JobAction, Tag
from oar.lib.model import Event, Job
from oar.lib.request import JobTypes
from oar.lib.states import (
    JOB_MOVES,
    OLD_EVENT_NAMES,
    EventType,
    ExecCode,
    JobState,
    JobType,
    Reservation,
)

#: Exit status by which an idempotent job asks to be run again, and how long it must have run to be heard, so that a
#: job that fails at once does not run for ever.
RERUN_STATUS = 99
RERUN_LEAST_SECONDS = 60

#: How the description of LAUNCHING_OAREXEC_TIMEOUT says that the command was proved not to have started.
NOT_STARTED = "not started"


class Suspects(Enum):
    """Whose fault an event is."""

    NOBODY = auto()
    HOSTS = auto()  #: the hosts that the event names
    HEAD = auto()  #: the hosts that the event names, else the first host of the job
    ALL = auto()  #: all hosts of the job
    ALL_UNCONFINED = auto()  #: all of them if no job resource manager cleans them, else nobody


class Again(Enum):
    """Whether the job is submitted again, if it may be."""

    NEVER = auto()
    NOT_ITS_FAULT = auto()
    IF_IDEMPOTENT = auto()  #: the command may have been started
    IF_NOT_STARTED = auto()  #: NOT_ITS_FAULT if the event says so, else IF_IDEMPOTENT


class Incident(NamedTuple):
    """What follows from an event."""

    state: JobState | None = None  #: what the job becomes, if its state allows it
    suspects: Suspects = Suspects.NOBODY
    by_finaud: bool = False  #: the suspicion may be taken back by Finaud
    again: Again = Again.NEVER
    stops_queues: bool = False
    spares_reservations: bool = False  #: a reservation goes on with its other hosts


_ERROR = JobState.ERROR
_SCRIPT_ERROR = Incident(_ERROR, stops_queues=True)
_PROLOGUE_ERROR = Incident(_ERROR, stops_queues=True, again=Again.NOT_ITS_FAULT)
_HEAD_ERROR = Incident(_ERROR, Suspects.HEAD, again=Again.NOT_ITS_FAULT)

#: Events that do something to their job or to nodes.  Of the others, those on holds and deletions have a rule of
#: their own below; the rest is only a trace.
INCIDENTS: Mapping[EventType, Incident] = {
    EventType.SWITCH_INTO_TERMINATE_STATE: Incident(JobState.TERMINATED),
    EventType.SWITCH_INTO_ERROR_STATE: Incident(_ERROR),
    EventType.FORCE_TERMINATE_FINISHING_JOB: Incident(_ERROR, Suspects.ALL),
    EventType.PING_CHECKER_NODE_SUSPECTED: Incident(
        _ERROR, Suspects.HOSTS, by_finaud=True, again=Again.NOT_ITS_FAULT, spares_reservations=True
    ),
    EventType.PING_CHECKER_NODE_SUSPECTED_END_JOB: Incident(None, Suspects.HOSTS, by_finaud=True),
    EventType.CPUSET_ERROR: Incident(_ERROR, Suspects.HOSTS, again=Again.NOT_ITS_FAULT, spares_reservations=True),
    EventType.CPUSET_CLEAN_ERROR: Incident(JobState.TERMINATED, Suspects.HOSTS),
    EventType.CPUSET_MANAGER_FILE: _PROLOGUE_ERROR,
    EventType.PROLOGUE_ERROR: _HEAD_ERROR,
    EventType.EPILOGUE_ERROR: Incident(JobState.TERMINATED, Suspects.HEAD),
    EventType.CANNOT_CREATE_TMP_DIRECTORY: _HEAD_ERROR,
    EventType.CAN_NOT_WRITE_NODE_FILE: _HEAD_ERROR,
    EventType.CAN_NOT_WRITE_PID_FILE: _HEAD_ERROR,
    EventType.USER_SHELL: _HEAD_ERROR,
    # The Runner names the host, unless the node has proved that it did not reboot and answers.
    EventType.EXIT_VALUE_OAREXEC: Incident(_ERROR, Suspects.HOSTS, again=Again.IF_IDEMPOTENT),
    # Hosts whose clean-up failed come as CPUSET_CLEAN_ERROR.
    EventType.EXTERMINATE_JOB: Incident(_ERROR, Suspects.ALL_UNCONFINED),
    EventType.SSH_TRANSFER_TIMEOUT: _HEAD_ERROR,
    # The data, not the node, is bad.
    EventType.BAD_HASHTABLE_DUMP: Incident(_ERROR),
    EventType.LAUNCHING_OAREXEC_TIMEOUT: Incident(_ERROR, Suspects.HEAD, again=Again.IF_NOT_STARTED),
    EventType.RESERVATION_NO_NODE: Incident(_ERROR),
    # The job itself is killed by whoever writes the event.
    EventType.SUSPEND_ERROR: Incident(None, Suspects.HOSTS),
    EventType.RESUME_ERROR: Incident(None, Suspects.HOSTS),
    # The command was never started, and the queues are stopped: nothing loops.
    EventType.SERVER_PROLOGUE_TIMEOUT: _PROLOGUE_ERROR,
    EventType.SERVER_PROLOGUE_EXIT_CODE_ERROR: _PROLOGUE_ERROR,
    EventType.SERVER_PROLOGUE_ERROR: _PROLOGUE_ERROR,
    EventType.SERVER_EPILOGUE_TIMEOUT: _SCRIPT_ERROR,
    EventType.SERVER_EPILOGUE_EXIT_CODE_ERROR: _SCRIPT_ERROR,
    EventType.SERVER_EPILOGUE_ERROR: _SCRIPT_ERROR,
}

#: Requests of oarhold and oarresume.
_HOLDS = frozenset({EventType.HOLD_WAITING_JOB, EventType.HOLD_RUNNING_JOB})
_STEERING = _HOLDS | {EventType.RESUME_JOB}

_ENDED = EventType.SWITCH_INTO_TERMINATE_STATE
_FAILED = EventType.SWITCH_INTO_ERROR_STATE
_EPILOGUE = EventType.EPILOGUE_ERROR

#: Exit code of oarexec -> events that the end of the job writes, in this order.
EXEC_EVENTS: Mapping[int, tuple[EventType, ...]] = {
    ExecCode.OK: (_ENDED,),
    ExecCode.PROLOGUE: (EventType.PROLOGUE_ERROR,),
    ExecCode.EPILOGUE: (_EPILOGUE,),
    ExecCode.KILLED: (_FAILED,),
    ExecCode.KILLED_EPILOGUE: (_FAILED, _EPILOGUE),
    ExecCode.NODE_FILE: (EventType.CAN_NOT_WRITE_NODE_FILE,),
    ExecCode.PID_FILE: (EventType.CAN_NOT_WRITE_PID_FILE,),
    ExecCode.USER_SHELL: (EventType.USER_SHELL,),
    ExecCode.RUNTIME_DIRECTORY: (EventType.CANNOT_CREATE_TMP_DIRECTORY,),
    ExecCode.DIRECTORY: (_FAILED, EventType.WORKING_DIRECTORY),
    ExecCode.DIRECTORY_EPILOGUE: (_FAILED, EventType.WORKING_DIRECTORY, _EPILOGUE),
    ExecCode.OUTPUT: (_FAILED, EventType.OUTPUT_FILES),
    ExecCode.OUTPUT_EPILOGUE: (_FAILED, EventType.OUTPUT_FILES, _EPILOGUE),
    ExecCode.TRANSFER: (EventType.SSH_TRANSFER_TIMEOUT,),
    ExecCode.DATA: (EventType.BAD_HASHTABLE_DUMP,),
    ExecCode.NO_INTERPRETER: (EventType.EXIT_VALUE_OAREXEC,),
    ExecCode.SESSION_EPILOGUE: (_ENDED, _EPILOGUE),
    ExecCode.SESSION: (_ENDED,),
    ExecCode.CHECKPOINTED: (_ENDED,),
    ExecCode.CHECKPOINTED_EPILOGUE: (_ENDED, _EPILOGUE),
    ExecCode.SIGNALLED: (_ENDED,),
    ExecCode.NOT_CONFIRMED: (EventType.LAUNCHING_OAREXEC_TIMEOUT,),
    ExecCode.DIED: (EventType.OAREXEC_DIED, EventType.EXIT_VALUE_OAREXEC),
}


def events_of(code: int) -> tuple[EventType, ...]:
    """Return the events that the end of a job writes for an exit code of oarexec."""
    return EXEC_EVENTS.get(code, (EventType.EXIT_VALUE_OAREXEC,))


def needs_check(type_: str) -> bool:
    """Whether an event of this type is to be acted on, and so is written with ``to_check='YES'``."""
    known = event_type(type_)
    return known in INCIDENTS or known in _STEERING or known is EventType.FRAG_JOB_REQUEST


def event_type(text: str) -> EventType | None:
    """Return the type of an event, older spellings included; None if nobody knows it."""
    return OLD_EVENT_NAMES.get(text) or _TYPES.get(text)


_TYPES: Mapping[str, EventType] = {type_.value: type_ for type_ in EventType}


class JobFacts(NamedTuple):
    """What is known of a job when one of its events is judged."""

    job: Job
    types: JobTypes
    hosts: tuple[str, ...] = ()  #: of its compute resources, sorted
    kill_asked: bool = False  #: somebody wants it to end
    kill_sent: bool = False  #: it has an event SEND_KILL_JOB
    besteffort_kill: bool = False  #: it has an event BESTEFFORT_KILL
    was_resubmitted: bool = False
    chain: int = 0  #: automatic resubmissions that led to it
    oarexec_code: int | None = None

    @property
    def runs_elsewhere(self) -> bool:
        """Whether its command runs on a frontend: the nodes are neither used nor to blame."""
        return "deploy" in self.types or "cosystem" in self.types


class Site(NamedTuple):
    """What of the configuration matters to a judgement."""

    confines: bool = True  #: a job resource manager is configured
    max_resubmissions: int = 3


class Verdict(NamedTuple):
    """What is to be done about an event."""

    state: JobState | None = None
    suspects: tuple[str, ...] = ()
    by_finaud: bool = False
    resubmit: bool = False
    not_resubmitted: str = ""  #: why the job is not submitted again although the event would allow it
    stops_queues: bool = False
    notice: bool = False  #: tell the user that the deletion of his job was asked
    held: bool = False  #: tell a waiting oarsub
    action: JobAction | None = None  #: ask it of the Runner
    refused: str = ""  #: why a job is not suspended
    tag: Tag | None = None
    pending: bool = False  #: the event is to be looked at again


def judge(event: Event, facts: JobFacts | None, site: Site) -> Verdict:
    """Decide what follows from an event.  ``facts``: None when the event is not a job's."""
    type_ = event_type(event.type)
    if type_ is EventType.FRAG_JOB_REQUEST:
        return Verdict(notice=facts is not None)
    if type_ in _STEERING:
        return _steer(type_, facts, site) if facts else Verdict()
    incident = INCIDENTS.get(type_) if type_ else None
    if incident is None:
        return Verdict()
    state = _state(incident, facts) if facts else None
    again, reason = _again(event, incident, facts, site) if facts and state else (False, "")
    return Verdict(
        state=state,
        suspects=_suspects(event, incident, facts, site),
        by_finaud=incident.by_finaud,
        resubmit=again,
        not_resubmitted=reason,
        stops_queues=incident.stops_queues,
    )


def _state(incident: Incident, facts: JobFacts) -> JobState | None:
    job = facts.job
    if incident.state not in JOB_MOVES[job.state]:
        return None
    if incident.spares_reservations and job.reservation is not Reservation.NONE:
        return None
    return incident.state


def _suspects(event: Event, incident: Incident, facts: JobFacts | None, site: Site) -> tuple[str, ...]:
    if incident.suspects in (Suspects.NOBODY, Suspects.HOSTS) or facts is None:
        return event.hosts if incident.suspects is not Suspects.NOBODY else ()
    if facts.runs_elsewhere or "noop" in facts.types:
        return ()
    if incident.suspects is Suspects.HEAD:
        return event.hosts or facts.hosts[:1]
    if incident.suspects is Suspects.ALL_UNCONFINED and site.confines:
        return ()
    return facts.hosts


def spares_reservations(type_: EventType) -> bool:
    """Whether an event alone leaves a reservation going, with its other hosts."""
    incident = INCIDENTS.get(type_)
    return incident is not None and incident.spares_reservations


def blames_job_hosts(type_: EventType | None) -> bool:
    """Whether the nodes of the job may be suspected for an event: the judgement needs to know them."""
    incident = INCIDENTS.get(type_) if type_ else None
    return incident is not None and incident.suspects not in (Suspects.NOBODY, Suspects.HOSTS)


# -- submitted again --------------------------------------------------------------------------------------------------


def may_be_rerun(type_: EventType | None, job: Job) -> bool:
    """Whether an end of this job may lead to a new submission: what else is to be known is then worth asking."""
    if type_ in (EventType.SWITCH_INTO_TERMINATE_STATE, EventType.SWITCH_INTO_ERROR_STATE, EventType.EXTERMINATE_JOB):
        return asks_for_rerun(job) or type_ is not EventType.SWITCH_INTO_TERMINATE_STATE
    incident = INCIDENTS.get(type_) if type_ else None
    return incident is not None and incident.again is not Again.NEVER


def asks_for_rerun(job: Job) -> bool:
    """Whether a job ended with the status by which idempotent jobs ask to be run again."""
    return job.exit_code is not None and job.exit_code >> 8 == RERUN_STATUS


def _again(event: Event, incident: Incident, facts: JobFacts, site: Site) -> tuple[bool, str]:
    """Return whether the job is submitted again; if it only almost is, why not."""
    type_ = event_type(event.type)
    ended = type_ in (EventType.SWITCH_INTO_TERMINATE_STATE, EventType.SWITCH_INTO_ERROR_STATE)
    lost = type_ in (EventType.SWITCH_INTO_ERROR_STATE, EventType.EXTERMINATE_JOB)
    if (ended and _wants_rerun(facts)) or (lost and lost_its_place(facts)):
        reason = _ran_often_enough(facts)
        return not reason, reason
    rule = incident.again
    if type_ is EventType.EXIT_VALUE_OAREXEC and facts.oarexec_code == ExecCode.NO_INTERPRETER:
        rule = Again.NOT_ITS_FAULT
    if rule is Again.IF_NOT_STARTED:
        rule = Again.NOT_ITS_FAULT if NOT_STARTED in event.description else Again.IF_IDEMPOTENT
    if rule is Again.NEVER or (rule is Again.IF_IDEMPOTENT and "idempotent" not in facts.types):
        return False, ""
    reason = why_not_resubmitted(facts, site.max_resubmissions)
    return not reason, reason


def _ran_often_enough(facts: JobFacts) -> str:
    """Return why an idempotent job is not run once more, '' if it is: its owner may have said how often."""
    most = facts.types.value("idempotent")
    if most is None or facts.chain < int(most):
        return ""
    return f"it was run again {facts.chain} times, which is the most that was asked for"


def _wants_rerun(facts: JobFacts) -> bool:
    """Whether this is an idempotent job that ended with 99."""
    job = facts.job
    return (
        asks_for_rerun(job)
        and "idempotent" in facts.types
        and _may_be_copied(facts)
        and not facts.kill_sent
        and job.stop_time - job.start_time > RERUN_LEAST_SECONDS
    )


def lost_its_place(facts: JobFacts) -> bool:
    """Whether this is an idempotent besteffort job that was killed since others wanted its resources."""
    return (
        facts.besteffort_kill
        and "besteffort" in facts.types
        and "idempotent" in facts.types
        and _may_be_copied(facts)
        and facts.oarexec_code in (ExecCode.KILLED, ExecCode.KILLED_EPILOGUE, None)
    )


def _may_be_copied(facts: JobFacts) -> bool:
    job = facts.job
    return job.job_type is JobType.PASSIVE and job.reservation is Reservation.NONE and not facts.was_resubmitted


def why_not_resubmitted(facts: JobFacts, most: int) -> str:
    """Return why a job that ended without its fault is not submitted again; '' if it is.

    The limit stops the loop "job breaks node, next node gets job", which would empty a cluster.
    """
    job = facts.job
    reasons = (
        (job.job_type is not JobType.PASSIVE, "it is interactive"),
        (job.reservation is not Reservation.NONE, "it is a reservation"),
        (facts.runs_elsewhere, "its command runs on a frontend"),
        (facts.was_resubmitted, "it was resubmitted before"),
        (facts.kill_asked, "its deletion was asked"),
        (facts.chain >= most, f"it was resubmitted {facts.chain} times in a row"),
    )
    return next((reason for applies, reason in reasons if applies), "")


# -- hold and resume --------------------------------------------------------------------------------------------------


def _steer(type_: EventType | None, facts: JobFacts, site: Site) -> Verdict:
    if type_ is EventType.RESUME_JOB:
        return _resume(facts.job)
    return _hold(facts, site, running=type_ is EventType.HOLD_RUNNING_JOB)


def _resume(job: Job) -> Verdict:
    if job.state is JobState.HOLD:
        return Verdict(state=JobState.WAITING, tag=Tag.QRESUME)
    if job.state is JobState.SUSPENDED:
        return Verdict(state=JobState.RESUMING, tag=Tag.QRESUME)
    return Verdict()


def _hold(facts: JobFacts, site: Site, *, running: bool) -> Verdict:
    job = facts.job
    match job.state:
        case JobState.WAITING if job.reservation is not Reservation.SCHEDULED:
            return Verdict(state=JobState.HOLD, held=job.job_type is JobType.INTERACTIVE)
        case JobState.RESUMING:
            return Verdict(state=JobState.SUSPENDED, tag=Tag.TERM)
        case JobState.TO_LAUNCH | JobState.LAUNCHING if running:
            return Verdict(pending=True)
        case JobState.RUNNING if running:
            return _suspend(facts, site)
    return Verdict()


def _suspend(facts: JobFacts, site: Site) -> Verdict:
    if "noop" in facts.types:
        return Verdict(state=JobState.SUSPENDED, tag=Tag.TERM)
    refused = why_not_suspended(facts.types, confines=site.confines)
    if refused:
        return Verdict(refused=refused)
    return Verdict(action=JobAction.SUSPEND, pending=True)


def why_not_suspended(types: JobTypes, *, confines: bool) -> str:
    """Return why a running job cannot be suspended, '' if it can."""
    if not confines:
        return "CPUSET tag is not configured in the oar.conf."
    for name in ("cosystem", "deploy"):
        if name in types:
            return f"This job is of the {name} type. We cannot suspend this kind of jobs."
    return ""


def after(facts: JobFacts, state: JobState) -> JobFacts:
    """Return the facts once the job has moved to ``state``: its next event finds it so."""
    return facts._replace(job=facts.job._replace(state=state))
