"""Groups of nodes that are kept awake, for Greta and for scheduling passes."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oar.lib.base.errors import BadCondition, ConfigError
from oar.lib.db.user_sql import SITE, Subject, evaluate
from oar.lib.nodes.energy_records import KeptGroup, KeptNodes

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
