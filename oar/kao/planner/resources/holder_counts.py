"""How many jobs hold each resource, counted for all resources at once.

The counts are kept as binary numbers that stand upright: plane *k* is the set of resources whose count has the bit *k*.
Adding a set of resources is then the addition of one to each of them, with a carry from plane to plane.
"""

from oar.lib.base.resource_set import ResourceSet, union


class HolderCounts:
    """The counts of the holders of resources."""

    def __init__(self) -> None:
        self._planes: list[ResourceSet] = []

    @property
    def held(self) -> ResourceSet:
        """The resources that somebody holds."""
        return union(self._planes)

    def add(self, resources: ResourceSet) -> None:
        """Count one holder more of each of some resources."""
        for index, plane in enumerate(self._planes):
            if not resources:
                return
            self._planes[index], resources = plane ^ resources, plane & resources
        if resources:
            self._planes.append(resources)

    def remove(self, resources: ResourceSet) -> None:
        """Count one holder less of each of some resources, which are held."""
        for index, plane in enumerate(self._planes):
            if not resources:
                return
            self._planes[index], resources = plane ^ resources, ~plane & resources
