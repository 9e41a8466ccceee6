"""The jobs that an urgent pass has passed over: they do not start now, and no later start is searched for.

A passed job occupies nothing, so later jobs find more free resources than in a full plan.  They must nevertheless get
the same placement as in a full plan.  So a placement is booked only if no passed job can conflict with it: there is not
enough time, resources or lasting room.  Passed jobs that might conflict are placed first, as in a full plan.  Before
these, the passed jobs are placed that might conflict with them (``_clear``).  Bounds of dates stay valid, because free
resources only decrease.

If this is not sufficient, all passed jobs are placed in their order (``catch_up``), as in a full plan.

See docs/design/planner.rst, "Two depths".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from oar.kao.facts.job_types import NO_TYPES, ParsedTypes, has_plugin
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import FOREVER, WaitingJob
from oar.kao.planner.limits.dependencies import Dependencies
from oar.kao.planner.limits.quotas import OverQuota
from oar.kao.planner.passed_jobs import (
    EVERYTHING,
    Footprint,
    Kind,
    PassedChains,
    PassedCounts,
    Place,
    PlacedTurns,
    PlainMode,
    Turn,
    connected,
    may_precede_required,
)
from oar.kao.planner.placement.placement_search import PlacementSearch
from oar.kao.planner.placement.placement_task import PlacementRules, PlacementTask
from oar.kao.planner.placement.placer import PlacementOutcome, Placer
from oar.kao.planner.placement.round_context import RoundContext, TimeIsUp
from oar.kao.planner.placement.starts import Starts
from oar.kao.planner.resources.spaces import Space
from oar.lib.base.resource_set import ResourceSet
from oar.lib.jobs.reasons import ReasonCode

#: So often the certain time is made longer for the sake of one job.
MAX_EXTENSIONS = 4

#: So many places are cleared for the sake of one job, before passed jobs are placed in their order.
MAX_CLEARED = 64

#: A full plan is known to be cheaper than this number of searches for passed jobs, and these for each waiting job.
LEAST_SEARCHES, SEARCHES_OF_A_JOB = 500, 2


class PassedOver:
    """Decides at the turn of a job whether the job is placed or passed over."""

    def __init__(
        self,
        context: RoundContext,
        placer: Placer,
        search: PlacementSearch,
        *,
        dependencies: Dependencies,
        starts: Starts,
        is_late: Callable[[], bool],
    ) -> None:
        """``is_late``: returns whether the time of the pass has run out."""
        self._now = context.now
        self._security_time = context.settings.security_time
        self._hole_minimum = context.settings.hole_minimum
        self._context = context
        self._placer = placer
        self._search = search
        self._starts = starts
        self._soon = starts.soon  #: what begins until this date is decided
        self._is_late = is_late
        self._kinds: dict[tuple[object, ...], Kind] = {}
        self._plain: dict[tuple[int, bool], Kind] = {}  #: of jobs without types, by request and whether quotas hold
        self._turns: dict[int, Turn] = {}  #: the passed jobs, in their order
        self._chains = PassedChains(self._turns, dependencies, context.now)
        self._without_place: set[int] = set()  #: jobs that are not placed because they do not start now
        self._names: set[str] = set()  #: names of containers that are passed over
        #: a job in a container that is passed over is passed, too; when it begins it counts for others, wherever it is
        self._has_hidden = False
        #: arrays with a limit of which jobs are passed over, and what these reach; besteffort jobs are in nobody's way
        self._arrays: dict[int, ResourceSet] = {}
        self._besteffort_until = FOREVER  #: no besteffort job that is passed over begins before this date
        self._passed_counts: PassedCounts | None = None  #: while besteffort jobs are placed
        self._count = 0
        self._placed = PlacedTurns()
        self._has_quotas = context.bookings.quotas.has_rules
        self._over_quota = OverQuota(context.bookings.quotas, context.now, self._soon)
        self._cleared = 0  #: so many places have been cleared for the sake of the present job
        self._searches_left = LEAST_SEARCHES + SEARCHES_OF_A_JOB * len(context.snapshot.waiting)
        self._passes_none = False  #: the searches are used up: all jobs are placed, as in a full plan

    @property
    def ids(self) -> set[int]:
        return self._turns.keys() | self._without_place

    def has_turn(self, job_id: int) -> bool:
        """Return whether a job is passed over that a full plan may place."""
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
        """Place a job if it may start soon; otherwise pass it over.  Raises TimeIsUp.

        ``is_doubtful``: it is unknown whether the job is behind the depth of its queue.
        """
        self._count += 1
        turn = Turn(self._count, job, types, rules, place, is_doubtful=is_doubtful)
        if self._passes_none:
            if self._is_late():
                raise TimeIsUp
            self._place(turn)
            return
        if self._waits_for_passed(turn):
            self._placer.note_turn(job)
            if (rules.depth and may_precede_required(job)) or (types.inner and self._context.spaces.find(types.inner)):
                self._place_exactly(turn)  # the passed container may extend its space
            else:
                self._pass(turn)
            return
        task = self._placer.checked(job, types, rules)
        if isinstance(task, PlacementOutcome):
            self._place(turn)
            return
        turn.task = task
        if not self._is_regular(task) or (is_doubtful and len(job.alternatives) > 1):
            self._place_exactly(turn)
        elif rules.depth:
            self._take_now(turn, task)
        elif self._waits_for_running(turn):
            self._pass(turn)
        elif not self._is_over_quota(turn, task) and self._may_begin(task, self._soon):
            self._decide(turn, task)
        else:
            self._pass(turn)
            self._note_plain(task)

    def pass_plain(self, jobs: Sequence[WaitingJob], begin: int, end: int, modes: Mapping[str, PlainMode]) -> int:
        """Pass over consecutive jobs from ``begin`` as long as equal jobs have been passed over; return their number.

        ``modes``: by queue, for the queues whose jobs may be passed over this way.  Nearly all jobs of a long queue
        take this path, so it repeats no work.
        """
        types, requests, known, turns = self._context.types, self._context.requests, self._plain, self._turns
        first = self._count + 1 - begin
        for at in range(begin, end):
            job = jobs[at]
            mode = modes.get(job.queue)
            if mode is None or types[job.id] is not NO_TYPES or job.dependencies or len(job.alternatives) != 1:
                break
            (alternative,), (rules, place) = job.alternatives, mode
            kind = known.get((id(requests.of_alternative(alternative)), rules.has_quotas))
            duration = max(alternative.walltime + self._security_time, self._hole_minimum)
            if kind is None:
                break
            request, until = kind.query.request, 0
            if duration < kind.fails_from:
                until = self._over_quota.known_start(job, request.least, alternative.walltime)
                if not until or alternative.cut_at:
                    break
            turns[job.id] = turn = Turn(first + at, job, NO_TYPES, rules, place, until=until, reach=request.reach)
            if job.array_limit:
                self._link(turn, turn.reach)
                kind.add(duration, turn)
            else:
                kind.add_equal(duration, turn)
        else:
            at = end
        self._count += at - begin
        return at - begin

    def _waits_for_running(self, turn: Turn) -> bool:
        """Return whether a job cannot start now because its container, or a job that it requires, has not run."""
        has_depth = self._context.settings.backfill_depth(turn.job.queue)
        if turn.rules.is_now_only or has_depth or not (turn.types.inner or turn.job.dependencies):
            return False
        return self._starts.obstacle(turn.job, turn.rules.dependency_condition) is not None

    def _is_over_quota(self, turn: Turn, task: PlacementTask) -> bool:
        """Return whether the quotas delay the start of a job beyond ``soon``, even if all resources are free."""
        if not self._has_quotas_for(task.types, task.rules):
            return False
        starts = []
        for alternative in task.job.alternatives:
            request = self._context.requests.of_alternative(alternative)
            if alternative.cut_at:
                return False
            if not isinstance(request, Reason):
                starts.append(self._over_quota.first_start(task.job, request.least, alternative.walltime))
        turn.until = max(turn.until, min(starts, default=0))
        return turn.until > self._soon

    def _note_plain(self, task: PlacementTask) -> None:
        """Record the kind of a passed job without types and alternatives, for ``pass_plain``."""
        job, rules = task.job, task.rules
        if task.types is NO_TYPES and len(job.alternatives) == 1 and not rules.is_now_only:
            request = self._context.requests.of_alternative(job.alternatives[0])
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
        """Place a besteffort job if its resources are certain to be free for its gap; otherwise pass it over.

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
        elif may_precede_required(job) or types.inner:
            raise TimeIsUp
        else:
            self._note_turn(turn)

    def _take_besteffort_now(self, turn: Turn, task: PlacementTask, date: int) -> None:
        """Place a besteffort job behind the depth of its queue if it can start now.  Raises TimeIsUp if unsure."""
        found = self._search.now(task)
        if not isinstance(found, Placement):
            self._leave(turn, found)
        elif self._is_regular(task) and self._is_free(turn, task, found, date):
            turn.place(task.job, task)
        else:
            raise TimeIsUp

    def _is_free(self, turn: Turn, task: PlacementTask, place: Placement, date: int) -> bool:
        """Return whether a placement of a besteffort job conflicts with no passed job.

        Resources are compared for its gap, counters for its walltime.  See ``take_besteffort``.
        """
        quiet_until = min(date, self._besteffort_until)
        if place.start + self._search.gap(task, place) > quiet_until:
            return False
        if not self._is_counted(turn):
            return True
        self._passed_counts = self._passed_counts or PassedCounts(self._context, self._turns.values())
        return self._passed_counts.leave_room(turn, place, quiet_until)

    def _decide_besteffort(self, turn: Turn, task: PlacementTask, date: int) -> None:
        """Place a besteffort job that starts before all passed jobs, or pass it over.  Raises TimeIsUp if unsure."""
        if self._is_over_quota(turn, task):
            first = turn.until
        elif self._is_monotone(task) and not self._may_begin(task, date - 1):
            first = date
        else:
            best, _ = self._search.best(task)
            if turn.is_doubtful and best and best.start > self._now:
                raise TimeIsUp
            is_regular = self._is_regular(task)
            is_single = len(task.job.alternatives) == 1  # with less free, another alternative might start earlier
            is_exact = is_regular or (is_single and self._has_fixed_space(task))
            if best and is_exact and self._is_free(turn, task, best, date):
                turn.place(task.job, task)
                return
            first = self._search.first_start_of(task, best)
            if not is_regular:
                first = min(first, self._first_unsettled(task, date))
            if first <= self._soon:
                raise TimeIsUp
        self._besteffort_until = min(self._besteffort_until, first)
        self._note_turn(turn)

    def _first_unsettled(self, task: PlacementTask, date: int) -> int:
        """Return the first start at which a job would overlap passed jobs; an earlier start equals that of a full plan.

        Return ``now`` if more than the request of the job determines its resources.
        """
        if not self._has_fixed_space(task):
            return self._now
        durations = [duration for duration, _ in self._kinds_of(task.job, task.types, task.rules, task)]
        return min(date, self._besteffort_until) - max(durations, default=0) + 1

    def _is_monotone(self, task: PlacementTask) -> bool:
        """Return whether a job without room before a date also has none when fewer resources are free."""
        requests = [self._context.requests.of_alternative(each) for each in task.job.alternatives]
        return self._has_fixed_space(task) and all(isinstance(each, Reason) or each.is_monotone for each in requests)

    def _has_fixed_space(self, task: PlacementTask) -> bool:
        """Return whether only its request determines the resources of a job, and its space is not extended."""
        return not (task.types.container or has_plugin(task.job) or self._has_hidden)

    def settle(self, date: int, least: int) -> int | None:
        """Ensure that no passed job starts before ``date``: place those that do, if their placement is certain.

        Return the date until which this holds, or None if it does not.  The date is earlier (at least ``least``) if a
        job nearly all passed jobs would have to be placed until its end.
        """
        for _ in range(0 if self._has_hidden else MAX_EXTENSIONS):
            settled, later = self._settle(date, least)
            if later in {settled, FOREVER}:
                return settled if settled == later else None
            date = later
        return None

    def catch_up(self) -> None:
        """Place all passed jobs in their order.  Raises TimeIsUp."""
        for turn in list(self._turns.values()):
            if self._is_late():
                raise TimeIsUp
            self._place_passed(turn)
        self._kinds.clear()
        self._plain.clear()
        self._names.clear()
        self._has_hidden = False

    # -- one job -----------------------------------------------------------------------------------------------------

    def _take_now(self, turn: Turn, task: PlacementTask) -> None:
        """Decide on a job behind the depth of its queue: it starts now, or has no placement."""
        self._cleared = 0
        cleared: Placement | None = None
        while True:
            found = self._search.now(task)
            if not isinstance(found, Placement):
                self._leave(turn, found)
                return
            if found == cleared:
                self._place(turn)
                return
            cleared = found if self._clear(turn, task, found) else None

    def _leave(self, turn: Turn, reason: Reason | None) -> None:
        """Leave a job without a placement. Its reason is recorded only if passed jobs cannot change it."""
        if self._turns and self._depends_on_counts(turn, reason):
            self._without_place.add(turn.job.id)
        else:
            turn.place(turn.job, turn.task)

    def _depends_on_counts(self, turn: Turn, reason: Reason | None) -> bool:
        """Return whether the reason of a job that does not start now could change if more jobs were counted.

        The reason None means lack of resources, which counters do not change; but the limit of the array is checked
        first.
        """
        job = turn.job
        if reason is None:
            return bool(job.array_limit) and job.array_id in self._arrays
        is_refused_by_count = reason.code in (ReasonCode.QUOTA, ReasonCode.ARRAY)
        return is_refused_by_count or (len(job.alternatives) > 1 and self._is_counted(turn))

    def _decide(self, turn: Turn, task: PlacementTask) -> None:
        """Decide on a job for which there is room now."""
        self._cleared = 0
        cleared: Placement | None = None
        while True:
            best, _ = self._search.best(task)
            if turn.is_doubtful and best and self._now < best.start <= self._soon:
                break
            if best is None or best.start > self._soon:
                turn.until = self._search.first_start_of(task, best)
                if best is None or turn.until > self._soon:
                    self._pass(turn)
                    return
            if best == cleared:
                self._place(turn)
                return
            cleared = best if self._clear(turn, task, best) else None
            if not cleared and not self._may_begin(task, self._soon):
                self._pass(turn)
                return
        self._place_exactly(turn)

    def _place_exactly(self, turn: Turn) -> None:
        self.catch_up()
        self._place(turn)

    def _place(self, turn: Turn) -> None:
        """Place a job as a full plan does.

        If a counted job gets no placement and jobs with a later turn have been placed, its reason may differ in a full
        plan.  The reason is then removed.
        """
        behind = self._placed.behind(turn)
        with self._search.reasons.without(behind):
            turn.place(turn.job, turn.task)
        if turn.job.id in self._context.bookings.placements:
            self._placed.add(turn)
        elif behind and self._is_counted(turn) and turn.job.id in self._context.decisions.reasons:
            del self._context.decisions.reasons[turn.job.id]
            self._without_place.add(turn.job.id)

    def _is_counted(self, turn: Turn) -> bool:
        """Return whether a quota or the limit of its array can refuse a job."""
        return bool(turn.job.array_limit) or self._has_quotas_for(turn.types, turn.rules)

    def _has_quotas_for(self, types: ParsedTypes, rules: PlacementRules) -> bool:
        return self._has_quotas and rules.has_quotas and types.counts_in_quotas

    def _pass(self, turn: Turn) -> None:
        if self._passes_none:
            self._place(turn)
            return
        if turn.rules.is_now_only or turn.rules.depth:  # it gets no placement
            self._without_place.add(turn.job.id)
            return
        self._chains.bound(turn)
        self._note_turn(turn)
        self._names.update(turn.types.container_names(turn.job.id))
        is_hidden = turn.types.inner in self._names
        self._has_hidden |= is_hidden and (self._has_quotas or bool(turn.job.array_limit))
        self._link(turn, 0 if is_hidden else self._context.requests.reach(turn.job))
        for duration, kind in self._kinds_of(turn.job, turn.types, turn.rules, turn.task):
            kind.add(duration, turn)

    def _note_turn(self, turn: Turn) -> None:
        if turn.rules.depth:
            self._without_place.add(turn.job.id)
            return
        self._turns[turn.job.id] = turn
        if self._passed_counts:
            self._passed_counts.add(turn)
        if turn.job.array_limit:
            self._arrays.setdefault(turn.job.array_id, 0)

    def _link(self, turn: Turn, reach: ResourceSet) -> None:
        """Record the connections of a passed job with the jobs before it, in addition to those by its ``reach``."""
        job = turn.job
        reach |= self._chains.reach(job)
        if job.array_limit:
            reach = self._arrays[job.array_id] = reach | self._arrays.get(job.array_id, 0)
        turn.reach = reach

    def is_sure_to_wait(self, job_id: int) -> bool:
        """Return whether a full plan certainly gives a passed job a later start because of busy resources."""
        turn = self._turns[job_id]
        task, types, rules = turn.task, turn.types, turn.rules
        if task is None or types.inner or types.deadline or types.expire or turn.job.array_limit:
            return False
        if max(task.window.begin, types.postpone) > self._now or task.window.latest < FOREVER:
            return False
        has_limits = self._has_quotas_for(types, rules) or bool(self._context.usable.limits)
        if has_limits or rules.is_now_only or has_plugin(turn.job):
            return False
        return self._search.is_satisfiable(turn.job, types, rules)

    def _may_begin(self, task: PlacementTask, latest: int) -> bool:
        """Return whether there is room for an alternative of the job with a start until ``latest``."""
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
    ) -> Iterator[tuple[int, Kind]]:
        """Iterate over the valid alternatives: their durations and their kinds."""
        space = task.space if task else self._space_of(types)
        if space is None:
            return
        for alternative in job.alternatives:
            query = self._search.query(job, alternative, types, rules)
            if isinstance(query, Reason):
                continue
            key = id(query.request), query.kind, query.keys, id(space)
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._kinds[key] = Kind(space, query, self._search.check_time)
            yield self._search.least_duration(query, alternative), kind

    def _space_of(self, types: ParsedTypes) -> Space | None:
        """Return the space of a job that has not been checked; return None if it is not open yet or may change."""
        if not types.inner:
            return self._context.spaces.common
        return None if types.inner in self._names else self._context.spaces.find(types.inner)

    def _waits_for_passed(self, turn: Turn) -> bool:
        """Return whether a job waits for a passed job; return False if the job has an error."""
        required = (dependency.required for dependency in turn.job.dependencies)
        waits = turn.types.inner in self._names or any(number in self._turns for number in required)
        return waits and not self._placer.error(turn.job, turn.types)

    def _is_regular(self, task: PlacementTask) -> bool:
        """Return whether fewer free resources only make the job start later, as for nearly all jobs."""
        if has_plugin(task.job) or self._has_hidden:
            return False
        if task.types.container and self._context.spaces.find(task.types.container):
            return False  # the job extends a space that earlier searches have used
        is_counted = self._has_quotas_for(task.types, task.rules)
        if is_counted and not self._context.bookings.quotas.counts_all:
            return False
        for alternative in task.job.alternatives:
            request = self._context.requests.of_alternative(alternative)
            if isinstance(request, Reason):
                continue
            if not (request.is_monotone and request.is_steady) or (is_counted and not request.is_fixed):
                return False
        return True

    def _end(self, task: PlacementTask, best: Placement) -> int:
        """Return the date until which a placement depends on other jobs.

        With counters, add one second: the reason of a job that starts at that end depends on the second before.
        """
        is_counted = self._has_quotas or bool(task.job.array_limit)
        return max(best.start + self._search.gap(task, best), best.end + self._security_time) + is_counted

    # -- the passed jobs ---------------------------------------------------------------------------------------------

    def _settle(self, date: int, least: int) -> tuple[int, int]:
        """Settle the passed jobs; return until when they are settled, and until when they have to be."""
        kinds = self._kinds.values()
        early = {
            turn.number: turn for kind in kinds for turn in kind.early(self._turns, self._now, date, self._first_date)
        }
        for _, turn in sorted(early.items()):
            later = self._settle_one(turn, date)
            if later == FOREVER or (later > date and turn.until < least):
                return date, later
            date = date if later == date else turn.until
        return date, date

    def _settle_one(self, turn: Turn, date: int) -> int:
        """Place a passed job that starts before ``date``; return ``date``, or a later end of its placement.

        With a later end the job is not placed, because its placement is uncertain.  A job that waits for a passed job
        does not start before it.
        """
        if turn.job.id not in self._turns:
            return date
        if self._waits_for_passed(turn):
            if may_precede_required(turn.job):
                return FOREVER
            turn.until = date
            return date
        task = turn.task or self._placer.checked(turn.job, turn.types, turn.rules)
        if isinstance(task, PlacementOutcome):
            self._place_passed(turn)
            return date
        best, _ = self._search.best(task)
        turn.until = self._search.first_start_of(task, best)
        if best is None or turn.until >= date:
            return date
        end = FOREVER if turn.is_doubtful else self._end(task, best)
        if end <= date:
            self._place_passed(turn)
        return max(end, date)

    def _place_passed(self, turn: Turn) -> None:
        del self._turns[turn.job.id]
        try:
            self._place(turn)
        except TimeIsUp:
            self._turns[turn.job.id] = turn
            raise

    # -- passed jobs that conflict with a placement
    # ----------------------------------------------------------------------

    def _clear(self, turn: Turn, task: PlacementTask, best: Placement) -> bool:
        """Place the earlier passed jobs that may conflict with a placement; return False if one does conflict."""
        if self._searches_left <= 0:
            self._passes_none = True
            self.catch_up()
            return True
        self._cleared += 1
        place = self._claim(task, best)
        early = self._early_touching(place, turn.number)
        booked = len(self._context.bookings.placements)
        for number in sorted(early):
            is_sure = len(self._context.bookings.placements) == booked
            if (is_sure or self._begins_before(early[number], place.end)) and self._meets(early[number], place):
                return False
        return True

    def _claim(self, task: PlacementTask, best: Placement) -> Footprint:
        """Return what other jobs must not use if the placement is to equal that of a full plan."""
        job = task.job
        if self._has_quotas or job.promised:
            return Footprint(task.space, best.resources, self._end(task, best), EVERYTHING)
        linked = self._arrays.get(job.array_id, 0) if job.array_limit else 0
        memory = self._context.spaces.memory
        if memory and job.alternative(best.alternative).memory:  # jobs beside it on its nodes may need their memory
            linked |= memory.nodes.around(best.resources) | 1 << memory.nodes.size  # also those of other spaces
        return Footprint(task.space, best.resources, self._end(task, best), best.resources | linked)

    def _early_touching(self, claim: Footprint, before: int) -> dict[int, Turn]:
        """Return the earlier turns, by number, that may conflict with a claim."""
        early: dict[int, Turn] = {}
        longest: dict[tuple[int, bool], int] = {}
        for kind in self._kinds.values():
            if kind.quiet_until >= claim.end or kind.first >= before or not kind.reach & claim.region:
                continue
            if kind.is_closed(claim.end) or not (kind.space is claim.space or claim.is_counted):
                continue
            key = id(kind.space), bool(kind.query.keys)
            if key not in longest:
                longest[key] = self._longest(kind, claim)
            searches = kind.searches
            for turn in kind.early(self._turns, self._now, claim.end, self._first_date, longest[key]):
                if turn.number < before:
                    early[turn.number] = turn
            self._searches_left -= kind.searches - searches
        return early

    def _longest(self, kind: Kind, claim: Footprint) -> int:
        """Return the maximum duration of a job of a kind that uses resources of a claim before its end.

        Return FOREVER for kinds that share resources: their free resources differ from kind to kind, and a search for
        each job is cheaper.
        """
        if claim.is_counted or kind.query.keys:
            return FOREVER
        return kind.space.slots.longest_free(claim.resources, self._now, claim.end)

    def _begins_before(self, turn: Turn, date: int) -> bool:
        """Return whether a job is still passed over and there is room for it before ``date``."""
        if turn.job.id not in self._turns:
            return False
        if turn.task:
            return self._first_date(turn) < date
        begin = max(self._now, turn.until)
        kinds = self._kinds_of(turn.job, turn.types, turn.rules, turn.task)
        if begin < date and any(kind.has_room(duration, begin, date - 1) for duration, kind in kinds):
            return True
        turn.until = max(turn.until, date)
        return False

    def _meets(self, turn: Turn, claim: Footprint) -> bool:
        """Return whether a passed job conflicts with a claim; place it unless it starts after the end of the claim."""
        if self._first_date(turn) >= claim.end:
            return False
        task = turn.task
        if task is None and not self._waits_for_passed(turn):
            checked = self._placer.checked(turn.job, turn.types, turn.rules)
            task = checked if isinstance(checked, PlacementTask) and self._is_regular(checked) else None
        if task is None or turn.is_doubtful or self._cleared > MAX_CLEARED:
            return self._catch_up_to(turn, claim)
        return self._place_alone(turn, task, claim)

    def _first_date(self, turn: Turn) -> int:
        """Return a date before which a passed job does not start: the earlier jobs of its chain are its bound."""
        *followers, first = self._chains.up_from(turn)
        if first.task and not self._waits_for_passed(first):
            best, _ = self._search.best(first.task)
            first.until = max(first.until, self._search.first_start_of(first.task, best))
        for follower in reversed(followers):
            self._chains.bound(follower)
        return turn.until

    def _place_alone(self, turn: Turn, task: PlacementTask, claim: Footprint) -> bool:
        """Place a passed job, and before it those that may conflict with it; return whether it meets the claim."""
        cleared: Placement | None = None
        while turn.job.id in self._turns:
            if self._is_late():
                raise TimeIsUp
            best, _ = self._search.best(task)
            turn.until = max(turn.until, self._search.first_start_of(task, best))
            if best is None or turn.until >= claim.end:
                return False
            if best == cleared:
                self._place_passed(turn)
            elif self._clear(turn, task, best):
                cleared = best
        return self._is_met(claim, turn)

    def _catch_up_to(self, last: Turn, claim: Footprint) -> bool:
        """Place the passed jobs up to ``last`` in their order, as far as they are connected with it or the claim.

        Return True as soon as one of them conflicts with the claim; the jobs after it remain passed over.
        """
        is_partial = claim.region != EVERYTHING
        region = connected(self._kinds.values(), claim.region | last.reach) if is_partial else EVERYTHING
        for turn in list(self._turns.values()):
            if turn.number > last.number:
                return False
            if region != EVERYTHING and not turn.reach & region:
                continue
            if region != EVERYTHING and self._waits_for_passed(turn):
                return self._catch_up_to(last, replace(claim, region=EVERYTHING))
            if self._is_late():
                raise TimeIsUp
            self._place_passed(turn)
            if self._is_met(claim, turn):
                return True
        return False

    def _is_met(self, claim: Footprint, turn: Turn) -> bool:
        """Return whether a placed job uses resources of a claim before its end."""
        place = self._context.bookings.placements.get(turn.job.id)
        return place is not None and bool(place.resources & claim.resources) and place.start < claim.end
