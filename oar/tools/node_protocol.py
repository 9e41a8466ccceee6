"""The words and exit codes by which the programs on nodes and the server understand each other.

The server has its own enumerations of them (``oar/lib/remote/protocol.py``, ``ExecCode`` in
``oar/lib/jobs/states.py``), for the programs on nodes travel alone; a test compares both.  Here they are classes of
constants: enumerations would take 2 of the 26 ms in which a session of a user starts.
"""


class ProgramAction:
    """What a program on a node is asked to do."""

    RUN = "run"  #: oarexec: run a job
    CTL = "ctl"  #: oarexec: send a signal to the oarexec of a job
    PROBE = "probe"  #: node_probe: tell what is known of jobs
    SURVEY = "survey"  #: node_probe: tell the jobs that are here, of whom nobody asks
    PING = "ping"  #: node_probe: answer
    CHECK = "check"  #: node_check: carry out the checks of the data
    INIT = "init"  #: job resource manager: prepare the node for a job
    CLEAN = "clean"  #: job resource manager: remove all of a job
    SWEEP = "sweep"  #: job resource manager: remove all of the jobs that may not be here
    SUSPEND = "suspend"  #: suspend manager: freeze a job
    RESUME = "resume"  #: suspend manager: thaw it
    WATCH = "watch"  #: node_curves: tell in each period what the jobs here use


class OarexecPhase:
    """How far oarexec has come with its job: ``phase`` of the state file, in this order."""

    INIT = "init"  #: it holds the lock of the job
    READY = "ready"  #: it waits for the order of the server
    STARTED = "started"  #: the command may have been started
    RUNNING = "running"  #: the command runs
    ENDED = "ended"  #: the command has ended, and the epilogue, too
    ABORTED = "aborted"  #: nothing of the user was started, nor will be


class JobAnswer:
    """What ``node_probe`` answers of a job: a phase, or one of the two that no state file holds."""

    NEVER = "never"  #: nothing of the user was started here
    INIT = OarexecPhase.INIT
    READY = OarexecPhase.READY
    STARTED = OarexecPhase.STARTED
    RUNNING = OarexecPhase.RUNNING
    ABORTED = OarexecPhase.ABORTED
    ENDED = OarexecPhase.ENDED
    DIED = "died"  #: its oarexec died after the command may have been started


class OarexecLine:
    """What oarexec says to the server before it is on its own: the beginning of a line."""

    INIT = "INIT"  #: behind it the exit code of the job resource manager
    READY = "oarexec is initialized and ready to do the job"
    ALREADY = "ALREADY"  #: behind it the phase of the oarexec that has the job
    STALE = "STALE"  #: a newer attempt forbids this one
    STARTED = "STARTED"
    FAULT = "REASON"  #: behind it why something failed, as JSON (``node_faults``)
    END = "OAREXEC_SCRIPT_EXIT_VALUE"  #: behind it the raw wait status, or N


class ServerOrder:
    """What the server answers to an oarexec that is ready."""

    GO = "GO"  #: behind it the number of the attempt
    ABORT = "ABORT"


class EndReceipt:
    """What the server answers to the report of the end of a job."""

    OK = "OK"  #: the end is stored
    GONE = "GONE"  #: nobody waits for it any more
    KO = "KO"  #: the challenge is not that of the job
    LATER = "LATER"  #: the server does not know yet that the job was started


class FaultKind:
    """What of a job failed on this node: ``kind`` of a fault (``node_faults``)."""

    DIRECTORY = "directory"  #: the working directory cannot be entered
    OUTPUT = "output"  #: an output file cannot be opened
    SHELL = "shell"  #: the shell of the user cannot be executed
    PROCESSES = "processes"  #: the job may not have more processes
    FULL = "full"  #: there is no room for what the job writes
    SESSION = "session"  #: nobody came for the interactive session
    HOOK = "hook"  #: the hook of the site forbade the job


class CheckKind:
    """What this node can check by itself: ``kind`` of a check (``node_check``)."""

    ACCOUNT = "account"  #: the account of a user is known
    HOME = "home"  #: the home directory of a user is there
    DISK = "disk"  #: the runtime directory can be written
    CGROUP = "cgroup"  #: a control group can be made and removed
    REACH = "reach"  #: a session of the server works


class OarexecExit:
    """Exit codes of oarexec, and of a session that cannot start it."""

    OK = 0  #: the command has ended
    PROLOGUE = 1  #: prologue failed or timed out
    EPILOGUE = 2  #: epilogue failed or timed out
    KILLED = 3  #: killed on request, or the server did not let it start
    KILLED_EPILOGUE = 4  #: that, and the epilogue failed
    NODE_FILE = 5  #: the files of the job cannot be written
    PID_FILE = 6  #: the files of oarexec or the group of the job cannot be used
    USER_SHELL = 7  #: the user is unknown on this node, or root or oar
    RUNTIME_DIRECTORY = 8  #: the runtime directory cannot be used
    DIRECTORY = 10  #: the launching directory cannot be entered
    DIRECTORY_EPILOGUE = 12  #: that, and the epilogue failed
    OUTPUT = 20  #: stdout or stderr file cannot be opened
    OUTPUT_EPILOGUE = 22  #: that, and the epilogue failed
    DATA = 31  #: the data was not understood
    SESSION_EPILOGUE = 33  #: interactive job over, epilogue failed
    SESSION = 34  #: interactive job over
    STALE = 36  #: a newer attempt forbids this one; nothing was done
    CHECKPOINTED = 40  #: ended, and had been asked for a checkpoint
    CHECKPOINTED_EPILOGUE = 41  #: that, and the epilogue failed
    SIGNALLED = 42  #: ended, and had been sent a signal
    SHUTDOWN = 43  #: ended by the shutdown of this node
    UNEXPECTED = 70  #: an error of oarexec itself


class ManagerExit:
    """Exit codes of the job resource manager and of the other short programs."""

    OK = 0
    DATA = 2  #: a path or a name in the data cannot be used
    ACTION = 3  #: unknown action
    CONTROL_GROUPS = 4  #: the control groups of this node cannot be used
    GROUP = 5  #: the group of the job cannot be made
    REMOVAL = 6  #: processes or the group of the job cannot be removed
    PRIVATE_KEY = 8  #: the private key of the job cannot be written, or this node has no account oar
    KEYS_FILE = 9  #: the file of the public keys may not be used
    PUBLIC_KEY = 10  #: the public key of the job is none
    KEYS_FILE_WRITE = 11  #: the file of the public keys cannot be written
    RUNTIME_DIRECTORY = 13  #: the runtime directory cannot be used, or the key of the job is that of oar
    COMMON_LOCK = 16  #: the lock of all jobs is not free
    USER_LOCK = 17  #: the lock of the user is not free
    KEYS_LOCK = 18  #: the lock of the file of the public keys is not free
    DESCRIPTION = 14  #: a property of the job's resources names what this node does not have
    JOB_FILES = 19  #: the files of the job cannot be written
    PROLOGUE = 20  #: NODE_PROLOGUE_FILE failed or timed out
    EPILOGUE = 21  #: NODE_EPILOGUE_FILE failed or timed out
    INCOMPLETE = 31  #: a key of the data is missing or of another type


class SuspendExit:
    """Exit codes of ``suspend_resume_manager`` that differ from those of the job resource manager."""

    NOT_IN_TIME = 4  #: not all processes of the job obeyed
    NO_JOB = 5  #: the job has no group here
