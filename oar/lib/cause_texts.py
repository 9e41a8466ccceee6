"""Why a job ended, in words: what happened, and what its user can do about it.

The words are templates in a table.  What they name is made of the data of the cause (``oar.lib.causes``); what is not
known is told as ``?``, so that causes of another version can be read too.
"""

import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

from oar.lib.model import Cause
from oar.lib.states import EndCode
from oar.lib.times import format_duration

#: A shell whose command was ended by a signal ends with this and the number of the signal.
BY_SIGNAL = 128
LAST_SIGNAL = 64


class Told(NamedTuple):
    """A cause in words."""

    sentence: str  #: what happened
    advice: str = ""  #: what its user can do; '' if there is nothing to do


_AGAIN = "Submit it again: oarsub --resubmit {id}"
_NOT_ITS_FAULT = f"Nothing is wrong with the job. {_AGAIN}"
_TELL = f"{_NOT_ITS_FAULT} (if it happens again, tell the administrators)"
_OTHER_FILES = "Give other names when you submit it: oarsub -O FILE -E FILE"

#: For each cause: what happened, and what to do.
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
        "Write its whole path, and see that it is installed on the nodes. {stderr}",
    ),
    EndCode.SIGNAL: ("Its command was ended by signal {signal_name}, which OAR did not send.", "{stderr}"),
    EndCode.CHECKPOINT: ("It ended well after it was asked to write a checkpoint.", "To go on: oarsub --resubmit {id}"),
    EndCode.SESSION_OVER: ("Its interactive session is over.", ""),
    EndCode.SESSION_LOST: (
        "Its interactive session was lost, or nobody came for it{detail}.",
        "Ask for another one: oarsub -I",
    ),
    EndCode.OUT_OF_MEMORY: (
        "The kernel killed processes of it for want of memory: {nodes_memory}. Its command ended with {how}.",
        "{memory_advice} {stderr}",
    ),
    EndCode.PROCESS_LIMIT: (
        "It could not start more processes{on}: it has as many as it may have. Its command ended with {how}.",
        "Let it start fewer processes or threads, or ask for more cores. {stderr}",
    ),
    EndCode.DISK_FULL: (
        "Its command ended with {how}, and there is no room left{on} for {path}.",
        "Make room where its files are: see `df`, `quota`. Then oarsub --resubmit {id}",
    ),
    EndCode.WALLTIME: (
        "Its walltime was over: it had asked for {walltime} and ran for {ran}.",
        "Ask for more time: oarsub -l ...,walltime={longer}; or, while it runs: oarwalltime {id} +H:M:S; or let it"
        " write checkpoints: oarsub --checkpoint",
    ),
    EndCode.DELETED: ("Its owner {by} deleted it (oardel).", ""),
    EndCode.ADMINISTRATOR: ("The administrator {by} deleted it (oardel).", "Ask the administrators why."),
    EndCode.EVICTED: (
        "It was besteffort, and job {for_job} needed its resources.",
        f"{_AGAIN}; or submit it with -t besteffort -t idempotent, and it is submitted again by itself",
    ),
    EndCode.CONTAINER: ("The container job {container}, in which it was, ended.", "Submit it in another container."),
    EndCode.NODE_TAKEN: ("{names} was taken out of service.", _NOT_ITS_FAULT),
    EndCode.SUSPENSION: ("It could not be suspended or resumed{detail}.", _TELL),
    EndCode.NOT_HEARD: ("The oarsub that waited for it did not answer{detail}.", "Submit it again."),
    EndCode.STOPPED: ("It was ended before it was over; nothing tells why.", _AGAIN),
    EndCode.FORCED: ("An administrator did not wait for the clean-up of its nodes{detail}.", ""),
    EndCode.NODE_LOST: ("{names} does not answer any more, or was started anew{detail}.", _TELL),
    EndCode.OAREXEC_LOST: ("The program that ran it{on} was killed; the node is well.", _TELL),
    EndCode.NODE_SETUP: ("{names} could not be prepared for it{detail}.", _TELL),
    EndCode.PROLOGUE: ("The prologue of the site failed{on}; its command was not started.", _TELL),
    EndCode.EPILOGUE: ("Its command ended well, but the epilogue of the site failed{on}.", ""),
    EndCode.SERVER_PROLOGUE: ("The prologue of the server failed; its command was not started{detail}.", _TELL),
    EndCode.SERVER_EPILOGUE: ("Its command ended well, but the epilogue of the server failed{detail}.", ""),
    EndCode.HOME_MISSING: (
        "The home directory {home} of its user is not there{on}: perhaps it is not mounted. Its command was not"
        " started.",
        _TELL,
    ),
    EndCode.DIRECTORY_MISSING: (
        "Its working directory {path} does not exist{on}, or is no directory. Its command was not started.",
        "Submit it from a directory that the nodes have too, or name one: oarsub -d DIRECTORY",
    ),
    EndCode.DIRECTORY_DENIED: (
        "Its user may not enter its working directory {path}{on}. Its command was not started.",
        "Allow it (chmod u+x) for each directory on the way, or name another one: oarsub -d DIRECTORY",
    ),
    EndCode.DIRECTORY_FAILED: (
        "Its working directory {path} could not be entered{on}{detail}. Its command was not started.",
        "Look whether the file server of the directory works, or name another one: oarsub -d DIRECTORY",
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
        "Its output file {path} is a symbolic link that leads to no file that can be written{on}{to_link}. Its command"
        " was not started.",
        f"Remove the link: rm FILE. {_OTHER_FILES}",
    ),
    EndCode.OUTPUT_FULL: (
        "There is no room for its output file {path}{on}. Its command was not started.",
        "Make room where the file is: see `df`, `df -i`, `quota`. Then oarsub --resubmit {id}",
    ),
    EndCode.OUTPUT_PIPE: (
        "Its output file {path} is a pipe that nobody reads{on}, or no file that can be written. Its command was not"
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
    EndCode.ACCOUNT_UNKNOWN: ("Its user has no account{on}. Its command was not started.", _TELL),
    EndCode.LAUNCH_UNKNOWN: (
        "Nobody could tell whether its command was started{on}{detail}.",
        f"See whether it wrote anything. {_AGAIN}",
    ),
    EndCode.NO_RESOURCES: ("It was to start without any resource.", _TELL),
    EndCode.REFUSED: ("The scheduler refused it{detail}.", "Ask for another date or for less."),
    EndCode.EXPIRED: ("The time in which it could start was over{detail}.", "Submit it again with other dates."),
    EndCode.UNKNOWN: ("Nothing tells why it ended{detail}.", "oarstat -e -j {id} shows its events."),
}


