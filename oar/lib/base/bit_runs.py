"""Blocks of resources as runs of bits, and queries about all blocks at once.

Each query is arithmetic on one large integer, which has a field of bits for each block:

- which runs contain a bit: adding "all ones but the top" to a run carries into its top bit unless the run is empty;
- how many bits each run contains: sums of neighbours, then of neighbouring sums, and so on;
- which counts are at least n: adding 2**(width - 1) - n to a field sets its top bit if and only if it is n or more.

See docs/design/planner.rst, "Requests".
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from oar.lib.base.resource_set import ResourceSet, from_positions, positions, without

#: So many fields are put together before they are put into the large integer.
_BATCH = 64


class BitRuns:
    """Blocks that are disjoint runs of bits, and queries about all of them at once. A result marks top bits."""

    __slots__ = (
        "_body",
        "_bottoms",
        "_limits",
        "_parts",
        "_spans",
        "_stages",
        "_steps",
        "_widest",
        "_width",
        "block_of",
        "tops",
    )

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        """``spans``: lowest and highest bit of each block, in ascending order."""
        self._spans = spans
        self.tops = from_positions(high for _, high in spans)
        self._bottoms = from_positions(low for low, _ in spans)
        self._body = self._fields(lambda width: (1 << (width - 1)) - 1)
        widths = {high - low + 1 for low, high in spans}
        ones = {width: _ones(0, width) for width in widths}
        #: by top bit: lowest bit, and the bits of the block from there; a whole set would be as long as the machine
        self.block_of = {high: (low, ones[high - low + 1]) for low, high in spans}
        self._widest = max(widths, default=1)
        self._width = self._widest if len(widths) == 1 else 0
        self._steps = (self._widest - 1).bit_length()
        self._stages: list[tuple[int, int, int]] = []
        self._limits: dict[int, tuple[int, int]] = {}
        self._parts: dict[tuple[tuple[int, int], ...], BitRuns] = {}

    def part(self, low: int, high: int) -> "BitRuns | None":
        """Return the blocks from bit ``low`` to before ``high``, shifted to bit 0; return None if a block is cut.

        Equal parts are one object.
        """
        first, behind = (bisect_left(self._spans, (bit,)) for bit in (low, high))
        if any(index and self._spans[index - 1][1] >= bit for index, bit in ((first, low), (behind, high))):
            return None
        spans = tuple((bottom - low, top - low) for bottom, top in self._spans[first:behind])
        if spans not in self._parts:
            self._parts[spans] = BitRuns(spans)
        return self._parts[spans]

    def touched(self, members: ResourceSet) -> ResourceSet:
        """Mark the blocks that contain a member."""
        return (((members & self._body) + self._body) | members) & self.tops

    def at_least(self, members: ResourceSet, count: int) -> ResourceSet:
        """Mark the blocks that contain at least ``count`` members."""
        if count == 1:
            return self.touched(members)
        addend, tops = self._limit(count)
        return (self._counts(members) + addend) & tops

    def complete(self, members: ResourceSet, whole: ResourceSet) -> ResourceSet:
        """Mark the blocks in which all members of ``whole`` are in ``members``.

        Blocks without such members are not marked.
        """
        return without(self.touched(whole), self.touched(without(whole, members)))

    def smallest(self, members: ResourceSet) -> int:
        """Return the smallest number of members in a block. Blocks without members do not count."""
        touched = self.touched(members)
        if not touched:
            return 1
        if self._width and self.expand(touched) == members:  # the usual case: whole blocks of one size
            return self._width
        low, high = 1, min(self._widest, members.bit_count()) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.at_least(members, middle) == touched else (low, middle)
        return low

    def expand(self, marks: ResourceSet) -> ResourceSet:
        """Return all bits of the marked blocks."""
        if self._width:
            return (marks << 1) - (marks >> (self._width - 1))
        members = 0
        for top in positions(marks):
            low, ones = self.block_of[top]
            members |= ones << low
        return members

    def lowest(self, members: ResourceSet, count: int) -> ResourceSet:
        """Return the ``count`` lowest members of each block; return all of a block with fewer members."""
        chosen = 0
        for _ in range(count):
            filled = members | (self.tops & ~self.touched(members))  # a block without members must not borrow
            first = members & ~(filled - self._bottoms)
            chosen |= first
            members ^= first
        return chosen

    def _counts(self, members: ResourceSet) -> int:
        """Return the number of members of each block, in its field."""
        if len(self._stages) < self._steps:
            self._stages = [self._stage(1 << step) for step in range(self._steps)]
        for shift, firsts, seconds in self._stages:
            members = (members & firsts) + ((members >> shift) & seconds)
        return members

    def _limit(self, count: int) -> tuple[int, int]:
        limit = self._limits.get(count)
        if limit is None:
            addend = self._fields(lambda width: (1 << (width - 1)) - count if width >= count else 0)
            limit = addend, self._fields(lambda width: 1 << (width - 1) if width >= count else 0)
            self._limits[count] = limit
        return limit

    def _stage(self, half: int) -> tuple[int, int, int]:
        """Return how to add pairs of ``half``-bit sums: shift, mask of the first addends, mask of the second ones."""

        def firsts(width: int) -> int:
            return sum(_ones(start, min(start + half, width)) for start in range(0, width, 2 * half))

        def seconds(width: int) -> int:
            return sum(_ones(start, min(start + half, width - half)) for start in range(0, width - half, 2 * half))

        return half, self._fields(firsts), self._fields(seconds)

    def _fields(self, pattern: Callable[[int], int]) -> int:
        """Return an integer that contains ``pattern(width)`` in the field of each run."""
        patterns: dict[int, int] = {}
        total = 0
        for begin in range(0, len(self._spans), _BATCH):
            batch = self._spans[begin : begin + _BATCH]
            base = batch[0][0]
            part = 0
            for low, high in batch:
                width = high - low + 1
                if width not in patterns:
                    patterns[width] = pattern(width)
                part |= patterns[width] << (low - base)
            total |= part << base
        return total


def _ones(low: int, high: int) -> int:
    return ((1 << (high - low)) - 1) << low
