"""The input of the planner: a ``Snapshot`` of the jobs, the resources and the settings at one instant.

All values are frozen; ``oar/kao/rounds/snapshot_files.py`` writes them to a file and reads them back.  A faulty round
can therefore be planned again on another machine.  Sets of resources are ints whose bits number ``Snapshot.resources``.
A request group refers to its pool by the index in ``Snapshot.pools``, so a filter used by 1000 jobs is stored once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from oar.lib.accounts.quota_records import Quotas
from oar.lib.base import times
from oar.lib.base.resource_set import ResourceSet, from_positions, positions
from oar.lib.jobs.live_jobs import LiveJob
from oar.lib.jobs.records import Dependency, Level, Memory, Queue
from oar.lib.jobs.states import DependencyCondition, JobPriority, JobState
from oar.lib.nodes.energy_records import KeptNodes
from oar.lib.nodes.records import PropertyValue
from oar.lib.nodes.states import HALTED_NEVER_WOKEN, STANDBY_FOR_EVER, ResourceState
from oar.lib.reservations.states import LEAVING, STARTED, ReservationState

#: A date later than every date.  Never stored.
FOREVER = times.FOREVER

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FairShare:
    """The keys SCHEDULER_FAIRSHARING_* (docs/scheduler.rst, "Fair share")."""

    coefficient_project: float = 0.0
    coefficient_user: float = 2.0
    coefficient_asked: float = 1.0
    project_targets: Mapping[str, float] = field(default_factory=dict)  #: percent
    user_targets: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of the order MULTIFACTOR: the keys of PRIORITY_CONF_FILE (docs/scheduler.rst, "Several factors")."""

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
    """The keys of oar.conf that affect the plan, with their defaults.  Durations are in seconds."""

    security_time: int = 1  #: gap between two jobs on a resource
    hole_minimum: int = 0  #: a gap shorter than this is not used
    suspended_types: tuple[str, ...] = ("default",)  #: types of resources that a Suspended job gives to others
    always_assigned_type: str = ""  #: type of the resources that every job gets besides its own
    reservation_patience: int = 300  #: seconds that a reservation waits for missing resources
    jobs_before_reservations: bool = False  #: requests for advance reservations come behind the jobs of their queue
    reservation_replace_after: int = 300  #: lost resources of advance reservations are replaced after so many seconds
    reservation_order_threshold: int = 300  #: reservations nearer than this use the common resource order
    besteffort_kill_before: int = 0  #: besteffort jobs are killed so long before a job starts on their resources
    besteffort_duration: int = 300  #: how long resources must be free for a besteffort job; 0 = its walltime
    timeout: int = 10  #: seconds after which planning is given up; 0 = never
    max_jobs: int = 1000  #: jobs planned in a group of queues, and besteffort jobs; 0 = all
    first_jobs_per_user: int = 0  #: jobs of one user planned before those of everybody else; 0 = all
    max_jobs_per_user: int = 0  #: jobs of one user planned in a queue with fair share; 0 = all
    #: SCHEDULER_BACKFILL_DEPTH by queue, ``_`` = the other queues: so many of its jobs that wait have a place; 0 = all
    backfill_depths: Mapping[str, int] = field(default_factory=dict)
    job_priority: JobPriority = JobPriority.FIFO
    is_priority_explicit: bool = False  #: JOB_PRIORITY stands in the file: it wins over FIFO of old policy names
    dependency_condition: DependencyCondition = DependencyCondition.OK  #: the condition of dependencies that name none
    has_quotas: bool = False  #: QUOTAS: quotas hold in queues whose policy is kamelot or default
    may_wake: bool = False  #: energy saving can wake nodes
    wakeup_time: int = 600  #: nodes are woken so long before a job needs them
    boot_limit: int = 600  #: a node that was woken and has not come within so many seconds is woken again
    idle_time: int = 0  #: a node idle for so long may be halted; 0 = none is
    sleep_time: int = 0  #: a node is halted only if no job is planned on it for so long; 0 = none is
    fairshare: FairShare = field(default_factory=FairShare)
    weights: Weights = field(default_factory=Weights)

    def backfill_depth(self, queue: str) -> int:
        """Return how many waiting jobs of a queue get a planned start; 0 = all."""
        return self.backfill_depths.get(queue, self.backfill_depths.get("_", 0))

    def besteffort_gap(self, duration: int) -> int:
        """Return for how many seconds resources must be free for a besteffort job of this duration.

        A besteffort job may be killed, so a gap of SCHEDULER_BESTEFFORT_DURATION is enough.
        """
        if not self.besteffort_duration:
            return duration
        return min(duration, max(self.besteffort_duration, self.besteffort_kill_before, self.security_time))