def tell(cause: Cause, job_id: int, stderr_file: str = "", copy: int | None = None) -> Told:
    """Return the words for why a job ended.

    ``stderr_file``: where its error output is; ``copy``: the job as which it was submitted again by itself.
    """
    values = _values(cause, job_id, stderr_file)
    sentence, advice = (text.format_map(values).strip() for text in _TEXTS[cause.code])
    data = cause.data
    if data.get("unanswered"):
        sentence += " It did not answer to its kill and was given up."
    if data.get("starved"):
        nodes = _memory_of(data["starved"])
        sentence += f" Before, the kernel had killed processes of it for want of memory: {nodes}."
    return Told(sentence, f"It was submitted again by itself: job {copy}." if copy else advice)


class _Values(dict[str, object]):
    """What the templates name."""

    def __missing__(self, key: str) -> str:
        return "?"


def _values(cause: Cause, job_id: int, stderr_file: str) -> _Values:
    data = cause.data
    values = _Values(data)
    values["id"] = job_id
    values["stderr"] = f"Its error output: {stderr_file}" if stderr_file else ""
    values["on"] = f" on {data['node']}" if data.get("node") else ""
    values["detail"] = f": {data['text']}" if data.get("text") else ""
    values["to_link"] = f" (it points to {data['link']})" if data.get("link") else ""
    values["names"] = _names(data.get("nodes"))
    if cause.code is EndCode.OUT_OF_MEMORY:
        values |= {"nodes_memory": _memory_of(data.get("nodes")), "memory_advice": _memory_advice(data, job_id)}
    if isinstance(data.get("signal"), int):
        values["signal_name"] = signal_name(data["signal"])
    values["how"] = f"signal {values['signal_name']}" if "signal" in data else f"exit status {values['status']}"
    values["shell_hint"] = _shell_hint(data.get("status"))
    if cause.code is EndCode.WALLTIME:
        asked, ran = data.get("walltime"), data.get("ran")
        values |= {"walltime": _duration(asked), "ran": _duration(ran)}
        values["longer"] = _duration(2 * asked) if isinstance(asked, int) else "H:M:S"
    return values


def _names(nodes: object) -> str:
    names = sorted(map(str, nodes)) if isinstance(nodes, list | dict) else []
    return ", ".join(names) if names else "A node of it"


def _duration(seconds: object) -> str:
    return format_duration(seconds) if isinstance(seconds, int) else "?"


def _shell_hint(status: object) -> str:
    """Return what shells mean by a status above 128."""
    if not isinstance(status, int) or not BY_SIGNAL < status <= BY_SIGNAL + LAST_SIGNAL:
        return ""
    return f" Shells tell so of a program that was ended by signal {signal_name(status - BY_SIGNAL)}."


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
    """Return what is known of the memory on each node on which the kernel killed processes."""
    if not isinstance(nodes, dict):
        return "?"
    return "; ".join(f"{node} ({_figures(figures)})" for node, figures in sorted(nodes.items()))


def _figures(figures: Mapping[str, int | None]) -> str:
    limit = figures.get("limit")
    bound = f"limit {memory_size(limit)}" if limit else "no limit of its own: the memory of the node was used up"
    return f"peak {memory_size(figures.get('peak'))}, {bound}"


def _memory_advice(data: Mapping[str, Any], job_id: int) -> str:
    nodes = data.get("nodes")
    limited = isinstance(nodes, dict) and any(figures.get("limit") for figures in nodes.values())
    if not limited:
        return "Ask for nodes with more memory (oarsub -p), or for whole nodes (oarsub -l /nodes=N)."
    return (
        "A job has that part of the memory of a node that it has of its cores: ask for more cores of each node, or for"
        f" whole nodes (oarsub -l /nodes=N). oarstat --usage {job_id} shows what it used."
    )


def memory_size(count: int | None) -> str:
    """Return an amount of memory as people write it; ``?`` if it is not known.

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
