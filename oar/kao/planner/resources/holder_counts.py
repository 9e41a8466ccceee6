"""The number of holders of each resource, counted for all resources at once.

The counts are stored as binary numbers in bit planes: plane *k* is the set of resources whose count has bit *k* set.
To add a set of resources, add one to each count, with a carry from plane to plane.
"""

from oar.lib.base.resource_set import ResourceSet, union


class HolderCounts:
    """The counts of the holders of resources."""

    def __init__(self) -> None:
        self._planes: list[ResourceSet] = []

    @property
    def held(self) -> ResourceSet:
        """Return the resources with at least one holder."""
        return union(self._planes)

    def add(self, resources: ResourceSet) -> None:
        """Add one holder to each of these resources."""
        for index, plane in enumerate(self._planes):
            if not resources:
                return
            self._planes[index], resources = plane ^ resources, plane & resources
        if resources:
            self._planes.append(resources)

    def remove(self, resources: ResourceSet) -> None:
        """Remove one holder from each of these resources, which must have one."""
        for index, plane in enumerate(self._planes):
            if not resources:
                return
            self._planes[index], resources = plane ^ resources, ~plane & resources
