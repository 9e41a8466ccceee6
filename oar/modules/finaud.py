"""Finaud: check with the ping checker whether nodes respond.

Finaud requests the state Suspected for nodes that do not respond, and Alive for nodes that it has suspected and that
respond again. It does so only for resources whose state has not changed since the check began: an administrator may
have changed it.

See docs/design/nodes.rst, "Node checks".
"""

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from oar.lib.base.errors import ConfigError
from oar.lib.bus.exit_codes import FinaudCode
from oar.lib.bus.messages import Ask, JobAction, Mail, Tag, Wake
from oar.lib.config.files import Config
from oar.lib.history.event_types import EventType
from oar.lib.nodes.ping_checker import is_configured, silent_hosts
from oar.lib.nodes.states import ResourceState
from oar.modules import reachability
from oar.modules.reachability import REPEAT_MINUTES
from oar.modules.runner.actions.probe import LOST_AFTER, TOO_MANY_TO_FAIL

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.runtime import Runtime
    from oar.modules.worker import PassOrder

log = logging.getLogger("finaud")


def run(runtime: "Runtime", order: "PassOrder | None" = None) -> int:
    """Run one pass. Return 1 if NodeChangeState has work.

    A pass whose order says ``compare`` only decides whether a standby must take over. It changes no node: a node that
    was suspected for a failed launch would be Alive again at once, and the launch would fail again.
    """
    compares = order is not None and order.compare
    with runtime.database.begin() as tx:
        nodes = _nodes_to_test(tx, runtime.config)
    if compares:
        nodes = {node: is_alive for node, is_alive in nodes.items() if is_alive}
    if not nodes:
        return FinaudCode.NOTHING
    try:
        silent = set(silent_hosts(runtime.config, nodes))
        if _hand_over(runtime, nodes, silent):
            return FinaudCode.NOTHING
    except ConfigError as error:
        return _report_failure(runtime, "Module finaud failed", f"{error}; no node is suspected for it")
    if compares:
        return FinaudCode.NOTHING
    if len(silent) == len(nodes) > TOO_MANY_TO_FAIL:
        text = f"none of the {len(nodes)} nodes answers: the server's own network is suspected, no node is"
        return _report_failure(runtime, "Suspecting nodes", text)
    with runtime.database.begin() as tx:
        changed = _note(tx, runtime.config, nodes, silent)
    return FinaudCode.CHANGE if changed else FinaudCode.NOTHING


def _hand_over(runtime: "Runtime", nodes: Mapping[str, bool], silent: set[str]) -> bool:
    """Hand over to a standby server that reaches at least twice as many nodes. Return whether there is one."""
    if len(runtime.config.server_hostnames) < 2:
        return False
    checked = {node: node not in silent for node, is_alive in nodes.items() if is_alive}
    choice = reachability.find_better_server(runtime, checked)
    if choice is None:
        return False
    name, reason, is_repeated = choice
    if is_repeated:
        _report_failed_hand_over(
            runtime, f"no hand-over to {name} ({reason}): it was chosen less than {REPEAT_MINUTES} minutes ago"
        )
        return False
    with runtime.database.begin() as tx:
        tx.servers.want(name, reason)
    log.warning("hand-over to %s instead of suspecting nodes: %s", name, reason)
    return True


def _report_failed_hand_over(runtime: "Runtime", text: str) -> None:
    """Log that a hand-over is not repeated. Store an event and send a mail, once in the time without a repetition."""
    log.error("%s", text)
    with runtime.database.begin() as tx:
        if not tx.events.number_since(EventType.HAND_OVER_FAILED, tx.now - 60 * REPEAT_MINUTES):
            tx.events.add(EventType.HAND_OVER_FAILED, 0, f"[Finaud] {text}")
            tx.outbox.append(Mail("Hand-over to another server failed", f"{text}; see the log of that server"))


def _report_failure(runtime: "Runtime", subject: str, text: str) -> int:
    log.error("%s", text)
    with runtime.database.begin() as tx:
        tx.outbox.append(Mail(subject, text))
    return FinaudCode.NOTHING


def _nodes_to_test(tx: "Transaction", config: Config) -> dict[str, bool]:
    nodes = tx.resources.checkable_nodes()
    if config.check_nodes_with_running_job:
        return nodes
    busy = tx.resources.busy_nodes() - tx.job_runs.silent_hosts(LOST_AFTER)
    return {node: alive for node, alive in nodes.items() if node not in busy}


def _note(tx: "Transaction", config: Config, nodes: Mapping[str, bool], silent: set[str]) -> bool:
    """Request the states that follow from the test. Return whether there are any."""
    states = tx.resources
    ids_by_node = {
        node: states.ask_state_of_node(node, ResourceState.SUSPECTED, seen=ResourceState.ALIVE)
        for node, alive in nodes.items()
        if alive and node in silent
    }
    suspected = [node for node, ids in ids_by_node.items() if ids]
    recovered: list[str] = []
    if not config.disable_suspected_nodes_repair:
        answering = [node for node, alive in nodes.items() if not alive and node not in silent]
        checks = tx.nodes.due_checks()
        checked = tuple(node for node in answering if node in checks)
        recovered = [node for node in answering if node not in checked and _make_alive(tx, node)]
        if checked:
            tx.outbox.append(Ask(JobAction.CHECK, 0, checked))
    bad, good = "does not answer", "answers again"
    if is_configured(config):
        bad, good = "the checker of the site finds it bad", "the checker of the site finds it well again"
    tx.nodes.set_reason([resource for ids in ids_by_node.values() for resource in ids], "", bad)
    for event, text, hosts in ((EventType.FINAUD_ERROR, bad, suspected), (EventType.FINAUD_RECOVER, good, recovered)):
        if hosts:
            tx.events.add(event, 0, f"[Finaud] {', '.join(hosts)}: {text}", hosts=hosts)
            tx.outbox.append(Wake(Tag.CHSTATE))
    return bool(suspected or recovered)


def _make_alive(tx: "Transaction", node: str) -> bool:
    seen = ResourceState.SUSPECTED
    return bool(tx.resources.ask_state_of_node(node, ResourceState.ALIVE, seen=seen, decided_by_finaud=True))


def main() -> None:
    from oar.modules import worker

    sys.exit(worker.main_of_scheduler("finaud", run))


if __name__ == "__main__":
    main()
