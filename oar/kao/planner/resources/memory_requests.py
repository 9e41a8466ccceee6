"""Requests with memory: which resources a request takes if memory is counted.

A request that takes a known number of resources on each of its nodes needs a known amount of memory there, and is
searched among the nodes that have it.  Every other request with memory for each resource (``core=8``) takes its
resources among those that have a share of the memory (``node_memory.py``): of the free resources of a node, the first
ones in the order of selection, as many as the node has free shares.

See docs/design/planner.rst, "Memory".
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import starmap
from operator import and_, mul
from typing import NamedTuple

from oar.kao.planner.resources.node_memory import MemoryNeed, NodeMemory
from oar.lib.base.resource_set import ResourceSet
from oar.lib.jobs.records import Memory
from oar.lib.nodes.hierarchy import Hierarchy, PooledGroup, RequestFit, TakingOrder, fits_at_all


class MemoryRequest(RequestFit):
    """A request whose memory is counted.

    ``fit`` takes resources as if all memory were free, ``measured.fit`` from the slots of ``need``.
    """

    __slots__ = ("base", "measured", "need")

    def __init__(self, base: RequestFit, need: MemoryNeed) -> None:
        """``base``: the same request without memory, on the nodes that have enough memory at all."""
        for name in RequestFit.__slots__:
            setattr(self, name, getattr(base, name))
        self.base = base
        self.need = need
        self.family = base.family, need
        self.reach = need.nodes.around(base.reach)  # jobs on other resources of a node can be in the way
        self.wider = self.blocks = None
        self.measured: RequestFit = self

    def parts(self, bounds: Sequence[int]) -> None:
        """Return None: the memory is not counted in parts of the machine."""
        return


class _SharedRequest(MemoryRequest):
    """A request for resources with a share of the memory each."""

    __slots__ = ()

    def __init__(self, base: RequestFit, need: MemoryNeed, order: TakingOrder) -> None:
        super().__init__(base, need)
        nodes = need.nodes
        closed = [need.closed(number, mib) for number, mib in enumerate(nodes.capacities)]
        missing = {number: len(each) for number, each in enumerate(closed) if each}
        self.fit = partial(_fit_with, base, nodes, order, _Missing(missing, nodes.on(missing)))
        self.is_satisfied = partial(fits_at_all, self.fit)
        is_plain = len(base.groups) == 1 and base.is_of_units
        self.is_monotone = base.is_monotone and is_plain
        self.is_steady = base.is_steady and is_plain
        self._necessary = None if self.is_monotone else base.necessary
        self.measured = _Measured(self, partial(_fit_measured, base, nodes, order))


class _Measured(MemoryRequest):
    """The same request where the shares are known."""

    __slots__ = ()

    def __init__(self, request: MemoryRequest, fit: Callable[[ResourceSet], ResourceSet]) -> None:
        for name in RequestFit.__slots__:
            setattr(self, name, getattr(request, name))
        self.base = request.base
        self.need = request.need
        self.fit = fit
        self.is_satisfied = partial(fits_at_all, fit)
        self.measured = self


class _Missing(NamedTuple):
    """The nodes that have fewer shares than resources."""

    counts: Mapping[int, int]  #: how many fewer, by node
    resources: ResourceSet  #: all resources of these nodes


def _fit_with(
    base: RequestFit, nodes: NodeMemory, order: TakingOrder, missing: _Missing, free: ResourceSet
) -> ResourceSet:
    """Take resources if some nodes have fewer shares than resources; look at the nodes of ``free`` only."""
    for number, count in nodes.nodes_of(free & missing.resources).items():
        most = len(nodes.bits[number]) - missing.counts[number]
        if count > most:
            members = free & nodes.on((number,))
            free ^= members ^ order.first(members, most)
    return base.fit(free)


def _fit_measured(base: RequestFit, nodes: NodeMemory, order: TakingOrder, free: ResourceSet) -> ResourceSet:
    resources, shares = free & nodes.everything, free >> nodes.size
    excess = resources & ~shares  # the shares of a node are its first bits: without excess they are enough
    if not excess:
        return base.fit(resources)
    if order.is_plain and nodes.are_runs:
        return base.fit(_with_shares(nodes, resources, shares, excess))
    lacking = nodes.around(excess)
    return _fit_with(base, nodes, order, _Missing(nodes.nodes_of(lacking & ~shares), lacking), resources)


def _with_shares(nodes: NodeMemory, resources: ResourceSet, shares: ResourceSet, excess: ResourceSet) -> ResourceSet:
    """Return of the resources of each node the lowest ones, as many as it has shares.

    Sets are written as digits, the lowest first: that is faster than operations on the whole set for each node.
    """
    digits, of_shares = f"{resources:b}"[::-1], f"{shares:b}"[::-1]
    pieces, done = [], 0
    for number in nodes.touched(excess):
        low, high = nodes.bits[number][0], nodes.bits[number][-1] + 1
        at, end = low, min(high, len(digits))
        for _ in range(of_shares.count("1", low, high)):
            at = digits.find("1", at, end) + 1
            if not at:  # there are more shares than resources
                at = end
                break
        pieces += [digits[done:at], "0" * (end - at)]
        done = end
    return int(("".join(pieces) + digits[done:])[::-1], 2)


class MemoryRequests:
    """Makes the requests with memory, and one need for all that need the same."""

    def __init__(self, nodes: NodeMemory) -> None:
        self._nodes = nodes
        self._needs: dict[tuple[object, ...], MemoryNeed] = {}

    def request(self, hierarchy: Hierarchy, groups: tuple[PooledGroup, ...], memory: Memory) -> MemoryRequest:
        """Return a request with its memory."""
        nodes, size = self._nodes, len(self._nodes.capacities)
        counts: Sequence[int] | None = [1] * size
        if memory.is_per_core:
            counts = _counts(hierarchy, groups[0], nodes) if len(groups) == 1 else None
        amounts = [nodes.unit(at, memory) * count for at, count in enumerate(counts or [1] * size)]
        poor = nodes.on(at for at, mib in enumerate(nodes.capacities) if mib < amounts[at])
        base = hierarchy.request(tuple(PooledGroup(group.pool & ~poor, group.levels) for group in groups))
        if counts is not None:
            return MemoryRequest(base, self._need(amounts))
        return _SharedRequest(base, self._need(amounts, has_shares=True), hierarchy.order)

    def _need(self, amounts: Sequence[int], *, has_shares: bool = False) -> MemoryNeed:
        """Return the need of some amounts, rounded: each need has slots of its own, and users choose the amounts."""
        searched = tuple(starmap(self._nodes.searched, enumerate(amounts)))
        key = has_shares, searched
        if key not in self._needs:
            self._needs[key] = MemoryNeed(self._nodes, searched, has_shares=has_shares)
        return self._needs[key]


def _counts(hierarchy: Hierarchy, group: PooledGroup, nodes: NodeMemory) -> Sequence[int] | None:
    """Return how many resources a group takes of each node that it uses; None if that depends on what is free."""
    layout, names = hierarchy.layout, [level.property for level in group.levels]
    at = next((number for number, name in enumerate(names) if layout.matches(name, nodes.node_of)), None)
    if at is None or not all(layout.contains(name, nodes.node_of) for name in names[:at]):
        return None
    pool = reduce(and_, map(layout.having, names), group.pool)
    inner = group.levels[at + 1 :]
    if not inner:
        counts = nodes.nodes_of(pool)
        return [counts[number] for number in range(len(nodes.bits))]
    if not all(level.quantity > 0 for level in inner):
        return None
    partition = layout.partition(tuple(names))
    sizes = {1} if partition.is_units else {size for mask in partition.masks if (size := (mask & pool).bit_count())}
    count = reduce(mul, (level.quantity for level in inner))
    return [count * size for size in sizes] * len(nodes.bits) if len(sizes) == 1 else None
