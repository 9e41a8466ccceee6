"""Immutable records of the stored rows, with field names in the terms of the domain instead of column names.

Dates are in seconds since the epoch, 0 if there is none; durations are in seconds. The records that user commands load
are named tuples: frozen dataclasses take six times as long to define and four times as long to create.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from oar.lib.jobs.states import (
    FINAL,
    NOT_STARTED,
    Accounted,
    JobState,
    JobType,
    KillState,
    LaunchFault,
    Outcome,
    Phase,
    QueueState,
    Reservation,
)


class Job(NamedTuple):
    """A job, a row of ``jobs``."""

    id: int
    array_id: int
    array_index: int
    array_limit: int  #: so many jobs of the array may run at a time; 0 = all
    name: str | None
    user: str
    project: str
    queue: str
    state: JobState
    job_type: JobType
    reservation: Reservation
    message: str
    scheduler_info: str
    command: str | None
    initial_request: str | None
    info_type: str | None
    properties: str | None
    launching_directory: str
    cpuset_name: str
    submission_time: int
    start_time: int
    stop_time: int
    exit_code: int | None
    assigned_moldable: int
    checkpoint: int
    checkpoint_signal: int
    stdout_file: str | None
    stderr_file: str | None
    notify: str | None
    env: str | None
    resubmit_job_id: int
    suspended: bool
    file_id: int | None
    accounted: Accounted
    last_karma: float | None

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.state in (JobState.TERMINATED, JobState.ERROR)

    @property
    def started(self) -> int:
        """Start time, 0 if the job never started. For a reservation, ``start_time`` is the requested date."""
        return date_of_start(self.state, self.start_time, self.stop_time, self.assigned_moldable)

    @property
    def submission_host(self) -> str:
        """Host on which the job was submitted."""
        return (self.info_type or "").partition(":")[0]


def date_of_start(state: str, start: int, stop: int, moldable: int | None) -> int:
    """Return the start time of a job from the values of its row; return 0 if the job never started."""
    never = state in NOT_STARTED or (stop and start > stop)
    return 0 if never or not moldable else start


class JobSpec(NamedTuple):
    """A job request without resources and dates; fields that are columns of ``jobs`` have the same names as in ``Job``.

    A submission creates it, admission rules change it, and the row of the new job is created from it.
    """

    user: str
    command: str = ""
    name: str | None = None
    project: str = ""  #: '' = the default of the site
    queue: str = ""  #: '' = the default of the site
    properties: str | None = None  #: SQL condition on the resources of all requests
    types: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()  #: each as ``oarsub -a`` reads it
    launching_directory: str = "/"
    stdout_file: str | None = None
    stderr_file: str | None = None
    notify: str | None = None
    checkpoint: int = 0  #: seconds before its end at which the job gets the signal; 0 = never
    checkpoint_signal: int = 0  #: 0 = the default of the site
    hold: bool = False
    array_size: int = 1
    array_limit: int | None = None  #: so many jobs of the array may run at a time; None = all
    parameters: tuple[str, ...] | None = None  #: of each job of an array: text that follows the command
    env: Mapping[str, str] = {}
    cpuset_name: str | None = None
    file_id: int | None = None  #: of a staged file
    info_type: str = ""  #: host, or host:port of an oarsub that waits for the server to call
    initial_request: str = ""

    @property
    def commands(self) -> tuple[str, ...]:
        """The command of each job of an array with parameters, else one command for all jobs."""
        if self.parameters is None:
            return (self.command,)
        return tuple(f"{self.command} {parameters}" for parameters in self.parameters)

    @property
    def stored_env(self) -> str | None:
        """The environment as stored in the database: a JSON object, None if there are no variables."""
        return json.dumps(dict(self.env)) if self.env else None


class Level(NamedTuple):
    """One ``property=quantity`` of a request; ALL, BEST, BESTHALF are stored as -1, -2, -3."""

    property: str
    quantity: int


class Group(NamedTuple):
    """One part of a request, separated by ``+``: a filter (SQL on resources, '' = none) and levels, outermost first."""

    filter: str
    levels: tuple[Level, ...]


class Memory(NamedTuple):
    """The memory that an alternative asks on each of its nodes."""

    mib: int
    is_per_core: bool = False  #: for each of its resources there, else for the node
    is_default: bool = False  #: that of the site: at most the share of a resource in the memory of its node


def memory_of(per_node: int, per_core: int) -> Memory | None:
    """Return the memory of an alternative from its columns; both are set for the default of the site."""
    if not (per_core or per_node):
        return None
    return Memory(per_core or per_node, per_core > 0, per_core > 0 and per_node > 0)


def memory_columns(memory: Memory | None) -> tuple[int, int]:
    """Return the columns of the memory of an alternative, as ``memory_of`` reads them."""
    if memory is None:
        return 0, 0
    per_node = memory.mib if memory.is_default or not memory.is_per_core else 0
    return per_node, memory.mib if memory.is_per_core else 0


class Moldable(NamedTuple):
    """One alternative (one ``-l``) of a job, as stored."""

    id: int
    job_id: int
    walltime: int
    groups: tuple[Group, ...] = ()
    default_walltime: int = 0  #: that of the site, if none was asked for; 0 = one was
    memory: Memory | None = None  #: None = its memory is not counted


class Queue(NamedTuple):
    """A queue with its priority and scheduling policy, a row of ``queues``."""

    name: str
    priority: int
    policy: str
    state: QueueState


class LaunchHold(NamedTuple):
    """A hold of launches until a fault is repaired, a row of ``launch_holds``."""

    id: int
    fault: LaunchFault
    user: str  #: whose launches are held; '' = everybody's
    node: str  #: where a launch failed last; '' if it failed on the server
    began: int
    failures: int
    next_try: int  #: date of the next check, or of the next trial
    is_confirmed: bool  #: several nodes have the fault, so that none of them is to blame
    trial_job: int  #: the job that was launched last as a trial; 0 = none
    reason: str
    trial_state: JobState | None = None  #: of the trial; None if there is none
    trial_user: str = ""


class LaunchFailure(NamedTuple):
    """A failed launch or a failed end of a job, from the event log."""

    event: int
    date: int
    job: int
    user: str
    queue: str
    node: str  #: '' if it failed on the server


class KillRequest(NamedTuple):
    """A request to end a job, a row of ``frag_jobs``."""

    job_id: int
    date: int
    state: KillState


class JobRun(NamedTuple):
    """The Runner's data about a job during launch, execution and end, a row of ``job_runs``."""

    job_id: int
    attempt: int
    phase: Phase
    head_host: str
    bad_hosts: tuple[str, ...]
    oarexec_code: int | None
    script_status: int | None
    report_date: int
    boot_id: str
    failures: int
    silent_since: int  #: since when its head has not answered, 0 if it does
    updated: int
    detail: str  #: what oarexec said of its end


