"""What one round leaves to the next, so that only what can have changed is planned again.

Jobs are placed one after the other, and each search depends on nothing but the job and on what was placed before it.
So ``Recollection`` goes through the last round along with the present one and follows in what the two worlds differ.
A job keeps its place without a search if none of the differences that there are at its turn could change it:

- nothing that it may use is free, before it would be over, that was not free then: it cannot come sooner;
- what it was given is still free;
- the counters of limits that bind it (quotas, jobs of its array) have counted nothing less; if they have counted more,
  its place must still be allowed.

Two things differ without a difference.  The clock: a place that begins now or later is still the earliest, for all that
could have been earlier was looked at.  And a job that has started stands in the world sooner than in its turn: that is
one that holds more, until its turn comes.

Where jobs share resources, more occupants may leave a job more, and requests whose groups compete for resources could
succeed on less where they failed on more; BESTHALF takes less of less; plug-ins do as they like.  So jobs of
timesharing and placeholders are searched for wherever others of these differ, and such requests always.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from oar.kao.dependencies import Window
from oar.kao.differences import Count, Regions, Tally
from oar.kao.model import FOREVER, Placement, QuotaPeriod, Quotas, Reason, Snapshot, WaitingJob
from oar.kao.priority import policy_of
from oar.kao.requests import Requests
from oar.kao.spaces import Occupation
from oar.kao.traits import Traits
from oar.lib.resource_set import ResourceSet
from oar.lib.states import QueueState

#: Types that let a plug-in choose.
_PLUGGED = ("find=", "assign=")

Entry = tuple[Occupation, Traits]


@dataclass(frozen=True, slots=True)
class Step:
    """What became of a job that was searched for in the common space."""

    job: WaitingJob
    window: Window
    best: Placement | None  #: its place, though a limit of the user may forbid it
    refusal: Reason | None  #: why there is none
    reason: Reason | None  #: why it does not start now
    is_safe: bool  #: its place follows from its request and from what was there


@dataclass(frozen=True, slots=True)
class Event:
    """What came into the common space at once."""

    step: Step | None  #: by which search, if by one
    entries: Sequence[Entry]
    counted: tuple[int, ...]  #: how much each log of counters held before


@dataclass(frozen=True, slots=True)
class Memory:
    """A round, as the next one may use it."""

    snapshot: Snapshot
    usable: ResourceSet  #: resources for ordinary jobs
    base: Sequence[Entry]  #: what was in the common space before the first event
    events: Sequence[Event]  #: in the order of planning
    logs: Sequence[Sequence[Count]]  #: what counters have counted
    requests: tuple[Snapshot, Requests] | None = None
    jobs: Mapping[int, WaitingJob] = field(default_factory=dict)
    placements: Mapping[int, Placement] = field(default_factory=dict)
    reasons: Mapping[int, Reason] = field(default_factory=dict)
    messages: Mapping[int, str] = field(default_factory=dict)
    karma: Mapping[int, float] = field(default_factory=dict)

    def order(self) -> list[int]:
        """Return the jobs that were searched for, in the order of planning."""
        return [event.step.job.id for event in self.events if event.step]


@dataclass(frozen=True, slots=True)
class World:
    """In what jobs are placed; all of it grows with them, but the resources."""

    usable: ResourceSet
    entered: Sequence[Entry]  #: what is in the common space
    logs: Sequence[Sequence[Count]]
    requests: Requests


class Recollection:
    """Goes through the events of the last round along with the present one, and notes the new ones."""

    def __init__(self, snapshot: Snapshot, world: World, before: Memory | None) -> None:
        self._snapshot, self._world = snapshot, world
        self._now = snapshot.now
        self._margin = max(snapshot.settings.security_time, snapshot.settings.hole_minimum)
        self._base = tuple(world.entered)
        self._seen = len(world.entered)
        self._events: list[Event] = []
        self._counted = tuple(map(len, world.logs))
        self.recalled = 0  #: so many jobs needed no search
        self.is_comparable = before is not None and self._is_comparable(before)
        self._old: Sequence[Event] = before.events if before and self.is_comparable else ()
        self._index = {event.step.job.id: at for at, event in enumerate(self._old) if event.step}
        self._at = 0  #: the events before this one have been gone through
        self._then: Sequence[Entry] = ()  #: what the last of them entered, if that is not compared yet
        self._regions = Regions(self._now)
        self._keyed = 0  #: the resources of what may be shared, among the differences
        self._tallies: Sequence[Tally] = ()
        self._is_crowded = False
        if before and self.is_comparable:
            self._tallies = [Tally(self._now, *pair) for pair in zip(before.logs, world.logs, strict=True)]
            self._compare_bases(before.base)

    def recall(
        self,
        job: WaitingJob,
        traits: Traits,
        window: Window,
        binding: Sequence[Collection[Hashable]],
        is_allowed: Callable[[Placement], bool],
    ) -> Step | None:
        """Return what became of a job in the last round, if the same becomes of it now.

        ``binding``: the counters that bind the job, for each log.  ``is_allowed`` tells whether they allow a place.
        """
        self._look()
        self._counted = tuple(map(len, self._world.logs))
        at = self._index.get(job.id, -1)
        if at < self._at:
            return None
        self._pass(at)
        event = self._old[at]
        self._at, self._then = at + 1, event.entries
        for tally, counted in zip(self._tallies, event.counted, strict=True):
            tally.advance(counted)
        step = event.step
        if step is None or not (self._is_asked_again(step, job, window) and self._is_found_again(step, traits)):
            return None
        self._is_crowded = False
        for tally, names in zip(self._tallies, binding, strict=True):
            if names and tally.has_less(names):
                return None
            self._is_crowded |= bool(names) and tally.has_more(names)
        if self._is_crowded and step.best and not is_allowed(step.best):
            return None
        self.recalled += 1
        return step

    @property
    def is_crowded(self) -> bool:
        """Whether counters that bind the job that was recalled last have counted more than then."""
        return self._is_crowded

    def note(self, step: Step) -> None:
        """Keep what became of a job for the next round."""
        self._events.append(Event(step, tuple(self._world.entered[self._seen :]), self._counted))
        self._compare()

    def kept(self) -> Memory:
        """Return what the next round may use."""
        self._look()
        return Memory(self._snapshot, self._world.usable, self._base, self._events, self._world.logs)

    # ------------------------------------------------------------------------------------------------ side by side

    def _look(self) -> None:
        """See what has been entered without a search that was noted."""
        if len(self._world.entered) > self._seen:
            self._events.append(Event(None, tuple(self._world.entered[self._seen :]), self._counted))
        self._compare()

    def _compare(self) -> None:
        """Compare what has been entered with what was entered then."""
        left = list(self._then)
        for entry in self._world.entered[self._seen :]:
            same = next((each for each in left if self._is_same(each, entry)), None)
            if same:
                left.remove(same)
            else:
                self._enter(entry, self._regions.is_there)
        for entry in left:
            self._enter(entry, self._regions.was_there)
        self._seen, self._then = len(self._world.entered), ()

    def _pass(self, at: int) -> None:
        """Go on to an event: what came before it then is there now, or makes a difference."""
        for event in self._old[self._at : at]:
            for entry in event.entries:
                self._enter(entry, self._regions.was_there)

    def _compare_bases(self, then: Sequence[Entry]) -> None:
        """Compare what is in the world from the beginning."""
        known = {entry[0].job_id: entry for entry in then}
        for entry in self._base:
            same = known.get(entry[0].job_id)
            if same and self._is_same(same, entry):
                del known[entry[0].job_id]
            else:
                self._enter(entry, self._regions.is_there)
        for entry in known.values():
            self._enter(entry, self._regions.was_there)

    def _enter(self, entry: Entry, where: Callable[[int, int, ResourceSet], None]) -> None:
        occupation, traits = entry
        where(occupation.start, occupation.end, occupation.resources)
        if traits.occupies_as:
            self._keyed |= occupation.resources

    def _is_same(self, then: Entry, entry: Entry) -> bool:
        """Whether two entries take the same from now on."""
        one, other = then[0], entry[0]
        return (
            one.end == other.end
            and one.resources == other.resources
            and max(one.start, self._now) == max(other.start, self._now)
            and then[1].occupies_as == entry[1].occupies_as
        )

    # --------------------------------------------------------------------------------------------------- conditions

    def _is_comparable(self, before: Memory) -> bool:
        """Whether the last round was about the same machine under the same rules."""
        old, new = before.snapshot, self._snapshot
        if old.now > new.now or old.settings != new.settings or old.queues != new.queues:
            return False
        if old.resources != new.resources or before.usable != self._world.usable or not _is_planned_here(new):
            return False
        return old.pools == new.pools[: len(old.pools)] and _same_quotas(old, new)

    def _is_asked_again(self, step: Step, job: WaitingJob, window: Window) -> bool:
        """Whether the same is searched for."""
        if not step.is_safe or (step.best and step.best.start < self._now):
            return False
        is_same_window = window.begin == max(step.window.begin, self._now) and window.latest == step.window.latest
        return is_same_window and (step.job is job or step.job == job)

    def _is_found_again(self, step: Step, traits: Traits) -> bool:
        """Whether the same is found: see the beginning of this file."""
        regions = self._regions
        if not regions.touched:
            return True
        reach = self._reach(step.job)
        if not regions.touched & reach:
            return True
        if traits.shares and self._keyed & reach:
            return False
        best = step.best
        if best is None:
            return not regions.has_gained(reach, FOREVER)
        over = best.end + self._margin
        return not (regions.has_gained(reach, over) or regions.has_lost(best.resources, best.start, over))

    def _reach(self, job: WaitingJob) -> ResourceSet:
        """Return the resources that a job can have."""
        reach = 0
        for alternative in job.alternatives:
            request = self._world.requests.get(alternative.groups)
            reach |= 0 if isinstance(request, Reason) else request.reach
        return reach


def is_plain(job: WaitingJob) -> bool:
    """Whether the place of a job follows from its request."""
    return not any(text.startswith(_PLUGGED) for text in job.types)


def _is_planned_here(snapshot: Snapshot) -> bool:
    """Whether no queue has a scheduler of its own, which may do what it likes."""
    return all(policy_of(each.policy) is not None for each in snapshot.queues if each.state is QueueState.ACTIVE)


def _same_quotas(old: Snapshot, new: Snapshot) -> bool:
    """Whether the same rules hold from now on, as far as they were known."""
    if old.quotas is None or new.quotas is None:
        return old.quotas is new.quotas
    then, now = _periods(old.quotas, new.now), _periods(new.quotas, new.now)
    return old.quotas.rules == new.quotas.rules and then == now[: len(then)]


def _periods(quotas: Quotas, now: int) -> list[QuotaPeriod]:
    """Return the periods that are not over."""
    begun = [each for each in quotas.periods if each.begin <= now]
    return [QuotaPeriod(now, each.rules) for each in begun[-1:]] + [each for each in quotas.periods if each.begin > now]
