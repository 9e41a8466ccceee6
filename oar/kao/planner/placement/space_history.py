"""The entries of one space in the last round and in this one, compared while this round is planned.

See ``oar.kao.planner.placement.placement_reuse``.
"""

from collections.abc import Callable, Collection, Sequence

from oar.kao.planner.placement.round_memory import Entry, RoundEvent, SearchRecord, SpaceMemory
from oar.kao.planner.resources.free_time_differences import FreeTimeDifferences
from oar.kao.planner.resources.spaces import Space
from oar.lib.base.resource_set import ResourceSet


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
        """Record the search for a job, with its entries."""
        self._events.append(RoundEvent(search, tuple(self._entered[self._compared :]), counted, turn))
        self._compare_entries()

    def note_entries(self, counted: tuple[int, ...], turn: int) -> None:
        """Record entries that were added without a search."""
        if len(self._entered) > self._compared:
            self._events.append(RoundEvent(None, tuple(self._entered[self._compared :]), counted, turn))
        self._compare_entries()

    def memory(self) -> SpaceMemory:
        """Return the record of this round."""
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
