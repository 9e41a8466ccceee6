"""Constants of the protocol between the server and its programs on nodes.

``oar/tools`` has its own constants, since it runs alone on nodes. A test compares both.
"""

from enum import StrEnum
from typing import NamedTuple


class SessionOrder(StrEnum):
    """A request of the server to the session on a node: ``op`` of its messages (``oar/tools/node_session.py``)."""

    LOAD = "load"  #: take the source of a node program
    RUN = "run"  #: carry out a ``NodeAction`` of a node program
    COMMAND = "command"  #: run an argument list
    LINE = "line"  #: pass a line to a program that runs
    CLOSE = "close"  #: end the input of a program that runs
    CANCEL = "cancel"  #: end a program that runs


class NodeAction(StrEnum):
    """An action of a node program."""

    RUN = "run"  #: oarexec: run a job
    CTL = "ctl"  #: oarexec: pass a ``ControlSignal`` to the oarexec of a job
    PROBE = "probe"  #: node_probe: tell what is known of jobs
    SURVEY = "survey"  #: node_probe: tell the jobs that are there
    PING = "ping"  #: node_probe: answer
    CHECK = "check"  #: node_check: carry out each ``NodeCheck`` that the data names
    INIT = "init"  #: job resource manager: prepare the node for a job
    CLEAN = "clean"  #: job resource manager: kill and remove what a job left
    SWEEP = "sweep"  #: job resource manager: remove what belongs to no job
    SUSPEND = "suspend"  #: suspend and resume manager: freeze a job
    RESUME = "resume"  #: suspend and resume manager: thaw it
    WATCH = "watch"  #: node_curves: tell in each period what the jobs there use


class ExecLine(StrEnum):
    """The start of a line from ``oarexec``."""

    INIT = "INIT"  #: the node was prepared first; behind it the exit code of the job resource manager
    READY = "oarexec is initialized and ready to do the job"  #: the whole line: it waits for an ``ExecOrder``
    ALREADY = "ALREADY"  #: another oarexec has the job; behind it the phase of that one
    STALE = "STALE"  #: the whole line: a newer attempt forbids this one
    STARTED = "STARTED"  #: the whole line: the command runs
    FAULT = "REASON"  #: what failed; behind it a ``NodeFault`` as JSON
    END = "OAREXEC_SCRIPT_EXIT_VALUE"  #: the command has ended; behind it its raw wait status, or N


class ExecOrder(StrEnum):
    """The answer of the server to an ``oarexec`` that is ready."""

    GO = "GO"  #: start the command; behind it the number of the attempt
    ABORT = "ABORT"  #: do not start it


class ControlSignal(StrEnum):
    """A signal that ``oarexec ctl`` sends to the oarexec of a job."""

    END = "TERM"  #: end the job
    CHECKPOINT = "USR2"  #: send the signal that asks for a checkpoint to the command
    USER = "URG"  #: send the signal of a user to the command


class ReportAnswer(StrEnum):
    """The answer of the server to an ``oarexec`` that reports the end of its job by TCP."""

    OK = "OK"  #: the end is noted
    GONE = "GONE"  #: nobody waits for it any more
    KO = "KO"  #: it is not believed; it is to be said again
    LATER = "LATER"  #: it is to be said again soon: the database does not know yet that the job was started


class ProbeAnswer(StrEnum):
    """The state of a job according to its head (``oar/tools/node_probe.py``)."""

    NEVER = "never"  #: nothing; with ``fence`` no former attempt will start it any more
    INIT = "init"  #: its oarexec has begun
    READY = "ready"  #: its oarexec waits for an ``ExecOrder``
    STARTED = "started"  #: its oarexec was allowed to start the command
    RUNNING = "running"  #: the command runs
    ABORTED = "aborted"  #: its oarexec gave up before the command was started
    ENDED = "ended"  #: the command has ended
    DIED = "died"  #: its oarexec died after it was allowed to start the command
    SILENT = "silent"  #: made by the server: the head did not answer


#: Exit code of the job resource manager: a property of the job's resources names what the node does not have.
WRONG_DESCRIPTION = 14
#: Exit codes of the job resource manager: NODE_PROLOGUE_FILE, NODE_EPILOGUE_FILE failed or timed out.
PROLOGUE_FAILED, EPILOGUE_FAILED = 20, 21
#: Of how long ago a start or an end may be that a node tells, in seconds: years.
LONGEST_AGO = 999_999_999


class NodeFaultKind(StrEnum):
    """Kind of a fault of a job on a node (``oar/tools/node_faults.py``)."""

    DIRECTORY = "directory"  #: its working directory cannot be entered
    OUTPUT = "output"  #: an output file cannot be opened
    SHELL = "shell"  #: the login shell of its user cannot be executed
    PROCESSES = "processes"  #: it may not have more processes
    FULL = "full"  #: there is no room for what it writes
    SESSION = "session"  #: nobody came for its interactive session
    HOOK = "hook"  #: the hook of the site forbade it


class NodeFault(NamedTuple):
    """The cause of a fault of a job, as its head reports it. '' means that it was not reported."""

    kind: NodeFaultKind
    errno: str = ""  #: name of the error, as ENOENT
    path: str = ""
    link: str = ""  #: what the path points to, if it is a symbolic link
    home: str = ""  #: the home directory of the user, if it is missing
