"""Extensions of the planner by the site: job order, external schedulers, plug-ins; the check of their placements.

External schedulers are programs of the site that plan the jobs of a queue: ``rounds/site/external_schedulers.py`` runs
them, ``proposal_review.py`` checks and books their placements.  Plug-ins choose the resources of a job (type ``find``),
or its start and resources (type ``assign``).  Resource sets are passed to them as in the planner: as ints whose bits
number ``Snapshot.resources``.

See docs/design/planner.rst, "Schedulers of the site" and "Plug-ins".
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes, PluginCall, SharingKey
from oar.kao.facts.plan import Answer, Placement, Reason
from oar.kao.facts.snapshot import FOREVER, Alternative, Snapshot, WaitingJob
from oar.kao.planner.resources.slots import SlotSet
from oar.kao.planner.resources.spaces import Space, Spaces
from oar.kao.planner.resources.usable_resources import UsableResources
from oar.lib.base.resource_set import ResourceSet
from oar.lib.jobs.records import Queue
from oar.lib.nodes.hierarchy import PooledGroup, RequestFit, fits_at_all


@dataclass(frozen=True, slots=True)
class SchedulerProposal:
    """The decisions of an external scheduler on the jobs of a queue, by job id where they concern one job."""

    scheduler: str  #: name of the program
    placements: tuple[Placement, ...] = ()  #: not checked yet
    rejected: Mapping[int, str] = field(default_factory=dict)  #: why a placement could not even be read
    said: Mapping[int, str] = field(default_factory=dict)  #: what the program wrote to ``scheduler_info``
    messages: Mapping[int, str] = field(default_factory=dict)  #: what it wrote to ``jobs.message``
    given_up: tuple[Answer, ...] = ()  #: jobs that it put into toError
    gone: frozenset[int] = frozenset()  #: jobs that no longer wait
    is_failed: bool = False  #: it ended with an error: nothing of the above is filled


class ExternalPlanner(Protocol):
    """All external schedulers of a site."""

    def plans(self, queue: Queue) -> bool:
        """Return whether an external scheduler plans the jobs of a queue."""

    def plan(self, queue: Queue, jobs: Sequence[WaitingJob], placed: Collection[Placement]) -> SchedulerProposal:
        """Return the proposal for the jobs of a queue; ``placed`` are the placements of the round so far."""


#: Sorts jobs: returns their ids in the order of planning.
JobSorting = Callable[[Snapshot, Sequence[WaitingJob]], Sequence[int]]


#: Groups of entry points: plug-ins of type ``find`` choose resources, those of type ``assign`` start and resources.
FIND_PLUGINS = "oar.find_func"


ASSIGN_PLUGINS = "oar.assign_func"


#: Returns a plug-in by group and name.  Raises MissingPlugin.
PluginLoader = Callable[[str, str], Callable[..., Any]]


class MissingPlugin(LookupError):
    """A plug-in is not installed, or cannot be loaded; the text contains its name."""


@dataclass(frozen=True, slots=True)
class SiteExtensions:
    """The extensions of a site."""

    sort: JobSorting | None = None  #: the order of JOB_PRIORITY=CUSTOM
    load: PluginLoader | None = None  #: None = the types ``find`` and ``assign`` have no effect
    external: ExternalPlanner | None = None  #: plans the queues that have an external scheduler
    before_group: Callable[[Snapshot, Sequence[Queue], Spaces], None] | None = None  #: EXTRA_METASCHED


#: A site without any, and a saved round that is planned on another machine.
NO_EXTENSIONS = SiteExtensions()


def choice_fault(
    snapshot: Snapshot,
    job: WaitingJob,
    types: ParsedTypes,
    placement: Placement,
    *,
    space: Space | Reason,
    begin: int,
    usable: ResourceSet,
) -> str:
    """Return why a placement of a plug-in or an external scheduler must not be booked; return '' if it may be.

    ``space``: the space of the job, or the reason why there is none.  ``begin``: the earliest start.  The check does
    not include whether the request is satisfied.
    """

    def listed(resources: ResourceSet) -> str:
        ids = snapshot.resources.ids_of(resources)
        return ",".join(map(str, ids[: reasons.NAMED])) + (",..." if len(ids) > reasons.NAMED else "")

    alternative = next((each for each in job.alternatives if each.id == placement.alternative), None)
    is_known = alternative is not None and placement.walltime == alternative.walltime_from(placement.start)
    if not is_known or placement.job_id != job.id:
        return f"{placement.alternative} is no alternative of the job with that walltime"
    if isinstance(space, Reason):
        return space.text
    if placement.start < begin:
        return f"it begins at {placement.start}, before {begin}"
    if not is_resource_set(placement.resources) or not placement.resources:
        return "it has no resources"
    unusable = placement.resources & ~usable
    if unusable:
        return f"the resources {listed(unusable)} cannot be used"
    end = placement.end + snapshot.settings.security_time
    occupied = placement.resources & ~space.free_between(placement.start, end, types.shared_keys)
    return f"the resources {listed(occupied)} are not free" if occupied else ""


def is_resource_set(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


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
    """Return the resources that a plug-in chooses among the free ones.  Raises InvalidChoice."""
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

    def __init__(self, load: PluginLoader, snapshot: Snapshot, usable: UsableResources) -> None:
        self._load = load
        self._snapshot = snapshot
        self._usable = usable
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
            fault = choice_fault(self._snapshot, job, types, choice, space=space, begin=begin, usable=usable)
        if fault:
            raise InvalidChoice(
                f'the plug-in "{call.name}" of the group {ASSIGN_PLUGINS} chose what cannot be: {fault}'
            )
        placement: Placement = choice
        return placement
