"""End causes of jobs, declared once: code, meaning, what happened, and what the user can do about it.

``end_decision`` determines the cause of an end, with its data. Sentences and advice are templates that are filled with
these data. Missing data is shown as ``?``: this makes causes readable that another version stored.
"""

import signal
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, Self

from oar.lib.base.times import format_duration
from oar.lib.jobs.states import Outcome

#: A shell whose command was ended by a signal exits with this number plus the number of the signal.
BY_SIGNAL = 128
#: The largest number of a signal.
LAST_SIGNAL = 64
#: The memory figures of at most this many nodes are shown.
_MAX_FIGURES = 3


class ExecCode(IntEnum):
    """Exit codes of oarexec (docs/how-it-works.rst, "How jobs end")."""

    OK = 0  #: the command has ended
    PROLOGUE = 1  #: prologue failed or timed out
    EPILOGUE = 2  #: epilogue failed or timed out
    KILLED = 3  #: killed on request
    KILLED_EPILOGUE = 4  #: killed on request, and the epilogue failed
    NODE_FILE = 5  #: the node file cannot be written
    PID_FILE = 6  #: the pid file or the group of the job cannot be used
    USER_SHELL = 7  #: the user is unknown on the node, or root or oar
    RUNTIME_DIRECTORY = 8  #: the runtime directory cannot be used
    DIRECTORY = 10  #: the launching directory cannot be entered
    DIRECTORY_EPILOGUE = 12  #: that, and the epilogue failed
    OUTPUT = 20  #: stdout or stderr file cannot be opened
    OUTPUT_EPILOGUE = 22  #: that, and the epilogue failed
    TRANSFER = 30  #: the node could not start a process for it
    DATA = 31  #: the data was not understood
    NO_INTERPRETER = 32  #: no usable Python on the node
    SESSION_EPILOGUE = 33  #: interactive job over, epilogue failed
    SESSION = 34  #: interactive job over
    STALE = 36  #: a newer attempt forbids this one; nothing was done
    CHECKPOINTED = 40  #: ended, and had been asked for a checkpoint
    CHECKPOINTED_EPILOGUE = 41  #: that, and the epilogue failed
    SIGNALLED = 42  #: ended, and had been sent a signal
    SHUTDOWN = 43  #: ended by the shutdown of its node
    STAGING = 45  #: made by the server: its agent could not prepare its files
    NOT_CONFIRMED = 50  #: made by the server: the launch was not confirmed
    DIED = 60  #: made by the server: oarexec died without a result


_RESUBMIT = "Submit it again: oarsub --resubmit {id}"
_JOB_IS_RIGHT = f"The job itself is correct. {_RESUBMIT}"
_REPORT = f"{_JOB_IS_RIGHT} (if it happens again, inform the administrators)"
_OTHER_FILES = "Use other names when you submit it: oarsub -O FILE -E FILE"
_CATCH_SIGNAL = "Let the command catch it (in a shell script: trap 'COMMAND' {trap_name})."


