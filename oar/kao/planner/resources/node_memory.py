"""The memory of nodes by date: what the jobs use, and the slots as requests with memory see them.

Memory is counted for each node: a job with memory uses it on its nodes, in whichever space it is, as long as it
occupies its resources.  Jobs that name no memory use none.  Besteffort jobs use memory for each other only; for other
jobs they leave, as they leave their resources.

A request with memory is searched in slots of its own (``MemorySlots``): in each slot, the resources that it cannot have
for lack of memory are occupied, too.  The whole search for resources then also holds for memory.

- Memory for a node: while less is free on a node than the request takes there, its resources are occupied.
- Memory for each resource: each resource has a second bit, its *share*.  While there is memory for *n* more resources
  of a node, the first *n* shares of the node are free.  The shares that are free during a whole period therefore count
  the resources that have memory all the time (``memory_requests.py``).

See docs/design/planner.rst, "Memory".
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.snapshot import FOREVER, ResourceColumns, Snapshot
from oar.kao.planner.resources.slots import Occupant, SlotSet
from oar.lib.base.resource_set import ResourceSet, from_positions, positions
from oar.lib.jobs.records import Memory

#: MiB that a job uses, by node.
MemoryUse = Mapping[int, int]

#: Slots with memory are kept of so many needs, of all spaces together.
MOST_VIEWS = 256
#: A search rounds amounts up to so many significant bits, and to a node's memory divided by two to the power of this.
PRECISION, SMALLEST_PART = 4, 10


class NodeMemory:
    """The nodes with their resources and their memory, by number."""

    def __init__(self, resources: ResourceColumns) -> None:
        """A node of which the resources differ has the least value of them."""
        self.size = len(resources.ids)
        numbers: dict[str, int] = {}
        bits: list[list[int]] = []
        self.capacities: list[int] = []  #: MiB; 0 = unknown
        self.node_of: list[int] = []  #: by resource; -1 = none
        for bit, (address, mib) in enumerate(zip(resources.addresses, resources.memory, strict=True)):
            number = numbers.setdefault(address, len(bits)) if address else -1
            self.node_of.append(number)
            if number == len(bits):
                bits.append([])
                self.capacities.append(mib)
            if address:
                bits[number].append(bit)
                self.capacities[number] = min(self.capacities[number], mib)
        self.names = list(numbers)
        self.bits = bits  #: the resources of each node
        self.are_runs = all(each[-1] - each[0] == len(each) - 1 for each in bits)  #: whether each is a run of bits
        self.everything = (1 << self.size) - 1

    def nodes_of(self, resources: ResourceSet) -> Counter[int]:
        """Return the nodes of a set of resources, with the number of their resources in the set."""
        counts = Counter(self.node_of[bit] for bit in positions(resources))
        del counts[-1]
        return counts

    def touched(self, members: ResourceSet) -> Iterator[int]:
        """Iterate over the nodes of a set of resources, if each is a run of bits."""
        digits = bin(members)[:1:-1]
        at = digits.find("1")
        while at >= 0:
            number = self.node_of[at]
            if number >= 0:
                yield number
            at = digits.find("1", self.bits[number][-1] + 1 if number >= 0 else at + 1)

    def on(self, numbers: Iterable[int]) -> ResourceSet:
        """Return all resources of some nodes."""
        return from_positions(bit for number in sorted(numbers) for bit in self.bits[number])

    def around(self, resources: ResourceSet) -> ResourceSet:
        """Return these resources, and all others of their nodes."""
        return resources | self.on(self.nodes_of(resources))

    def use(self, memory: Memory, resources: ResourceSet) -> MemoryUse:
        """Return what a job uses on each of its nodes where it uses memory."""
        units = {number: (self.unit(number, memory), count) for number, count in self.nodes_of(resources).items()}
        return {at: mib * (count if memory.is_per_core else 1) for at, (mib, count) in units.items() if mib}

    def unit(self, number: int, memory: Memory) -> int:
        """Return the MiB that a job uses on a node, or for each resource there.

        The default of the site is at most the share of a resource, so that a job can have the whole node.
        """
        return min(memory.mib, self.capacities[number] // len(self.bits[number])) if memory.is_default else memory.mib

    def searched(self, number: int, mib: int) -> int:
        """Return the MiB that must be free on a node to place a job that uses ``mib`` there.

        It is at least ``mib``, and one of few values.  As many equal jobs as the node has memory and resources for
        still fit.
        """
        capacity = self.capacities[number]
        if not 0 < mib <= capacity:
            return min(mib, capacity + 1)
        fitting = min(capacity // mib, len(self.bits[number]))
        least = max(mib, capacity >> SMALLEST_PART)
        step = 1 << max(least.bit_length() - PRECISION, 0)
        return min(-(-least // step) * step, capacity // fitting)


class MemoryNeed:
    """What requests of one kind need of each node; there is one object of each kind."""

    def __init__(self, nodes: NodeMemory, amounts: Sequence[int], *, has_shares: bool = False) -> None:
        """``amounts``: MiB that a request takes of each node; with ``has_shares``, for each resource there."""
        self.nodes = nodes
        self.has_shares = has_shares
        self._amounts = amounts
        self.all_shares = nodes.everything << nodes.size

    def closed(self, number: int, free: int) -> Sequence[int]:
        """Return the bits that are occupied while a node has so many MiB free: resources, or shares."""
        bits, amount = self.nodes.bits[number], self._amounts[number]
        if not amount:
            return ()
        if not self.has_shares:
            return () if free >= amount else bits
        return [self.nodes.size + bit for bit in bits[max(0, free) // amount :]]


class _Profile:
    """The memory used on one node, from date to date."""

    __slots__ = ("dates", "used")

    def __init__(self) -> None:
        self.dates = [0]
        self.used = [0]  #: MiB from each date on

    def add(self, start: int, end: int, mib: int) -> None:
        first, last = self._cut(start), self._cut(end)
        for index in range(first, last):
            self.used[index] += mib

    def _cut(self, date: int) -> int:
        index = bisect_left(self.dates, date)
        if index == len(self.dates) or self.dates[index] != date:
            self.dates.insert(index, date)
            self.used.insert(index, self.used[index - 1])
        return index

    def between(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Iterate over the periods of constant use from ``start`` to ``end``: begin, end, MiB."""
        first, last = bisect_right(self.dates, start) - 1, bisect_left(self.dates, end)
        dates = [start, *self.dates[first + 1 : last], end]
        yield from ((*period, used) for period, used in zip(pairwise(dates), self.used[first:last], strict=True))

    def most(self, start: int, end: int) -> int:
        return max(used for _, _, used in self.between(start, end))


