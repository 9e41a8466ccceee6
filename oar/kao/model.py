"""What the planner is told (``Snapshot``) and what it answers (``Plan``).

Both are frozen values that can be written to a file and read back (``oar.kao.codec``): a round that went wrong on one
machine is planned again on another.  Sets of resources are ints whose bits number ``Snapshot.resources``; pools of
requests are numbers of ``Snapshot.pools``, so that a filter that a thousand jobs share is kept once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oar.lib.live_jobs import LiveJob
from oar.lib.model import Dependency, Level, PropertyValue, Queue
from oar.lib.resource_set import ResourceSet, from_positions, positions
from oar.lib.states import JobState, ResourceState

#: A date later than every date.  Never stored.
FOREVER = 2**62

#: Data of a reason: what JSON can hold.
Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


# ------------------------------------------------------------------------------------------------------------- snapshot


@dataclass(frozen=True, slots=True)
class FairShare:
    """Keys SCHEDULER_FAIRSHARING_* (scheduling.md 11.2)."""

    coefficient_project: float = 0.0
    coefficient_user: float = 2.0
    coefficient_asked: float = 1.0
    project_targets: Mapping[str, float] = field(default_factory=dict)  #: percent
    user_targets: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Weights:
    """What counts for the order MULTIFACTOR: keys of PRIORITY_CONF_FILE (scheduling.md 11.3)."""

    age_weight: float = 0.0
    age_coef: float = 1.65e-06  #: per second: full weight after seven days
    queue_weight: float = 0.0
    queue_coefs: Mapping[str, float] = field(default_factory=dict)
    work_weight: float = 0.0
    work_mode: int = 0  #: 0: small jobs first
    size_weight: float = 0.0
    size_mode: int = 0  #: 0: narrow jobs first
    karma_weight: float = 0.0
    qos_weight: float = 0.0
    nice_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The keys of oar.conf that the planner obeys (scheduling.md 15); defaults are those of the keys."""

    security_time: int = 1  #: S: gap between two jobs on a resource
    hole_minimum: int = 0  #: a gap shorter than this is not used
    suspended_types: tuple[str, ...] = ("default",)  #: types of resources that a Suspended job gives to others
    always_assigned_type: str = ""  #: type of the resources that every job gets besides its own
    reservation_patience: int = 300  #: seconds that a reservation waits for missing resources
    reservation_order_threshold: int = 300  #: reservations nearer than this use the common resource order
    besteffort_kill_before: int = 0  #: besteffort jobs are killed so long before their place is needed
    besteffort_duration: int = 300  #: length of the gap that a besteffort job needs; 0 = its walltime
    timeout: int = 10  #: seconds after which planning is given up; 0 = never
    max_jobs: int = 1000  #: jobs planned in a group of queues, and besteffort jobs; 0 = all
    max_jobs_per_user: int = 0  #: jobs of one user planned in a queue with fair share; 0 = all
    job_priority: str = "FIFO"  #: FIFO, FAIRSHARE, MULTIFACTOR or CUSTOM
    is_priority_explicit: bool = False  #: JOB_PRIORITY stands in the file: it wins over FIFO of old policy names
    dependency_condition: str = "ok"  #: what a dependency without condition asks
    has_quotas: bool = False  #: QUOTAS: quotas hold in the queues of the planner's own policies
    may_wake: bool = False  #: energy saving can wake nodes
    wakeup_time: int = 600  #: nodes are woken so long before a job needs them
    idle_time: int = 0  #: a node idle for so long may be halted; 0 = none is
    sleep_time: int = 0  #: and only if no job needs it for so long; 0 = none is
    fairshare: FairShare = field(default_factory=FairShare)
    weights: Weights = field(default_factory=Weights)


