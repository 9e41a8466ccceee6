"""The jobs that an urgent pass has passed over: grouped by equal requests, in chains of dependencies, and counted.

See docs/design/planner.rst, "Two depths".
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from oar.kao.facts.job_types import ParsedTypes, has_plugin
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import FOREVER, Alternative, WaitingJob
from oar.kao.planner.limits.dependencies import Dependencies, RequiredLifetime
from oar.kao.planner.limits.quotas import Usage
from oar.kao.planner.placement.placement_task import PlacementRules, PlacementTask
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.resources.slot_search import Check
from oar.kao.planner.resources.slots import SlotQuery
from oar.kao.planner.resources.spaces import Space
from oar.lib.accounts.limit_rules import Pattern
from oar.lib.base.resource_set import ResourceSet
from oar.lib.jobs.records import Dependency

#: Places a job as a full plan does; a job that was checked at its turn is not checked again.
Place = Callable[[WaitingJob, PlacementTask | None], None]


#: As resources by which jobs are connected: they are connected with all others.
EVERYTHING: ResourceSet = -1


@dataclass(slots=True)
class Turn:
    """The turn of one job in the planning order."""

    number: int
    job: WaitingJob
    types: ParsedTypes
    rules: PlacementRules
    place: Place
    task: PlacementTask | None = None  #: what is searched for; None: it has not been checked
    until: int = 0  #: it cannot begin before this date
    is_doubtful: bool = False  #: it is not known whether it is behind the depth of its queue
    #: what it may be given, and the jobs before it with which its array or a dependency connects it: it makes no
    #: difference for others
    reach: ResourceSet = 0


#: How the jobs of a queue are placed, and what does it.
PlainMode = tuple[PlacementRules, Place]


class PlacedTurns:
    """The jobs that have received a placement at their turn, or later."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  #: by job id
        self._last = 0

    def add(self, turn: Turn) -> None:
        self._numbers[turn.job.id] = turn.number
        self._last = max(self._last, turn.number)

    def behind(self, turn: Turn) -> Collection[int]:
        """Return the placed jobs whose turn is later than this one."""
        if turn.number >= self._last:
            return ()
        return {job_id for job_id, number in self._numbers.items() if number > turn.number}


@dataclass(frozen=True, slots=True)
class Footprint:
    """The resources and the time on which an unbooked placement depends."""

    space: Space
    resources: ResourceSet
    end: int  #: until then others must leave the resources alone
    region: ResourceSet  #: jobs that reach none of these have nothing to do with it; more than the resources if counted

    @property
    def is_counted(self) -> bool:
        """Return whether jobs on other resources or in other spaces can also conflict with the placement."""
        return self.region != self.resources


#: Returns a date before which a passed job does not begin.
FirstDate = Callable[[Turn], int]


