"""Reboots of nodes under running jobs.

A node reports its boot id with each probe. If it differs from the boot id that the server stored at the start of a
job (``job_runs.boot_id``), the Runner ends the job in ``Error`` with the event NODE_REBOOTED
(oar/modules/runner/actions/finish.py). NodeChangeState submits idempotent jobs again, and the node returns to ``Alive``
after it is cleaned; a node that reboots too often stays Suspected. oar_phoenix, which orders reboots of broken nodes,
is in oar/lib/nodes/phoenix.py.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from oar.lib.history.event_consequences import event_type
from oar.lib.history.event_types import EventType
from oar.lib.history.records import Event

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: A host that was rebooted under more jobs than this within ``REBOOTS_SECONDS`` is broken: it stays Suspected.
REBOOTS_FORGIVEN = 3
REBOOTS_SECONDS = 24 * 3600


def is_rebooted(boot_id: str, present_boot_id: str) -> bool:
    """Return whether two boot ids of a host prove a reboot; '' is an unknown boot id."""
    return bool(boot_id and present_boot_id and present_boot_id != boot_id)


def describe_reboot(host: str, boot_id: str) -> str:
    """Return the description of NODE_REBOOTED; it is the same for all jobs that one reboot ended."""
    return f"{host} was rebooted while the job ran there; its boot id is {boot_id} now"


def count_boots(events: Iterable[Event]) -> int:
    """Return the number of different boots in the events NODE_REBOOTED of a host."""
    texts = [event.description for event in events if event_type(event.type) is EventType.NODE_REBOOTED]
    return len({text.partition("] ")[2] for text in texts})


def unstable_hosts(tx: "Transaction", events: Sequence[Event]) -> frozenset[str]:
    """Return the hosts of these events that were recently rebooted under too many jobs. Each boot counts once."""
    rebooted = {host for event in events if event.type == EventType.NODE_REBOOTED for host in event.hosts}
    if not rebooted:
        return frozenset()
    histories = tx.events.of_nodes(rebooted, since=tx.now - REBOOTS_SECONDS)
    return frozenset(host for host, history in histories.items() if count_boots(history) > REBOOTS_FORGIVEN)
