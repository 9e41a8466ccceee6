"""All stored enumerations, with the values of the database, and the allowed state changes.

The allowed state changes are data in this module only. ``tests/unit/test_states.py`` checks that each state is
reachable and leads to a final state. ``oar.lib.db.schema`` generates CHECK constraints from the values.
"""

from collections.abc import Mapping
from enum import StrEnum


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


class Outcome(StrEnum):
    """How a job ended, in a word for users. Each end cause has one.

    The state tells less: a job that its owner deleted is in state Error, one that failed is Terminated.
    """

    DONE = "done"  #: its command ended well
    FAILED = "failed"  #: its command failed, or could not be started as requested
    TIMEOUT = "timeout"  #: it reached its walltime
    OUT_OF_MEMORY = "out-of-memory"
    CANCELLED = "cancelled"  #: by its owner or an administrator, or with what it depends on
    EVICTED = "evicted"  #: a besteffort job whose resources another job needed
    NODE_FAILURE = "node-failure"  #: nothing was wrong with the job itself
    EXPIRED = "expired"  #: it could not start in time
    UNKNOWN = "unknown"


#: Final states never change.
FINAL = frozenset({JobState.TERMINATED, JobState.ERROR})

#: States in which a job has not been started.
NOT_STARTED = frozenset(
    {JobState.WAITING, JobState.HOLD, JobState.TO_LAUNCH, JobState.TO_ACK_RESERVATION, JobState.TO_ERROR}
)

#: States that limits on waiting jobs count.
LIMITED_WAITING = (JobState.WAITING, JobState.HOLD, JobState.TO_LAUNCH)

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


def states_of(text: str) -> frozenset[JobState]:
    """Return the states that a letter or a name in any case means, none for another text.

    >>> sorted(states_of("L")), sorted(states_of("running")), sorted(states_of("x"))
    ([<JobState.LAUNCHING: 'Launching'>, <JobState.TO_LAUNCH: 'toLaunch'>], [<JobState.RUNNING: 'Running'>], [])
    """
    if len(text) == 1:
        return frozenset(state for state in JobState if STATE_LETTERS[state] == text.upper())
    return frozenset(state for state in JobState if state.lower() == text.lower())


class JobType(StrEnum):
    """The type of a job, ``jobs.job_type``."""

    PASSIVE = "PASSIVE"  #: run a command
    INTERACTIVE = "INTERACTIVE"  #: give a shell


class JobLetter(StrEnum):
    """The kind of a job in its message, ``J=`` in ``jobs.message``."""

    BATCH = "B"  #: it runs a command as soon as it can
    INTERACTIVE = "I"  #: it gives a shell
    RESERVATION = "R"  #: it is an advance reservation, interactive or not


def job_letter(*, is_reservation: bool, is_interactive: bool) -> JobLetter:
    if is_reservation:
        return JobLetter.RESERVATION
    return JobLetter.INTERACTIVE if is_interactive else JobLetter.BATCH


class JobTypeName(StrEnum):
    """Name of a job type (``oarsub -t``) that OAR defines, the first part of ``job_types.type``."""

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
    IDLE_OK = "idle_ok"  #: rules about idle jobs do not concern it
    FIND = "find"  #: value: the plug-in that chooses its resources
    ASSIGN = "assign"  #: value: the plug-in that chooses its start and its resources
    APP = "app"  #: value: the program with web pages that it runs


class Reservation(StrEnum):
    """Whether a job is an advance reservation, ``jobs.reservation``."""

    NONE = "None"  #: it is not
    TO_SCHEDULE = "toSchedule"  #: it is; the scheduler has not answered yet
    SCHEDULED = "Scheduled"  #: it is; the scheduler has answered


class Index(StrEnum):
    """Whether rows that describe a job belong to a live job (``*_index`` columns)."""

    CURRENT = "CURRENT"  #: the job is live
    LOG = "LOG"  #: the job has ended, or the row no longer holds


class Accounted(StrEnum):
    """Whether oaraccounting has accounted a job, ``jobs.accounted``."""

    NO = "NO"
    YES = "YES"
    NA = "NA"  #: nothing to count


class ConsumptionType(StrEnum):
    """Type of the accounted consumption, ``accounting.consumption_type``."""

    ASKED = "ASKED"  #: resources times walltime
    USED = "USED"  #: resources times the time for which they were held


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
    """The condition of a dependency on the required job."""

    OK = "ok"  #: it ended with exit code 0, or none
    NOT_OK = "notok"  #: it ended otherwise
    ANY = "any"  #: it ended
    START = "start"  #: it was started


class JobPriority(StrEnum):
    """The order in which the scheduler considers waiting jobs, ``JOB_PRIORITY``."""

    FIFO = "FIFO"  #: first come, first served
    FAIRSHARE = "FAIRSHARE"  #: those first whose users and projects had little
    MULTIFACTOR = "MULTIFACTOR"  #: by a sum of weighted factors
    CUSTOM = "CUSTOM"  #: a plug-in of the site decides


class Phase(StrEnum):
    """Progress of the launch or the end of a job, ``job_runs.phase`` (docs/design/launch.rst, "Phases")."""

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


class LaunchFault(StrEnum):
    """A kind of fault that makes launches fail on several nodes or for several jobs, ``launch_holds.fault``."""

    ACCOUNT = "ACCOUNT"  #: an account is unknown
    HOME = "HOME"  #: a home directory is missing
    PROLOGUE = "PROLOGUE"  #: the prologue of the site fails
    NODE_SETUP = "NODE_SETUP"  #: nodes cannot be reached or prepared
    SERVER_SCRIPT = "SERVER_SCRIPT"  #: the server prologue fails
    SERVER_EPILOGUE = "SERVER_EPILOGUE"  #: the server epilogue fails; no launch is held for it
    CONFIGURATION = "CONFIGURATION"  #: a program or a file that oar.conf names cannot be used


class ServerRole(StrEnum):
    """Role of a server, ``servers.role``."""

    ACTIVE = "active"  #: holds the server lock
    STANDBY = "standby"  #: waits for the server lock
    FENCED = "fenced"  #: was active when another server took over
    STOPPED = "stopped"


class BudgetCount(StrEnum):
    """What counts against the budget of a project, ``BUDGET_COUNTS``."""

    USE = "use"  #: resource hours that jobs used
    REQUESTS = "requests"  #: also those that live and waiting jobs request


class ProjectMode(StrEnum):
    """Which projects a job may have, ``PROJECTS``."""

    FREE = "free"  #: any text
    KNOWN = "known"  #: projects that exist and are open
    MEMBERS = "members"  #: of these, the projects of its user
