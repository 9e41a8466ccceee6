"""Consequences of events: the effect of an event, or of an exit code of oarexec, on its job and its nodes.

This module contains tables and pure functions. NodeChangeState collects the ``JobFacts``, calls ``judge`` and executes
the ``Verdict``; the Runner calls ``events_of`` for the events of a job end.
See docs/design/events.rst, "Consequences".
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from oar.lib.bus.messages import JobAction, Tag
from oar.lib.history.event_types import OLD_EVENT_NAMES, EventType
from oar.lib.history.records import Event
from oar.lib.jobs.ends import ExecCode
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JOB_MOVES, JobState, JobType, JobTypeName, Reservation
from oar.lib.nodes.states import NodeCheck
from oar.lib.submission.resource_request import JobTypes

#: Exit status by which an idempotent job asks for another run, and the shortest run that counts, in seconds, so that a
#: job that fails at once is not run for ever.
RERUN_STATUS = 99
RERUN_LEAST_SECONDS = 60

#: In descriptions of LAUNCHING_OAREXEC_TIMEOUT and NODE_SHUTDOWN: it is proved that the command has not been started.
NOT_STARTED = "not started"
#: What is said of requests that would need a connection to the computer of a job.
NOT_FOR_DESKTOPS = "not available for desktop_computing jobs."


class Suspects(Enum):
    """The hosts that an event suspects."""

    NOBODY = auto()
    HOSTS = auto()  #: the hosts that the event names
    HEAD = auto()  #: the hosts that the event names, else the first host of the job
    ALL = auto()  #: all hosts of the job
    ALL_UNCONFINED = auto()  #: all hosts of the job if no job resource manager cleans them, else none


class ResubmitRule(Enum):
    """When the job of an event is resubmitted automatically."""

    NEVER = auto()
    ALWAYS = auto()  #: the failure is not the job's, and its command has not been started
    ONCE = auto()  #: as ALWAYS, unless the job was resubmitted before: another such node would fail like this one
    IF_IDEMPOTENT = auto()  #: the command may have been started
    IF_NOT_STARTED = auto()  #: ALWAYS if the event proves that the command has not been started, else IF_IDEMPOTENT


class Consequence(NamedTuple):
    """The consequences of an event type."""

    state: JobState | None = None  #: the next state of the job, if its state allows it
    suspects: Suspects = Suspects.NOBODY
    by_finaud: bool = False  #: Finaud may make the hosts Alive again
    check: NodeCheck | None = None  #: Finaud may, when this check succeeds on them
    returns: bool = False  #: the hosts answer: they become Alive again as soon as they are swept
    resubmit: ResubmitRule = ResubmitRule.NEVER
    spares_reservations: bool = False  #: a reservation goes on with its other hosts
    told_to_administrators: bool = False  #: they have to correct something: they get a mail with the description


_NO_CONSEQUENCE = Consequence()
_ERROR = JobState.ERROR
_SCRIPT_ERROR = Consequence(_ERROR)
#: The command was never started.  Launches are held meanwhile (``launch_holds``), so that nothing loops.
_NOT_LAUNCHED = Consequence(_ERROR, resubmit=ResubmitRule.ALWAYS)
_HEAD_ERROR = Consequence(_ERROR, Suspects.HEAD, resubmit=ResubmitRule.ALWAYS)
_DISK_ERROR = _HEAD_ERROR._replace(check=NodeCheck.DISK)

#: Events with consequences for their job or for nodes.  Events of holds and deletions have rules below; all others are
#: only a record.
CONSEQUENCES: Mapping[EventType, Consequence] = {
    EventType.SWITCH_INTO_TERMINATE_STATE: Consequence(JobState.TERMINATED),
    EventType.SWITCH_INTO_ERROR_STATE: Consequence(_ERROR),
    EventType.FORCE_TERMINATE_FINISHING_JOB: Consequence(_ERROR, Suspects.ALL, check=NodeCheck.CGROUP),
    EventType.PING_CHECKER_NODE_SUSPECTED: Consequence(
        _ERROR, Suspects.HOSTS, by_finaud=True, resubmit=ResubmitRule.ALWAYS, spares_reservations=True
    ),
    EventType.PING_CHECKER_NODE_SUSPECTED_END_JOB: Consequence(None, Suspects.HOSTS, by_finaud=True),
    EventType.CPUSET_ERROR: Consequence(
        _ERROR, Suspects.HOSTS, check=NodeCheck.CGROUP, resubmit=ResubmitRule.ALWAYS, spares_reservations=True
    ),
    EventType.CPUSET_PROPERTY_ERROR: Consequence(
        _ERROR, Suspects.HOSTS, resubmit=ResubmitRule.ONCE, spares_reservations=True, told_to_administrators=True
    ),
    EventType.CPUSET_CLEAN_ERROR: Consequence(JobState.TERMINATED, Suspects.HOSTS, check=NodeCheck.CGROUP),
    EventType.PROLOGUE_ERROR: _HEAD_ERROR,
    EventType.EPILOGUE_ERROR: Consequence(JobState.TERMINATED, Suspects.HEAD),
    EventType.CANNOT_CREATE_TMP_DIRECTORY: _DISK_ERROR,
    EventType.CAN_NOT_WRITE_NODE_FILE: _DISK_ERROR,
    EventType.CAN_NOT_WRITE_PID_FILE: _DISK_ERROR,
    # Nodes check these faults before a node is suspected (``launch_holds.judge_check``).
    EventType.USER_SHELL: _NOT_LAUNCHED,
    EventType.HOME_MISSING: _NOT_LAUNCHED,
    # The Runner names no host if oarexec died on a host that answers and was not rebooted.
    EventType.EXIT_VALUE_OAREXEC: Consequence(_ERROR, Suspects.HOSTS, resubmit=ResubmitRule.IF_IDEMPOTENT),
    EventType.NODE_LOST: Consequence(_ERROR, Suspects.HOSTS, by_finaud=True, resubmit=ResubmitRule.IF_IDEMPOTENT),
    EventType.NODE_REBOOTED: Consequence(
        _ERROR, Suspects.HOSTS, by_finaud=True, returns=True, resubmit=ResubmitRule.IF_IDEMPOTENT
    ),
    # The Runner names no host if the host was rebooted and cleaned.
    EventType.NODE_SHUTDOWN: Consequence(_ERROR, Suspects.HOSTS, by_finaud=True, resubmit=ResubmitRule.IF_NOT_STARTED),
    # Hosts whose clean-up failed are reported as CPUSET_CLEAN_ERROR.
    EventType.EXTERMINATE_JOB: Consequence(_ERROR, Suspects.ALL_UNCONFINED),
    EventType.SSH_TRANSFER_TIMEOUT: _HEAD_ERROR._replace(check=NodeCheck.REACH),
    # The error is in the data, not on the node.
    EventType.BAD_HASHTABLE_DUMP: Consequence(_ERROR),
    EventType.LAUNCHING_OAREXEC_TIMEOUT: Consequence(
        _ERROR, Suspects.HEAD, check=NodeCheck.REACH, resubmit=ResubmitRule.IF_NOT_STARTED
    ),
    EventType.RESERVATION_NO_NODE: Consequence(_ERROR),
    # The code that writes the event also requests the end of the job.
    EventType.SUSPEND_ERROR: Consequence(None, Suspects.HOSTS),
    EventType.RESUME_ERROR: Consequence(None, Suspects.HOSTS),
    EventType.SERVER_PROLOGUE_TIMEOUT: _NOT_LAUNCHED,
    EventType.SERVER_PROLOGUE_EXIT_CODE_ERROR: _NOT_LAUNCHED,
    EventType.SERVER_PROLOGUE_ERROR: _NOT_LAUNCHED,
    EventType.SERVER_EPILOGUE_TIMEOUT: _SCRIPT_ERROR,
    EventType.SERVER_EPILOGUE_EXIT_CODE_ERROR: _SCRIPT_ERROR,
    EventType.SERVER_EPILOGUE_ERROR: _SCRIPT_ERROR,
}

#: Requests of oarhold and oarresume.  They carry out themselves what needs no node; an event of such a request that is
#: still to be treated comes from a frontend with an older version.
_HOLDS = frozenset({EventType.HOLD_WAITING_JOB, EventType.HOLD_RUNNING_JOB})
_HOLDS_AND_RESUMES = _HOLDS | {EventType.RESUME_JOB}

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
    ExecCode.SHUTDOWN: (EventType.NODE_SHUTDOWN,),
    ExecCode.STAGING: (_FAILED,),
    ExecCode.NOT_CONFIRMED: (EventType.LAUNCHING_OAREXEC_TIMEOUT,),
    ExecCode.DIED: (EventType.OAREXEC_DIED, EventType.EXIT_VALUE_OAREXEC),
}

#: Exit codes of oarexec that may mean that the home directory of the user is missing: then it is no fault of the job.
NO_HOME = (ExecCode.DIRECTORY, ExecCode.DIRECTORY_EPILOGUE, ExecCode.OUTPUT, ExecCode.OUTPUT_EPILOGUE)


def events_of(code: int) -> tuple[EventType, ...]:
    """Return the events that the end of a job writes for an exit code of oarexec."""
    return EXEC_EVENTS.get(code, (EventType.EXIT_VALUE_OAREXEC,))


def events_without_home(code: int) -> tuple[EventType, ...]:
    """Return the events of an end that a missing home directory caused."""
    replaced = (_FAILED, EventType.WORKING_DIRECTORY, EventType.OUTPUT_FILES)
    return (EventType.HOME_MISSING, *(event for event in events_of(code) if event not in replaced))


def event_type(text: str) -> EventType | None:
    """Return the type of an event, also for an older spelling; return None if it is unknown."""
    return OLD_EVENT_NAMES.get(text) or _TYPES.get(text)


_TYPES: Mapping[str, EventType] = {type_.value: type_ for type_ in EventType}


class JobFacts(NamedTuple):
    """The facts about a job that ``judge`` needs."""

    job: Job
    types: JobTypes
    hosts: tuple[str, ...] = ()  #: of its compute resources, sorted
    has_kill_request: bool = False
    kill_sent: bool = False  #: it has an event SEND_KILL_JOB
    besteffort_kill: bool = False  #: it has an event BESTEFFORT_KILL
    was_resubmitted: bool = False
    chain: int = 0  #: automatic resubmissions that led to it
    oarexec_code: int | None = None
    unstable_hosts: frozenset[str] = frozenset()  #: that were rebooted under too many jobs lately
    relapsed_hosts: frozenset[str] = frozenset()  #: whose suspicion was ended by too many checks lately
    is_common: bool = False  #: what failed fails on several nodes, or for several users

    @property
    def runs_elsewhere(self) -> bool:
        """Whether the command runs on a frontend, so that the nodes cannot be faulty."""
        return JobTypeName.DEPLOY in self.types or JobTypeName.COSYSTEM in self.types

    @property
    def is_fetched(self) -> bool:
        """Whether an agent has fetched the job: its computer becomes available again when the agent calls."""
        return JobTypeName.DESKTOP_COMPUTING in self.types


class ConsequenceSettings(NamedTuple):
    """The configuration that ``judge`` needs."""

    confines: bool = True  #: a job resource manager is configured
    has_own_manager: bool = False  #: it is a program of the site
    max_resubmissions: int = 3
    heals: bool = True  #: suspected nodes that answer again may become Alive
    has_standby: bool = False  #: another server may reach a node that this one does not reach


class Verdict(NamedTuple):
    """The actions that an event requires."""

    state: JobState | None = None
    suspects: tuple[str, ...] = ()
    by_finaud: bool = False
    returning: tuple[str, ...] = ()  #: suspects that are asked to be Alive again
    unstable: tuple[str, ...] = ()  #: suspects that are not, since they were rebooted too often
    check: NodeCheck | None = None  #: the check that makes the suspects Alive again
    resubmit: bool = False
    not_resubmitted: str = ""  #: why the job is not resubmitted although the event allows it
    mail: str = ""  #: to the administrators
    notice: bool = False  #: tell the user that his job has a kill request
    action: JobAction | None = None  #: for the Runner
    refused: str = ""  #: why the job is not suspended
    tag: Tag | None = None
    pending: bool = False  #: the event has to be judged again


def judge(event: Event, facts: JobFacts | None, site: ConsequenceSettings) -> Verdict:
    """Return the actions for an event. ``facts``: None if the event has no job."""
    type_ = event_type(event.type)
    if type_ is EventType.FRAG_JOB_REQUEST:
        return Verdict(notice=facts is not None)
    if type_ in _HOLDS_AND_RESUMES:
        return _hold_or_resume(type_, facts, site) if facts else Verdict()
    consequence = CONSEQUENCES.get(type_) if type_ else None
    if consequence is None:
        return Verdict()
    state = _state(consequence, facts) if facts else None
    suspects = _suspects(event, consequence, facts, site)
    unstable = tuple(host for host in suspects if consequence.returns and facts and host in facts.unstable_hosts)
    resubmit, refusal = _decide_resubmission(event, consequence, facts, site) if facts and state else (False, "")
    check = _check_of(type_, consequence, facts, site)
    may_return = consequence.by_finaud or check is not None or bool(facts and facts.is_fetched)
    has_relapsed = bool(facts and check and facts.relapsed_hosts.intersection(suspects))
    return Verdict(
        state=state,
        suspects=suspects,
        by_finaud=may_return and not unstable and not has_relapsed,
        check=check,
        returning=suspects if consequence.returns and site.heals and not unstable else (),
        unstable=unstable,
        resubmit=resubmit,
        not_resubmitted=refusal,
        mail=event.description if consequence.told_to_administrators else "",
    )


def _state(consequence: Consequence, facts: JobFacts) -> JobState | None:
    job = facts.job
    if consequence.state not in JOB_MOVES[job.state]:
        return None
    if consequence.spares_reservations and job.reservation is not Reservation.NONE:
        return None
    return consequence.state


def _check_of(
    type_: EventType | None, consequence: Consequence, facts: JobFacts | None, site: ConsequenceSettings
) -> NodeCheck | None:
    """Return the check that ends the suspicion of an event.

    Return None for a check of control groups if the site has its own job resource manager, or none.
    """
    if consequence.check is NodeCheck.CGROUP and (site.has_own_manager or not site.confines):
        return None
    if type_ is EventType.EXIT_VALUE_OAREXEC and facts and facts.oarexec_code == ExecCode.NO_INTERPRETER:
        return NodeCheck.REACH
    return consequence.check


def _suspects(
    event: Event, consequence: Consequence, facts: JobFacts | None, site: ConsequenceSettings
) -> tuple[str, ...]:
    # No check would end the suspicion of nodes for a failing prologue: a common one suspects no node.
    is_innocent = facts is not None and facts.is_common and event_type(event.type) is EventType.PROLOGUE_ERROR
    if consequence.suspects is Suspects.NOBODY or is_innocent:
        return ()
    if consequence.suspects is Suspects.HOSTS or facts is None:
        return event.hosts
    if facts.runs_elsewhere or JobTypeName.NOOP in facts.types:
        return ()
    if consequence.suspects is Suspects.HEAD:
        return event.hosts or facts.hosts[:1]
    if consequence.suspects is Suspects.ALL_UNCONFINED and site.confines and not facts.is_fetched:
        return ()
    return facts.hosts


def consequence_of(type_: EventType | None) -> Consequence:
    """Return the consequence of an event, an empty one if it has none."""
    return CONSEQUENCES.get(type_, _NO_CONSEQUENCE) if type_ else _NO_CONSEQUENCE


def suspects_job_hosts(type_: EventType | None) -> bool:
    """Return whether an event may suspect nodes of its job that it does not name."""
    return consequence_of(type_).suspects not in (Suspects.NOBODY, Suspects.HOSTS)


# -- automatic resubmission -------------------------------------------------------------------------------------------


def may_be_rerun(type_: EventType | None, job: Job) -> bool:
    """Return whether an event may lead to a resubmission, so that the facts about the job must be collected."""
    if type_ in (EventType.SWITCH_INTO_TERMINATE_STATE, EventType.SWITCH_INTO_ERROR_STATE, EventType.EXTERMINATE_JOB):
        return asks_for_rerun(job) or type_ is not EventType.SWITCH_INTO_TERMINATE_STATE
    return consequence_of(type_).resubmit is not ResubmitRule.NEVER


def asks_for_rerun(job: Job) -> bool:
    """Return whether a job ended with the exit status with which idempotent jobs request another run."""
    return job.exit_code is not None and job.exit_code >> 8 == RERUN_STATUS


def _decide_resubmission(
    event: Event, consequence: Consequence, facts: JobFacts, site: ConsequenceSettings
) -> tuple[bool, str]:
    """Return whether the job is resubmitted, and why not if only a limit or the kind of job prevents it."""
    type_ = event_type(event.type)
    ended = type_ in (EventType.SWITCH_INTO_TERMINATE_STATE, EventType.SWITCH_INTO_ERROR_STATE)
    evicted_or_lost = type_ in (EventType.SWITCH_INTO_ERROR_STATE, EventType.EXTERMINATE_JOB)
    if (ended and _wants_rerun(facts)) or (evicted_or_lost and was_evicted(facts)):
        most = facts.types.value(JobTypeName.IDEMPOTENT)  # ``idempotent=N`` limits the runs
        if most is None or facts.chain < int(most):
            return True, ""
        return False, f"it was run again {facts.chain} times, the requested maximum"
    rule = consequence.resubmit
    if type_ is EventType.EXIT_VALUE_OAREXEC and facts.oarexec_code == ExecCode.NO_INTERPRETER:
        rule = ResubmitRule.ALWAYS
    if rule is ResubmitRule.IF_NOT_STARTED:
        rule = ResubmitRule.ALWAYS if NOT_STARTED in event.description else ResubmitRule.IF_IDEMPOTENT
    if rule is ResubmitRule.NEVER or (rule is ResubmitRule.IF_IDEMPOTENT and JobTypeName.IDEMPOTENT not in facts.types):
        return False, ""
    refusal = why_not_resubmitted(facts, site.max_resubmissions)
    if rule is ResubmitRule.ONCE and facts.chain and not refusal:
        refusal = "it was resubmitted before, and a third node may fail in the same way"
    return not refusal, refusal


def _wants_rerun(facts: JobFacts) -> bool:
    """Return whether an idempotent job ended with exit status 99 and may be run again."""
    job = facts.job
    return (
        asks_for_rerun(job)
        and JobTypeName.IDEMPOTENT in facts.types
        and _may_be_copied(facts)
        and not facts.kill_sent
        and job.stop_time - job.start_time > RERUN_LEAST_SECONDS
    )


def was_evicted(facts: JobFacts) -> bool:
    """Return whether an idempotent besteffort job was killed because other jobs needed its resources."""
    return (
        facts.besteffort_kill
        and JobTypeName.BESTEFFORT in facts.types
        and JobTypeName.IDEMPOTENT in facts.types
        and _may_be_copied(facts)
        and facts.oarexec_code in (ExecCode.KILLED, ExecCode.KILLED_EPILOGUE, None)
    )


def _may_be_copied(facts: JobFacts) -> bool:
    job = facts.job
    return job.job_type is JobType.PASSIVE and job.reservation is Reservation.NONE and not facts.was_resubmitted


def why_not_resubmitted(facts: JobFacts, most: int) -> str:
    """Return why a job that failed without its own fault is not resubmitted; return '' if it is.

    The limit prevents that a job that breaks its nodes is resubmitted until all nodes of the cluster are broken.
    """
    job = facts.job
    refusals = (
        (job.job_type is not JobType.PASSIVE, "it is interactive"),
        (job.reservation is not Reservation.NONE, "it is a reservation"),
        (facts.runs_elsewhere, "its command runs on a frontend"),
        (facts.was_resubmitted, "it was resubmitted before"),
        (facts.has_kill_request, "its deletion was requested"),
        (facts.chain >= most and not facts.is_common, f"it was resubmitted {facts.chain} times in a row"),
    )
    return next((refusal for applies, refusal in refusals if applies), "")


# -- hold and resume --------------------------------------------------------------------------------------------------


def _hold_or_resume(type_: EventType | None, facts: JobFacts, site: ConsequenceSettings) -> Verdict:
    job, suspends, verdict = facts.job, type_ is EventType.HOLD_RUNNING_JOB, Verdict()
    if type_ is EventType.RESUME_JOB:
        state = {JobState.HOLD: JobState.WAITING, JobState.SUSPENDED: JobState.RESUMING}.get(job.state)
        return Verdict(state=state, tag=Tag.QRESUME) if state else verdict
    match job.state:
        case JobState.WAITING if job.reservation is not Reservation.SCHEDULED:
            verdict = Verdict(state=JobState.HOLD)
        case JobState.RESUMING:
            verdict = Verdict(state=JobState.SUSPENDED, tag=Tag.TERM)
        case JobState.TO_LAUNCH | JobState.LAUNCHING if suspends:
            verdict = Verdict(pending=True)
        case JobState.RUNNING if suspends and JobTypeName.NOOP in facts.types:
            verdict = Verdict(state=JobState.SUSPENDED, tag=Tag.TERM)
        case JobState.RUNNING if suspends:
            refused = why_not_suspended(facts.types, confines=site.confines)
            verdict = Verdict(refused=refused) if refused else Verdict(action=JobAction.SUSPEND, pending=True)
    return verdict


def why_not_suspended(types: JobTypes, *, confines: bool) -> str:
    """Return why a running job cannot be suspended; return '' if it can."""
    if not confines:
        return "CPUSET tag is not configured in the oar.conf."
    if JobTypeName.DESKTOP_COMPUTING in types:
        return NOT_FOR_DESKTOPS
    for name in (JobTypeName.COSYSTEM, JobTypeName.DEPLOY):
        if name in types:
            return f"This job is of the {name} type. We cannot suspend this kind of jobs."
    return ""


def after(facts: JobFacts, state: JobState) -> JobFacts:
    """Return the facts after a move of the job to ``state``, for its next event."""
    return facts._replace(job=facts.job._replace(state=state))
