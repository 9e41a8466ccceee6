"""The occupancy of nodes: number of resources that are free, used or out of service."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

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
        return {
            "total": self.total,
            "reserved": self.reserved,
            **{condition.value: self.numbers[condition] for condition in SHOWN},
            "drain": self.is_draining,
        }


def condition_of(resource: ResourceView) -> Condition:
    return condition(
        resource.state,
        is_held=bool(resource.jobs),
        is_reserved=bool(resource.reserved),
        is_drained=_is_drained(resource),
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
    return [_of_node(name, of_node) for name, of_node in nodes.items()]


def total(nodes: Sequence[NodeOccupancy]) -> NodeOccupancy:
    """Return the sums over several nodes."""
    numbers = {each: sum(node.numbers[each] for node in nodes) for each in Condition}
    whole, reserved = sum(node.total for node in nodes), sum(node.reserved for node in nodes)
    return NodeOccupancy("total", whole, reserved, numbers, is_draining=False)


def _of_node(name: str, resources: Sequence[ResourceView]) -> NodeOccupancy:
    conditions = [condition_of(resource) for resource in resources]
    numbers = {each: conditions.count(each) for each in Condition}
    is_draining = any(_is_drained(resource) and resource.state is ResourceState.ALIVE for resource in resources)
    reserved = sum(bool(resource.reserved) for resource in resources)
    return NodeOccupancy(name, len(resources), reserved, numbers, is_draining)


def _is_drained(resource: ResourceView) -> bool:
    return bool(resource.columns["drain"] == "YES")
