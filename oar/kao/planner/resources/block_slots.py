"""The slots of a space once more, with whole blocks as units: for those who ask for whole blocks of one level.

A block is free for a while if all of it is free in each slot of this while.  So the search among sets of blocks gives
the same dates and the same blocks; where blocks are large it takes a third of the time.
"""

from collections.abc import Sequence

from oar.kao.planner.resources.slots import Occupant, SlotQuery, SlotSet
from oar.lib.base.resource_set import ResourceSet
from oar.lib.nodes.block_units import BlockUnits
from oar.lib.nodes.hierarchy import RequestFit

#: They are made when they have been asked for so often for each page of slots: it takes as long as some searches.
ASKED_PER_PAGE = 8


class BlockSlots:
    """The slots in blocks of one kind.  Jobs that may share resources have nothing to ask here."""

    def __init__(self, units: BlockUnits) -> None:
        self._units = units
        self._asked = 0
        self._slots = SlotSet(0, 0)
        self._entered = 0  #: so many occupants of the space are in the slots
        self._usable: dict[str, ResourceSet] = {}  #: the usable blocks, by the name of the usable resources
        self.is_there = False  #: whether the slots have been made

    def ask(self, pages: int) -> bool:
        """Ask whether it is worth it to make them; ``pages``: so many pages of slots the space has."""
        self._asked += 1
        return self._asked >= ASKED_PER_PAGE * pages

    def begin(self, slots: SlotSet, occupants: int) -> None:
        """Make them of the slots of the space, in which there are so many occupants."""
        self._slots = slots.projected(self._free_blocks, self._units.everything)
        self._entered = occupants
        self.is_there = True

    def updated(self, occupants: Sequence[Occupant]) -> SlotSet:
        """Return the slots with all occupants of the space; who may share a resource is in the way of others."""
        for start, end, resources, _ in occupants[self._entered :]:
            self._slots.occupy(start, end, self._units.touched(resources))
        self._entered = len(occupants)
        return self._slots

    def query(self, query: SlotQuery, request: RequestFit) -> SlotQuery:
        """Return a query in blocks; ``request``: that of the query, for blocks."""
        usable = self._usable.get(query.kind)
        if usable is None:
            usable = self._usable[query.kind] = self._free_blocks(query.usable)
        return SlotQuery(request, usable, query.duration, kind=query.kind)

    def _free_blocks(self, free: ResourceSet) -> ResourceSet:
        """Return the blocks all of which is free."""
        return self._units.everything & ~self._units.touched(~free)
