"""The record of a round for the next one, and the differences between the two while the next one is planned.

``PlacementReuse`` in ``placement_reuse.py`` uses it, so that only jobs that may have changed are planned again.
In both rounds jobs and occupations are only added.

See docs/design/planner.rst, "Memory between rounds".
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import FOREVER, Snapshot, WaitingJob
from oar.kao.planner.limits.array_limits import CountedJob
from oar.kao.planner.limits.dependencies import StartWindow
from oar.kao.planner.resources.compiled_requests import CompiledRequests
from oar.kao.planner.resources.resource_holders import Occupation
from oar.kao.planner.resources.spaces import Space, SpaceKey
from oar.lib.base.resource_set import ResourceSet, union

#: A job in a space.
Entry = tuple[Occupation, ParsedTypes]


class SearchRecord(NamedTuple):
    """The result of the search for one job, or for a wave."""

    jobs: Sequence[WaitingJob]
    window: StartWindow
    best: Placement | None  #: the placement of the first job, even if a deadline or a dependency forbids it
    placements: Mapping[int, Placement]  #: what was booked
    reasons: Mapping[int, Reason]  #: by job id, as the placements: why there is none, or why it does not start now
    is_reusable: bool  #: the placement depends on nothing but the request and the occupied resources
    possible_from: int = FOREVER  #: the first start that was tried for a request whose groups compete

    @property
    def taken(self) -> ResourceSet:
        if len(self.placements) > 1:
            return union(placement.resources for placement in self.placements.values())
        return self.best.resources if self.best else 0


class RoundEvent(NamedTuple):
    """One step of a round in a space: a search (or none) and the entries that it added."""

    search: SearchRecord | None
    entries: Sequence[Entry]
    counted: tuple[int, ...]  #: the length of each log of counters before the step
    turn: int  #: number of searches before it, in all spaces


@dataclass(frozen=True, slots=True)
class SpaceMemory:
    """The entries and events in a space."""

    first_entries: Sequence[Entry]  #: the jobs in it before the first event
    events: Sequence[RoundEvent]  #: in the order of planning
    lent: Sequence[tuple[int, int, ResourceSet]] = ()  #: start, end and resources of its containers


@dataclass(frozen=True, slots=True)
class RoundMemory:
    """The record of a round for the next one."""

    snapshot: Snapshot
    usable: tuple[ResourceSet, ...]  #: the resources by what may be planned on them
    spaces: Mapping[SpaceKey, SpaceMemory]
    reservations: frozenset[int]  #: the ids of accepted reservations and of frames
    logs: Sequence[Sequence[CountedJob]]  #: the jobs counted by quotas and by limits of arrays
    requests: tuple[Snapshot, CompiledRequests] | None = None
    jobs: Mapping[int, WaitingJob] = field(default_factory=dict)
    placements: Mapping[int, Placement] = field(default_factory=dict)
    reasons: Mapping[int, Reason] = field(default_factory=dict)
    messages: Mapping[int, str] = field(default_factory=dict)
    karma: Mapping[int, float] = field(default_factory=dict)


class CounterDifferences:
    """The counters that have counted fewer or more jobs than at the same position of the last round."""

    def __init__(self, now: int, last_log: Sequence[CountedJob], log: Sequence[CountedJob]) -> None:
        """``log``: the jobs counted in this round; it grows while the round is planned."""
        self._now = now
        self._last_log, self._log = last_log, log
        self._last_position = self._position = 0  #: so much of each log has been compared
        self._only_last: dict[int, CountedJob] = {}
        self._only_this: dict[int, CountedJob] = {}
        self._less: dict[Hashable, int] = {}  #: counter -> number of jobs that it lacks
        self._more: dict[Hashable, int] = {}  #: counter -> number of jobs that it has in addition

    def advance(self, last_position: int) -> None:
        """Compare the first ``last_position`` jobs of the last log with all jobs counted in this round so far."""
        last_log, log = self._last_log, self._log
        last, this = self._last_position, self._position
        while last < last_position and this < len(log) and last_log[last] == log[this]:
            last, this = last + 1, this + 1
        for counted in last_log[last:last_position]:
            if counted.end > self._now:
                new = self._only_this.pop(counted.job_id, None)
                if new:
                    _add(self._more, new, -1)
                    self._compare(counted, new)
                else:
                    self._only_last[counted.job_id] = counted
                    _add(self._less, counted, 1)
        for counted in log[this:]:
            old = self._only_last.pop(counted.job_id, None)
            if old:
                _add(self._less, old, -1)
                self._compare(old, counted)
            else:
                self._only_this[counted.job_id] = counted
                _add(self._more, counted, 1)
        self._last_position, self._position = max(last_position, self._last_position), len(log)

    def has_less(self, counters: Collection[Hashable]) -> bool:
        """Return whether a counter lacks a job that it had counted in the last round."""
        return bool(self._less) and any(self._less.get(counter) for counter in counters)

    def has_more(self, counters: Collection[Hashable]) -> bool:
        """Return whether a counter has counted a job that it had not counted in the last round."""
        return bool(self._more) and any(self._more.get(counter) for counter in counters)

    def _compare(self, old: CountedJob, new: CountedJob) -> None:
        """Compare the two counts of one job and record whether this round counts less or more."""
        covers_old = (
            old.counters == new.counters
            and old.amount <= new.amount
            and max(old.start, self._now) >= max(new.start, self._now)
            and old.end <= new.end
        )
        if not covers_old:
            _add(self._less, old, 1)
        if old != new:
            _add(self._more, new, 1)


def _add(numbers: dict[Hashable, int], counted: CountedJob, number: int) -> None:
    for counter in counted.counters:
        numbers[counter] = numbers.get(counter, 0) + number


#: With more slots than this, looking through the differences takes longer than a search.
MAX_SLOTS = 256


class FreeTimeDifferences:
    """The resources that are free in only one of the two rounds, by date."""

    def __init__(self, now: int) -> None:
        self._now = now
        self.touched: ResourceSet = 0  #: all resources with any difference, even one that has evened out
        self._dates = [now]
        self._freed: list[ResourceSet] = [0]  #: by slot: free now, occupied in the last round
        self._taken: list[ResourceSet] = [0]  #: by slot: occupied now, free in the last round
        self._odd_dates: dict[int, int] = {}  #: begins and ends of occupations -> how many more this round has of them
        self._is_vague = False  #: the slots became too many; only ``touched`` is right

    def enter_last(self, start: int, end: int, resources: ResourceSet) -> None:
        """Enter an occupation of the last round that has no equal in this round so far."""
        self._count_dates(start, end, -1)
        for slot in self._slots(start, end, resources):
            evened = self._taken[slot] & resources
            self._taken[slot] ^= evened
            self._freed[slot] |= resources ^ evened

    def enter_this(self, start: int, end: int, resources: ResourceSet) -> None:
        """Enter an occupation of this round that has no equal in the last round so far."""
        self._count_dates(start, end, 1)
        for slot in self._slots(start, end, resources):
            evened = self._freed[slot] & resources
            self._freed[slot] ^= evened
            self._taken[slot] |= resources ^ evened

    def has_freed(self, resources: ResourceSet, until: int) -> bool:
        """Return whether any of these resources is free before ``until`` but was not free in the last round."""
        if self._is_vague:
            return bool(self.touched & resources)
        return any(freed & resources for freed in self._freed[: bisect_left(self._dates, until)])

    def has_taken(self, resources: ResourceSet, start: int, end: int) -> bool:
        """Return whether any of these resources is occupied between two dates but was free in the last round."""
        if self._is_vague:
            return bool(self.touched & resources)
        first = max(0, bisect_right(self._dates, start) - 1)
        return any(taken & resources for taken in self._taken[first : bisect_left(self._dates, end)])

    def has_other_slots(self, start: int, end: int) -> bool:
        """Return whether an occupation begins or ends from ``start`` to ``end`` in only one of the rounds."""
        return self._is_vague or any(start <= date <= end for date in self._odd_dates)

    def _count_dates(self, start: int, end: int, number: int) -> None:
        for date in (start, end) if start < end else ():
            if date > self._now:
                count = self._odd_dates.get(date, 0) + number
                if count:
                    self._odd_dates[date] = count
                else:
                    del self._odd_dates[date]

    def _slots(self, start: int, end: int, resources: ResourceSet) -> range:
        """Return the indexes of the slots between two dates, dates in the past excluded."""
        start = max(start, self._now)
        if start >= end or not resources:
            return range(0)
        self.touched |= resources
        if self._is_vague or len(self._dates) >= MAX_SLOTS:
            self._is_vague = True
            return range(0)
        return range(self._cut(start), self._cut(end))

    def _cut(self, date: int) -> int:
        """Insert a slot at a date if there is none; return its index."""
        slot = bisect_left(self._dates, date)
        if date < FOREVER and (slot == len(self._dates) or self._dates[slot] != date):
            self._dates.insert(slot, date)
            self._freed.insert(slot, self._freed[slot - 1])
            self._taken.insert(slot, self._taken[slot - 1])
        return slot


class SpaceHistory:
    """The events of a space in this round, compared with those of the last round."""

    def __init__(self, now: int, space: Space, last: SpaceMemory | None, changed: Collection[int] = ()) -> None:
        """``last``: the same space in the last round; None if it cannot be compared.

        ``changed``: jobs that are a reservation in only one of the two rounds, so that reasons change.
        """
        self._now = now
        self._space = space  #: kept, so that no other gets its identity
        self._entered = space.entered  #: grows while the round is planned
        self._lent = tuple(space.lent)
        self._first_entries = tuple(self._entered)
        self._compared = len(self._entered)  #: so many entries have been compared with the last round
        self._events: list[RoundEvent] = []
        self._is_comparable = last is not None and [_from(now, each) for each in last.lent] == [
            _from(now, each) for each in self._lent
        ]
        self._last_events: Sequence[RoundEvent] = last.events if last and self._is_comparable else ()
        self._index = {
            job.id: at for at, event in enumerate(self._last_events) if event.search for job in event.search.jobs
        }
        self._passed = 0  #: so many events of the last round have been compared
        self._last_entries: Sequence[Entry] = ()  #: entries of the last of them that are not compared yet
        self.free_times = FreeTimeDifferences(now)
        self.keyed: ResourceSet = 0  #: resources of differences with sharing keys
        self._renamed: ResourceSet = 0  #: resources occupied as in the last round, but by others, or by changed jobs
        self._changed = changed
        if last and self._is_comparable:
            self._compare_first_entries(last.first_entries)

    @property
    def other_holders(self) -> ResourceSet:
        """Return the resources whose holders or dates may differ from the same position of the last round."""
        return self.free_times.touched | self._renamed

    def last_event(self, job_id: int) -> RoundEvent | None:
        """Return the last round's search for a job; return None if its position has been passed."""
        position = self._index.get(job_id, -1)
        return self._last_events[position] if position >= self._passed else None

    def pass_events(self, job_id: int) -> None:
        """Advance to the last round's search for a job, and record differing entries before it."""
        position = self._index[job_id]
        for event in self._last_events[self._passed : position]:
            for entry in event.entries:
                self._enter(entry, self.free_times.enter_last)
        self._passed, self._last_entries = position + 1, self._last_events[position].entries

    def record(self, search: SearchRecord, counted: tuple[int, ...], turn: int) -> None:
        self._events.append(RoundEvent(search, tuple(self._entered[self._compared :]), counted, turn))
        self._compare_entries()

    def note_entries(self, counted: tuple[int, ...], turn: int) -> None:
        """Record entries that were added without a search."""
        if len(self._entered) > self._compared:
            self._events.append(RoundEvent(None, tuple(self._entered[self._compared :]), counted, turn))
        self._compare_entries()

    def memory(self) -> SpaceMemory:
        return SpaceMemory(self._first_entries, self._events, self._lent)

    def _compare_entries(self) -> None:
        """Compare the latest entries of this round with those of the current event of the last round."""
        if not self._is_comparable:
            self._compared = len(self._entered)
            return
        unmatched = list(self._last_entries)
        for entry in self._entered[self._compared :]:
            match = next((last for last in unmatched if self._is_same_entry(last, entry)), None)
            if match:
                unmatched.remove(match)
            else:
                self._enter(entry, self.free_times.enter_this)
        for entry in unmatched:
            self._enter(entry, self.free_times.enter_last)
        self._compared, self._last_entries = len(self._entered), ()

    def _compare_first_entries(self, last_entries: Sequence[Entry]) -> None:
        """Compare the entries that were in the space before the first event."""
        unmatched: dict[int, list[Entry]] = {}
        for last in last_entries:
            unmatched.setdefault(last[0].job_id, []).append(last)
        for entry in self._first_entries:
            of_job = unmatched.get(entry[0].job_id, [])
            match = next((last for last in of_job if self._is_same_entry(last, entry)), None)
            if match:
                of_job.remove(match)
            else:
                self._enter(entry, self.free_times.enter_this)
        for last in (last for of_job in unmatched.values() for last in of_job):
            self._enter(last, self.free_times.enter_last)

    def _enter(self, entry: Entry, enter: Callable[[int, int, ResourceSet], None]) -> None:
        occupation, types = entry
        enter(occupation.start, occupation.end, occupation.resources)
        if types.sharing_key:
            self.keyed |= occupation.resources

    def _is_same_entry(self, last: Entry, entry: Entry) -> bool:
        """Return whether two entries occupy the same resources from now on."""
        old, new = last[0], entry[0]
        is_same = (
            old.end == new.end
            and old.resources == new.resources
            and max(old.start, self._now) == max(new.start, self._now)
            and last[1].sharing_key == entry[1].sharing_key
        )
        is_other_wave = old.wave is not new.wave and old.wave != new.wave
        if is_same and (is_other_wave or new.job_id in self._changed):
            self._renamed |= new.resources
        return is_same


def _from(now: int, lent: tuple[int, int, ResourceSet]) -> tuple[int, int, ResourceSet]:
    start, end, resources = lent
    return max(start, now), end, resources
