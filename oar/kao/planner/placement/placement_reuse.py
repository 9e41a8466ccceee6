"""Reuse of the placements of the last round: a job is searched for again only if its placement may be another.

Jobs are placed one after the other, and each search depends on nothing but the job and what was booked before it.  So
``PlacementReuse`` follows the last round along with this one, and notes the differences between the two.  At its turn
a job gets the placement of the last round, without a search, if no difference of that moment could change it:

- none of its possible resources is free, before its end, that was not free in the last round: it cannot start sooner;
- the resources of its placement are still free;
- the counters that limit it (quotas, jobs of its array) lack nothing; if they have counted more jobs than in the last
  round, they must still allow its placement.

Two changes make no difference.  The date of the round: a placement that starts now or later is still the earliest,
since all earlier starts failed.  A job that has started: it was booked at its turn, and is now booked from the
beginning, which makes one occupation more until its turn comes.

Some jobs are searched for whenever there are differences among the resources that they may use: those of timesharing
and ``allowed``, because another occupant may leave more to them.  Jobs for which a plug-in
chooses are always searched for.

Requests whose groups compete may succeed on less where they fail on more, and try each start of a slot.  They are
searched for also if any of their possible resources is occupied, or slots begin otherwise, between the first start that
satisfies each group alone and the end of their placement.  BESTHALF, which takes less of less, is searched for also if
any possible resource is occupied during the placement.

See docs/design/planner.rst, "Memory between rounds".
"""

from collections.abc import Callable, Collection, Hashable, Sequence

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Placement
from oar.kao.facts.queue_policies import policy_of
from oar.kao.facts.snapshot import FOREVER, QuotaPeriod, Quotas, Snapshot, WaitingJob
from oar.kao.planner.limits.counter_differences import CounterDifferences
from oar.kao.planner.limits.dependencies import StartWindow
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.placement.round_memory import Entry, RoundEvent, RoundMemory, SearchRecord
from oar.kao.planner.resources.free_time_differences import FreeTimeDifferences
from oar.lib.facts.resource_set import ResourceSet
from oar.lib.facts.states import QueueState


