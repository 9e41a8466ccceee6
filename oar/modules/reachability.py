"""Count the nodes that a server reaches: a network failure between the active server and the nodes is no node failure.

Finaud of the active server requests the counts of the standby servers, and compares them with its own. The warden of a
standby runs this file as a program; it uses the checker of Finaud.

See docs/design/availability.rst, "A server that does not reach the nodes".
"""

import logging
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from oar.lib import logs, runtime
from oar.lib.base import processes
from oar.lib.base.errors import ConfigError, DatabaseUnavailable
from oar.lib.base.version import VERSION, schema_number
from oar.lib.bus.exit_codes import ServerCode
from oar.lib.bus.servers import own_server
from oar.lib.config.files import Config
from oar.lib.db.servers import SEEN_SECONDS, ServerRow
from oar.lib.jobs.states import ServerRole
from oar.lib.nodes.ping_checker import silent_hosts
from oar.lib.runtime import Runtime

log = logging.getLogger("reachability")

#: Time for the standby servers to count, in seconds. Only the checkers sentinelle and generic may take longer.
COUNT_SECONDS = 30.0
_LOOK_SECONDS = 0.2
#: Seconds from a request to count, which leads to no hand-over, to the next one: at least 60 s after its result.
RECOUNT_SECONDS = 90
#: A server that was chosen is not chosen again in this time.
REPEAT_MINUTES = 15
#: So many nodes, and this part of all Alive nodes, must be silent before the servers count.
LEAST_NODES, LEAST_PERCENT = 2, 10
#: Stored by a server that cannot check the nodes.
FAILED = -1


class Count(NamedTuple):
    """The number of nodes that answer a server, and the number of nodes that are Alive."""

    reached: int
    alive: int


class Choice(NamedTuple):
    """The server that must take over, and the reason."""

    server_name: str
    reason: str
    is_repeated: bool = False  #: it was already chosen lately: its take-over has failed, or did not help


def have_failed(checked: Collection[bool], alive: int) -> bool:
    """Return whether so many nodes do not answer that the network of this server may be the cause.

    ``checked``: for each checked Alive node, whether it answers. ``alive``: the number of all Alive nodes.

    Of two Alive nodes, one is enough: the other one may be busy, and busy nodes are not checked.

    >>> have_failed([False, False, True], 3), have_failed([False], 2), have_failed([False], 100)
    (True, True, False)
    """
    silent = sum(not answers for answers in checked)
    is_share = 100 * silent >= LEAST_PERCENT * alive and (silent >= LEAST_NODES or 2 * silent >= alive)
    return 2 * silent > len(checked) and is_share


def candidates(rows: Sequence[ServerRow], config: Config, now: int) -> dict[str, ServerRow]:
    """Return the standby servers that could take over and continue alike, by name.

    They are in SERVER_HOSTNAME, have reported lately, and have the schema and the configuration of this server.
    """
    own = own_server(config)
    digest = next((row.config_digest for row in rows if row.server_name == own), None)
    return {
        row.server_name: row
        for row in rows
        if row.role is ServerRole.STANDBY
        and row.server_name in config.server_hostnames
        and row.last_seen > now - SEEN_SECONDS
        and row.config_digest == digest
        and schema_number(row.version) == schema_number(VERSION)
    }


def choose(server_name: str, own: Count, standbys: Mapping[str, int], recent: Collection[str] = ()) -> Choice | None:
    """Choose the standby that must take over from a server that has lost more than half of the nodes.

    It reaches at least twice as many nodes. ``standbys``: the number of nodes that each reaches. ``recent``: standbys
    that were chosen lately; such a one is returned, as repeated, only if no other is suitable.

    >>> choose("srv1", Count(1, 4), {"srv2": 4})
    Choice(server_name='srv2', reason='srv1 reaches 1 of 4 nodes, srv2 reaches 4', is_repeated=False)
    >>> choose("srv1", Count(2, 4), {"srv2": 4}), choose("srv1", Count(1, 4), {"srv2": 1})
    (None, None)
    """
    suitable = [name for name, reached in standbys.items() if reached >= max(1, 2 * own.reached)]
    if 2 * own.reached >= own.alive or not suitable:
        return None
    name = max(sorted(suitable), key=lambda name: (name not in recent, standbys[name]))
    reason = f"{server_name} reaches {own.reached} of {own.alive} nodes, {name} reaches {standbys[name]}"
    return Choice(name, reason, name in recent)


def is_decided(own: Count, standbys: Collection[str], counts: Mapping[str, int]) -> bool:
    """Return whether no further count of a standby is needed.

    >>> is_decided(Count(1, 4), ["srv2", "srv3"], {"srv2": 3}), is_decided(Count(1, 4), ["srv2", "srv3"], {"srv2": -1})
    (True, False)
    """
    if 2 * own.reached >= own.alive or len(counts) == len(standbys):
        return True
    return any(2 * reached > own.alive and reached >= 2 * own.reached for reached in counts.values())


def count_nodes(opened: Runtime, checked: Mapping[str, bool] = MappingProxyType({})) -> Count:
    """Check all nodes that are Alive, and store the number of those that answer, -1 if they cannot be checked.

    ``checked``: nodes that were just checked, and whether they answer. Raises ConfigError.
    """
    with opened.database.begin() as tx:
        nodes = tx.resources.alive_node_names()
    try:
        rest = [node for node in nodes if node not in checked]
        silent = set(silent_hosts(opened.config, rest)) if rest else set()
    except ConfigError:
        with opened.database.begin() as tx:
            tx.servers.note_reached(own_server(opened.config), FAILED)
        raise
    reached = sum(checked.get(node, node not in silent) for node in nodes)
    with opened.database.begin() as tx:
        tx.servers.note_reached(own_server(opened.config), reached)
    return Count(reached, len(nodes))


def find_better_server(opened: Runtime, checked: Mapping[str, bool]) -> Choice | None:
    """Compare the nodes that this server reaches with those of the standbys. Raises ConfigError.

    ``checked``: the Alive nodes that were just checked, and whether they answer. Nothing is compared if only few of
    them are silent, or soon after a comparison that led to no hand-over.
    """
    with opened.database.begin() as tx:
        is_due = tx.now >= tx.servers.generation().count_requested_at + RECOUNT_SECONDS
        if not is_due or not have_failed(checked.values(), len(tx.resources.alive_node_names())):
            return None
        requested, standbys = tx.now, candidates(tx.servers.all(), opened.config, tx.now)
        if not standbys:
            return None
        tx.servers.request_count()
    own = count_nodes(opened, checked)
    end = time.monotonic() + COUNT_SECONDS
    while not is_decided(own, standbys, counts := _counts(opened, standbys, requested)) and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
    recent = [row.server_name for row in standbys.values() if requested < row.chosen_at + 60 * REPEAT_MINUTES]
    choice = choose(own_server(opened.config), own, counts, recent)
    log.warning("this server reaches %d of %d nodes; standby servers: %s", *own, counts or "no answer")
    return choice


def _counts(opened: Runtime, names: Collection[str], since: int) -> dict[str, int]:
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
