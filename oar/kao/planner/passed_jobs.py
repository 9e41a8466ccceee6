"""The jobs that an urgent pass has passed over, and those that ask for the same together.

See docs/design/planner.rst, "Two depths".
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.snapshot import FOREVER, WaitingJob
from oar.kao.planner.placement.placement_task import PlacementRules, PlacementTask
from oar.kao.planner.resources.slot_search import Check
from oar.kao.planner.resources.slots import SlotQuery
from oar.kao.planner.resources.spaces import Space
from oar.lib.base.resource_set import ResourceSet

#: Places a job as a full plan does; a job that was checked at its turn is not checked again.
Place = Callable[[WaitingJob, PlacementTask | None], None]

#: As resources by which jobs are connected: they are connected with all others.
EVERYTHING: ResourceSet = -1


@dataclass(slots=True)
class Turn:
    """The turn of one job in the order."""

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
    """The jobs that have got a place at their turn, or later."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  #: by job id
        self._last = 0

    def add(self, turn: Turn) -> None:
        """Note that a job has got a place."""
        self._numbers[turn.job.id] = turn.number
        self._last = max(self._last, turn.number)

    def behind(self, turn: Turn) -> Collection[int]:
        """Return the jobs whose turn comes behind that of another job."""
        if turn.number >= self._last:
            return ()
        return {job_id for job_id, number in self._numbers.items() if number > turn.number}


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a place that is not booked yet depends on."""

    space: Space
    resources: ResourceSet
    end: int  #: until then others must leave the resources alone
    region: ResourceSet  #: jobs that reach none of these have nothing to do with it; more than the resources if counted

    @property
    def is_counted(self) -> bool:
        """Whether also jobs that have other resources, or are in other spaces, may be in the way of the place."""
        return self.region != self.resources

    def may_be_met_in(self, space: Space) -> bool:
        """Whether a job in a space may be in the way of the place."""
        return space is self.space or self.is_counted


#: Returns a date before which a passed job does not begin.
FirstDate = Callable[[Turn], int]


@dataclass(slots=True)
class Kind:
    """The passed jobs that ask for the same in one space; they differ in their durations."""

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
        """Whether there is room for so long that begins between two dates."""
        self.searches += 1
        return self.space.earliest(self.query._replace(duration=duration), begin, latest) is not None

    def first_start(self, duration: int, begin: int) -> int:
        """Return the first date from ``begin`` on at which there is room for so long; FOREVER = never.

        Raises TimeIsUp.
        """
        self.searches += 1
        match = self.space.earliest(self.query._replace(duration=duration), begin, check=self.check)
        return match.start if match else FOREVER

    def add(self, duration: int, turn: Turn) -> None:
        """Add a job."""
        self.shortest = min(self.shortest, duration)
        self.first = min(self.first, turn.number)
        self.reach |= turn.reach
        self.has_doubtful |= turn.is_doubtful
        self.members.append((duration, turn))
        self.is_in_order = False
        self.quiet_until = 0

    def add_equal(self, duration: int, turn: Turn) -> None:
        """Add a job that reaches nothing else than the members, and whose turn comes behind theirs."""
        self.shortest = min(self.shortest, duration)
        self.members.append((duration, turn))
        self.is_in_order = False
        self.quiet_until = 0

    def early(
        self, turns: Collection[int], now: int, date: int, first_date: FirstDate, longest: int = FOREVER
    ) -> Iterator[Turn]:
        """Iterate over the members that are no longer than that and for which there is room before a date.

        ``turns``: the jobs that still are passed over.
        """
        if self.is_closed(date, longest):
            return
        self._put_in_order(turns)
        quiet_until = FOREVER
        for duration, turn in self.members:
            is_closed = duration >= self.closed_from
            if duration > longest or (is_closed and self.closed_until >= date):
                return
            if turn.job.id not in turns:
                continue
            is_known = len(self.members) == 1 and turn.task is not None
            if is_known and turn.until < date:
                turn.until = first_date(turn)  # it is worth knowing: other dates will be asked for
            quiet_until = min(quiet_until, turn.until)
            if turn.until >= date:
                continue
            if is_known:
                yield turn
                continue
            begin, until = max(now, self.closed_until if is_closed else 0), turn.until
            first = self.first_start(duration, max(begin, until))
            if len(turn.job.alternatives) == 1:  # by another one it may begin sooner
                turn.until = first
            if first < date:
                yield turn
            elif until <= begin or not self.has_room(duration, begin, date - 1):
                self.closed_from, self.closed_until = duration, first if until <= begin else date
                return
        self.quiet_until = quiet_until

    def is_closed(self, date: int, longest: int = FOREVER) -> bool:
        """Whether no member is short enough, or there is room for none before a date."""
        if self.quiet_until >= date or self.shortest > longest:
            return True
        return self.closed_until >= date and self.closed_from <= self.shortest

    def _put_in_order(self, turns: Collection[int]) -> None:
        if not self.is_in_order:
            self.members = [member for member in self.members if member[1].job.id in turns]
            self.members.sort(key=_duration_and_number)
            self.shortest = self.members[0][0] if self.members else FOREVER
            self.is_in_order = True


def connected(kinds: Iterable[Kind], region: ResourceSet) -> ResourceSet:
    """Return the resources by which passed jobs are connected with some resources, by way of others too.

    Whether a doubtful job is placed depends on all jobs before it.
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
