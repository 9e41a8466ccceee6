"""Which jobs give back which resources at a date."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from oar.kao.facts.plan import Placement
from oar.kao.planner.resources.resource_index import ResourceIndex
from oar.lib.facts.resource_set import ResourceSet


class Occupation(NamedTuple):
    """The resources of one job, or of a wave, and its dates; the security time is part of it."""

    job_id: int  #: of a wave: that of its first job
    start: int
    end: int
    resources: ResourceSet
    wave: Mapping[int, Placement] | None = None  #: of a wave: the placements of its jobs

    def holders(self) -> Iterator[tuple[int, ResourceSet]]:
        """Iterate over the jobs with what each of them holds."""
        if self.wave is None:
            yield self.job_id, self.resources
            return
        for job_id, placement in self.wave.items():
            yield job_id, placement.resources


class Endings:
    """The occupations of a space by the date of their end; they are sorted by it when somebody asks."""

    def __init__(self) -> None:
        self._occupations: list[Occupation] = []
        self._sorted = 0  #: so many of them are in ``_by_date``
        self._by_date: dict[int, ResourceIndex[int]] = {}  #: ids of jobs

    def add(self, occupation: Occupation) -> None:
        """Note an occupation."""
        self._occupations.append(occupation)

    def copy(self) -> "Endings":
        """Return an independent index of the same occupations."""
        other = Endings()
        other._occupations = list(self._occupations)
        return other

    def at(self, date: int, resources: ResourceSet) -> list[int]:
        """Return the ids of the jobs that give back some of these resources at a date, in order."""
        for occupation in self._occupations[self._sorted :]:
            if occupation.end not in self._by_date:
                self._by_date[occupation.end] = ResourceIndex()
            ending_then = self._by_date[occupation.end]
            for job_id, held in occupation.holders():
                ending_then.add(job_id, held)
        self._sorted = len(self._occupations)
        ending = self._by_date.get(date)
        return sorted(set(ending.on(resources))) if ending else []