class Dependency(NamedTuple):
    """A dependency: the job ``required`` must have ended (or started) before the job ``job_id`` may start."""

    job_id: int
    required: int
    condition: str = ""
    min_shift: str = ""
    max_shift: str = ""


class StateChange(NamedTuple):
    """A period of a job in one state, a row of ``job_state_logs``; ``stop`` 0 = the current state."""

    job_id: int
    state: JobState
    start: int
    stop: int


class JobKeys(NamedTuple):
    """The challenge and the SSH keys of a job."""

    challenge: str
    private_key: str | None
    public_key: str | None


class NodeUsage(NamedTuple):
    """The resource usage of a job on one of its nodes; None = the node did not report the value."""

    node: str
    cores: int = 0  #: processors that it had there
    cpu_seconds: float | None = None
    memory_peak: int | None = None  #: bytes
    memory_limit: int | None = None  #: bytes; None also if there is no limit
    oom_kills: int | None = None  #: processes that the kernel killed for want of memory
    forks_denied: int | None = None  #: times that it could not start a process, its limit being reached


#: The states of the jobs that have not ended.
LIVE_STATES = frozenset(JobState) - FINAL


class JobQuery(NamedTuple):
    """Conditions on jobs, combined with AND; None and empty tuples restrict nothing.

    Dates are in seconds since the epoch.
    """

    states: frozenset[JobState] | None = LIVE_STATES  #: None: all
    outcomes: frozenset[Outcome] | None = None
    ids: tuple[int, ...] | None = None
    arrays: tuple[int, ...] = ()
    users: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()  #: network addresses of nodes, of which a job has or had one
    reservations: frozenset[int] | None = None  #: ids of advance reservations, of which a job is in one
    text: str | None = None  #: an id, or a part of a name or a user
    between: tuple[int, int] | None = None  #: the life of the job, from its submission to its end, meets this period
    ended_since: int | None = None  #: jobs that ended earlier are left out
    with_frames: bool = False  #: frames of advance reservations, too


class JobPlace(NamedTuple):
    """One page of a list of jobs, which is sorted by id."""

    limit: int
    after: int | None = None  #: the id behind which the piece begins
    newest_first: bool = False