@dataclass(slots=True)
class Kind:
    """The passed jobs with equal requests in one space; only their durations differ."""

    space: Space
    query: SlotQuery  #: of any duration
    check: Check  #: ends a search that takes long when the time of the pass is over
    shortest: int = FOREVER  #: the shortest duration, or less
    fails_from: int = FOREVER  #: one of this duration or longer cannot begin soon
    closed_from: int = FOREVER  #: one of this duration or longer cannot begin ...
    closed_until: int = 0  #: ... before this date
    first: int = FOREVER  #: the least number of a turn that ever was a member
    reach: ResourceSet = 0  #: of all that ever were members
    has_doubtful: bool = False  #: whether there ever was a doubtful member
    members: list[tuple[int, Turn]] = field(default_factory=list)  #: with their durations; some may be placed
    is_in_order: bool = True  #: the members are, the shortest first
    searches: int = 0  #: made so far
    quiet_until: int = FOREVER  #: none of the members that there are can begin before this date

    def has_room(self, duration: int, begin: int, latest: int) -> bool:
        """Return whether there is room for this duration with a start from ``begin`` to ``latest``."""
        self.searches += 1
        return self.space.earliest(self.query._replace(duration=duration), begin, latest) is not None

    def first_start(self, duration: int, begin: int) -> int:
        """Return the first date from ``begin`` with room for this duration; FOREVER = never. Raises TimeIsUp."""
        self.searches += 1
        match = self.space.earliest(self.query._replace(duration=duration), begin, check=self.check)
        return match.start if match else FOREVER

    def add(self, duration: int, turn: Turn) -> None:
        self.shortest = min(self.shortest, duration)
        self.first = min(self.first, turn.number)
        self.reach |= turn.reach
        self.has_doubtful |= turn.is_doubtful
        self.members.append((duration, turn))
        self.is_in_order = False
        self.quiet_until = 0

    def add_equal(self, duration: int, turn: Turn) -> None:
        """Add a job that reaches no other resources than the members, and whose turn is later than theirs."""
        self.shortest = min(self.shortest, duration)
        self.members.append((duration, turn))
        self.is_in_order = False
        self.quiet_until = 0

    def early(
        self, turns: Collection[int], now: int, date: int, first_date: FirstDate, longest: int = FOREVER
    ) -> Iterator[Turn]:
        """Iterate over the members, at most ``longest`` s long and still in ``turns``, with room before ``date``."""
        if self.is_closed(date, longest):
            return
        if not self.is_in_order:
            self.members = [member for member in self.members if member[1].job.id in turns]
            self.members.sort(key=_duration_and_number)
            self.shortest = self.members[0][0] if self.members else FOREVER
            self.is_in_order = True
        quiet_until = FOREVER
        for duration, turn in self.members:
            is_closed = duration >= self.closed_from
            if duration > longest or (is_closed and self.closed_until >= date):
                return
            if turn.job.id not in turns:
                continue
            is_known = len(self.members) == 1 and turn.task is not None
            if is_known and turn.until < date:
                turn.until = first_date(turn)  # worth computing: later calls use other dates
            quiet_until = min(quiet_until, turn.until)
            if turn.until >= date:
                continue
            if is_known:
                yield turn
                continue
            begin, until = max(now, self.closed_until if is_closed else 0), turn.until
            first = self.first_start(duration, max(begin, until))
            if len(turn.job.alternatives) == 1:  # another alternative might start earlier
                turn.until = first
            if first < date:
                yield turn
            elif until <= begin or not self.has_room(duration, begin, date - 1):
                self.closed_from, self.closed_until = duration, first if until <= begin else date
                return
        self.quiet_until = quiet_until

    def is_closed(self, date: int, longest: int = FOREVER) -> bool:
        """Return whether all members are too long, or there is room for none of them before ``date``."""
        if self.quiet_until >= date or self.shortest > longest:
            return True
        return self.closed_until >= date and self.closed_from <= self.shortest


def connected(kinds: Iterable[Kind], region: ResourceSet) -> ResourceSet:
    """Return the resources by which passed jobs are connected with ``region``, directly or through other jobs.

    The placement of a doubtful job depends on all jobs before it, so it connects everything.
    """
    before: ResourceSet = 0
    while before != region:
        before = region
        for kind in kinds:
            if kind.reach & region:
                if kind.has_doubtful:
                    return EVERYTHING
                region |= kind.reach
    return region


def _duration_and_number(member: tuple[int, Turn]) -> tuple[int, int]:
    return member[0], member[1].number


class PassedChains:
    """The passed jobs that require other passed jobs."""

    def __init__(self, turns: Mapping[int, Turn], dependencies: Dependencies, now: int) -> None:
        """``turns``: the passed jobs by id; the mapping changes during the pass."""
        self._turns = turns
        self._dependencies = dependencies
        self._now = now

    def bound(self, turn: Turn) -> None:
        """Raise the earliest start of a job to the first date that the passed jobs it requires allow."""
        for required, dependency in self._requirements(turn.job):
            begin = max(self._now, required.until)
            lifetime = RequiredLifetime(begin, begin + _shortest_walltime(required.job))
            date = self._dependencies.earliest(dependency, turn.rules.dependency_condition, lifetime)
            turn.until = max(turn.until, date)

    def up_from(self, turn: Turn) -> Sequence[Turn]:
        """Return a job, a passed job that it requires, and so on; a cyclic chain once around."""
        chain = {turn.job.id: turn}
        while requirements := self._requirements(turn.job):
            turn = requirements[0][0]
            if turn.job.id in chain:
                break
            chain[turn.job.id] = turn
        return list(chain.values())

    def reach(self, job: WaitingJob) -> int:
        """Return the resources by which a job is connected with the passed jobs that it requires."""
        reach = 0
        for required, _ in self._requirements(job):
            reach |= required.reach
        return reach

    def _requirements(self, job: WaitingJob) -> list[tuple[Turn, Dependency]]:
        turns = self._turns
        return [(turns[each.required], each) for each in job.dependencies if each.required in turns]


