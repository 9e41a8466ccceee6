"""Groups of nodes that are kept awake, for Greta and for scheduling passes."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.errors import BadCondition, ConfigError
from oar.lib.db.user_sql import SITE, Subject, evaluate
from oar.lib.history.event_types import EventType
from oar.lib.history.records import Event
from oar.lib.nodes.energy_records import KeptGroup, KeptNodes, NodePower

if TYPE_CHECKING:
    from oar.lib.db.database import Database


log = logging.getLogger("energy")


def kept_nodes(database: "Database", kept: Sequence[KeptGroup]) -> tuple[KeptNodes, ...]:
    """Return the groups of nodes that are kept awake, with their nodes.

    If a condition cannot be evaluated, no node may be halted, because the nodes to keep awake are unknown.
    """
    groups = []
    for condition, number in kept:
        if not number:
            continue
        try:
            ids = evaluate(database, Subject.RESOURCES, condition, SITE)
        except (BadCondition, ConfigError) as error:
            log.error("ENERGY_SAVING_NODES_KEEPALIVE: %s: no node is halted: %s", condition, error)
            with database.snapshot() as tx:
                return (KeptNodes(frozenset(tx.resources.nodes()), 2**31),)
        with database.snapshot() as tx:
            nodes = frozenset(tx.resources.nodes_of(ids))
        groups.append(KeptNodes(nodes, number))
    return tuple(groups)


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
