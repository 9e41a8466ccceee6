"""ENERGY: run the commands of the site that halt and wake the nodes chosen by the scheduler.

See docs/design/planner.rst, "Energy".

The orders are the open events HALT_NODE and WAKEUP_NODE. A node is halted only when it is Absent, so that no job can
run on it. An order for a node waits for the older orders for it. If the server fails while a command runs, its order is
carried out again.
"""

from collections.abc import Collection, Sequence

from oar.lib.base import processes
from oar.lib.base.programs import split_command
from oar.lib.bus.messages import Mail
from oar.lib.history.event_types import EventType
from oar.lib.history.records import Event
from oar.lib.logs import of_nodes
from oar.lib.nodes import state_changes
from oar.lib.nodes.energy import ENERGY_ORDERS
from oar.lib.nodes.states import UNCHANGED, ResourceState
from oar.modules.runner.actions.context import ActionContext, RetryAfter, log

#: Pause before the states of the nodes are read again.
AGAIN_SECONDS = 2.0


def carry_out(context: ActionContext) -> RetryAfter | None:
    """Carry out the orders that are possible now, and retry the others later.

    Do nothing if Greta handles the orders.
    """
    if context.config.energy_saving_internal:
        return None
    with context.database.snapshot() as tx:
        orders = tx.events.open(ENERGY_ORDERS)
        resources = tx.resources.of_nodes({host for order in orders for host in order.hosts})
    leaving = {resource.network_address for resource in resources if resource.next_state == ResourceState.ABSENT}
    asleep = {resource.network_address for resource in resources if resource.state is ResourceState.ABSENT}
    asleep -= {resource.network_address for resource in resources if resource.next_state != UNCHANGED}
    waiting: set[str] = set()
    for order in orders:
        if (waiting | leaving).intersection(order.hosts):
            waiting.update(order.hosts)
            continue
        # Skip nodes that were made Alive meanwhile or are Suspected.
        hosts = [host for host in order.hosts if host in asleep]
        _note(context, order, hosts, _run(context, order, hosts))
    return RetryAfter(AGAIN_SECONDS) if waiting else None


def _run(context: ActionContext, order: Event, hosts: Sequence[str]) -> str:
    """Run the command of an order. Return the error text, '' if the command succeeded."""
    config, is_halt = context.config, order.type == EventType.HALT_NODE
    command = config.scheduler_node_manager_sleep_cmd if is_halt else config.scheduler_node_manager_wake_up_cmd
    if not command or not hosts:
        return ""
    of_nodes(log, *hosts).info("%s %s", "halting" if is_halt else "waking", ", ".join(hosts))
    stdin = "".join(f"{host}\n" for host in hosts).encode()
    outcome = processes.run([*split_command(command), *hosts], timeout=config.scheduler_timeout, stdin=stdin)
    if outcome.succeeded:
        return ""
    error = f"no end within {config.scheduler_timeout} s" if outcome.timed_out else outcome.output.strip()
    return f"{command} {' '.join(hosts)}: {error or processes.describe_exit(outcome.code or 0)}"


def _note(context: ActionContext, order: Event, hosts: Collection[str], error: str) -> None:
    """Store that an order is carried out. Request the state Suspected for nodes whose command failed."""
    with context.database.begin() as tx:
        tx.events.done([order.id])
        if error:
            of_nodes(log, *hosts).error("%s", error)
            tx.outbox.append(Mail("Nodes cannot be halted or woken", error))
            if order.type == EventType.HALT_NODE:
                resources = tx.resources.of_nodes(order.hosts)
                absent = [resource.id for resource in resources if resource.state is ResourceState.ABSENT]
                state_changes.ask_state(tx, absent, ResourceState.SUSPECTED, error)
        elif order.type == EventType.HALT_NODE:
            may_wake = bool(context.config.scheduler_node_manager_wake_up_cmd)
            state_changes.bring_back(tx, hosts, "bipbip", may_wake=may_wake)
