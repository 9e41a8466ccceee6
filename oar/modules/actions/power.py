"""ENERGY: nodes are halted and woken by the commands of the site, as rounds have chosen (server.md 8.3).

The orders are events that nobody has acted on: HALT_NODE and WAKEUP_NODE.  A node is halted only when it is Absent, so
that no job can be on it; an order for a node waits for older ones of it.  An order whose command was going on when the
server died is carried out again.
"""

import shlex
from collections.abc import Collection, Sequence

from oar.lib import nodes, process
from oar.lib.db.engine import Transaction
from oar.lib.messages import Mail
from oar.lib.model import Event
from oar.lib.states import UNCHANGED, EventType, ResourceState
from oar.modules.actions.context import Context, Later, log

ENERGY_ORDERS = (EventType.HALT_NODE, EventType.WAKEUP_NODE)

#: Pause before it is looked again whether nodes are Absent.
AGAIN_SECONDS = 2.0


def carry_out(context: Context) -> Later | None:
    """Carry out the orders that can be; come again for the others."""
    with context.database.snapshot() as tx:
        orders = tx.events.open(ENERGY_ORDERS)
        found = tx.resources.of_nodes({host for order in orders for host in order.hosts})
    leaving = {one.network_address for one in found if one.next_state == ResourceState.ABSENT}
    asleep = {one.network_address for one in found if one.state is ResourceState.ABSENT}
    asleep -= {one.network_address for one in found if one.next_state != UNCHANGED}
    waiting: set[str] = set()
    for order in orders:
        if (waiting | leaving).intersection(order.hosts):
            waiting.update(order.hosts)
            continue
        # What was made Alive meanwhile, or is broken, is left alone.
        hosts = [host for host in order.hosts if host in asleep]
        _note(context, order, hosts, _run(context, order, hosts))
    return Later(AGAIN_SECONDS) if waiting else None


def _run(context: Context, order: Event, hosts: Sequence[str]) -> str:
    """Run the command of an order; return what went wrong, '' if nothing."""
    config, is_halt = context.config, order.type == EventType.HALT_NODE
    command = config.scheduler_node_manager_sleep_cmd if is_halt else config.scheduler_node_manager_wake_up_cmd
    if not command or not hosts:
        return ""
    log.info("%s %s", "halting" if is_halt else "waking", ", ".join(hosts))
    stdin = "".join(f"{host}\n" for host in hosts).encode()
    outcome = process.run([*shlex.split(command), *hosts], timeout=config.scheduler_timeout, stdin=stdin)
    if outcome.is_good:
        return ""
    why = f"no end within {config.scheduler_timeout} s" if outcome.timed_out else outcome.output.strip()
    return f"{command} {' '.join(hosts)}: {why or process.said(outcome.code or 0)}"


def _note(context: Context, order: Event, halted: Collection[str], trouble: str) -> None:
    """Note that an order is carried out; nodes that could not be halted may be in any state."""
    with context.database.begin() as tx:
        tx.events.done([order.id])
        if trouble:
            log.error("%s", trouble)
            tx.outbox.append(Mail("Nodes cannot be halted or woken", trouble))
            if order.type == EventType.HALT_NODE:
                asleep = [one for one in tx.resources.of_nodes(order.hosts) if one.state is ResourceState.ABSENT]
                nodes.ask_state(tx, [one.id for one in asleep], ResourceState.SUSPECTED)
        elif order.type == EventType.HALT_NODE:
            _bring_back(context, tx, halted)


def _bring_back(context: Context, tx: Transaction, halted: Collection[str]) -> None:
    """Wake the nodes that somebody made Alive while the command was halting them: no job is to find them off."""
    found = [one for one in tx.resources.of_nodes(halted) if ResourceState.ALIVE in (one.state, one.next_state)]
    if not found:
        return
    names = {one.network_address for one in found}
    may_wake = bool(context.config.scheduler_node_manager_wake_up_cmd)
    nodes.ask_state(tx, [one.id for one in found], ResourceState.ABSENT if may_wake else ResourceState.SUSPECTED)
    if may_wake:
        nodes.order_wake(tx, names, "[bipbip] made Alive while they were halted")