class EndCode(StrEnum):
    """Why a job ended, ``job_ends.code``: value, outcome, meaning for the documentation, sentence and advice.

    To add a cause: declare it here. ``end_decision`` determines it from the request of a kill (``control.ask_end``),
    a fault of a node (``oar/tools/node_faults.py``), an event, or a code of oarexec.
    """

    outcome: Outcome
    meaning: str
    sentence: str  #: template: what happened
    advice: str  #: template: what the user can do; '' if there is nothing to do

    def __new__(
        cls, code: str, outcome: Outcome = Outcome.UNKNOWN, meaning: str = "", sentence: str = "", advice: str = ""
    ) -> Self:
        member = str.__new__(cls, code)
        member._value_, member.outcome, member.meaning = code, outcome, meaning
        member.sentence, member.advice = sentence, advice
        return member

    # fmt: off
    SUCCESS = "SUCCESS", Outcome.DONE, "its command ended with exit status 0", "Its command ended well (exit status 0)."
    EXIT_STATUS = ("EXIT_STATUS", Outcome.FAILED, "its command ended with another exit status",
        "Its command ended with exit status {status}.{shell_hint}", "{stderr}")
    NOT_EXECUTABLE = ("NOT_EXECUTABLE", Outcome.FAILED, "exit status 126: its command is not executable",
        "The shell could not execute the command (exit status 126): it has no permission to be executed, or is no"
        " program.",
        "Make the script executable: chmod +x FILE. {stderr}")
    NOT_FOUND = ("NOT_FOUND", Outcome.FAILED, "exit status 127: its command was not found",
        "The shell did not find the command, or a program in it (exit status 127).",
        "Write its full path, and check that it is installed on the nodes. {stderr}")
    SIGNAL = ("SIGNAL", Outcome.FAILED, "its command was ended by a signal that OAR did not send",
        "Its command was ended by signal {signal_name}, which OAR did not send.", "{stderr}")
    SIGNAL_SENT = ("SIGNAL_SENT", Outcome.FAILED, "its command was ended by a signal that a user had OAR send",
        "Its command was ended by signal {signal_name}, which OAR sent on request{detail}.",
        f"A signal of `oardel -s` goes to the first process of the job. {_CATCH_SIGNAL} {_RESUBMIT}")
    CHECKPOINT_SIGNAL = ("CHECKPOINT_SIGNAL", Outcome.FAILED, "its command was ended by the checkpoint signal",
        "Its command was ended by signal {signal_name}, with which OAR requested a checkpoint: the command did not"
        " catch it.",
        f"{_CATCH_SIGNAL} Or choose the signal that it catches: oarsub --checkpoint SECONDS --signal SIGNAL.")
    CHECKPOINT = ("CHECKPOINT", Outcome.DONE, "it ended well after the checkpoint signal",
        "It ended well after the checkpoint signal.", "To go on: oarsub --resubmit {id}")
    SESSION_OVER = ("SESSION_OVER", Outcome.DONE,
        "the session of an interactive job is over", "Its interactive session is over.")
    SESSION_LOST = ("SESSION_LOST", Outcome.FAILED,
        "the session of an interactive job was lost, or no user connected to it",
        "Its interactive session was lost, or no user connected to it{detail}.", "Start another one: oarsub -I")
    OUT_OF_MEMORY = ("OUT_OF_MEMORY", Outcome.OUT_OF_MEMORY,
        "the kernel killed some of its processes because there was not enough memory",
        "The kernel killed some of its processes because there was not enough memory: {nodes_memory}. Its command"
        " ended with {how}.",
        "{memory_advice} {stderr}")
    PROCESS_LIMIT = ("PROCESS_LIMIT", Outcome.FAILED, "it could not start more processes",
        "It could not start more processes{on}: the limit for its processes was reached. Its command ended with"
        " {how}.",
        "Let it start fewer processes or threads, or request more cores. {stderr}")
    DISK_FULL = ("DISK_FULL", Outcome.FAILED, "it failed, and the disk of its output is full",
        "Its command ended with {how}, and the disk of {path} is full{on}.",
        "Delete files on that disk: see `df`, `quota`. Then oarsub --resubmit {id}")
    WALLTIME = ("WALLTIME", Outcome.TIMEOUT, "it reached its walltime",
        "It reached its walltime: {given} and ran for {ran}.",
        "{more_time}; or let it write checkpoints: oarsub --checkpoint")
    IDLE = ("IDLE", Outcome.CANCELLED, "it left its GPUs or cores idle, and the site ends such jobs",
        "It {idle}. Rule of this site: {rule}.",
        "What it used over time: oarstat --usage -f {id}")
    DELETED = "DELETED", Outcome.CANCELLED, "its owner deleted it", "Its owner {by} deleted it (oardel)."
    ADMINISTRATOR = ("ADMINISTRATOR", Outcome.CANCELLED, "an administrator deleted it",
        "The administrator {by} deleted it (oardel).", "Ask the administrators why.")
    MANAGER = ("MANAGER", Outcome.CANCELLED, "a manager of its project deleted it",
        "{by}, a manager of its project, deleted it (oardel).", "Ask that person why.")
    EVICTED = ("EVICTED", Outcome.EVICTED, "it was besteffort, and another job needed its resources",
        "It was a besteffort job, and job {for_job} needed its resources.",
        f"{_RESUBMIT}; or submit it with -t besteffort -t idempotent, and OAR submits it again automatically")
    CONTAINER = ("CONTAINER", Outcome.CANCELLED, "its container job ended",
        "Its container job {container} ended.", "Submit it in another container.")
    RESERVATION = ("RESERVATION", Outcome.CANCELLED, "the advance reservation that it was in ended, or was deleted",
        "It was {place} the advance reservation {reservation}, which {fate}.", "{without_reservation}")
    NODE_TAKEN = ("NODE_TAKEN", Outcome.NODE_FAILURE, "a node of it was taken out of service",
        "{names} {was} taken out of service.", _JOB_IS_RIGHT)
    SUSPENSION = ("SUSPENSION", Outcome.FAILED, "it could not be suspended or resumed",
        "It could not be suspended or resumed{detail}.", _REPORT)
    NOT_HEARD = ("NOT_HEARD", Outcome.FAILED, "the oarsub that waited for it did not answer",
        "The oarsub that waited for it did not answer{detail}.", "Submit it again.")
    STOPPED = ("STOPPED", Outcome.CANCELLED,
        "it was killed; the cause is unknown", "It was killed; the cause is unknown.", _RESUBMIT)
    FORCED = ("FORCED", Outcome.CANCELLED, "an administrator ended it without waiting for the clean-up of its nodes",
        "An administrator ended it without waiting for the clean-up of its nodes{detail}.")
    NODE_LOST = ("NODE_LOST", Outcome.NODE_FAILURE, "a node of it cannot be reached any more",
        "{names} cannot be reached any more{detail}.", _REPORT)
    NODE_REBOOTED = ("NODE_REBOOTED", Outcome.NODE_FAILURE, "its node was rebooted while it ran",
        "{names} {was} rebooted while the job ran there.", _REPORT)
    NODE_SHUTDOWN = ("NODE_SHUTDOWN", Outcome.NODE_FAILURE,
        "its node was shut down, or rebooted in order, while it ran",
        "{names} {was} shut down, or rebooted in order, while the job was there.", _JOB_IS_RIGHT)
    OAREXEC_LOST = ("OAREXEC_LOST", Outcome.NODE_FAILURE, "the program that ran it (oarexec) was killed on its node",
        "The program that ran it (oarexec){on} was killed; the node itself works.", _REPORT)
    RESTORED = ("RESTORED", Outcome.NODE_FAILURE, "its end was not recorded: the database was restored from a dump",
        "How it ended is unknown: the database was restored from a dump while the job ran, and the job had ended"
        " before OAR looked for it{on}. It may have ended well.",
        "Look at its output files. To run it again: oarsub --resubmit {id}")
    AGENT_LOST = ("AGENT_LOST", Outcome.NODE_FAILURE, "its desktop computer, or the agent there, ended while it ran",
        "The computer that ran it{on} was switched off, or the agent there ended, while it ran.", _JOB_IS_RIGHT)
    STAGING = ("STAGING", Outcome.FAILED, "a desktop computer could not prepare what its command needs",
        "What its command needs could not be prepared{on}{detail}. Its command was not started.",
        "See whether the file of --stagein is a whole archive, with relative names only.")
    NODE_SETUP = ("NODE_SETUP", Outcome.NODE_FAILURE, "a node of it could not be prepared",
        "{names} could not be prepared for it{detail}.", _REPORT)
    NODE_DESCRIPTION = ("NODE_DESCRIPTION", Outcome.FAILED, "a property of its resources does not match its node",
        "The description of its resources does not fit {names}{detail}. Its command was not started.",
        "Inform the administrators: they have to correct that property (oarnodesetting -p). The job itself is correct."
        f" Then: {_RESUBMIT}")
    PROLOGUE = ("PROLOGUE", Outcome.FAILED, "the prologue of the node failed",
        "The prologue of the site failed{on}; its command was not started{detail}.", _REPORT)
    EPILOGUE = ("EPILOGUE", Outcome.DONE, "it ended well, but the epilogue of the node failed",
        "Its command ended well, but the epilogue of the site failed{on}{detail}.")
    SERVER_PROLOGUE = ("SERVER_PROLOGUE", Outcome.FAILED, "the prologue of the server failed",
        "The prologue of the server failed; its command was not started{detail}.", _REPORT)
    SERVER_EPILOGUE = ("SERVER_EPILOGUE", Outcome.DONE, "it ended well, but the epilogue of the server failed",
        "Its command ended well, but the epilogue of the server failed{detail}.")
    HOME_MISSING = ("HOME_MISSING", Outcome.FAILED, "the home directory of its user is not on the node",
        "The home directory {home} of its user does not exist{on}: perhaps it is not mounted. Its command was not"
        " started.",
        _REPORT)
    DIRECTORY_MISSING = ("DIRECTORY_MISSING", Outcome.FAILED, "its working directory is not on the node",
        "Its working directory {path} does not exist{on}, or is not a directory. Its command was not started.",
        "Submit it from a directory that the nodes have too, or name one: oarsub -d DIRECTORY")
    DIRECTORY_DENIED = ("DIRECTORY_DENIED", Outcome.FAILED, "its user may not enter its working directory",
        "Its user may not enter its working directory {path}{on}. Its command was not started.",
        "Make every directory of the path accessible (chmod u+x), or name another one: oarsub -d DIRECTORY")
    DIRECTORY_FAILED = ("DIRECTORY_FAILED", Outcome.FAILED,
        "its working directory cannot be entered for another reason",
        "Its working directory {path} could not be entered{on}{detail}. Its command was not started.",
        "Check whether the file server of the directory works, or name another one: oarsub -d DIRECTORY")
    OUTPUT_MISSING = ("OUTPUT_MISSING", Outcome.FAILED, "the directory of an output file does not exist",
        "The directory of its output file {path} does not exist{on}. Its command was not started.",
        f"Make the directory before the job starts. {_OTHER_FILES}")
    OUTPUT_DENIED = ("OUTPUT_DENIED", Outcome.FAILED, "its user may not write an output file",
        "Its user may not write its output file {path}{on}. Its command was not started.",
        f"See who owns the file and its directory (ls -ld). {_OTHER_FILES}")
    OUTPUT_LINK = ("OUTPUT_LINK", Outcome.FAILED,
        "an output file is a symbolic link, and the file behind it cannot be written",
        "Its output file {path} is a symbolic link, and the file behind it cannot be written{on}{to_link}. Its"
        " command was not started.",
        f"Remove the link: rm FILE. {_OTHER_FILES}")
    OUTPUT_FULL = ("OUTPUT_FULL", Outcome.FAILED, "the disk of an output file is full",
        "The disk is full: its output file {path} could not be written{on}. Its command was not started.",
        "Delete files on that disk: see `df`, `df -i`, `quota`. Then oarsub --resubmit {id}")
    OUTPUT_PIPE = ("OUTPUT_PIPE", Outcome.FAILED, "an output file is a pipe without a reader",
        "Its output file {path} is a pipe without a reader{on}, or a device that does not exist. Its command was not"
        " started.",
        f"Start the reader on that node first, or use a file. {_OTHER_FILES}")
    OUTPUT_FAILED = ("OUTPUT_FAILED", Outcome.FAILED, "an output file cannot be opened for another reason",
        "Its output file {path} could not be opened{on}{detail}. Its command was not started.", _OTHER_FILES)
    SHELL_MISSING = ("SHELL_MISSING", Outcome.FAILED, "the login shell of its user is not on the node",
        "The login shell {path} of its user does not exist{on}. Its command was not started.",
        "Ask the administrators to install it there, or choose another login shell: chsh")
    SHELL_FAILED = ("SHELL_FAILED", Outcome.FAILED, "the login shell of its user cannot be executed",
        "The login shell {path} of its user could not be executed{on} ({errno}). Its command was not started.",
        "Ask the administrators what is wrong with it, or choose another login shell: chsh")
    ACCOUNT_UNKNOWN = ("ACCOUNT_UNKNOWN", Outcome.FAILED, "its user is not known on the node",
        "Its user has no account{on} that may run jobs. Its command was not started.", _REPORT)
    LAUNCH_UNKNOWN = ("LAUNCH_UNKNOWN", Outcome.NODE_FAILURE, "it is unknown whether its command was started",
        "It is unknown whether its command was started{on}{detail}.", f"See whether it wrote anything. {_RESUBMIT}")
    NO_RESOURCES = ("NO_RESOURCES", Outcome.FAILED, "it had no resources when it was to start",
        "It had no resources when it was to start.", _REPORT)
    REFUSED = ("REFUSED", Outcome.FAILED, "the scheduler refused it",
        "The scheduler refused it{detail}.", "Request another date or fewer resources.")
    EXPIRED = ("EXPIRED", Outcome.EXPIRED, "it could not start in the time that was set for it",
        "It could not start in the time that was set for it{detail}.", "Submit it again with other dates.")
    UNKNOWN = ("UNKNOWN", Outcome.UNKNOWN, "the cause is unknown",
        "The cause of its end is unknown{detail}.", "oarstat -e -j {id} shows its events.")
    # fmt: on


