"""Determine the one cause of each job end from the facts about it.

This module reads and writes nothing. ``decide`` gets the ``EndFacts`` that the database collects when a job reaches
its final state. The cause is stored with that state (``job_ends``).
"""

import errno
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from oar.lib.history.event_types import EventType
from oar.lib.jobs.ends import Cause, EndCode, ExecCode
from oar.lib.jobs.records import NodeUsage
from oar.lib.jobs.states import Phase
from oar.lib.remote.protocol import NodeFault, NodeFaultKind

#: Exit statuses of shells for a command that cannot be executed, or was not found.
_CANNOT_EXECUTE, _NOT_FOUND = 126, 127
#: Length at which texts of nodes and events are cut in the data of a cause.
LONGEST_TEXT = 500

#: How the texts of jobs begin that a desktop computer has lost (``AgentReason``, which costs a start).
LOST = "lost"
#: The text of jobs of which nothing was heard since the database was restored, and of which nothing is left.
END_NOT_RECORDED = "how the job ended is unknown: the database was restored, and nothing is left of the job on its node"

#: Causes of an evicted job that caught the signal and ended before it was killed.
_ENDS_BY_ITSELF = (EndCode.EXIT_STATUS, EndCode.SIGNAL, EndCode.SIGNAL_SENT, EndCode.CHECKPOINT_SIGNAL)
_CHECKPOINTED = (ExecCode.CHECKPOINTED, ExecCode.CHECKPOINTED_EPILOGUE)
_BAD_EPILOGUE = frozenset(
    {ExecCode.EPILOGUE, ExecCode.SESSION_EPILOGUE, ExecCode.CHECKPOINTED_EPILOGUE, ExecCode.KILLED_EPILOGUE}
)
#: Names of errors: the file is not there; the user may not.
_MISSING, _DENIED = ("ENOENT", "ENOTDIR"), ("EACCES", "EPERM", "EROFS")
#: Events that show the cause of an end: a launch that was given up, or an epilogue that failed.
EVENTS: Mapping[EventType, EndCode] = {
    EventType.FORCE_TERMINATE_FINISHING_JOB: EndCode.FORCED,
    EventType.SERVER_EPILOGUE_TIMEOUT: EndCode.SERVER_EPILOGUE,
    EventType.SERVER_EPILOGUE_EXIT_CODE_ERROR: EndCode.SERVER_EPILOGUE,
    EventType.SERVER_EPILOGUE_ERROR: EndCode.SERVER_EPILOGUE,
    EventType.SERVER_PROLOGUE_TIMEOUT: EndCode.SERVER_PROLOGUE,
    EventType.SERVER_PROLOGUE_EXIT_CODE_ERROR: EndCode.SERVER_PROLOGUE,
    EventType.SERVER_PROLOGUE_ERROR: EndCode.SERVER_PROLOGUE,
    EventType.PROLOGUE_ERROR: EndCode.PROLOGUE,
    EventType.EPILOGUE_ERROR: EndCode.EPILOGUE,
    EventType.CPUSET_ERROR: EndCode.NODE_SETUP,
    EventType.CPUSET_PROPERTY_ERROR: EndCode.NODE_DESCRIPTION,
    EventType.CPUSET_MANAGER_FILE: EndCode.NODE_SETUP,
    EventType.PING_CHECKER_NODE_SUSPECTED: EndCode.NODE_LOST,
    EventType.RESERVATION_NO_NODE: EndCode.NODE_LOST,
    EventType.LAUNCHING_OAREXEC_TIMEOUT: EndCode.LAUNCH_UNKNOWN,
    EventType.EXIT_VALUE_OAREXEC: EndCode.NODE_LOST,
    EventType.NODE_LOST: EndCode.NODE_LOST,
    EventType.NODE_REBOOTED: EndCode.NODE_REBOOTED,
    EventType.NODE_SHUTDOWN: EndCode.NODE_SHUTDOWN,
    EventType.BIPBIP_BAD_JOBID: EndCode.NO_RESOURCES,
    EventType.LOST_SESSION: EndCode.SESSION_LOST,
}


class EndEvent(NamedTuple):
    """An event of a job that may show the cause of its end."""

    type: str
    description: str
    hosts: tuple[str, ...] = ()


