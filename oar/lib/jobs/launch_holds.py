"""Holds of launches: they begin with failed launches or a fault in oar.conf, and end when a check or a trial succeeds.

Several failures show whether a single node is faulty, or something that all nodes need:

- Nodes check accounts and home directories themselves: the node of the failure and some others (``judge_check``).
  Until the result, the launches of that user are held, and no node is suspected.
- Other faults of nodes suspect each node, until ``NODES`` nodes fail in the same way while no job starts anywhere.
  Then launches are held, and a failing prologue suspects no further node.
- A failure of the server prologue suspects no node.
- A program or a file named in oar.conf that cannot be used is a configuration fault: all launches are held.

While launches are held, one job at a time is launched as a trial, after an increasing pause (``may_launch``).
The first half of this module contains tables and pure functions, the second half stores the decisions.
See docs/design/events.rst, "Faults of several nodes", and docs/design/launch.rst, "Held launches".
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.bus.messages import Ask, JobAction, Mail, Tag, Wake
from oar.lib.history.event_types import EventType
from oar.lib.history.records import Event
from oar.lib.jobs import lifecycle
from oar.lib.jobs.records import Job, LaunchFailure, LaunchHold
from oar.lib.jobs.states import JobState, JobTypeName, LaunchFault, Phase, QueueState, Reservation
from oar.lib.nodes.states import NodeCheck, ResourceState
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Failures of nodes, and of scripts of the server, within this time, in seconds, are judged together.
NODE_WINDOW, SERVER_WINDOW = 600, 3600
#: So many nodes that fail in the same way while no job starts are not to blame; all nodes of a smaller cluster.
NODES = 3
#: A queue is stopped after failures of so many of its jobs in a row, of several users.
QUEUE_FAILURES = 5
#: Pause before the first trial or the second check, and the longest one, in seconds.  A trial for a fault of the
#: configuration keeps its nodes meanwhile.
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_CONFIGURATION_PAUSE = 30, 300, 600
#: A node whose suspicion OAR has ended so often within ``LIFTS_SECONDS`` stays Suspected.
LIFTS_FORGIVEN = 3
LIFTS_SECONDS = 24 * 3600
#: In descriptions of FINAUD_RECOVER: a check has ended the suspicion; other nodes have the same fault.
CHECKED, COMMON = "checked again", "not to blame"

_FAULTS: Mapping[EventType, LaunchFault] = {
    EventType.USER_SHELL: LaunchFault.ACCOUNT,
    EventType.HOME_MISSING: LaunchFault.HOME,
    EventType.PROLOGUE_ERROR: LaunchFault.PROLOGUE,
    EventType.PING_CHECKER_NODE_SUSPECTED: LaunchFault.NODE_SETUP,
    EventType.CPUSET_ERROR: LaunchFault.NODE_SETUP,
    EventType.CANNOT_CREATE_TMP_DIRECTORY: LaunchFault.NODE_SETUP,
    EventType.CAN_NOT_WRITE_NODE_FILE: LaunchFault.NODE_SETUP,
    EventType.CAN_NOT_WRITE_PID_FILE: LaunchFault.NODE_SETUP,
    EventType.SSH_TRANSFER_TIMEOUT: LaunchFault.NODE_SETUP,
    EventType.LAUNCHING_OAREXEC_TIMEOUT: LaunchFault.NODE_SETUP,
    EventType.SERVER_PROLOGUE_TIMEOUT: LaunchFault.SERVER_SCRIPT,
    EventType.SERVER_PROLOGUE_EXIT_CODE_ERROR: LaunchFault.SERVER_SCRIPT,
    EventType.SERVER_PROLOGUE_ERROR: LaunchFault.SERVER_SCRIPT,
    EventType.SERVER_EPILOGUE_TIMEOUT: LaunchFault.SERVER_EPILOGUE,
    EventType.SERVER_EPILOGUE_EXIT_CODE_ERROR: LaunchFault.SERVER_EPILOGUE,
    EventType.SERVER_EPILOGUE_ERROR: LaunchFault.SERVER_EPILOGUE,
}
#: Faults that nodes check themselves: no job is spent on a trial.
CHECKS: Mapping[LaunchFault, NodeCheck] = {
    LaunchFault.ACCOUNT: NodeCheck.ACCOUNT,
    LaunchFault.HOME: NodeCheck.HOME,
}
#: Faults of the server: no node is blamed.
OF_SERVER = (LaunchFault.SERVER_SCRIPT, LaunchFault.SERVER_EPILOGUE)
#: Faults that are judged over several failures, and whose end a trial shows.
TRIED = (LaunchFault.PROLOGUE, LaunchFault.NODE_SETUP, LaunchFault.SERVER_SCRIPT)
#: Types of jobs that need no node for their launch.
WITHOUT_NODE = (JobTypeName.NOOP, JobTypeName.DEPLOY, JobTypeName.COSYSTEM, JobTypeName.DESKTOP_COMPUTING)
#: Types of jobs whose launch runs no program that oar.conf names, but for the server prologue.
_WITHOUT_PROGRAM = (JobTypeName.NOOP, JobTypeName.DESKTOP_COMPUTING)
#: States of a trial that was launched, and of one of which nothing is known yet.
_LAUNCHED = (JobState.RUNNING, JobState.SUSPENDED, JobState.RESUMING, JobState.TERMINATED)
_UNDECIDED = (JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.FINISHING)
#: Phases of a launch that its node has not been told of.
ONLY_SERVER_KNOWS = (Phase.CLAIMED, Phase.NODES_OK, Phase.PROLOGUE_OK)
#: What a job of a queue has to reach before failures of the queue's jobs are counted from the start again.
_SUCCESSES: Mapping[LaunchFault, JobState] = {
    LaunchFault.SERVER_SCRIPT: JobState.RUNNING,
    LaunchFault.SERVER_EPILOGUE: JobState.TERMINATED,
}


def fault_of(type_: EventType | None) -> LaunchFault | None:
    """Return the fault that an event shows; return None if the event concerns only its job or node."""
    return _FAULTS.get(type_) if type_ else None


def events_of(fault: LaunchFault) -> list[EventType]:
    """Return the events that show a fault."""
    return [type_ for type_, other in _FAULTS.items() if other is fault]


def pause_after(failures: int, fault: LaunchFault | None = None) -> int:
    """Return the pause before the next trial of a hold, in seconds.

    >>> [pause_after(failures) for failures in (1, 2, 4, 5, 99)]
    [30, 60, 240, 300, 300]
    >>> [pause_after(failures, LaunchFault.CONFIGURATION) for failures in (1, 5, 6)]
    [30, 480, 600]
    """
    longest = LONGEST_CONFIGURATION_PAUSE if fault is LaunchFault.CONFIGURATION else LONGEST_PAUSE
    return min(FIRST_PAUSE << min(failures - 1, 10), longest)


# -- several failures -------------------------------------------------------------------------------------------------


def concerned_user(failures: Sequence[LaunchFailure]) -> str:
    """Return the user of all failures; return '' if several users are concerned."""
    users = {failure.user for failure in failures}
    return users.pop() if len(users) == 1 else ""


def concerned_users(
    fault: LaunchFault, failures: Sequence[LaunchFailure], held: Collection[str], nodes: int
) -> frozenset[str]:
    """Return the users for whom a fault is common; '' stands for all users.

    ``failures``: the failures since the last launch. ``held``: users whose launches are held for this fault, '' for all
    users. ``nodes``: number of nodes of the cluster.
    """
    if "" in held:
        return frozenset({""})
    if fault in OF_SERVER:
        return frozenset({""} if failures and not concerned_user(failures) else ())
    is_shared = len({failure.node for failure in failures}) >= max(2, min(NODES, nodes))
    return frozenset({*held, concerned_user(failures)} if is_shared else held)


# -- holds ------------------------------------------------------------------------------------------------------------


def concerns(hold: LaunchHold, user: str, types: JobTypes) -> bool:
    """Return whether a hold concerns the launch of a job."""
    return hold.user in ("", user) and not any(name in types for name in spared_types(hold))


def spared_types(hold: LaunchHold) -> Sequence[JobTypeName]:
    """Return the job types that a hold does not concern."""
    if hold.fault in OF_SERVER or is_watched(hold):
        return ()
    return _WITHOUT_PROGRAM if hold.fault is LaunchFault.CONFIGURATION else WITHOUT_NODE


def is_watched(hold: LaunchHold) -> bool:
    """Return whether the Runner can detect the fault (a missing program or file), so that no trial job is needed.

    Other configuration faults appear only in launches; the job of the first failed launch is the first trial.
    """
    return hold.fault is LaunchFault.CONFIGURATION and not hold.trial_job


def is_over(hold: LaunchHold) -> bool:
    """Return whether the trial job of a hold was launched, which shows that the fault is repaired."""
    return hold.trial_state in _LAUNCHED


def may_launch(hold: LaunchHold, now: int) -> bool:
    """Return whether a job that a hold concerns may be launched now, as a trial."""
    is_tried = hold.fault not in CHECKS and not is_watched(hold) and not is_over(hold)
    return is_tried and hold.trial_state not in _UNDECIDED and now >= hold.next_try


# -- checks -----------------------------------------------------------------------------------------------------------


class Blame(Enum):
    """The result of a check of a hold."""

    NOBODY = auto()  #: the fault is gone
    NODE = auto()  #: only the node of the failure has it
    USER = auto()  #: only the node of the failure has it, and maybe only for this user
    SERVICE = auto()  #: other nodes have it, too
    UNKNOWN = auto()  #: nobody answered: when that comes twice, the fault is common


class CheckAnswer(NamedTuple):
    """The result of a check on a node."""

    is_well: bool
    is_of_node: bool = False  #: it fails by what no user controls


def judge_check(here: bool | None, elsewhere: Collection[bool]) -> Blame:
    """Return the result of a check of a hold.

    ``here``: whether the check succeeds on the node of the failure, None if that node does not answer.
    ``elsewhere``: the results of other nodes.

    >>> judge_check(False, [False, True]), judge_check(False, [False]), judge_check(None, [True])
    (<Blame.NODE: 2>, <Blame.SERVICE: 3>, <Blame.NOBODY: 1>)
    """
    if here:
        return Blame.NOBODY
    if any(elsewhere):
        return Blame.NOBODY if here is None else Blame.NODE
    if here is False or elsewhere:
        return Blame.SERVICE
    return Blame.UNKNOWN


def has_relapsed(events: Iterable[Event]) -> bool:
    """Return whether OAR has ended the suspicion of a node ``LIFTS_FORGIVEN`` times in the same way.

    Such a node stays Suspected. Suspicions ended by a check and those ended because of a common fault are counted
    separately.
    """
    ends = [event.description for event in events if event.type == EventType.FINAUD_RECOVER]
    return any(sum(way in text for text in ends) >= LIFTS_FORGIVEN for way in (CHECKED, COMMON))


# -- texts ------------------------------------------------------------------------------------------------------------

#: How OAR ends the holds of faults that it does not check itself.
_TRIALS = "OAR launches one job at a time as a trial and resumes the launches by itself."


class HoldTexts(NamedTuple):
    """Texts about a fault for administrators and users, with the placeholder ``{user}``."""

    fault: str  #: what does not work
    repair: str  #: what an administrator has to do
    resumption: str = _TRIALS  #: how the hold of the launches ends; '' = the fault holds none
    only_here: str = ""  #: how the fault shows on a single node


TEXTS: Mapping[LaunchFault, HoldTexts] = {
    LaunchFault.ACCOUNT: HoldTexts(
        "the account {user} is unknown",
        "Check the name service (LDAP, SSSD).",
        "OAR holds the jobs of each user whose account is unknown, mails only the first, and resumes them by itself."
        " See all: oar-server status --check. If the account was removed, or is root or oar, which run no jobs, delete"
        " its jobs: oardel -u {user}",
        "the account {user} is unknown on this node; other nodes know it",
    ),
    LaunchFault.HOME: HoldTexts(
        "the home directory of {user} is missing",
        "Check the file server and the mounts.",
        "OAR holds the jobs of each user whose home directory is missing, mails only the first, and resumes them by"
        " itself. See all: oar-server status --check.",
        "the home directory of {user} is missing on this node; other nodes have it",
    ),
    LaunchFault.PROLOGUE: HoldTexts(
        "the prologue fails on several nodes",
        "Correct the prologue of the nodes (NODE_PROLOGUE_FILE).",
    ),
    LaunchFault.NODE_SETUP: HoldTexts(
        "several nodes cannot be reached or prepared",
        "Check the network, the name service and the configuration.",
    ),
    LaunchFault.SERVER_SCRIPT: HoldTexts(
        "the server prologue fails",
        "Correct SERVER_PROLOGUE_EXEC_FILE.",
    ),
    LaunchFault.SERVER_EPILOGUE: HoldTexts(
        "the server epilogue fails", "Correct SERVER_EPILOGUE_EXEC_FILE.", resumption=""
    ),
}


def describe(fault: LaunchFault, user: str) -> str:
    """Return a description of the fault."""
    return TEXTS[fault].fault.format(user=user)


def describe_hold(hold: LaunchHold) -> str:
    """Return a description of the fault of a hold; for a configuration fault, return the stored reason."""
    return hold.reason if hold.fault is LaunchFault.CONFIGURATION else describe(hold.fault, hold.user)


# -- failed launches --------------------------------------------------------------------------------------------------


class Failed(NamedTuple):
    """A failed launch or a failed end of a job."""

    fault: LaunchFault
    job: Job
    node: str  #: '' if it failed on the server
    text: str


def common_faults(tx: "Transaction", faults: Collection[LaunchFault]) -> dict[LaunchFault, frozenset[str]]:
    """Return for each fault the users for whom it is common ('' for all users).

    A common fault is not caused by a single job or node.
    """
    tried = sorted(set(faults).intersection(TRIED))
    holds = tx.launch_holds.all() if tried else []
    common = {}
    for fault in tried:
        held = {hold.user for hold in holds if hold.fault is fault}
        failures = _failures_since_success(tx, fault)
        common[fault] = concerned_users(fault, failures, held, tx.resources.count_nodes())
    return common


def _failures_since_success(tx: "Transaction", fault: LaunchFault) -> list[LaunchFailure]:
    """Return the recent failures of a kind since the last successful start of a job.

    Frames of reservations run no program and are not counted as starts.
    """
    is_of_server = fault in OF_SERVER
    window = SERVER_WINDOW if is_of_server else NODE_WINDOW
    without = (JobTypeName.AR,) if is_of_server else WITHOUT_NODE
    failures = tx.events.failures(events_of(fault), tx.now - window)
    last = tx.launch_holds.last_start(failures[0].date, without) if failures else 0
    return [failure for failure in failures if failure.date >= last]


def note_failures(
    tx: "Transaction", failures: Sequence[Failed], common: Mapping[LaunchFault, Collection[str]], *, heals: bool
) -> None:
    """Hold the launches that would fail in the same way, and stop the queues in which several jobs failed in a row.

    ``heals``: OAR may set suspected nodes to Alive again.
    """
    for failed in failures:
        fault, user = failed.fault, failed.job.user
        users = common.get(fault, ())
        if fault in CHECKS:
            _hold(tx, failed, user, tx.now, is_confirmed=False)
            tx.outbox.append(Ask(JobAction.CHECK, 0, (failed.node,)))
        elif "" in users:
            _hold_and_mail(tx, failed, "", heals=heals)
        elif fault is LaunchFault.SERVER_SCRIPT or user in users:
            _hold_and_mail(tx, failed, user, heals=heals)
    for fault in {failed.fault for failed in failures} & _SUCCESSES.keys():
        _stop_failing_queues(tx, fault, {failed.job.queue for failed in failures if failed.fault is fault})


def _hold_and_mail(tx: "Transaction", failed: Failed, user: str, *, heals: bool) -> None:
    """Hold launches until a trial succeeds. Send a mail for the first hold of a user and for a hold of all users."""
    is_new = _hold(tx, failed, user, tx.now + pause_after(1), is_confirmed=True)
    others = [hold for hold in tx.launch_holds.all() if hold.fault is failed.fault]
    if not user:
        tx.launch_holds.lift([hold.id for hold in others if hold.user])
    if is_new and (not user or len(others) == 1):
        _mail(tx, failed.fault, user, failed.text)
    if is_new and heals and failed.fault is LaunchFault.PROLOGUE:
        _restore_nodes(tx, failed.fault)
    for hold in others:
        if hold.trial_job == failed.job.id and hold.next_try <= tx.now:
            pause = pause_after(hold.failures + 1)
            tx.launch_holds.postpone(hold, tx.now + pause, failed.text, is_confirmed=True)


def _hold(tx: "Transaction", failed: Failed, user: str, next_try: int, *, is_confirmed: bool) -> bool:
    is_new = tx.launch_holds.hold(failed.fault, user, failed.node, next_try, failed.text, is_confirmed=is_confirmed)
    if is_new:
        reason = f"{describe(failed.fault, user)}: {failed.text}"
        text = f"launches of {user or 'all users'} are held: {reason}"
        tx.events.add(EventType.LAUNCHES_HELD, failed.job.id, text)
    return is_new


def _restore_nodes(tx: "Transaction", fault: LaunchFault) -> None:
    """Request the state Alive for the nodes that were suspected before the fault was known to be common.

    No check would end the suspicion of these nodes.
    """
    names = {failure.node for failure in _failures_since_success(tx, fault)}
    resources = {resource.id: resource.network_address for resource in tx.resources.of_nodes(names)}
    prefixes = tuple(f"{type_}: " for type_ in events_of(fault))
    reasons = tx.nodes.reasons_of_resources(resources)
    nodes = {resources[row.resource] for row in reasons if not row.author and row.reason.startswith(prefixes)}
    for node in sorted(nodes - relapsed_nodes(tx, nodes)):
        if tx.resources.ask_state_of_node(node, ResourceState.ALIVE, seen=ResourceState.SUSPECTED):
            text = f"[NodeChangeState] {node}: {COMMON}: {describe(fault, '')}"
            tx.events.add(EventType.FINAUD_RECOVER, 0, text, hosts=[node])


def _mail(tx: "Transaction", fault: LaunchFault, user: str, text: str) -> None:
    advice = f"{TEXTS[fault].repair} {TEXTS[fault].resumption}".strip().format(user=user)
    parts = (f"{describe(fault, user)}.", text, advice)
    tx.outbox.append(
        Mail(f"Launches of {user or 'all users'} are held", "\n".join(part[:1].upper() + part[1:] for part in parts))
    )


def _stop_failing_queues(tx: "Transaction", fault: LaunchFault, queues: Iterable[str]) -> None:
    """Stop the queues in which ``QUEUE_FAILURES`` jobs of several users in a row failed on the server."""
    types, since = events_of(fault), tx.now - SERVER_WINDOW
    failures = tx.events.failures(types, since)
    for queue in sorted(queues):
        last = tx.launch_holds.last_success(since, queue, _SUCCESSES[fault], types)
        own = [failure for failure in failures if failure.queue == queue and failure.date >= last]
        is_failing = len({failure.job for failure in own}) >= QUEUE_FAILURES and not concerned_user(own)
        if is_failing and tx.queues.set_state([queue], QueueState.NOT_ACTIVE):
            jobs = ", ".join(str(failure.job) for failure in own)
            text = f"The queue {queue} is stopped: {describe(fault, '')} for the jobs {jobs}."
            repair = TEXTS[fault].repair
            advice = f"{repair} OAR starts no job of the queue before you enable it: oarqueue --enable {queue}"
            tx.outbox.append(Mail(f"The queue {queue} is stopped", f"{text}\n{advice}"))


# -- faults of the configuration --------------------------------------------------------------------------------------


def hold_for_configuration(tx: "Transaction", fault: str, trial_job: int = 0) -> None:
    """Hold all launches because of a configuration fault; an existing hold for the same fault stays.

    ``trial_job``: the job whose launch found the fault; its next launch is the first trial. Without a trial job the
    Runner detects the fault and its repair (``end_repaired``).
    """
    present = configuration_hold(tx)
    if present and trial_job:
        if present.trial_job == trial_job and present.next_try <= tx.now:
            pause = pause_after(present.failures + 1, LaunchFault.CONFIGURATION)
            tx.launch_holds.postpone(present, tx.now + pause, fault, is_confirmed=True)
            if present.reason != fault:
                _tell_configuration_fault(tx, fault)
        return
    if present and is_watched(present) and present.reason == fault:
        return
    if present:
        tx.launch_holds.lift([present.id])
    next_try = tx.now + pause_after(1)
    if tx.launch_holds.hold(LaunchFault.CONFIGURATION, "", "", next_try, fault, is_confirmed=True, trial_job=trial_job):
        _tell_configuration_fault(tx, fault)


def configuration_hold(tx: "Transaction") -> LaunchHold | None:
    """Return the hold for a configuration fault; return None if there is none."""
    return next((hold for hold in tx.launch_holds.all() if hold.fault is LaunchFault.CONFIGURATION), None)


def _tell_configuration_fault(tx: "Transaction", fault: str) -> None:
    """Write the event of a hold; send a mail unless the same fault was mailed within a day."""
    tx.events.add(EventType.LAUNCH_CONFIGURATION_ERROR, 0, f"[Runner] {fault}")
    if not tx.events.was_mailed(fault):
        tx.events.add(EventType.FAULT_MAILED, 0, fault)
        text = f"{fault}\nNo job is started until this is repaired; then OAR starts jobs again by itself."
        tx.outbox.append(Mail("No job is started", text))


def end_repaired(tx: "Transaction") -> bool:
    """End the hold for a fault that the Runner detected and that is repaired; return whether launches are resumed.

    Keep the hold during the first pause: bipbip processes may have read an earlier configuration.
    """
    hold = configuration_hold(tx)
    if hold is None or not is_watched(hold) or tx.now < hold.next_try:
        return False
    key = re.match(r"[A-Z][A-Z0-9_]*(?=:)", hold.reason)
    lift(tx, [hold], f"the fault of {key[0] if key else 'oar.conf'} is repaired")
    return True


def hold_launch(tx: "Transaction", job_id: int, fault: str) -> bool:
    """Hold all launches, including this one, because of a configuration fault; return False if this launch continues.

    It continues if the node of the job may have received it, or if it has begun and the job has a kill request.
    A job whose launch has not been claimed returns to its queue and loses its resources. A reservation keeps its
    resources, and so does a job whose launch has begun.
    """
    tx.jobs.hold([job_id])
    job, run = tx.jobs.get(job_id), tx.job_runs.find(job_id)
    if job.state is JobState.TO_LAUNCH:
        if job.reservation is Reservation.NONE and lifecycle.move(tx, job_id, JobState.WAITING):
            tx.jobs.take_back(job_id)
    elif (
        job.state is not JobState.LAUNCHING
        or (run and run.phase not in ONLY_SERVER_KNOWS)
        or tx.job_requests.find_kill(job_id)
    ):
        return False
    hold_for_configuration(tx, fault)
    return True


def may_go_on(tx: "Transaction", job: Job, types: JobTypes) -> bool:
    """Return whether a launch that has begun may continue.

    It may not continue while another job is the trial, nor before the next trial of the hold.
    """
    hold = configuration_hold(tx)
    if hold is None or is_watched(hold) or is_over(hold):
        return True
    if hold.trial_job == job.id:
        return hold.next_try <= tx.now
    if not concerns(hold, job.user, types):
        return True
    return may_launch(hold, tx.now) and tx.launch_holds.begin_trial(hold, job.id)


# -- the end of holds -------------------------------------------------------------------------------------------------


def lift(tx: "Transaction", holds: Sequence[LaunchHold], why: str) -> None:
    """End holds, so that the scheduler can start the jobs again."""
    tx.launch_holds.lift([hold.id for hold in holds])
    for hold in holds:
        whose = f"launches of {hold.user}" if hold.user else "launches"
        tx.events.add(EventType.LAUNCHES_RESUMED, 0, f"{whose} are resumed: {why}")
    if holds:
        tx.outbox.append(Wake(Tag.QRESUME))


def end_holds(tx: "Transaction", holds: Sequence[LaunchHold]) -> None:
    """End the holds that are no longer needed.

    These are holds whose trial job was launched, holds of users without jobs, and holds without a job for the next
    trial.
    """
    over = [hold for hold in holds if is_over(hold)]
    for hold in over:
        failures = tx.events.failures(events_of(hold.fault), hold.began - NODE_WINDOW)
        nodes = {failure.node for failure in failures} & tx.nodes.due_checks().keys()
        if nodes:  # suspected for the repaired fault
            tx.outbox.append(Ask(JobAction.CHECK, 0, tuple(sorted(nodes))))
        lift(tx, [hold], f"the job {hold.trial_job} was launched")
    # A hold of a user may not end before the first check has decided whether a node is faulty.
    pointless = [hold for hold in holds if hold.user and (hold.fault not in CHECKS or hold.failures > 1)]
    pointless = [hold for hold in pointless if hold not in over]
    users = tx.launch_holds.users_with_jobs({hold.user for hold in pointless}) if pointless else ()
    left = [hold for hold in pointless if hold.user not in users]
    lift(tx, left, "no job of this user is left")
    due = [hold for hold in holds if may_launch(hold, tx.now) and hold not in left]
    idle = [hold for hold in due if not tx.launch_holds.has_jobs(hold.user, spared_types(hold))]
    lift(tx, idle, "no job waits for them")


def store_check(tx: "Transaction", hold: LaunchHold, blame: Blame, witnesses: Collection[str]) -> None:
    """Store the result of a check of a hold."""
    match blame:
        case Blame.NOBODY | Blame.NODE:
            nodes = hold.node if blame is Blame.NOBODY else ", ".join(sorted(witnesses))
            lift(tx, [hold], f"the check succeeds on {nodes}")
        case Blame.SERVICE | Blame.USER | Blame.UNKNOWN:
            is_confirmed = hold.is_confirmed or blame is not Blame.UNKNOWN or hold.failures > 1
            is_first = not any(other.is_confirmed for other in tx.launch_holds.all() if other.fault is hold.fault)
            nodes = ", ".join(sorted({hold.node, *witnesses}))
            text = f"{describe(hold.fault, hold.user)} on {nodes}"
            pause = pause_after(hold.failures)
            tx.launch_holds.postpone(hold, tx.now + pause, text, is_confirmed=is_confirmed)
            if is_first and is_confirmed:
                _mail(tx, hold.fault, hold.user, f"Seen on {nodes}.")


def relapsed_nodes(tx: "Transaction", nodes: Collection[str]) -> frozenset[str]:
    """Return the nodes whose suspicion OAR has ended too often within ``LIFTS_SECONDS``."""
    if not nodes:
        return frozenset()
    histories = tx.events.of_nodes(nodes, since=tx.now - LIFTS_SECONDS)
    return frozenset(node for node, events in histories.items() if has_relapsed(events))
