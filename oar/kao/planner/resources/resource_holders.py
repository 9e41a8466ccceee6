"""The jobs that currently hold resources, and which of them prevent a job from starting or resuming."""

from collections.abc import Mapping
from dataclasses import dataclass

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.snapshot import ResourceColumns, RunningJob, Settings, Snapshot
from oar.kao.planner.resources.resource_index import ResourceIndex
from oar.lib.base.resource_set import ResourceSet
from oar.lib.jobs.states import JobState


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
            Holder(job, types[job.id], held_resources(job, snapshot.resources, snapshot.settings) & ~shared)
            for job in snapshot.running
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
    """Return the names that inner jobs may use for a holder."""
    return {str(holder.job.id), holder.types.container} - {""}
