"""An index of items, mostly jobs, by the resources that they hold."""

from typing import Generic, TypeVar

from oar.lib.base.resource_set import ResourceSet, positions

T = TypeVar("T")

#: So many things are looked at sooner than it is counted what is asked for.
FEW = 4


class ResourceIndex(Generic[T]):
    """Items that hold resources, found by a set of resources.

    If a search names fewer resources than there are items, it uses an index by resource, which is built at the first
    such search.  Otherwise all items are compared.
    """

    def __init__(self) -> None:
        self._things: list[T] = []
        self._held: list[ResourceSet] = []
        self._all_held: ResourceSet = 0
        self._indexed = 0  #: so many of them are in ``_by_bit``
        self._by_bit: dict[int, list[int]] = {}  #: resource -> numbers of things

    def __len__(self) -> int:
        return len(self._things)

    def add(self, thing: T, resources: ResourceSet) -> None:
        """Add an item with the resources that it holds."""
        self._things.append(thing)
        self._held.append(resources)
        self._all_held |= resources

    def on(self, resources: ResourceSet) -> list[T]:
        """Return the items that hold some of these resources, in the order in which they were added."""
        wanted = resources & self._all_held
        if not wanted:
            return []
        if len(self._things) <= FEW or wanted.bit_count() >= len(self._things):
            return [thing for thing, held in zip(self._things, self._held, strict=True) if held & wanted]
        self._complete()
        numbers = {number for bit in positions(wanted) for number in self._by_bit.get(bit, ())}
        return [self._things[number] for number in sorted(numbers)]

    def _complete(self) -> None:
        for number in range(self._indexed, len(self._things)):
            for bit in positions(self._held[number]):
                self._by_bit.setdefault(bit, []).append(number)
        self._indexed = len(self._things)