@dataclass(frozen=True, slots=True)
class Resources:
    """All resources, column by column, in the order of their bits."""

    ids: tuple[int, ...]
    types: tuple[str, ...]
    states: tuple[ResourceState, ...]  #: what each is, or is about to be if that is worse (``next_state``)
    addresses: tuple[str, ...]  #: network_address; '' = no node
    available_upto: tuple[int, ...]
    order: tuple[int, ...]  #: bits in the order of preference
    reservation_order: tuple[int, ...]  #: the same for reservations at a distant date
    columns: Mapping[str, tuple[PropertyValue, ...]] = field(default_factory=dict)  #: the properties named by requests
    last_job_dates: tuple[int, ...] = ()  #: when each was last used; only with energy saving

    @property
    def everything(self) -> ResourceSet:
        """All resources."""
        return (1 << len(self.ids)) - 1

    def where(self, column: Sequence[object], *values: object) -> ResourceSet:
        """Return the resources that have one of the values in a column."""
        return from_positions(bit for bit, value in enumerate(column) if value in values)

    def ids_of(self, members: ResourceSet) -> list[int]:
        """Return the resource ids of a set, in the order of bits."""
        return [self.ids[bit] for bit in positions(members)]

    def nodes_of(self, members: ResourceSet) -> list[str]:
        """Return the distinct nodes of a set, in the order of bits."""
        return list(dict.fromkeys(address for bit in positions(members) if (address := self.addresses[bit])))


@dataclass(frozen=True, slots=True)
class Pool:
    """The resources, Dead ones left out, that satisfy a filter; or the reason why the filter cannot be evaluated."""

    members: ResourceSet
    text: str = ""  #: the filter of the group, to be shown
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class AskedGroup:
    """A group of a request: number of its pool in ``Snapshot.pools``, and its levels."""

    pool: int
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class Alternative:
    """One moldable description of a job."""

    id: int
    walltime: int
    groups: tuple[AskedGroup, ...]


@dataclass(frozen=True, slots=True)
class PlannedJob(LiveJob):
    """What the planner needs to know of every job, whatever its state."""

    types: tuple[str, ...] = ()
    is_killed: bool = False  #: there is a kill request


