"""The jobs that hold resources: found by resources, by the date at which they end, and those that hold them now."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Placement
from oar.kao.facts.snapshot import ResourceColumns, RunningJob, Settings, Snapshot
from oar.kao.planner.resources.node_memory import MemoryUse
from oar.lib.base.resource_set import ResourceSet, positions, without
from oar.lib.jobs.states import JobState

T = TypeVar("T")


#: So many things are looked at sooner than it is counted what is asked for.
FEW = 4


class ResourceIndex(Generic[T]):
    """Items that hold resources, found by a set of resources.

    If a search names fewer resources than there are items, it uses an index by resource, which is built at the first
    such search.  Otherwise all items are compared.
    """

    def __init__(self) -> None:
        self._things: list[T] = []
        self._held: list[ResourceSet] = []
        self._all_held: ResourceSet = 0
        self._indexed = 0  #: so many of them are in ``_by_bit``
        self._by_bit: dict[int, list[int]] = {}  #: resource -> numbers of things

    def __len__(self) -> int:
        return len(self._things)

    def add(self, thing: T, resources: ResourceSet) -> None:
        self._things.append(thing)
        self._held.append(resources)
        self._all_held |= resources

    def on(self, resources: ResourceSet) -> list[T]:
        """Return the items that hold some of these resources, in the order in which they were added."""
        wanted = resources & self._all_held
        if not wanted:
            return []
        if len(self._things) <= FEW or wanted.bit_count() >= len(self._things):
            return [thing for thing, held in zip(self._things, self._held, strict=True) if held & wanted]
        for number in range(self._indexed, len(self._things)):
            for bit in positions(self._held[number]):
                self._by_bit.setdefault(bit, []).append(number)
        self._indexed = len(self._things)
        numbers = {number for bit in positions(wanted) for number in self._by_bit.get(bit, ())}
        return [self._things[number] for number in sorted(numbers)]


class Occupation(NamedTuple):
    """The resources and the dates of one job or of a wave; the end includes the security time."""

    job_id: int  #: of a wave: that of its first job
    start: int
    end: int
    resources: ResourceSet
    wave: Mapping[int, Placement] | None = None  #: of a wave: the placements of its jobs
    memory: MemoryUse | None = None  #: None = its memory is not counted

    def holders(self) -> Iterator[tuple[int, ResourceSet]]:
        if self.wave is None:
            yield self.job_id, self.resources
            return
        for job_id, placement in self.wave.items():
            yield job_id, placement.resources


class Endings:
    """The occupations of a space, indexed by end date; the index is built on demand."""

    def __init__(self) -> None:
        self._occupations: list[Occupation] = []
        self._sorted = 0  #: so many of them are in ``_by_date``
        self._by_date: dict[int, list[tuple[int, ResourceSet]]] = {}  #: ids of jobs, and what each of them holds
        self._indexes: dict[int, ResourceIndex[int]] = {}  #: the same, of dates at which many end

    def add(self, occupation: Occupation) -> None:
        self._occupations.append(occupation)

    def copy(self) -> "Endings":
        other = Endings()
        other._occupations = list(self._occupations)
        return other

    def at(self, date: int, resources: ResourceSet) -> list[int]:
        """Return the ids, in ascending order, of the jobs that release some of these resources at ``date``."""
        by_date = self._by_date
        for occupation in self._occupations[self._sorted :]:
            ending = by_date.setdefault(occupation.end, [])
            if occupation.wave is None:
                ending.append((occupation.job_id, occupation.resources))
            else:
                ending += [(job_id, placement.resources) for job_id, placement in occupation.wave.items()]
        self._sorted = len(self._occupations)
        all_ending = by_date.get(date, ())
        if len(all_ending) <= FEW:
            return sorted({job_id for job_id, held in all_ending if held & resources})
        return sorted(set(self._index(date, all_ending).on(resources)))

    def _index(self, date: int, ending: Sequence[tuple[int, ResourceSet]]) -> ResourceIndex[int]:
        """Return the resource index of all jobs that end at ``date``."""
        index = self._indexes.get(date)
        if index is None:
            index = self._indexes[date] = ResourceIndex()
        for job_id, held in ending[len(index) :]:
            index.add(job_id, held)
        return index


def held_resources(job: RunningJob, resources: ResourceColumns, settings: Settings) -> ResourceSet:
    """Return the resources that a job keeps from others; a Suspended job lends resources of some types."""
    if job.state is not JobState.SUSPENDED or not settings.suspended_types:
        return job.resources
    return job.resources & ~resources.where(resources.types, *settings.suspended_types)


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that currently holds resources, without the resources shared by all jobs."""

    job: RunningJob
    types: ParsedTypes
    resources: ResourceSet


class ResourceHolders:
    """All jobs that currently hold resources."""

    def __init__(self, snapshot: Snapshot, types: Mapping[int, ParsedTypes], shared: ResourceSet) -> None:
        """``shared``: the resources that every job has in addition to its own."""
        self.all = [
            Holder(job, types[job.id], without(held, shared) if held & shared else held)
            for job in snapshot.running
            for held in (held_resources(job, snapshot.resources, snapshot.settings),)
        ]
        self.has_besteffort = any(holder.types.is_besteffort for holder in self.all)
        self._index: ResourceIndex[Holder] = ResourceIndex()
        for holder in self.all:
            self._index.add(holder, holder.resources)
        #: names that inner jobs may use -> the space of the running container
        self._running_spaces = {
            name: types[job.id].container
            for job in snapshot.running
            if job.state is JobState.RUNNING
            for name in types[job.id].container_names(job.id)
        }

    def is_running(self, container: str) -> bool:
        """Return whether a container is running, so that inner jobs may start."""
        return container in self._running_spaces

    def of(self, resources: ResourceSet, types: ParsedTypes) -> list[Holder]:
        """Return the jobs that hold some of these resources and do not share them with a job of these types."""
        return [holder for holder in self._index.on(resources) if not self.may_share(types, holder)]

    def inside(self, holder: Holder) -> set[int]:
        """Return the ids of the jobs that hold resources in a container, nested containers included."""
        names = _names(holder)
        inside: set[int] = set()
        while True:
            new = [inner for inner in self.all if inner.types.inner in names and inner.job.id not in inside]
            if not new:
                return inside
            inside |= {inner.job.id for inner in new}
            names |= {name for inner in new for name in _names(inner)}

    def may_share(self, types: ParsedTypes, holder: Holder) -> bool:
        """Return whether a job may use the resources of a holder: in another space, or by a sharing key."""
        return self._space(types) != self._space(holder.types) or holder.types.sharing_key in types.shared_keys

    def _space(self, types: ParsedTypes) -> str:
        """Return the space of a job; it is the common space if its container is not running."""
        return self._running_spaces.get(types.inner, "")


def _names(holder: Holder) -> set[str]:
    return {str(holder.job.id), holder.types.container} - {""}