class EndFacts(NamedTuple):
    """The facts about a job at the time of its final state."""

    job_id: int
    exit_code: int | None = None  #: raw wait status
    message: str = ""
    walltime: int = 0
    is_rest: bool = False  #: it asked for no walltime, and got what was left of its advance reservation
    ran: int = 0  #: seconds from its start to its end; 0 if it never started
    kill: Cause | None = None  #: why its end was asked; None if it was not
    oarexec_code: int | None = None
    phase: Phase | None = None  #: None: it was never launched
    head: str = ""
    detail: str = ""  #: what oarexec wrote about the end
    fault: NodeFault | None = None  #: what failed on the head
    events: Sequence[EndEvent] = ()  #: of the types in ``EVENTS``, oldest first
    usage: Sequence[NodeUsage] = ()
    checkpoint_signal: int = 0
    signals: Mapping[int, str] = {}  #: those that users had OAR send, each with the text of the last request


#: The longest text that a node may say of a failure.
_LONGEST_PATH = 4096


def read_fault(value: object) -> NodeFault | None:
    """Return the fault in the report of a node; return None if the value contains no valid fault."""
    if not isinstance(value, dict):
        return None
    try:
        kind = NodeFaultKind(str(value.get("kind")))
    except ValueError:
        return None
    texts = (value.get(name) for name in ("errno", "path", "link", "home"))
    return NodeFault(
        kind,
        *(text[:_LONGEST_PATH].encode("utf-8", "replace").decode() if isinstance(text, str) else "" for text in texts),
    )


# -- deciding ---------------------------------------------------------------------------------------------------------


def decide(facts: EndFacts) -> Cause:
    """Return the cause of the end of a job."""
    forced = _event(facts, EndCode.FORCED)
    if forced and facts.phase is not Phase.CLEANED:
        return Cause(EndCode.FORCED, {"text": _short(forced.description)})
    if facts.oarexec_code is not None:
        return _of_report(facts, facts.oarexec_code)
    if facts.kill is not None:
        unanswered = facts.phase is not None and facts.phase is not Phase.FAILED
        return _killed(facts, {"unanswered": True} if unanswered else {})
    if facts.phase is None and not facts.events and facts.exit_code is not None:
        return _of_status(facts)
    return _of_event(facts)


def _of_report(facts: EndFacts, code: int) -> Cause:
    """Return the cause of an end that the node has reported."""
    on_head, detail = {"node": facts.head}, {"text": _short(facts.detail)}
    match code:
        case ExecCode.KILLED | ExecCode.KILLED_EPILOGUE:
            cause = _killed(facts, {})
        case ExecCode.PROLOGUE:
            cause = Cause(EndCode.PROLOGUE, on_head)
        case ExecCode.USER_SHELL:
            cause = Cause(EndCode.ACCOUNT_UNKNOWN, on_head)
        case ExecCode.NOT_CONFIRMED:
            cause = Cause(EndCode.LAUNCH_UNKNOWN, on_head)
        case ExecCode.STAGING:
            cause = Cause(EndCode.STAGING, on_head | detail)
        case (
            ExecCode.NODE_FILE
            | ExecCode.PID_FILE
            | ExecCode.RUNTIME_DIRECTORY
            | ExecCode.TRANSFER
            | ExecCode.DATA
            | ExecCode.NO_INTERPRETER
        ):
            cause = Cause(EndCode.NODE_SETUP, {"nodes": [facts.head]} | detail)
        case ExecCode.DIRECTORY | ExecCode.DIRECTORY_EPILOGUE:
            cause = _of_directory(facts)
        case ExecCode.OUTPUT | ExecCode.OUTPUT_EPILOGUE:
            cause = _of_output(facts)
        case ExecCode.SESSION | ExecCode.SESSION_EPILOGUE:
            cause = _of_session(facts)
        case ExecCode.DIED:
            cause = _of_death(facts)
        case ExecCode.SHUTDOWN:  # an earlier kill request has precedence
            cause = _killed(facts, {}) if facts.kill else Cause(EndCode.NODE_SHUTDOWN, {"nodes": [facts.head]})
        case _:
            cause = _of_end(facts, code)
    return cause


def _of_end(facts: EndFacts, code: int) -> Cause:
    """Return the cause of the end of a command that was not killed."""
    cause = _of_status(facts)
    if cause.code is not EndCode.SUCCESS:
        is_evicted = facts.kill is not None and facts.kill.code is EndCode.EVICTED
        return _killed(facts, {}) if is_evicted and cause.code in _ENDS_BY_ITSELF else cause
    if code in _BAD_EPILOGUE:
        return Cause(EndCode.EPILOGUE, {"node": facts.head})
    failed = _event(facts, EndCode.EPILOGUE)
    if failed:
        return Cause(EndCode.EPILOGUE, {"node": ", ".join(failed.hosts), "text": _short(failed.description)})
    failed = _event(facts, EndCode.SERVER_EPILOGUE)
    if failed:
        return Cause(EndCode.SERVER_EPILOGUE, {"text": _short(failed.description)})
    return Cause(EndCode.CHECKPOINT) if code in _CHECKPOINTED else cause


