"""The jobs that release resources at a given date."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from oar.kao.facts.plan import Placement
from oar.kao.planner.resources.resource_index import FEW, ResourceIndex
from oar.lib.base.resource_set import ResourceSet


class Occupation(NamedTuple):
    """The resources and the dates of one job or of a wave; the end includes the security time."""

    job_id: int  #: of a wave: that of its first job
    start: int
    end: int
    resources: ResourceSet
    wave: Mapping[int, Placement] | None = None  #: of a wave: the placements of its jobs

    def holders(self) -> Iterator[tuple[int, ResourceSet]]:
        """Iterate over the jobs and the resources that each of them holds."""
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
        """Return an independent index with the same occupations."""
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
