"""Blocks of resources, and the selection of free resources for a request.

A *block* of a property is the set of resources with the same value: a node, a switch, a core. ``Hierarchy`` does not
number the resources: it gets them in the order of their bits. ``numbering`` computes an order in which every block is a
*run* of consecutive bits wherever the properties nest. Queries about all blocks of a level are then answered in one
operation (``bit_runs``). In the results, a block is represented by the top bit of its run.

Properties that do not nest have no runs, for example ``cpu`` numbered 0 and 1 on each node and requested above the
node. ``_WalkedGroup`` checks the blocks of such a property one by one. The levels below may be runs within such a
block. See docs/design/planner.rst, "Requests".
"""

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_, lt, ne, or_

from oar.lib.base.bit_runs import BitRuns
from oar.lib.base.resource_set import ResourceSet, from_positions, lowest, positions, without
from oar.lib.jobs.records import Level
from oar.lib.nodes.block_units import BlockUnits
from oar.lib.nodes.records import PropertyValue
from oar.lib.submission.resource_request import ALL, BEST_HALF

#: Values of one property, by bit.
Column = Sequence[PropertyValue]

#: An order of more stretches than this is scattered.
MANY_PIECES = 32

#: So many sets of first members are kept of a scattered order.
PREFIXES = 256

#: The property that every resource has a value of its own for.
FINEST = "resource_id"


def is_missing(value: PropertyValue) -> bool:
    """Return whether a resource with this value is in no block of the property: a node without a name is not a node."""
    return value is None or value == ""


def numbering(columns: Mapping[str, Column], ranks: Sequence[int]) -> list[int]:
    """Return the rows in bit order, such that blocks of nested properties become runs.

    ``ranks``: the positions of the rows in the resource order, which blocks and the resources in a block follow.
    """
    keys: list[list[int]] = []
    for column in _nesting(columns, len(ranks)):
        first: dict[PropertyValue, int] = {}
        for value, rank in zip(column, ranks, strict=True):
            first[value] = min(rank, first.get(value, rank))
        keys.append([first[value] for value in column])
    return sorted(range(len(ranks)), key=lambda row: (*(key[row] for key in keys), ranks[row]))


def _nesting(columns: Mapping[str, Column], size: int) -> list[Column]:
    """Return properties, each nested in the previous one, coarsest first."""
    chosen: list[Column] = []
    inner: Column = range(size)
    for _, _, column in sorted((-len(set(column)), name, column) for name, column in columns.items()):
        outer_of: dict[PropertyValue, PropertyValue] = {}
        if all(outer_of.setdefault(inside, value) == value for inside, value in zip(inner, column, strict=True)):
            chosen.append(column)
            inner = column
    return chosen[::-1]


def run_starts(columns: Sequence[Column]) -> list[int] | None:
    """Return the first rows of the blocks with equal values; return None if a block is not a run of rows."""
    starts = [[0, *itertools.compress(itertools.count(1), map(ne, column, column[1:]))] for column in columns if column]
    firsts = starts[0] if len(starts) == 1 else sorted(set().union(*starts))
    values = zip(*(map(column.__getitem__, firsts) for column in columns), strict=True)
    return firsts if len(firsts) == len(set(values)) else None