def _of_status(facts: EndFacts) -> Cause:
    """Return the cause according to the wait status and the reports of the nodes."""
    raw = facts.exit_code or 0
    if raw == 0:
        return Cause(EndCode.SUCCESS)
    number, status = raw & 0x7F, raw >> 8
    data = {"signal": number} if number else {"status": status}
    hindered = _hindrance(facts)
    if hindered:
        return Cause(hindered.code, data | dict(hindered.data))
    if number:
        return _of_signal(facts, number)
    codes = {_CANNOT_EXECUTE: EndCode.NOT_EXECUTABLE, _NOT_FOUND: EndCode.NOT_FOUND}
    return Cause(codes.get(status, EndCode.EXIT_STATUS), data)


def _of_signal(facts: EndFacts, number: int) -> Cause:
    """Return the cause of a command that a signal ended; the code of oarexec shows whether OAR sent the signal."""
    data = {"signal": number}
    if facts.oarexec_code in _CHECKPOINTED and number == facts.checkpoint_signal:
        return Cause(EndCode.CHECKPOINT_SIGNAL, data)
    if facts.oarexec_code in (ExecCode.SIGNALLED, *_CHECKPOINTED) and number in facts.signals:
        return Cause(EndCode.SIGNAL_SENT, data | {"text": _short(facts.signals[number])})
    return Cause(EndCode.SIGNAL, data)


def _hindrance(facts: EndFacts) -> Cause | None:
    """Return the cause that the reports of the nodes show for a failed command; return None if they show none."""
    out_of_memory = _out_of_memory(facts.usage)
    if out_of_memory:
        return Cause(EndCode.OUT_OF_MEMORY, {"nodes": out_of_memory})
    match facts.fault:
        case NodeFault(NodeFaultKind.SHELL) as fault:
            return _of_shell(facts, fault)
        case NodeFault(NodeFaultKind.HOOK):
            return Cause(EndCode.PROLOGUE, {"node": facts.head})
        case NodeFault(NodeFaultKind.FULL, path=path):
            return Cause(EndCode.DISK_FULL, {"node": facts.head, "path": path})
        case NodeFault(NodeFaultKind.PROCESSES):
            return Cause(EndCode.PROCESS_LIMIT, {"node": facts.head})
    denied = [usage.node for usage in facts.usage if usage.forks_denied]
    return Cause(EndCode.PROCESS_LIMIT, {"node": denied[0]}) if denied else None


def _of_shell(facts: EndFacts, fault: NodeFault) -> Cause:
    code = EndCode.SHELL_MISSING if fault.errno in _MISSING else EndCode.SHELL_FAILED
    return Cause(code, {"node": facts.head, "path": fault.path, "errno": fault.errno})


def _out_of_memory(usage: Sequence[NodeUsage]) -> dict[str, dict[str, int | None]]:
    """Return the memory figures of the nodes on which the kernel killed processes of the job."""
    return {
        node.node: {"kills": node.oom_kills, "peak": node.memory_peak, "limit": node.memory_limit}
        for node in usage
        if node.oom_kills
    }


def _killed(facts: EndFacts, more: Mapping[str, Any]) -> Cause:
    """Return the cause of a killed job: the cause of its kill request."""
    kill = facts.kill or Cause(EndCode.STOPPED)
    lost = _event(facts, EndCode.SESSION_LOST)
    if lost and kill.code is EndCode.DELETED:  # oarsub deletes a job when it loses the session
        kill = Cause(EndCode.SESSION_LOST, {"text": _short(lost.description)})
    data = dict(kill.data) | dict(more)
    if kill.code is EndCode.WALLTIME:
        data |= {"walltime": facts.walltime, "ran": facts.ran} | ({"is_rest": True} if facts.is_rest else {})
    out_of_memory = _out_of_memory(facts.usage)
    if out_of_memory:
        data["starved"] = out_of_memory
    return Cause(kill.code, data)


def _of_directory(facts: EndFacts) -> Cause:
    fault = facts.fault or NodeFault(NodeFaultKind.DIRECTORY)
    data = {"node": facts.head, "path": fault.path, "errno": fault.errno}
    if fault.home:
        return Cause(EndCode.HOME_MISSING, data | {"home": fault.home})
    if fault.errno in _MISSING:
        return Cause(EndCode.DIRECTORY_MISSING, data)
    if fault.errno in _DENIED:
        return Cause(EndCode.DIRECTORY_DENIED, data)
    return Cause(EndCode.DIRECTORY_FAILED, data | {"text": _error(facts)})


