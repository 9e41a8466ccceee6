"""Texts for the causes of job ends: what happened, and what the user can do about it.

The texts are templates, filled with the data of the cause (``oar.lib.jobs.end_decision``). Missing data is shown as ``?``:
this makes causes readable that another version stored.
"""

import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

from oar.lib.base.times import format_duration
from oar.lib.jobs.end_codes import EndCode
from oar.lib.jobs.end_decision import LAST_SIGNAL
from oar.lib.jobs.records import Cause

#: A shell whose command was ended by a signal ends with this and the number of the signal.
BY_SIGNAL = 128
#: The memory of so many nodes is told.
_TOLD_FIGURES = 3


class CauseText(NamedTuple):
    """The texts of an end cause."""

    sentence: str  #: what happened
    advice: str = ""  #: what its user can do; '' if there is nothing to do


_RESUBMIT = "Submit it again: oarsub --resubmit {id}"
_JOB_IS_RIGHT = f"The job itself is correct. {_RESUBMIT}"
_REPORT = f"{_JOB_IS_RIGHT} (if it happens again, tell the administrators)"
_OTHER_FILES = "Give other names when you submit it: oarsub -O FILE -E FILE"
_CATCH_SIGNAL = "Let the command catch it (in a shell script: trap 'COMMAND' {trap_name})."

