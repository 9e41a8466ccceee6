"""Text about what is missing for a request at a date, counted in the units of the request."""

from collections import Counter
from collections.abc import Sequence

from oar.kao.facts.request_groups import RequestGroup
from oar.kao.facts.snapshot import ResourceColumns
from oar.lib.base.resource_set import ResourceSet, positions
from oar.lib.jobs.records import Level
from oar.lib.nodes.hierarchy import FINEST, RequestFit

#: The property of resources that is a node.
NODE = "network_address"
#: The type of resources that are slots.
SLOT = "default"


class Shortage:
    """The part of a request that does not fit into the free resources."""

    def __init__(
        self, resources: ResourceColumns, request: RequestFit, groups: Sequence[RequestGroup], present: ResourceSet
    ) -> None:
        self._resources = resources
        self._request = request
        self._groups = groups
        self._present = present  #: what is not Dead and has not left

    def told(self, free: ResourceSet) -> tuple[str, ResourceSet]:
        """Return a text with the number of free units, and the suitable resources.

        They refer to the first group that does not fit.
        """
        reach, levels = self._lacking(free)
        suitable = reach & self._present
        return self._counted(free & suitable, suitable, levels), suitable

    def _lacking(self, free: ResourceSet) -> tuple[ResourceSet, tuple[Level, ...]]:
        """Return the resources in reach of the first group that does not fit, and its levels.

        If each group fits alone, return the reach of the whole request and no levels.
        """
        alone = zip(self._groups, self._request.groups, self._request.pools, strict=True)
        for group, fit, pool in alone:
            if len(self._groups) == 1 or not fit.is_satisfied(free & self._present):
                return pool, group.levels
        return self._request.reach, ()

    def _counted(self, free: ResourceSet, suitable: ResourceSet, levels: tuple[Level, ...]) -> str:
        names = [level.property for level in levels]
        if names == [NODE]:
            return self._whole_nodes(free, suitable)
        if names[:1] == [NODE] and len(names) == 2 and levels[1].quantity > 0 and self._is_slot(names[1], suitable):
            return self._nodes_with(levels[1].quantity, free, suitable)
        return f"only {free.bit_count()} of {suitable.bit_count()} suitable {self._kind(suitable)} are free"

    def _whole_nodes(self, free: ResourceSet, suitable: ResourceSet) -> str:
        nodes = self._resources.nodes_of(suitable)
        held = self._resources.nodes_of(suitable & ~free)
        return f"only {len(nodes) - len(held)} of {len(nodes)} suitable nodes are free"

    def _nodes_with(self, slots: int, free: ResourceSet, suitable: ResourceSet) -> str:
        number, of_all = (
            sum(count >= slots for count in self._slots_of_nodes(resources).values()) for resources in (free, suitable)
        )
        return f"only {number} of {of_all} suitable nodes have {slots} free slot{'s' * (slots > 1)}"

    def _slots_of_nodes(self, resources: ResourceSet) -> Counter[str]:
        addresses = self._resources.addresses
        return Counter(addresses[bit] for bit in positions(resources))

    def _is_slot(self, name: str, suitable: ResourceSet) -> bool:
        """Return whether each value of a property belongs to one resource of its node."""
        if name == FINEST:
            return True
        column, addresses = self._resources.columns[name], self._resources.addresses
        return max(Counter((addresses[bit], column[bit]) for bit in positions(suitable)).values(), default=0) == 1

    def _kind(self, suitable: ResourceSet) -> str:
        """Return the name of the unit: slots, or the type of the resources."""
        types = {self._resources.types[bit] for bit in positions(suitable)}
        if len(types) == 1 and (name := types.pop()) != SLOT:
            return f"resources of the type {name}"
        return "slots"
