"""Why nodes are not in use: states, drains and maintenances, with author and date."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.history.event_types import EventType
from oar.lib.nodes.state_reasons import author_of, reason_of
from oar.lib.nodes.states import ResourceState
from oar.lib.nodes.views import ResourceView

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Who decided what no user asked for.
OAR = "OAR"
DRAINED, MAINTAINED = "drain", "maintenance"


class NodeReason(NamedTuple):
    """Why a node is in a state in which no jobs start on it."""

    node: str
    state: str  #: Suspected, Absent, Dead, drain or maintenance
    reason: str  #: '' if nobody gave one
    author: str  #: a user, or OAR
    since: int


def reasons(tx: "Transaction", views: Sequence[ResourceView]) -> dict[str, str]:
    """Return the reasons by node, without empty ones; the reason of a maintenance takes precedence."""
    order = [MAINTAINED, *ResourceState, DRAINED]
    found = sorted(explain(tx, views), key=lambda each: order.index(each.state), reverse=True)
    return {each.node: each.reason for each in found if each.reason}


def explain(tx: "Transaction", views: Sequence[ResourceView]) -> list[NodeReason]:
    """Return why no jobs start on nodes, by node: one entry for each state of its resources."""
    away = [view for view in views if view.node and view.state is not ResourceState.ALIVE]
    absent = [view.id for view in away if view.state is ResourceState.ABSENT]
    in_maintenance = set(tx.resources.in_maintenance(absent)) if absent else set()
    maintained = {view.node for view in away if view.id in in_maintenance}
    drained = {view.node for view in views if view.node and view.is_drained}
    found = [
        *_of_states(tx, [view for view in away if view.id not in in_maintenance]),
        *_of_events(tx, maintained, MAINTAINED, EventType.MAINTENANCE_BEGUN),
        *_of_events(tx, drained, DRAINED, EventType.DRAIN_BEGUN),
    ]
    return sorted(found, key=lambda each: (each.node, each.state))


def _of_states(tx: "Transaction", views: Sequence[ResourceView]) -> list[NodeReason]:
    ids = [view.id for view in views]
    stored = {reason.resource: reason for reason in tx.nodes.reasons_of_resources(ids)} if ids else {}
    dates = tx.resources.in_state_since(ids) if ids else {}
    found: dict[tuple[str, str], NodeReason] = {}
    for view in views:
        reason = stored.get(view.id)
        text, author = (reason.reason, reason.author or OAR) if reason else ("", "")
        since = dates.get(view.id, reason.date if reason else 0)
        found.setdefault((view.node, view.state), NodeReason(view.node, view.state, text, author, since))
    return list(found.values())


def _of_events(tx: "Transaction", nodes: set[str], state: str, type_: EventType) -> list[NodeReason]:
    texts = tx.events.last_texts(nodes, type_)
    return [
        NodeReason(node, state, reason_of(text), author_of(text), date)
        for node in nodes
        for date, text in [texts.get(node, (0, ""))]
    ]