#: Ends of jobs whose command was not started although nothing was wrong with the job.
LAUNCH_FAILURES = frozenset(
    {
        EndCode.NODE_SETUP,
        EndCode.NODE_DESCRIPTION,
        EndCode.PROLOGUE,
        EndCode.SERVER_PROLOGUE,
        EndCode.HOME_MISSING,
        EndCode.SHELL_MISSING,
        EndCode.SHELL_FAILED,
        EndCode.ACCOUNT_UNKNOWN,
        EndCode.LAUNCH_UNKNOWN,
    }
)


class Cause(NamedTuple):
    """Why a job ended, or why its end was requested. ``data`` is JSON."""

    code: EndCode
    data: Mapping[str, Any] = {}


class CauseText(NamedTuple):
    """The texts of an end cause."""

    sentence: str  #: what happened
    advice: str = ""  #: what its user can do; '' if there is nothing to do


def cause_text(cause: Cause, job_id: int, stderr_file: str = "", copy: int | None = None) -> CauseText:
    """Return the texts of an end cause.

    ``stderr_file``: the file with the error output; ``copy``: the id of the automatic resubmission, None if there is
    none.
    """
    values = _values(cause, job_id, stderr_file)
    sentence, advice = (text.format_map(values).strip() for text in (cause.code.sentence, cause.code.advice))
    data = cause.data
    if data.get("unanswered"):
        sentence += " It did not react to the kill, and OAR gave it up."
    if data.get("starved"):
        sentence += " Before that, the kernel had killed some of its processes because there was not enough memory: "
        sentence += f"{_memory_of(data['starved'])}."
    return CauseText(sentence, f"OAR has submitted it again automatically: job {copy}." if copy else advice)


