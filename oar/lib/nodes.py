"""The only place where a resource changes state.

Others ask: they write ``next_state``, and NodeChangeState applies it here; or they write an event whose consequence is
a suspicion.  All resources of a node change together, with their log, in one statement (server.md 5.3).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oar.lib.messages import Ask, Effect, JobAction, Mail, Tag, Wake
from oar.lib.properties import Setting, logged
from oar.lib.request import JobTypes
from oar.lib.states import STATE_NUMBERS, UNCHANGED, EventType, ResourceState

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction
    from oar.lib.db.resources import PendingChange

#: How many times a node is woken that does not come.
WAKES = 2

#: States that end the jobs of a node, and the types of jobs that they do not concern: nothing of them runs there.
_ENDS_JOBS = frozenset({ResourceState.DEAD, ResourceState.ABSENT})
_UNCONCERNED = ("cosystem", "noop")


@dataclass(frozen=True, slots=True)
class Changes:
    """What came of the changes that were asked."""

    moved: "tuple[PendingChange, ...]" = ()
    doomed: "Mapping[int, tuple[str, ...]]" = field(default_factory=dict)  #: jobs that must end, with what they lose


def suspect(tx: "Transaction", nodes: Collection[str], *, finaud: bool, named: bool = True) -> list[int]:
    """Make the resources of nodes Suspected that an error may make so; return them.

    ``finaud``: Finaud may take it back.  ``named``: the event that is the reason names the nodes; else one that does is
    written.
    """
    found = tx.resources.suspectable(nodes, finaud=finaud)
    if not found:
        return []
    tx.resources.move(found, ResourceState.SUSPECTED, finaud=finaud)
    hosts = sorted(set(found.values()))
    if not named:
        tx.events.add(EventType.LOG_SUSPECTED, 0, f"[NodeChangeState] {', '.join(hosts)}: Suspected", hosts=hosts)
    tx.outbox.append(Mail("Suspecting nodes", "\n".join(hosts)))
    tx.outbox.extend(_heal(found))
    return list(found)


def apply_pending(tx: "Transaction", *, sweeps: bool) -> Changes:
    """Give resources the states that were asked for.

    With ``sweeps``, a node that comes back is cleaned first: until the Runner has written that it is, what was asked
    stays asked, and the Runner is reminded.
    """
    swept = tx.events.take_hosts(EventType.NODE_SWEPT)
    pending = tx.resources.pending()
    unclean = {one.network_address for one in pending if sweeps and one.comes_back} - swept
    ready = [one for one in pending if not (one.comes_back and one.network_address in unclean)]
    moved = tuple(one for one in ready if one.changes)
    for (state, finaud), ids in _by_target(moved).items():
        tx.resources.move(ids, state, finaud=finaud)
    tx.resources.settle([one.id for one in ready if not one.changes])
    if unclean:
        tx.outbox.append(Ask(JobAction.SWEEP, 0, tuple(sorted(unclean))))
    tx.outbox.extend(_heal({one.id: one.network_address for one in moved if one.next_state is ResourceState.SUSPECTED}))
    if moved:
        tx.outbox.append(Mail("Resource state modifications", "\n".join(_lines(moved))))
    lost = {one.id: one.network_address for one in moved if one.next_state in _ENDS_JOBS}
    ending = {job: tuple(sorted({lost[one] for one in held})) for job, held in doomed(tx, lost).items()}
    return Changes(moved, ending)


def doomed(tx: "Transaction", resources: Collection[int]) -> dict[int, list[int]]:
    """Return the live jobs that must end when these resources are taken away, each with those that it holds."""
    jobs = tx.jobs.on_resources(resources) if resources else {}
    types = tx.jobs.types(jobs, current=True) if jobs else {}
    return {
        job: held
        for job, held in jobs.items()
        if not any(name in JobTypes(types.get(job, ())) for name in _UNCONCERNED)
    }


def order_halt(tx: "Transaction", names: Collection[str], text: str) -> None:
    """Take idle nodes away; once they are Absent the Runner halts them."""
    taken = [
        name
        for name in sorted(names)
        if tx.resources.ask_state_of_node(name, ResourceState.ABSENT, seen=ResourceState.ALIVE)
    ]
    if taken:
        tx.events.add(EventType.HALT_NODE, 0, f"{text}: {', '.join(taken)}", to_check=True, hosts=taken)
        tx.outbox += [Wake(Tag.CHSTATE), Ask(JobAction.ENERGY, 0)]


def order_wake(tx: "Transaction", names: Collection[str], text: str) -> None:
    """Let the Runner wake nodes; those that have not come when they were woken are given up."""
    if names:
        lost = tx.resources.woken_in_vain(names, WAKES)
        give_up_sleeping(tx, lost, f"[MetaSched] woken {WAKES} times in vain")
        names = set(names) - lost
    if names:
        tx.events.add(EventType.WAKEUP_NODE, 0, f"{text}: {', '.join(sorted(names))}", to_check=True, hosts=names)
        tx.outbox.append(Ask(JobAction.ENERGY, 0))


def give_up_sleeping(tx: "Transaction", names: Collection[str], text: str) -> None:
    """Suspect nodes that sleep, or should, and tell why: nobody knows in which state they are."""
    found = tx.resources.of_nodes(names)
    asleep = [one for one in found if one.state is ResourceState.ABSENT and one.next_state == UNCHANGED]
    if asleep:
        hosts = sorted({one.network_address for one in asleep})
        tx.events.add(EventType.LOG_SUSPECTED, 0, f"{text}: {', '.join(hosts)}", hosts=hosts)
        tx.outbox.append(Mail("Nodes cannot be halted or woken", f"{text}: {', '.join(hosts)}"))
        ask_state(tx, [one.id for one in asleep], ResourceState.SUSPECTED)


# -- what administrators do -------------------------------------------------------------------------------------------


def add(
    tx: "Transaction", names: Sequence[str], settings: Sequence[Setting], state: ResourceState = ResourceState.ALIVE
) -> list[int]:
    """Create a resource for each name of a node, all with these properties; return their ids, in order."""
    return add_each(tx, [(name, settings) for name in names], state)


def add_each(
    tx: "Transaction", resources: Sequence[tuple[str, Sequence[Setting]]], state: ResourceState = ResourceState.ALIVE
) -> list[int]:
    """Create resources, ``(name of the node, its properties)`` each; return their ids, in order.

    All have the same properties, with values of their own.
    """
    ids = tx.resources.insert(
        [
            {"network_address": name, "state": state, "state_num": STATE_NUMBERS[state], **dict(settings)}
            for name, settings in resources
        ]
    )
    history = [(resource, "state", str(state)) for resource in ids]
    for resource, (_, settings) in zip(ids, resources, strict=True):
        history += [(resource, setting.name, logged(setting.value)) for setting in settings]
    tx.resources.begin_log(history)
    tx.outbox += [Wake(Tag.CHSTATE), Wake(Tag.TERM)]
    return ids


def ask_state(tx: "Transaction", resources: Collection[int], to: ResourceState) -> None:
    """Ask for a state of resources, as an administrator's decision."""
    tx.resources.ask_state(resources, to)
    tx.outbox.append(Wake(Tag.CHSTATE))