def may_precede_required(job: WaitingJob) -> bool:
    """Return whether a dependency lets a job start before the job that it requires."""
    return any("-" in dependency.min_shift for dependency in job.dependencies)


def _shortest_walltime(job: WaitingJob) -> int:
    """Return the minimum duration of a job; it is 1 for an alternative whose walltime may be cut."""
    return min((1 if each.cut_at else each.walltime for each in job.alternatives), default=0)


_NOTHING: Usage = 0, 0, 0


class PassedCounts:
    """The maximum usage of all passed jobs at the same time."""

    def __init__(self, context: RoundContext, turns: Iterable[Turn]) -> None:
        self._quotas = context.bookings.quotas
        self._arrays = context.bookings.arrays
        self._requests = context.requests
        self._everything = context.snapshot.resources.everything
        self._now = context.now
        self._gap = context.settings.security_time
        self._by_pattern: dict[Pattern, Usage] = {}
        self._by_array: dict[int, int] = {}
        self._patterns: dict[Hashable, tuple[Pattern, ...]] = {}
        for turn in turns:
            self.add(turn)

    def add(self, turn: Turn) -> None:
        """Count a job that is passed over."""
        job = turn.job
        if job.array_limit:
            self._by_array[job.array_id] = self._by_array.get(job.array_id, 0) + 1
        patterns = self._patterns_of(job, turn.types)
        most = [self._most(job, alternative) for alternative in job.alternatives] if patterns else []
        for pattern in patterns:
            resources, jobs, seconds = self._by_pattern.get(pattern, _NOTHING)
            self._by_pattern[pattern] = (
                resources + max((count for count, _ in most), default=0),
                jobs + 1,
                seconds + max((count * walltime for count, walltime in most), default=0),
            )

    def leave_room(self, turn: Turn, placement: Placement, since: int) -> bool:
        """Return whether the limits allow a placement even if passed jobs start at any date from ``since`` on.

        The limits are known to allow it together with the placed jobs.  A placement with a later start keeps its reason
        only if no passed job is counted during it; otherwise return False.
        """
        if placement.end + self._gap <= since:
            return True
        job, has_quotas = turn.job, turn.rules.has_quotas
        counters = self._quotas.counters_of(job, turn.types) if has_quotas else ()
        others = self._by_array.get(job.array_id, 0) if job.array_limit else 0
        if not others and self._by_pattern.keys().isdisjoint(counters):
            return True
        if placement.start > self._now:
            return False
        begin = max(placement.start, since)
        return self._arrays.has_room(job, begin, placement.end, others) and (
            not has_quotas or self._quotas.has_room(job, turn.types, placement, since, self._by_pattern)
        )

    def _patterns_of(self, job: WaitingJob, types: ParsedTypes) -> tuple[Pattern, ...]:
        if not types.counts_in_quotas or types.container:
            return ()
        key = job.queue, job.project, job.types, job.user
        if key not in self._patterns:
            self._patterns[key] = self._quotas.patterns_that_count(job)
        return self._patterns[key]

    def _most(self, job: WaitingJob, alternative: Alternative) -> tuple[int, int]:
        """Return the maximum number of resources of an alternative, and its walltime."""
        request = self._requests.of_alternative(alternative)
        if has_plugin(job):
            return self._everything.bit_count(), alternative.walltime
        if isinstance(request, Reason):
            return 0, 0
        return request.least if request.is_fixed else request.reach.bit_count(), alternative.walltime
