"""Every enumeration that is stored, spelt as in the database, and which state may follow which.

The moves are data: code asks the tables, nobody else knows them.  ``tests/unit/test_states.py`` checks that each state
is reachable and that each leads to an end.  ``oar.lib.db.schema.schema`` makes CHECK constraints of the words.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum


class JobState(StrEnum):
    """State of a job, ``jobs.state``."""

    WAITING = "Waiting"  #: in the queue; the scheduler has not started it
    HOLD = "Hold"  #: not to be scheduled until oarresume
    TO_LAUNCH = "toLaunch"  #: has its resources; a bipbip will take it
    TO_ERROR = "toError"  #: the scheduler gave it up; its submitter is still to be told
    TO_ACK_RESERVATION = "toAckReservation"  #: reservation accepted; its submitter is still to be told
    LAUNCHING = "Launching"  #: a bipbip prepares the nodes
    RUNNING = "Running"  #: the command may run
    SUSPENDED = "Suspended"  #: all its processes are frozen
    RESUMING = "Resuming"  #: to be thawed as soon as its resources are free
    FINISHING = "Finishing"  #: the command is over; nodes are being cleaned
    TERMINATED = "Terminated"  #: ended; the exit code tells how (final)
    ERROR = "Error"  #: killed, or could not run (final)


#: Final states never change.
FINAL = frozenset({JobState.TERMINATED, JobState.ERROR})

#: States in which a job has not been started.
NOT_STARTED = frozenset(
    {JobState.WAITING, JobState.HOLD, JobState.TO_LAUNCH, JobState.TO_ACK_RESERVATION, JobState.TO_ERROR}
)

#: States in which a job holds its assigned resources.
CURRENT = frozenset(
    {
        JobState.TO_LAUNCH,
        JobState.LAUNCHING,
        JobState.RUNNING,
        JobState.SUSPENDED,
        JobState.RESUMING,
        JobState.FINISHING,
    }
)

#: From each state, the states a job may move to.  Nothing else is legal.
JOB_MOVES: Mapping[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset(
        {JobState.HOLD, JobState.TO_ACK_RESERVATION, JobState.TO_ERROR, JobState.TO_LAUNCH, JobState.ERROR}
    ),
    JobState.HOLD: frozenset({JobState.WAITING, JobState.ERROR}),
    JobState.TO_ACK_RESERVATION: frozenset({JobState.WAITING, JobState.ERROR}),
    JobState.TO_ERROR: frozenset({JobState.ERROR}),
    JobState.TO_LAUNCH: frozenset({JobState.LAUNCHING, JobState.WAITING, JobState.ERROR, JobState.FINISHING}),
    JobState.LAUNCHING: frozenset({JobState.RUNNING, JobState.ERROR, JobState.FINISHING}),
    JobState.RUNNING: frozenset({JobState.SUSPENDED, JobState.FINISHING}),
    JobState.SUSPENDED: frozenset({JobState.RESUMING, JobState.FINISHING}),
    JobState.RESUMING: frozenset({JobState.RUNNING, JobState.SUSPENDED, JobState.FINISHING}),
    JobState.FINISHING: frozenset({JobState.TERMINATED, JobState.ERROR}),
    JobState.TERMINATED: frozenset(),
    JobState.ERROR: frozenset(),
}


def may_become(state: JobState) -> frozenset[JobState]:
    """Return the states from which a job may move to ``state``."""
    return frozenset(source for source, targets in JOB_MOVES.items() if state in targets)


#: The letter of a state in oarstat's tables.
STATE_LETTERS: Mapping[JobState, str] = {
    JobState.WAITING: "W",
    JobState.HOLD: "H",
    JobState.TO_ACK_RESERVATION: "W",
    JobState.TO_LAUNCH: "L",
    JobState.LAUNCHING: "L",
    JobState.RUNNING: "R",
    JobState.SUSPENDED: "S",
    JobState.RESUMING: "S",
    JobState.FINISHING: "F",
    JobState.TO_ERROR: "E",
    JobState.ERROR: "E",
    JobState.TERMINATED: "T",
}


class JobType(StrEnum):
    """What the submitter wants, ``jobs.job_type``."""

    PASSIVE = "PASSIVE"  #: run a command
    INTERACTIVE = "INTERACTIVE"  #: give a shell


class JobLetter(StrEnum):
    """How the message of a job tells what it is, ``J=`` in ``jobs.message``."""

    BATCH = "B"  #: it runs a command as soon as it can
    INTERACTIVE = "I"  #: it gives a shell
    RESERVATION = "R"  #: it is an advance reservation, interactive or not


def job_letter(*, is_reservation: bool, is_interactive: bool) -> JobLetter:
    """Return the letter of a job."""
    if is_reservation:
        return JobLetter.RESERVATION
    return JobLetter.INTERACTIVE if is_interactive else JobLetter.BATCH


class JobTypeName(StrEnum):
    """Name of a type of jobs (``oarsub -t``) that OAR itself knows, the first part of ``job_types.type``."""

    BESTEFFORT = "besteffort"  #: it may be killed when other jobs need its resources
    IDEMPOTENT = "idempotent"  #: it may be run again; value: how often at most
    TIMESHARING = "timesharing"  #: it shares its resources; value: with which users, with which names
    CONTAINER = "container"  #: other jobs run inside it; value: its name
    CONTAINER_USERS = "container_users"  #: value: whose jobs may run inside it
    INNER = "inner"  #: it runs inside a container; value: number or name of the container
    PLACEHOLDER = "placeholder"  #: it keeps resources for others; value: a name
    ALLOWED = "allowed"  #: it may use the resources of placeholders; value: their name
    DEPLOY = "deploy"  #: it installs its nodes itself; its command runs on a frontend
    COSYSTEM = "cosystem"  #: another system uses its nodes; its command runs on a frontend
    NOOP = "noop"  #: it books resources and runs nothing
    DESKTOP_COMPUTING = "desktop_computing"  #: it runs on machines that are not reached from the server
    AR = "ar"  #: value ``hard``: a reservation that never starts with fewer resources
    POSTPONE = "postpone"  #: value: it does not start before this date
    DEADLINE = "deadline"  #: value: it has to end before this date
    EXPIRE = "expire"  #: value: it has to start before this date
    TOKEN = "token"  #: value: which tokens of the site it needs, and how many
    STATE = "state"  #: value ``permissive``: it may be planned on resources that are not alive
    WALLTIME = "walltime"  #: value ``best``: its walltime may grow
    CHECKPOINT = "checkpoint"  #: it can write a checkpoint
    NICE = "nice"  #: value: how much it steps back in the order of jobs
    QOS = "qos"  #: value: how much it is preferred in the order of jobs
    NO_QUOTAS = "no_quotas"  #: it does not count in quotas
    FIND = "find"  #: value: the plug-in that chooses its resources
    ASSIGN = "assign"  #: value: the plug-in that chooses its start and its resources


class Reservation(StrEnum):
    """Whether a job is an advance reservation, ``jobs.reservation``."""

    NONE = "None"  #: it is not
    TO_SCHEDULE = "toSchedule"  #: it is; the scheduler has not answered yet
    SCHEDULED = "Scheduled"  #: it is; the scheduler has answered


class Index(StrEnum):
    """Whether rows that describe a job are those of a live one (``*_index`` columns)."""

    CURRENT = "CURRENT"  #: the job is live
    LOG = "LOG"  #: the job has ended, or the row no longer holds


class Accounted(StrEnum):
    """Whether oaraccounting has counted a job, ``jobs.accounted``."""

    NO = "NO"
    YES = "YES"
    NA = "NA"  #: nothing to count


class ConsumptionType(StrEnum):
    """What is counted of the consumption of jobs, ``accounting.consumption_type``."""

    ASKED = "ASKED"  #: resources times walltime
    USED = "USED"  #: resources times the time for which they were held


class ResourceState(StrEnum):
    """State of a resource, ``resources.state``."""

    ALIVE = "Alive"  #: may run jobs
    ABSENT = "Absent"  #: switched off, asleep or in maintenance
    SUSPECTED = "Suspected"  #: something went wrong on it
    DEAD = "Dead"  #: no longer part of the cluster


#: ``resources.next_state``: the value that means that no change is asked.
UNCHANGED = "UnChanged"

#: ``resources.state_num``, written with each state.
STATE_NUMBERS: Mapping[ResourceState, int] = {
    ResourceState.ALIVE: 1,
    ResourceState.ABSENT: 2,
    ResourceState.SUSPECTED: 3,
    ResourceState.DEAD: 4,
}

#: Codes of ``resources.available_upto`` that are not dates.
NEVER_HALTED_NOR_WOKEN = 0
HALTED_NEVER_WOKEN = 1
STANDBY_FOR_EVER = 2147483646
ALWAYS_AVAILABLE = 2147483647


class KillState(StrEnum):
    """Progress of a kill request, ``frag_jobs.frag_state``."""

    LEON = "LEON"  #: Leon must send the kill
    TIMER_ARMED = "TIMER_ARMED"  #: sent; Sarko watches the time
    LEON_EXTERMINATE = "LEON_EXTERMINATE"  #: no answer; Leon must end the job in the database
    FRAGGED = "FRAGGED"  #: over


class QueueState(StrEnum):
    """Whether a queue is scheduled, ``queues.state``."""

    ACTIVE = "Active"
    NOT_ACTIVE = "notActive"
    ORPHANED = "orphaned"  #: removed; it stays until the last of its advance reservations is over


class DependencyCondition(StrEnum):
    """What a dependency requires of the other job."""

    OK = "ok"  #: it ended with exit code 0, or none
    NOT_OK = "notok"  #: it ended otherwise
    ANY = "any"  #: it ended
    START = "start"  #: it was started


class JobPriority(StrEnum):
    """The order in which waiting jobs are tried, ``JOB_PRIORITY``."""

    FIFO = "FIFO"  #: first come, first served
    FAIRSHARE = "FAIRSHARE"  #: those first whose users and projects had little
    MULTIFACTOR = "MULTIFACTOR"  #: by a sum of weighted factors
    CUSTOM = "CUSTOM"  #: a plug-in of the site decides


class Phase(StrEnum):
    """How far a bipbip has come with a job, ``job_runs.phase`` (docs/design/launch.rst, "Phases")."""

    CLAIMED = "CLAIMED"  #: Launching; nodes not yet prepared
    NODES_OK = "NODES_OK"  #: job resource manager and ping check are done
    PROLOGUE_OK = "PROLOGUE_OK"  #: the server prologue is done
    EXEC_SENT = "EXEC_SENT"  #: oarexec may have been started: only the node knows
    GO = "GO"  #: Running; the command may have been started: only the node knows
    STARTED = "STARTED"  #: the node said that the command runs
    FAILED = "FAILED"  #: the launch was given up; its event is written
    REPORTED = "REPORTED"  #: the end is known
    EXTERMINATE = "EXTERMINATE"  #: Leon ended the job in the database
    EPILOGUE_OK = "EPILOGUE_OK"  #: the server epilogue is done
    CLEANED = "CLEANED"  #: the nodes are cleaned


class EventType(StrEnum):
    """What happened, ``event_logs.type``; ``SIGNAL_<n>`` is made by ``signal_event``."""

    PING_CHECKER_NODE_SUSPECTED = "PING_CHECKER_NODE_SUSPECTED"
    PING_CHECKER_NODE_SUSPECTED_END_JOB = "PING_CHECKER_NODE_SUSPECTED_END_JOB"
    PROLOGUE_ERROR = "PROLOGUE_ERROR"
    EPILOGUE_ERROR = "EPILOGUE_ERROR"
    CANNOT_CREATE_TMP_DIRECTORY = "CANNOT_CREATE_TMP_DIRECTORY"
    CAN_NOT_WRITE_NODE_FILE = "CAN_NOT_WRITE_NODE_FILE"
    CAN_NOT_WRITE_PID_FILE = "CAN_NOT_WRITE_PID_FILE"
    USER_SHELL = "USER_SHELL"
    EXIT_VALUE_OAREXEC = "EXIT_VALUE_OAREXEC"
    OAREXEC_DIED = "OAREXEC_DIED"
    NODE_REBOOTED = "NODE_REBOOTED"
    NODE_SHUTDOWN = "NODE_SHUTDOWN"
    NODE_LOST = "NODE_LOST"
    SEND_KILL_JOB = "SEND_KILL_JOB"
    LEON_KILL_BIPBIP_TIMEOUT = "LEON_KILL_BIPBIP_TIMEOUT"
    EXTERMINATE_JOB = "EXTERMINATE_JOB"
    WORKING_DIRECTORY = "WORKING_DIRECTORY"
    OUTPUT_FILES = "OUTPUT_FILES"
    HOME_MISSING = "HOME_MISSING"
    CANNOT_NOTIFY_OARSUB = "CANNOT_NOTIFY_OARSUB"
    LOST_SESSION = "LOST_SESSION"
    WALLTIME = "WALLTIME"
    SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION = "SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION"
    REDUCE_RESERVATION_WALLTIME = "REDUCE_RESERVATION_WALLTIME"
    GET_RESOURCES_BACK_FOR_RESERVATION = "GET_RESOURCES_BACK_FOR_RESERVATION"
    UNABLE_TO_GET_RESOURCE_BACK_FOR_RESERVATION = "UNABLE_TO_GET_RESOURCE_BACK_FOR_RESERVATION"
    RESERVATION_NO_NODE = "RESERVATION_NO_NODE"
    BESTEFFORT_KILL = "BESTEFFORT_KILL"
    FRAG_JOB_REQUEST = "FRAG_JOB_REQUEST"
    CHECKPOINT = "CHECKPOINT"
    CHECKPOINT_ERROR = "CHECKPOINT_ERROR"
    CHECKPOINT_SUCCESS = "CHECKPOINT_SUCCESS"
    CHECKPOINT_TIMEOUT = "CHECKPOINT_TIMEOUT"
    SIG_SUCCESS = "SIG_SUCCESS"
    SIG_ERROR = "SIG_ERROR"
    SERVER_PROLOGUE_TIMEOUT = "SERVER_PROLOGUE_TIMEOUT"
    SERVER_PROLOGUE_EXIT_CODE_ERROR = "SERVER_PROLOGUE_EXIT_CODE_ERROR"
    SERVER_PROLOGUE_ERROR = "SERVER_PROLOGUE_ERROR"
    SERVER_EPILOGUE_TIMEOUT = "SERVER_EPILOGUE_TIMEOUT"
    SERVER_EPILOGUE_EXIT_CODE_ERROR = "SERVER_EPILOGUE_EXIT_CODE_ERROR"
    SERVER_EPILOGUE_ERROR = "SERVER_EPILOGUE_ERROR"
    CPUSET_ERROR = "CPUSET_ERROR"
    CPUSET_PROPERTY_ERROR = "CPUSET_PROPERTY_ERROR"
    CPUSET_CLEAN_ERROR = "CPUSET_CLEAN_ERROR"
    CPUSET_MANAGER_FILE = "CPUSET_MANAGER_FILE"
    SUSPEND_RESUME_MANAGER_FILE = "SUSPEND_RESUME_MANAGER_FILE"
    SUSPEND_ERROR = "SUSPEND_ERROR"
    RESUME_ERROR = "RESUME_ERROR"
    SUSPEND_SCRIPT_ERROR = "SUSPEND_SCRIPT_ERROR"
    RESUME_SCRIPT_ERROR = "RESUME_SCRIPT_ERROR"
    HOLD_WAITING_JOB = "HOLD_WAITING_JOB"
    HOLD_RUNNING_JOB = "HOLD_RUNNING_JOB"
    RESUME_JOB = "RESUME_JOB"
    MAIL_NOTIFICATION_ERROR = "MAIL_NOTIFICATION_ERROR"
    USER_MAIL_NOTIFICATION = "USER_MAIL_NOTIFICATION"
    USER_EXEC_NOTIFICATION = "USER_EXEC_NOTIFICATION"
    USER_EXEC_NOTIFICATION_ERROR = "USER_EXEC_NOTIFICATION_ERROR"
    BIPBIP_BAD_JOBID = "BIPBIP_BAD_JOBID"
    BIPBIP_CHALLENGE = "BIPBIP_CHALLENGE"
    RESUBMIT_JOB_AUTOMATICALLY = "RESUBMIT_JOB_AUTOMATICALLY"
    RESUBMIT_JOB_AUTOMATICALLY_CANCELLED = "RESUBMIT_JOB_AUTOMATICALLY_CANCELLED"
    SSH_TRANSFER_TIMEOUT = "SSH_TRANSFER_TIMEOUT"
    BAD_HASHTABLE_DUMP = "BAD_HASHTABLE_DUMP"
    LAUNCHING_OAREXEC_TIMEOUT = "LAUNCHING_OAREXEC_TIMEOUT"
    #: oar.conf makes every launch fail: no job is started; open until it is repaired.
    LAUNCH_CONFIGURATION_ERROR = "LAUNCH_CONFIGURATION_ERROR"
    LAUNCHES_RESUMED = "LAUNCHES_RESUMED"
    JOB_RECOVERED = "JOB_RECOVERED"
    STOP_SIGNAL_RECEIVED = "STOP_SIGNAL_RECEIVED"
    ADD_BESTEFFORT_JOB_TYPE = "ADD_BESTEFFORT_JOB_TYPE"
    DELETE_BESTEFFORT_JOB_TYPE = "DELETE_BESTEFFORT_JOB_TYPE"
    SUBMISSION_REFUSED = "SUBMISSION_REFUSED"
    #: Why an admission rule failed, for administrators; the server logs it.
    ADMISSION_RULE_FAILED = "ADMISSION_RULE_FAILED"
    #: The administrators were mailed about a fault, which the description names: not again within a day.
    FAULT_MAILED = "FAULT_MAILED"
    ADM_RULES_MSG_OUT = "ADM_RULES_MSG_OUT"
    ADM_RULES_MSG_ERR = "ADM_RULES_MSG_ERR"
    SWITCH_INTO_TERMINATE_STATE = "SWITCH_INTO_TERMINATE_STATE"
    SWITCH_INTO_ERROR_STATE = "SWITCH_INTO_ERROR_STATE"
    FORCE_TERMINATE_FINISHING_JOB = "FORCE_TERMINATE_FINISHING_JOB"
    LOG_SUSPECTED = "LOG_SUSPECTED"
    LAUNCHES_HELD = "LAUNCHES_HELD"
    FINAUD_ERROR = "FINAUD_ERROR"
    FINAUD_RECOVER = "FINAUD_RECOVER"
    #: A node was cleaned and may be Alive; written by the Runner to be checked, consumed by NodeChangeState.
    NODE_SWEPT = "NODE_SWEPT"
    #: A node said that it goes: its jobs are not to be ended; written to be checked, consumed by NodeChangeState.
    NODE_LEAVES = "NODE_LEAVES"
    #: A node is to be asked for jobs that the restored database does not know as running; open until it was.
    NODE_SURVEY = "NODE_SURVEY"
    JOB_RECOGNISED = "JOB_RECOGNISED"
    STAGEOUT_ERROR = "STAGEOUT_ERROR"
    NODE_IS_BACK = "NODE_IS_BACK"
    HALT_NODE = "HALT_NODE"
    WAKEUP_NODE = "WAKEUP_NODE"
    DATABASE_RESTORED = "DATABASE_RESTORED"
    DATABASE_PURGED = "DATABASE_PURGED"
    MAINTENANCE_BEGUN = "MAINTENANCE_BEGUN"
    MAINTENANCE_ENDED = "MAINTENANCE_ENDED"
    STATE_REQUESTED = "STATE_REQUESTED"
    DRAIN_BEGUN = "DRAIN_BEGUN"
    DRAIN_ENDED = "DRAIN_ENDED"
    SCHEDULER_PRIORITY_UPDATED_START = "SCHEDULER_PRIORITY_UPDATED_START"
    SCHEDULER_PRIORITY_UPDATED_STOP = "SCHEDULER_PRIORITY_UPDATED_STOP"
    CONDITION_TOO_SLOW = "CONDITION_TOO_SLOW"
    WALLTIME_REQUEST = "WALLTIME_REQUEST"
    WALLTIME_REQUEST_CANCELLATION = "WALLTIME_REQUEST_CANCELLATION"
    WALLTIME_CHANGED = "WALLTIME_CHANGED"
    ALTER = "ALTER"


class LaunchFault(StrEnum):
    """A fault that makes launches fail, whatever the job and the node, ``launch_holds.fault``."""

    ACCOUNT = "ACCOUNT"  #: an account is unknown
    HOME = "HOME"  #: a home directory is missing
    PROLOGUE = "PROLOGUE"  #: the prologue of the site fails
    NODE_SETUP = "NODE_SETUP"  #: nodes cannot be reached or prepared
    SERVER_SCRIPT = "SERVER_SCRIPT"  #: the server prologue fails
    SERVER_EPILOGUE = "SERVER_EPILOGUE"  #: the server epilogue fails; no launch is held for it
    CONFIGURATION = "CONFIGURATION"  #: a program or a file that oar.conf names cannot be used


class NodeCheck(StrEnum):
    """What a node checks by itself (``oar/tools/node_check.py``), ``state_reasons.node_check``."""

    ACCOUNT = "account"  #: the account of a user is known
    HOME = "home"  #: the home directory of a user is there
    DISK = "disk"  #: the runtime directory can be written
    CGROUP = "cgroup"  #: a control group can be made and removed
    REACH = "reach"  #: a session of the server works


#: Spellings of OAR 2.5 that an older database may hold.
OLD_EVENT_NAMES: Mapping[str, EventType] = {
    "CHECKPOINT_SUCCESSFULL": EventType.CHECKPOINT_SUCCESS,
    "CANNOT_WRITE_NODE_FILE": EventType.CAN_NOT_WRITE_NODE_FILE,
    "CANNOT_WRITE_PID_FILE": EventType.CAN_NOT_WRITE_PID_FILE,
}


def signal_event(number: int) -> str:
    """Return the type of the event that asks for a user's signal (oardel -s)."""
    return f"SIGNAL_{number}"


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


