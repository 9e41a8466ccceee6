"""Decide from several failures whether a single node is faulty, or something that all nodes need.

This module contains tables and pure functions. ``oar.lib.jobs.fault_holds`` reads the failures, calls these functions
and stores the decisions.

- Nodes check accounts and home directories themselves: the node of the failure and some others (``judge_check``).
  Until the result, the launches of that user are held, and no node is suspected.
- Other faults of nodes suspect each node, until ``NODES`` nodes fail in the same way while no job starts anywhere.
  Then launches are held, and a failing prologue suspects no further node.
- A failure of the server prologue suspects no node.
- A program or a file named in oar.conf that cannot be used is a configuration fault: all launches are held.

While launches are held, one job at a time is launched as a trial, after an increasing pause (``may_launch``).
See docs/design/events.rst, "Faults of several nodes".
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from oar.lib.history.event_types import EventType
from oar.lib.history.records import Event
from oar.lib.jobs.records import LaunchFailure, LaunchHold
from oar.lib.jobs.states import JobState, JobTypeName, LaunchFault
from oar.lib.nodes.states import NodeCheck
from oar.lib.submission.resource_request import JobTypes

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


def fault_of(type_: EventType | None) -> LaunchFault | None:
    """Return the fault that an event shows; return None if the event concerns only its job or node."""
    return _FAULTS.get(type_) if type_ else None


def is_node_innocent(type_: EventType | None) -> bool:
    """Return whether an event suspects no node while its fault is common, because no check would end the suspicion."""
    return fault_of(type_) is LaunchFault.PROLOGUE


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


def are_nodes_innocent(failures: Sequence[LaunchFailure], nodes: int) -> bool:
    """Return whether failures of one kind have a cause that all nodes share.

    ``failures``: the failures since the last start of a job on any node; ``nodes``: number of nodes of the cluster.
    """
    return len({failure.node for failure in failures}) >= max(2, min(NODES, nodes))


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
    return frozenset({*held, concerned_user(failures)} if are_nodes_innocent(failures, nodes) else held)


def is_queue_failing(failures: Sequence[LaunchFailure]) -> bool:
    """Return whether a queue must be stopped; ``failures``: the failures of its jobs since its last success."""
    return len({failure.job for failure in failures}) >= QUEUE_FAILURES and not concerned_user(failures)


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


def repeats(hold: LaunchHold, user: str) -> bool:
    """Return whether the last trial job of a hold belonged to this user; the next trial prefers another user."""
    return hold.trial_user == user


def is_pointless(hold: LaunchHold) -> bool:
    """Return whether a hold of a user without jobs may end.

    It may not end before the first check has decided whether a node is faulty.
    """
    return hold.user != "" and (hold.fault not in CHECKS or hold.failures > 1)


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


def describe_on_one_node(fault: LaunchFault, user: str) -> str:
    """Return a description of a fault that only one node has."""
    return TEXTS[fault].only_here.format(user=user)


def advise(fault: LaunchFault, user: str) -> str:
    """Return the advice for administrators, and how the launches are resumed."""
    return f"{TEXTS[fault].repair} {TEXTS[fault].resumption}".strip().format(user=user)
