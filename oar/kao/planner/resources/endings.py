"""Which jobs give back which resources at a date."""

from dataclasses import dataclass

from oar.kao.planner.resources.resource_index import ResourceIndex
from oar.lib.facts.resource_set import ResourceSet


@dataclass(frozen=True, slots=True)
class Occupation:
    """The resources of one job, and its dates; the security time is part of it."""

    job_id: int
    start: int
    end: int
    resources: ResourceSet


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
            self._by_date[occupation.end].add(occupation.job_id, occupation.resources)
        self._sorted = len(self._occupations)
        ending = self._by_date.get(date)
        return sorted(set(ending.on(resources))) if ending else []