class _Values(dict[str, object]):
    """Values for the templates; a missing value is shown as ``?``."""

    def __missing__(self, key: str) -> str:
        return "?"


def _values(cause: Cause, job_id: int, stderr_file: str) -> _Values:
    data = cause.data
    values = _Values(data)
    values["id"] = job_id
    values["stderr"] = f"Its error output: {stderr_file}" if stderr_file else ""
    on = data.get("node") or ", ".join(data.get("nodes") or ())
    values["on"] = f" on {on}" if on else ""
    values["detail"] = f": {str(data['text']).removesuffix('.')}" if data.get("text") else ""
    values["to_link"] = f" (it points to {data['link']})" if data.get("link") else ""
    nodes = data.get("nodes")
    names = [str(node) for node in nodes] if isinstance(nodes, list | dict) else []
    values["names"] = _node_names(names) or "A node of it"
    values["was"] = "were" if len(names) > 1 else "was"
    if isinstance(data.get("signal"), int):
        values["signal_name"] = signal_name(data["signal"])
        values["trap_name"] = signal_name(data["signal"]).removeprefix("SIG")
    values["how"] = f"signal {values['signal_name']}" if "signal" in data else f"exit status {values['status']}"
    status = data.get("status")
    if isinstance(status, int) and BY_SIGNAL < status <= BY_SIGNAL + LAST_SIGNAL:
        name = signal_name(status - BY_SIGNAL)
        values["shell_hint"] = f" A shell uses this exit status for a program that was ended by signal {name}."
    else:
        values["shell_hint"] = ""
    match cause.code:
        case EndCode.OUT_OF_MEMORY:
            values |= {"nodes_memory": _memory_of(nodes), "memory_advice": _memory_advice(nodes, job_id)}
        case EndCode.RESERVATION:
            is_frame = bool(data.get("is_frame"))
            values["place"] = "the frame of" if is_frame else "in"
            values["without_reservation"] = "" if is_frame else "Submit it in another one, or without --ar."
        case EndCode.WALLTIME:
            values |= _walltime_values(data, job_id)
    return values