#: What hinders an output file, by the name of the error.
_OUTPUT_CODES = {
    **dict.fromkeys(_MISSING, EndCode.OUTPUT_MISSING),
    **dict.fromkeys(_DENIED, EndCode.OUTPUT_DENIED),
    **dict.fromkeys(("ENOSPC", "EDQUOT"), EndCode.OUTPUT_FULL),
    "ENXIO": EndCode.OUTPUT_PIPE,
    "ELOOP": EndCode.OUTPUT_LINK,
}


def _of_output(facts: EndFacts) -> Cause:
    fault = facts.fault or NodeFault(NodeFaultKind.OUTPUT)
    data = {"node": facts.head, "path": fault.path, "errno": fault.errno}
    code = _OUTPUT_CODES.get(fault.errno, EndCode.OUTPUT_FAILED)
    if fault.home and code in (EndCode.OUTPUT_DENIED, EndCode.OUTPUT_MISSING):
        return Cause(EndCode.HOME_MISSING, data | {"home": fault.home})
    if fault.link and code is not EndCode.OUTPUT_FULL:
        return Cause(EndCode.OUTPUT_LINK, data | {"link": fault.link})
    return Cause(code, data if code is not EndCode.OUTPUT_FAILED else data | {"text": _error(facts)})


def _of_session(facts: EndFacts) -> Cause:
    match facts.fault:
        case NodeFault(NodeFaultKind.DIRECTORY):
            return _of_directory(facts)
        case NodeFault(NodeFaultKind.SHELL) as fault:
            return _of_shell(facts, fault)
    lost = _event(facts, EndCode.SESSION_LOST)
    if lost or (facts.fault and facts.fault.kind is NodeFaultKind.SESSION):
        return Cause(EndCode.SESSION_LOST, {"node": facts.head} | ({"text": _short(lost.description)} if lost else {}))
    if facts.oarexec_code in _BAD_EPILOGUE:
        return Cause(EndCode.EPILOGUE, {"node": facts.head})
    return Cause(EndCode.SESSION_OVER)


def _of_death(facts: EndFacts) -> Cause:
    """Return the cause of a job whose oarexec died. If the node failed, an event names it."""
    for type_ in (EventType.NODE_REBOOTED, EventType.NODE_LOST, EventType.EXIT_VALUE_OAREXEC):
        nodes = sorted({host for event in facts.events if event.type == type_ for host in event.hosts})
        if nodes:
            return Cause(EVENTS[type_], {"nodes": nodes})
    if facts.detail == END_NOT_RECORDED:
        return Cause(EndCode.RESTORED, {"node": facts.head})
    if facts.detail.startswith(LOST):
        return Cause(EndCode.AGENT_LOST, {"node": facts.head})
    return Cause(EndCode.OAREXEC_LOST, {"node": facts.head})


def _of_event(facts: EndFacts) -> Cause:
    """Return the cause of an end that no node reported, from the last event that shows a cause."""
    for event in reversed(facts.events):
        code = EVENTS.get(EventType(event.type))
        if code:
            data: dict[str, Any] = {"text": _short(event.description)}
            return Cause(code, data | ({"nodes": sorted(event.hosts)} if event.hosts else {}))
    return Cause(EndCode.UNKNOWN, {"text": _short(facts.message)} if facts.message else {})


def _event(facts: EndFacts, code: EndCode) -> EndEvent | None:
    """Return the last event that shows this cause; return None if there is none."""
    events = [event for event in facts.events if EVENTS.get(EventType(event.type)) is code]
    return events[-1] if events else None


#: Texts of the errors of directories and files of jobs.
_ERRORS = {
    name: os.strerror(getattr(errno, name))
    for name in (
        *("EACCES", "EDQUOT", "EFBIG", "EINVAL", "EIO", "EISDIR", "ELOOP", "EMFILE", "ENAMETOOLONG", "ENFILE"),
        *("ENOENT", "ENOSPC", "ENOTCONN", "ENOTDIR", "ENXIO", "EPERM", "EROFS", "ESTALE", "ETIMEDOUT", "ETXTBSY"),
    )
}


def _error(facts: EndFacts) -> str:
    """Return the text of the error on the head node; for an unknown error, return the text of oarexec."""
    text = _ERRORS.get(facts.fault.errno) if facts.fault else None
    return text or _short(facts.detail)


def _short(text: str) -> str:
    return text.strip()[:LONGEST_TEXT]
