"""Why a job ended: one cause for each, decided from what is known at its end.

Plain values: nothing is read or written here.  ``decide`` looks at the ``EndFacts`` that the database gathers when a
job gets its final state; the cause is stored with that state (``job_ends``) and told by ``oar.lib.cause_texts``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from oar.lib.model import Cause, NodeReason, NodeUsage
from oar.lib.states import EndCode, EventType, ExecCode, Phase

#: Exit statuses by which shells tell that a command cannot be executed, or was not found.
CANNOT_EXECUTE, NOT_FOUND = 126, 127
#: A text of somebody else's in the data of a cause is cut here.
LONGEST_TEXT = 500

_KILLED = (ExecCode.KILLED, ExecCode.KILLED_EPILOGUE)
_CHECKPOINTED = (ExecCode.CHECKPOINTED, ExecCode.CHECKPOINTED_EPILOGUE)
_BAD_EPILOGUE = frozenset(
    {ExecCode.EPILOGUE, ExecCode.SESSION_EPILOGUE, ExecCode.CHECKPOINTED_EPILOGUE, ExecCode.KILLED_EPILOGUE}
)
#: Names of errors: the file is not there; the user may not.
_MISSING, _DENIED = ("ENOENT", "ENOTDIR"), ("EACCES", "EPERM", "EROFS")
#: Codes of oarexec whose cause is the node alone.
_FAULTS: Mapping[int, EndCode] = {
    ExecCode.USER_SHELL: EndCode.ACCOUNT_UNKNOWN,
    ExecCode.NOT_CONFIRMED: EndCode.LAUNCH_UNKNOWN,
    ExecCode.PROLOGUE: EndCode.PROLOGUE,
}
_SETUP = frozenset(
    {
        ExecCode.NODE_FILE,
        ExecCode.PID_FILE,
        ExecCode.RUNTIME_DIRECTORY,
        ExecCode.TRANSFER,
        ExecCode.DATA,
        ExecCode.NO_INTERPRETER,
    }
)

#: Events that tell why a launch was given up, or that an end did not go well.
EVENTS: Mapping[EventType, EndCode] = {
    EventType.FORCE_TERMINATE_FINISHING_JOB: EndCode.FORCED,
    EventType.SERVER_EPILOGUE_TIMEOUT: EndCode.SERVER_EPILOGUE,
    EventType.SERVER_EPILOGUE_EXIT_CODE_ERROR: EndCode.SERVER_EPILOGUE,
    EventType.SERVER_EPILOGUE_ERROR: EndCode.SERVER_EPILOGUE,
    EventType.SERVER_PROLOGUE_TIMEOUT: EndCode.SERVER_PROLOGUE,
    EventType.SERVER_PROLOGUE_EXIT_CODE_ERROR: EndCode.SERVER_PROLOGUE,
    EventType.SERVER_PROLOGUE_ERROR: EndCode.SERVER_PROLOGUE,
    EventType.CPUSET_ERROR: EndCode.NODE_SETUP,
    EventType.CPUSET_MANAGER_FILE: EndCode.NODE_SETUP,
    EventType.PING_CHECKER_NODE_SUSPECTED: EndCode.NODE_LOST,
    EventType.RESERVATION_NO_NODE: EndCode.NODE_LOST,
    EventType.LAUNCHING_OAREXEC_TIMEOUT: EndCode.LAUNCH_UNKNOWN,
    EventType.EXIT_VALUE_OAREXEC: EndCode.NODE_LOST,
    EventType.BIPBIP_BAD_JOBID: EndCode.NO_RESOURCES,
    EventType.LOST_SESSION: EndCode.SESSION_LOST,
}


class EndEvent(NamedTuple):
    """An event of a job that may tell why it ended."""

    type: str
    description: str
    hosts: tuple[str, ...] = ()


class EndFacts(NamedTuple):
    """What is known of a job when it gets its final state."""

    job_id: int
    exit_code: int | None = None  #: raw wait status
    message: str = ""
    walltime: int = 0
    ran: int = 0  #: seconds from its start to its end; 0 if it never started
    kill: Cause | None = None  #: why its end was asked; None if it was not
    oarexec_code: int | None = None
    phase: Phase | None = None  #: None: it was never launched
    head: str = ""
    detail: str = ""  #: what oarexec said of its end
    reason: NodeReason | None = None  #: what the head found
    events: Sequence[EndEvent] = ()  #: of the types in ``EVENTS``, oldest first
    usage: Sequence[NodeUsage] = ()


#: What a node may say of a failure, and how long.
_KINDS = ("directory", "output", "shell", "processes", "full", "session", "hook")
_LONGEST_PATH = 4096


def read_reason(value: object) -> NodeReason | None:
    """Return what a node said of a failure, None if it is nothing of the kind: a node may say anything."""
    if not isinstance(value, dict) or value.get("kind") not in _KINDS:
        return None
    texts = (value.get(name) for name in ("kind", "errno", "path", "link", "home"))
    return NodeReason(*(_clean(text) if isinstance(text, str) else "" for text in texts))


def _clean(text: str) -> str:
    return text[:_LONGEST_PATH].encode("utf-8", "replace").decode()


# -- deciding ---------------------------------------------------------------------------------------------------------


def decide(facts: EndFacts) -> Cause:
    """Return why a job ended."""
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
    """Return the cause of a job whose end was told by its node."""
    if code in _KILLED:
        return _killed(facts, {})
    if code in _SETUP:
        return Cause(EndCode.NODE_SETUP, {"nodes": [facts.head], "text": _short(facts.detail)})
    if code in _FAULTS:
        return Cause(_FAULTS[code], {"node": facts.head})
    special = _SPECIAL.get(code)
    return special(facts) if special else _of_end(facts, code)


def _of_end(facts: EndFacts, code: int) -> Cause:
    """Return the cause of a job whose command ended by itself."""
    cause = _of_status(facts)
    if cause.code is not EndCode.SUCCESS:
        return cause
    if code in _BAD_EPILOGUE:
        return Cause(EndCode.EPILOGUE, {"node": facts.head})
    failed = _event(facts, EndCode.SERVER_EPILOGUE)
    if failed:
        return Cause(EndCode.SERVER_EPILOGUE, {"text": _short(failed.description)})
    return Cause(EndCode.CHECKPOINT) if code in _CHECKPOINTED else cause


def _of_status(facts: EndFacts) -> Cause:
    """Return what the raw wait status says, and what the nodes saw meanwhile."""
    raw = facts.exit_code or 0
    if raw == 0:
        return Cause(EndCode.SUCCESS)
    number, status = raw & 0x7F, raw >> 8
    data = {"signal": number} if number else {"status": status}
    hindered = _hindrance(facts)
    if hindered:
        return Cause(hindered.code, data | dict(hindered.data))
    codes = {CANNOT_EXECUTE: EndCode.NOT_EXECUTABLE, NOT_FOUND: EndCode.NOT_FOUND}
    return Cause(EndCode.SIGNAL if number else codes.get(status, EndCode.EXIT_STATUS), data)


def _hindrance(facts: EndFacts) -> Cause | None:
    """Return what the nodes saw of a command that did not end well."""
    starved = _starved(facts.usage)
    if starved:
        return Cause(EndCode.OUT_OF_MEMORY, {"nodes": starved})
    reason = facts.reason or NodeReason("")
    if reason.kind == "shell":
        return _of_shell(facts, reason)
    if reason.kind == "hook":
        return Cause(EndCode.PROLOGUE, {"node": facts.head})
    if reason.kind == "full":
        return Cause(EndCode.DISK_FULL, {"node": facts.head, "path": reason.path})
    denied = [facts.head] if reason.kind == "processes" else [one.node for one in facts.usage if one.forks_denied]
    return Cause(EndCode.PROCESS_LIMIT, {"node": denied[0]}) if denied else None


def _of_shell(facts: EndFacts, reason: NodeReason) -> Cause:
    code = EndCode.SHELL_MISSING if reason.errno in _MISSING else EndCode.SHELL_FAILED
    return Cause(code, {"node": facts.head, "path": reason.path, "errno": reason.errno})


def _starved(usage: Sequence[NodeUsage]) -> dict[str, dict[str, int | None]]:
    """Return the nodes on which the kernel killed processes of the job for want of memory."""
    return {
        one.node: {"kills": one.oom_kills, "peak": one.memory_peak, "limit": one.memory_limit}
        for one in usage
        if one.oom_kills
    }


def _killed(facts: EndFacts, more: Mapping[str, Any]) -> Cause:
    """Return the cause of a job that was killed: why its end was asked."""
    kill = facts.kill or Cause(EndCode.STOPPED)
    lost = _event(facts, EndCode.SESSION_LOST)
    if lost and kill.code is EndCode.DELETED:  # who has lost the session of a job deletes it
        kill = Cause(EndCode.SESSION_LOST, {"text": _short(lost.description)})
    data = dict(kill.data) | dict(more)
    if kill.code is EndCode.WALLTIME:
        data |= {"walltime": facts.walltime, "ran": facts.ran}
    starved = _starved(facts.usage)
    if starved:
        data["starved"] = starved
    return Cause(kill.code, data)


def _of_directory(facts: EndFacts) -> Cause:
    reason = facts.reason or NodeReason("directory")
    data = {"node": facts.head, "path": reason.path, "errno": reason.errno}
    if reason.home:
        return Cause(EndCode.HOME_MISSING, data | {"home": reason.home})
    if reason.errno in _MISSING:
        return Cause(EndCode.DIRECTORY_MISSING, data)
    if reason.errno in _DENIED:
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
    reason = facts.reason or NodeReason("output")
    data = {"node": facts.head, "path": reason.path, "errno": reason.errno}
    code = _OUTPUT_CODES.get(reason.errno, EndCode.OUTPUT_FAILED)
    if reason.home and code in (EndCode.OUTPUT_DENIED, EndCode.OUTPUT_MISSING):
        return Cause(EndCode.HOME_MISSING, data | {"home": reason.home})
    if reason.link and code is not EndCode.OUTPUT_FULL:
        return Cause(EndCode.OUTPUT_LINK, data | {"link": reason.link})
    return Cause(code, data if code is not EndCode.OUTPUT_FAILED else data | {"text": _error(facts)})


def _of_session(facts: EndFacts) -> Cause:
    if facts.reason and facts.reason.kind == "directory":
        return _of_directory(facts)
    if facts.reason and facts.reason.kind == "shell":
        return _of_shell(facts, facts.reason)
    lost = _event(facts, EndCode.SESSION_LOST)
    if lost or (facts.reason and facts.reason.kind == "session"):
        return Cause(EndCode.SESSION_LOST, {"node": facts.head} | ({"text": _short(lost.description)} if lost else {}))
    if facts.oarexec_code in _BAD_EPILOGUE:
        return Cause(EndCode.EPILOGUE, {"node": facts.head})
    return Cause(EndCode.SESSION_OVER)


def _of_death(facts: EndFacts) -> Cause:
    """Return the cause of a job whose oarexec died: the event names its node unless the node is well."""
    lost = sorted({host for one in facts.events if one.type == EventType.EXIT_VALUE_OAREXEC for host in one.hosts})
    return Cause(EndCode.NODE_LOST, {"nodes": lost}) if lost else Cause(EndCode.OAREXEC_LOST, {"node": facts.head})


#: Codes of oarexec whose cause needs a look at what the head said.
_SPECIAL: Mapping[int, Callable[[EndFacts], Cause]] = {
    **dict.fromkeys((ExecCode.DIRECTORY, ExecCode.DIRECTORY_EPILOGUE), _of_directory),
    **dict.fromkeys((ExecCode.OUTPUT, ExecCode.OUTPUT_EPILOGUE), _of_output),
    **dict.fromkeys((ExecCode.SESSION, ExecCode.SESSION_EPILOGUE), _of_session),
    ExecCode.DIED: _of_death,
}


def _of_event(facts: EndFacts) -> Cause:
    """Return the cause of a job that no node told of: its last event that means an end."""
    for event in reversed(facts.events):
        code = EVENTS.get(EventType(event.type))
        if code:
            data: dict[str, Any] = {"text": _short(event.description)}
            return Cause(code, data | ({"nodes": sorted(event.hosts)} if event.hosts else {}))
    return Cause(EndCode.UNKNOWN, {"text": _short(facts.message)} if facts.message else {})


def _event(facts: EndFacts, code: EndCode) -> EndEvent | None:
    """Return the last event that means a cause."""
    meant = [one for one in facts.events if EVENTS.get(EventType(one.type)) is code]
    return meant[-1] if meant else None


#: What the errors are called that directories and files of jobs meet, by their names.
_ERRORS = {
    "EACCES": "Permission denied",
    "EDQUOT": "Disk quota exceeded",
    "EFBIG": "File too large",
    "EINVAL": "Invalid argument",
    "EIO": "Input/output error",
    "EISDIR": "Is a directory",
    "ELOOP": "Too many levels of symbolic links",
    "EMFILE": "Too many open files",
    "ENAMETOOLONG": "File name too long",
    "ENFILE": "Too many open files in system",
    "ENOENT": "No such file or directory",
    "ENOSPC": "No space left on device",
    "ENOTCONN": "Transport endpoint is not connected",
    "ENOTDIR": "Not a directory",
    "ENXIO": "No such device or address",
    "EPERM": "Operation not permitted",
    "EROFS": "Read-only file system",
    "ESTALE": "Stale file handle",
    "ETIMEDOUT": "Connection timed out",
    "ETXTBSY": "Text file busy",
}


def _error(facts: EndFacts) -> str:
    """Return the words for what a node could not do: those of the error, if its name is known."""
    known = _ERRORS.get(facts.reason.errno) if facts.reason else None
    return known or _short(facts.detail)


def _short(text: str) -> str:
    return text.strip()[:LONGEST_TEXT]
