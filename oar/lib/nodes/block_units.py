"""Resource sets with one bit per block instead of one bit per resource.

For a request for whole blocks of one level (``/node=4``), only whether each block is completely free matters. With
large blocks, these sets are much shorter, and all operations on them are faster.
"""

from oar.lib.base.bit_runs import BitRuns
from oar.lib.base.resource_set import ResourceSet, positions

#: Blocks have so many resources on average, or more, if it is worth while to count in blocks.
SMALLEST = 32


class BlockUnits:
    """The blocks of one level that contain resources of a pool, in the order of their bits."""

    __slots__ = ("_last", "_lows", "_pool", "_runs", "_tops", "_unit_of", "everything")

    def __init__(self, runs: BitRuns, pool: ResourceSet, marks: ResourceSet) -> None:
        """``marks``: the blocks, as the top bits of their runs."""
        self._runs = runs
        self._pool = pool
        self._tops = list(positions(marks))
        self._lows = [runs.block_of[top][0] for top in self._tops]
        self._unit_of = {top: unit for unit, top in enumerate(self._tops)}
        self._last: tuple[ResourceSet, ResourceSet] = 0, 0  #: what ``members`` has answered last, and to what
        self.everything = (1 << len(self._tops)) - 1  #: all blocks

    @classmethod
    def of(cls, runs: BitRuns, pool: ResourceSet) -> "BlockUnits | None":
        """Return the blocks that contain resources of a pool; return None if the blocks are small."""
        marks = runs.touched(pool)
        return cls(runs, pool, marks) if marks.bit_count() * SMALLEST <= pool.bit_count() else None

    def touched(self, resources: ResourceSet) -> ResourceSet:
        """Return the blocks that contain any of the resources."""
        members, units = self._last
        if resources == members:  # usually the resources of the job that was placed last
            return units
        units, unit_of = 0, self._unit_of
        for top in positions(self._runs.touched(resources & self._pool)):
            units |= 1 << unit_of[top]
        return units

    def members(self, units: ResourceSet) -> ResourceSet:
        """Return the resources of blocks."""
        resources, left, passed = 0, units, 0
        while left:  # consecutive blocks are processed in one step
            skipped = (left & -left).bit_length() - 1
            left >>= skipped
            count = (~left & (left + 1)).bit_length() - 1
            left >>= count
            low, high = self._lows[passed + skipped], self._tops[passed + skipped + count - 1]
            passed += skipped + count
            resources |= ((1 << (high - low + 1)) - 1) << low
        resources &= self._pool
        self._last = resources, units
        return resources