class TakingOrder:
    """The order in which resources or blocks are selected."""

    __slots__ = ("_pieces", "_prefixes", "_ranks")

    def __init__(self, bits: Sequence[int]) -> None:
        """``bits``: in the order of preference.

        Each ascending sequence of bits is stored as one set. If there are many sequences, only the sets of the first n
        bits are stored, for some values of n. The result is then between two of these sets.
        """
        pieces = [] if all(map(lt, bits, bits[1:])) else _ascending_pieces(bits)
        is_scattered = len(pieces) > MANY_PIECES
        self._pieces = [] if is_scattered else [from_positions(piece) for piece in pieces]
        self._prefixes: list[ResourceSet] = []
        self._ranks = {bit: rank for rank, bit in enumerate(bits)} if is_scattered else {}
        step = -(-len(bits) // PREFIXES)
        prefix = 0
        for begin in range(0, len(bits), step) if is_scattered else ():
            prefix |= from_positions(bits[begin : begin + step])
            self._prefixes.append(prefix)

    @property
    def is_plain(self) -> bool:
        """Whether lower bits always come first."""
        return len(self._pieces) <= 1 and not self._prefixes

    def first(self, members: ResourceSet, count: int) -> ResourceSet:
        """Return the first ``count`` members; return all if there are fewer."""
        if self._prefixes:
            return self._first_scattered(members, count)
        if len(self._pieces) <= 1:
            return lowest(members, count)
        chosen = 0
        for piece in self._pieces:
            part = members & piece
            available = part.bit_count()
            if available >= count:
                return chosen | lowest(part, count)
            chosen |= part
            count -= available
        return chosen

    def _first_scattered(self, members: ResourceSet, count: int) -> ResourceSet:
        prefixes = self._prefixes
        at = bisect_left(prefixes, count, key=lambda prefix: (members & prefix).bit_count())
        if at == len(prefixes):
            return members & prefixes[-1]
        chosen = members & prefixes[at - 1] if at else 0
        rest = members & prefixes[at] ^ chosen
        last = sorted(positions(rest), key=self._ranks.__getitem__)[: count - chosen.bit_count()]
        return chosen | from_positions(last)


#: Lower bits come first.
PLAIN = TakingOrder(())


def _ascending_pieces(bits: Sequence[int]) -> list[list[int]]:
    pieces: list[list[int]] = []
    previous = -1
    for bit in bits:
        if not pieces or bit < previous:
            pieces.append([])
        pieces[-1].append(bit)
        previous = bit
    return pieces


@dataclass(frozen=True, slots=True)
class _Partition:
    """The blocks of nested properties (``/switch/node``: the nodes of each switch)."""

    blocks: Sequence[range | ResourceSet]  #: a range for a run of bits; () when each block is one resource
    runs: BitRuns | None  #: None when they are not disjoint runs, or each is one resource
    is_units: bool

    @property
    def masks(self) -> Iterator[ResourceSet]:
        """Iterate over the sets of the blocks. Those of runs are not stored: they grow with the machine."""
        for bits in self.blocks:
            yield ((1 << len(bits)) - 1) << bits.start if isinstance(bits, range) else bits


#: No bound: all resources.
EVERYWHERE: ResourceSet = -1


class Layout:
    """The properties of the resources, and the blocks that they form."""

    def __init__(self, columns: Mapping[str, Column], size: int) -> None:
        """``columns``: values by bit; ``resource_id`` may be missing."""
        self._columns = columns
        self.size = size
        self._having: dict[str, ResourceSet] = {}
        self._partitions: dict[tuple[tuple[str, ...], ResourceSet], _Partition] = {}

    def knows(self, name: str) -> bool:
        """Return whether a property with this name exists."""
        return name == FINEST or name in self._columns

    def having(self, name: str) -> ResourceSet:
        """Return the resources that have a value for the property."""
        if name == FINEST:
            return (1 << self.size) - 1
        if name not in self._having:
            column = self._columns[name]
            if None not in column and "" not in column:  # fast path for the common case
                self._having[name] = (1 << self.size) - 1
            else:
                self._having[name] = from_positions(bit for bit in range(self.size) if not is_missing(column[bit]))
        return self._having[name]

    def contains(self, name: str, owners: Sequence[int]) -> bool:
        """Return whether the resources of each owner have one value of a property.

        ``owners``: a number for each resource; -1 = none.
        """
        if name not in self._columns:
            return False
        pairs = {pair for pair in zip(owners, self._columns[name], strict=True) if pair[0] >= 0}
        return len(pairs) == len({owner for owner, _ in pairs})

    def matches(self, name: str, owners: Sequence[int]) -> bool:
        """Return whether the blocks of a property are the resources of each owner; ``owners`` as in ``contains``."""
        if not self.contains(name, owners):
            return False
        pairs = {pair for pair in zip(owners, self._columns[name], strict=True) if pair[0] >= 0}
        return len(pairs) == len({value for _, value in pairs})

    def partition(self, names: tuple[str, ...], inside: ResourceSet = EVERYWHERE) -> _Partition:
        """Return the blocks of the last property, nested in the blocks of the properties before it.

        ``inside``: consider only these resources.
        """
        key = names, inside
        if key not in self._partitions:
            self._partitions[key] = self._split(names, inside)
        return self._partitions[key]

    def _split(self, names: tuple[str, ...], inside: ResourceSet) -> _Partition:
        if FINEST in names:
            return _Partition((), None, is_units=True)
        members = reduce(and_, map(self.having, names), inside)
        columns = [self._columns[name] for name in names]
        is_everything = members == (1 << self.size) - 1
        starts = run_starts(columns) if is_everything else None
        ordered: Sequence[Sequence[int]]
        if starts is not None:  # the usual case
            ordered = [range(low, behind) for low, behind in itertools.pairwise((*starts, self.size))]
        else:
            blocks: dict[object, list[int]] = defaultdict(list)
            values: Sequence[object] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
            for bit in range(self.size) if is_everything else positions(members):
                blocks[values[bit]].append(bit)
            ordered = sorted(blocks.values())
        if len(ordered) == members.bit_count():
            return _Partition((), None, is_units=True)
        spans = [(bits[0], bits[-1]) for bits in ordered]
        disjoint = all(before[1] < after[0] for before, after in itertools.pairwise(spans))
        sets = [
            range(bits[0], bits[-1] + 1) if bits[-1] - bits[0] == len(bits) - 1 else from_positions(bits)
            for bits in ordered
        ]
        return _Partition(sets, BitRuns(spans) if disjoint else None, is_units=False)


class _Units:
    """A level in which each block is one resource, such as ``/core=n``."""

    def __init__(self, pool: ResourceSet, quantity: int, order: TakingOrder) -> None:
        self._pool = pool
        self._quantity = quantity
        self._order = order
        self._size = pool.bit_count()
        self.least = max(1, quantity)

    @property
    def is_fixed(self) -> bool:
        """Whether ``fit`` always selects exactly ``least`` resources."""
        return self._quantity > 0

    @property
    def is_plain(self) -> bool:
        """Whether ``fit`` selects the blocks with the lowest bits."""
        return self._order.is_plain

    def part(self, low: int, high: int) -> "_Units":
        """Return a request for one of the blocks from bit ``low`` to before ``high``, shifted to bit 0."""
        return _Units(self._pool >> low & (1 << (high - low)) - 1, 1, PLAIN)

    def count(self, free: ResourceSet) -> int:
        """Return the number of blocks that can be selected."""
        return (free & self._pool).bit_count()

    def take(self, free: ResourceSet, most: int) -> ResourceSet:
        """Return the resources of the first blocks that can be selected, at most ``most``."""
        return self._order.first(free & self._pool, most)

    def fit(self, free: ResourceSet) -> ResourceSet:
        """Return the selected resources; return 0 if the request cannot be satisfied."""
        return _choose(free & self._pool, self._quantity, self._order, self._size)

    def is_satisfied(self, free: ResourceSet) -> bool:
        """Return whether ``fit`` would select any resource; this is cheaper than ``fit``."""
        if self._quantity > 1:  # the common case
            return (free & self._pool).bit_count() >= self._quantity
        return _are_enough(free & self._pool, self._quantity, self._pool)


def _choose(marks: ResourceSet, quantity: int, order: TakingOrder, blocks: int) -> ResourceSet:
    """Return the selected marks; return 0 if there are too few. ``blocks``: total number of blocks."""
    available = marks.bit_count()
    if quantity > 0:
        if available <= quantity:  # on a busy cluster, usually all of them are selected
            return marks if available == quantity else 0
        return order.first(marks, quantity)
    if quantity == ALL:
        return marks if available == blocks else 0
    return order.first(marks, (available + 1) // 2) if quantity == BEST_HALF else marks


def _are_enough(marks: ResourceSet, quantity: int, present: ResourceSet) -> bool:
    """Return whether there are enough marks. ``present``: the marks of all blocks."""
    if quantity == ALL:
        return marks == present != 0
    return marks.bit_count() >= quantity if quantity > 1 else marks != 0


class _Nest:
    """Levels of a pool whose blocks are runs, each run inside a run of the level above."""

    __slots__ = ("_parts", "blocks", "is_whole", "orders", "pool", "present", "runs", "smallest")

    def __init__(self, pool: ResourceSet, runs: Sequence[BitRuns], orders: Sequence[TakingOrder]) -> None:
        """``runs``: one per level, without the last level if its blocks are single resources."""
        self.pool = pool
        self.runs = runs
        self.orders = orders
        self.is_whole = len(runs) == len(orders)
        self.present = [run.touched(pool) for run in runs] + ([] if self.is_whole else [pool])
        self.blocks = self.present[0].bit_count()
        self.smallest = runs[-1].smallest(pool) if self.is_whole else 1  #: size of the smallest block of the last level
        self._parts: dict[tuple[int, int], _Nest | None] = {}

    def part(self, low: int, high: int) -> "_Nest | None":
        """Return the blocks from bit ``low`` to before ``high``, shifted to bit 0; return None if a block is cut."""
        if (low, high) not in self._parts:
            parts = [run.part(low, high) for run in self.runs]
            runs = [part for part in parts if part is not None]
            pool = self.pool >> low & (1 << (high - low)) - 1
            self._parts[low, high] = _Nest(pool, runs, [PLAIN] * len(self.orders)) if len(runs) == len(parts) else None
        return self._parts[low, high]


class _NestedGroup:
    """A request for blocks of nested levels, computed with bit operations on all blocks."""

    def __init__(self, nest: _Nest, quantities: Sequence[int]) -> None:
        self._quantities = quantities
        self._nest = nest
        self._pool = nest.pool
        self._runs = nest.runs
        self._orders = nest.orders
        self._is_whole = nest.is_whole
        self._present = nest.present
        self._blocks = nest.blocks
        self.least = _product(quantities) * nest.smallest

    @property
    def is_fixed(self) -> bool:
        """Whether ``fit`` always selects exactly ``least`` resources.

        This requires that all blocks of the last level have the same size.
        """
        smallest = self.least // _product(self._quantities)
        is_even = self._pool.bit_count() == self._present[-1].bit_count() * smallest
        return is_even and min(self._quantities) > 0

    @property
    def is_plain(self) -> bool:
        """Whether ``fit`` selects the blocks with the lowest bits."""
        return all(order.is_plain for order in self._orders)

    def part(self, low: int, high: int) -> "_NestedGroup | None":
        """Return a request for one of the blocks from bit ``low`` to before ``high``; return None if a block is cut."""
        nest = self._nest.part(low, high)
        return _NestedGroup(nest, (1, *self._quantities[1:])) if nest else None

    def count(self, free: ResourceSet) -> int:
        """Return the number of blocks of the first level that can be selected."""
        marks = self._marks(free & self._pool)
        return marks[0].bit_count() if marks else 0

    def take(self, free: ResourceSet, most: int) -> ResourceSet:
        """Return the resources of the first blocks that can be selected, at most ``most``."""
        marks = self._marks(free & self._pool)
        return self._take(0, self._orders[0].first(marks[0], most), marks) if marks else 0

    def fit(self, free: ResourceSet) -> ResourceSet:
        """Return the selected resources; return 0 if the request cannot be satisfied."""
        marks = self._marks(free & self._pool)
        if not marks:
            return 0
        return self._take(0, _choose(marks[0], self._quantities[0], self._orders[0], self._blocks), marks)

    def is_satisfied(self, free: ResourceSet) -> bool:
        """Return whether ``fit`` would select any resource; this is cheaper than ``fit``."""
        marks = self._marks(free & self._pool)
        return bool(marks) and _are_enough(marks[0], self._quantities[0], self._present[0])

    def _marks(self, free: ResourceSet) -> list[ResourceSet]:
        """Return the suitable blocks of each level; return [] if a level has none.

        ``free``: the free resources of the pool.
        """
        depths = len(self._quantities)
        if free.bit_count() < self.least:  # cheapest check first: it decides two of five calls
            return []
        marks = [without(self._present[-1], self._runs[-1].touched(self._pool ^ free)) if self._is_whole else free]
        for depth in range(depths - 2, -1, -1):
            if not marks[-1]:
                return []
            marks.append(self._counting(depth, marks[-1]))
        return marks[::-1] if marks[-1] else []

    def _counting(self, depth: int, inner: ResourceSet) -> ResourceSet:
        """Return the blocks of a level that contain enough suitable blocks of the next level."""
        quantity = self._quantities[depth + 1]
        if quantity == ALL:
            return self._runs[depth].complete(inner, self._present[depth + 1])
        return self._runs[depth].at_least(inner, max(1, quantity))

    def _take(self, depth: int, chosen: ResourceSet, marks: Sequence[ResourceSet]) -> ResourceSet:
        """Return the resources that the chosen blocks of a level contribute."""
        if depth == len(self._quantities) - 1:
            return self._runs[depth].expand(chosen) & self._pool if self._is_whole else chosen
        runs, inner = self._runs[depth], marks[depth + 1]
        quantity, order = self._quantities[depth + 1], self._orders[depth + 1]
        if 0 < quantity < chosen.bit_count() and order.is_plain:  # all blocks at once
            return self._take(depth + 1, runs.lowest(inner & runs.expand(chosen), quantity), marks)
        members, block_of = 0, runs.block_of
        for top in positions(chosen):
            low, ones = block_of[top]
            candidates = (inner >> low & ones) << low
            members |= _choose(candidates, quantity, order, candidates.bit_count())
        return self._take(depth + 1, members, marks)


class _WalkedGroup:
    """A level whose blocks are not runs: the blocks are checked one by one."""

    def __init__(
        self, pool: ResourceSet, quantity: int, blocks: "Sequence[tuple[ResourceSet, GroupFit | None]]"
    ) -> None:
        """``blocks``: the blocks that contain resources of the pool."""
        self._pool = pool
        self._quantity = quantity
        self._blocks = blocks
        self.least: int = max(1, quantity) * min((inner.least for _, inner in blocks if inner), default=1)
        self.is_fixed = False  #: for all that is known
        self.is_plain = False

    def part(self, _low: int, _high: int) -> None:
        """Return None: the blocks cannot be divided."""
        return

    def fit(self, free: ResourceSet) -> ResourceSet:
        """Return the selected resources; return 0 if the request cannot be satisfied."""
        free &= self._pool
        if free.bit_count() < self.least:
            return 0
        quantity = self._quantity
        parts: list[ResourceSet] = []
        for members, inner in self._blocks:
            part = inner.fit(free) if inner else members if free & members == members else 0
            if part:
                parts.append(part)
            elif quantity == ALL:
                return 0
            if len(parts) == quantity:
                break
        if len(parts) < max(1, quantity):
            return 0
        chosen_parts = parts[: (len(parts) + 1) // 2] if quantity == BEST_HALF else parts
        return sum(chosen_parts)  # the parts are disjoint

    def is_satisfied(self, free: ResourceSet) -> bool:
        """Return whether ``fit`` would select any resource."""
        return self.fit(free) != 0


#: One group of a request on its pool.  ``fit(free)`` gives the resources taken of those that are free, 0 if it cannot
#: be satisfied; it never takes fewer than ``least``.
GroupFit = _Units | _NestedGroup | _WalkedGroup

#: A group whose blocks can be counted, and selected from the first one on.
CountedBlocks = _Units | _NestedGroup

#: Blocks of a level in the order in which they are taken: the members, and what is asked within; None = all of it.
Blocks = Sequence[tuple[ResourceSet, GroupFit | None]]


def _product(quantities: Sequence[int]) -> int:
    product = 1
    for quantity in quantities:
        product *= max(1, quantity)
    return product


@dataclass(frozen=True, slots=True)
class PooledGroup:
    """A group of a request with evaluated filters: its pool contains no Dead resource."""

    pool: ResourceSet
    levels: tuple[Level, ...]


class RequestFit:
    """Select free resources for a request.

    The object is in no reference cycle, so that it is freed without the garbage collector. If ``fit`` succeeds on a
    set, it returns the same result on every smaller set that contains the result, unless ``is_steady`` is false. If it
    fails on a set, it fails on every smaller set, unless ``is_monotone`` is false.
    """

    __slots__ = (
        "_necessary",
        "blocks",
        "family",
        "fit",
        "groups",
        "is_monotone",
        "is_satisfied",
        "is_steady",
        "least",
        "pools",
        "quantities",
        "reach",
        "wider",
    )

    def __init__(
        self, groups: Sequence[PooledGroup], fits: Sequence[GroupFit], families: dict[object, object] | None = None
    ) -> None:
        """``families``: the existing family objects, by the features that all requests of a family share."""
        #: Returns the resources taken of those that are free; 0 if the request cannot be satisfied.
        self.fit: Callable[[ResourceSet], ResourceSet] = fits[0].fit if len(fits) == 1 else partial(_fit_in_turn, fits)
        #: Whether ``fit`` would take anything, which is cheaper to say of one group.
        self.is_satisfied: Callable[[ResourceSet], bool] = (
            fits[0].is_satisfied if len(fits) == 1 else partial(fits_at_all, self.fit)
        )
        levels = [level for group in groups for level in group.levels]
        self.groups = fits
        self.pools = tuple(group.pool for group in groups)
        self.reach = reduce(or_, self.pools, 0)  #: the resources that it can take
        self.least = sum(fit.least for fit in fits)
        self.is_steady = all(level.quantity != BEST_HALF for level in levels)
        self.is_monotone = self._is_monotone(groups)
        is_countable = all(level.quantity > 0 for level in levels)
        #: Requests of one family differ in these quantities only, and larger ones are not easier to satisfy.
        self.quantities = tuple(level.quantity for level in levels) if is_countable else ()
        self.family = ({} if families is None else families).setdefault(
            (
                type(self),
                *(
                    (group.pool, *(level.property if is_countable else level for level in group.levels))
                    for group in groups
                ),
            ),
            object(),
        )
        #: The same request without filter, if that is satisfied wherever this one is; many filters may share it.
        self.wider: RequestFit | None = None
        self.blocks: BlockRequest | None = None  #: the same where whole blocks are units
        self._necessary: RequestFit | None = None if self.is_monotone else _EachAlone(groups, fits, families)

    def _is_monotone(self, groups: Sequence[PooledGroup]) -> bool:
        return _are_disjoint([group.pool for group in groups]) or (
            self.is_steady and all(isinstance(fit, _Units) for fit in self.groups[:-1])
        )

    @property
    def necessary(self) -> "RequestFit | None":
        """A monotone request that is satisfied whenever this one is; None if there is none."""
        return self if self.is_monotone else self._necessary

    @property
    def is_fixed(self) -> bool:
        """Whether ``fit`` always selects exactly ``least`` resources."""
        return all(group.is_fixed for group in self.groups)

    @property
    def is_of_units(self) -> bool:
        """Whether each block is one resource."""
        return all(isinstance(group, _Units) for group in self.groups)

    def parts(self, bounds: Sequence[int]) -> "list[CountedBlocks] | None":
        """Return the blocks between each two neighbouring bounds; return None if the request cannot be divided.

        The request is satisfied if all parts together count as many blocks as it asks at the first level.
        """
        if len(self.groups) > 1 or not self.quantities:
            return None
        parts = [self.groups[0].part(low, high) for low, high in itertools.pairwise(bounds)]
        blocks = [part for part in parts if part is not None]
        return blocks if len(blocks) == len(parts) else None


def _fit_in_turn(groups: Sequence[GroupFit], free: ResourceSet) -> ResourceSet:
    chosen = 0
    for group in groups:
        part = group.fit(free & ~chosen)
        if not part:
            return 0
        chosen |= part
    return chosen


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """A request for whole blocks of one level, applied to sets of blocks."""

    units: BlockUnits
    request: RequestFit


class _EachAlone(RequestFit):
    """A necessary condition of a request with competing groups.

    Each group alone must be satisfied, and there must be enough resources for all groups.
    """

    __slots__ = ()

    def __init__(
        self, groups: Sequence[PooledGroup], fits: Sequence[GroupFit], families: dict[object, object] | None = None
    ) -> None:
        super().__init__(groups, fits, families)
        self.fit = partial(_fit_each_alone, fits, self.reach, self.least)
        self.is_satisfied = partial(fits_at_all, self.fit)

    def _is_monotone(self, groups: Sequence[PooledGroup]) -> bool:
        return True


def _fit_each_alone(groups: Sequence[GroupFit], reach: ResourceSet, least: int, free: ResourceSet) -> ResourceSet:
    chosen = 0
    if (free & reach).bit_count() < least:
        return chosen
    for group in groups:
        part = group.fit(free)
        if not part:
            return 0
        chosen |= part
    return chosen


def fits_at_all(fit: Callable[[ResourceSet], ResourceSet], free: ResourceSet) -> bool:
    """Return whether ``fit`` selects any of the free resources."""
    return fit(free) != 0


def _are_disjoint(pools: Sequence[ResourceSet]) -> bool:
    seen = 0
    for pool in pools:
        if seen & pool:
            return False
        seen |= pool
    return True


class Hierarchy:
    """Convert requests to ``RequestFit`` objects, for one order of resources."""

    def __init__(self, layout: Layout, order: Sequence[int], everything: ResourceSet | None = None) -> None:
        """``order``: the bits in the order of selection. ``everything``: the pool without a filter."""
        self.layout = layout
        self._everything = (1 << layout.size) - 1 if everything is None else everything
        self._order = TakingOrder(order)
        self._ranks = {} if self._order.is_plain else {bit: rank for rank, bit in enumerate(order)}
        self._requests: dict[tuple[PooledGroup, ...], RequestFit] = {}
        self._families: dict[object, object] = {}
        self._groups: dict[PooledGroup, GroupFit] = {}
        self._nests: dict[tuple[ResourceSet, ResourceSet, tuple[str, ...]], _Nest | None] = {}
        self._block_orders: dict[tuple[int, ResourceSet], TakingOrder] = {}
        self._units: dict[tuple[int, ResourceSet], BlockUnits | None] = {}

    @property
    def order(self) -> TakingOrder:
        return self._order

    def request(self, groups: tuple[PooledGroup, ...]) -> RequestFit:
        """Return the ``RequestFit`` of a request.

        Raises KeyError for a property that does not exist.
        """
        fit = self._requests.get(groups)
        if fit is None:
            fit = self._requests[groups] = RequestFit(groups, [self._group(group) for group in groups], self._families)
            if len(groups) == 1 and fit.quantities:
                fit.wider = self._wider(groups[0])
            if len(groups) == 1 and len(groups[0].levels) == 1:
                fit.blocks = self._in_blocks(groups[0])
        return fit

    def _in_blocks(self, group: PooledGroup) -> BlockRequest | None:
        """Return the request with blocks as units; return None if the blocks are small or are not runs.

        Also return None if lower bits do not always come first: the order of the blocks would then have to be computed.
        """
        (level,) = group.levels
        partition, pool = self.layout.partition((level.property,)), group.pool & self.layout.having(level.property)
        if partition.runs is None or not self._order.is_plain:
            return None
        key = id(partition), pool
        if key not in self._units:
            self._units[key] = BlockUnits.of(partition.runs, pool)
        units = self._units[key]
        if units is None:
            return None
        fit = _Units(units.everything, level.quantity, self._order)
        return BlockRequest(units, RequestFit((PooledGroup(units.everything, group.levels),), [fit], self._families))

    def _wider(self, group: PooledGroup) -> RequestFit | None:
        """Return the request without its filter; return None if the filter splits blocks that are selected as a whole.

        A block that the filter splits may be free only in the part that satisfies the filter.
        """
        names = tuple(level.property for level in group.levels)
        pools = [reduce(and_, map(self.layout.having, names), pool) for pool in (self._everything, group.pool)]
        if pools[0] == pools[1]:
            return None
        partition = self.layout.partition(names)
        if partition.runs is not None:
            is_cut = partition.runs.touched(pools[1]) & partition.runs.touched(pools[0] & ~pools[1])
        else:
            is_cut = not partition.is_units
        if is_cut or group.pool & ~self._everything:
            return None
        return self.request((PooledGroup(self._everything, group.levels),))

    def _group(self, group: PooledGroup) -> GroupFit:
        fit = self._groups.get(group)
        if fit is None:
            names = tuple(level.property for level in group.levels)
            pool = reduce(and_, map(self.layout.having, names), group.pool)
            fit = self._in(EVERYWHERE, pool, names, [level.quantity for level in group.levels])
            self._groups[group] = fit
        return fit

    def _in(self, inside: ResourceSet, pool: ResourceSet, names: tuple[str, ...], quantities: list[int]) -> GroupFit:
        """Return the object that selects resources for the levels within a block."""
        outermost = self.layout.partition(names[:1], inside)
        if outermost.is_units:  # a single resource is a block of each level below
            return _Units(pool if max(quantities[1:], default=1) <= 1 else 0, quantities[0], self._order)
        nest = self._nest(inside, pool, names)
        if nest is None:
            return _WalkedGroup(pool, quantities[0], self._blocks(outermost, pool, names[1:], quantities[1:]))
        return _NestedGroup(nest, quantities)

    def _nest(self, inside: ResourceSet, pool: ResourceSet, names: tuple[str, ...]) -> _Nest | None:
        """Return the data that all requests for these levels within a block share; return None without nesting."""
        key = inside, pool, names
        if key not in self._nests:
            partitions = [self.layout.partition(names[: depth + 1], inside) for depth in range(len(names))]
            runs = [partition.runs for partition in partitions if partition.runs is not None]
            is_nest = len(runs) == len(names) - partitions[-1].is_units
            orders = [self._block_order(partition, pool) for partition in partitions] if is_nest else []
            self._nests[key] = _Nest(pool, runs, orders) if is_nest else None
        return self._nests[key]

    def _blocks(
        self, partition: _Partition, pool: ResourceSet, names: tuple[str, ...], quantities: list[int]
    ) -> Blocks:
        """Return the blocks of a level, with the levels below."""
        parts = sorted((self._first(part), part, mask) for mask in partition.masks if (part := mask & pool))
        return [(part, self._in(mask, part, names, quantities) if names else None) for _, part, mask in parts]

    def _block_order(self, partition: _Partition, pool: ResourceSet) -> TakingOrder:
        """Return the order of the top bits of the blocks, given by the first resource of each block."""
        if partition.is_units or self._order.is_plain:
            return self._order
        key = id(partition), pool
        if key not in self._block_orders:
            first = [(self._first(mask & pool), mask.bit_length() - 1) for mask in partition.masks if mask & pool]
            self._block_orders[key] = TakingOrder([top for _, top in sorted(first)])
        return self._block_orders[key]

    def _first(self, members: ResourceSet) -> int:
        """Return the position of the first of the resources in the order."""
        if self._order.is_plain:
            return (members & -members).bit_length()
        return self._ranks[self._order.first(members, 1).bit_length() - 1]
