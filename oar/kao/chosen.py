"""Plug-ins that choose the resources of a job, or its start too, instead of the planner (scheduling.md 14).

They are given sets of resources as the planner has them: ints whose bits number ``Snapshot.resources``.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from oar.kao.model import FOREVER, Snapshot, WaitingJob
from oar.kao.slots import Key, SlotSet
from oar.kao.traits import PluginCall
from oar.lib.hierarchy import PooledGroup, RequestFit
from oar.lib.resource_set import ResourceSet


class BadChoice(Exception):
    """A plug-in chose what cannot be; the text names it."""


class ChosenFit(RequestFit):
    """A request whose resources are chosen by a plug-in of the group ``oar.find_func``."""

    __slots__ = ("_asked", "_call", "_context", "_function", "_job")

    def __init__(
        self,
        function: Callable[..., Any],
        call: PluginCall,
        context: Snapshot,
        job: WaitingJob,
        groups: Sequence[PooledGroup],
    ) -> None:
        super().__init__((), ())
        self.fit = self._choose
        self.least = 1
        self.is_monotone = self.is_steady = False  # nobody knows what it will choose
        self._function, self._call, self._context, self._job = function, call, context, job
        self._asked = tuple(groups)

    def _choose(self, free: ResourceSet) -> ResourceSet:
        """Return what the plug-in chooses of the free resources.  Raises BadChoice, and whatever it raises."""
        call = self._call
        chosen = self._function(self._context, self._job, self._asked, free, *call.arguments, **dict(call.options))
        if not is_set(chosen) or chosen & ~free:
            raise BadChoice(f'the plug-in "{call.name}" of the group oar.find_func chose what is not free: {chosen!r}')
        return int(chosen)


class FreeSpace:
    """What is free for a job when: the ``space`` of a plug-in of the group ``oar.assign_func``."""

    def __init__(self, slots: SlotSet, usable: ResourceSet, keys: frozenset[Key], gap: int) -> None:
        self._slots = slots
        self._usable = usable
        self._keys = keys
        self.gap = gap  #: seconds that its resources must stay free behind a job

    def free(self, start: int, end: int = FOREVER) -> ResourceSet:
        """Return the resources that are free for the job at every instant from ``start`` until ``end``."""
        return self._slots.free_between(start, end, self._keys) & self._usable

    def dates(self) -> Iterator[int]:
        """Go through the dates at which something changes, earliest first."""
        return iter(self._slots.starts())


def is_set(value: object) -> bool:
    """Whether a plug-in returned a set of resources."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
