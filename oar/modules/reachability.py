"""Count the nodes that a server reaches: a network failure between the active server and the nodes is no node failure.

Finaud of the active server requests the counts of the standby servers, and compares them with its own. The warden of a
standby runs this file as a program; it uses the checker of Finaud.

See docs/design/availability.rst, "A server that does not reach the nodes".
"""

import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from oar.lib import logs, runtime
from oar.lib.base import processes
from oar.lib.base.errors import ConfigError, DatabaseUnavailable
from oar.lib.bus.exit_codes import ServerCode
from oar.lib.bus.servers import own_server
from oar.lib.nodes.ping_checker import silent_hosts
from oar.lib.runtime import Runtime

log = logging.getLogger("reachability")

#: Time for the standby servers to count, in seconds. Only the checkers sentinelle and generic may take longer.
COUNT_SECONDS = 30.0
_LOOK_SECONDS = 0.2


class Count(NamedTuple):
    """The number of nodes that answer a server, and the number of nodes that are Alive."""

    reached: int
    alive: int


class Choice(NamedTuple):
    """The server that must take over, and the reason."""

    server_name: str
    reason: str


def choose(server_name: str, own: Count, standbys: Mapping[str, int]) -> Choice | None:
    """Choose the standby that must take over from a server that has lost more than half of the nodes.

    It reaches at least twice as many nodes. ``standbys``: the number of nodes that each reaches.

    >>> choose("srv1", Count(1, 4), {"srv2": 4})
    Choice(server_name='srv2', reason='srv1 reaches 1 of 4 nodes, srv2 reaches 4')
    >>> choose("srv1", Count(2, 4), {"srv2": 4}), choose("srv1", Count(1, 4), {"srv2": 1})
    (None, None)
    """
    name = max(sorted(standbys), key=standbys.__getitem__, default="")
    if 2 * own.reached >= own.alive or not name or standbys[name] < max(1, 2 * own.reached):
        return None
    return Choice(name, f"{server_name} reaches {own.reached} of {own.alive} nodes, {name} reaches {standbys[name]}")


def count_nodes(opened: Runtime) -> Count:
    """Check all nodes that are Alive, and store the number of those that answer. Raises ConfigError."""
    with opened.database.begin() as tx:
        nodes = tx.resources.alive_node_names()
    reached = len(nodes) - len(silent_hosts(opened.config, nodes))
    with opened.database.begin() as tx:
        tx.servers.note_reached(own_server(opened.config), reached)
    return Count(reached, len(nodes))


def find_better_server(opened: Runtime) -> Choice | None:
    """Compare the nodes that this server reaches with those of the standbys. Raises ConfigError."""
    with opened.database.begin() as tx:
        tx.servers.request_count()
        requested, standbys = tx.now, tx.servers.running_standbys()
    if not standbys:
        return None
    own = count_nodes(opened)
    end = time.monotonic() + COUNT_SECONDS
    while len(counts := _counts(opened, standbys, requested)) < len(standbys) and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
    choice = choose(own_server(opened.config), own, counts)
    log.warning("this server reaches %d of %d nodes; standby servers: %s", *own, counts or "no answer")
    return choice


def _counts(opened: Runtime, names: list[str], since: int) -> dict[str, int]:
    """Return the counts of standbys that were stored since a date."""
    with opened.database.begin() as tx:
        rows = tx.servers.all()
    return {row.server_name: row.sees_nodes for row in rows if row.server_name in names and row.counted_at >= since}


def main() -> int:
    """Count the nodes that this host reaches, for the active server."""
    opened = runtime.open_runtime("reachability", patience=0)
    with logs.logging_to(opened.config, "Reachability"):
        parent = processes.watch_parent(os.environ)
        if parent:
            parent.limit_life(0)
        try:
            count = count_nodes(opened)
        except ConfigError as error:
            log.error("the nodes are not counted: %s", error)
            return ServerCode.CONFIGURATION
        except DatabaseUnavailable as error:
            log.error("the database cannot be reached: %s", error)
            return ServerCode.DATABASE
        log.info("this server reaches %d of %d nodes", *count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
