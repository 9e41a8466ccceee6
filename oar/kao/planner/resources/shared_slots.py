"""The resources of a page that jobs find free because they share them with the occupants.

Each occupant with a sharing key (a timesharing tag, the name of a placeholder) holds resources in some slots.  A job
with the keys of all occupants of a resource finds it free.  A search visits each page several times, so the free
resources by keys are cached until another occupant enters the page.  An occupant with one of the keys does not change
the cached value: the job finds the same resources free as before.

Occupants that stay through a whole page have their own ``SharedSlots``, in which the page is one slot.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from oar.kao.facts.job_types import SharingKey
from oar.lib.base.resource_set import ResourceSet


class SharedSlots:
    """The occupants with keys in the slots of one page."""

    __slots__ = ("_by_key", "_commons", "_extents", "_held", "_left", "_several", "_views")

    def __init__(self, free: Sequence[ResourceSet]) -> None:
        """``free``: the free resources of each slot before the first occupant with a key."""
        self._left = list(free)  #: what no occupant without key has
        self._several: list[ResourceSet] = [0] * len(free)  #: what occupants of different keys have
        self._by_key: dict[SharingKey, list[ResourceSet]] = {}
        self._held: dict[SharingKey, ResourceSet] = {}  #: what each key has in any slot; after a cut it may be more
        self._extents: dict[SharingKey, int] = {}  #: how much that is, as far as somebody asked
        self._views: dict[frozenset[SharingKey], list[ResourceSet]] = {}
        self._commons: dict[frozenset[SharingKey], ResourceSet] = {}  #: what is in all slots of a view

    def hold(
        self,
        first: int,
        last: int,
        occupied: ResourceSet,
        key: SharingKey,
        free: Sequence[ResourceSet],
        *,
        common: ResourceSet = 0,
    ) -> None:
        """Enter an occupant in the slots from ``first`` to before ``last``.

        ``free``: the resources free for all jobs so far; ``common``: a part of what is free for all jobs in all slots.
        """
        own = self._by_key.setdefault(key, [0] * len(self._left))
        if occupied & common != occupied:
            for slot in [slot for slot in range(first, last) if (free[slot] | own[slot]) & occupied != occupied]:
                self._several[slot] |= occupied & ~(free[slot] | own[slot])
        own[first:last] = [held | occupied for held in own[first:last]]
        self._held[key] = self._held.get(key, 0) | occupied
        self._extents.pop(key, None)
        for keys in [keys for keys in self._views if key not in keys]:
            del self._views[keys]
            self._commons.pop(keys, None)

    def take(self, first: int, last: int, remaining: ResourceSet) -> None:
        """Enter an occupant without a key; ``remaining``: all resources except its own."""
        self._left[first:last] = [left & remaining for left in self._left[first:last]]
        self._views.clear()
        self._commons.clear()

    def split(self, slot: int) -> None:
        """Split a slot into two equal ones."""
        for column in (self._left, self._several, *self._by_key.values(), *self._views.values()):
            column.insert(slot + 1, column[slot])

    def part(self, first: int, last: int) -> "SharedSlots":
        """Return an independent copy of some of the slots."""
        other = SharedSlots(self._left[first:last])
        other._several = self._several[first:last]
        other._by_key = {key: own[first:last] for key, own in self._by_key.items() if any(own[first:last])}
        other._held = {key: self._held[key] for key in other._by_key}
        return other

    def extent(self, keys: frozenset[SharingKey]) -> int:
        """Return the maximum number of resources that occupants with these keys hold in a slot."""
        extent, extents, held = 0, self._extents, self._held
        for key in keys:
            if key in held:
                if key not in extents:
                    extents[key] = held[key].bit_count()
                extent += extents[key]
        return extent

    def view(self, free: Sequence[ResourceSet], keys: frozenset[SharingKey]) -> Sequence[ResourceSet]:
        """Return the free resources of each slot for a job with these keys; ``free``: those free for all jobs."""
        view = self._views.get(keys)
        if view is None:
            view = self._views[keys] = self._view(free, keys)
        return view

    def common(self, free: Sequence[ResourceSet], keys: frozenset[SharingKey]) -> ResourceSet:
        """Return the resources free in all slots for a job with these keys; ``free``: those free for all jobs."""
        common = self._commons.get(keys)
        if common is None:
            common = self._commons[keys] = reduce(and_, self.view(free, keys))
        return common

    def _view(self, free: Sequence[ResourceSet], keys: frozenset[SharingKey]) -> list[ResourceSet]:
        columns = [self._by_key[key] for key in keys if key in self._by_key]
        if len(columns) == 1:
            rows = zip(free, columns[0], self._left, self._several, strict=True)
            return [
                each | (own & left & ~several if several else own & left) if own else each
                for each, own, left, several in rows
            ]
        view = list(free)
        for slot in range(len(view) if columns else 0):
            view[slot] |= self._shared(slot, keys)
        return view

    def _shared(self, slot: int, keys: frozenset[SharingKey]) -> ResourceSet:
        """Return the resources of a slot whose occupants all have one of these keys."""
        shared = 0
        for key, own in self._by_key.items():
            if key in keys:
                shared |= own[slot]
        if shared & self._several[slot]:
            for key, own in self._by_key.items():
                if key not in keys:
                    shared &= ~own[slot]
        return shared & self._left[slot]