class MemoryCharge(NamedTuple):
    """The memory of one job."""

    start: int
    end: int
    use: MemoryUse
    is_besteffort: bool


class MemoryLedger:
    """The memory that the jobs of all spaces use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._resources = snapshot.resources
        self.charges: list[MemoryCharge] = []
        self._asked = {
            (job.id, alternative.id): alternative.memory
            for job in snapshot.waiting
            for alternative in job.alternatives
            if alternative.memory
        }
        self._common: dict[int, _Profile] = {}
        self._with_besteffort: dict[int, _Profile] = {}
        self._counted = 0  #: so many charges are in ``_with_besteffort``
        self._views: dict[tuple[object, MemoryNeed], MemorySlots] = {}  #: the last used at the end

    @cached_property
    def nodes(self) -> NodeMemory:
        """Return the nodes.  They are made only if a job asks for memory."""
        return self._resources.once(NodeMemory)

    def view(self, space: object, need: "MemoryNeed", make: "Callable[[], MemorySlots]") -> "MemorySlots":
        """Return the slots of a space for a need; those that were not used for the longest time are dropped."""
        key = space, need
        view = self._views.pop(key, None) or make()
        self._views[key] = view
        if len(self._views) > MOST_VIEWS:
            del self._views[next(iter(self._views))]
        return view

    def use(self, job_id: int, alternative: int, resources: ResourceSet) -> MemoryUse | None:
        """Return what a placement of a waiting job uses; None if its memory is not counted."""
        memory = self._asked.get((job_id, alternative)) if self._asked else None
        return self.nodes.use(memory, resources) if memory else None

    def charge(self, start: int, end: int, use: MemoryUse, types: ParsedTypes) -> None:
        charge = MemoryCharge(start, end, use, types.is_besteffort)
        self.charges.append(charge)
        if not charge.is_besteffort:
            _enter(charge, self._common)

    def profiles(self, *, with_besteffort: bool) -> Mapping[int, _Profile]:
        """Return the use of each node that has jobs with memory."""
        if not with_besteffort:
            return self._common
        for charge in self.charges[self._counted :]:
            _enter(charge, self._with_besteffort)
        self._counted = len(self.charges)
        return self._with_besteffort

    def free(self, number: int, start: int, end: int, *, with_besteffort: bool = False) -> int:
        """Return the MiB of a node that the jobs leave free from ``start`` to ``end``."""
        profile = self.profiles(with_besteffort=with_besteffort).get(number)
        return self.nodes.capacities[number] - (profile.most(start, end) if profile else 0)


def _enter(charge: MemoryCharge, profiles: dict[int, _Profile]) -> None:
    if charge.start < charge.end:
        for number, mib in charge.use.items():
            profiles.setdefault(number, _Profile()).add(charge.start, charge.end, mib)


class MemorySlots:
    """The slots of a space as requests with one kind of need see them."""

    def __init__(self, slots: SlotSet, need: MemoryNeed, ledger: MemoryLedger, *, is_besteffort: bool) -> None:
        """``slots``: those of the space before its first occupant."""
        nodes = need.nodes
        shares = need.all_shares
        self._slots = slots.projected(shares.__or__, nodes.everything | shares) if need.has_shares else slots.copy()
        self._begin = slots.begin
        self._need = need
        self._ledger = ledger
        self._is_besteffort = is_besteffort
        self._occupants = 0  #: so many occupants of the space are in the slots
        self._charges = 0  #: so many charges are
        never = from_positions(sorted(bit for at, mib in enumerate(nodes.capacities) for bit in need.closed(at, mib)))
        self._slots.occupy(slots.begin, FOREVER, never)

    def updated(self, occupants: Sequence[Occupant]) -> SlotSet:
        """Return the slots with all occupants of the space, and all memory in use."""
        if self._occupants < len(occupants):
            self._slots.occupy_all(occupants[self._occupants :])
            self._occupants = len(occupants)
        if self._charges < len(self._ledger.charges):
            closings: dict[tuple[int, int], list[int]] = {}
            for since, until, bits in self._closings():
                closings.setdefault((since, until), []).extend(bits)
            self._slots.occupy_all([(*each, from_positions(sorted(bits)), None) for each, bits in closings.items()])
            self._charges = len(self._ledger.charges)
        return self._slots

    def _closings(self) -> Iterator[tuple[int, int, Sequence[int]]]:
        """Iterate over what the new charges close."""
        profiles = self._ledger.profiles(with_besteffort=self._is_besteffort)
        for number, periods in self._changed().items():
            capacity, start = self._need.nodes.capacities[number], self._begin
            for begin, end in periods:
                for since, until, used in profiles[number].between(max(start, begin), end) if end > start else ():
                    if closed := self._need.closed(number, capacity - used):
                        yield since, until, closed
                start = max(start, end)

    def _changed(self) -> dict[int, list[tuple[int, int]]]:
        """Return the periods of the new charges by node, in order of time."""
        periods: dict[int, list[tuple[int, int]]] = {}
        for charge in self._ledger.charges[self._charges :]:
            if (self._is_besteffort or not charge.is_besteffort) and charge.end > max(charge.start, self._begin):
                for number in charge.use:
                    periods.setdefault(number, []).append((charge.start, charge.end))
        return {number: sorted(each) for number, each in periods.items()}