#: Two templates for each cause: what happened, and what to do.
_TEXTS: Mapping[EndCode, tuple[str, str]] = {
    EndCode.SUCCESS: ("Its command ended well (exit status 0).", ""),
    EndCode.EXIT_STATUS: ("Its command ended with exit status {status}.{shell_hint}", "{stderr}"),
    EndCode.NOT_EXECUTABLE: (
        "The shell could not execute the command (exit status 126): it has no permission to be executed, or is no"
        " program.",
        "Make the script executable: chmod +x FILE. {stderr}",
    ),
    EndCode.NOT_FOUND: (
        "The shell did not find the command, or a program in it (exit status 127).",
        "Write its full path, and check that it is installed on the nodes. {stderr}",
    ),
    EndCode.SIGNAL: ("Its command was ended by signal {signal_name}, which OAR did not send.", "{stderr}"),
    EndCode.SIGNAL_SENT: (
        "Its command was ended by signal {signal_name}, which OAR sent as asked{detail}.",
        f"A signal of `oardel -s` goes to the first process of the job. {_CATCH_SIGNAL} {_RESUBMIT}",
    ),
    EndCode.CHECKPOINT_SIGNAL: (
        "Its command was ended by signal {signal_name}, by which OAR asked for a checkpoint: the command did not catch"
        " it.",
        f"{_CATCH_SIGNAL} Or choose the signal that it catches: oarsub --checkpoint SECONDS --signal SIGNAL.",
    ),
    EndCode.CHECKPOINT: ("It ended well after it was asked to write a checkpoint.", "To go on: oarsub --resubmit {id}"),
    EndCode.SESSION_OVER: ("Its interactive session is over.", ""),
    EndCode.SESSION_LOST: (
        "Its interactive session was lost, or no user connected to it{detail}.",
        "Ask for another one: oarsub -I",
    ),
    EndCode.OUT_OF_MEMORY: (
        "The kernel killed some of its processes because there was not enough memory: {nodes_memory}. Its command ended"
        " with {how}.",
        "{memory_advice} {stderr}",
    ),
    EndCode.PROCESS_LIMIT: (
        "It could not start more processes{on}: the limit for its processes was reached. Its command ended with {how}.",
        "Let it start fewer processes or threads, or ask for more cores. {stderr}",
    ),
    EndCode.DISK_FULL: (
        "Its command ended with {how}, and the disk of {path} is full{on}.",
        "Delete files on that disk: see `df`, `quota`. Then oarsub --resubmit {id}",
    ),
    EndCode.WALLTIME: (
        "It reached its walltime: {given} and ran for {ran}.",
        "{more_time}; or let it write checkpoints: oarsub --checkpoint",
    ),
    EndCode.DELETED: ("Its owner {by} deleted it (oardel).", ""),
    EndCode.ADMINISTRATOR: ("The administrator {by} deleted it (oardel).", "Ask the administrators why."),
    EndCode.EVICTED: (
        "It was a besteffort job, and job {for_job} needed its resources.",
        f"{_RESUBMIT}; or submit it with -t besteffort -t idempotent, and OAR submits it again automatically",
    ),
    EndCode.CONTAINER: ("Its container job {container} ended.", "Submit it in another container."),
    EndCode.RESERVATION: (
        "It was {place} the advance reservation {reservation}, which {fate}.",
        "{without_reservation}",
    ),
    EndCode.NODE_TAKEN: ("{names} {was} taken out of service.", _JOB_IS_RIGHT),
    EndCode.SUSPENSION: ("It could not be suspended or resumed{detail}.", _REPORT),
    EndCode.NOT_HEARD: ("The oarsub that waited for it did not answer{detail}.", "Submit it again."),
    EndCode.STOPPED: ("It was killed; the cause is unknown.", _RESUBMIT),
    EndCode.FORCED: ("An administrator ended it without waiting for the clean-up of its nodes{detail}.", ""),
    EndCode.NODE_LOST: ("{names} cannot be reached any more{detail}.", _REPORT),
    EndCode.NODE_REBOOTED: ("{names} {was} rebooted while the job ran there.", _REPORT),
    EndCode.NODE_SHUTDOWN: ("{names} {was} shut down, or rebooted in order, while the job was there.", _JOB_IS_RIGHT),
    EndCode.OAREXEC_LOST: ("The program that ran it (oarexec){on} was killed; the node itself works.", _REPORT),
    EndCode.RESTORED: (
        "How it ended is unknown: the database was restored from a dump while the job ran, and the job had ended before"
        " OAR looked for it{on}. It may have ended well.",
        "Look at its output files. To run it again: oarsub --resubmit {id}",
    ),
    EndCode.AGENT_LOST: (
        "The computer that ran it{on} was switched off, or the agent there ended, while it ran.",
        _JOB_IS_RIGHT,
    ),
    EndCode.STAGING: (
        "What its command needs could not be prepared{on}{detail}. Its command was not started.",
        "See whether the file of --stagein is a whole archive, with relative names only.",
    ),
    EndCode.NODE_SETUP: ("{names} could not be prepared for it{detail}.", _REPORT),
    EndCode.NODE_DESCRIPTION: (
        "The description of its resources does not fit {names}{detail}. Its command was not started.",
        "Tell the administrators: they have to correct that property (oarnodesetting -p). The job itself is correct."
        f" Then: {_RESUBMIT}",
    ),
    EndCode.PROLOGUE: ("The prologue of the site failed{on}; its command was not started{detail}.", _REPORT),
    EndCode.EPILOGUE: ("Its command ended well, but the epilogue of the site failed{on}{detail}.", ""),
    EndCode.SERVER_PROLOGUE: ("The prologue of the server failed; its command was not started{detail}.", _REPORT),
    EndCode.SERVER_EPILOGUE: ("Its command ended well, but the epilogue of the server failed{detail}.", ""),
    EndCode.HOME_MISSING: (
        "The home directory {home} of its user does not exist{on}: perhaps it is not mounted. Its command was not"
        " started.",
        _REPORT,
    ),
    EndCode.DIRECTORY_MISSING: (
        "Its working directory {path} does not exist{on}, or is no directory. Its command was not started.",
        "Submit it from a directory that the nodes have too, or name one: oarsub -d DIRECTORY",
    ),
    EndCode.DIRECTORY_DENIED: (
        "Its user may not enter its working directory {path}{on}. Its command was not started.",
        "Make every directory of the path accessible (chmod u+x), or name another one: oarsub -d DIRECTORY",
    ),
    EndCode.DIRECTORY_FAILED: (
        "Its working directory {path} could not be entered{on}{detail}. Its command was not started.",
        "Check whether the file server of the directory works, or name another one: oarsub -d DIRECTORY",
    ),
    EndCode.OUTPUT_MISSING: (
        "The directory of its output file {path} does not exist{on}. Its command was not started.",
        f"Make the directory before the job starts. {_OTHER_FILES}",
    ),
    EndCode.OUTPUT_DENIED: (
        "Its user may not write its output file {path}{on}. Its command was not started.",
        f"See who owns the file and its directory (ls -ld). {_OTHER_FILES}",
    ),
    EndCode.OUTPUT_LINK: (
        "Its output file {path} is a symbolic link, and the file behind it cannot be written{on}{to_link}. Its command"
        " was not started.",
        f"Remove the link: rm FILE. {_OTHER_FILES}",
    ),
    EndCode.OUTPUT_FULL: (
        "The disk is full: its output file {path} could not be written{on}. Its command was not started.",
        "Delete files on that disk: see `df`, `df -i`, `quota`. Then oarsub --resubmit {id}",
    ),
    EndCode.OUTPUT_PIPE: (
        "Its output file {path} is a pipe without a reader{on}, or a device that does not exist. Its command was not"
        " started.",
        f"Start the reader on that node first, or use a file. {_OTHER_FILES}",
    ),
    EndCode.OUTPUT_FAILED: (
        "Its output file {path} could not be opened{on}{detail}. Its command was not started.",
        _OTHER_FILES,
    ),
    EndCode.SHELL_MISSING: (
        "The login shell {path} of its user does not exist{on}. Its command was not started.",
        "Ask the administrators to install it there, or choose another login shell: chsh",
    ),
    EndCode.SHELL_FAILED: (
        "The login shell {path} of its user could not be executed{on} ({errno}). Its command was not started.",
        "Ask the administrators what is wrong with it, or choose another login shell: chsh",
    ),
    EndCode.ACCOUNT_UNKNOWN: ("Its user has no account{on} that may run jobs. Its command was not started.", _REPORT),
    EndCode.LAUNCH_UNKNOWN: (
        "It is unknown whether its command was started{on}{detail}.",
        f"See whether it wrote anything. {_RESUBMIT}",
    ),
    EndCode.NO_RESOURCES: ("It had no resources when it was to start.", _REPORT),
    EndCode.REFUSED: ("The scheduler refused it{detail}.", "Ask for another date or for less."),
    EndCode.EXPIRED: (
        "It could not start in the time that was set for it{detail}.",
        "Submit it again with other dates.",
    ),
    EndCode.UNKNOWN: ("The cause of its end is unknown{detail}.", "oarstat -e -j {id} shows its events."),
}