@dataclass(frozen=True, slots=True)
class WaitingJob(PlannedJob):
    """A job to be placed: waiting, or a reservation that is waiting for its date."""

    alternatives: tuple[Alternative, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    submission_time: int = 0
    start_time: int = 0  #: of a reservation: the date asked
    granted: "Granted | None" = None  #: of an accepted reservation: what it holds
    promised: "Granted | None" = None  #: its place in the last round, if it waits there for sleeping nodes


@dataclass(frozen=True, slots=True)
class Granted:
    """What an accepted reservation holds, or another job was to have, from the gantt tables."""

    alternative: int
    start: int  #: later than the job's date when it is late
    resources: ResourceSet


@dataclass(frozen=True, slots=True)
class RunningJob(PlannedJob):
    """A job that holds resources."""

    alternative: int = 0
    start_time: int = 0
    walltime: int = 0
    suspended_time: int = 0  #: D: seconds spent in Suspended and Resuming so far
    resources: ResourceSet = 0
    checkpoint: int = 0  #: seconds it needs to write a checkpoint; 0 = it cannot
    checkpoint_asked: int = 0  #: date of its CHECKPOINT event; 0 = none
    is_checkpoint_over: bool = False  #: it has a CHECKPOINT_TIMEOUT event
    turn: int = 0  #: Resuming: the lower goes on first


@dataclass(frozen=True, slots=True)
class RequiredJob:
    """A job on which another depends and that neither waits nor holds resources."""

    id: int
    state: JobState
    exit_code: int | None
    start_time: int
    stop_time: int


@dataclass(frozen=True, slots=True)
class Consumption:
    """Sums over the accounting windows of fair share, in resource seconds."""

    used: int
    asked: int
    used_by_user: Mapping[str, int] = field(default_factory=dict)
    asked_by_user: Mapping[str, int] = field(default_factory=dict)
    used_by_project: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuotaRule:
    """Limits of what jobs may have at a time (scheduling.md 12.1); -1 = no limit.

    ``*``: all together; ``/``: each queue, project or user by itself; else a name.
    """

    queue: str
    project: str
    type: str
    user: str
    resources: int = -1
    jobs: int = -1
    seconds: int = -1  #: resource seconds still to be used


@dataclass(frozen=True, slots=True)
class QuotaPeriod:
    """Which rules hold from a date on, until the next period begins."""

    begin: int
    rules: int  #: number of the rules in ``Quotas.rules``


@dataclass(frozen=True, slots=True)
class Quotas:
    """The rules and when they hold.  Periods are dates, so that a plan does not depend on where it is made."""

    rules: tuple[tuple[QuotaRule, ...], ...]
    periods: tuple[QuotaPeriod, ...]  #: in order of time; the first begins at T or before
    latest_start: int = FOREVER  #: nothing is planned to start later: what holds then is not known


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a round decides on, at one instant."""

    now: int  #: T
    resources: Resources
    queues: tuple[Queue, ...]
    pools: tuple[Pool, ...] = ()
    waiting: tuple[WaitingJob, ...] = ()
    running: tuple[RunningJob, ...] = ()
    required: tuple[RequiredJob, ...] = ()
    held_containers: tuple[str, ...] = ()  #: names and numbers of containers on hold
    consumption: Mapping[int, Consumption] = field(default_factory=dict)  #: by priority of the queues
    tokens: Mapping[str, int | None] = field(default_factory=dict)  #: tokens free now; None = could not be asked
    woken: Mapping[str, int] = field(default_factory=dict)  #: date of the last WAKEUP_NODE event of a node
    quotas: Quotas | None = None
    settings: Settings = field(default_factory=Settings)
    zone: str = ""  #: in which dates of types are meant; '' = that of whoever plans


# ----------------------------------------------------------------------------------------------------------------- plan


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job has no placement, or does not start now: a code of scheduling.md 6.3, its sentence, its numbers."""

    code: str
    text: str
    data: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placement:
    """Start, alternative and resources foreseen for a job."""

    job_id: int
    alternative: int
    start: int
    walltime: int
    resources: ResourceSet

    @property
    def end(self) -> int:
        """When its walltime is over."""
        return self.start + self.walltime


@dataclass(frozen=True, slots=True)
class Launch:
    """A job that starts now."""

    placement: Placement
    old_walltime: int = 0  #: of a reservation that starts late: what it was before it was cut; 0 = not cut
    is_reduced: bool = False  #: a reservation that starts without its missing resources


@dataclass(frozen=True, slots=True)
class Kill:
    """What is done to a besteffort job in the way of another."""

    job_id: int
    for_job: int
    action: str  #: KILL, CHECKPOINT, or CHECKPOINT_TIMEOUT (and kill)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a new reservation, or to a job that can never run."""

    job_id: int
    message: str  #: told to the submitter; '' for an accepted reservation
    start: int = 0  #: of a reservation: its date, moved to T if it was in the past


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception met while a job was planned."""

    job_id: int
    cause: str  #: what it is, and where it came from: the same for all jobs that fail in the same way
    trace: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round decided."""

    now: int
    placements: tuple[Placement, ...] = ()  #: of waiting jobs and accepted reservations, in the order of planning
    reasons: Mapping[int, Reason] = field(default_factory=dict)  #: of each job that does not start now
    messages: Mapping[int, str] = field(default_factory=dict)  #: text of ``jobs.message``
    karma: Mapping[int, float] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()
    kills: tuple[Kill, ...] = ()
    accepted: tuple[Answer, ...] = ()  #: new reservations that have their place
    refused: tuple[Answer, ...] = ()  #: jobs that go to toError
    expired: tuple[Answer, ...] = ()  #: reservations whose time is over: they go to Error
    regained: tuple[int, ...] = ()  #: reservations that had lost their resources and have some again
    lost: tuple[int, ...] = ()  #: reservations that lost their resources and find none
    resumed: tuple[int, ...] = ()  #: jobs in Resuming that may go on
    wake: tuple[str, ...] = ()  #: nodes to wake
    halt: tuple[str, ...] = ()  #: nodes to halt
    outside: tuple[int, ...] = ()  #: jobs that schedulers of the site have placed, whatever they ask
    troubles: tuple[str, ...] = ()  #: lines for the log: limits reached, what the site did wrong
    failures: tuple["Failure", ...] = ()  #: jobs whose planning broke off