class EndCode(StrEnum):
    """Why a job ended, ``job_ends.code``."""

    SUCCESS = "SUCCESS"  #: its command ended with exit status 0
    EXIT_STATUS = "EXIT_STATUS"  #: its command ended with another exit status
    NOT_EXECUTABLE = "NOT_EXECUTABLE"  #: exit status 126: its command is not executable
    NOT_FOUND = "NOT_FOUND"  #: exit status 127: its command was not found
    SIGNAL = "SIGNAL"  #: its command was ended by a signal that OAR did not send
    SIGNAL_SENT = "SIGNAL_SENT"  #: its command was ended by a signal that a user had OAR send
    CHECKPOINT_SIGNAL = "CHECKPOINT_SIGNAL"  #: its command was ended by the signal that asks for a checkpoint
    CHECKPOINT = "CHECKPOINT"  #: it ended well after it was asked to write a checkpoint
    SESSION_OVER = "SESSION_OVER"  #: the session of an interactive job is over
    SESSION_LOST = "SESSION_LOST"  #: the session of an interactive job was lost, or no user connected to it
    OUT_OF_MEMORY = "OUT_OF_MEMORY"  #: the kernel killed some of its processes because there was not enough memory
    PROCESS_LIMIT = "PROCESS_LIMIT"  #: it could not start more processes
    DISK_FULL = "DISK_FULL"  #: it failed, and the disk of its output is full
    WALLTIME = "WALLTIME"  #: it reached its walltime
    DELETED = "DELETED"  #: its owner deleted it
    ADMINISTRATOR = "ADMINISTRATOR"  #: an administrator deleted it
    EVICTED = "EVICTED"  #: it was besteffort, and another job needed its resources
    CONTAINER = "CONTAINER"  #: its container job ended
    RESERVATION = "RESERVATION"  #: the advance reservation that it was in ended, or was deleted
    NODE_TAKEN = "NODE_TAKEN"  #: a node of it was taken out of service
    SUSPENSION = "SUSPENSION"  #: it could not be suspended or resumed
    NOT_HEARD = "NOT_HEARD"  #: the oarsub that waited for it did not answer
    STOPPED = "STOPPED"  #: it was killed; the cause is unknown
    FORCED = "FORCED"  #: an administrator ended it without waiting for the clean-up of its nodes
    NODE_LOST = "NODE_LOST"  #: a node of it cannot be reached any more
    NODE_REBOOTED = "NODE_REBOOTED"  #: its node was rebooted while it ran
    NODE_SHUTDOWN = "NODE_SHUTDOWN"  #: its node was shut down, or rebooted in order, while it ran
    OAREXEC_LOST = "OAREXEC_LOST"  #: the program that ran it (oarexec) was killed on its node
    RESTORED = "RESTORED"  #: it ended while nobody recorded it: the database was restored from a dump
    AGENT_LOST = "AGENT_LOST"  #: its desktop computer, or the agent there, ended while it ran
    STAGING = "STAGING"  #: a desktop computer could not prepare what its command needs
    NODE_SETUP = "NODE_SETUP"  #: a node of it could not be prepared
    NODE_DESCRIPTION = "NODE_DESCRIPTION"  #: a property of its resources names what a node does not have
    PROLOGUE = "PROLOGUE"  #: the prologue of the node failed
    EPILOGUE = "EPILOGUE"  #: it ended well, but the epilogue of the node failed
    SERVER_PROLOGUE = "SERVER_PROLOGUE"  #: the prologue of the server failed
    SERVER_EPILOGUE = "SERVER_EPILOGUE"  #: it ended well, but the epilogue of the server failed
    HOME_MISSING = "HOME_MISSING"  #: the home directory of its user is not on the node
    DIRECTORY_MISSING = "DIRECTORY_MISSING"  #: its working directory is not on the node
    DIRECTORY_DENIED = "DIRECTORY_DENIED"  #: its user may not enter its working directory
    DIRECTORY_FAILED = "DIRECTORY_FAILED"  #: its working directory cannot be entered for another reason
    OUTPUT_MISSING = "OUTPUT_MISSING"  #: the directory of an output file does not exist
    OUTPUT_DENIED = "OUTPUT_DENIED"  #: its user may not write an output file
    OUTPUT_LINK = "OUTPUT_LINK"  #: an output file is a symbolic link, and the file behind it cannot be written
    OUTPUT_FULL = "OUTPUT_FULL"  #: the disk of an output file is full
    OUTPUT_PIPE = "OUTPUT_PIPE"  #: an output file is a pipe without a reader
    OUTPUT_FAILED = "OUTPUT_FAILED"  #: an output file cannot be opened for another reason
    SHELL_MISSING = "SHELL_MISSING"  #: the login shell of its user is not on the node
    SHELL_FAILED = "SHELL_FAILED"  #: the login shell of its user cannot be executed
    ACCOUNT_UNKNOWN = "ACCOUNT_UNKNOWN"  #: its user is not known on the node
    LAUNCH_UNKNOWN = "LAUNCH_UNKNOWN"  #: it is unknown whether its command was started
    NO_RESOURCES = "NO_RESOURCES"  #: it had no resources when it was to start
    REFUSED = "REFUSED"  #: the scheduler refused it
    EXPIRED = "EXPIRED"  #: it could not start in the time that was set for it
    UNKNOWN = "UNKNOWN"  #: the cause is unknown