def cause_text(cause: Cause, job_id: int, stderr_file: str = "", copy: int | None = None) -> CauseText:
    """Return the texts of an end cause.

    ``stderr_file``: the file with the error output; ``copy``: the id of the automatic resubmission, None if there is
    none.
    """
    values = _values(cause, job_id, stderr_file)
    sentence, advice = (text.format_map(values).strip() for text in _TEXTS[cause.code])
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
    values |= _named(data.get("nodes"))
    if cause.code is EndCode.OUT_OF_MEMORY:
        values |= {"nodes_memory": _memory_of(data.get("nodes")), "memory_advice": _memory_advice(data, job_id)}
    if isinstance(data.get("signal"), int):
        values["signal_name"] = signal_name(data["signal"])
        values["trap_name"] = signal_name(data["signal"]).removeprefix("SIG")
    values["how"] = f"signal {values['signal_name']}" if "signal" in data else f"exit status {values['status']}"
    values["shell_hint"] = _shell_hint(data.get("status"))
    if cause.code is EndCode.RESERVATION:
        is_frame = bool(data.get("is_frame"))
        values["place"] = "the frame of" if is_frame else "in"
        values["without_reservation"] = "" if is_frame else "Submit it in another one, or without --ar."
    if cause.code is EndCode.WALLTIME:
        walltime, ran = data.get("walltime"), data.get("ran")
        values |= {"walltime": _duration(walltime), "ran": _duration(ran)}
        longer = _duration(2 * walltime) if isinstance(walltime, int) else "H:M:S"
        values["given"] = f"it had requested {values['walltime']}"
        values["more_time"] = (
            f"Ask for more time: oarsub -l ...,walltime={longer}; or, while it runs: oarwalltime {job_id} +H:M:S"
        )
        if data.get("is_rest"):
            values["given"] = f"it had requested none, had the {values['walltime']} left of its advance reservation,"
            values["more_time"] = "Submit it sooner in its advance reservation; or make that longer: qralter -e"
    return values


def _named(nodes: object) -> dict[str, str]:
    if not nodes:
        return {"names": "A node of it", "was": "was"}
    from oar.lib.base.host_lists import told

    names = [str(node) for node in nodes] if isinstance(nodes, list | dict) else []
    return {"names": told(names) or "A node of it", "was": "were" if len(names) > 1 else "was"}


def _duration(seconds: object) -> str:
    return format_duration(seconds) if isinstance(seconds, int) else "?"


def _shell_hint(status: object) -> str:
    """Return the meaning of an exit status above 128 of a shell."""
    if not isinstance(status, int) or not BY_SIGNAL < status <= BY_SIGNAL + LAST_SIGNAL:
        return ""
    return f" A shell uses this exit status for a program that was ended by signal {signal_name(status - BY_SIGNAL)}."


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
    first = sorted(nodes.items())[:_TOLD_FIGURES]
    text = "; ".join(f"{node} ({_figures(figures)})" for node, figures in first)
    others = sorted(nodes)[_TOLD_FIGURES:]
    if not others:
        return text
    from oar.lib.base.host_lists import told

    return f"{text}; also on {told(others)}"


def _figures(figures: Mapping[str, int | None]) -> str:
    limit = figures.get("limit")
    bound = f"limit {memory_size(limit)}" if limit else "no limit: the node had no free memory"
    return f"peak {memory_size(figures.get('peak'))}, {bound}"


def _memory_advice(data: Mapping[str, Any], job_id: int) -> str:
    nodes = data.get("nodes")
    limited = isinstance(nodes, dict) and any(figures.get("limit") for figures in nodes.values())
    if not limited:
        return "Ask for nodes with more memory (oarsub -p), or for whole nodes (oarsub -l /nodes=N)."
    return (
        "A job gets memory in proportion to its cores: ask for more cores of each node, or for"
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
