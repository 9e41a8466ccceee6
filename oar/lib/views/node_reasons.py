"""Why nodes are drained or in maintenance, as administrators said when it began."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oar.lib.facts.states import EventType, ResourceState
from oar.lib.rules.node_reasons import reason_of
from oar.lib.views.nodes import ResourceView

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


def reasons(tx: "Transaction", views: Sequence[ResourceView]) -> dict[str, str]:
    """Return the reasons by node, of those for which one was given; that of a maintenance goes before a drain's."""
    absent = {view.id: view.node for view in views if view.node and view.state is ResourceState.ABSENT}
    maintained = {absent[number] for number in tx.resources.in_maintenance(absent)} if absent else set()
    drained = {view.node for view in views if view.node and view.is_drained}
    found = tx.events.last_texts(drained - maintained, EventType.DRAIN_BEGUN)
    found |= tx.events.last_texts(maintained, EventType.MAINTENANCE_BEGUN)
    return {node: reason for node, text in found.items() if (reason := reason_of(text))}
