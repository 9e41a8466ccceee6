"""The jobs that an urgent pass has passed over: they do not start now, and where they start later is not searched for.

A job that is passed over occupies nothing, so the jobs behind it find more free than in a full plan.  What they are
given all the same is what a full plan gives them, for of each passed job a date is known before which it cannot begin:
a placement that ends before all these dates meets none of them.  The dates are searched for when they are needed, for
all jobs that ask for the same at once, and stay right, because resources only get scarcer.

The jobs that would begin before such a date are placed, if that is certain; else all that were passed over are placed
in their order (``catch_up``), as a full plan does.

See docs/design/planner.rst, "Two depths".
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from oar.kao.facts.job_types import NO_TYPES, ParsedTypes, has_plugin
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import FOREVER, WaitingJob
from oar.kao.planner.placement.placement_search import PlacementSearch
from oar.kao.planner.placement.placement_task import PlacementRules, PlacementTask
from oar.kao.planner.placement.placer import PlacementOutcome, Placer
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.resources.slot_search import earliest
from oar.kao.planner.resources.slots import SlotQuery
from oar.kao.planner.resources.spaces import Space
from oar.lib.facts.records import Dependency
from oar.lib.facts.states import ReasonCode

#: Places a job as a full plan does; a job that was checked at its turn is not checked again.
Place = Callable[[WaitingJob, PlacementTask | None], None]

#: So often the certain time is made longer for the sake of one job.
MAX_EXTENSIONS = 4


class TimeIsUp(Exception):
    """The urgent pass has no time to place all jobs that it has passed over."""


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


@dataclass(slots=True)
class _Kind:
    """The passed jobs that ask for the same in one space; they differ in their durations."""

    space: Space
    query: SlotQuery  #: of any duration
    shortest: int = FOREVER  #: the shortest duration
    fails_from: int = FOREVER  #: one of this duration or longer cannot begin soon
    closed_from: int = FOREVER  #: one of this duration or longer cannot begin ...
    closed_until: int = 0  #: ... before this date
    members: list[tuple[int, Turn]] = field(default_factory=list)  #: with their durations

    def has_room(self, duration: int, begin: int, latest: int) -> bool:
        """Whether there is room for so long that begins between two dates."""
        return earliest(self.space.slots, replace(self.query, duration=duration), begin, latest) is not None

    def add(self, duration: int, turn: Turn) -> None:
        """Add a job."""
        self.shortest = min(self.shortest, duration)
        self.members.append((duration, turn))


class PassedOver:
    """Decides at the turn of a job whether it is placed or passed over."""

    def __init__(
        self,
        context: RoundContext,
        placer: Placer,
        search: PlacementSearch,
        *,
        soon: int,
        is_late: Callable[[], bool],
    ) -> None:
        """``soon``: what begins until this date is decided.  ``is_late``: whether the time of the pass is over."""
        self._now = context.now
        self._security_time = context.settings.security_time
        self._hole_minimum = context.settings.hole_minimum
        self._context = context
        self._placer = placer
        self._search = search
        self._soon = soon
        self._is_late = is_late
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        self._plain: dict[tuple[int, bool], _Kind] = {}  #: of jobs without types, by request and whether quotas hold
        self._turns: dict[int, Turn] = {}  #: the passed jobs, in their order
        self._without_place: set[int] = set()  #: jobs that are not placed because they do not start now
        self._names: set[str] = set()  #: names of containers that are passed over
        self._besteffort_until = FOREVER  #: no besteffort job that is passed over begins before this date
        self._count = 0

    @property
    def ids(self) -> set[int]:
        """The jobs that are passed over."""
        return self._turns.keys() | self._without_place

    def has_turn(self, job_id: int) -> bool:
        """Whether a job is passed over that a full plan may place."""
        return job_id in self._turns

    def take(
        self,
        job: WaitingJob,
        types: ParsedTypes,
        rules: PlacementRules,
        place: Place,
        *,
        is_doubtful: bool = False,
    ) -> None:
        """Place a job if it may begin soon, else pass it over.  Raises TimeIsUp.

        ``is_doubtful``: it is not known whether it is behind the depth of its queue.
        """
        self._count += 1
        turn = Turn(self._count, job, types, rules, place, is_doubtful=is_doubtful)
        if self._waits_for_passed(turn):
            may_begin_first = rules.depth and any(map(_may_precede, job.dependencies))
            if may_begin_first or (types.inner and self._context.spaces.find(types.inner)):
                self._place_exactly(turn)  # the container that was passed over may add to its space
            else:
                self._pass(turn)
            return
        task = self._placer.checked(job, types, rules)
        if isinstance(task, PlacementOutcome):
            place(job, None)
            return
        turn.task = task
        if not self._is_regular(task) or (is_doubtful and len(job.alternatives) > 1):
            self._place_exactly(turn)
        elif rules.depth:
            self._take_now(turn, task)
        elif self._may_begin(task, self._soon):
            self._decide(turn, task)
        else:
            self._pass(turn)
            self._note_plain(task)

    def pass_plain(self, job: WaitingJob, types: ParsedTypes, rules: PlacementRules, place: Place) -> bool:
        """Pass over a job like one that has been passed over; False: it must be looked at.

        This is what happens to nearly all jobs of a long queue, so it does nothing twice.
        """
        if types is not NO_TYPES or job.dependencies or len(job.alternatives) != 1:
            return False
        (alternative,) = job.alternatives
        kind = self._plain.get((id(self._context.requests.get(alternative.groups)), rules.has_quotas))
        duration = max(alternative.walltime + self._security_time, self._hole_minimum)
        if kind is None or duration < kind.fails_from or rules.is_now_only:
            return False
        self._count += 1
        self._turns[job.id] = turn = Turn(self._count, job, types, rules, place)
        kind.add(duration, turn)
        return True

    def _note_plain(self, task: PlacementTask) -> None:
        """Note how jobs without types and alternatives, which ask for the same as this one, are passed over."""
        job, rules = task.job, task.rules
        if task.types is NO_TYPES and len(job.alternatives) == 1 and not rules.is_now_only:
            request = self._context.requests.get(job.alternatives[0].groups)
            for _, kind in self._kinds_of(job, task.types, rules, task):
                self._plain[id(request), rules.has_quotas] = kind

    def take_besteffort(
        self,
        job: WaitingJob,
        types: ParsedTypes,
        rules: PlacementRules,
        place: Place,
        date: int,
        *,
        is_doubtful: bool = False,
    ) -> None:
        """Place a besteffort job if its place is certain to be free until its gap is over, else pass it over.

        All other jobs are settled until ``date`` (``settle``).  ``is_doubtful`` as in ``take``.  Raises TimeIsUp.
        """
        turn = Turn(0, job, types, rules, place, is_doubtful=is_doubtful)
        is_waiting = self._waits_for_passed(turn)
        task = None if is_waiting else self._placer.checked(job, types, rules)
        if not self._turns or isinstance(task, PlacementOutcome):
            place(job, None)
        elif task and rules.depth:
            self._take_besteffort_now(turn, task, date)
        elif task:
            self._decide_besteffort(turn, task, date)
        elif any(map(_may_precede, job.dependencies)) or types.inner:
            raise TimeIsUp
        else:
            self._note_turn(turn)

    def _take_besteffort_now(self, turn: Turn, task: PlacementTask, date: int) -> None:
        """Place a besteffort job behind the depth of its queue if it begins now, which must be certain."""
        found = self._search.now(task)
        if not isinstance(found, Placement):
            self._leave(turn, found)
        elif self._is_certain_besteffort(task) and self._is_free(task, found, date):
            turn.place(task.job, task)
        else:
            raise TimeIsUp

    def _is_free(self, task: PlacementTask, place: Placement, date: int) -> bool:
        """Whether the gap of a besteffort job meets no job that is passed over; see ``take_besteffort``."""
        return place.start + self._gap(task, place) <= min(date, self._besteffort_until)

    def _decide_besteffort(self, turn: Turn, task: PlacementTask, date: int) -> None:
        """Decide on a besteffort job that begins before all passed ones do, or behind a date; else it is uncertain."""
        first = date
        if self._may_begin(task, date - 1):
            if not self._is_certain_besteffort(task):
                raise TimeIsUp
            best, _ = self._search.best(task)
            if turn.is_doubtful and best and best.start > self._now:
                raise TimeIsUp
            if best and self._is_free(task, best, date):
                turn.place(task.job, task)
                return
            first = self._first_start(task, best)
            if first <= self._soon:
                raise TimeIsUp
        self._besteffort_until = min(self._besteffort_until, first)
        self._note_turn(turn)

    def settle(self, date: int) -> bool:
        """Make sure that no passed job begins before a date: those that do are placed, if that is certain.

        False: that cannot be said.
        """
        for _ in range(MAX_EXTENSIONS):
            later = self._settle(date)
            if later <= date:
                return True
            if later == FOREVER:
                break
            date = later
        return False

    def catch_up(self) -> None:
        """Place all passed jobs, in their order.  Raises TimeIsUp."""
        for turn in list(self._turns.values()):
            if self._is_late():
                raise TimeIsUp
            del self._turns[turn.job.id]
            turn.place(turn.job, turn.task)
        self._kinds.clear()
        self._plain.clear()
        self._names.clear()

    # -- one job -----------------------------------------------------------------------------------------------------

    def _take_now(self, turn: Turn, task: PlacementTask) -> None:
        """Decide on a job behind the depth of its queue, which begins now or has no place."""
        for _ in range(MAX_EXTENSIONS):
            found = self._search.now(task)
            if not isinstance(found, Placement):
                self._leave(turn, found)
                return
            remaining = len(self._turns)
            if not self.settle(self._end(task, found)):
                break
            if len(self._turns) == remaining:
                turn.place(turn.job, turn.task)
                return
        self._place_exactly(turn)

    def _leave(self, turn: Turn, reason: Reason | None) -> None:
        """Leave a job without a place; with its reason, unless that may be another beside the passed jobs."""
        if self._turns and reason and reason.code in (ReasonCode.QUOTA, ReasonCode.ARRAY):
            self._without_place.add(turn.job.id)
        else:
            turn.place(turn.job, turn.task)

    def _decide(self, turn: Turn, task: PlacementTask) -> None:
        """Decide on a job for which there is room now."""
        for _ in range(MAX_EXTENSIONS):
            best, _ = self._search.best(task)
            if turn.is_doubtful and best and self._now < best.start <= self._soon:
                break
            is_later = best is None or best.start > self._soon
            if is_later and len(task.job.alternatives) == 1:
                turn.until = best.start if best else FOREVER
                self._pass(turn)
                return
            if best is None:
                break
            remaining = len(self._turns)
            if not self.settle(self._end(task, best)):
                break
            if len(self._turns) == remaining:
                turn.place(turn.job, turn.task)
                return
        self._place_exactly(turn)

    def _place_exactly(self, turn: Turn) -> None:
        self.catch_up()
        turn.place(turn.job, turn.task)

    def _pass(self, turn: Turn) -> None:
        if turn.rules.is_now_only or turn.rules.depth:  # it gets no place at all
            self._without_place.add(turn.job.id)
            return
        self._note_turn(turn)
        self._names.update(turn.types.container_names(turn.job.id))
        for duration, kind in self._kinds_of(turn.job, turn.types, turn.rules, turn.task):
            kind.add(duration, turn)

    def _note_turn(self, turn: Turn) -> None:
        if turn.rules.depth:
            self._without_place.add(turn.job.id)
        else:
            self._turns[turn.job.id] = turn

    def is_sure_to_wait(self, job_id: int) -> bool:
        """Whether a full plan gives a passed job a place for which it waits because of resources."""
        turn = self._turns[job_id]
        task, types, rules = turn.task, turn.types, turn.rules
        if task is None or types.inner or types.deadline or types.expire or turn.job.array_limit:
            return False
        if max(task.window.begin, types.postpone) > self._now or task.window.latest < FOREVER:
            return False
        has_quotas = rules.has_quotas and types.counts_in_quotas and self._context.bookings.quotas.has_rules
        if has_quotas or self._context.usable.limits or rules.is_now_only or has_plugin(turn.job):
            return False
        queries = ((each, self._search.query(turn.job, each, types, rules)) for each in turn.job.alternatives)
        return any(
            not isinstance(query, Reason) and self._search.reasons.obstacle(query, alternative, types) is None
            for alternative, query in queries
        )

    def _may_begin(self, task: PlacementTask, latest: int) -> bool:
        """Whether there is room for any alternative of a job that begins until a date."""
        begin = max(self._now, task.window.begin, task.types.postpone)
        if begin > latest:
            return False
        for duration, kind in self._kinds_of(task.job, task.types, task.rules, task):
            if latest == self._soon and duration >= kind.fails_from:
                continue
            if kind.has_room(duration, self._now, latest):
                return True
            if latest == self._soon:
                kind.fails_from = duration
        return False

    def _kinds_of(
        self, job: WaitingJob, types: ParsedTypes, rules: PlacementRules, task: PlacementTask | None
    ) -> Iterator[tuple[int, _Kind]]:
        """Iterate over the durations of the alternatives that can be evaluated, with their kinds."""
        space = task.space if task else self._context.spaces.common
        if task is None and types.inner:
            return  # its space is not open yet
        for alternative in job.alternatives:
            query = self._search.query(job, alternative, types, rules)
            if isinstance(query, Reason):
                continue
            key = id(query.request), query.kind, query.keys, id(space)
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._kinds[key] = _Kind(space, query)
            yield self._search.least_duration(query, alternative), kind

    def _waits_for_passed(self, turn: Turn) -> bool:
        """Whether a job waits for a passed one; not if it is given up in any case."""
        required = (dependency.required for dependency in turn.job.dependencies)
        waits = turn.types.inner in self._names or any(number in self._turns for number in required)
        return waits and not self._placer.error(turn.job, turn.types)

    def _is_regular(self, task: PlacementTask) -> bool:
        """Whether a job, where it finds less free, begins later and not elsewhere, as nearly all do."""
        if has_plugin(task.job):
            return False
        if task.types.container and self._context.spaces.find(task.types.container):
            return False  # it adds to a space in which jobs have been looked at already
        is_counted = task.rules.has_quotas and task.types.counts_in_quotas and self._context.bookings.quotas.has_rules
        if is_counted and not self._context.bookings.quotas.counts_all:
            return False
        for alternative in task.job.alternatives:
            request = self._context.requests.get(alternative.groups)
            if isinstance(request, Reason):
                continue
            if not (request.is_monotone and request.is_steady) or (is_counted and not request.is_fixed):
                return False
        return True

    def _is_certain_besteffort(self, task: PlacementTask) -> bool:
        """Whether the place of a besteffort job depends on nothing behind the gap that it needs."""
        counts = task.rules.has_quotas and self._context.bookings.quotas.has_rules
        return self._is_regular(task) and not counts and not task.job.array_limit

    def _first_start(self, task: PlacementTask, best: Placement | None) -> int:
        """Return the first date at which a job could begin with any alternative; ``best``: what was found for it."""
        if best is None:
            return FOREVER
        first = self._search.earliest(task) if len(task.job.alternatives) > 1 else best.start
        return first if isinstance(first, int) else FOREVER

    def _end(self, task: PlacementTask, best: Placement) -> int:
        """Return until when a placement depends on others."""
        return max(best.start + self._gap(task, best), best.end + self._security_time)

    def _gap(self, task: PlacementTask, best: Placement) -> int:
        """Return for how long the resources of a placement must be free."""
        alternative = next(each for each in task.job.alternatives if each.id == best.alternative)
        query = self._search.query(task.job, alternative, task.types, task.rules)
        if isinstance(query, Reason):
            return 0
        is_cut = best.walltime < alternative.walltime
        return min(query.duration, best.walltime + self._security_time) if is_cut else query.duration

    # -- the passed jobs ---------------------------------------------------------------------------------------------

    def _settle(self, date: int) -> int:
        """Settle the passed jobs until a date; return a later one if they must be settled until then."""
        early: dict[int, Turn] = {}
        for kind in self._kinds.values():
            for turn in self._early(kind, date):
                early[turn.number] = turn
        for number in sorted(early):
            later = self._settle_one(early[number], date)
            if later > date:
                return later
        return date

    def _early(self, kind: _Kind, date: int) -> Iterator[Turn]:
        """Iterate over the passed jobs of a kind for which there is room before a date."""
        if kind.closed_until >= date and kind.closed_from <= kind.shortest:
            return
        kind.members = [member for member in kind.members if member[1].job.id in self._turns]
        kind.members.sort(key=_duration_and_number)
        kind.shortest = kind.members[0][0] if kind.members else FOREVER
        for duration, turn in kind.members:
            is_closed = duration >= kind.closed_from
            if is_closed and kind.closed_until >= date:
                return
            if turn.until >= date:
                continue
            if not kind.has_room(duration, max(self._now, turn.until, kind.closed_until if is_closed else 0), date - 1):
                kind.closed_from, kind.closed_until = duration, date
                return
            yield turn

    def _settle_one(self, turn: Turn, date: int) -> int:
        """Place a passed job that begins before a date; return when the place ends if that is later: it is uncertain.

        A job that waits for a passed one does not begin before it.
        """
        if turn.job.id not in self._turns:
            return date
        if self._waits_for_passed(turn):
            if any(map(_may_precede, turn.job.dependencies)):
                return FOREVER
            turn.until = date
            return date
        task = turn.task or self._placer.checked(turn.job, turn.types, turn.rules)
        if isinstance(task, PlacementOutcome):
            self._place_passed(turn)
            return date
        best, _ = self._search.best(task)
        turn.until = self._first_start(task, best)
        if best is None or turn.until >= date:
            return date
        end = FOREVER if turn.is_doubtful else self._end(task, best)
        if end <= date:
            self._place_passed(turn)
        return max(end, date)

    def _place_passed(self, turn: Turn) -> None:
        del self._turns[turn.job.id]
        turn.place(turn.job, turn.task)


def _duration_and_number(member: tuple[int, Turn]) -> tuple[int, int]:
    return member[0], member[1].number


def _may_precede(dependency: Dependency) -> bool:
    """Whether a dependency lets a job start before the one that it requires."""
    return "-" in dependency.min_shift
