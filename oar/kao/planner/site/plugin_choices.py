"""Plug-ins that choose the resources of a job (type ``find``), or its start and resources (type ``assign``).

Resource sets are passed to plug-ins as in the planner: as ints whose bits number ``Snapshot.resources``.

See docs/design/planner.rst, "Plug-ins".
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from oar.kao.facts.job_types import ParsedTypes, PluginCall, SharingKey
from oar.kao.facts.plan import Placement
from oar.kao.facts.snapshot import FOREVER, Alternative, Snapshot, WaitingJob
from oar.kao.planner.resources.slots import SlotSet
from oar.kao.planner.resources.spaces import Space
from oar.kao.planner.resources.usable_resources import UsableResources
from oar.kao.planner.site.choice_check import ChoiceCheck, is_resource_set
from oar.kao.planner.site.site_extensions import ASSIGN_PLUGINS, FIND_PLUGINS, PluginLoader
from oar.lib.base.resource_set import ResourceSet
from oar.lib.nodes.hierarchy import PooledGroup, RequestFit, fits_at_all


class InvalidChoice(Exception):
    """A plug-in chose an invalid placement; the text contains the reason."""


class PluginFit(RequestFit):
    """A request whose resources are chosen by a plug-in of the group ``oar.find_func``."""

    __slots__ = ()

    def __init__(
        self,
        function: Callable[..., Any],
        call: PluginCall,
        context: Snapshot,
        job: WaitingJob,
        groups: Sequence[PooledGroup],
    ) -> None:
        super().__init__((), ())
        self.fit = partial(_chosen, function=function, call=call, context=context, job=job, groups=tuple(groups))
        self.is_satisfied = partial(fits_at_all, self.fit)
        self.least = 1
        self.is_monotone = self.is_steady = False  # a plug-in may choose anything


def _chosen(
    free: ResourceSet,
    *,
    function: Callable[..., Any],
    call: PluginCall,
    context: Snapshot,
    job: WaitingJob,
    groups: tuple[PooledGroup, ...],
) -> ResourceSet:
    """Return the resources that a plug-in chooses among the free ones.

    Raises InvalidChoice, and the exceptions of the plug-in.
    """
    choice = function(context, job, groups, free, *call.arguments, **dict(call.options))
    if not is_resource_set(choice) or choice & ~free:
        raise InvalidChoice(f'the plug-in "{call.name}" of the group {FIND_PLUGINS} chose what is not free: {choice!r}')
    return int(choice)


class FreeSpace:
    """The free resources of a job's space by date: the argument ``space`` of plug-ins of ``oar.assign_func``."""

    def __init__(self, slots: SlotSet, usable: ResourceSet, keys: frozenset[SharingKey], gap: int) -> None:
        self._slots = slots
        self._usable = usable
        self._keys = keys
        self.gap = gap  #: seconds that the resources must stay free after the end of the job

    def free(self, start: int, end: int = FOREVER) -> ResourceSet:
        """Return the resources that are free for the job at every instant from ``start`` to ``end``."""
        return self._slots.free_between(start, end, self._keys) & self._usable

    def dates(self) -> Iterator[int]:
        """Iterate over the dates at which the free resources change, earliest first."""
        return iter(self._slots.starts())


class PluginChoices:
    """Calls the plug-ins that the types of jobs name."""

    def __init__(self, load: PluginLoader, snapshot: Snapshot, usable: UsableResources, check: ChoiceCheck) -> None:
        self._load = load
        self._snapshot = snapshot
        self._usable = usable
        self._check = check
        self._fits: dict[int, PluginFit] = {}  #: by id of the alternative

    def fit(self, job: WaitingJob, alternative: Alternative, call: PluginCall) -> RequestFit:
        """Return the request of an alternative, with resources chosen by a plug-in.  Raises MissingPlugin."""
        if alternative.id not in self._fits:
            not_shared, pools = ~self._usable.shared, self._snapshot.pools
            groups = [PooledGroup(pools[each.pool].members & not_shared, each.levels) for each in alternative.groups]
            function = self._load(FIND_PLUGINS, call.name)
            self._fits[alternative.id] = PluginFit(function, call, self._snapshot, job, groups)
        return self._fits[alternative.id]

    def placement(self, job: WaitingJob, types: ParsedTypes, space: Space, begin: int) -> Placement | None:
        """Return the placement that the plug-in of type ``assign`` chooses, from ``begin`` on; return None without one.

        Raises MissingPlugin, InvalidChoice, and the exceptions of the plug-in.
        """
        call = types.assign
        if call is None:
            return None
        _, usable = self._usable.by(types, is_reservation=False)
        free_space = FreeSpace(space.slots, usable, types.shared_keys, self._snapshot.settings.security_time)
        function = self._load(ASSIGN_PLUGINS, call.name)
        choice = function(self._snapshot, job, free_space, begin, *call.arguments, **dict(call.options))
        if choice is None:
            return None
        fault = "no place"
        if isinstance(choice, Placement):
            fault = self._check.fault(job, types, choice, space=space, begin=begin, usable=usable)
        if fault:
            raise InvalidChoice(
                f'the plug-in "{call.name}" of the group {ASSIGN_PLUGINS} chose what cannot be: {fault}'
            )
        placement: Placement = choice
        return placement
