"""Determine which commands must run for the open halt and wake orders (pure functions).

An order is an event HALT_NODE or WAKEUP_NODE that is still open. The orders of a node are executed one after the
other. A node is halted only if it is Absent and neither a job nor an advance reservation holds it. Nodes that became
Alive or Suspected meanwhile are skipped.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from oar.lib.history.event_types import EventType
from oar.lib.history.records import Event
from oar.lib.nodes.energy_records import NodePower

ENERGY_ORDERS = (EventType.HALT_NODE, EventType.WAKEUP_NODE)

#: The nodes of an order whose command has ended: ``(id of the event, node)``.
Progress = Collection[tuple[int, str]]


class OrderStep(NamedTuple):
    """The nodes of an order for which its command can run now, and those that must wait."""

    order: Event
    ready: tuple[str, ...]  #: nodes for which its command may be run
    waiting: tuple[str, ...]  #: nodes that are still leaving, or whose older order is not over

    @property
    def is_halt(self) -> bool:
        """Whether the order halts its nodes."""
        return self.order.type == EventType.HALT_NODE

    @property
    def is_over(self) -> bool:
        """Whether the order is completed."""
        return not (self.ready or self.waiting)


def next_steps(
    orders: Iterable[Event], nodes: Mapping[str, NodePower], *, ended: Progress, running: Collection[str]
) -> list[OrderStep]:
    """Return the possible steps of each order, oldest first; ``running``: nodes for which a command is running."""
    blocked = set(running)
    steps = []
    for order in orders:
        ready, waiting = [], []
        for host in order.hosts:
            node = nodes.get(host)
            if (order.id, host) in ended or node is None:
                continue
            if host in blocked or node.is_leaving:
                waiting.append(host)
            elif node.is_asleep and not (order.type == EventType.HALT_NODE and node.is_held):
                ready.append(host)
        blocked.update(ready, waiting)
        steps.append(OrderStep(order, tuple(ready), tuple(waiting)))
    return steps
