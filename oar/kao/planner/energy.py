"""Energy orders: which nodes to wake, and which to halt.

See docs/design/planner.rst, "Energy".
"""

from collections.abc import Iterable, Mapping

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Placement
from oar.kao.facts.snapshot import Snapshot
from oar.lib.facts.reservation_states import STARTED
from oar.lib.facts.resource_set import ResourceSet, from_positions, positions
from oar.lib.facts.states import ALWAYS_AVAILABLE, NEVER_HALTED_NOR_WOKEN, ResourceState

#: The type of the resources that nodes consist of.
COMPUTE = "default"


def nodes_to_wake(
    snapshot: Snapshot, placements: Iterable[Placement], types: Mapping[int, ParsedTypes]
) -> tuple[str, ...]:
    """Return the sleeping nodes on which a job is placed soon, and those of advance reservations that have begun.

    Jobs of types ``*=standby`` wake none.  A node that was woken has the time that a node needs to boot; then it is
    woken again.
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
    boot_begin = snapshot.now - settings.wakeup_time
    return tuple(node for node in resources.nodes_of(needed) if snapshot.woken.get(node, -1) < boot_begin)


def nodes_to_halt(snapshot: Snapshot, placements: Iterable[Placement]) -> tuple[str, ...]:
    """Return the nodes that have been idle for a while and on which no job is placed for a while."""
    settings = snapshot.settings
    if not (settings.idle_time and settings.sleep_time):
        return ()
    busy = snapshot.used_lately
    for job in snapshot.running:
        busy |= job.resources
    for placement in placements:
        if placement.start < snapshot.now + settings.sleep_time:
            busy |= placement.resources
    idle = [node for node, bits in _compute_bits(snapshot).items() if _is_idle(snapshot, node, bits, busy)]
    return tuple(sorted(idle))


def _compute_bits(snapshot: Snapshot) -> dict[str, list[int]]:
    """Return the bits of the compute resources of each node."""
    resources = snapshot.resources
    nodes: dict[str, list[int]] = {}
    for bit, address in enumerate(resources.addresses):
        if address and resources.types[bit] == COMPUTE:
            nodes.setdefault(address, []).append(bit)
    return nodes


def _is_idle(snapshot: Snapshot, node: str, bits: list[int], busy: ResourceSet) -> bool:
    """Whether a node may be halted, is not busy, and was neither used nor woken for ``idle_time``."""
    resources = snapshot.resources
    idle_since = snapshot.now - snapshot.settings.idle_time
    return snapshot.woken.get(node, 0) < idle_since and all(
        resources.states[bit] is ResourceState.ALIVE
        and NEVER_HALTED_NOR_WOKEN < resources.available_upto[bit] < ALWAYS_AVAILABLE
        and not busy >> bit & 1
        for bit in bits
    )