def _node_names(names: list[str]) -> str:
    if not names:
        return ""
    from oar.lib.base.host_names import shorten_host_list

    return shorten_host_list(names)


def _walltime_values(data: Mapping[str, Any], job_id: int) -> dict[str, str]:
    walltime, ran = data.get("walltime"), data.get("ran")
    values = {"ran": format_duration(ran) if isinstance(ran, int) else "?"}
    shown = format_duration(walltime) if isinstance(walltime, int) else "?"
    if data.get("is_rest"):
        values["given"] = f"it had requested none, had the {shown} left of its advance reservation,"
        values["more_time"] = "Submit it sooner in its advance reservation; or make that longer: qralter -e"
        return values
    longer = format_duration(2 * walltime) if isinstance(walltime, int) else "H:M:S"
    values["given"] = f"it had requested {shown}"
    values["more_time"] = (
        f"Request more time: oarsub -l ...,walltime={longer}; or, while it runs: oarwalltime {job_id} +H:M:S"
    )
    return values


def signal_name(number: int) -> str:
    """Return the name of a signal.

    >>> signal_name(11), signal_name(99)
    ('SIGSEGV', '99')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _memory_of(nodes: object) -> str:
    """Return the memory figures of the nodes on which the kernel killed processes."""
    if not isinstance(nodes, dict):
        return "?"
    texts = []
    for node, figures in sorted(nodes.items())[:_MAX_FIGURES]:
        limit = figures.get("limit")
        bound = f"limit {memory_size(limit)}" if limit else "no limit: the node had no free memory"
        texts.append(f"{node} (peak {memory_size(figures.get('peak'))}, {bound})")
    others = sorted(nodes)[_MAX_FIGURES:]
    return "; ".join(texts) + (f"; also on {_node_names(others)}" if others else "")


def _memory_advice(nodes: object, job_id: int) -> str:
    if not isinstance(nodes, dict) or not any(figures.get("limit") for figures in nodes.values()):
        return "Request nodes with more memory (oarsub -p), or whole nodes (oarsub -l /nodes=N)."
    return (
        "A job gets memory in proportion to its cores: request more cores of each node, or"
        f" whole nodes (oarsub -l /nodes=N). oarstat --usage {job_id} shows what it used."
    )


def memory_size(count: int | None) -> str:
    """Return an amount of memory with its unit; return ``?`` if it is unknown.

    >>> memory_size(0), memory_size(1536 << 20), memory_size(None)
    ('0 B', '1.5 GiB', '?')
    """
    if count is None:
        return "?"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def describe_exit(status: int | None) -> str:
    """Return the signal or exit code of a raw wait status; return '' if there is no status.

    >>> describe_exit(256), describe_exit(9), describe_exit(None)
    ('exit code 1', 'signal 9', '')
    """
    if status is None:
        return ""
    return f"signal {status & 0x7F}" if status & 0x7F else f"exit code {status >> 8}"


def format_exit_code(status: int | None) -> str:
    """Return a raw wait status as oarstat shows it; return '' for None.

    Example: ``256 (1,0,0)`` is status (code, signal, core).
    """
    if status is None:
        return ""
    return f"{status} ({status >> 8},{status & 0x7F},{(status >> 7) & 1})"
