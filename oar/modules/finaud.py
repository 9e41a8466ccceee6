"""Finaud: asks nodes whether they live (server.md 5.4).

A node that does not answer is to be Suspected; one that Finaud suspected and that answers again is to be Alive.  Both
are asked only of resources that are still as they were when the test began: an administrator may have decided
something meanwhile.
"""

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from oar.lib.config import Config
from oar.lib.errors import ConfigError
from oar.lib.messages import Mail, Tag, Wake
from oar.lib.states import EventType, ResourceState
from oar.modules.actions.probe import LOST_AFTER
from oar.modules.ping_checker import bad_hosts

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction
    from oar.lib.runtime import Runtime

log = logging.getLogger("finaud")

NOTHING, CHANGE = 0, 1
#: If more nodes than this were tested and all failed, the server's own network is to blame.
TOO_MANY_TO_FAIL = 10


def run(runtime: "Runtime") -> int:
    """Make one pass; return 1 if NodeChangeState has something to do."""
    with runtime.database.begin() as tx:
        nodes = _tested(tx, runtime.config)
    if not nodes:
        return NOTHING
    try:
        bad = set(bad_hosts(runtime.config, nodes))
    except ConfigError as error:
        return _give_up(runtime, "Module finaud failed", f"{error}; no node is suspected for it")
    if len(bad) == len(nodes) > TOO_MANY_TO_FAIL:
        text = f"none of the {len(nodes)} nodes answers: the server's own network is suspected, no node is"
        return _give_up(runtime, "Suspecting nodes", text)
    with runtime.database.begin() as tx:
        changed = _note(tx, runtime.config, nodes, bad)
    return CHANGE if changed else NOTHING


def _give_up(runtime: "Runtime", subject: str, text: str) -> int:
    log.error("%s", text)
    with runtime.database.begin() as tx:
        tx.outbox.append(Mail(subject, text))
    return NOTHING


def _tested(tx: "Transaction", config: Config) -> dict[str, bool]:
    """Return the nodes to be tested, each with whether it is Alive."""
    nodes = tx.resources.checkable_nodes()
    if config.check_nodes_with_running_job:
        return nodes
    busy = tx.resources.busy_nodes() - tx.runs.silent_hosts(LOST_AFTER)
    return {node: alive for node, alive in nodes.items() if node not in busy}


def _note(tx: "Transaction", config: Config, nodes: Mapping[str, bool], bad: set[str]) -> bool:
    """Ask for the states that the test calls for; return whether anything was asked."""
    lost = [node for node, alive in nodes.items() if alive and node in bad and _lost(tx, node)]
    found: list[str] = []
    if not config.disable_suspected_nodes_repair:
        found = [node for node, alive in nodes.items() if not alive and node not in bad and _found(tx, node)]
    for event, text, hosts in (
        (EventType.FINAUD_ERROR, "does not answer", lost),
        (EventType.FINAUD_RECOVER, "answers again", found),
    ):
        if hosts:
            tx.events.add(event, 0, f"[Finaud] {', '.join(hosts)}: {text}", hosts=hosts)
            tx.outbox.append(Wake(Tag.CHSTATE))
    return bool(lost or found)


def _lost(tx: "Transaction", node: str) -> bool:
    return tx.resources.ask_state_of_node(node, ResourceState.SUSPECTED, seen=ResourceState.ALIVE) > 0


def _found(tx: "Transaction", node: str) -> bool:
    seen = ResourceState.SUSPECTED
    return tx.resources.ask_state_of_node(node, ResourceState.ALIVE, seen=seen, decided_by_finaud=True) > 0


def main() -> None:
    """Run as a program."""
    from oar.modules import worker

    sys.exit(worker.main("finaud", run))


if __name__ == "__main__":
    main()
