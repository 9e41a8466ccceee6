"""Which nodes to wake and which to halt (scheduling.md 5.4)."""

from collections.abc import Iterable, Mapping

from oar.kao.model import Placement, Snapshot
from oar.kao.traits import Traits
from oar.lib.resource_set import ResourceSet, positions
from oar.lib.states import ALWAYS_AVAILABLE, NEVER_HALTED_NOR_WOKEN, ResourceState

#: The type of resources that nodes consist of.
COMPUTE = "default"


def to_wake(snapshot: Snapshot, placements: Iterable[Placement], traits: Mapping[int, Traits]) -> tuple[str, ...]:
    """Return the sleeping nodes that a waiting job needs soon; one that starts on sleeping nodes wakes none.

    A node that was woken has as long to come as nodes need to boot; then it is woken again.
    """
    resources = snapshot.resources
    asleep = resources.where(resources.states, ResourceState.ABSENT) & resources.where(resources.types, COMPUTE)
    horizon = snapshot.now + snapshot.settings.wakeup_time
    wanted = 0
    for placement in placements:
        if placement.start <= horizon and not traits[placement.job_id].is_standby:
            wanted |= _available_until(snapshot, placement.resources & asleep, placement.end)
    since = snapshot.now - snapshot.settings.wakeup_time
    return tuple(node for node in resources.nodes_of(wanted) if snapshot.woken.get(node, -1) < since)


def to_halt(snapshot: Snapshot, placements: Iterable[Placement]) -> tuple[str, ...]:
    """Return the nodes that nobody has used for a while, and that nobody will use for a while."""
    settings = snapshot.settings
    if not (settings.idle_time and settings.sleep_time):
        return ()
    busy = 0
    for job in snapshot.running:
        busy |= job.resources
    for placement in placements:
        if placement.start < snapshot.now + settings.sleep_time:
            busy |= placement.resources
    awake = [node for node, members in _nodes(snapshot).items() if _is_idle(snapshot, node, members, busy)]
    return tuple(sorted(awake))


def _nodes(snapshot: Snapshot) -> dict[str, list[int]]:
    """Return the compute resources of each node."""
    resources = snapshot.resources
    nodes: dict[str, list[int]] = {}
    for bit, address in enumerate(resources.addresses):
        if address and resources.types[bit] == COMPUTE:
            nodes.setdefault(address, []).append(bit)
    return nodes


def _is_idle(snapshot: Snapshot, node: str, members: list[int], busy: ResourceSet) -> bool:
    resources = snapshot.resources
    since = snapshot.now - snapshot.settings.idle_time
    return snapshot.woken.get(node, 0) < since and all(
        resources.states[bit] is ResourceState.ALIVE
        and NEVER_HALTED_NOR_WOKEN < resources.available_upto[bit] < ALWAYS_AVAILABLE
        and resources.last_job_dates[bit] < since
        and not busy >> bit & 1
        for bit in members
    )


def _available_until(snapshot: Snapshot, members: ResourceSet, end: int) -> ResourceSet:
    """Return those that stay available until a date."""
    upto = snapshot.resources.available_upto
    return sum(1 << bit for bit in positions(members) if end <= upto[bit])