@dataclass(frozen=True, slots=True)
class ResourceColumns:
    """All resources as columns: the n-th value of each column belongs to the resource with bit n."""

    ids: tuple[int, ...]
    types: tuple[str, ...]
    states: tuple[ResourceState, ...]  #: the state, or ``next_state`` where that is worse
    addresses: tuple[str, ...]  #: network_address; '' = no node
    available_upto: tuple[int, ...]
    order: tuple[int, ...]  #: bits in the order in which resources are taken
    reservation_order: tuple[int, ...]  #: the same for reservations at a distant date
    columns: Mapping[str, tuple[PropertyValue, ...]] = field(default_factory=dict)  #: the properties named by requests
    memory: tuple[int, ...] = ()  #: MiB of the node of each resource, 0 = unknown; () = memory is not counted
    #: what has been asked for so far: the same resources serve many rounds
    _answers: dict[object, ResourceSet] = field(default_factory=dict, init=False, compare=False, repr=False)
    _leaving: dict[int, ResourceSet] = field(default_factory=dict, init=False, compare=False, repr=False)
    _derived: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def everything(self) -> ResourceSet:
        return (1 << len(self.ids)) - 1

    def with_states(self, other: "ResourceColumns") -> "ResourceColumns":
        """Return these resources with the states of ``other``."""
        return self if self.states is other.states else replace(self, states=other.states)

    def where(self, column: Sequence[object], *values: object) -> ResourceSet:
        """Return the resources that have one of the values in a column.  Results for states and types are cached."""
        if column is not self.states and column is not self.types:
            return self._search(column, values)
        key = column is self.states, values
        if key not in self._answers:
            self._answers[key] = self._search(column, values)
        return self._answers[key]

    def once(self, make: Callable[["ResourceColumns"], T]) -> T:
        """Return ``make(self)``.  The result is cached, as all rounds on these resources use the same one."""
        if make not in self._derived:
            self._derived[make] = make(self)
        result: T = self._derived[make]
        return result

    def leaving(self) -> Mapping[int, ResourceSet]:
        """Return the resources that are withdrawn, by date of withdrawal."""
        if not self._leaving:
            bits_by_date: dict[int, list[int]] = {0: []}
            dates = {date for date in set(self.available_upto) if HALTED_NEVER_WOKEN < date < STANDBY_FOR_EVER}
            for bit, date in enumerate(self.available_upto) if dates else ():  # usually no resource is withdrawn
                if date in dates:
                    bits_by_date.setdefault(date, []).append(bit)
            self._leaving.update((date, from_positions(bits)) for date, bits in bits_by_date.items())
        return {date: resources for date, resources in self._leaving.items() if resources}

    def _search(self, column: Sequence[object], values: Sequence[object]) -> ResourceSet:
        number = sum(column.count(value) for value in set(values))
        if number in (0, len(column)):  # the usual cases; this shortcut is the fastest
            return self.everything if number else 0
        return from_positions(bit for bit, value in enumerate(column) if value in values)

    def ids_of(self, members: ResourceSet) -> list[int]:
        """Return the resource ids of a set, in the order of bits."""
        return [self.ids[bit] for bit in positions(members)]

    def nodes_of(self, members: ResourceSet) -> list[str]:
        """Return the distinct nodes of a set, in the order of bits."""
        return list(dict.fromkeys(address for bit in positions(members) if (address := self.addresses[bit])))


@dataclass(frozen=True, slots=True)
class Pool:
    """The resources that satisfy a filter, without Dead resources."""

    members: ResourceSet
    text: str = ""  #: the filter as the user wrote it
    trouble: str = ""  #: why the filter cannot be evaluated; '' if it can
    is_put_off: bool = False  #: the trouble is that there was no time for it: it is tried again


class RequestGroup(NamedTuple):
    """A request group: its pool (index in ``Snapshot.pools``) and its levels.

    A named tuple, because groups are hashed as dictionary keys several times per job and round.
    """

    pool: int
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class Alternative:
    """One alternative of a moldable job: one option ``-l`` of oarsub."""

    id: int
    walltime: int  #: seconds
    groups: tuple[RequestGroup, ...]
    cut_at: int = 0  #: its walltime is over then at the latest, however late it begins; 0 = it never changes
    memory: Memory | None = None  #: None = its memory is not counted

    def walltime_from(self, start: int) -> int:
        return min(self.walltime, self.cut_at - start) if self.cut_at else self.walltime


