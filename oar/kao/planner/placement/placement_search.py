"""The search for the placement of one job: the alternative that ends first is chosen.

See docs/design/planner.rst, "Placement".
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes, has_plugin
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import FOREVER, Alternative, WaitingJob
from oar.kao.planner.placement.placement_reasons import Obstacles, PlacementReasons
from oar.kao.planner.placement.placement_task import (
    NO_PROGRESS,
    GiveWay,
    PlacementRules,
    PlacementTask,
    SearchResult,
)
from oar.kao.planner.placement.round_context import RoundContext, TimeIsUp
from oar.kao.planner.placement.site_extensions import PluginChoices
from oar.kao.planner.resources.slots import SlotMatch, SlotQuery
from oar.kao.planner.resources.spaces import Space
from oar.lib.base.resource_set import ResourceSet
from oar.lib.nodes.hierarchy import RequestFit

#: So many starts, or alternatives, of a job are tried in any case.
PATIENT_TRIES = 50


class PlacementSearch:
    """Searches for placements on the resources that the bookings leave free."""

    def __init__(self, context: RoundContext, plugins: PluginChoices | None) -> None:
        self._now = context.now
        self._settings = context.settings
        self._bookings = context.bookings
        self._quotas = context.bookings.quotas
        self._arrays = context.bookings.arrays
        self._spaces = context.spaces
        self._usable = context.usable
        self._requests = context.requests
        self._plugins = plugins
        #: space, request, class of jobs and shared keys -> the shortest duration for which there is no room now; of
        #: the space and the request, so that no others get their identities
        self._no_room: dict[tuple[object, ...], tuple[Space, RequestFit, int]] = {}
        self._obstacles = Obstacles(context)
        self.reasons = PlacementReasons(context)
        self.is_late: Callable[[], bool] = _never  #: in an urgent pass: whether its time is over
        self.gives_way: Callable[[], bool] = _never  #: in a plan made in slices: whether the present one is over
        #: by the types of the jobs inside: when the jobs of an advance reservation have to be over
        self._ends = {str(each.frame_id): each.latest_job_end for each in context.snapshot.reservations}

    def best(self, task: PlacementTask) -> tuple[Placement | None, Reason | None]:
        """Return the placement that ends first; without a placement, the reason of the first alternative."""
        placed, last = len(self._bookings.placements), task.found
        if last is None or last.placed != placed:
            if last and self._is_still_best(task, last):
                best, refusal = last.best, last.refusal
            else:
                best, refusal = self._search_best(task)
            task.found = last = SearchResult(placed, len(task.space.occupants), best, refusal)
        return last.best, last.refusal

    def last(self, task: PlacementTask) -> tuple[Placement | None, Reason | None]:
        """Return the result of ``best`` without storing it; for a job that is not searched for again."""
        return self.best(task) if task.found else self._search_best(task)

    def _only_gets_later(self, task: PlacementTask) -> bool:
        """Return whether more bookings can only delay the start of a job, as for nearly all jobs."""
        if task.job.promised or has_plugin(task.job) or (task.rules.has_quotas and self._quotas.has_rules):
            return False
        for alternative in task.job.alternatives:
            request = self._requests.of_alternative(alternative)
            if alternative.cut_at or alternative.memory or isinstance(request, Reason):
                return False
            if not (request.is_monotone and request.is_steady):
                return False
        return True

    def _is_still_best(self, task: PlacementTask, last: SearchResult) -> bool:
        job, best = task.job, last.best
        if best is None or not self._only_gets_later(task):
            return False
        query = self.query(job, job.alternative(best.alternative), task.types, task.rules)
        duration = best.walltime if isinstance(query, Reason) else query.duration
        match, end = SlotMatch(best.start, best.resources), best.start + duration
        is_taken = task.space.has_taken(last.occupants, match, end, task.types.shared_keys)
        return not is_taken and self._arrays.first_start(job, best.start, best.walltime) == best.start

    def _check(self, task: PlacementTask, tries: int, start: int = 0) -> None:
        """Stop a search after many tries if the pass is late, or give way.  Raises TimeIsUp, GiveWay.

        ``start``: the first possible start of the current alternative.
        """
        self.check_time(tries, start)
        if tries and self.gives_way():  # a search makes at least one step before it gives way
            start = max(task.progress.start, start)
            task.progress = task.progress._replace(start=start, refusal=task.refusal)
            raise GiveWay(task)

    def check_time(self, tries: int, start: int) -> None:
        """Stop a search after many tries if the pass is late.  Raises TimeIsUp."""
        if tries > PATIENT_TRIES and self.is_late():
            raise TimeIsUp

    def _search_best(self, task: PlacementTask) -> tuple[Placement | None, Reason | None]:
        begin = self._begin(task)
        if task.types.assign and self._plugins:
            return self._plugins.placement(task.job, task.types, task.space, begin), None
        results = dict(task.progress.results)
        try:
            best, refusal = self._best_of_all(task, begin, results)
        except GiveWay:
            task.progress = task.progress._replace(results=results)
            raise
        task.progress = NO_PROGRESS
        return self._on_promised_nodes(task, best) if best and task.job.promised else best, refusal

    def _best_of_all(
        self, task: PlacementTask, begin: int, results: dict[int, Placement | Reason]
    ) -> tuple[Placement | None, Reason | None]:
        """Search with each alternative; ``results``: the results of completed alternatives."""
        best: Placement | None = None
        refusal: Reason | None = None
        tries = 0
        for alternative in task.job.alternatives:
            if alternative.id not in results:
                if tries:
                    self._check(task, tries)
                tries += 1
                latest = FOREVER if best is None else best.end - alternative.walltime - 1
                results[alternative.id] = self._of_alternative(task, alternative, begin, latest)
                task.progress = NO_PROGRESS
            placement = results[alternative.id]
            if isinstance(placement, Placement):
                best = min(best, placement, key=lambda each: (each.end, each.start)) if best else placement
            elif refusal is None:
                refusal = placement
        return best, refusal

    def now(self, task: PlacementTask) -> Placement | Reason | None:
        """Return the placement that starts now and ends first; return None if there is no room.

        Return a Reason if something other than a lack of free resources forbids a start now.
        """
        if has_plugin(task.job):
            best, refusal = self.best(task)
            return refusal if best is None else best if best.start <= self._now else None
        begin = self._begin(task)
        if begin > self._now:
            return self.reasons.not_yet(task, begin)
        found = [self._alternative_now(task, alternative) for alternative in task.job.alternatives]
        placements = [each for each in found if isinstance(each, Placement)]
        if placements:
            best = min(placements, key=lambda placement: placement.end)
            return self._on_promised_nodes(task, best) if task.job.promised else best
        return next((each for each in found if not isinstance(each, Reason)), found[0] if found else None)

    def _alternative_now(self, task: PlacementTask, alternative: Alternative) -> Placement | Reason | None:
        """Return the placement of an alternative that starts now; return a Reason or None as in ``now``."""
        job, now = task.job, self._now
        query = self.query(job, alternative, task.types, task.rules)
        if isinstance(query, Reason):
            return query
        obstacle = self.reasons.obstacle(query, alternative, task.types)
        if obstacle:
            return obstacle
        if self._arrays.first_start(job, now, alternative.walltime) > now:  # independent of earlier searches
            return reasons.array_limit(job.array_id, job.array_limit, self._arrays.overdue(job))
        if self._has_no_room(task.space, query):
            return None
        match = self._search(task, alternative, query, now, now)
        if match and task.rules.has_quotas:
            return self._under_quotas(task, alternative, query, match, now)
        return _placement(task, alternative, match) if match else None

    def _has_no_room(self, space: Space, query: SlotQuery) -> bool:
        """Return whether a query has no match that starts now; a failure is cached for the rest of the round."""
        key = id(space), id(query.request), query.kind, query.keys
        _, _, shortest = self._no_room.get(key, (space, query.request, FOREVER))
        if query.duration >= shortest:
            return True
        if space.earliest(query, self._now, self._now):
            return False
        if query.request.is_monotone:
            self._no_room[key] = space, query.request, query.duration
        return True

    def wave(self, task: PlacementTask, best: Placement) -> Iterator[tuple[WaitingJob, Placement]]:
        """Iterate over a job and the equal jobs after it that are placed at the same start.

        ``best``: the placement of the job.  Each job must be counted before the next one is requested.  If a quota
        refused an earlier start because of the resources at that start, the wave ends: the next job may get other
        resources there.
        """
        yield task.job, best
        placement, free, query = best, 0, None
        for job in task.upcoming.equal(task.types):
            query = query or self.query(task.job, task.job.alternatives[0], task.types, task.rules)
            if isinstance(query, Reason) or not query.request.is_monotone or task.date_dependent:
                return
            (asked,) = job.alternatives
            if not free:
                free = task.space.free_between(best.start, best.start + query.duration, query.keys) & query.usable
            free &= ~placement.resources
            placement = Placement(job.id, asked.id, best.start, asked.walltime, query.request.fit(free))
            if not (placement.resources and self._is_allowed_in_wave(task, job, placement)):
                return
            yield job, placement

    def _is_allowed_in_wave(self, task: PlacementTask, job: WaitingJob, placement: Placement) -> bool:
        """Return whether the counters allow a placement and its resources are not withdrawn before its end."""
        if task.types.is_besteffort:
            leaving = self._usable.leaving_before(placement.end + self._settings.security_time)
            if leaving & placement.resources:
                return False
        return self._bookings.allow(job, task.types, placement, has_quotas=task.rules.has_quotas)

    def earliest(self, task: PlacementTask) -> int | Reason:
        """Return the earliest start of any alternative; return the reason of the first one if none can ever start."""
        begin = self._begin(task)
        if task.types.assign:
            return begin  # the plug-in decides
        found = [self._of_alternative(task, alternative, begin, FOREVER) for alternative in task.job.alternatives]
        starts = [each.start for each in found if isinstance(each, Placement)]
        refusals = [each for each in found if isinstance(each, Reason)]
        return min(starts, default=begin) if starts or not refusals else refusals[0]

    def first_start_of(self, task: PlacementTask, best: Placement | None) -> int:
        """Return the earliest start with any alternative; ``best``: the search result; return FOREVER without one."""
        if best is None:
            return FOREVER
        first = self.earliest(task) if len(task.job.alternatives) > 1 else best.start
        return first if isinstance(first, int) else FOREVER

    def gap(self, task: PlacementTask, best: Placement) -> int:
        """Return for how many seconds the resources of a placement must be free."""
        alternative = task.job.alternative(best.alternative)
        query = self.query(task.job, alternative, task.types, task.rules)
        if isinstance(query, Reason):
            return 0
        is_cut = best.walltime < alternative.walltime
        return min(query.duration, best.walltime + self._settings.security_time) if is_cut else query.duration

    def is_satisfiable(self, job: WaitingJob, types: ParsedTypes, rules: PlacementRules) -> bool:
        """Return whether an alternative of a job can be satisfied if all usable resources are free."""
        queries = ((each, self.query(job, each, types, rules)) for each in job.alternatives)
        return any(
            not isinstance(query, Reason) and self.reasons.obstacle(query, alternative, types) is None
            for alternative, query in queries
        )

    def _begin(self, task: PlacementTask) -> int:
        begin = max(self._now, task.window.begin, task.types.postpone)
        return max(begin, self._spaces.opens_at(task.types.inner)) if task.types.inner else begin

    def at(self, job: WaitingJob, types: ParsedTypes, start: int, rules: PlacementRules) -> Placement | Reason | None:
        """Return the placement of a reservation exactly at its date, with the first alternative that fits.

        Without a placement, return the reason if a quota forbids it; return None otherwise.
        """
        refusal: Reason | None = None
        for alternative in job.alternatives:
            query = self.query(job, alternative, types, rules)
            if isinstance(query, Reason) or self._arrays.first_start(job, start, alternative.walltime) > start:
                continue
            resources = self._spaces.of(types).fit_at(query, start)
            if not resources:
                continue
            placement = Placement(job.id, alternative.id, start, alternative.walltime, resources)
            if self.reasons.lack_of_memory(job, types, placement):
                continue
            excess = self._quotas.refusal(job, types, placement) if rules.has_quotas else None
            if excess is None:
                return placement
            refusal = refusal or reasons.quota(excess.rule, excess.usage, excess.next_start)
        return refusal

    def first_start(self, job: WaitingJob, types: ParsedTypes, begin: int, rules: PlacementRules) -> int:
        """Return when a refused reservation could start with its first alternative, or 0 if never."""
        query = self.query(job, job.alternatives[0], types, rules)
        if isinstance(query, Reason):
            return 0
        while match := self._spaces.of(types).earliest(query, begin):
            begin = self._arrays.first_start(job, match.start, job.alternatives[0].walltime)
            if begin == match.start:
                return begin
        return 0

    def in_the_way(self, job: WaitingJob, types: ParsedTypes, start: int, rules: PlacementRules) -> str:
        """Return who holds resources needed by a refused reservation's first alternative, in brackets, or ''."""
        query = self.query(job, job.alternatives[0], types, rules)
        space = self._spaces.of(types)
        if isinstance(query, Reason) or space.fit_at(query, start):
            return ""
        return self._obstacles.named(space, query.usable, start, start + query.duration)

    def frame_query(
        self, job: WaitingJob, alternative: Alternative, types: ParsedTypes, duration: int
    ) -> SlotQuery | Reason:
        """Return the query of the frame of an advance reservation; no security time follows a frame."""
        is_distant = job.start_time - self._now >= self._settings.reservation_order_threshold
        query = self.query(job, alternative, types, PlacementRules(is_reservation=True, is_distant=is_distant))
        return query if isinstance(query, Reason) else query._replace(duration=duration)

    def _on_promised_nodes(self, task: PlacementTask, best: Placement) -> Placement:
        """Move a placement to the nodes that were woken for the job in the last round, if they can still be used.

        Otherwise each round would wake other nodes.  A job that can start at once on other nodes keeps its placement.
        """
        promised, now = task.job.promised, self._now
        if promised is None or (best.start, best.alternative) != (now, promised.alternative):
            return best
        alternative = task.job.alternative(best.alternative)
        query = self.query(task.job, alternative, task.types, task.rules)
        if isinstance(query, Reason) or not best.resources & ~self._usable.alive:
            return best
        placement = replace(best, resources=promised.resources)
        leaving = self._usable.leaving_before(best.end + self._settings.security_time)
        is_possible = not placement.resources & leaving and task.space.can_give(query, now, placement.resources)
        is_allowed = is_possible and self._bookings.allow(
            task.job, task.types, placement, has_quotas=task.rules.has_quotas
        )
        return placement if is_allowed else best

    def _of_alternative(
        self, task: PlacementTask, alternative: Alternative, begin: int, latest: int
    ) -> Placement | Reason:
        query = self.query(task.job, alternative, task.types, task.rules)
        if isinstance(query, Reason):
            return query
        obstacle = self.reasons.obstacle(query, alternative, task.types)
        if obstacle:
            return obstacle
        task.refusal = task.progress.refusal
        match = self._search(task, alternative, query, max(begin, task.progress.start), latest)
        if task.rules.has_quotas and (match or task.refusal):
            return self._under_quotas(task, alternative, query, match, latest)
        if match is None and alternative.cut_at:
            match = self._shortened(task, alternative, query, begin)
        if match:
            return _placement(task, alternative, match)
        least = query._replace(duration=self.least_duration(query, alternative))
        if task.types.inner in self._ends:
            task.date_dependent.add(alternative.id)  # the reason contains the remaining time
            if not alternative.cut_at:  # the query of a besteffort job has a shorter duration
                least = query._replace(duration=alternative.walltime + self._settings.security_time)
        return self.reasons.never_free(least, task.types)

    def least_duration(self, query: SlotQuery, alternative: Alternative) -> int:
        """Return the minimum time in seconds for which resources must be free to start an alternative."""
        return self._settings.security_time + 1 if alternative.cut_at else query.duration

    def _shortened(
        self, task: PlacementTask, alternative: Alternative, query: SlotQuery, begin: int
    ) -> SlotMatch | None:
        """Return the earliest match of an alternative whose walltime may be shortened to end at ``cut_at``.

        Its resources are free until then.  The later the start, the more resources qualify.
        """
        (slots, query), end = task.space.seen_by(query), alternative.cut_at
        starts = sorted({start for start in (begin, *slots.starts()) if begin <= start < end})

        def resources(start: int) -> ResourceSet:
            if self._arrays.first_start(task.job, start, end - start) > start:
                return 0
            free = slots.free_between(start, end + self._settings.security_time, query.keys)
            return query.request.fit(free & query.usable)

        first = bisect_left(starts, True, key=lambda start: bool(resources(start)))
        return SlotMatch(starts[first], resources(starts[first])) if first < len(starts) else None

    def _search(
        self, task: PlacementTask, alternative: Alternative, query: SlotQuery, begin: int, latest: int
    ) -> SlotMatch | None:
        """Return the earliest match at a start that the limit of the array allows."""
        if not (task.job.array_limit or task.types.is_besteffort):  # the usual case
            return self._earliest(task, query, begin, latest)
        while True:
            begin = self._arrays.first_start(task.job, begin, alternative.walltime)
            match = self._earliest(task, query, begin, latest)
            if task.types.is_besteffort:
                match = self._on_lasting_resources(task, alternative, query, match, latest)
            if match is None or self._arrays.first_start(task.job, match.start, alternative.walltime) == match.start:
                return match
            begin = match.start

    def _earliest(self, task: PlacementTask, query: SlotQuery, begin: int, latest: int) -> SlotMatch | None:
        """Return the earliest match; record the first possible start of a request whose groups compete."""
        space, needed = task.space, query.necessary
        if needed is None:
            return space.earliest(query, begin, latest, partial(self._check, task))
        bound = space.bounds.of(needed)
        if bound <= begin and needed.request.wider:  # no bound for this filter yet: search without the filter first
            wider = needed._replace(request=needed.request.wider)
            match = self._learnt(task, wider, begin, latest, space.bounds.of(wider))
            bound = match.start if match else latest + 1
        match = self._learnt(task, needed, begin, latest, bound)
        if match is None or needed is query:
            return match
        task.possible_from = min(task.possible_from, match.start)
        return space.earliest(query, match.start, latest, partial(self._check, task))

    def _learnt(self, task: PlacementTask, query: SlotQuery, begin: int, latest: int, bound: int) -> SlotMatch | None:
        """Return the earliest match from ``bound`` on, and record it as a bound for related requests."""
        match = task.space.earliest(query, max(begin, bound), latest, partial(self._check, task))
        if match and begin == self._now and match.start > begin:
            task.space.bounds.learn(query, match.start)
        return match

    def _on_lasting_resources(
        self, task: PlacementTask, alternative: Alternative, query: SlotQuery, match: SlotMatch | None, latest: int
    ) -> SlotMatch | None:
        """Return the match of a besteffort job on resources that are not withdrawn before its end.

        Its query covers only a short gap (``Settings.besteffort_gap``), but the job occupies its whole walltime.  Other
        jobs of its advance reservation can displace it, but jobs after the end of the reservation cannot.
        """
        latest_end = self._ends.get(task.types.inner, FOREVER) + self._settings.security_time
        while match:
            end = match.start + alternative.walltime_from(match.start) + self._settings.security_time
            if end > latest_end:
                return None
            leaving = self._usable.leaving_before(end)
            if not leaving & match.resources:
                break
            kind = f"{query.kind} after {self._usable.last_limit_before(end)}"
            lasting = query._replace(usable=query.usable & ~leaving, kind=kind)
            match = task.space.earliest(lasting, match.start, latest, partial(self._check, task))
        return match

    def _under_quotas(
        self, task: PlacementTask, alternative: Alternative, query: SlotQuery, match: SlotMatch | None, latest: int
    ) -> Placement | Reason:
        """Return the placement at the first start that the quotas allow; return the reason if they allow none."""
        tries = 0
        while match:
            self._check(task, tries, match.start)
            tries += 1
            if match.start > self._quotas.latest_start:
                task.date_dependent.add(alternative.id)
                return reasons.behind_quotas(self._quotas.latest_start)
            placement = _placement(task, alternative, match)
            excess = self._quotas.refusal(task.job, task.types, placement, query.request.least)
            if excess is None:
                return placement
            task.refusal = reasons.quota(excess.rule, excess.usage, excess.next_start)
            if not excess.is_exact:
                task.date_dependent.add(alternative.id)
            is_possible = excess.next_start < FOREVER
            match = self._search(task, alternative, query, excess.next_start, latest) if is_possible else None
        task.date_dependent.add(alternative.id)
        return task.refusal or reasons.no_slot()

    def query(
        self, job: WaitingJob, alternative: Alternative, types: ParsedTypes, rules: PlacementRules
    ) -> SlotQuery | Reason:
        """Return the query of an alternative; return the reason if its request cannot be evaluated."""
        groups, memory = alternative.groups, alternative.memory
        request: RequestFit | Reason = self._requests.get(groups, memory, is_distant=rules.is_distant)
        if types.find and self._plugins and isinstance(request, RequestFit):
            request = self._plugins.fit(job, alternative, types.find)
        if isinstance(request, Reason):
            return request
        kind, usable = self._usable.by(types, is_reservation=rules.is_reservation)
        duration = alternative.walltime + self._settings.security_time
        if rules.is_reservation:
            return SlotQuery(request, usable, duration, types.shared_keys, kind)
        if types.is_besteffort:
            duration = self._settings.besteffort_gap(duration)
        return SlotQuery(request, usable, max(duration, self._settings.hole_minimum), types.shared_keys, kind)


def _placement(task: PlacementTask, alternative: Alternative, match: SlotMatch) -> Placement:
    return Placement(task.job.id, alternative.id, match.start, alternative.walltime_from(match.start), match.resources)


def _never() -> bool:
    return False