class ReasonCode(StrEnum):
    """Why a job does not start now, ``job_reasons.code``; also what it waited for, ``job_waits.code``."""

    IMPOSSIBLE = "IMPOSSIBLE"  #: the cluster has no such resources
    CONDITION = "CONDITION"  #: a condition of its request cannot be evaluated, or takes too much time
    NOT_ALIVE = "NOT_ALIVE"  #: the cluster has them, but they are not Alive
    BUSY = "BUSY"  #: other jobs use them
    RESERVATION = "RESERVATION"  #: reservations have them
    ADVANCE = "ADVANCE"  #: it is in an advance reservation in which it cannot start now
    RESERVED = "RESERVED"  #: it is a reservation that waits for its own date
    NO_SLOT = "NO_SLOT"  #: its resources are never free for long enough
    QUOTA = "QUOTA"  #: with it, a quota would be exceeded
    DEPENDENCY = "DEPENDENCY"  #: another job must end or start first
    CONTAINER = "CONTAINER"  #: its container is not planned yet, has no free resources, or is too small
    POSTPONED = "POSTPONED"  #: its user has set a later date
    DEADLINE = "DEADLINE"  #: it would end after its deadline
    TOKEN = "TOKEN"  #: there are too few tokens of the site, or their number is unknown
    ARRAY = "ARRAY"  #: as many jobs of its array run as are allowed at a time
    LIMIT = "LIMIT"  #: a limit of the round was reached before its turn
    LAUNCH = "LAUNCH"  #: its resources are free, but not ready yet
    EXTERNAL = "EXTERNAL"  #: a scheduler of the site plans it
    QUEUE = "QUEUE"  #: its queue is stopped
    HOLD = "HOLD"  #: it is on hold
    FAULT = "FAULT"  #: launches are held because of a fault that is no job's
    INTERNAL = "INTERNAL"  #: the scheduler failed for this job: see its log


_REASON_CODES: Mapping[str, ReasonCode] = {str(code): code for code in ReasonCode}


def reason_code(stored: str) -> ReasonCode | str:
    """Return a code as a ``ReasonCode``; unchanged if it is one of another version."""
    return _REASON_CODES.get(stored, stored)


class RoundLimit(StrEnum):
    """Which limit of a round kept a job from being planned, ``limit`` in the data of ``ReasonCode.LIMIT``."""

    JOBS = "jobs"  #: so many jobs are planned in a round
    TIME = "time"  #: the time of the round was over
    USER = "user"  #: so many jobs of each user are planned in a queue
    ORDER = "order"  #: its queue does not go past the first job that waits
    DEPTH = "depth"  #: its queue plans starts for so many jobs that wait


class WaitStage(StrEnum):
    """A part of the time before a start for which no round gives a reason, ``job_waits.code`` beside ``ReasonCode``."""

    NEW = "NEW"  #: no round had looked at the job
    STARTING = "STARTING"  #: its nodes were prepared
