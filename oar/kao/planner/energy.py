"""Energy orders: which nodes to wake, and which to halt. See docs/design/planner.rst, "Energy"."""

from collections.abc import Iterable, Mapping

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Placement
from oar.kao.facts.snapshot import Snapshot
from oar.lib.base.resource_set import ResourceSet, from_positions, positions
from oar.lib.nodes.energy_records import may_sleep
from oar.lib.nodes.states import ALWAYS_AVAILABLE, NEVER_HALTED_NOR_WOKEN, ResourceState
from oar.lib.reservations.states import STARTED

#: The type of the resources that nodes consist of.
COMPUTE = "default"


def nodes_to_wake(
    snapshot: Snapshot, placements: Iterable[Placement], types: Mapping[int, ParsedTypes]
) -> tuple[str, ...]:
    """Return the sleeping nodes needed by jobs that start soon, or by advance reservations that have begun.

    Jobs of types ``*=standby`` wake no nodes.  A woken node that has not booted within the boot limit is woken again.
    """
    settings, resources = snapshot.settings, snapshot.resources
    if not settings.may_wake:
        return ()
    asleep = resources.where(resources.states, ResourceState.ABSENT) & resources.where(resources.types, COMPUTE)
    upto = resources.available_upto
    soon = snapshot.now + settings.wakeup_time
    stays = [
        (placement.end, placement.resources)
        for placement in placements
        if placement.start <= soon and not types[placement.job_id].is_standby
    ]
    stays += [(each.end, each.resources) for each in snapshot.reservations if each.state in STARTED]
    needed = 0
    for end, held in stays:
        needed |= from_positions(bit for bit in positions(held & asleep) if end <= upto[bit])
    boot_begin = snapshot.now - settings.boot_limit
    return tuple(node for node in resources.nodes_of(needed) if snapshot.woken.get(node, -1) < boot_begin)


def nodes_to_halt(snapshot: Snapshot, placements: Iterable[Placement]) -> tuple[str, ...]:
    """Return the nodes that have been idle for ``idle_time`` and have no placement within ``sleep_time``."""
    settings = snapshot.settings
    if not (settings.idle_time and settings.sleep_time):
        return ()
    busy = snapshot.used_lately
    for job in snapshot.running:
        busy |= job.resources
    for placement in placements:
        if placement.start < snapshot.now + settings.sleep_time:
            busy |= placement.resources
    nodes: dict[str, list[int]] = {}  #: the bits of the compute resources of each node
    for bit, address in enumerate(snapshot.resources.addresses):
        if address and snapshot.resources.types[bit] == COMPUTE:
            nodes.setdefault(address, []).append(bit)
    unused = sorted(node for node, bits in nodes.items() if _is_idle(snapshot, node, bits, busy))
    if not snapshot.kept_awake:
        return tuple(unused)
    held = 0
    for job in snapshot.running:
        held |= job.resources
    states = snapshot.resources.states
    idle = {
        node
        for node, bits in nodes.items()
        if all(states[bit] is ResourceState.ALIVE and not held >> bit & 1 for bit in bits)
    }
    return tuple(may_sleep(unused, idle, snapshot.kept_awake))


def _is_idle(snapshot: Snapshot, node: str, bits: list[int], busy: ResourceSet) -> bool:
    """Return whether a node may be halted, is not busy, and was neither used nor woken for ``idle_time``."""
    resources = snapshot.resources
    idle_since = snapshot.now - snapshot.settings.idle_time
    return snapshot.woken.get(node, 0) < idle_since and all(
        resources.states[bit] is ResourceState.ALIVE
        and NEVER_HALTED_NOR_WOKEN < resources.available_upto[bit] < ALWAYS_AVAILABLE
        and not busy >> bit & 1
        for bit in bits
    )