def begin_maintenance(tx: "Transaction", resources: Collection[int], *, by: str) -> None:
    """Take resources away, and let nobody wake them."""
    fresh = set(resources) - tx.resources.in_maintenance(resources)
    if fresh:
        tx.resources.log(fresh, "maintenance", "on")
        _tell_maintenance(tx, EventType.MAINTENANCE_BEGUN, f"User {by} began the maintenance of", fresh)
    changed = tx.resources.keep_asleep(resources)
    if changed:
        tx.resources.log(changed, "available_upto", "0")
    ask_state(tx, resources, ResourceState.ABSENT)


def end_maintenance(tx: "Transaction", resources: Collection[int], *, by: str) -> None:
    """Bring resources back as they were before their maintenance."""
    over = tx.resources.in_maintenance(resources)
    if over:
        tx.resources.close_log(resources, "maintenance")
        _tell_maintenance(tx, EventType.MAINTENANCE_ENDED, f"User {by} ended the maintenance of", over)
    dates: dict[int, list[int]] = defaultdict(list)
    for resource, date in tx.resources.wake_as_before(resources):
        dates[date].append(resource)
    for date, changed in dates.items():
        tx.resources.log(changed, "available_upto", str(date))
    ask_state(tx, resources, ResourceState.ALIVE)


def _tell_maintenance(tx: "Transaction", type_: EventType, text: str, resources: Collection[int]) -> None:
    found = tx.resources.select(sorted(resources))
    hosts = sorted({one.network_address for one in found} - {""})
    others = [f"resource {one.id}" for one in found if not one.network_address]
    tx.events.add(type_, 0, f"{text} {', '.join([*hosts, *others])}", hosts=hosts)


# -- how the changes are told -----------------------------------------------------------------------------------------


def _by_target(changes: "Iterable[PendingChange]") -> dict[tuple[ResourceState, bool], list[int]]:
    groups: dict[tuple[ResourceState, bool], list[int]] = defaultdict(list)
    for one in changes:
        groups[one.next_state, one.next_finaud_decision].append(one.id)
    return groups


def _heal(suspected: Mapping[int, str]) -> list[Effect]:
    """Ask that the site's script looks after what became Suspected."""
    lines = tuple(f"{resource} {node}" for resource, node in sorted(suspected.items()))
    return [Ask(JobAction.HEAL, 0, lines)] if lines else []


def _lines(changes: "Iterable[PendingChange]") -> list[str]:
    """One line for each node and change."""
    counts: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for one in changes:
        counts[one.network_address or "-", one.state, one.next_state].append(one.id)
    return [f"{node}: {old} -> {new} ({len(ids)} resources)" for (node, old, new), ids in sorted(counts.items())]