@dataclass(frozen=True, slots=True)
class PlannedJob(LiveJob):
    """The attributes common to waiting and running jobs."""

    types: tuple[str, ...] = ()  #: the texts of ``oarsub -t``
    is_killed: bool = False  #: there is a kill request


@dataclass(frozen=True, slots=True)
class WaitingJob(PlannedJob):
    """A job that needs a placement, or a reservation that waits for its start date."""

    alternatives: tuple[Alternative, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    submission_time: int = 0
    start_time: int = 0  #: of a reservation: its date
    granted: "StoredPlacement | None" = None  #: of an accepted reservation: its resources
    #: its placement of the last round, without the start, if it waits for nodes to wake
    promised: "StoredPlacement | None" = None

    @property
    def shortest_walltime(self) -> int:
        """Return the shortest walltime of the alternatives, in seconds; 0 without alternatives."""
        return min((alternative.walltime for alternative in self.alternatives), default=0)

    def alternative(self, number: int) -> Alternative:
        """Return the alternative with this id, which must exist."""
        return next(alternative for alternative in self.alternatives if alternative.id == number)

    def walltime_of(self, alternative_id: int) -> int:
        """Return the walltime of an alternative, in seconds; 0 if the job has no such alternative."""
        return next((each.walltime for each in self.alternatives if each.id == alternative_id), 0)


@dataclass(frozen=True, slots=True)
class StoredPlacement:
    """A placement of the last round, as stored in the gantt tables."""

    alternative: int
    start: int  #: of a reservation that is late: later than its date
    resources: ResourceSet


@dataclass(frozen=True, slots=True)
class RunningJob(PlannedJob):
    """A job that holds resources: in any state from toLaunch to Finishing."""

    alternative: int = 0
    start_time: int = 0
    walltime: int = 0
    suspended_time: int = 0  #: seconds spent in Suspended and Resuming so far
    resources: ResourceSet = 0
    checkpoint: int = 0  #: seconds that it needs to write a checkpoint; 0 = it cannot
    checkpoint_asked: int = 0  #: date of its CHECKPOINT event; 0 = none
    is_checkpoint_over: bool = False  #: it has a CHECKPOINT_TIMEOUT event
    turn: int = 0  #: of a job in Resuming: jobs go on in this order
    memory: Memory | None = None  #: of its alternative

    @property
    def end(self) -> int:
        """Return the date at which the walltime ends; time in suspension extends it."""
        return self.start_time + self.walltime + self.suspended_time


@dataclass(frozen=True, slots=True)
class RequiredJob:
    """A dependency of a waiting job that is neither in ``waiting`` nor in ``running``."""

    id: int
    state: JobState
    exit_code: int | None
    start_time: int
    stop_time: int


class Occurrence(NamedTuple):
    """One occurrence of a series of reservations."""

    number: int  #: in the series, from 1
    start: int


@dataclass(frozen=True, slots=True)
class PlannedReservation:
    """A live advance reservation; its frame is a job of the snapshot."""

    id: int
    number: int
    frame_id: int
    state: ReservationState
    revision: int
    queue: str
    start: int
    end: int
    start_window: int
    time_offset: int  #: its jobs are over so many seconds before its end
    is_hard: bool
    replaces_lost: bool
    is_flexible: bool
    ignores_jobs: bool
    idle_limit: int
    message: str
    resources: ResourceSet = 0  #: granted, without those that were removed
    removed: tuple[int, ...] = ()  #: ids of granted resources that do not exist any more
    groups: tuple[RequestGroup, ...] = ()  #: of the granted request; () before it is granted
    missing: tuple[int, ...] = ()  #: ids of the resources that were missing in the last round
    missing_since: Mapping[int, int] = field(default_factory=dict)  #: of these resources, by id
    live_jobs: tuple[int, ...] = ()
    last_job_date: int = 0  #: since when no job of it is live; its start if there never was one
    occurrence: int = 0  #: its number in its series; 0 = it is in none
    together: int = 0  #: the series whose first occurrences are answered together, if it is one of them; 0 = none
    skips_conflicts: bool = False  #: of these: what cannot be granted is left out
    is_for_nobody: bool = False  #: it keeps resources free, for maintenance: nothing of it can be missing
    followers: tuple[Occurrence, ...] = ()  #: of its series, those that are asked for in its place if it is refused

    @property
    def is_leaving(self) -> bool:
        """Return whether the reservation only waits for its last job to end."""
        return self.state in LEAVING

    def has_begun(self, now: int) -> bool:
        """Return whether the reservation is granted and has started, even if the clock was set back since."""
        return self.state in STARTED or (self.state is not ReservationState.ASKED and self.start <= now)

    def held_from(self, now: int) -> int:
        """Return the date from which the reservation holds its resources (``now`` if it has begun)."""
        return now if self.has_begun(now) else self.start

    def is_due(self, now: int) -> bool:
        """Return whether the reservation has to be processed now: it is a new request, or one of its dates has come."""
        if self.is_leaving:
            return not self.live_jobs
        is_to_start = self.state in (ReservationState.WAITING, ReservationState.WARNING) and self.start <= now
        return self.state is ReservationState.ASKED or is_to_start or self.end <= now or self.is_idle(now)

    def is_idle(self, now: int) -> bool:
        """Return whether the reservation ends because no job has run in it for ``idle_limit`` seconds."""
        if not self.idle_limit or self.live_jobs or self.start > now:
            return False
        return now >= self.idle_date

    @property
    def idle_date(self) -> int:
        """Return when the reservation ends if no job is submitted to it.  Only valid with an idle limit."""
        return max(self.last_job_date, self.start) + self.idle_limit

    @property
    def latest_job_end(self) -> int:
        return self.end - self.time_offset


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A requested change of an advance reservation that has not been decided."""

    id: int
    reservation_id: int
    start: int | None = None  #: None = as it is
    end: int | None = None  #: None = as it is
    is_forced: bool = False  #: jobs that run beyond a new end are ended with it
    alternatives: tuple[tuple[RequestGroup, ...], ...] = ()  #: of other resources, the best one first; () = as it is
    date: int = 0  #: of the asking; 0 = now
    expires: int = 0  #: nobody waits for the answer after this date; 0 = somebody always does
    is_readable: bool = True  #: of one that cannot be read nothing is known


@dataclass(frozen=True, slots=True)
class ConsumptionSums:
    """Resource consumption during the last SCHEDULER_FAIRSHARING_WINDOW_SIZE seconds, in resource seconds."""

    used: int
    asked: int
    used_by_user: Mapping[str, int] = field(default_factory=dict)
    asked_by_user: Mapping[str, int] = field(default_factory=dict)
    used_by_project: Mapping[str, int] = field(default_factory=dict)


class BudgetStop(NamedTuple):
    """The budget that keeps a job waiting."""

    project: str  #: which has the budget
    used: float  #: resource hours that count against it
    hours: float
    date: int  #: start of the next period with a budget; 0: there is none


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The complete input of a round, at one instant."""

    now: int  #: the date of the round
    resources: ResourceColumns
    queues: tuple[Queue, ...]
    pools: tuple[Pool, ...] = ()
    waiting: tuple[WaitingJob, ...] = ()
    running: tuple[RunningJob, ...] = ()
    required: tuple[RequiredJob, ...] = ()
    held_containers: tuple[str, ...] = ()  #: names and job ids of containers on hold
    consumption: Mapping[int, ConsumptionSums] = field(default_factory=dict)  #: by priority of queues
    tokens: Mapping[str, int | None] = field(
        default_factory=dict
    )  #: free tokens by name; None = unknown; not there = no script
    woken: Mapping[str, int] = field(default_factory=dict)  #: nodes with the date of their last WAKEUP_NODE event
    kept_awake: tuple[KeptNodes, ...] = ()  #: of these nodes some stay awake although they are idle
    used_lately: ResourceSet = 0  #: a job has ended there less than ``Settings.idle_time`` ago
    quotas: Quotas | None = None
    reservations: tuple[PlannedReservation, ...] = ()  #: the live advance reservations, by id
    reservation_changes: tuple[PlannedChange, ...] = ()  #: changes of them that wait for an answer, by id
    maintenance: ResourceSet = 0  #: resources in maintenance; only if there are advance reservations
    closed_projects: tuple[str, ...] = ()  #: waiting jobs with these projects do not start
    budget_stops: Mapping[int, BudgetStop] = field(default_factory=dict)  #: by job that does not start for now
    settings: Settings = field(default_factory=Settings)
    zone: str = ""  #: time zone of the dates in types; '' = that of the process

    def overdue(self) -> frozenset[int]:
        """Return the jobs past their planned end, for example on a node that does not respond, or during a clean-up."""
        return frozenset(job.id for job in self.running if job.end < self.now)