class PlacementReuse:
    """Follows the last round along with this one, and records this one for the next."""

    def __init__(self, context: RoundContext, memory: RoundMemory | None) -> None:
        self._snapshot = context.snapshot
        self._now = context.now
        self._usable = context.usable.ordinary
        self._entered = context.spaces.common.entered  #: grows while the round is planned
        self._logs = context.bookings.logs
        self._requests = context.requests
        self._margin = max(context.settings.security_time, context.settings.hole_minimum)
        self._first_entries = tuple(self._entered)
        self._compared = len(self._entered)  #: so many entries have been compared with the last round
        self._events: list[RoundEvent] = []
        self._counted = tuple(map(len, self._logs))
        self.reused = 0  #: number of jobs that needed no search
        self.is_comparable = memory is not None and self._is_comparable(memory)
        self._last_events: Sequence[RoundEvent] = memory.events if memory and self.is_comparable else ()
        self._index = {event.search.job.id: at for at, event in enumerate(self._last_events) if event.search}
        self._passed = 0  #: so many events of the last round have been compared
        self._last_entries: Sequence[Entry] = ()  #: entries of the last of them that are not compared yet
        self._free_times = FreeTimeDifferences(self._now)
        self._keyed: ResourceSet = 0  #: resources of differences with sharing keys
        self._counters: Sequence[CounterDifferences] = ()
        self.has_counted_more = False  #: of the job reused last: its counters have counted more than in the last round
        if memory and self.is_comparable:
            pairs = zip(memory.logs, self._logs, strict=True)
            self._counters = [CounterDifferences(self._now, last_log, log) for last_log, log in pairs]
            self._compare_first_entries(memory.first_entries)

    def find(
        self,
        job: WaitingJob,
        types: ParsedTypes,
        window: StartWindow,
        counters: Sequence[Collection[Hashable]],
        is_allowed: Callable[[Placement], bool],
    ) -> SearchRecord | None:
        """Return the search of the last round for a job, if a search now would have the same result; else None.

        ``counters``: those that limit the job, for each log.  ``is_allowed``: whether they allow a placement.
        """
        self._note_entries()
        self._counted = tuple(map(len, self._logs))
        position = self._index.get(job.id, -1)
        if position < self._passed:
            return None
        event = self._pass_events(position)
        search = event.search
        if search is None or not (self._is_same_query(search, job, window) and self._is_same_result(search, types)):
            return None
        self.has_counted_more = False
        for differences, names in zip(self._counters, counters, strict=True):
            if names and differences.has_less(names):
                return None
            self.has_counted_more |= bool(names) and differences.has_more(names)
        if self.has_counted_more and search.best and not is_allowed(search.best):
            return None
        self.reused += 1
        return search

    def record(self, search: SearchRecord) -> None:
        """Record the search for a job, with what it has entered into the common space."""
        self._events.append(RoundEvent(search, tuple(self._entered[self._compared :]), self._counted))
        self._compare_entries()

    def memory(self) -> RoundMemory:
        """Return the record of this round."""
        self._note_entries()
        return RoundMemory(self._snapshot, self._usable, self._first_entries, self._events, self._logs)

    # --------------------------------------------------------------------------------------------------- side by side

    def _note_entries(self) -> None:
        """Record what has been entered without a search."""
        if len(self._entered) > self._compared:
            self._events.append(RoundEvent(None, tuple(self._entered[self._compared :]), self._counted))
        self._compare_entries()

    def _pass_events(self, position: int) -> RoundEvent:
        """Go on to an event of the last round; what the events before it entered is now here, or a difference."""
        for event in self._last_events[self._passed : position]:
            for entry in event.entries:
                self._enter(entry, self._free_times.enter_last)
        event = self._last_events[position]
        self._passed, self._last_entries = position + 1, event.entries
        for differences, counted in zip(self._counters, event.counted, strict=True):
            differences.advance(counted)
        return event

    def _compare_entries(self) -> None:
        """Compare the latest entries of this round with those of the present event of the last round."""
        if not self.is_comparable:
            self._compared = len(self._entered)
            return
        unmatched = list(self._last_entries)
        for entry in self._entered[self._compared :]:
            match = next((last for last in unmatched if self._is_same_entry(last, entry)), None)
            if match:
                unmatched.remove(match)
            else:
                self._enter(entry, self._free_times.enter_this)
        for entry in unmatched:
            self._enter(entry, self._free_times.enter_last)
        self._compared, self._last_entries = len(self._entered), ()

    def _compare_first_entries(self, last_entries: Sequence[Entry]) -> None:
        """Compare what was in the common space before the first event."""
        unmatched = {entry[0].job_id: entry for entry in last_entries}
        for entry in self._first_entries:
            last = unmatched.get(entry[0].job_id)
            if last and self._is_same_entry(last, entry):
                del unmatched[entry[0].job_id]
            else:
                self._enter(entry, self._free_times.enter_this)
        for entry in unmatched.values():
            self._enter(entry, self._free_times.enter_last)

    def _enter(self, entry: Entry, enter: Callable[[int, int, ResourceSet], None]) -> None:
        occupation, types = entry
        enter(occupation.start, occupation.end, occupation.resources)
        if types.sharing_key:
            self._keyed |= occupation.resources

    def _is_same_entry(self, last: Entry, entry: Entry) -> bool:
        """Whether two entries occupy the same from now on."""
        old, new = last[0], entry[0]
        return (
            old.end == new.end
            and old.resources == new.resources
            and max(old.start, self._now) == max(new.start, self._now)
            and last[1].sharing_key == entry[1].sharing_key
        )

    # ----------------------------------------------------------------------------------------------------- conditions

    def _is_comparable(self, memory: RoundMemory) -> bool:
        """Whether the last round was about the same machine under the same rules."""
        old, new = memory.snapshot, self._snapshot
        if old.now > new.now or old.settings != new.settings or old.queues != new.queues:
            return False
        if old.resources != new.resources or memory.usable != self._usable or _has_external_queue(new):
            return False
        return old.pools == new.pools[: len(old.pools)] and _has_same_quotas(old, new)

    def _is_same_query(self, search: SearchRecord, job: WaitingJob, window: StartWindow) -> bool:
        """Whether a search now would look for the same."""
        first_start = min(search.possible_from, search.best.start if search.best else FOREVER)
        if not search.is_reusable or first_start < self._now:
            return False
        last = search.window
        is_same_window = window.begin == max(last.begin, self._now) and window.latest == last.latest
        return is_same_window and (search.job is job or search.job == job)

    def _is_same_result(self, search: SearchRecord, types: ParsedTypes) -> bool:
        """Whether a search now would find the same: the first two conditions above."""
        free_times, best = self._free_times, search.best
        if not free_times.touched:
            return True
        reach = self._requests.reach(search.job)
        end = best.end + self._margin if best else FOREVER
        if search.possible_from < FOREVER and free_times.has_other_slots(search.possible_from, end):
            return False
        if not free_times.touched & reach:
            return True
        if free_times.has_freed(reach, end) or (types.shared_keys and self._keyed & reach):
            return False
        start = min(search.possible_from, best.start if best else FOREVER)
        taken = best.resources if best and search.is_robust else reach
        return start >= end or not free_times.has_taken(taken, start, end)


def _has_external_queue(snapshot: Snapshot) -> bool:
    """Whether an active queue has an external scheduler, whose placements follow no rule."""
    return any(policy_of(queue.policy) is None for queue in snapshot.queues if queue.state is QueueState.ACTIVE)


def _has_same_quotas(old: Snapshot, new: Snapshot) -> bool:
    """Whether the same rules are in force from now on, as far as they were known in the last round."""
    if old.quotas is None or new.quotas is None:
        return old.quotas is new.quotas
    old_periods, new_periods = _periods_from(old.quotas, new.now), _periods_from(new.quotas, new.now)
    return old.quotas.rules == new.quotas.rules and old_periods == new_periods[: len(old_periods)]


def _periods_from(quotas: Quotas, now: int) -> list[QuotaPeriod]:
    """Return the periods that are not over."""
    begun = [period for period in quotas.periods if period.begin <= now]
    later = [period for period in quotas.periods if period.begin > now]
    return [QuotaPeriod(now, period.rules) for period in begun[-1:]] + later
