"""A copy of the slots of a space with whole blocks as units, for requests of whole blocks of one level.

A block is free for a period if all its resources are free in each slot of the period.  So the search among sets of
blocks gives the same dates and the same blocks.  With large blocks it takes a third of the time.
"""

from collections.abc import Sequence

from oar.kao.planner.resources.slots import Occupant, SlotQuery, SlotSet
from oar.lib.base.resource_set import ResourceSet
from oar.lib.nodes.block_units import BlockUnits
from oar.lib.nodes.hierarchy import RequestFit

#: They are made when they have been asked for so often for each page of slots: it takes as long as some searches.
ASKED_PER_PAGE = 8


class BlockSlots:
    """The slots in blocks of one kind.  Jobs that may share resources cannot use them."""

    def __init__(self, units: BlockUnits) -> None:
        self._units = units
        self._asked = 0
        self._slots = SlotSet(0, 0)
        self._entered = 0  #: so many occupants of the space are in the slots
        self._usable: dict[str, ResourceSet] = {}  #: the usable blocks, by the name of the usable resources
        self.is_there = False  #: whether the slots have been made

    def ask(self, pages: int) -> bool:
        """Count a request; return whether building the block slots is worthwhile.

        ``pages``: the number of slot pages of the space.
        """
        self._asked += 1
        return self._asked >= ASKED_PER_PAGE * pages

    def begin(self, slots: SlotSet, occupants: int) -> None:
        """Build the block slots from the slots of a space with this number of occupants."""
        self._slots = slots.projected(self._free_blocks, self._units.everything)
        self._entered = occupants
        self.is_there = True

    def updated(self, occupants: Sequence[Occupant]) -> SlotSet:
        """Return the block slots with all occupants of the space.

        An occupant that may share resources is treated like any other.
        """
        for start, end, resources, _ in occupants[self._entered :]:
            self._slots.occupy(start, end, self._units.touched(resources))
        self._entered = len(occupants)
        return self._slots

    def query(self, query: SlotQuery, request: RequestFit) -> SlotQuery:
        """Return the query in blocks; ``request``: its request, compiled for blocks."""
        usable = self._usable.get(query.kind)
        if usable is None:
            usable = self._usable[query.kind] = self._free_blocks(query.usable)
        return SlotQuery(request, usable, query.duration, kind=query.kind)

    def _free_blocks(self, free: ResourceSet) -> ResourceSet:
        """Return the blocks whose resources are all free."""
        return self._units.everything & ~self._units.touched(~free)
