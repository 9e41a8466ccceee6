"""The occupancy of nodes: resources that are free, used or out of service, and when they become free."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from oar.lib.nodes.states import ResourceState
from oar.lib.nodes.views import ResourceView


class Condition(StrEnum):
    """Whether a resource can be used now; the first condition that applies is used."""

    DEAD = "dead"
    ABSENT = "absent"
    SUSPECTED = "suspected"
    USED = "used"  #: a job is on it
    RESERVED = "reserved"  #: an advance reservation has it, and no job is on it
    DRAINING = "draining"  #: no job will be started on it
    FREE = "free"


_OUT_OF_SERVICE = {
    ResourceState.DEAD: Condition.DEAD,
    ResourceState.ABSENT: Condition.ABSENT,
    ResourceState.SUSPECTED: Condition.SUSPECTED,
}
#: In the order in which they are shown.
SHOWN = (
    *(Condition.FREE, Condition.USED, Condition.DRAINING),
    *(Condition.ABSENT, Condition.SUSPECTED, Condition.DEAD),
)


@dataclass(frozen=True, slots=True)
class NodeOccupancy:
    """The number of resources of a node by condition."""

    node: str
    total: int
    reserved: int  #: by advance reservations that have begun, whatever their condition
    numbers: dict[Condition, int]
    is_draining: bool  #: jobs may still be on it

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        numbers = {condition.value: self.numbers[condition] for condition in SHOWN}
        return {"total": self.total, "reserved": self.reserved, **numbers, "drain": self.is_draining}

    @property
    def shown(self) -> list[int]:
        """The numbers of a line of text."""
        return [self.total, self.reserved, *(self.numbers[condition] for condition in SHOWN)]


def condition_of(resource: ResourceView) -> Condition:
    return condition(
        resource.state,
        is_held=bool(resource.jobs),
        is_reserved=bool(resource.reserved),
        is_drained=resource.is_drained,
    )


def condition(state: ResourceState, *, is_held: bool, is_reserved: bool, is_drained: bool) -> Condition:
    """Return the condition of a resource with these properties."""
    if state in _OUT_OF_SERVICE:
        return _OUT_OF_SERVICE[state]
    if is_held:
        return Condition.USED
    if is_reserved:
        return Condition.RESERVED
    return Condition.DRAINING if is_drained else Condition.FREE


def by_node(resources: Iterable[ResourceView]) -> list[NodeOccupancy]:
    """Return the occupancy of each node, in the order of the resources."""
    nodes: dict[str, list[ResourceView]] = {}
    for resource in resources:
        nodes.setdefault(resource.node, []).append(resource)
    occupancies = []
    for name, of_node in nodes.items():
        conditions = [condition_of(resource) for resource in of_node]
        is_draining = any(resource.is_drained and resource.state is ResourceState.ALIVE for resource in of_node)
        reserved = sum(bool(resource.reserved) for resource in of_node)
        numbers = {condition: conditions.count(condition) for condition in Condition}
        occupancies.append(NodeOccupancy(name, len(of_node), reserved, numbers, is_draining))
    return occupancies


def total(nodes: Sequence[NodeOccupancy]) -> NodeOccupancy:
    """Return the sums over several nodes."""
    numbers = {condition: sum(node.numbers[condition] for node in nodes) for condition in Condition}
    whole, reserved = sum(node.total for node in nodes), sum(node.reserved for node in nodes)
    return NodeOccupancy("total", whole, reserved, numbers, is_draining=False)


# -- when occupied resources become free ------------------------------------------------------------------------------

#: Seconds between two jobs in which nobody else finds a place.
GAP = 60


class Taken(NamedTuple):
    """A period in which resources are occupied."""

    begin: int
    end: int | None  #: None: nobody knows
    resources: Collection[int]


def next_free(resources: Collection[int], taken: Iterable[Taken], now: int) -> int | None:
    """Return when the first of the resources becomes free; return None if this is unknown for all of them.

    >>> next_free([1, 2], [Taken(0, 50, [1]), Taken(50, 90, [1]), Taken(0, 70, [2])], 10)
    70
    """
    wanted = set(resources)
    periods: dict[int, list[tuple[int, int | None]]] = defaultdict(list)
    for period in taken:
        for number in wanted.intersection(period.resources):
            periods[number].append((period.begin, period.end))
    dates = [_free_from(periods[number], now) for number in wanted]
    return min((date for date in dates if date is not None), default=None)


def _free_from(taken: Iterable[tuple[int, int | None]], now: int) -> int | None:
    """Return when a resource is free for longer than a gap; return None if this is unknown."""
    free = now
    for begin, end in sorted(taken, key=lambda period: period[0]):
        if begin > free + GAP:
            break
        if end is None:
            return None
        free = max(free, end)
    return free
