"""Reuse placements of the last round: search for a job again only if its placement may have changed.

Jobs are placed one after the other, and each search depends only on the job and on earlier bookings.  So
``PlacementReuse`` follows the last round in parallel with this one and records the differences, for each space
separately (``SpaceHistory``).  At its turn, a job gets the placement of the last round without a search if no
difference recorded so far could change it:

- none of its possible resources is free, before its end, that was not free in the last round: it cannot start sooner;
- the resources of its placement are still free;
- the counters that limit it (quotas, jobs of its array) have not decreased.  If they have counted more jobs than in the
  last round, they must still allow its placement.

The date of the round is irrelevant: a placement that starts now or later is still the earliest, because all earlier
starts failed.  Searched for again are also

- jobs that share resources, if their possible resources differ in any way: other occupants may leave them more;
- requests whose groups compete, if a possible resource is occupied, or if slots begin at other dates, from the first
  start that satisfies each group alone to the end of the placement: they may succeed with fewer resources;
- BESTHALF requests, if any possible resource is occupied during the placement: they take fewer if fewer are free;
- jobs with a plug-in.

See docs/design/planner.rst, "Memory between rounds".
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Placement
from oar.kao.facts.snapshot import FOREVER, Snapshot
from oar.kao.planner.placement.placement_task import PlacementTask
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.placement.round_memory import (
    CounterDifferences,
    RoundMemory,
    SearchRecord,
    SpaceHistory,
    SpaceMemory,
)
from oar.kao.planner.resources.spaces import Space, SpaceKey
from oar.lib.accounts.quota_records import QuotaPeriod, Quotas
from oar.lib.jobs.queue_policies import policy_of
from oar.lib.jobs.states import QueueState


class PlacementReuse:
    """Follows the last round in parallel with this one, and records this one for the next."""

    def __init__(self, context: RoundContext, memory: RoundMemory | None) -> None:
        self._snapshot = context.snapshot
        self._now = context.now
        self._usable = context.usable.classes
        self._logs = context.bookings.logs
        self._reservations = context.bookings.reservations
        #: jobs that are reservations in one of the two rounds only, as those that have begun
        self._changed: Collection[int] = memory.reservations ^ self._reservations if memory else ()
        self._requests = context.requests
        self._margin = max(context.settings.security_time, context.settings.hole_minimum)
        self._counted = tuple(map(len, self._logs))
        self._turn = 0  #: number of searches so far, of all spaces
        self.reused = 0  #: number of jobs that needed no search
        self.is_comparable = memory is not None and self._is_comparable(memory)
        self._last_spaces: Mapping[SpaceKey, SpaceMemory] = memory.spaces if memory and self.is_comparable else {}
        self._last_turn = 0  #: the turn of the last round up to which counters have been compared
        self._counters: Sequence[CounterDifferences] = ()
        self._histories: dict[int, SpaceHistory] = {}  #: by the identity of the space
        self._keys: dict[SpaceKey, SpaceHistory] = {}  #: the latest of each
        self._has_counted_more = False  #: of the job reused last: its counters have counted more than in the last round
        self._is_overdue_same = memory is not None and memory.snapshot.overdue() == context.snapshot.overdue()
        if memory and self.is_comparable:
            pairs = zip(memory.logs, self._logs, strict=True)
            self._counters = [CounterDifferences(self._now, last_log, log) for last_log, log in pairs]
        self._history(context.spaces.common)

    def had_search(self, task: PlacementTask) -> bool:
        """Record the turn of a job; return whether the last round had a search for it."""
        history = self._history(task.space)
        history.note_entries(self._counted, self._turn)
        self._counted = tuple(map(len, self._logs))
        event = history.last_event(task.job.id)
        return event is not None and event.turn >= self._last_turn

    def find(
        self, task: PlacementTask, counters: Sequence[Collection[Hashable]], is_allowed: Callable[[Placement], bool]
    ) -> SearchRecord | None:
        """Return the last round's search for a job if a search now would give the same result; return None otherwise.

        ``counters``: the counters that limit the job, for each log.  ``is_allowed``: returns whether they allow a
        placement.
        """
        history = self._history(task.space)
        event = history.last_event(task.job.id)
        if event is None:
            return None
        self._last_turn = event.turn
        history.pass_events(task.job.id)
        for differences, counted in zip(self._counters, event.counted, strict=True):
            differences.advance(counted)
        search = event.search
        if search is None or not (
            self._is_same_query(search, task) and self._is_same_result(search, task.types, history)
        ):
            return None
        self._has_counted_more = False
        for differences, names in zip(self._counters, counters, strict=True):
            if names and differences.has_less(names):
                return None
            self._has_counted_more |= bool(names) and differences.has_more(names)
        if self._has_counted_more and search.best and (len(search.jobs) > 1 or not is_allowed(search.best)):
            return None
        self.reused += len(search.jobs)
        return search

    @property
    def are_limits_same(self) -> bool:
        """Return whether the limits (quotas, array) of the last reused job give the same reasons as before."""
        return self._is_overdue_same and not self._has_counted_more

    def has_same_reasons(self, task: PlacementTask, search: SearchRecord) -> bool:
        """Return whether the jobs of a reused search have the same placements and the same reasons."""
        best, window, last = search.best, task.window, search.window
        if task.rules.is_now_only or (window.begin_job, window.latest_job) != (last.begin_job, last.latest_job):
            return False
        if best is None or not search.placements:
            return True
        if best.start <= self._now or not self.are_limits_same:
            return False
        others = self._history(task.space).other_holders
        return not (others and others & search.taken)

    def record(self, task: PlacementTask, search: SearchRecord) -> None:
        self._history(task.space).record(search, self._counted, self._turn)
        self._turn += 1

    def memory(self) -> RoundMemory:
        for history in self._keys.values():
            history.note_entries(self._counted, self._turn)
        spaces = {key: history.memory() for key, history in self._keys.items()}
        return RoundMemory(self._snapshot, self._usable, spaces, frozenset(self._reservations), self._logs)

    def _history(self, space: Space) -> SpaceHistory:
        """Return the history of a space; create it at the first call."""
        history = self._histories.get(id(space))
        if history is None:
            history = SpaceHistory(self._now, space, self._last_spaces.get(space.key), self._changed)
            self._histories[id(space)] = self._keys[space.key] = history
        return history

    # ----------------------------------------------------------------------------------------------------- conditions

    def _is_comparable(self, memory: RoundMemory) -> bool:
        old, new = memory.snapshot, self._snapshot
        if old.now > new.now or old.settings != new.settings or old.queues != new.queues:
            return False
        is_same_machine = old.resources.with_states(new.resources) == new.resources and memory.usable == self._usable
        active = [queue for queue in new.queues if queue.state is QueueState.ACTIVE]
        has_external_queue = any(policy_of(queue.policy) is None for queue in active)  # its plan is unpredictable
        if not is_same_machine or has_external_queue:
            return False
        return old.pools == new.pools[: len(old.pools)] and _has_same_quotas(old, new)

    def _is_same_query(self, search: SearchRecord, task: PlacementTask) -> bool:
        first_start = min(search.possible_from, search.best.start if search.best else FOREVER)
        if not search.is_reusable or first_start < self._now:
            return False
        last, window = search.window, task.window
        is_same_window = window.begin == max(last.begin, self._now) and window.latest == last.latest
        return is_same_window and task.upcoming.begins_with(search.jobs)

    def _is_same_result(self, search: SearchRecord, types: ParsedTypes, history: SpaceHistory) -> bool:
        """Return whether a search now would have the same result: the first two conditions of the module docstring."""
        free_times, best = history.free_times, search.best
        if not free_times.touched:
            return True
        reach = self._requests.reach(search.jobs[0])
        end = best.end + self._margin if best else FOREVER
        if search.possible_from < FOREVER and free_times.has_other_slots(search.possible_from, end):
            return False
        if not free_times.touched & reach:
            return True
        if free_times.has_freed(reach, end) or (types.shared_keys and history.keyed & reach):
            return False
        start = min(search.possible_from, best.start if best else FOREVER)
        taken = search.taken if best and self._requests.are_robust(search.jobs[0]) else reach
        return start >= end or not free_times.has_taken(taken, start, end)


def _has_same_quotas(old: Snapshot, new: Snapshot) -> bool:
    """Return whether the same rules apply from now on, as far as the last round had read them."""
    if old.quotas is None or new.quotas is None:
        return old.quotas is new.quotas
    old_periods, new_periods = _periods_from(old.quotas, new.now), _periods_from(new.quotas, new.now)
    return old.quotas.rules == new.quotas.rules and old_periods == new_periods[: len(old_periods)]


def _periods_from(quotas: Quotas, now: int) -> list[QuotaPeriod]:
    begun = [period for period in quotas.periods if period.begin <= now]
    later = [period for period in quotas.periods if period.begin > now]
    return [QuotaPeriod(now, period.rules) for period in begun[-1:]] + later
